"""A connection that speaks RESP, and how it is answered.  The idea stands in `resp_answers.pyx`."""

from libc.stdint cimport uint8_t, uint32_t


cdef enum:
    MAX_NAME = 255

cdef enum Form:  # how an answer is said
    SAID = 0  # it is RESP already
    VALUE = 1  # of `get`: the value, or null
    LENGTH = 2  # its length
    RANGE = 3  # a part of it
    TYPE = 4
    LIFETIME = 5
    FOUND = 6  # 1 or 0
    VALUES = 7  # of `get_many`
    FOUND_OF = 8  # how many
    DONE = 9  # of a write
    DELETED = 10  # 1

cdef struct Resp:  # of a connection
    Owing owing  # the first member, so that one is the other
    int protocol
    uint32_t database  # as `SELECT` names it
    uint8_t name_size
    uint8_t name[MAX_NAME]


cdef Owing* resp_begin() noexcept nogil


cdef inline Resp* resp_of(Owing* owing) noexcept nogil:
    """What it has said.  Requires: it speaks RESP."""
    return <Resp*>owing
