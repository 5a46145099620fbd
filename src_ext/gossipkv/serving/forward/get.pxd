"""Gets that another node answers; `get.pyx` explains the design."""

from gossipkv.wire._wire cimport Blob, Cursor, Envelope


cdef int begin_forwarded_get(
    RelayDriver driver, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil
cdef int begin_cold_get(
    RelayDriver driver, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil
cdef void refuse_read(
    RelayDriver driver, Relay* relay, const Blob* code, const Cursor* error, int column
) noexcept nogil
cdef bint is_version_asked(const Relay* relay, Cursor result) noexcept nogil
cdef WaitReason owner_reason() noexcept nogil
cdef WaitReason disk_reason() noexcept nogil
