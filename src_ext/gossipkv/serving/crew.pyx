"""The pumps of a node, as they know each other: who comes is given to the one that has fewest, and limits hold for all.

The first pump accepts.  Who comes is admitted here, to a pump, and gets there as an *arrival*: a descriptor that the
other takes up when it is woken.  (Rejected: a listener for each, by SO_REUSEPORT, where a second node of the same user
takes the port in silence; and all waiting at one listener, where a few long connections pile up at whoever was quick.)

Connections, in all and of an address, are counted under a mutex: they come and go seldom.  Requests in flight are one
number that all add to: each costs far more than that.  Two pumps that look at it at once may both find the last place.

What may be held is divided into shares: each pump has a block of its own, so that nobody drives it from that; what no
pump has is lent in whole blocks to whoever needs it, and given back when a block beyond what is needed is idle.  So one
pump alone may hold all but a block of each other one, and all together never more than all.  What is freed of that
goes back to the system: glibc would keep it after the first large buffer, with holes in it, and take 2.4 times as much.
So the process of a crew has a fixed threshold.  (Rejected: one number that
all add to, which a round of a connection would write several times; and even shares, which two clients do not keep.)
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.serving._addresses cimport addresses_add, addresses_count, addresses_remove
from gossipkv.storage._storage cimport PageThreads
from gossipkv.wire._buffer cimport LARGE_CAPACITY

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int fd, uint64_t value)

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    #define gkv_give_back_from(size) (mallopt(M_MMAP_THRESHOLD, size), mallopt(M_TRIM_THRESHOLD, 16 * (size)))
    #else  /* musl gives back what is large */
    #define gkv_give_back_from(size) ((void)(size))
    #endif
    """
    void give_back_from "gkv_give_back_from"(int size)


@cython.final
@cython.no_gc
cdef class Crew:
    """So many pumps, and the limits of all of them together; 0 `max_of_address`: no such limit."""

    def __cinit__(
        self, int size, *, int max_connections, int max_of_address, int max_in_flight, Py_ssize_t max_held
    ):
        if min(size, max_connections, max_in_flight) < 1 or max_of_address < 0 or max_held < size:
            raise ValueError("a crew has a pump, and every limit of it must be positive")
        give_back_from(LARGE_CAPACITY)
        pthread_mutex_init(&self.mutex, NULL)
        self.size = size
        self.max_connections = max_connections
        self.max_of_address = max_of_address
        self.max_in_flight = max_in_flight
        self.max_held = max_held
        self.block = max(1, min(MAX_OF_ITS_OWN, max_held // (4 * size)))
        self.spare = max_held - size * self.block
        self.page_threads = PageThreads()
        self.seats = <Seat*>calloc(size, sizeof(Seat))
        if self.seats == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.seats)
        free(self.addresses.entries)
        pthread_mutex_destroy(&self.mutex)

    cdef int admit(self, uint64_t address) noexcept nogil:
        """The pump that has fewest connections, where this one is counted from now on; or a `Refusal`."""
        cdef int least = 0
        cdef int pump
        pthread_mutex_lock(&self.mutex)
        if self.max_of_address > 0 and addresses_count(&self.addresses, address) >= self.max_of_address:
            least = TOO_MANY_OF_ADDRESS
        elif self.connections >= self.max_connections or (
            self.max_of_address > 0 and addresses_add(&self.addresses, address) < 0
        ):
            least = TOO_MANY_CONNECTIONS
        else:
            for pump in range(1, self.size):
                if self.seats[pump].connections < self.seats[least].connections:
                    least = pump
            self.seats[least].connections += 1
            self.connections += 1
        pthread_mutex_unlock(&self.mutex)
        return least

    cdef uint32_t count_of(self, uint64_t address) noexcept nogil:
        """How many connections that address has; 0 where they are not counted."""
        cdef uint32_t count
        pthread_mutex_lock(&self.mutex)
        count = addresses_count(&self.addresses, address)
        pthread_mutex_unlock(&self.mutex)
        return count

    cdef bint send(self, int pump, Arrival arrival) noexcept nogil:
        """Have that pump take up who was admitted to it; False: too many wait for it."""
        cdef Seat* seat = &self.seats[pump]
        cdef bint sent
        pthread_mutex_lock(&self.mutex)
        sent = seat.arrival_count < MAX_ARRIVALS
        if sent:
            seat.arrivals[seat.arrival_count] = arrival
            atomic_add(&seat.arrival_count, 1)
            eventfd_write(seat.waker, 1)
        pthread_mutex_unlock(&self.mutex)
        return sent

    cdef bint receive(self, int pump, Arrival* arrival) noexcept nogil:
        """Who was sent to that pump; False: nobody.  It asks whenever it wakes: that moves nobody else's memory."""
        cdef Seat* seat = &self.seats[pump]
        cdef bint received
        if atomic_load(&seat.arrival_count) == 0:  # Who sends wakes it afterwards.
            return False
        pthread_mutex_lock(&self.mutex)
        received = seat.arrival_count > 0
        if received:
            atomic_add(&seat.arrival_count, -<uint32_t>1)
            arrival[0] = seat.arrivals[seat.arrival_count]
        pthread_mutex_unlock(&self.mutex)
        return received

    cdef void move(self, int pump, int other) noexcept nogil:
        """Count one that was admitted to a pump at another."""
        pthread_mutex_lock(&self.mutex)
        self.seats[pump].connections -= 1
        self.seats[other].connections += 1
        pthread_mutex_unlock(&self.mutex)

    cdef void leave(self, int pump, uint64_t address) noexcept nogil:
        """Count one less.  Requires: it was admitted, and is that pump's."""
        pthread_mutex_lock(&self.mutex)
        self.seats[pump].connections -= 1
        self.connections -= 1
        if self.max_of_address > 0:
            addresses_remove(&self.addresses, address)
        pthread_mutex_unlock(&self.mutex)

    cdef Py_ssize_t lend(self, Py_ssize_t size) noexcept nogil:
        """So much of what may be held as no pump has: whole blocks, of at least that size; or all that is left."""
        cdef Py_ssize_t lent
        pthread_mutex_lock(&self.mutex)
        lent = min(self.spare, (size + self.block - 1) // self.block * self.block)
        self.spare -= lent
        pthread_mutex_unlock(&self.mutex)
        return lent

    cdef void take_back(self, Py_ssize_t size) noexcept nogil:
        """Have so much of what was lent."""
        pthread_mutex_lock(&self.mutex)
        self.spare += size
        pthread_mutex_unlock(&self.mutex)
