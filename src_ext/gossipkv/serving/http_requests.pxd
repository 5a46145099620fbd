"""What a request of HTTP/1.1 asks, if it is plain.  The idea stands in `http_requests.pyx`."""

from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    MAX_HEAD = 8192
    NOT_WHOLE = 0  # Instead of a length.
    STRANGE = -1

cdef struct Plain:
    Blob database
    Blob key  # as it was sent
    Py_ssize_t escapes  # `%XX` in it
    Wanted wanted
    int64_t first  # of the bytes that are asked for
    int64_t last
    Blob tag  # of `If-None-Match`; of size 0: none
    bint is_old  # it is of HTTP/1.0, which has one request a connection, and needs no host
    bint is_last  # the connection is to end behind it


cdef Py_ssize_t read_plain(const uint8_t* data, Py_ssize_t size, Plain* plain) noexcept nogil
cdef void put_key(const Plain* plain, Buffer* out) noexcept nogil
