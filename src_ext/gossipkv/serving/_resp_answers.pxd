"""What a connection that speaks RESP is owed, in order.  The idea stands in `_resp_answers.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from gossipkv.wire._buffer cimport Buffer, buffer_reserve

cdef enum:
    MOST_PARTS = 64  # Requests of one command, each of another database than the one before.
    MOST_NAME = 255

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

cdef struct Owed:  # the answer to a request
    uint8_t form
    uint8_t protocol  # of that moment
    uint16_t parts  # requests whose answers are said together, this one and those behind it; 0: it is behind one
    bint is_kept
    Py_ssize_t at  # in what is kept
    Py_ssize_t size
    int64_t first  # of the bytes that are asked for
    int64_t last

cdef struct Resp:  # of a connection
    int protocol
    uint32_t database  # as `SELECT` names it
    uint32_t first_id  # of the request that is answered next
    Buffer owed  # an `Owed` for each that is not answered yet
    Buffer kept  # answers that wait for earlier ones, as they came
    uint32_t kept_count
    Py_ssize_t held  # of both, as it was counted last
    Py_ssize_t said  # of the output, from its beginning; the rest is yet to be said
    uint8_t name_size
    uint8_t name[MOST_NAME]


cdef Resp* resp_begin() noexcept nogil
cdef void resp_release(Resp* resp) noexcept nogil
cdef int resp_say(Resp* resp, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil


cdef inline uint32_t owed_count(const Resp* resp) noexcept nogil:
    return <uint32_t>((resp.owed.end - resp.owed.start) // <Py_ssize_t>sizeof(Owed))


cdef inline uint32_t next_id(const Resp* resp) noexcept nogil:
    """The id of the request that is read next."""
    return resp.first_id + owed_count(resp)


cdef inline Owed* resp_owe(Resp* resp, Form form, int parts) noexcept nogil:
    """Note that the request with `next_id` is to be answered; NULL: no memory."""
    cdef Owed* owed
    if buffer_reserve(&resp.owed, sizeof(Owed)) < 0:
        return NULL
    owed = <Owed*>(resp.owed.data + resp.owed.end)
    resp.owed.end += sizeof(Owed)
    owed.form = <uint8_t>form
    owed.protocol = <uint8_t>resp.protocol
    owed.parts = <uint16_t>parts
    owed.is_kept = False
    return owed


cdef inline void resp_take_back(Resp* resp, uint32_t id) noexcept nogil:
    """Owe nothing from that request on: it is as if it had not been read."""
    resp.owed.end = resp.owed.start + <Py_ssize_t>((id - resp.first_id) * sizeof(Owed))
