"""Clocks as C has them: each function called so often without the GIL, between two readings of the caller's clock."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from gossipkv.replication._vector_clock cimport Order, clock_compare, clock_covers, clock_merge


def compare(bytes one not None, bytes other not None, long calls):
    """How one stands to the other, as the last call had it."""
    cdef const unsigned char* left = <const unsigned char*>PyBytes_AS_STRING(one)
    cdef const unsigned char* right = <const unsigned char*>PyBytes_AS_STRING(other)
    cdef Py_ssize_t left_size = PyBytes_GET_SIZE(one)
    cdef Py_ssize_t right_size = PyBytes_GET_SIZE(other)
    cdef Order found = Order.EQUAL_CLOCKS
    with nogil:
        for _ in range(calls):
            found = clock_compare(left, left_size, right, right_size)
    return <int>found


def covers(bytes one not None, bytes other not None, long calls):
    """Whether one covers the other, as the last call had it."""
    cdef const unsigned char* left = <const unsigned char*>PyBytes_AS_STRING(one)
    cdef const unsigned char* right = <const unsigned char*>PyBytes_AS_STRING(other)
    cdef Py_ssize_t left_size = PyBytes_GET_SIZE(one)
    cdef Py_ssize_t right_size = PyBytes_GET_SIZE(other)
    cdef bint found = False
    with nogil:
        for _ in range(calls):
            found = clock_covers(left, left_size, right, right_size)
    return found


def merge(bytes one not None, bytes other not None, long calls):
    """What both come to, as the last call had it: always in the same room."""
    cdef const unsigned char* left = <const unsigned char*>PyBytes_AS_STRING(one)
    cdef const unsigned char* right = <const unsigned char*>PyBytes_AS_STRING(other)
    cdef Py_ssize_t left_size = PyBytes_GET_SIZE(one)
    cdef Py_ssize_t right_size = PyBytes_GET_SIZE(other)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, left_size + right_size)
    cdef unsigned char* into = <unsigned char*>PyBytes_AS_STRING(room)
    cdef Py_ssize_t size = 0
    with nogil:
        for _ in range(calls):
            size = clock_merge(left, left_size, right, right_size, into)
    return room[:size]
