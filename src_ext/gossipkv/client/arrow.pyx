"""Answers as columns in Arrow's layout, which other libraries take over by its C data interface without a copy.

A column has 64-bit offsets (Arrow's large_binary or large_string), so it holds answers of any size by one rule.  An
exported structure keeps its column alive until the consumer releases it, from whatever thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Blob, Cursor, take_bin, take_nil

from gossipkv.errors import BadRequest

cdef enum:
    NULLABLE = 2  # Arrow's flag of a column.


# Memory --------------------------------------------------------------------------------------------------------------
#
# New memory costs a page fault every 4 KiB, which is more than all else that an answer in columns costs.  So a few
# large buffers of columns and sessions are kept for the next answers when nobody uses them any longer.

cdef enum:
    SPARES = 4
    SPARE_LEAST = 65536  # The allocator itself keeps what is smaller.
    SPARE_MOST = 8388608

cdef Buffer[SPARES] spares  # A capacity of 0: none.


cdef int make_room(Buffer* buffer, Py_ssize_t extra) except -1:
    """Reserve room for `extra` bytes after the end, in the smallest spare that suffices if it would be much."""
    cdef Py_ssize_t size = buffer_size(buffer)
    cdef Buffer* best = NULL
    cdef Buffer found
    cdef int place
    if extra <= buffer.capacity - buffer.end:
        return 0
    if size + extra >= SPARE_LEAST:
        for place in range(SPARES):
            if spares[place].capacity >= size + extra and (best == NULL or spares[place].capacity < best.capacity):
                best = &spares[place]
    if best != NULL:
        found = best[0]
        buffer_init(best)
        buffer_append(&found, buffer.data + buffer.start, size)
        give_up(buffer)
        buffer[0] = found
    elif buffer_reserve(buffer, extra) < 0:
        raise MemoryError
    return 0


cdef void give_up(Buffer* buffer) noexcept:
    """Release a buffer, or keep its memory in place of the smallest spare."""
    cdef Buffer* least = &spares[0]
    cdef int place
    for place in range(1, SPARES):
        if spares[place].capacity < least.capacity:
            least = &spares[place]
    if SPARE_LEAST <= buffer.capacity <= SPARE_MOST and buffer.capacity > least.capacity:
        buffer.start = buffer.end = 0
        buffer[0], least[0] = least[0], buffer[0]
    buffer_release(buffer)


# Columns -------------------------------------------------------------------------------------------------------------


@cython.final
cdef class Column:
    """Nullable byte strings, or texts; `get_many(into="arrow")` returns one.

    pyarrow, polars, DuckDB, pandas and others take it by `__arrow_c_array__`.
    """

    def __cinit__(self):
        buffer_init(&self.data)
        buffer_init(&self.ends)
        buffer_init(&self.validity)
        self.expect(0, 0)

    def __dealloc__(self):
        give_up(&self.data)
        give_up(&self.ends)
        give_up(&self.validity)

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"<gossipkv column of {self.length} {'texts' if self.is_text else 'byte strings'}>"

    def __arrow_c_schema__(self):
        """Return the type of the column, in a capsule."""
        cdef ArrowSchema* schema = <ArrowSchema*>taken(calloc(1, sizeof(ArrowSchema)))
        describe_column(schema, b"", self.is_text)
        return PyCapsule_New(schema, b"arrow_schema", forget_schema)

    def __arrow_c_array__(self, requested_schema=None):
        """Return the type and the values, in two capsules; another type than this one is not made."""
        cdef ArrowArray* array = <ArrowArray*>taken(calloc(1, sizeof(ArrowArray)))
        capsule = PyCapsule_New(array, b"arrow_array", forget_array)
        if export_column(array, self) < 0:
            raise MemoryError
        return self.__arrow_c_schema__(), capsule

    cdef int expect(self, Py_ssize_t count, Py_ssize_t size) except -1:
        """Make room for `count` more values; their bytes, probably `size`, take what they need."""
        cdef int64_t first = 0
        cdef Py_ssize_t bits = (self.length + count + 7) // 8
        cdef Py_ssize_t more = bits - buffer_size(&self.validity)
        make_room(&self.ends, (count + 1) * <Py_ssize_t>sizeof(int64_t))
        make_room(&self.validity, more)
        make_room(&self.data, size)
        if more > 0:
            memset(self.validity.data + self.validity.end, 0, more)
            self.validity.end = bits
        if self.ends.end == 0:
            buffer_append(&self.ends, <const uint8_t*>&first, sizeof(first))
        return 0

    cdef int add(self, const Blob* value) except -1:
        """Append a value, for which there is room."""
        make_room(&self.data, value.size)
        buffer_append(&self.data, value.data, value.size)
        column_end(self, value.size)
        return 0

    cdef int add_nothing(self) except -1:
        """Append None, for which there is room."""
        column_end(self, 0)
        self.validity.data[(self.length - 1) >> 3] &= <uint8_t>~(1 << ((self.length - 1) & 7))
        self.null_count += 1
        return 0

    cdef void adopt(self, Buffer* received, const uint8_t* values) noexcept:
        """Take over a buffer in which, from `values` on, all values of this empty column are, each behind its head.

        They are moved together, to its front.  What is behind them stays where it is, as long as the column exists.
        """
        cdef Cursor cursor = Cursor(values, received.data + received.end)
        cdef Blob value
        cdef int64_t end = 0
        for _ in range(self.length):
            if take_bin(&cursor, &value):
                memmove(received.data + end, value.data, value.size)
                end += value.size
            else:
                take_nil(&cursor)
        received.start, received.end = 0, end
        self.data, received[0] = received[0], self.data

    def as_text(self):
        """Return this column, once it is known that all values are texts in UTF-8.

        Raises:
            BadRequest: one is not.
        """
        cdef const int64_t* ends = <const int64_t*>self.ends.data
        cdef const char* data = <const char*>self.data.data
        cdef Py_ssize_t place
        try:
            PyUnicode_DecodeUTF8(data, buffer_size(&self.data), NULL)
        except UnicodeDecodeError as error:
            raise BadRequest(f"as_text: a value is not valid UTF-8 ({error.reason}); read bytes") from None
        for place in range(self.length):  # The whole is valid, so a value is, if it begins where a character does.
            if ends[place] < ends[place + 1] and (data[ends[place]] & 0xC0) == 0x80:
                raise BadRequest("as_text: a value is not valid UTF-8 (it begins within a character)")
        self.is_text = True
        return self


cdef inline void column_end(Column column, Py_ssize_t size) noexcept:
    """Append a value, for which there is room, and whose bytes are there, or come with `adopt`."""
    cdef int64_t* end = <int64_t*>(column.ends.data + column.ends.end)
    end[0] = (end - 1)[0] + size
    column.ends.end += sizeof(int64_t)
    column.validity.data[column.length >> 3] |= <uint8_t>(1 << (column.length & 7))
    column.length += 1


def column_of(list values not None):
    """Return a column of values, each bytes or None."""
    cdef Column column = Column.__new__(Column)
    column.expect(len(values), 0)
    for value in values:
        if value is None:
            column.add_nothing()
        else:
            add_bytes(column, value)
    return column


def joined(list columns not None):
    """Return one column with the values of several, in their order."""
    cdef Column whole = Column.__new__(Column)
    cdef Column part
    cdef const int64_t* ends
    cdef Blob value
    cdef Py_ssize_t place
    if len(columns) == 1:
        return columns[0]
    whole.expect(sum(map(len, columns)), sum(buffer_size(&(<Column>part).data) for part in columns))
    for part in columns:
        ends = <const int64_t*>part.ends.data
        for place in range(part.length):
            if part.validity.data[place >> 3] >> (place & 7) & 1:
                value = Blob(part.data.data + ends[place], <Py_ssize_t>(ends[place + 1] - ends[place]))
                whole.add(&value)
            else:
                whole.add_nothing()
    return whole


cdef int add_bytes(Column column, bytes value) except -1:
    cdef Blob blob = Blob(<const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return column.add(&blob)


# Records -------------------------------------------------------------------------------------------------------------


@cython.final
cdef class Records:
    """Records of one page of a scan: the columns `keys` and `values`; a scan with `into="arrow"` yields them.

    Libraries take it as a batch, or a table, with the columns `key` and `value`.
    """

    def __cinit__(self):
        self.keys = Column.__new__(Column)
        self.values = Column.__new__(Column)

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"<gossipkv batch of {self.length} records>"

    def __arrow_c_schema__(self):
        """Return the type of the records, in a capsule."""
        cdef ArrowSchema* schema = <ArrowSchema*>taken(calloc(1, sizeof(ArrowSchema)))
        capsule = PyCapsule_New(schema, b"arrow_schema", forget_schema)
        if describe_records(schema, self.keys.is_text) < 0:
            raise MemoryError
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        """Return the type and the records, in two capsules; another type than this one is not made."""
        cdef ArrowArray* array = <ArrowArray*>taken(calloc(1, sizeof(ArrowArray)))
        capsule = PyCapsule_New(array, b"arrow_array", forget_array)
        if export_records(array, self) < 0:
            raise MemoryError
        return self.__arrow_c_schema__(), capsule

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a stream of this one batch, in a capsule."""
        return stream_of(iter((self,)), is_text=self.keys.is_text)

    def first(self, Py_ssize_t count):
        """Return the batch without the records after the first `count`."""
        self.length = min(self.length, max(0, count))
        return self

    def as_text(self):
        """Return this batch, once it is known that all keys and values are texts in UTF-8.  Raises as `Column`."""
        self.keys.as_text()
        self.values.as_text()
        return self


