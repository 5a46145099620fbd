"""A connection that speaks HTTP/1.1, and how it is answered.  The idea stands in `http_answers.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    DATED_BYTES = 151  # `Date: Thu, 01 Jan 1970 00:00:00 GMT`, the line's end, and `GUARDS`.

cdef enum Wanted:  # `Owed.form`
    WHOLE = 0  # the value
    BYTE_RANGE = 1  # bytes of it from `first` to `last`; -1: to its end
    LAST_BYTES = 2  # so many as `last`
    HEAD = 3  # no body

cdef struct MediaType:  # of the values of a database
    Blob database
    Blob name

cdef struct HttpWords:  # what answers say, for all connections of a core
    PyObject* table  # that is served, borrowed; NULL: none yet
    Blob usual  # the media type of values
    MediaType* types  # of databases that have another, in ascending order
    Py_ssize_t type_count
    Blob node  # that answers
    bint draining  # each connection ends behind what it is owed
    int64_t now_s  # since 1970
    int64_t dated_s  # when `dated` was written
    uint8_t dated[DATED_BYTES]  # the headers that each answer has

cdef struct Http:  # of a connection
    Owing owing  # the first member, so that one is the other
    HttpWords* words


cdef Owing* http_begin(HttpWords* words) noexcept nogil
cdef void http_forget(HttpWords* words) noexcept nogil
cdef int note_request(Owing* owing, Owed* owed, const Blob* database, const Blob* tag) noexcept nogil
cdef int say_too_slow(HttpWords* words, int64_t limit_ms, Buffer* out) noexcept nogil
