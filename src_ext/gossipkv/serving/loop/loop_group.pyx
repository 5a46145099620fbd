"""The group of a node's serving loops: they share its limits, and each new connection goes to the loop with the fewest.

The first loop accepts connections and passes them on as *arrivals*: descriptors that the target loop takes when woken.
Connections (in all, and per address) are counted under a mutex, since they come and go seldom. Requests in flight are
one atomic number; two loops may both take its last place.

Memory is divided: each loop owns a block, and borrows further whole blocks, which it returns when idle. One loop alone
may hold all but the other loops' blocks. The malloc threshold is fixed, so freed memory returns to the system: glibc
would raise the threshold after the first large buffer, keep freed memory with holes in it, and take 2.4 times as much.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.serving.connection._addresses cimport addresses_add, addresses_count, addresses_remove
from gossipkv.storage._storage cimport PageThreads
from gossipkv.wire._buffer cimport LARGE_CAPACITY

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int fd, uint64_t value)

cdef enum:
    # Larger allocations are mapped, and given back at once. Each message that msgpack packs takes LARGE_CAPACITY for a
    # moment: mapping that anew took longer than the packing.
    MAPPED_BYTES = LARGE_CAPACITY + 4096

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    #define gkv_set_thresholds(size) (mallopt(M_MMAP_THRESHOLD, size), mallopt(M_TRIM_THRESHOLD, 16 * (size)))
    #else  /* musl gives back what is large */
    #define gkv_set_thresholds(size) ((void)(size))
    #endif
    """
    void set_malloc_thresholds "gkv_set_thresholds"(int size)


@cython.final
@cython.no_gc
cdef class LoopGroup:
    """The limits that `size` serving loops share; `max_of_address` 0 means no limit per address."""

    def __cinit__(
        self, int size, *, int max_connections, int max_of_address, int max_in_flight, Py_ssize_t max_held
    ):
        if min(size, max_connections, max_in_flight) < 1 or max_of_address < 0 or max_held < size:
            raise ValueError("a loop group needs at least one loop and positive limits")
        set_malloc_thresholds(MAPPED_BYTES)
        pthread_mutex_init(&self.mutex, NULL)
        self.size = size
        self.max_connections = max_connections
        self.max_of_address = max_of_address
        self.max_in_flight = max_in_flight
        self.max_held = max_held
        self.block = max(1, min(MAX_OF_ITS_OWN, max_held // (4 * size)))
        self.spare = max_held - size * self.block
        self.page_threads = PageThreads()
        self.entries = <LoopEntry*>calloc(size, sizeof(LoopEntry))
        if self.entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.entries)
        free(self.addresses.entries)
        pthread_mutex_destroy(&self.mutex)

    cdef int admit(self, uint64_t address) noexcept nogil:
        """Choose the loop with the fewest connections, and count the new one there; or return a `AdmitFailure`."""
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
                if self.entries[pump].connections < self.entries[least].connections:
                    least = pump
            self.entries[least].connections += 1
            atomic_add(&self.connections, 1)  # Loops read it without the mutex.
        pthread_mutex_unlock(&self.mutex)
        return least

    cdef uint32_t count_of(self, uint64_t address) noexcept nogil:
        """Return how many connections that address has; 0 if addresses are not counted."""
        cdef uint32_t count
        pthread_mutex_lock(&self.mutex)
        count = addresses_count(&self.addresses, address)
        pthread_mutex_unlock(&self.mutex)
        return count

    cdef bint send(self, int pump, Arrival arrival) noexcept nogil:
        """Pass an admitted connection to that loop. Return False if too many wait for the loop."""
        cdef LoopEntry* entry = &self.entries[pump]
        cdef bint sent
        pthread_mutex_lock(&self.mutex)
        sent = entry.arrival_count < MAX_ARRIVALS
        if sent:
            entry.arrivals[entry.arrival_count] = arrival
            atomic_add(&entry.arrival_count, 1)
            eventfd_write(entry.waker, 1)
        pthread_mutex_unlock(&self.mutex)
        return sent

    cdef bint receive(self, int pump, Arrival* arrival) noexcept nogil:
        """Take an arrival of that loop; False for none. Each wake-up calls this, so the check only reads."""
        cdef LoopEntry* entry = &self.entries[pump]
        cdef bint received
        if atomic_load(&entry.arrival_count) == 0:  # A sender wakes the loop after it has counted, so none is missed.
            return False
        pthread_mutex_lock(&self.mutex)
        received = entry.arrival_count > 0
        if received:
            atomic_add(&entry.arrival_count, -<uint32_t>1)
            arrival[0] = entry.arrivals[entry.arrival_count]
        pthread_mutex_unlock(&self.mutex)
        return received

    cdef void move(self, int pump, int other) noexcept nogil:
        """Count a connection at loop `other` that was admitted to `pump`."""
        pthread_mutex_lock(&self.mutex)
        self.entries[pump].connections -= 1
        self.entries[other].connections += 1
        pthread_mutex_unlock(&self.mutex)

    cdef void leave(self, int pump, uint64_t address) noexcept nogil:
        """Count one connection less. Requires: it was admitted, and belongs to that loop."""
        pthread_mutex_lock(&self.mutex)
        self.entries[pump].connections -= 1
        atomic_add(&self.connections, -<uint32_t>1)
        if self.max_of_address > 0:
            addresses_remove(&self.addresses, address)
        pthread_mutex_unlock(&self.mutex)

    cdef Py_ssize_t lend(self, Py_ssize_t size) noexcept nogil:
        """Lend unowned memory: whole blocks of at least that size, or all that is left. Return the lent bytes."""
        cdef Py_ssize_t lent
        pthread_mutex_lock(&self.mutex)
        lent = min(self.spare, (size + self.block - 1) // self.block * self.block)
        self.spare -= lent
        pthread_mutex_unlock(&self.mutex)
        return lent

    cdef void take_back(self, Py_ssize_t size) noexcept nogil:
        pthread_mutex_lock(&self.mutex)
        self.spare += size
        pthread_mutex_unlock(&self.mutex)
