"""The pumps of a node, as they know each other.  The idea stands in `crew.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from gossipkv.serving._addresses cimport AddressCounts
from gossipkv.storage._storage cimport PageThreads

cdef enum:
    MAX_OF_ITS_OWN = 1024 * 1024  # Of what may be held, for each pump: a few requests, and seldom asked for.
    CROWDED_PERCENT = 80  # Of the connections that there may be.
    MAX_SENT_AWAY = 64  # At once, to make way: each look at all connections takes as long as a thousand reads.
    MAX_ARRIVALS = 64  # That wait for one pump; who comes then is served by whoever has accepted.

cdef enum Refusal:
    TOO_MANY_CONNECTIONS = -1
    TOO_MANY_OF_ADDRESS = -2

cdef struct Arrival:
    int fd
    uint64_t address
    uint64_t listener  # to which it came

cdef struct Seat:
    uint32_t connections  # That are this pump's, or on their way to it.
    Arrival arrivals[MAX_ARRIVALS]
    uint32_t arrival_count  # What may be looked at without the mutex.
    int waker  # What makes it look at them.

cdef class Crew:
    cdef pthread_mutex_t mutex
    cdef readonly int size
    cdef uint32_t max_connections
    cdef uint32_t max_of_address  # 0: no such limit
    cdef uint32_t max_in_flight
    cdef Py_ssize_t max_held
    cdef Py_ssize_t block  # that each pump has of it
    cdef Py_ssize_t spare  # that no pump has
    cdef PageThreads page_threads  # which read from the disk for all pumps
    cdef uint32_t connections  # of all pumps, those to other nodes not counted
    cdef AddressCounts addresses
    cdef Seat* seats
    # What all pumps write, on a line of its own.
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
    #define gkv_crew_load(from) __atomic_load_n(from, __ATOMIC_RELAXED)
    #define gkv_crew_add(to, value) __atomic_fetch_add(to, value, __ATOMIC_RELAXED)
    """
    uint32_t atomic_load "gkv_crew_load"(const uint32_t* source) noexcept nogil
    uint32_t atomic_add "gkv_crew_add"(uint32_t* target, uint32_t value) noexcept nogil


cdef inline bint is_crowded(Crew crew) noexcept nogil:
    """True while so many are connected that each has to prove that it wants something."""
    return atomic_load(&crew.connections) > crew.max_connections * <uint64_t>CROWDED_PERCENT // 100


cdef inline bint is_short(Crew crew) noexcept nogil:
    """True while so few more may connect that some have to go for them."""
    return atomic_load(&crew.connections) + min(crew.max_connections // 10 + 1, <uint32_t>MAX_SENT_AWAY) > crew.max_connections


cdef inline bint may_be_in_flight(Crew crew) noexcept nogil:
    """Whether one more request of the node may be in flight."""
    return atomic_load(&crew.in_flight) < crew.max_in_flight


cdef inline void count_in_flight(Crew crew, uint32_t more) noexcept nogil:
    """Count so many more; modulo 2**32, so fewer too."""
    atomic_add(&crew.in_flight, more)
