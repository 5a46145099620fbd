"""Detached connections with TLS ending here; `tunnels.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    FIRST_HANDLE = OTHERS + 1  # Each descriptor has two handles; handles of connections are beyond 2**32.
    CHUNK_BYTES = 16384  # the size of a TLS record

cdef struct Tunnel:
    int fd  # to the client
    int pair  # to the server of the detached connection
    uint32_t interest  # events that the client is watched for
    uint32_t pair_interest
    bint client_ended
    bint server_ended
    bint server_gone  # it has closed its end, which is no longer watched
    int64_t moved_ns  # when the client last took bytes
    Tunnel* next


cdef class Tunnels:
    cdef TlsConnections tls_connections
    cdef int epoll
    cdef readonly int count
    cdef Tunnel* first
    cdef uint8_t chunk[CHUNK_BYTES]

    cdef int begin(self, int fd, int64_t now_ns) noexcept nogil
    cdef int control(self, int operation, Tunnel* tunnel, bint at_pair, uint32_t interest) noexcept nogil
    cdef bint serve(self, uint64_t handle, uint32_t what, int64_t now_ns) noexcept nogil
    cdef void carry_in(self, Tunnel* tunnel) noexcept nogil
    cdef bint carry_out(self, Tunnel* tunnel, int64_t now_ns) noexcept nogil
    cdef void watch(self, Tunnel* tunnel, uint32_t interest, uint32_t pair_interest) noexcept nogil
    cdef void close(self, Tunnel* tunnel) noexcept nogil
    cdef void expire(self, int64_t now_ns) noexcept nogil
    cdef void close_all(self) noexcept nogil
