"""Requests for Python to answer; `backlog.pyx` explains the design."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

cdef enum BacklogKind:
    ASKED = 0  # a method and its parameters
    RESULT = 1  # the result of a pending request
    REFUSAL = 2  # the error of a pending request
    UNANSWERED = 3  # the report on a read that no other node has answered

cdef struct BacklogRequest:
    BacklogRequest* next
    uint64_t handle
    int64_t received_ns
    Py_ssize_t method_size
    Py_ssize_t size  # size of the parameters or of the answer
    uint32_t msgid
    BacklogKind kind

cdef struct BacklogQueue:
    uint64_t handle
    BacklogRequest* first  # NULL if the queue is empty
    BacklogRequest* last
    Py_ssize_t size_bytes
    uint32_t before  # neighbours in the order of turns, as indexes of `queues`
    uint32_t after
    bint parked

cdef class Backlog:
    cdef BacklogQueue* queues  # indexed by the slot of the handle
    cdef uint32_t capacity
    cdef uint32_t first_turn
    cdef uint32_t last_turn
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t parked_bytes

    cdef bint is_empty(self) noexcept nogil
    cdef uint64_t next_turn(self) noexcept nogil
    cdef BacklogRequest* put(
        self, uint64_t handle, uint32_t msgid, BacklogKind kind, int64_t received_ns, Py_ssize_t method_size,
        Py_ssize_t size
    ) noexcept nogil
    cdef BacklogRequest* pop(self) noexcept nogil
    cdef void park_queue(self, uint64_t handle) noexcept nogil
    cdef void resume_queue(self, uint64_t handle) noexcept nogil
    cdef void forget_queue(self, uint64_t handle) noexcept nogil
    cdef Py_ssize_t bytes_of(self, uint64_t handle) noexcept nogil
    cdef BacklogQueue* find(self, uint64_t handle) noexcept nogil
    cdef int reach(self, uint32_t slot) noexcept nogil
    cdef void enter(self, uint32_t slot) noexcept nogil
    cdef void leave(self, uint32_t slot) noexcept nogil


cdef inline uint8_t* request_bytes(BacklogRequest* request) noexcept nogil:
    """Return the method and, behind it, the parameters; or the answer."""
    return <uint8_t*>(request + 1)


cdef inline bytes method_of(BacklogRequest* request):
    return PyBytes_FromStringAndSize(<const char*>request_bytes(request), request.method_size)


cdef inline bint is_method(BacklogRequest* request, bytes method):
    """True if the request is for that method."""
    return (
        len(method) == request.method_size
        and memcmp(request_bytes(request), <const char*>method, request.method_size) == 0
    )


cdef inline bytes params_of(BacklogRequest* request):
    return PyBytes_FromStringAndSize(<const char*>request_bytes(request) + request.method_size, request.size)
