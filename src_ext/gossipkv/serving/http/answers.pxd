"""Connections that speak HTTP/1.1, and their answers; `answers.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    DATED_BYTES = 151  # `Date: Thu, 01 Jan 1970 00:00:00 GMT`, the line's end, and `GUARDS`

cdef enum BodyForm:  # values of `PendingReply.form`
    WHOLE = 0  # the value
    BYTE_RANGE = 1  # its bytes from `first` to `last`; -1 for its end
    LAST_BYTES = 2  # its last `last` bytes
    HEAD = 3  # no body
    WRITTEN = 4  # the answer is to a write

cdef struct MediaType:  # media type of a database's values
    Blob database
    Blob name

cdef struct HttpWords:  # the variable words of answers, shared by all connections of a core
    PyObject* table  # the served table, borrowed; NULL for none yet
    Blob usual  # default media type of values
    MediaType* types  # databases with another media type, in ascending order
    Py_ssize_t type_count
    Blob node  # name of this node
    Blob hosts  # names that `Host` may have, as `host_is_expected` takes them; empty: any
    bint draining  # each connection ends after its pending answers
    int64_t now_s  # since 1970
    int64_t dated_s  # second in which `dated` was written
    uint8_t dated[DATED_BYTES]  # the headers common to all answers

cdef struct HttpState:  # state of a connection
    ReplyQueue replies  # first member, so that the pointers can be cast
    HttpWords* words
    Py_ssize_t needed  # size of the next request, if its head has come; else 0


cdef ReplyQueue* http_begin(HttpWords* words) noexcept nogil
cdef void http_forget(HttpWords* words) noexcept nogil
cdef int note_request(ReplyQueue* replies, PendingReply* reply, const Blob* database, const Blob* tag) noexcept nogil
cdef int write_too_slow(HttpWords* words, int64_t limit_ms, Buffer* out) noexcept nogil
