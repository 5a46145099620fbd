"""Connections that speak RESP, and their answers; `answers.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    MAX_NAME = 255
    MAX_SETTLED = 73  # a token of one table with LEFT_OUT

cdef enum AnswerForm:  # how an answer is written
    SAID = 0  # the result is RESP already
    VALUE = 1  # value of a `get`, or null
    LENGTH = 2  # length of the value
    RANGE = 3  # a range of the value
    TYPE = 4
    EXPIRES = 5  # lifetime of the record; -1 if it never expires, -2 if there is none
    FOUND = 6  # 1 or 0
    VALUES = 7  # values of `get_many`
    FOUND_OF = 8  # number of keys found
    DONE = 9  # success of a write
    DELETED = 10  # success of a delete

cdef struct RespState:  # state of a connection
    ReplyQueue replies  # first member, so that the pointers can be cast
    int protocol
    uint32_t database  # number of the last `SELECT`
    bint in_multi  # between `MULTI` and `EXEC` or `DISCARD`; nothing is done there
    uint8_t name_size
    uint8_t name[MAX_NAME]
    PyObject** published  # where the core keeps the published table
    uint32_t writes  # requests that may write and are not answered
    uint32_t era  # number of changes of the session other than appended tokens
    bint is_shown  # the last request written shows tokens of this table; 0 for all
    uint64_t shown_table
    Py_ssize_t prune_bytes
    uint8_t settled_size
    uint8_t settled[MAX_SETTLED]  # the last settled token


cdef ReplyQueue* resp_begin(PyObject** published) noexcept nogil


cdef inline RespState* resp_of(ReplyQueue* replies) noexcept nogil:
    """Return the connection's RESP state. Requires: it speaks RESP."""
    return <RespState*>replies


cdef inline bint is_of_write(int form) noexcept nogil:
    """True if the answer is to a write that others may overtake."""
    return form >= DONE
