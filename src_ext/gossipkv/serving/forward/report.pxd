"""Reports on reads that no other node has answered; `report.pyx` explains the design."""

from gossipkv.wire._wire cimport Blob


cdef void report_unanswered(RelayDriver driver, Relay* relay, Py_ssize_t partition, const Blob* key) noexcept nogil
