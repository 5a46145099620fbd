"""The records of SequenceFiles, found in buffers and put into batches without copying.

The length of each field (a key or a value) is stated outside it.  A Text or a BytesWritable states its length again
inside, and the two must agree.  Sizes are checked before arithmetic; every pointer comes from stepping through a region
with a known end.  The GIL is released around whole batches.  A vint of Hadoop's WritableUtils, by its first byte:

    -112 ... 127     the number itself
    -113 ... -120    a number of 1 to 8 bytes follows, big-endian
    -121 ... -128    the complement of a negative number of 1 to 8 bytes follows

Lengths have 32 bits, so Hadoop never writes more than 4 such bytes.  A numeric key or value becomes decimal text, in
memory that its batch holds.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.storage._storage cimport BATCH_RECORDS, MAX_KEY_SIZE, RecordBatch

from gossipkv.dataset.formats.codecs import DamagedError
from gossipkv.dataset.formats.reading import refusal

cdef enum:
    MAX_FIELD_HEADER = 5  # The header of a Text; a BytesWritable has 4.
    SYNC_SIZE = 16
    SYNC_ESCAPE = -1
    RECORD_HEADER_SIZE = 8
    HELD_BYTES = 1048576  # A batch is passed on after this much decompressed data.
    NUMBER_BYTES = 20  # The size of the longest number's text, -9223372036854775808.

# The kind of a field; kinds after BYTES become text.
cdef enum FieldKind:
    TEXT
    BYTES
    NULL_FIELD
    INT
    LONG
    VINT
    VLONG

KINDS = {
    "org.apache.hadoop.io.Text": TEXT,
    "org.apache.hadoop.io.BytesWritable": BYTES,
    "org.apache.hadoop.io.NullWritable": NULL_FIELD,
    "org.apache.hadoop.io.IntWritable": INT,
    "org.apache.hadoop.io.LongWritable": LONG,
    "org.apache.hadoop.io.VIntWritable": VINT,
    "org.apache.hadoop.io.VLongWritable": VLONG,
}

cdef enum SequenceFault:
    FINE = 0
    NOT_ENOUGH  # The region ends first.
    WIDE_NUMBER
    NEGATIVE_FIELD
    KEY_LENGTH
    VALUE_LENGTH
    WRONG_KEY
    WRONG_VALUE
    LONG_KEY
    LONG_VALUE
    RECORD_LENGTH
    WRONG_SYNC
    LENGTHS_END
    LENGTHS_LEFT
    FIELDS_END
    FIELDS_LEFT

REASONS = {
    NOT_ENOUGH: "a length is truncated",
    WIDE_NUMBER: "a length is not a number of 32 bits",
    NEGATIVE_FIELD: "a length is negative: {got:,}",
    KEY_LENGTH: "a key claims {got:,} bytes, but its field has room for {room:,} bytes",
    VALUE_LENGTH: "a value claims {got:,} bytes, but its field has room for {room:,} bytes",
    WRONG_KEY: "the {got:,} bytes of a key do not fit its class",
    WRONG_VALUE: "the {got:,} bytes of a value do not fit its class",
    LONG_KEY: "the key has {got:,} bytes; the limit is {room:,} bytes",
    LONG_VALUE: "the value has {got:,} bytes; the limit is {room:,} bytes",
    RECORD_LENGTH: "the record has {room:,} bytes, but its key has {got:,} bytes",
    WRONG_SYNC: "the sync mark differs from the file's; bytes before it are missing, damaged or surplus",
    LENGTHS_END: "the lengths end too early",
    LENGTHS_LEFT: "{got:,} bytes follow the lengths",
    FIELDS_END: "a field has {got:,} bytes, but {room:,} bytes are left",
    FIELDS_LEFT: "{got:,} bytes follow the fields",
}

cdef struct FieldFault:
    SequenceFault fault
    int64_t got
    int64_t room

# The kinds of a record's fields, and the room for the text of its numbers.
cdef struct RecordShape:
    FieldKind key
    FieldKind value
    Py_ssize_t max_value_size
    uint8_t* numbers

cdef struct ByteRange:
    const uint8_t* at
    const uint8_t* end


cdef inline SequenceFault blame(FieldFault* trouble, SequenceFault fault, int64_t got, int64_t room) noexcept nogil:
    trouble.fault = fault
    trouble.got = got
    trouble.room = room
    return fault


cdef inline int32_t load_int(const uint8_t* at) noexcept nogil:
    return <int32_t> (<uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | <uint32_t> at[3])


cdef SequenceFault take_wide_vint(ByteRange* region, int32_t* number) noexcept nogil:
    """Take a vint of more than one byte; `region` is not empty."""
    cdef int first = <int8_t> region.at[0]
    cdef bint negative = first < -120
    cdef Py_ssize_t size = -120 - first if negative else -112 - first
    cdef uint32_t found = 0
    cdef Py_ssize_t index
    if size > 4:
        return WIDE_NUMBER
    if region.end - region.at <= size:
        return NOT_ENOUGH
    for index in range(1, size + 1):
        found = found << 8 | region.at[index]
    if found > <uint32_t> 0x7FFFFFFF:
        return WIDE_NUMBER
    region.at += size + 1
    number[0] = ~(<int32_t> found) if negative else <int32_t> found
    return FINE


cdef inline SequenceFault take_vint(ByteRange* region, int32_t* number) noexcept nogil:
    if region.at == region.end:
        return NOT_ENOUGH
    if <int8_t> region.at[0] < -112:
        return take_wide_vint(region, number)
    number[0] = <int8_t> region.at[0]
    region.at += 1
    return FINE


cdef SequenceFault take_integer(ByteRange* region, FieldKind kind, int64_t* number) noexcept nogil:
    """Take a number of this kind from `region`."""
    cdef bint is_variable = kind == VINT or kind == VLONG
    cdef Py_ssize_t size = 4 if kind == INT else 8
    cdef bint negative = False
    cdef int first
    cdef uint64_t found = 0
    cdef Py_ssize_t index
    if is_variable:
        if region.at == region.end:
            return NOT_ENOUGH
        first = <int8_t> region.at[0]
        region.at += 1
        if first >= -112:
            number[0] = first
            return FINE
        negative = first < -120
        size = -120 - first if negative else -112 - first
    if region.end - region.at < size:
        return NOT_ENOUGH
    for index in range(size):
        found = found << 8 | region.at[index]
    region.at += size
    if kind == INT:
        number[0] = <int32_t> <uint32_t> found
        return FINE
    if is_variable and found > (<uint64_t> 0x7FFFFFFF if kind == VINT else <uint64_t> 0x7FFFFFFFFFFFFFFF):
        return WIDE_NUMBER
    number[0] = ~(<int64_t> found) if negative else <int64_t> found
    return FINE


cdef SequenceFault spell_field(
    ByteRange* field, FieldKind kind, SequenceFault wrong, RecordShape* shape, FieldFault* trouble
) noexcept nogil:
    """Replace the region of a number by that of its decimal text; the empty region stays."""
    cdef Py_ssize_t field_size = field.end - field.at
    cdef int64_t number = 0
    cdef uint64_t rest
    cdef uint8_t* end = shape.numbers + NUMBER_BYTES
    cdef uint8_t* at = end
    if kind == NULL_FIELD:
        return blame(trouble, wrong, field_size, 0) if field_size else FINE
    if take_integer(field, kind, &number) != FINE or field.at != field.end:
        return blame(trouble, wrong, field_size, 0)
    rest = <uint64_t> 0 - <uint64_t> number if number < 0 else <uint64_t> number
    while True:
        at -= 1
        at[0] = 48 + <uint8_t> (rest % 10)
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        at -= 1
        at[0] = 45
    shape.numbers = end
    field.at = at
    field.end = end
    return FINE


cdef inline SequenceFault open_field(
    ByteRange* field, FieldKind kind, SequenceFault wrong_length, Py_ssize_t limit, SequenceFault too_long,
    FieldFault* trouble,
) noexcept nogil:
    """Replace the region of a Text or a BytesWritable by that of its content."""
    cdef int32_t size = 0
    cdef SequenceFault fault
    if kind == TEXT:
        fault = take_vint(field, &size)
        if fault != FINE:
            return blame(trouble, fault, 0, 0)
    else:
        if field.end - field.at < 4:
            return blame(trouble, NOT_ENOUGH, 0, 0)
        size = load_int(field.at)
        field.at += 4
    if size != field.end - field.at:
        return blame(trouble, wrong_length, size, field.end - field.at)
    if size > limit:
        return blame(trouble, too_long, size, limit)
    return FINE


cdef inline SequenceFault open_key(ByteRange* field, RecordShape* shape, FieldFault* trouble) noexcept nogil:
    if shape.key > BYTES:
        return spell_field(field, shape.key, WRONG_KEY, shape, trouble)
    return open_field(field, shape.key, KEY_LENGTH, MAX_KEY_SIZE, LONG_KEY, trouble)


cdef inline SequenceFault open_value(ByteRange* field, RecordShape* shape, FieldFault* trouble) noexcept nogil:
    if shape.value > BYTES:
        return spell_field(field, shape.value, WRONG_VALUE, shape, trouble)
    return open_field(field, shape.value, VALUE_LENGTH, shape.max_value_size, LONG_VALUE, trouble)


cdef int hold_numbers(RecordBatch batch, RecordShape* shape, Py_ssize_t most) except -1:
    """Make the batch hold room for the numbers of `most` more records."""
    cdef Py_ssize_t count = ((shape.key > NULL_FIELD) + (shape.value > NULL_FIELD)) * most
    cdef bytes room
    shape.numbers = NULL
    if count:
        room = PyBytes_FromStringAndSize(NULL, count * NUMBER_BYTES)
        batch.hold(room)
        shape.numbers = <uint8_t*> PyBytes_AS_STRING(room)
    return 0


cdef inline ByteRange region_of(const Py_buffer* view) noexcept nogil:
    return ByteRange(<const uint8_t*> view.buf, <const uint8_t*> view.buf + view.len)


cdef Py_ssize_t content_of(found, ByteRange* region) except -1:
    """Set `region` to exclusively owned decompressed data; return its size."""
    cdef Py_ssize_t size
    if isinstance(found, bytes):
        region.at = <const uint8_t*> PyBytes_AS_STRING(found)
        size = PyBytes_GET_SIZE(found)
    elif isinstance(found, bytearray):
        region.at = <const uint8_t*> PyByteArray_AS_STRING(found)
        size = PyByteArray_GET_SIZE(found)
    else:
        raise TypeError(f"the decompressed data must be bytes, got {type(found).__name__}")
    region.end = region.at + size
    return size


cdef object explain(const FieldFault* trouble):
    return REASONS[trouble.fault].format(got=trouble.got, room=trouble.room)


def sum_of_lengths(lengths, Py_ssize_t count, str name not None, uint64_t offset):
    """Return the sum of `count` lengths in a block's buffer.

    Raises:
        SourceError: there are fewer or more lengths, or one is negative.
    """
    cdef Py_buffer view
    cdef FieldFault trouble = FieldFault(FINE, 0, 0)
    cdef int64_t total = 0
    PyObject_GetBuffer(lengths, &view, PyBUF_SIMPLE)
    with nogil:
        add_lengths(region_of(&view), count, &total, &trouble)
    PyBuffer_Release(&view)
    if trouble.fault != FINE:
        raise refusal(name, offset, f"in the block that begins here, {explain(&trouble)}")
    return total


cdef SequenceFault add_lengths(ByteRange region, Py_ssize_t count, int64_t* total, FieldFault* trouble) noexcept nogil:
    cdef int32_t length = 0
    cdef SequenceFault fault
    while count > 0:
        count -= 1
        fault = take_vint(&region, &length)
        if fault != FINE:
            return blame(trouble, LENGTHS_END if region.at == region.end else fault, 0, 0)
        if length < 0:
            return blame(trouble, NEGATIVE_FIELD, length, 0)
        total[0] += length
    if region.at != region.end:
        return blame(trouble, LENGTHS_LEFT, region.end - region.at, 0)
    return FINE


@cython.final
cdef class Block:
    """A block's four buffers, decompressed: its records in batches.

    Lifetime: batches point into the buffers, and hold this object.
    """

    cdef Py_buffer views[4]
    cdef int view_count
    cdef ByteRange key_lengths, keys, value_lengths, values
    cdef RecordShape shape
    cdef str name
    cdef uint64_t offset
    cdef Py_ssize_t count
    cdef Py_ssize_t done

    def __cinit__(
        self, buffers not None, Py_ssize_t count, str key_class not None, str value_class not None,
        Py_ssize_t max_value_bytes, str name not None, uint64_t offset,
    ):
        key_lengths, keys, value_lengths, values = buffers
        self.key_lengths = self.view(key_lengths)
        self.keys = self.view(keys)
        self.value_lengths = self.view(value_lengths)
        self.values = self.view(values)
        self.shape = RecordShape(KINDS[key_class], KINDS[value_class], max_value_bytes, NULL)
        self.name = name
        self.offset = offset
        self.count = count

    def __dealloc__(self):
        while self.view_count > 0:
            self.view_count -= 1
            PyBuffer_Release(&self.views[self.view_count])

    cdef ByteRange view(self, object buffer) except *:
        PyObject_GetBuffer(buffer, &self.views[self.view_count], PyBUF_SIMPLE)
        self.view_count += 1
        return region_of(&self.views[self.view_count - 1])

    def fill(self, RecordBatch batch not None):
        """Put in as many of the remaining records as fit; False if there were none.

        Raises:
            SourceError: the block contradicts its lengths.
        """
        cdef FieldFault trouble = FieldFault(FINE, 0, 0)
        if self.done == self.count:
            return False
        batch.hold(self)
        hold_numbers(batch, &self.shape, min(self.count - self.done, BATCH_RECORDS - batch.count))
        with nogil:
            self.fill_without_gil(batch, &trouble)
        if trouble.fault != FINE:
            raise refusal(
                self.name, self.offset,
                f"in the block that begins here, record {self.done + 1:,} of {self.count:,}: {explain(&trouble)}",
            )
        return True

    cdef SequenceFault fill_without_gil(self, RecordBatch batch, FieldFault* trouble) noexcept nogil:
        cdef ByteRange key_lengths = self.key_lengths, keys = self.keys
        cdef ByteRange value_lengths = self.value_lengths, values = self.values
        cdef RecordShape shape = self.shape
        cdef ByteRange key, value
        cdef Py_ssize_t most = min(self.count - self.done, BATCH_RECORDS - batch.count)
        cdef Py_ssize_t number
        for number in range(most):
            if (
                take_field(&key_lengths, &keys, &key, trouble) != FINE or open_key(&key, &shape, trouble) != FINE
                or take_field(&value_lengths, &values, &value, trouble) != FINE
                or open_value(&value, &shape, trouble) != FINE
            ):
                self.done += number
                return trouble.fault
            batch.put(key.at, key.end - key.at, value.at, value.end - value.at, self.offset)
        self.done += most
        self.key_lengths = key_lengths
        self.keys = keys
        self.value_lengths = value_lengths
        self.values = values
        if self.done < self.count:
            return FINE
        if key_lengths.at != key_lengths.end or value_lengths.at != value_lengths.end:
            return blame(
                trouble, LENGTHS_LEFT, key_lengths.end - key_lengths.at + (value_lengths.end - value_lengths.at), 0
            )
        if keys.at != keys.end or values.at != values.end:
            return blame(trouble, FIELDS_LEFT, keys.end - keys.at + (values.end - values.at), 0)
        return FINE


cdef inline SequenceFault take_field(
    ByteRange* lengths, ByteRange* fields, ByteRange* field, FieldFault* trouble
) noexcept nogil:
    cdef int32_t length = 0
    cdef SequenceFault fault = take_vint(lengths, &length)
    if fault != FINE:
        return blame(trouble, fault, 0, 0)
    if length < 0:
        return blame(trouble, NEGATIVE_FIELD, length, 0)
    if length > fields.end - fields.at:
        return blame(trouble, FIELDS_END, length, fields.end - fields.at)
    field.at = fields.at
    field.end = fields.at + length
    fields.at = field.end
    return FINE


@cython.final
cdef class RecordDecoder:
    """Decodes records one by one, from buffers that are windows of the file; values may be compressed.

    `fill` returns where it stopped.  `wanted` is then the number of bytes that it needs from there on, or 0 if it
    stopped because the batch must be passed on.

    Lifetime: batches point into the buffers, and hold them.
    """

    cdef RecordShape shape
    cdef str name
    cdef uint8_t sync[SYNC_SIZE]
    cdef object decompress
    cdef readonly Py_ssize_t wanted

    def __cinit__(
        self, bytes sync not None, str key_class not None, str value_class not None, Py_ssize_t max_value_bytes,
        str name not None, decompress=None,
    ):
        if PyBytes_GET_SIZE(sync) != SYNC_SIZE:
            raise ValueError(f"a sync mark must have {SYNC_SIZE} bytes, got {PyBytes_GET_SIZE(sync)}")
        memcpy(self.sync, PyBytes_AS_STRING(sync), SYNC_SIZE)
        self.shape = RecordShape(KINDS[key_class], KINDS[value_class], max_value_bytes, NULL)
        self.name = name
        self.decompress = decompress

    def fill(self, RecordBatch batch not None, bytes buffer not None, Py_ssize_t start, uint64_t offset):
        """Put in the records of `buffer` from `start` on, as many as fit; the buffer begins at `offset`.

        Raises:
            SourceError: a record contradicts its lengths.
        """
        cdef const uint8_t* first = <const uint8_t*> PyBytes_AS_STRING(buffer)
        cdef ByteRange region
        cdef FieldFault trouble = FieldFault(FINE, 0, 0)
        if not 0 <= start <= PyBytes_GET_SIZE(buffer):
            raise ValueError(f"the start must be from 0 to {PyBytes_GET_SIZE(buffer)}, got {start}")
        region.at = first + start
        region.end = first + PyBytes_GET_SIZE(buffer)
        batch.hold(buffer)
        hold_numbers(batch, &self.shape, BATCH_RECORDS - batch.count)
        if self.decompress is None:
            with nogil:
                self.fill_without_gil(batch, &region, first, offset, &trouble)
            if trouble.fault != FINE:
                raise refusal(self.name, offset + <uint64_t> (region.at - first), explain(&trouble))
        else:
            self.fill_decompressed(batch, &region, first, offset)
        return region.at - first

    cdef SequenceFault fill_without_gil(
        self, RecordBatch batch, ByteRange* region, const uint8_t* first, uint64_t offset, FieldFault* trouble
    ) noexcept nogil:
        cdef ByteRange key, value
        cdef const uint8_t* end
        while batch.count < BATCH_RECORDS:
            if self.take_record(region, &key, &value, trouble) != FINE or self.wanted:
                return trouble.fault
            end = value.end
            if (
                open_key(&key, &self.shape, trouble) != FINE
                or open_value(&value, &self.shape, trouble) != FINE
            ):
                return trouble.fault
            batch.put(
                key.at, key.end - key.at, value.at, value.end - value.at, offset + <uint64_t> (region.at - first)
            )
            region.at = end
        return FINE

    cdef int fill_decompressed(
        self, RecordBatch batch, ByteRange* region, const uint8_t* first, uint64_t offset
    ) except -1:
        cdef ByteRange key, value
        cdef FieldFault trouble = FieldFault(FINE, 0, 0)
        cdef uint64_t place = offset
        cdef bytes packed
        cdef object found
        cdef const uint8_t* end
        cdef Py_ssize_t held = 0
        self.wanted = 0
        while batch.count < BATCH_RECORDS and held < HELD_BYTES:
            if self.take_record(region, &key, &value, &trouble) == FINE:
                if self.wanted:
                    return 0
                open_key(&key, &self.shape, &trouble)
            place = offset + <uint64_t> (region.at - first)
            if trouble.fault == FINE:
                end = value.end
                packed = PyBytes_FromStringAndSize(<const char*> value.at, value.end - value.at)
                try:
                    found = self.decompress(packed, self.shape.max_value_size + MAX_FIELD_HEADER)
                except DamagedError as error:
                    raise refusal(self.name, place, f"the value cannot be decompressed: {error}") from error
                held += content_of(found, &value)
                open_value(&value, &self.shape, &trouble)
            if trouble.fault != FINE:
                raise refusal(self.name, place, explain(&trouble))
            batch.hold(found)
            batch.put(key.at, key.end - key.at, value.at, value.end - value.at, place)
            region.at = end
        return 0

    cdef SequenceFault take_record(
        self, ByteRange* region, ByteRange* key, ByteRange* value, FieldFault* trouble
    ) noexcept nogil:
        """Find the fields of the next record; `region` then begins with the record, after any sync marks."""
        cdef Py_ssize_t left
        cdef int64_t size
        cdef int64_t key_size
        cdef int64_t most
        self.wanted = 0
        while True:
            left = region.end - region.at
            if left < 4:
                self.wanted = 4
                return FINE
            size = load_int(region.at)
            if size != SYNC_ESCAPE:
                break
            if left < 4 + SYNC_SIZE:
                self.wanted = 4 + SYNC_SIZE
                return FINE
            if memcmp(region.at + 4, self.sync, SYNC_SIZE) != 0:
                return blame(trouble, WRONG_SYNC, 0, 0)
            region.at += 4 + SYNC_SIZE
        if left < RECORD_HEADER_SIZE:
            self.wanted = RECORD_HEADER_SIZE
            return FINE
        key_size = load_int(region.at + 4)
        if key_size < 0 or key_size > size:
            return blame(trouble, RECORD_LENGTH, key_size, size)
        if key_size > MAX_KEY_SIZE + MAX_FIELD_HEADER:
            return blame(trouble, LONG_KEY, key_size, MAX_KEY_SIZE)
        # A compressed value may be a little longer than its content.
        most = self.shape.max_value_size + MAX_FIELD_HEADER
        if self.decompress is not None:
            most += most // 64 + 4096
        if size - key_size > most:
            return blame(trouble, LONG_VALUE, size - key_size, self.shape.max_value_size)
        if left < RECORD_HEADER_SIZE + size:
            self.wanted = RECORD_HEADER_SIZE + size
            return FINE
        key.at = region.at + RECORD_HEADER_SIZE
        key.end = key.at + key_size
        value.at = key.end
        value.end = value.at + (size - key_size)
        return FINE
