"""Connections that speak RESP, and their answers; `answers.pyx` explains the design."""

from libc.stdint cimport uint8_t, uint32_t


cdef enum:
    MAX_NAME = 255

cdef enum AnswerForm:  # how an answer is written
    SAID = 0  # the result is RESP already
    VALUE = 1  # value of a `get`, or null
    LENGTH = 2  # length of the value
    RANGE = 3  # a range of the value
    TYPE = 4
    LIFETIME = 5
    FOUND = 6  # 1 or 0
    VALUES = 7  # values of `get_many`
    FOUND_OF = 8  # number of keys found
    DONE = 9  # success of a write
    DELETED = 10  # number of deletes

cdef struct RespState:  # state of a connection
    ReplyQueue replies  # first member, so that the pointers can be cast
    int protocol
    uint32_t database  # number of the last `SELECT`
    uint8_t name_size
    uint8_t name[MAX_NAME]


cdef ReplyQueue* resp_begin() noexcept nogil


cdef inline RespState* resp_of(ReplyQueue* replies) noexcept nogil:
    """Return the connection's RESP state. Requires: it speaks RESP."""
    return <RespState*>replies
