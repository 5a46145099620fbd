"""The client's side of a conversation with one node, without any I/O: requests to bytes, bytes to answers.

A session gives each request an id, writes its frame behind those that wait to be sent, and cuts what arrives into
answers.  Answers come in any order.  What it insists on: an answer belongs to a request in flight, and belongs to it
once.  A peer that breaks this, or sends bytes that are not the protocol, ends the session (`failure`): nobody could
say any more which answer is whose.  Answers that came whole before that count, however the stream was cut.

An id is not used again before its answer came.  A request that nobody waits for any more is forgotten, but its id
is kept until then, and the late answer is dropped.

`get` and `get_many` are written and read here, without an object more than the values; every other answer, and every
one that is not of the expected shape, is decoded by msgpack once the scanner has bounded it.  So the scanner sees each
frame first, and the readers below need no bounds but its end.

    answer   94 01 id c0 92 value version      value of `get`: bin or nil; of `get_many`: array of these

The shells (`blocking`, `trio_client`) move the bytes; they hold sockets, clocks and decisions about failing over, and
none of this.  `tests/oracle/session.py` says the same in plain Python.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.client._requests cimport REQUEST_GET, REQUEST_GET_MANY, REQUEST_OTHER, Request
from gossipkv.wire._frames cimport (
    FRAME_BYTES,
    FRAME_DEPTH,
    FRAME_ELEMENTS,
    FRAME_PARTIAL,
    FrameLimits,
    FrameState,
    frame_begin,
    frame_length,
    frame_scan,
)

from gossipkv.client import reads
from gossipkv.errors import ProtocolError
from gossipkv.wire import rpc
from gossipkv.wire.frames import refusal

# Ids of requests whose answers nobody awaits; a node that never answers them is left before they pile up.
MAX_ABANDONED = 10_000
MAX_IN_FLIGHT = 1_000  # What a node takes of one connection before it stops reading, by default.
MAX_UNSENT_BYTES = 1 << 20  # Some 10,000 requests for one key; a node that reads takes more than this in a millisecond.

cdef uint8_t rpc_request = rpc.REQUEST
cdef uint8_t rpc_response = rpc.RESPONSE

cdef enum:
    MOST_ABANDONED = 10000
    LARGE_BYTES = 262144  # an input buffer above this is given back when it is empty


cdef inline uint8_t* put_head(uint8_t* at, uint8_t kind, Py_ssize_t length) noexcept:
    """A head with a length of 1, 2 or 4 bytes: `kind` is the head of the shortest form."""
    if length < 0x100:
        at[0] = kind
        at[1] = <uint8_t>length
        return at + 2
    if length < 0x10000:
        at[0] = kind + 1
        at[1] = <uint8_t>(length >> 8)
        at[2] = <uint8_t>length
        return at + 3
    at[0] = kind + 2
    return put_word(at + 1, <uint32_t>length)


cdef inline uint8_t* put_word(uint8_t* at, uint32_t number) noexcept:
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number
    return at + 4


cdef inline uint8_t* put_id(uint8_t* at, uint32_t number) noexcept:
    if number < 0x80:
        at[0] = <uint8_t>number
        return at + 1
    return put_head(at, 0xCC, number)  # cc, cd, ce: unsigned numbers of 1, 2 and 4 bytes.


cdef inline uint8_t* put_array(uint8_t* at, Py_ssize_t count) noexcept:
    if count < 16:
        at[0] = <uint8_t>(0x90 | count)
        return at + 1
    if count < 0x10000:
        at[0] = 0xDC
        at[1] = <uint8_t>(count >> 8)
        at[2] = <uint8_t>count
        return at + 3
    at[0] = 0xDD
    return put_word(at + 1, <uint32_t>count)


cdef inline uint8_t* put_bytes(uint8_t* at, bytes data) noexcept:
    """Bytes as they are."""
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline uint8_t* put_key(uint8_t* at, bytes key) noexcept:
    return put_bytes(put_head(at, 0xC4, PyBytes_GET_SIZE(key)), key)


cdef uint8_t* put_request(uint8_t* at, Request request) except NULL:
    """The frame, of which `request.size_bytes` is an upper bound."""
    at[0] = 0x94
    at[1] = rpc_request
    at = put_id(at + 2, request.message_id)
    if request.kind == REQUEST_OTHER:
        return put_bytes(at, request.head)
    if request.kind == REQUEST_GET:
        at = put_bytes(at, b"\xa3get")
    else:
        at = put_bytes(at, b"\xa8get_many")
    at = put_array(at, 2 if request.options is None else 3)
    at = put_bytes(at, request.head)
    if request.kind == REQUEST_GET:
        at = put_key(at, <bytes>request.subject)
    else:
        at = put_array(at, PyList_GET_SIZE(<list>request.subject))
        for key in <list>request.subject:
            at = put_key(at, <bytes>key)
    return at if request.options is None else put_bytes(at, request.options)


cdef object take_value(const uint8_t** cursor):
    """The `bin` or nil at the cursor, which moves behind it; it becomes NULL if there is anything else."""
    cdef const uint8_t* at = cursor[0]
    cdef Py_ssize_t length
    cdef int width
    if at[0] == 0xC0:
        cursor[0] = at + 1
        return None
    if not 0xC4 <= at[0] <= 0xC6:
        cursor[0] = NULL
        return None
    width = 1 << (at[0] - 0xC4)
    length = frame_length(at + 1, width)
    cursor[0] = at + 1 + width + length
    return PyBytes_FromStringAndSize(<const char*>at + 1 + width, length)


cdef object take_values(const uint8_t** cursor, Py_ssize_t count):
    """The array of `count` values at the cursor, like `take_value`."""
    cdef const uint8_t* at = cursor[0]
    cdef Py_ssize_t length
    cdef int width = 0
    cdef list values
    cursor[0] = NULL
    if at[0] & 0xF0 == 0x90:
        length = at[0] & 0x0F
    elif at[0] == 0xDC or at[0] == 0xDD:
        width = 2 if at[0] == 0xDC else 4
        length = frame_length(at + 1, width)
    else:
        return None
    if length != count:
        return None
    at += 1 + width
    values = []
    for _ in range(count):
        value = take_value(&at)
        if at == NULL:
            return None
        values.append(value)
    cursor[0] = at
    return values


@cython.final
cdef class Session:
    """One connection's conversation.

    Args:
        max_frame: Longest answer in bytes that is taken.
        max_in_flight: Requests without an answer beyond which the session is full.
        max_unsent: Bytes that the network has not taken beyond which it is full.
        first_id: Id of the first request.
    """

    cdef dict requests  # id: the request in flight, or None where nobody waits for the answer any more
    cdef uint32_t next_id
    cdef bytearray output
    cdef bytearray input  # of an answer that is not whole yet, from `start`
    cdef Py_ssize_t start
    cdef Py_ssize_t offset  # of the answer being scanned, in the stream
    cdef FrameState state
    cdef FrameLimits limits
    cdef bytes version_bytes  # of the last answer: the next most likely has the same
    cdef str version
    cdef readonly object failure
    cdef readonly Py_ssize_t abandoned
    cdef readonly uint64_t answered
    cdef readonly uint64_t queued_bytes
    cdef readonly uint64_t sent_bytes
    cdef uint64_t received  # how often something was
    cdef Py_ssize_t max_in_flight
    cdef Py_ssize_t max_unsent

    def __cinit__(
        self,
        Py_ssize_t max_frame=FRAME_BYTES,
        *,
        Py_ssize_t max_in_flight=MAX_IN_FLIGHT,
        Py_ssize_t max_unsent=MAX_UNSENT_BYTES,
        uint32_t first_id=0,
    ):
        self.max_in_flight = max_in_flight
        self.max_unsent = max_unsent
        self.requests = {}
        self.next_id = first_id
        self.output = bytearray()
        self.input = bytearray()
        self.limits = FrameLimits(max_size=max_frame, max_elements=FRAME_ELEMENTS, max_depth=FRAME_DEPTH)
        self.version_bytes = b""
        self.version = ""
        frame_begin(&self.state)

    @property
    def in_flight(self):
        """How many requests have no answer yet, abandoned ones included."""
        return len(self.requests)

    @property
    def awaited(self):
        """How many of them somebody waits for."""
        return len(self.requests) - self.abandoned

    @property
    def unsent_bytes(self):
        """How many bytes of requests were not reported as `sent`."""
        return <Py_ssize_t>(self.queued_bytes - self.sent_bytes)

    @property
    def is_full(self):
        """Whether requests should wait: the session itself takes any number."""
        cdef Py_ssize_t unsent = <Py_ssize_t>(self.queued_bytes - self.sent_bytes)
        return len(self.requests) >= self.max_in_flight or unsent >= self.max_unsent

    @property
    def is_clean(self):
        """Whether the stream stands between two answers."""
        return PyByteArray_GET_SIZE(self.input) == self.start

    def send(self, Request request not None):
        """Queue the bytes of `request`, which is open and in no session."""
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self.output)
        cdef uint8_t* begin
        cdef uint8_t* end
        if request.is_done or request.session is not None:
            raise ValueError("the request is done, or in flight elsewhere")
        while self.next_id in self.requests:  # Ids wrap; the oldest request may still be open.
            self.next_id += 1
        request.message_id = self.next_id
        PyByteArray_Resize(self.output, size + request.size_bytes)
        begin = <uint8_t*>PyByteArray_AS_STRING(self.output) + size
        end = put_request(begin, request)
        assert end - begin <= request.size_bytes
        PyByteArray_Resize(self.output, size + (end - begin))
        self.requests[self.next_id] = request
        self.next_id += 1
        request.begin = self.queued_bytes
        request.heard = self.received
        request.session = self
        self.queued_bytes += end - begin

    def take_output(self):
        """The bytes to send next; the caller sends them all, in order, and reports each part with `sent`."""
        output = self.output
        self.output = bytearray()
        return output

    def sent(self, Py_ssize_t count):
        """So many more bytes were given to the network."""
        self.sent_bytes += count

    def has_begun(self, Request request not None):
        """Whether a byte of a request in flight here was given to the network."""
        return request.begin < self.sent_bytes

    def is_silent(self, Request request not None):
        """Whether nothing at all arrived since a request in flight here was sent."""
        return request.heard == self.received

    def withdraw(self, Request request not None):
        """Take a request out, open as it is; its id stays, and a late answer is dropped."""
        if request.session is not self:
            raise ValueError("the request is not in flight here")
        request.session = None
        self.requests[request.message_id] = None
        self.abandoned += 1
        if self.abandoned > MOST_ABANDONED and self.failure is None:
            self.failure = ProtocolError(f"more than {MAX_ABANDONED} requests stay unanswered")

    def outstanding(self):
        """The requests that somebody waits for, in the order in which they were sent."""
        return [request for request in self.requests.values() if request is not None]

    def receive(self, data):
        """The requests that `data` completes.  Never raises for what the bytes say: see `failure`."""
        cdef Py_buffer view
        cdef Py_ssize_t taken
        cdef list done = []
        if self.failure is not None:
            return done
        self.received += 1
        if PyByteArray_GET_SIZE(self.input) > self.start:
            self.keep(data)
            self.start += self.read(PyByteArray_AS_STRING(self.input) + self.start,
                                    PyByteArray_GET_SIZE(self.input) - self.start, done)
            if PyByteArray_GET_SIZE(self.input) == self.start:
                if self.start > LARGE_BYTES:
                    self.input = bytearray()
                else:
                    PyByteArray_Resize(self.input, 0)
                self.start = 0
            return done
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            taken = self.read(<const char*>view.buf, view.len, done)
            if taken < view.len and self.failure is None:
                PyByteArray_Resize(self.input, view.len - taken)
                memcpy(PyByteArray_AS_STRING(self.input), <const char*>view.buf + taken, view.len - taken)
        finally:
            PyBuffer_Release(&view)
        return done

    cdef int keep(self, data) except -1:
        """Put what arrived behind the part of an answer that is here."""
        if self.start > 0:
            del self.input[:self.start]
            self.start = 0
        self.input += data
        return 0

    cdef Py_ssize_t read(self, const char* data, Py_ssize_t size, list done) except -1:
        """Take the whole answers at `data`; returns their length.  A failure ends the input."""
        cdef Py_ssize_t taken = 0
        cdef int result
        while taken < size:
            result = frame_scan(&self.state, <const uint8_t*>data + taken, size - taken, &self.limits)
            if result == FRAME_PARTIAL:
                break
            if result < 0:
                self.failure = refusal(result, self.offset + self.state.position, self.limits)
                break
            try:
                self.answer(<const uint8_t*>data + taken, self.state.position, done)
            except ProtocolError as error:
                self.failure = error
                break
            taken += self.state.position
            self.offset += self.state.position
            frame_begin(&self.state)
        return taken

    cdef int answer(self, const uint8_t* frame, Py_ssize_t size, list done) except -1:
        """Give one whole frame to its request."""
        cdef const uint8_t* at = frame + 2
        cdef Request request
        cdef uint32_t message_id
        cdef int width
        if frame[0] != 0x94 or frame[1] != rpc_response:
            return self.answer_slowly(frame, size, done)
        if at[0] < 0x80:
            message_id = at[0]
            at += 1
        elif 0xCC <= at[0] <= 0xCE:
            width = 1 << (at[0] - 0xCC)
            message_id = <uint32_t>frame_length(at + 1, width)
            at += 1 + width
        else:
            return self.answer_slowly(frame, size, done)
        request = <Request>self.requests.get(message_id)
        if request is None or request.kind == REQUEST_OTHER or at[0] != 0xC0 or at[1] != 0x92:
            return self.answer_slowly(frame, size, done)
        at += 2
        if request.kind == REQUEST_GET:
            value = take_value(&at)
        else:
            value = take_values(&at, PyList_GET_SIZE(<list>request.subject))
        if at == NULL:
            return self.answer_slowly(frame, size, done)
        version = self.take_version(at, frame + size - at)
        if version is None:
            return self.answer_slowly(frame, size, done)
        del self.requests[message_id]
        self.answered += 1
        request.finish((value, version), None)
        done.append(request)
        return 0

    cdef object take_version(self, const uint8_t* at, Py_ssize_t size):
        """The text that fills these bytes, or None if they hold anything else."""
        cdef Py_ssize_t skip
        if size == PyBytes_GET_SIZE(self.version_bytes) and not memcmp(at, PyBytes_AS_STRING(self.version_bytes), size):
            return self.version
        if 0xA0 <= at[0] <= 0xBF:
            skip = 1
        elif 0xD9 <= at[0] <= 0xDB:
            skip = 1 + (1 << (at[0] - 0xD9))
        else:
            return None
        try:
            self.version = (<const char*>at)[skip:size].decode()
        except UnicodeDecodeError:
            return None
        self.version_bytes = (<const char*>at)[:size]
        return self.version

    cdef int answer_slowly(self, const uint8_t* frame, Py_ssize_t size, list done) except -1:
        """Any answer: an error, one to another method, one of a shape that was not expected, none at all."""
        answer = rpc.decode_response(PyBytes_FromStringAndSize(<const char*>frame, size))
        if answer.msgid not in self.requests:
            raise ProtocolError(
                f"an answer with id {answer.msgid}, which no request in flight has: made up, or answered twice",
                {"id": answer.msgid},
            )
        self.answered += 1
        cdef Request request = <Request>self.requests.pop(answer.msgid)
        if request is None:
            self.abandoned -= 1
            return 0
        result = answer.result
        error = answer.error
        if error is None:
            try:
                if request.kind == REQUEST_GET:
                    result = reads.value_of(result)
                elif request.kind == REQUEST_GET_MANY:
                    result = reads.values_of(result, PyList_GET_SIZE(<list>request.subject))
            except ProtocolError as odd:
                error = odd
        request.finish(result if error is None else None, error)
        done.append(request)
        return 0
