"""The holders of each partition, and the peers; `routes.pyx` explains the design."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._wire cimport Blob

cdef enum:
    MAX_PEERS = 4096  # Limit of columns; at the limit a row has 512 bytes.

cdef struct Peer:
    bint known
    int state  # 0 ALIVE, 1 SUSPECT, 2 DEAD
    bint slow  # let a stage pass or was busy, and has not answered since
    bint wanted  # Python has an event that a connection is needed
    uint64_t handle  # handle of its connection, which may be gone
    Relay* gathering  # while a batch is divided: the part for this peer
    Blob name

cdef struct Route:
    uint8_t identity[IDENTITY_BYTES]
    Py_ssize_t partitions
    uint32_t words  # words of a row
    uint64_t* rows  # one bit per column for each partition


cdef class Routes:
    cdef Peer* peers
    cdef uint32_t peer_count
    cdef list names
    cdef Route* routes  # open addressing; `rows` is NULL in an empty place
    cdef uint32_t mask
    cdef uint32_t count
    cdef uint64_t state  # state of the random numbers

    cdef Route* find(self, const uint8_t* identity) noexcept nogil
    cdef Route* slot_of(self, const uint8_t* identity) noexcept nogil
    cdef int grow(self) except -1
    cdef int widen(self, Route* route, uint32_t column) except -1
    cdef Peer* peer(self, int column) except NULL
    cdef uint32_t draw(self, uint32_t count) noexcept nogil
