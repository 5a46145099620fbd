"""Rows of several columns, each encoded into one byte string: an object of JSON, a map or array of MessagePack, or
joined text.

    object    {"name":value,...}; a string that is not UTF-8 is {"base64":"..."}, and columns of JSON keep their text
    map       names and values; a string that is not UTF-8 is binary
    array     values
    joined    values with a separator between them, which only the last may contain

A part is written as its `PART_KINDS` say.  The library that read the columns has made text of everything but strings
(`arrow_rows.py`), except for MessagePack, which has numbers of its own.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

cdef enum Layout:
    OBJECT = 0
    MAP
    ARRAY
    JOINED

cdef enum PartKind:
    AS_IS = 0
    STRING
    BINARY
    JSON_TEXT
    SIGNED
    UNSIGNED
    DOUBLE
    BOOLEAN

LAYOUTS = {"object": <int> OBJECT, "map": <int> MAP, "array": <int> ARRAY, "joined": <int> JOINED}
PART_KINDS = {
    "as is": <int> AS_IS, "string": <int> STRING, "binary": <int> BINARY, "json": <int> JSON_TEXT,
    "signed": <int> SIGNED, "unsigned": <int> UNSIGNED, "double": <int> DOUBLE, "boolean": <int> BOOLEAN,
}

cdef enum:
    MAX_PARTS = 4096
    MSGPACK_NIL = 0xC0
    MSGPACK_FALSE = 0xC2
    MSGPACK_DOUBLE = 0xCB

cdef const uint8_t* HEX_DIGITS = <const uint8_t*> b"0123456789abcdef"
cdef const uint8_t* BASE64_DIGITS = <const uint8_t*> (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)


@cython.final
cdef class EncodedRows:
    """Owns the bytes of encoded rows and their ends."""

    cdef uint8_t* data
    cdef uint64_t size
    cdef uint64_t capacity
    cdef uint64_t* offsets
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.data)
        free(self.offsets)

    cdef uint8_t* room(self, uint64_t more) noexcept nogil:
        """Return the place for `more` bytes behind the data; NULL if there is no memory."""
        cdef uint64_t capacity = self.capacity
        cdef uint8_t* data
        if self.data == NULL or more > capacity - self.size:
            capacity = max(2 * capacity, self.size + more, <uint64_t> 65536)
            data = <uint8_t*> realloc(self.data, <size_t> capacity)
            if data == NULL:
                return NULL
            self.data = data
            self.capacity = capacity
        return self.data + self.size

    cdef bint add(self, const uint8_t* bytes_, uint64_t size) noexcept nogil:
        cdef uint8_t* out = self.room(size)
        if out == NULL:
            return False
        memcpy(out, bytes_, <size_t> size)
        self.size += size
        return True

    cdef bint add_byte(self, uint8_t byte) noexcept nogil:
        return self.add(&byte, 1)

    cdef bint add_number(self, uint8_t kind, uint64_t number, int size) noexcept nogil:
        """Add a byte, and a big-endian number of `size` bytes."""
        cdef uint8_t* out = self.room(9)
        cdef int i
        if out == NULL:
            return False
        out[0] = kind
        for i in range(size):
            out[1 + i] = <uint8_t> (number >> (8 * (size - 1 - i)))
        self.size += <uint64_t> (1 + size)
        return True

    cdef Column as_column(self):
        cdef Column column = Column(None, 0)
        column.owners.append(self)
        column.view.data = self.data
        column.view.data_size = self.size
        column.view.offsets = <const uint8_t*> self.offsets
        column.view.offset_size = 8
        column.view.value_count = <uint64_t> self.count
        column.count = self.count
        return column


cdef struct Part:
    int kind
    const uint8_t* prefix
    uint64_t prefix_size
    View view


@cython.final
cdef class RowEncoder:
    """Encodes rows of columns; `prefixes` are the encoded names of the parts, empty where parts have no names.

    `fault` is the number of the part that ended the last call of `encode` before its last row, or -1.
    """

    cdef int layout
    cdef Py_ssize_t parts
    cdef Part* descriptions
    cdef list prefixes
    cdef bytes separator
    cdef Span join
    cdef bint omits_nulls
    cdef readonly Py_ssize_t fault

    def __cinit__(
        self, int layout, list kinds not None, list prefixes not None, bytes separator not None=b"",
        bint omits_nulls=False,
    ):
        cdef Py_ssize_t part
        if not (0 <= layout <= <int> JOINED and 0 < len(kinds) == len(prefixes) <= MAX_PARTS):
            raise ValueError(f"a row needs a known layout and 1 to {MAX_PARTS:,} columns, with kinds and prefixes")
        self.layout = layout
        self.parts = len(kinds)
        self.prefixes = list(prefixes)
        self.separator = separator
        self.join.at = <const uint8_t*> PyBytes_AS_STRING(separator)
        self.join.size = PyBytes_GET_SIZE(separator)
        self.omits_nulls = omits_nulls
        self.fault = -1
        self.descriptions = <Part*> malloc(<size_t> self.parts * sizeof(Part))
        if self.descriptions == NULL:
            raise MemoryError
        for part in range(self.parts):
            if not (isinstance(prefixes[part], bytes) and <int> AS_IS <= kinds[part] <= <int> BOOLEAN):
                raise ValueError("a part has an unknown kind, or a prefix that is not bytes")
            self.descriptions[part].kind = kinds[part]
            self.descriptions[part].prefix = <const uint8_t*> PyBytes_AS_STRING(prefixes[part])
            self.descriptions[part].prefix_size = <uint64_t> PyBytes_GET_SIZE(prefixes[part])

    def __dealloc__(self):
        free(self.descriptions)

    def encode(self, list columns not None, Py_ssize_t first, Py_ssize_t limit_bytes):
        """Return a column of encoded rows from `first` on, which ends with the row that passes the limit.

        It ends early, and `fault` says why, at a row that cannot be encoded.
        """
        cdef EncodedRows rows = EncodedRows()
        cdef Py_ssize_t part, row, end = 0
        cdef bint went_well = True
        cdef Column column
        if len(columns) != self.parts or first < 0:
            raise ValueError("the number of columns must be the number of parts, and the first row at least 0")
        for part in range(self.parts):
            column = columns[part]
            end = column.count if part == 0 else min(end, column.count)
            self.descriptions[part].view = column.view
            if self.descriptions[part].kind >= <int> SIGNED and column.view.width != <uint64_t> (
                1 if self.descriptions[part].kind == <int> BOOLEAN else 8
            ):
                raise ValueError("the numbers of a column must have 8 bytes, and its booleans 1 byte")
        self.fault = -1
        rows.offsets = <uint64_t*> malloc(<size_t> (max(end - first, 0) + 1) * sizeof(uint64_t))
        if rows.offsets == NULL:
            raise MemoryError
        rows.offsets[0] = 0
        with nogil:
            for row in range(first, end):
                if rows.size > <uint64_t> limit_bytes:
                    break
                went_well = self.add_row(rows, row)
                if not went_well:
                    break
                rows.count += 1
                rows.offsets[rows.count] = rows.size
        if not went_well and self.fault < 0:
            raise MemoryError
        return rows.as_column()

    cdef bint add_row(self, EncodedRows rows, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t part, present = self.parts
        cdef const Part* description
        cdef bint is_first = True
        if self.layout == <int> MAP and self.omits_nulls:
            for part in range(self.parts):
                present -= is_null(&self.descriptions[part].view, row)
        if self.layout == <int> OBJECT:
            if not rows.add_byte(OPEN_OBJECT):
                return False
        elif self.layout != <int> JOINED and not add_head(rows, <uint64_t> present, self.layout == <int> MAP):
            return False
        for part in range(self.parts):
            description = &self.descriptions[part]
            if self.omits_nulls and is_null(&description.view, row):
                continue
            if not is_first:
                if self.layout == <int> OBJECT and not rows.add_byte(COMMA):
                    return False
                if self.layout == <int> JOINED and not rows.add(self.join.at, <uint64_t> self.join.size):
                    return False
            is_first = False
            if not rows.add(description.prefix, description.prefix_size) or not self.add_part(rows, part, row):
                return False
        return self.layout != <int> OBJECT or rows.add_byte(CLOSE_OBJECT)

    cdef bint add_part(self, EncodedRows rows, Py_ssize_t part, Py_ssize_t row) noexcept nogil:
        cdef const uint8_t* value
        cdef uint64_t size
        cdef const Part* description = &self.descriptions[part]
        if is_null(&description.view, row):
            if self.layout == <int> OBJECT:
                return rows.add(<const uint8_t*> b"null", 4)
            return rows.add_byte(MSGPACK_NIL)
        if not get_value(&description.view, row, &value, &size) or (
            self.layout == <int> JOINED and part < self.parts - 1 and contains(value, size, &self.join)
        ):
            self.fault = part
            return False
        if description.kind == <int> AS_IS:
            return rows.add(value, size)
        if description.kind >= <int> SIGNED:
            return add_msgpack_number(rows, load(value, size), description.kind)
        if self.layout != <int> OBJECT:
            return add_msgpack_string(rows, value, size, description.kind == <int> BINARY)
        if description.kind == <int> JSON_TEXT and add_json_text(rows, value, size):
            return True
        return add_json_string(rows, value, size)


cdef bint contains(const uint8_t* value, uint64_t size, const Span* wanted) noexcept nogil:
    cdef const uint8_t* text = wanted.at
    cdef uint64_t length = <uint64_t> wanted.size
    cdef const uint8_t* end = value + size
    while length > 0 and <uint64_t> (end - value) >= length:
        value = <const uint8_t*> memchr(value, text[0], <size_t> (<uint64_t> (end - value) - length + 1))
        if value == NULL:
            return False
        if memcmp(value, text, <size_t> length) == 0:
            return True
        value += 1
    return False


# -- JSON --------------------------------------------------------------------------------------------------------------


cdef bint add_json_text(EncodedRows rows, const uint8_t* value, uint64_t size) noexcept nogil:
    """Add a text of JSON without space between its parts; returns False, without effect, if it is none."""
    cdef Cursor cursor
    cdef Span span
    cdef uint8_t* out
    cursor.at = value
    cursor.end = value + size
    skip_space(&cursor)
    if not take_value(&cursor, &span):
        return False
    skip_space(&cursor)
    if cursor.at != cursor.end:
        return False
    out = rows.room(<uint64_t> span.size)
    if out == NULL:
        return False
    rows.size += <uint64_t> compact(&span, out)
    return True


cdef bint add_json_string(EncodedRows rows, const uint8_t* value, uint64_t size) noexcept nogil:
    """Add a string of JSON, or an object with base64 if the bytes are not UTF-8."""
    cdef const uint8_t* at = value
    cdef const uint8_t* end = value + size
    cdef uint64_t start = rows.size, word, found
    cdef uint8_t* out = rows.room(size + 2)
    cdef int length
    if out == NULL:
        return False
    out[0] = QUOTE
    out += 1
    while at < end:
        if end - at >= 8:
            word = load64(at)
            memcpy(out, &word, 8)
            found = special(word)
            length = 8 if found == 0 else trailing_zeros(found) >> 3
            at += length
            out += length
            if found == 0:
                continue
        if at[0] < 32 or at[0] == QUOTE or at[0] == BACKSLASH:
            rows.size = <uint64_t> (out - rows.data)
            out = rows.room(<uint64_t> (end - at) + 6)  # The escape, the rest, and a quote.
            if out == NULL:
                return False
            out += escape(at[0], out)
            at += 1
            continue
        length = 1 if at[0] < 128 else character_size(at, end)
        if length == 0:
            rows.size = start
            return add_base64(rows, value, size)
        memcpy(out, at, <size_t> length)
        at += length
        out += length
    out[0] = QUOTE
    rows.size = <uint64_t> (out + 1 - rows.data)
    return True


cdef uint64_t escape(uint8_t byte, uint8_t* out) noexcept nogil:
    """Write an escaped character; return the size."""
    out[0] = BACKSLASH
    if byte == QUOTE or byte == BACKSLASH:
        out[1] = byte
    elif byte == 10:
        out[1] = 110
    elif byte == 9:
        out[1] = 116
    elif byte == 13:
        out[1] = 114
    else:
        memcpy(out + 1, b"u00", 3)
        out[4] = HEX_DIGITS[byte >> 4]
        out[5] = HEX_DIGITS[byte & 15]
        return 6
    return 2


cdef bint add_base64(EncodedRows rows, const uint8_t* value, uint64_t size) noexcept nogil:
    cdef uint8_t* out = rows.room(13 + 4 * ((size + 2) // 3))
    cdef uint64_t at = 0
    cdef uint32_t word
    cdef uint64_t left
    cdef int i
    if out == NULL:
        return False
    memcpy(out, b'{"base64":"', 11)
    out += 11
    while at < size:
        left = min(<uint64_t> 3, size - at)
        word = <uint32_t> value[at] << 16
        if left > 1:
            word |= <uint32_t> value[at + 1] << 8
        if left > 2:
            word |= value[at + 2]
        for i in range(4):
            out[i] = BASE64_DIGITS[(word >> (18 - 6 * i)) & 63] if <uint64_t> i <= left else EQUALS
        out += 4
        at += 3
    memcpy(out, b'"}', 2)
    rows.size = <uint64_t> (out + 2 - rows.data)
    return True


# -- MessagePack -------------------------------------------------------------------------------------------------------


cdef bint add_head(EncodedRows rows, uint64_t count, bint is_map) noexcept nogil:
    if count < 16:
        return rows.add_byte(<uint8_t> ((0x80 if is_map else 0x90) | count))
    return rows.add_number(0xDE if is_map else 0xDC, count, 2)  # At most `MAX_PARTS`.


cdef bint add_msgpack_string(EncodedRows rows, const uint8_t* value, uint64_t size, bint is_binary) noexcept nogil:
    """Add a string, or binary if the bytes are not UTF-8."""
    cdef const uint8_t* at = value
    cdef const uint8_t* end = value + size
    cdef int length
    while at < end and not is_binary:
        if end - at >= 8 and load64(at) & HIGHS == 0:
            at += 8
            continue
        length = 1 if at[0] < 128 else character_size(at, end)
        is_binary = length == 0
        at += length
    if size < 32 and not is_binary:
        if not rows.add_byte(<uint8_t> (0xA0 | size)):
            return False
    elif size < 256:
        if not rows.add_number(0xC4 if is_binary else 0xD9, size, 1):
            return False
    elif size < 65536:
        if not rows.add_number(0xC5 if is_binary else 0xDA, size, 2):
            return False
    elif not rows.add_number(0xC6 if is_binary else 0xDB, size, 4):
        return False
    return rows.add(value, size)


cdef bint add_msgpack_number(EncodedRows rows, uint64_t word, int kind) noexcept nogil:
    """Add a number in its shortest form."""
    cdef uint64_t beyond = ~word
    if kind == <int> BOOLEAN:
        return rows.add_byte(<uint8_t> (MSGPACK_FALSE + (word != 0)))
    if kind == <int> DOUBLE:
        return rows.add_number(MSGPACK_DOUBLE, word, 8)
    if kind == <int> SIGNED and word >> 63:
        if beyond < 32:
            return rows.add_byte(<uint8_t> word)
        if beyond < 1 << 7:
            return rows.add_number(0xD0, word, 1)
        if beyond < 1 << 15:
            return rows.add_number(0xD1, word, 2)
        if beyond < <uint64_t> 1 << 31:
            return rows.add_number(0xD2, word, 4)
        return rows.add_number(0xD3, word, 8)
    if word < 128:
        return rows.add_byte(<uint8_t> word)
    if word < 1 << 8:
        return rows.add_number(0xCC, word, 1)
    if word < 1 << 16:
        return rows.add_number(0xCD, word, 2)
    if word < <uint64_t> 1 << 32:
        return rows.add_number(0xCE, word, 4)
    return rows.add_number(0xCF, word, 8)


# -- UUIDs -------------------------------------------------------------------------------------------------------------


def uuid_texts(Column uuids not None):
    """Return the column of the UUIDs' texts, such as `123e4567-e89b-12d3-a456-426614174000`."""
    cdef EncodedRows rows = EncodedRows()
    cdef const uint8_t* value
    cdef uint64_t size
    cdef uint8_t* out
    cdef Py_ssize_t row
    cdef int i
    cdef Column texts
    rows.offsets = <uint64_t*> malloc(<size_t> (uuids.count + 1) * sizeof(uint64_t))
    out = rows.room(36 * <uint64_t> uuids.count)
    if rows.offsets == NULL or out == NULL:
        raise MemoryError
    rows.offsets[0] = 0
    for row in range(uuids.count):
        if not is_null(&uuids.view, row):
            if not get_value(&uuids.view, row, &value, &size) or size != 16:
                raise ValueError("a UUID must have 16 bytes")
            for i in range(16):
                if i == 4 or i == 6 or i == 8 or i == 10:
                    out[0] = MINUS
                    out += 1
                out[0] = HEX_DIGITS[value[i] >> 4]
                out[1] = HEX_DIGITS[value[i] & 15]
                out += 2
        rows.offsets[row + 1] = <uint64_t> (out - rows.data)
    rows.size = <uint64_t> (out - rows.data)
    rows.count = uuids.count
    texts = rows.as_column()
    texts.owners.append(uuids)
    texts.view.valid = uuids.view.valid
    texts.view.first_valid = uuids.view.first_valid
    return texts
