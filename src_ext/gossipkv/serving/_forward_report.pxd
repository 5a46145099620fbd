"""What is told of a read that no other node has answered.  The idea stands in `_forward_report.pyx`."""

from gossipkv.serving._asking cimport Asking
from gossipkv.serving._relays cimport Relay
from gossipkv.wire._message cimport Blob


cdef void report_unanswered(Asking asking, Relay* relay, Py_ssize_t partition, const Blob* key) noexcept nogil
