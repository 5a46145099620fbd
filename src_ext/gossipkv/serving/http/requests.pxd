"""The parser of plain requests of HTTP/1.1; `request/requests.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    MAX_HEAD = 8192
    MAX_BODY = 65536
    NOT_WHOLE = 0  # Results in place of a length.
    STRANGE = -1

cdef enum PlainMethod:
    READ_KEY = 0
    PUT_KEY = 1
    DELETE_KEY = 2

cdef struct PlainRequest:
    PlainMethod method
    Blob host  # NULL without the header
    Blob database
    Blob key  # key with its escapes
    Py_ssize_t escapes  # number of `%XX` in the key
    BodyForm wanted
    int64_t first  # first and last requested byte
    int64_t last
    Blob tag  # value of `If-None-Match`; empty for none
    Blob token  # value of `GossipKV-Token`, in Base64; empty for none
    Blob body  # of PUT
    bint is_old  # HTTP/1.0, which has one request per connection, and needs no host
    bint is_last  # the connection ends after this request


cdef Py_ssize_t read_plain(const uint8_t* data, Py_ssize_t size, PlainRequest* plain) noexcept nogil
cdef void put_key(const PlainRequest* plain, Buffer* out) noexcept nogil
cdef void put_shown_token(const PlainRequest* plain, Buffer* out) noexcept nogil
