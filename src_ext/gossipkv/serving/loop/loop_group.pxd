"""The limits that all serving loops of a node share; `loop_group.pyx` explains the design."""

from libc.stdint cimport uint32_t, uint64_t

from gossipkv.serving.connection._addresses cimport AddressCounts
from gossipkv.storage._storage cimport PageThreads

cdef enum:
    # Each serving loop owns this much of the memory: a few requests, so it seldom borrows.
    MAX_OF_ITS_OWN = 1024 * 1024
    CROWDED_PERCENT = 80  # share of the permitted connections
    MAX_SENT_AWAY = 64  # Evictions at once: a look at all connections takes as long as a thousand reads.
    MAX_ARRIVALS = 64  # Arrivals waiting for one loop; beyond that the accepting loop serves the connection itself.

cdef enum AdmitFailure:
    TOO_MANY_CONNECTIONS = -1
    TOO_MANY_OF_ADDRESS = -2

cdef struct Arrival:
    int fd
    uint64_t address
    uint64_t listener  # the listener it came to

cdef struct LoopEntry:  # the entry of a serving loop
    uint32_t connections  # connections of this loop, or on their way to it
    Arrival arrivals[MAX_ARRIVALS]
    uint32_t arrival_count  # can be read without the mutex
    int waker  # eventfd that wakes the loop to receive arrivals

cdef class LoopGroup:
    cdef pthread_mutex_t mutex
    cdef readonly int size
    cdef uint32_t max_connections
    cdef uint32_t max_of_address  # 0 for no limit
    cdef uint32_t max_in_flight
    cdef Py_ssize_t max_held
    cdef Py_ssize_t block  # bytes of it that each loop owns
    cdef Py_ssize_t spare  # bytes of it that no loop has
    cdef PageThreads page_threads  # disk readers for all loops
    cdef uint32_t connections  # connections of all loops, without those to other nodes
    cdef AddressCounts addresses
    cdef LoopEntry* entries
    # All loops write this number, so it has a cache line of its own.
    cdef char before[CACHE_LINE_BYTES]
    cdef uint32_t in_flight
    cdef char behind[CACHE_LINE_BYTES]

    cdef int admit(self, uint64_t address) noexcept nogil
    cdef uint32_t count_of(self, uint64_t address) noexcept nogil
    cdef bint send(self, int pump, Arrival arrival) noexcept nogil
    cdef bint receive(self, int pump, Arrival* arrival) noexcept nogil
    cdef void move(self, int pump, int other) noexcept nogil
    cdef void leave(self, int pump, uint64_t address) noexcept nogil
    cdef Py_ssize_t lend(self, Py_ssize_t size) noexcept nogil
    cdef void take_back(self, Py_ssize_t size) noexcept nogil


cdef extern from *:
    """
    #define gkv_group_load(from) __atomic_load_n(from, __ATOMIC_RELAXED)
    #define gkv_group_add(to, value) __atomic_fetch_add(to, value, __ATOMIC_RELAXED)
    """
    uint32_t atomic_load "gkv_group_load"(const uint32_t* source) noexcept nogil
    uint32_t atomic_add "gkv_group_add"(uint32_t* target, uint32_t value) noexcept nogil


cdef inline bint is_crowded(LoopGroup group) noexcept nogil:
    """True while so many are connected that clients have to prove themselves."""
    return atomic_load(&group.connections) > group.max_connections * <uint64_t>CROWDED_PERCENT // 100


cdef inline bint is_short(LoopGroup group) noexcept nogil:
    """True while so few more may connect that some unproven connections must be closed."""
    cdef uint32_t room = min(group.max_connections // 10 + 1, <uint32_t>MAX_SENT_AWAY)
    return atomic_load(&group.connections) + room > group.max_connections


cdef inline bint may_be_in_flight(LoopGroup group) noexcept nogil:
    """True if one more request of the node may be in flight."""
    return atomic_load(&group.in_flight) < group.max_in_flight


cdef inline void count_in_flight(LoopGroup group, uint32_t more) noexcept nogil:
    """Add `more` requests in flight; modulo 2**32, so also a negative number."""
    atomic_add(&group.in_flight, more)
