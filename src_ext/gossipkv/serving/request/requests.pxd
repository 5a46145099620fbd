"""Requests and how they are served; `requests.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._wire cimport Envelope


cdef bint answer_gathered(Core core, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil
cdef void take_message(
    Core core, Connection* connection, int kind, const uint8_t* message, const Envelope* envelope
) noexcept nogil
cdef void take_request(Core core, Connection* connection, const Envelope* request) noexcept nogil
cdef void conclude(Core core, Connection* connection, const Envelope* request, int outcome) noexcept nogil
cdef void wait_elsewhere(
    Core core, Connection* connection, const Envelope* request, const Lookup* lookup, int why
) noexcept nogil
cdef void count_answered(Core core, const Connection* connection) noexcept nogil
cdef Connection* run_scans(Core core, int64_t* work) noexcept nogil
