"""Other nodes and the connections to them; `peers.pyx` explains the design."""

from libc.stdint cimport uint8_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Cursor


cdef class Peers:
    cdef Connections connections
    cdef Routes routes
    cdef Buffer wanted  # columns of peers that a relay would ask, and that have no connection
    cdef Buffer not_served  # refusals as column, size and error
    cdef Buffer damaged  # `[database, key, version]` of an unreadable local record; empty if there is none

    cdef int next_owner(self, const Relay* relay, Py_ssize_t partition) noexcept nogil
    cdef bint is_held(self, const uint8_t* identity, Py_ssize_t partition) noexcept nogil
    cdef Connection* connection_of(self, int column) noexcept nogil
    cdef void want(self, int column) noexcept nogil
    cdef void note_not_served(self, int column, const Cursor* error) noexcept nogil
    cdef int adopt(self, Connection* connection) except -1
    cdef void disown(self, const Peer* peer) noexcept nogil
    cdef void end_peer(self, int column) except *
    cdef void forget_peer(self, int column) except *
    cdef bint has_events(self) noexcept nogil
