"""Requests for Python to answer: each connection's requests in order, the connections in turn.

An answer may take milliseconds, and a connection may have a thousand requests on their way. The loop answers for a
moment at a time, the connections in turn, so a client waits for one answer of each other connection, not for all.
Requests of a connection whose peer does not read are parked: they keep their order, and resume when the peer has read.
Late results (`RESULT`, `REFUSAL`) wait here too, until there is room for them.

A handle names a slot and a generation, and each slot has one queue. Answers for an earlier generation are not awaited,
so its remaining requests go when a later generation adds one.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

cdef enum:
    MIN_QUEUES = 16

cdef uint32_t NO_TURN = 0xFFFFFFFFU


@cython.final
cdef class Backlog:
    """The requests, in turn order; true while one can be taken."""

    def __cinit__(self):
        self.first_turn = NO_TURN
        self.last_turn = NO_TURN

    def __dealloc__(self):
        cdef uint32_t slot
        for slot in range(self.capacity):
            self.forget_queue(self.queues[slot].handle)
        free(self.queues)

    # In C -------------------------------------------------------------------------------------------------------

    cdef bint is_empty(self) noexcept nogil:
        return self.first_turn == NO_TURN

    cdef uint64_t next_turn(self) noexcept nogil:
        """Return the connection whose turn it is. Requires: the backlog is not empty."""
        return self.queues[self.first_turn].handle

    cdef BacklogRequest* put(
        self, uint64_t handle, uint32_t msgid, BacklogKind kind, int64_t received_ns, Py_ssize_t method_size,
        Py_ssize_t size
    ) noexcept nogil:
        """Append a request to its connection's queue; the caller writes its bytes. NULL if out of memory."""
        cdef uint32_t slot = <uint32_t>handle
        cdef BacklogQueue* queue
        cdef BacklogRequest* request
        if slot >= self.capacity and self.reach(slot) < 0:
            return NULL
        request = <BacklogRequest*>malloc(sizeof(BacklogRequest) + method_size + size)
        if request == NULL:
            return NULL
        queue = &self.queues[slot]
        if queue.handle != handle:
            if queue.first != NULL:
                self.forget_queue(queue.handle)
            queue.handle = handle
        request.next = NULL
        request.handle = handle
        request.received_ns = received_ns
        request.method_size = method_size
        request.size = size
        request.msgid = msgid
        request.kind = kind
        if queue.first == NULL:
            queue.first = request
            self.enter(slot)
        else:
            queue.last.next = request
        queue.last = request
        queue.size_bytes += method_size + size
        if queue.parked:
            self.parked_bytes += method_size + size
        else:
            self.size_bytes += method_size + size
        return request

    cdef BacklogRequest* pop(self) noexcept nogil:
        """Remove and return the oldest request of the connection in turn; the caller frees it. Requires: not empty."""
        cdef uint32_t slot = self.first_turn
        cdef BacklogQueue* queue = &self.queues[slot]
        cdef BacklogRequest* request = queue.first
        queue.first = request.next
        queue.size_bytes -= request.method_size + request.size
        self.size_bytes -= request.method_size + request.size
        if self.first_turn != self.last_turn or queue.first == NULL:
            self.leave(slot)
            if queue.first != NULL:
                self.enter(slot)
        return request

    cdef void park_queue(self, uint64_t handle) noexcept nogil:
        cdef BacklogQueue* queue = self.find(handle)
        if queue != NULL and not queue.parked:
            self.leave(<uint32_t>handle)
            queue.parked = True
            self.size_bytes -= queue.size_bytes
            self.parked_bytes += queue.size_bytes

    cdef void resume_queue(self, uint64_t handle) noexcept nogil:
        cdef BacklogQueue* queue = self.find(handle)
        if queue != NULL and queue.parked:
            queue.parked = False
            self.enter(<uint32_t>handle)
            self.size_bytes += queue.size_bytes
            self.parked_bytes -= queue.size_bytes

    cdef void forget_queue(self, uint64_t handle) noexcept nogil:
        cdef BacklogQueue* queue = self.find(handle)
        cdef BacklogRequest* request
        if queue == NULL:
            return
        if queue.parked:
            self.parked_bytes -= queue.size_bytes
        else:
            self.leave(<uint32_t>handle)
            self.size_bytes -= queue.size_bytes
        while queue.first != NULL:
            request = queue.first
            queue.first = request.next
            free(request)
        queue.size_bytes = 0
        queue.parked = False

    cdef BacklogQueue* find(self, uint64_t handle) noexcept nogil:
        """Return the connection's queue; NULL if it is empty."""
        cdef uint32_t slot = <uint32_t>handle
        if slot >= self.capacity or self.queues[slot].handle != handle or self.queues[slot].first == NULL:
            return NULL
        return &self.queues[slot]

    cdef Py_ssize_t bytes_of(self, uint64_t handle) noexcept nogil:
        """Return the bytes of a connection's waiting parameters and answers."""
        cdef BacklogQueue* queue = self.find(handle)
        return queue.size_bytes if queue != NULL else 0

    cdef int reach(self, uint32_t slot) noexcept nogil:
        """Allocate queues for slots up to this one."""
        cdef size_t capacity = self.capacity if self.capacity > 0 else MIN_QUEUES
        cdef BacklogQueue* queues
        while capacity <= slot:
            capacity *= 2
        queues = <BacklogQueue*>realloc(self.queues, capacity * sizeof(BacklogQueue))
        if queues == NULL:
            return -1
        memset(queues + self.capacity, 0, (capacity - self.capacity) * sizeof(BacklogQueue))
        self.queues = queues
        self.capacity = <uint32_t>capacity
        return 0

    cdef void enter(self, uint32_t slot) noexcept nogil:
        """Append the slot to the order of turns."""
        self.queues[slot].before = self.last_turn
        self.queues[slot].after = NO_TURN
        if self.last_turn == NO_TURN:
            self.first_turn = slot
        else:
            self.queues[self.last_turn].after = slot
        self.last_turn = slot

    cdef void leave(self, uint32_t slot) noexcept nogil:
        cdef uint32_t before = self.queues[slot].before
        cdef uint32_t after = self.queues[slot].after
        if before == NO_TURN:
            self.first_turn = after
        else:
            self.queues[before].after = after
        if after == NO_TURN:
            self.last_turn = before
        else:
            self.queues[after].before = before

    # From Python ------------------------------------------------------------------------------------------------

    def __bool__(self):
        return not self.is_empty()

    def add(self, hand_offs):
        """Append requests in this order: `(handle, message id, method, parameters)`."""
        cdef BacklogRequest* request
        cdef bytes method
        cdef bytes params
        for handle, msgid, method, params in hand_offs:
            request = self.put(handle, msgid, ASKED, 0, len(method), len(params))
            if request == NULL:
                raise MemoryError
            memcpy(request_bytes(request), <const uint8_t*><const char*>method, len(method))
            memcpy(request_bytes(request) + len(method), <const uint8_t*><const char*>params, len(params))

    @property
    def turn(self):
        """The connection whose turn it is. Raises: IndexError if no request can be taken."""
        if self.is_empty():
            raise IndexError("the backlog is empty")
        return self.next_turn()

    def take(self):
        """Take the oldest request of the connection in turn. Raises: IndexError if no request can be taken."""
        if self.is_empty():
            raise IndexError("the backlog is empty")
        cdef BacklogRequest* request = self.pop()
        result = (request.handle, request.msgid, method_of(request), params_of(request))
        free(request)
        return result

    def park(self, uint64_t handle):
        """Take the requests of a connection out of turn."""
        self.park_queue(handle)

    def resume(self, handles):
        """Resume the parked requests of these connections, behind all others."""
        for handle in handles:
            self.resume_queue(handle)

    def forget(self, uint64_t handle):
        """Drop the requests of a connection that is gone."""
        self.forget_queue(handle)
