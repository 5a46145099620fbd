"""The errors that the core answers by itself. The functions return -1 if out of memory."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve
from gossipkv.wire._wire cimport (
    BAD_REQUEST, IS_REQUEST, Envelope, put_array, put_map, put_nil, put_response, put_text, put_unsigned, read_envelope,
)

cdef enum:
    MESSAGE_BYTES = 256  # Room for the longest message, with two numbers.
    ERROR_BYTES = 512  # The longest error written here has this size, envelope included.


cdef inline int write_error(
    Buffer* out, uint32_t msgid, const char* code, const char* message, Py_ssize_t limit, Py_ssize_t size
) noexcept nogil:
    """Write an error answer `[1, id, [code, message, {limit, size}], nil]`; negative numbers are left out."""
    cdef char words[MESSAGE_BYTES]
    cdef int length = snprintf(words, MESSAGE_BYTES, b"%s", message)
    if limit >= 0:
        length += snprintf(words + length, MESSAGE_BYTES - length, b" (limit %lld", <long long>limit)
        if size >= 0:
            length += snprintf(words + length, MESSAGE_BYTES - length, b", given %lld", <long long>size)
        snprintf(words + length, MESSAGE_BYTES - length, b")")
    if buffer_reserve(out, ERROR_BYTES) < 0:
        return -1
    put_response(out, msgid)
    put_array(out, 3)
    put_text(out, code)
    put_text(out, words)
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
    return write_bad_request(out, msgid, b"a request must be [0, id, method, [parameters]]")


cdef inline int refuse_id(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(out, msgid, b"a request with this id is still in flight")


cdef inline int refuse_bounds(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(
        out, msgid, b"the request is nested too deeply, too long or not MessagePack; the connection is closed"
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
        out, msgid, b"OVERLOADED", b"this node has too many unanswered requests; try again later", limit, -1
    )


cdef inline int refuse_disk(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_error(
        out, msgid, b"OVERLOADED", b"the disk of this node did not deliver the record in time; try again later", -1, -1
    )


cdef inline int refuse_answer(Buffer* out, uint32_t msgid, Py_ssize_t limit, Py_ssize_t size) noexcept nogil:
    """Refuse an answer that is larger than a frame."""
    return write_error(
        out, msgid, b"TOO_LARGE", b"the answer is larger than a frame may be; request less", limit, size
    )


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


cdef inline bint is_http(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """True if the bytes begin with a method and a path of HTTP."""
    cdef Py_ssize_t at = 0
    while at < size and is_letter(data[at]):
        at += 1
    return 0 < at < size - 1 and data[at] == 0x20 and data[at + 1] == 0x2F


cdef inline int refuse_plain(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Answer a plain request on a TLS port with an error, in the protocol that the first bytes show."""
    cdef const char* answer = NULL
    cdef Envelope envelope
    cdef int kind
    if is_http(data, size):
        answer = (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
            b"This port of a GossipKV node speaks TLS; use https.\r\n"
        )
    # The first byte is an asterisk (a RESP array), or the letter of an inline command.
    elif data[0] == 0x2A or is_letter(data[0]):
        answer = b"-ERR this port of a GossipKV node speaks TLS\r\n"
    if answer != NULL:
        return buffer_append(out, <const uint8_t*>answer, <Py_ssize_t>strlen(answer))
    kind = read_envelope(data, size, &envelope)
    if kind != IS_REQUEST and kind != BAD_REQUEST:
        return 0
    return write_bad_request(out, envelope.msgid, b"this port of the node speaks TLS: connect with `--ca FILE`")


cdef inline int refuse_tls(Buffer* out) noexcept nogil:
    """Answer a TLS handshake on a plain port with an alert, the only reply that the peer understands.

        offset size field
        0      1    kind of record (21 alert)
        1      2    version of the record (3, 1), which every version reads
        3      2    length of the rest
        5      1    level (2 fatal)
        6      1    description (70 protocol_version)
    """
    return buffer_append(out, <const uint8_t*>b"\x15\x03\x01\x00\x02\x02\x46", 7)


cdef inline int refuse_protocol(Buffer* out, uint8_t first) noexcept nogil:
    """Name this port's protocol to a peer that begins in HTTP or RESP; write nothing for other peers."""
    cdef const char* answer = NULL
    if 0x41 <= first <= 0x5A:  # The byte is a letter of the method.
        answer = (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
            b"This port of a GossipKV node speaks MessagePack-RPC, not HTTP.\r\n"
        )
    elif first == 0x2A:  # The byte is an asterisk, for an array.
        answer = b"-ERR this port of a GossipKV node speaks MessagePack-RPC, not RESP\r\n"
    return 0 if answer == NULL else buffer_append(out, <const uint8_t*>answer, <Py_ssize_t>strlen(answer))