def records_of(list pairs not None):
    """Return a batch of records, each a key and a value."""
    cdef Records records = Records.__new__(Records)
    records.keys = column_of([key for key, _ in pairs])
    records.values = column_of([value for _, value in pairs])
    records.length = len(pairs)
    return records


@cython.final
cdef class Stream:
    """The Python side of an exported stream: where its batches come from, and why the last one did not come."""

    cdef object batches  # an iterator of Records
    cdef bint is_text
    cdef bytes failure


def stream_of(batches, *, bint is_text=False):
    """Return a stream of the batches of an iterator, in a capsule; each is asked for when the consumer wants it."""
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>taken(calloc(1, sizeof(ArrowArrayStream)))
    cdef Stream source = Stream.__new__(Stream)
    capsule = PyCapsule_New(stream, b"arrow_array_stream", forget_stream)
    source.batches = batches
    source.is_text = is_text
    source.failure = b""
    Py_INCREF(source)
    stream.private_data = <void*>source
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = release_stream
    return capsule


# The C data interface ------------------------------------------------------------------------------------------------
#
# A structure that is released has no `release`.  A consumer may move a structure, or a child of it, and mark the place
# as released; so each is released on its own.


cdef void* taken(void* memory) except NULL:
    if memory == NULL:
        raise MemoryError
    return memory


