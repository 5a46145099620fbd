"""The client's side of a conversation with one node, without any I/O: requests to bytes, bytes to answers.

A session gives each request an id, appends its frame to the output, and cuts the input into answers, which come in any
order.  Invariant: an answer belongs to a request in flight, and belongs to it once.  A peer that breaks this, or sends
invalid bytes, ends the session (`failure`), since no later answer could be attributed.  Answers that came whole before
that count, however the stream was cut.  An id is not used again before its answer came: for an abandoned request the id
is kept, and the late answer is dropped.

`get` and `get_many` are written and read here, without an object more than the values, and so are pages of scans that
become columns; msgpack decodes all other answers, and those of an unexpected shape.  The scanner has bounded each frame
before.

    answer   94 01 id c0 92 value stamp              value of `get`: bin or nil; of `get_many`: array of these
    page     94 01 id c0 93 records cursor stamp     records: array of arrays of key and value; cursor: bin or nil

A stamp is the source of an answer: the version of a dataset (str), or a token of a table (bin).

The shells (`blocking`, `trio_client`) move the bytes, and have the sockets, clocks and failover.
`tests/oracle/session.py` is the same in plain Python.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport (
    Buffer, buffer_append, buffer_drop, buffer_init, buffer_release, buffer_reserve, buffer_size,
)
from gossipkv.wire._wire cimport (
    FRAME_BYTES, FRAME_DEPTH, FRAME_ELEMENTS, FRAME_PARTIAL, Blob, Cursor, FrameLimits, FrameState, blob_is,
    frame_begin, frame_scan, put_array, put_bin, put_bytes, put_request, put_text, take_array, take_bin, take_nil,
    take_response, take_str,
)

from gossipkv.client import reads
from gossipkv.errors import ProtocolError
from gossipkv.wire import rpc
from gossipkv.wire.frames import refusal

cdef enum:
    # Limit on ids whose answers no task awaits; a node that never answers is left before they pile up.
    MAX_ABANDONED_REQUESTS = 10000
    LONGEST_GREETING = 16  # So many first bytes tell another protocol.
    LONG_ANSWER = 65536  # Longer answers are worth a place of their own.

MAX_ABANDONED = MAX_ABANDONED_REQUESTS
MAX_IN_FLIGHT = 1_000  # A node's default limit for one connection, at which it stops reading.
MAX_UNSENT_BYTES = 1 << 20  # Some 10,000 requests for one key; a node that reads takes more than this in a millisecond.

# Stands for a value when the frame has something else.
cdef object UNEXPECTED = object()


cdef inline void put_packed(Buffer* out, bytes value) noexcept:
    put_bytes(out, <const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef int write_request(Buffer* out, Request request) except -1:
    """Append the frame; `request.size_bytes` is an upper bound on its size."""
    if buffer_reserve(out, request.size_bytes) < 0:
        raise MemoryError
    put_request(out, request.message_id)
    if request.kind in (REQUEST_OTHER, REQUEST_PAGE):
        put_packed(out, request.head)
        return 0
    put_text(out, b"get" if request.kind == REQUEST_GET else b"get_many")
    put_array(out, 2 if request.options is None else 3)
    put_packed(out, request.head)
    if request.kind == REQUEST_GET:
        put_bin(out, <const uint8_t*>PyBytes_AS_STRING(request.subject), PyBytes_GET_SIZE(request.subject))
    else:
        put_array(out, request.count)
        put_packed(out, request.subject)
    if request.options is not None:
        put_packed(out, request.options)
    return 0


cdef object take_value(Cursor* cursor):
    """Return the `bin` or nil at the cursor, or UNEXPECTED."""
    cdef Blob value
    if take_bin(cursor, &value):
        return PyBytes_FromStringAndSize(<const char*>value.data, value.size)
    return None if take_nil(cursor) else UNEXPECTED


cdef object take_values(Cursor* cursor, Py_ssize_t count):
    """Return the array of `count` values at the cursor, or UNEXPECTED."""
    cdef list values = []
    if take_array(cursor) != count:
        return UNEXPECTED
    for _ in range(count):
        value = take_value(cursor)
        if value is UNEXPECTED:
            return UNEXPECTED
        values.append(value)
    return values


cdef object take_column(Cursor* cursor, Py_ssize_t count, bint copies):
    """Return the array of `count` values at the cursor as a column, or UNEXPECTED; `copies`: with their bytes."""
    cdef Column column
    cdef Blob value
    if take_array(cursor) != count:
        return UNEXPECTED
    column = Column.__new__(Column)
    column.expect(count, cursor.end - cursor.at if copies else 0)
    for _ in range(count):
        if take_bin(cursor, &value):
            if copies:
                column.add(&value)
            else:
                column_end(column, value.size)
        elif take_nil(cursor):
            column.add_nothing()
        else:
            return UNEXPECTED
    return column


cdef object take_records(Cursor* cursor):
    """Return the array of records at the cursor as columns, or UNEXPECTED."""
    cdef Py_ssize_t count = take_array(cursor)
    cdef Records records
    cdef Blob key
    cdef Blob value
    if count < 0:
        return UNEXPECTED
    records = Records.__new__(Records)
    records.keys.expect(count, 0)
    records.values.expect(count, cursor.end - cursor.at)
    for _ in range(count):
        if take_array(cursor) != 2 or not take_bin(cursor, &key) or not take_bin(cursor, &value):
            return UNEXPECTED
        records.keys.add(&key)
        records.values.add(&value)
    records.length = count
    return records


@cython.final
cdef class Session:
    """The conversation of one connection.

    Args:
        max_frame: Longest accepted answer in bytes.
        max_in_flight: Number of unanswered requests at which the session is full.
        max_unsent: Number of bytes not taken by the network at which it is full.
        first_id: Id of the first request.
    """

    cdef dict requests  # by id: the request in flight, or None if it was abandoned
    cdef uint32_t next_id
    cdef Buffer output
    cdef Buffer input  # the beginning of an incomplete answer
    cdef Py_ssize_t offset  # of the scanned answer in the stream
    cdef FrameState state
    cdef FrameLimits limits
    cdef bytes stamp_bytes  # encoded stamp of the last answer: the next one probably has the same
    cdef object stamp
    cdef readonly object failure
    cdef readonly Py_ssize_t abandoned
    cdef readonly uint64_t answered
    cdef readonly uint64_t queued_bytes
    cdef readonly uint64_t sent_bytes
    cdef uint64_t received  # number of calls of `receive`
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
        buffer_init(&self.output)
        buffer_init(&self.input)
        self.limits = FrameLimits(max_size=max_frame, max_elements=FRAME_ELEMENTS, max_depth=FRAME_DEPTH)
        self.stamp_bytes = b""
        self.stamp = ""
        frame_begin(&self.state)

    def __dealloc__(self):
        buffer_release(&self.output)
        buffer_release(&self.input)

    @property
    def in_flight(self):
        """Number of requests without an answer, including abandoned ones."""
        return len(self.requests)

    @property
    def awaited(self):
        """Number of unanswered requests that a task waits for."""
        return len(self.requests) - self.abandoned

    @property
    def unsent_bytes(self):
        """Number of bytes of requests that were not reported as `sent`."""
        return <Py_ssize_t>(self.queued_bytes - self.sent_bytes)

    @property
    def is_full(self):
        """True if requests should wait: the session itself takes any number."""
        cdef Py_ssize_t unsent = <Py_ssize_t>(self.queued_bytes - self.sent_bytes)
        return len(self.requests) >= self.max_in_flight or unsent >= self.max_unsent

    @property
    def is_clean(self):
        """True if the stream is between two answers."""
        return buffer_size(&self.input) == 0

    def send(self, Request request not None):
        """Queue the bytes of `request`, which is open and in no session."""
        cdef Py_ssize_t before = buffer_size(&self.output)
        cdef Py_ssize_t size
        if request.is_done or request.session is not None:
            raise ValueError("the request is done or in flight in another session")
        while self.next_id in self.requests:  # Ids wrap; the oldest request may still be open.
            self.next_id += 1
        request.message_id = self.next_id
        write_request(&self.output, request)
        size = buffer_size(&self.output) - before
        assert size <= request.size_bytes and self.output.end <= self.output.capacity, (size, request.size_bytes)
        self.requests[self.next_id] = request
        self.next_id += 1
        request.begin = self.queued_bytes
        request.heard = self.received
        request.session = self
        self.queued_bytes += size

    def take_output(self):
        """Return the bytes to send next; the caller sends them all, in order, and reports each part with `sent`."""
        cdef Py_ssize_t size = buffer_size(&self.output)
        output = PyBytes_FromStringAndSize(<const char*>self.output.data + self.output.start, size)
        buffer_drop(&self.output, size)
        return output

    def sent(self, Py_ssize_t count):
        """Note that `count` more bytes were given to the network."""
        self.sent_bytes += count
        assert self.sent_bytes + buffer_size(&self.output) <= self.queued_bytes, "no byte is sent before it is taken"

    def has_begun(self, Request request not None):
        """Return True if a byte of a request in flight here was given to the network."""
        return request.begin < self.sent_bytes

    def is_silent(self, Request request not None):
        """Return True if nothing has arrived since a request in flight here was sent."""
        return request.heard == self.received

    def withdraw(self, Request request not None):
        """Remove a request and leave it open; its id stays, and a late answer is dropped."""
        if request.session is not self:
            raise ValueError("the request is not in flight in this session")
        assert self.requests[request.message_id] is request, "who is in flight here is in the table"
        request.session = None
        self.requests[request.message_id] = None
        self.abandoned += 1
        if self.abandoned > MAX_ABANDONED_REQUESTS and self.failure is None:
            self.failure = ProtocolError(f"the node left more than {MAX_ABANDONED_REQUESTS} requests unanswered")

    def overdue(self, uint64_t offset):
        """Return the repeatable ones of `outstanding` whose frames begin before that offset of the stream."""
        cdef list found = []
        for request in self.requests.values():
            if request is not None:
                if (<Request>request).begin >= offset:
                    break
                if (<Request>request).is_repeatable:
                    found.append(request)
        return found

    def outstanding(self):
        """Return the requests that a task waits for, in the order in which they were sent."""
        return [request for request in self.requests.values() if request is not None]

    def room(self):
        """Return the place for further bytes of a long answer, of which `receive` is given what is filled.

        It is of use until the next call of the session.  None: the next bytes may be anywhere.
        """
        if buffer_size(&self.input) < LONG_ANSWER:
            return None
        make_room(&self.input, LONG_ANSWER)
        return PyMemoryView_FromMemory(
            <char*>self.input.data + self.input.end, self.input.capacity - self.input.end, PyBUF_WRITE
        )

    def receive(self, data):
        """Return the requests that `data` completes.  Never raises because of the bytes: see `failure`."""
        cdef Py_buffer view
        cdef list done = []
        if self.failure is not None:
            return done
        self.received += 1
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.take(<const uint8_t*>view.buf, view.len, done)
        finally:
            PyBuffer_Release(&view)
        assert 0 <= self.abandoned <= len(self.requests), (self.abandoned, len(self.requests))
        return done

    cdef int take(self, const uint8_t* data, Py_ssize_t size, list done) except -1:
        """Read `data` after the incomplete answer in the input; keep the incomplete rest."""
        cdef Py_ssize_t taken
        if buffer_size(&self.input) > 0:
            self.keep(data, size)
            data, size = self.input.data + self.input.start, buffer_size(&self.input)
        taken = self.read(data, size, done)
        if self.input.data != NULL:
            if taken == size:
                give_up(&self.input)
            else:
                buffer_drop(&self.input, taken)
        elif self.failure is None:  # Nothing was kept, or a column has it now.
            self.keep(data + taken, size - taken)
        return 0

    cdef int keep(self, const uint8_t* data, Py_ssize_t size) except -1:
        if self.input.data != NULL and data == self.input.data + self.input.end:  # It is in the `room`.
            self.input.end += size
            return 0
        make_room(&self.input, size)
        buffer_append(&self.input, data, size)
        return 0

    cdef Py_ssize_t read(self, const uint8_t* data, Py_ssize_t size, list done) except -1:
        """Process the complete answers at `data`; return their length.  A failure ends the input."""
        cdef Py_ssize_t taken = 0
        cdef int result
        while taken < size:
            result = frame_scan(&self.state, data + taken, size - taken, &self.limits)
            if result == FRAME_PARTIAL:
                break
            if result < 0:
                self.failure = refusal(result, self.offset + self.state.position, self.limits)
                break
            assert self.state.position <= size - taken, "a whole answer is here"
            try:
                self.answer(data + taken, self.state.position, done)
            except ProtocolError as error:
                first = (<const char*>data)[:min(size, LONGEST_GREETING)] if self.offset == 0 else b""
                self.failure = reads.other_protocol(first) or error
                break
            taken += self.state.position
            self.offset += self.state.position
            frame_begin(&self.state)
        return taken

    cdef int answer(self, const uint8_t* frame, Py_ssize_t size, list done) except -1:
        cdef object page_cursor = None
        cdef Cursor cursor = Cursor(frame, frame + size)
        cdef Cursor values = cursor
        cdef bint adopts = False
        cdef Request request
        cdef uint32_t message_id
        if not take_response(&cursor, &message_id):
            return self.answer_slowly(frame, size, done)
        request = <Request>self.requests.get(message_id)
        if request is None or request.kind == REQUEST_OTHER or not take_nil(&cursor):
            return self.answer_slowly(frame, size, done)
        if take_array(&cursor) != (3 if request.kind == REQUEST_PAGE else 2):
            return self.answer_slowly(frame, size, done)
        if request.kind == REQUEST_GET:
            value = take_value(&cursor)
        elif request.kind == REQUEST_GET_MANY:
            value = take_values(&cursor, request.count)
        elif request.kind == REQUEST_COLUMN:
            adopts = size >= LONG_ANSWER and self.input.data != NULL and frame >= self.input.data
            values = cursor
            value = take_column(&cursor, request.count, not adopts)
        else:
            value = take_records(&cursor)
            page_cursor = UNEXPECTED if value is UNEXPECTED else take_value(&cursor)
            if page_cursor is UNEXPECTED:
                value = UNEXPECTED
        if value is UNEXPECTED:
            return self.answer_slowly(frame, size, done)
        stamp = self.take_stamp(&cursor)
        if stamp is None:
            return self.answer_slowly(frame, size, done)
        if adopts:
            take_array(&values)
            (<Column>value).adopt(&self.input, values.at)
        del self.requests[message_id]
        self.answered += 1
        request.finish((value, page_cursor, stamp) if request.kind == REQUEST_PAGE else (value, stamp), None)
        done.append(request)
        return 0

    cdef object take_stamp(self, Cursor* cursor):
        """Return the text or bytes at the end of the frame; None if there is anything else."""
        cdef Blob rest = Blob(cursor.at, cursor.end - cursor.at)
        cdef Blob stamp
        if blob_is(&rest, PyBytes_AS_STRING(self.stamp_bytes), PyBytes_GET_SIZE(self.stamp_bytes)):
            return self.stamp
        if take_bin(cursor, &stamp):
            self.stamp = PyBytes_FromStringAndSize(<const char*>stamp.data, stamp.size)
        elif take_str(cursor, &stamp):
            try:
                self.stamp = (<const char*>stamp.data)[:stamp.size].decode()
            except UnicodeDecodeError:
                return None
        else:
            return None
        self.stamp_bytes = (<const char*>rest.data)[:rest.size]
        return self.stamp

    cdef int answer_slowly(self, const uint8_t* frame, Py_ssize_t size, list done) except -1:
        """Process any other answer: errors, other methods, unexpected shapes, and frames that are no answer."""
        answer = rpc.decode_response(PyBytes_FromStringAndSize(<const char*>frame, size))
        if answer.msgid not in self.requests:
            raise ProtocolError(
                f"the node sent an answer with id {answer.msgid}, but no request in flight has that id",
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
                elif request.kind in (REQUEST_GET_MANY, REQUEST_COLUMN):
                    result = reads.values_of(result, request.count)
                elif request.kind == REQUEST_PAGE:
                    result = reads.page_of(result)
                if request.kind == REQUEST_COLUMN:
                    result = column_of(result[0]), result[1]
                elif request.kind == REQUEST_PAGE:
                    result = records_of(result[0]), result[1], result[2]
            except ProtocolError as odd:
                error = odd
        request.finish(result if error is None else None, error)
        done.append(request)
        return 0
