"""Who else holds what, and which peers there are.  The idea stands in `routes.pyx`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._wire cimport Blob

cdef enum:
    MAX_PEERS = 4096  # Columns; of so many a row has 512 bytes.

cdef struct Peer:
    bint known
    int state  # 0 ALIVE, 1 SUSPECT, 2 DEAD
    bint slow  # it let a stage pass or was busy, and has not answered since
    bint wanted  # Python is to hear that there should be a connection
    uint64_t handle  # of its connection; it may be gone
    Relay* gathering  # while a batch is divided: the part that is for it
    Blob name

cdef struct Route:
    uint8_t identity[IDENTITY_BYTES]
    Py_ssize_t partitions
    uint32_t words  # of a row
    uint64_t* rows  # for each partition a bit for each column


cdef class Routes:
    cdef Peer* peers
    cdef uint32_t peer_count
    cdef list names
    cdef Route* routes  # open addressing; `rows` is NULL where there is none
    cdef uint32_t mask
    cdef uint32_t count
    cdef uint64_t state  # of the random numbers

    cdef Route* find(self, const uint8_t* identity) noexcept nogil
    cdef Route* slot_of(self, const uint8_t* identity) noexcept nogil
    cdef int grow(self) except -1
    cdef int widen(self, Route* route, uint32_t column) except -1
    cdef Peer* peer(self, int column) except NULL
    cdef uint32_t draw(self, uint32_t count) noexcept nogil