cdef void describe_column(ArrowSchema* schema, const char* name, bint is_text) noexcept:
    schema.format = b"U" if is_text else b"Z"
    schema.name = name
    schema.flags = NULLABLE
    schema.release = release_schema


cdef int describe_records(ArrowSchema* schema, bint is_text) noexcept:
    cdef int place
    schema.format = b"+s"
    schema.name = b""
    schema.release = release_schema
    schema.children = <ArrowSchema**>calloc(2, sizeof(ArrowSchema*))
    if schema.children == NULL:
        return -1
    for place in range(2):
        schema.children[place] = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
        if schema.children[place] == NULL:
            return -1
        schema.n_children += 1
        describe_column(schema.children[place], b"value" if place else b"key", is_text)
    return 0


cdef int export_column(ArrowArray* array, Column column) noexcept:
    array.release = release_array
    array.buffers = <const void**>calloc(3, sizeof(void*))
    if array.buffers == NULL:
        return -1
    array.buffers[0] = column.validity.data if column.null_count else NULL
    array.buffers[1] = column.ends.data
    array.buffers[2] = column.data.data
    array.n_buffers = 3
    array.length = column.length
    array.null_count = column.null_count
    Py_INCREF(column)
    array.private_data = <void*>column
    return 0


cdef int export_records(ArrowArray* array, Records records) noexcept:
    cdef int place
    array.release = release_array
    array.buffers = <const void**>calloc(1, sizeof(void*))
    array.children = <ArrowArray**>calloc(2, sizeof(ArrowArray*))
    if array.buffers == NULL or array.children == NULL:
        return -1
    array.n_buffers = 1
    array.length = records.length
    for place in range(2):
        array.children[place] = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        if array.children[place] == NULL:
            return -1
        array.n_children += 1
        if export_column(array.children[place], records.values if place else records.keys) < 0:
            return -1
        array.children[place].length = records.length
    return 0


cdef void release_schema(ArrowSchema* schema) noexcept with gil:
    for place in range(schema.n_children):
        if schema.children[place].release != NULL:
            schema.children[place].release(schema.children[place])
        free(schema.children[place])
    free(schema.children)
    schema.release = NULL


cdef void release_array(ArrowArray* array) noexcept with gil:
    for place in range(array.n_children):
        if array.children[place].release != NULL:
            array.children[place].release(array.children[place])
        free(array.children[place])
    free(array.children)
    free(array.buffers)
    if array.private_data != NULL:
        Py_DECREF(<object>array.private_data)
    array.release = NULL


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    memset(out, 0, sizeof(ArrowSchema))
    if describe_records(out, (<Stream>stream.private_data).is_text) < 0:
        release_schema(out)
        return ENOMEM
    return 0


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef Stream source = <Stream>stream.private_data
    memset(out, 0, sizeof(ArrowArray))
    try:
        records = next(source.batches, None)
        if records is None:  # The end of the stream is an array that is released.
            return 0
        if export_records(out, <Records?>records) < 0:
            raise MemoryError
    except BaseException as error:  # It must not be lost in C: the consumer raises an error of its own with this text.
        if out.release != NULL:
            out.release(out)
        source.failure = f"{type(error).__name__}: {error}".encode(errors="replace")
        return EIO
    return 0


cdef const char* stream_error(ArrowArrayStream* stream) noexcept with gil:
    return PyBytes_AS_STRING((<Stream>stream.private_data).failure)


cdef void release_stream(ArrowArrayStream* stream) noexcept with gil:
    Py_DECREF(<object>stream.private_data)
    stream.release = NULL


cdef void forget_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void forget_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void forget_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)
