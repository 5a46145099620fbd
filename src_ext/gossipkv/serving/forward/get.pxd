"""Gets that another node answers; `get.pyx` explains the design."""

from gossipkv.wire._wire cimport Blob, Cursor, Envelope


cdef int begin_forwarded_get(
    Asking asking, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil
cdef int begin_cold_get(
    Asking asking, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil
cdef void refuse_read(
    Asking asking, Relay* relay, const Blob* code, const Cursor* error, int column
) noexcept nogil
cdef bint is_version_asked(const Relay* relay, Cursor result) noexcept nogil
cdef Reason waiting_for_an_owner() noexcept nogil
cdef Reason waiting_for_the_disk() noexcept nogil
