"""A line of JSON: an object with fields for the key and for the value; `json_lines.py` specifies both."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from gossipkv.storage._storage cimport BATCH_RECORDS, RecordBatch

from gossipkv.dataset.formats import reading
from gossipkv.dataset.formats.excerpt import excerpt

cdef enum:
    MAX_NAME_BYTES = 256
    ROOM_BYTES = 1 << 18

# These faults extend those of `json_text`.
cdef enum:
    NOTHING_WRONG = 100
    NO_OBJECT
    MORE_AFTER
    FIELD_TWICE
    NO_KEY
    NO_VALUE
    KEY_KIND
    KEY_SEPARATOR
    VALUE_NULL
    FIELD_BASE64
    KEY_SIZE
    VALUE_SIZE
    NO_MEMORY


cdef struct Field:
    const uint8_t* name
    Py_ssize_t name_size
    bint found
    Span text  # The field's text in the line.
    Span constant  # The text where a line has no such field; its place is NULL if there is none.


@cython.final
cdef class JsonLines(Lines):
    """The records of lines of JSON.

    `keys` and `values` are names of fields; `constants` are the JSON texts of fields that lines may lack.  A value is
    `single`, or an object of the fields `values`, or of all if there are none.  Keys of several fields, `joined` or an
    array of MessagePack, have a separator or None.
    """

    cdef list names
    cdef list constants
    cdef Py_ssize_t key_count
    cdef Py_ssize_t value_count
    cdef Py_ssize_t count
    cdef Field* fields
    cdef bint has_one_key
    cdef bint has_one_value
    cdef bint takes_all
    cdef bint omits_nulls
    cdef bytes separator
    cdef Span join  # Its place is NULL if there is none.

    # Room for served bytes that differ from the source.
    cdef uint8_t* spare
    cdef Py_ssize_t spare_bytes
    cdef EncodedRows row
    cdef EncodedRows part

    # The fault, its field, and its place in the line.
    cdef int wrong
    cdef Py_ssize_t wrong_field
    cdef Py_ssize_t wrong_at

    def __cinit__(
        self, str name not None, Py_ssize_t max_value_bytes, Py_ssize_t max_line_bytes, keys, values,
        dict constants=None, bytes separator=None, bint omits_nulls=True,
    ):
        cdef Py_ssize_t number
        cdef Field* field
        cdef bytes encoded
        self.has_one_key = isinstance(keys, str)
        self.has_one_value = isinstance(values, str)
        keys = [keys] if self.has_one_key else list(keys)
        values = [values] if self.has_one_value else list(values)
        self.takes_all = not values
        constants = {} if constants is None else constants
        self.key_count = len(keys)
        self.value_count = len(values)
        self.names = [field_name.encode() for field_name in [*keys, *values, *(constants if self.takes_all else ())]]
        self.count = len(self.names)
        if max(map(len, self.names)) > MAX_NAME_BYTES:
            raise ValueError(f"the name of a field has at most {MAX_NAME_BYTES} bytes")
        self.max_line_bytes = max_line_bytes
        self.omits_nulls = omits_nulls
        self.separator = separator
        if separator is not None:
            self.join.at = <const uint8_t*> PyBytes_AS_STRING(separator)
            self.join.size = PyBytes_GET_SIZE(separator)
        self.row = EncodedRows()
        self.part = EncodedRows()
        self.wrong = NOTHING_WRONG
        self.fields = <Field*> calloc(<size_t> self.count, sizeof(Field))
        if self.fields == NULL:
            raise MemoryError
        self.constants = [constants.get(field_name.decode()) for field_name in self.names]
        for number in range(self.count):
            field = &self.fields[number]
            encoded = self.names[number]
            field.name = <const uint8_t*> PyBytes_AS_STRING(encoded)
            field.name_size = PyBytes_GET_SIZE(encoded)
            if self.constants[number] is not None:
                encoded = self.constants[number]
                field.constant.at = <const uint8_t*> PyBytes_AS_STRING(encoded)
                field.constant.size = PyBytes_GET_SIZE(encoded)

    def __dealloc__(self):
        free(self.fields)

    cdef int begin(self, Py_ssize_t size, RecordBatch batch) except -1:
        """Allocate room; unwritten pages cost nothing."""
        self.spare_bytes = 0
        return 0

    cdef uint8_t* room(self, Py_ssize_t size, RecordBatch batch) noexcept nogil:
        """Return a place for `size` bytes that lives as long as the batch; NULL if there is no memory."""
        cdef uint8_t* place
        if self.spare_bytes < size or self.spare_bytes == 0:
            with gil:
                try:
                    room = PyBytes_FromStringAndSize(NULL, max(size, <Py_ssize_t> ROOM_BYTES))
                    batch.hold(room)
                except MemoryError:
                    self.wrong = NO_MEMORY
                    return NULL
                self.spare = <uint8_t*> PyBytes_AS_STRING(room)
                self.spare_bytes = max(size, <Py_ssize_t> ROOM_BYTES)
        place = self.spare
        self.spare += size
        self.spare_bytes -= size
        return place

    cdef LineResult take(self, const uint8_t* line, Py_ssize_t size, RecordBatch batch) noexcept nogil:
        cdef Cursor cursor
        cdef Span key, value
        if batch.count == BATCH_RECORDS:
            return BATCH_FULL
        cursor.at = line
        cursor.end = line + size
        if self.offset == 0 and size >= 3 and memcmp(line, b"\xef\xbb\xbf", 3) == 0:
            cursor.at += 3
        skip_space(&cursor)
        if cursor.at == cursor.end:
            return TAKEN
        if not self.find_fields(&cursor):
            if self.wrong == NOTHING_WRONG:
                self.wrong = cursor.fault
            self.wrong_at = cursor.at - line
            return WRONG_LINE
        if not self.serve_key(line, &key, batch) or not self.serve_value(line, &value, batch):
            return WRONG_LINE
        batch.put(key.at, key.size, value.at, value.size, self.offset)
        return TAKEN

    # -- finding -------------------------------------------------------------------------------------------------------

    cdef bint find_fields(self, Cursor* cursor) noexcept nogil:
        """Find the fields of a line while checking it to its end; on a fault the cursor is there."""
        cdef Py_ssize_t number
        self.row.size = 0
        for number in range(self.count):
            self.fields[number].found = False
        if cursor.at[0] != OPEN_OBJECT:
            self.wrong = NO_OBJECT
            return False
        cursor.at += 1
        skip_space(cursor)
        if cursor.at < cursor.end and cursor.at[0] == CLOSE_OBJECT:
            cursor.at += 1
        else:
            while True:
                if not self.take_member(cursor):
                    return False
                skip_space(cursor)
                if cursor.at < cursor.end and cursor.at[0] == CLOSE_OBJECT:
                    cursor.at += 1
                    break
                if not take_byte(cursor, COMMA):
                    return False
                skip_space(cursor)
        skip_space(cursor)
        if cursor.at != cursor.end:
            self.wrong = MORE_AFTER
            return False
        return True

    cdef bint take_member(self, Cursor* cursor) noexcept nogil:
        cdef const uint8_t* start = cursor.at
        cdef Span name, text
        cdef Py_ssize_t number, name_bytes
        cdef Field* field
        if not take_string(cursor, &name):
            return False
        name_bytes = cursor.at - start
        skip_space(cursor)
        if not take_byte(cursor, COLON):
            return False
        skip_space(cursor)
        if not take_value(cursor, &text):
            return False
        for number in range(self.count):
            field = &self.fields[number]
            if not is_text(&name, field.name, field.name_size):
                continue
            if field.found:
                cursor.at = start
                self.wrong = FIELD_TWICE
                self.wrong_field = number
                return False
            field.found = True
            field.text = text
        if self.takes_all and not (self.omits_nulls and text.at[0] == NULL_BEGINS):
            if not self.add_member(start, name_bytes, &text):
                self.wrong = NO_MEMORY
                return False
        return True

    cdef bint add_member(self, const uint8_t* name, Py_ssize_t name_bytes, const Span* text) noexcept nogil:
        """Add a member to the row; the name is a string with its quotes."""
        return (
            self.row.add_byte(OPEN_OBJECT if self.row.size == 0 else COMMA)
            and self.row.add(name, <uint64_t> name_bytes) and self.row.add_byte(COLON) and add_compact(self.row, text)
        )

    cdef bint text_of(self, Py_ssize_t number, Span* text) noexcept nogil:
        """Return the text of a field, or its constant; False if there is none."""
        cdef Field* field = &self.fields[number]
        text[0] = field.text if field.found else field.constant
        return field.found or field.constant.at != NULL

    cdef bint is_wrong(self, int fault, Py_ssize_t number, const uint8_t* line) noexcept nogil:
        """Note a fault of a field; returns False."""
        cdef Field* field = &self.fields[number]
        self.wrong = fault
        self.wrong_field = number
        self.wrong_at = field.text.at - line if field.found else 0
        return False

    # -- keys ----------------------------------------------------------------------------------------------------------

    cdef bint serve_key(self, const uint8_t* line, Span* key, RecordBatch batch) noexcept nogil:
        cdef Py_ssize_t number
        cdef Span text
        for number in range(self.key_count):
            if not self.text_of(number, &text):
                return self.is_wrong(NO_KEY, number, line)
        if self.has_one_key:
            return self.serve_text(0, True, line, key, batch) and self.check_key(key, line)
        self.part.size = 0
        if self.join.at == NULL and not add_head(self.part, <uint64_t> self.key_count, False):
            return self.is_wrong(NO_MEMORY, 0, line)
        for number in range(self.key_count):
            if not self.add_key_part(number, line, batch):
                return False
        key.size = <Py_ssize_t> self.part.size
        return self.keep(self.part, key, batch) and self.check_key(key, line)

    cdef bint check_key(self, const Span* key, const uint8_t* line) noexcept nogil:
        if key.size > MAX_KEY_BYTES:
            self.is_wrong(KEY_SIZE, 0, line)
            self.wrong_at = key.size
            return False
        return True

    cdef bint add_key_part(self, Py_ssize_t number, const uint8_t* line, RecordBatch batch) noexcept nogil:
        cdef Span text
        cdef uint8_t kind
        cdef uint64_t word
        if not self.serve_text(number, True, line, &text, batch):
            return False
        if self.join.at != NULL:
            if number < self.key_count - 1 and contains(text.at, <uint64_t> text.size, &self.join):
                return self.is_wrong(KEY_SEPARATOR, number, line)
            if number > 0 and not self.part.add(self.join.at, <uint64_t> self.join.size):
                return self.is_wrong(NO_MEMORY, number, line)
            return self.part.add(text.at, <uint64_t> text.size) or self.is_wrong(NO_MEMORY, number, line)
        kind = self.fields[number].text.at[0] if self.fields[number].found else self.fields[number].constant.at[0]
        if kind == QUOTE or kind == OPEN_OBJECT:
            if not add_msgpack_string(self.part, text.at, <uint64_t> text.size, kind == OPEN_OBJECT):
                return self.is_wrong(NO_MEMORY, number, line)
            return True
        if kind == TRUE_BEGINS or kind == FALSE_BEGINS:
            return self.part.add_byte(<uint8_t> (MSGPACK_FALSE + (kind == TRUE_BEGINS)))
        if not whole_number(&text, &word):
            return self.is_wrong(KEY_KIND, number, line)
        return add_msgpack_number(self.part, word, SIGNED if kind == MINUS else UNSIGNED)

    # -- values --------------------------------------------------------------------------------------------------------

    cdef bint serve_value(self, const uint8_t* line, Span* value, RecordBatch batch) noexcept nogil:
        cdef Py_ssize_t number, first = self.key_count
        cdef Span text
        if self.has_one_value:
            if not self.text_of(first, &text):
                return self.is_wrong(NO_VALUE, first, line)
            if not self.serve_text(first, False, line, value, batch):
                return False
        else:
            # The row has all members of the line already, if all are wanted; constants are added.
            for number in range(first, self.count):
                if not self.text_of(number, &text):
                    text.at = <const uint8_t*> b"null"
                    text.size = 4
                    text.changed = False
                if self.takes_all and self.fields[number].found:
                    continue
                if self.omits_nulls and text.at[0] == NULL_BEGINS:
                    continue
                self.part.size = 0
                if (
                    not add_json_string(self.part, self.fields[number].name, <uint64_t> self.fields[number].name_size)
                    or not self.add_member(self.part.data, <Py_ssize_t> self.part.size, &text)
                ):
                    return self.is_wrong(NO_MEMORY, number, line)
            if (self.row.size == 0 and not self.row.add_byte(OPEN_OBJECT)) or not self.row.add_byte(CLOSE_OBJECT):
                return self.is_wrong(NO_MEMORY, first, line)
            value.size = <Py_ssize_t> self.row.size
            if value.size <= self.max_value_bytes and not self.keep(self.row, value, batch):
                return False
        if value.size > self.max_value_bytes:
            self.is_wrong(VALUE_SIZE, 0, line)
            self.wrong_at = value.size
            return False
        return True

    cdef bint keep(self, EncodedRows rows, Span* kept, RecordBatch batch) noexcept nogil:
        """Copy encoded bytes to where they live as long as the batch."""
        cdef uint8_t* place = self.room(<Py_ssize_t> rows.size, batch)
        if place == NULL:
            return False
        memcpy(place, rows.data, <size_t> rows.size)
        kept.at = place
        kept.size = <Py_ssize_t> rows.size
        return True

    cdef bint serve_text(
        self, Py_ssize_t number, bint is_key, const uint8_t* line, Span* served, RecordBatch batch,
    ) noexcept nogil:
        """Return the served bytes of a field, written to `spare` if they differ from the source."""
        cdef Span string
        cdef Cursor cursor
        cdef Py_ssize_t size
        cdef uint64_t word
        cdef uint8_t kind
        cdef uint8_t* place
        self.text_of(number, served)
        kind = served.at[0]
        cursor.at = served.at
        cursor.end = served.at + served.size
        if kind == QUOTE:
            take_string(&cursor, served)
            if served.changed:
                place = self.room(served.size, batch)
                if place == NULL:
                    return False
                served.size = unescape(served, place)
                served.at = place
            return True
        if kind == OPEN_OBJECT and find_base64(&cursor, &string):
            place = self.room(string.size, batch)
            if place == NULL:
                return False
            size = unescape(&string, place)
            served.size = decode_base64(place, size, place)
            served.at = place
            return served.size >= 0 or self.is_wrong(FIELD_BASE64, number, line)
        if is_key:
            if kind == TRUE_BEGINS or kind == FALSE_BEGINS or whole_number(served, &word):
                return True
            return self.is_wrong(KEY_KIND, number, line)
        if kind == NULL_BEGINS:
            return self.is_wrong(VALUE_NULL, number, line)
        if served.changed:
            place = self.room(served.size, batch)
            if place == NULL:
                return False
            served.size = compact(served, place)
            served.at = place
        return True

    # -- errors --------------------------------------------------------------------------------------------------------

    cdef str reason(self, bytes line):
        column = f"column {self.wrong_at + 1:,}"
        name = self.names[self.wrong_field].decode()
        if self.wrong == NOTHING_WRONG:
            limit = f"the limit is {self.max_line_bytes:,} bytes; {reading.MORE_MEMORY}"
            return f"the line has at least {len(line):,} bytes and begins with {excerpt(line)}; {limit}"
        if self.wrong == ENDS:
            return "the line ends within its JSON object; write each object on one line"
        if self.wrong == KEY_SIZE:
            return f"the key has {self.wrong_at:,} bytes; the limit is {MAX_KEY_BYTES:,} bytes"
        if self.wrong == VALUE_SIZE:
            return f"the value has {self.wrong_at:,} bytes; the limit is {self.max_value_bytes:,} bytes"
        if self.wrong == NO_KEY or self.wrong == NO_VALUE:
            role = "key" if self.wrong == NO_KEY else "value"
            return f"the line has no field {name!r}; if the {role} has another name, set `{role}`"
        if self.wrong == NO_MEMORY:
            return "the memory is too small for the line"
        return f"{column}: " + {
            SYNTAX: f"the text is not JSON from here on: {excerpt(line[self.wrong_at:])}",
            NOT_FINITE: "NaN and infinities are not JSON",
            CONTROL: "a string contains a control character; escape it in JSON",
            ESCAPE: f"JSON has no such escape: {excerpt(line[self.wrong_at:])}",
            NOT_UTF8: f"the text is not UTF-8: {excerpt(line[self.wrong_at:])}",
            LONE_SURROGATE: "half of a surrogate pair has no UTF-8 form",
            TOO_DEEP: f"the JSON text is nested deeper than {MAX_DEPTH:,} levels",
            NO_OBJECT: f"a line must be one JSON object, not {excerpt(line[self.wrong_at:])}",
            MORE_AFTER: f"more text follows the object: {excerpt(line[self.wrong_at:])}",
            FIELD_TWICE: f"the field {name!r} occurs twice",
            KEY_KIND: (
                f'the key {name!r} must be a string, {{"base64": "..."}}, a whole number of 64 bits, true or false'
            ),
            KEY_SEPARATOR: f"the key {name!r} contains the separator, so two lines could get the same key",
            VALUE_NULL: f"the value {name!r} is null",
            FIELD_BASE64: f"the base64 of {name!r} is malformed",
        }[self.wrong]


cdef bint add_compact(EncodedRows rows, const Span* text) noexcept nogil:
    """Add a checked value without the space between its parts."""
    cdef uint8_t* out
    if not text.changed or text.at[0] == QUOTE:
        return rows.add(text.at, <uint64_t> text.size)
    out = rows.room(<uint64_t> text.size)
    if out == NULL:
        return False
    rows.size += <uint64_t> compact(text, out)
    return True


cdef bint whole_number(const Span* text, uint64_t* word) noexcept nogil:
    """Return a whole number of 64 bits as it is written, without a fraction or an exponent; False if it is none."""
    cdef bint is_negative = text.at[0] == MINUS
    cdef Py_ssize_t at = 1 if is_negative else 0
    cdef uint64_t limit = <uint64_t> 1 << 63 if is_negative else <uint64_t> -1
    cdef uint64_t value = 0, digit
    if at == text.size or text.size - at > 20 or (is_negative and text.at[at] == ZERO):
        return False
    while at < text.size:
        if not ZERO <= text.at[at] <= NINE:
            return False
        digit = <uint64_t> (text.at[at] - ZERO)
        if value > (limit - digit) // 10:
            return False
        value = 10 * value + digit
        at += 1
    word[0] = <uint64_t> 0 - value if is_negative else value
    return True


cdef bint is_text(const Span* string, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """True if a checked string stands for this text."""
    cdef uint8_t room[6 * MAX_NAME_BYTES]
    if not string.changed:
        return string.size == size and memcmp(string.at, text, <size_t> size) == 0
    return (
        size <= string.size <= 6 * size and string.size <= <Py_ssize_t> sizeof(room)
        and unescape(string, room) == size and memcmp(room, text, <size_t> size) == 0
    )


cdef bint find_base64(Cursor* cursor, Span* string) noexcept nogil:
    """True if a checked object is {"base64": "..."} and nothing else."""
    cdef Span name
    cursor.at += 1
    skip_space(cursor)
    if cursor.at[0] != QUOTE:
        return False
    take_string(cursor, &name)
    if not is_text(&name, <const uint8_t*> b"base64", 6):
        return False
    skip_space(cursor)
    cursor.at += 1  # The colon.
    skip_space(cursor)
    if cursor.at[0] != QUOTE:
        return False
    take_string(cursor, string)
    skip_space(cursor)
    return cursor.at + 1 == cursor.end
