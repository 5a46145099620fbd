"""The errors that the core answers by itself, in its words; -1 without memory."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport strlen

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve
from gossipkv.wire._wire cimport (
    BAD_REQUEST, IS_REQUEST, Envelope, put_array, put_map, put_nil, put_response, put_text, put_unsigned, read_envelope,
)

cdef enum:
    ERROR_BYTES = 512  # The longest error that is written here, envelope included.


cdef inline int write_error(
    Buffer* out, uint32_t msgid, const char* code, const char* message, Py_ssize_t limit, Py_ssize_t size
) noexcept nogil:
    """A whole error answer, `[1, id, [code, message, {limit, size}], nil]`; what is negative is left out."""
    if buffer_reserve(out, ERROR_BYTES) < 0:
        return -1
    put_response(out, msgid)
    put_array(out, 3)
    put_text(out, code)
    put_text(out, message)
    put_map(out, <int>(limit >= 0) + <int>(size >= 0))
    if limit >= 0:
        put_text(out, b"limit")
        put_unsigned(out, <uint64_t>limit)
    if size >= 0:
        put_text(out, b"size")
        put_unsigned(out, <uint64_t>size)
    put_nil(out)
    return 0


cdef inline int write_bad_request(Buffer* out, uint32_t msgid, const char* message) noexcept nogil:
    return write_error(out, msgid, b"BAD_REQUEST", message, -1, -1)


cdef inline int refuse_message(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(out, msgid, b"a request is [0, id, method, [parameters]]")


cdef inline int refuse_id(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(out, msgid, b"a request with this id is still in flight")


cdef inline int refuse_bounds(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(
        out, msgid, b"the request is too deep, too long or no MessagePack; the connection is closed"
    )


cdef inline int refuse_size(Buffer* out, uint32_t msgid, Py_ssize_t limit) noexcept nogil:
    return write_error(
        out, msgid, b"TOO_LARGE", b"the request is larger than the node accepts; the connection is closed", limit, -1
    )


cdef inline int refuse_elements(Buffer* out, uint32_t msgid, Py_ssize_t limit, Py_ssize_t size) noexcept nogil:
    return write_error(
        out, msgid, b"BAD_REQUEST", b"the request has more elements than its method takes", limit, size
    )


cdef inline int refuse_load(Buffer* out, uint32_t msgid, Py_ssize_t limit) noexcept nogil:
    return write_error(
        out, msgid, b"OVERLOADED", b"too much waits for an answer here; try again later", limit, -1
    )


cdef inline int refuse_disk(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_error(
        out, msgid, b"OVERLOADED", b"this node's disk has not given the record in time; try again later", -1, -1
    )


cdef inline int refuse_answer(Buffer* out, uint32_t msgid, Py_ssize_t limit, Py_ssize_t size) noexcept nogil:
    """Instead of an answer that no client would read."""
    return write_error(
        out, msgid, b"TOO_LARGE", b"the answer is larger than a frame may be; ask for less", limit, size
    )


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


cdef inline bint is_http(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Whether it begins as a request of HTTP does: a method and a path."""
    cdef Py_ssize_t at = 0
    while at < size and is_letter(data[at]):
        at += 1
    return 0 < at < size - 1 and data[at] == 0x20 and data[at + 1] == 0x2F


cdef inline int refuse_plain(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Say that TLS is spoken here, to a peer that begins in the clear and shows in which protocol."""
    cdef const char* answer = NULL
    cdef Envelope envelope
    cdef int kind
    if is_http(data, size):
        answer = (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
            b"This port of a GossipKV node speaks TLS: ask for https.\r\n"
        )
    elif data[0] == 0x2A or is_letter(data[0]):  # An asterisk, an array; or a command in a line.
        answer = b"-ERR this port of a GossipKV node speaks TLS\r\n"
    if answer != NULL:
        return buffer_append(out, <const uint8_t*>answer, <Py_ssize_t>strlen(answer))
    kind = read_envelope(data, size, &envelope)
    if kind != IS_REQUEST and kind != BAD_REQUEST:
        return 0
    return write_bad_request(out, envelope.msgid, b"this port of the node speaks TLS; the connection is closed")


cdef inline int refuse_tls(Buffer* out) noexcept nogil:
    """Tell a peer that begins a handshake that there is none here, by all that it can hear: an alert.

    offset size field
    0      1    kind of record (21 alert)
    1      2    version of the record (3, 1), which every version reads
    3      2    length of what follows
    5      1    level (2 fatal)
    6      1    description (70 protocol_version)
    """
    return buffer_append(out, <const uint8_t*>b"\x15\x03\x01\x00\x02\x02\x46", 7)


cdef inline int refuse_protocol(Buffer* out, uint8_t first) noexcept nogil:
    """Say what speaks here to a peer whose first byte is that of a request of HTTP or of RESP; nothing to others."""
    cdef const char* answer = NULL
    if 0x41 <= first <= 0x5A:  # A letter: the method.
        answer = (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
            b"This is a GossipKV node: it speaks MessagePack-RPC, not HTTP.\r\n"
        )
    elif first == 0x2A:  # An asterisk: an array.
        answer = b"-ERR this is a GossipKV node: it speaks MessagePack-RPC, not RESP\r\n"
    return 0 if answer == NULL else buffer_append(out, <const uint8_t*>answer, <Py_ssize_t>strlen(answer))
