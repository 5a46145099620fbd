"""What is told of a read that no other node has answered.  The idea stands in `forward_report.pyx`."""

from gossipkv.wire._wire cimport Blob


cdef void report_unanswered(Asking asking, Relay* relay, Py_ssize_t partition, const Blob* key) noexcept nogil
