"""A line of JSON: an object with a field for the key and one for the value; `json_lines.py` specifies both."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from gossipkv.storage._storage cimport BATCH_RECORDS, RecordBatch

from gossipkv.dataset.formats import reading
from gossipkv.dataset.formats.excerpt import excerpt

cdef enum:
    MAX_NAME_BYTES = 256

# These faults extend those of `json_text`.
cdef enum:
    NOTHING_WRONG = 100
    NO_OBJECT
    MORE_AFTER
    KEY_TWICE
    VALUE_TWICE
    NO_KEY
    NO_VALUE
    KEY_KIND
    VALUE_NULL
    KEY_BASE64
    VALUE_BASE64
    KEY_SIZE
    VALUE_SIZE


cdef struct Field:
    const uint8_t* name
    Py_ssize_t name_size
    bint found
    Span text  # The field's text in the line.
    uint8_t kind  # The first byte of the text.


cdef inline void note_field(Field* field, const Span* text, uint8_t kind) noexcept nogil:
    field.found = True
    field.text = text[0]
    field.kind = kind


@cython.final
cdef class JsonLines(Lines):
    """The records of lines of JSON."""

    cdef bytes key_name
    cdef bytes value_name
    cdef Field key
    cdef Field value

    # Room for served bytes that differ from the source; each chunk gets as much as it could need.
    cdef uint8_t* spare

    # The fault, and its place in the line.
    cdef int wrong
    cdef Py_ssize_t wrong_at

    def __cinit__(
        self, str name not None, Py_ssize_t max_value_bytes, Py_ssize_t max_line_bytes, str key not None,
        str value not None,
    ):
        if max(len(key.encode()), len(value.encode())) > MAX_NAME_BYTES:
            raise ValueError(f"the name of a field is at most {MAX_NAME_BYTES} bytes long")
        self.max_line_bytes = max_line_bytes
        self.key_name = key.encode()
        self.value_name = value.encode()
        self.key.name = <const uint8_t*> PyBytes_AS_STRING(self.key_name)
        self.key.name_size = PyBytes_GET_SIZE(self.key_name)
        self.value.name = <const uint8_t*> PyBytes_AS_STRING(self.value_name)
        self.value.name_size = PyBytes_GET_SIZE(self.value_name)
        self.wrong = NOTHING_WRONG

    cdef int begin(self, Py_ssize_t size, RecordBatch batch) except -1:
        """Allocate room: unescaped, decoded or compact bytes are never longer, and unwritten pages cost nothing."""
        # A field may be both key and value.
        room = PyBytes_FromStringAndSize(NULL, 2 * size)
        self.spare = <uint8_t*> PyBytes_AS_STRING(room)
        batch.hold(room)
        return 0

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
        self.wrong_at = self.key.text.at - line if self.key.found else 0
        if not self.serve(&self.key, True, &key):
            return WRONG_LINE
        self.wrong_at = self.value.text.at - line if self.value.found else 0
        if not self.serve(&self.value, False, &value):
            return WRONG_LINE
        batch.put(key.at, key.size, value.at, value.size, self.offset)
        return TAKEN

    cdef bint find_fields(self, Cursor* cursor) noexcept nogil:
        """Find the fields of a line while checking it to its end; on a fault the cursor is there."""
        self.key.found = self.value.found = False
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
        cdef bint is_key, is_value
        cdef uint8_t kind
        if not take_string(cursor, &name):
            return False
        is_key = is_text(&name, self.key.name, self.key.name_size)
        is_value = is_text(&name, self.value.name, self.value.name_size)
        skip_space(cursor)
        if not take_byte(cursor, COLON):
            return False
        skip_space(cursor)
        kind = cursor.at[0] if cursor.at < cursor.end else 0
        if not take_value(cursor, &text):
            return False
        if (is_key and self.key.found) or (is_value and self.value.found):
            cursor.at = start
            self.wrong = KEY_TWICE if is_key and self.key.found else VALUE_TWICE
            return False
        if is_key:
            note_field(&self.key, &text, kind)
        if is_value:
            note_field(&self.value, &text, kind)
        return True

    cdef bint serve(self, Field* field, bint is_key, Span* served) noexcept nogil:
        """Return the served bytes of a field, written to `spare` if they differ from the source."""
        cdef Span string
        cdef Cursor cursor
        cdef Py_ssize_t size
        if not field.found:
            self.wrong = NO_KEY if is_key else NO_VALUE
            return False
        served[0] = field.text
        cursor.at = field.text.at
        cursor.end = field.text.at + field.text.size
        if field.kind == QUOTE:
            take_string(&cursor, served)
            if served.changed:
                served.size = unescape(served, self.spare)
                served.at = self.spare
                self.spare += served.size
        elif field.kind == OPEN_OBJECT and find_base64(&cursor, &string):
            size = unescape(&string, self.spare)
            served.size = decode_base64(self.spare, size, self.spare)
            served.at = self.spare
            if served.size < 0:
                self.wrong = KEY_BASE64 if is_key else VALUE_BASE64
                return False
            self.spare += served.size
        elif is_key:
            self.wrong = KEY_KIND
            return False
        elif field.kind == 110:  # The letter n begins null.
            self.wrong = VALUE_NULL
            return False
        elif field.text.changed:
            served.size = compact(&field.text, self.spare)
            served.at = self.spare
            self.spare += served.size
        if served.size > (MAX_KEY_BYTES if is_key else self.max_value_bytes):
            self.wrong = KEY_SIZE if is_key else VALUE_SIZE
            self.wrong_at = served.size
            return False
        return True

    cdef str reason(self, bytes line):
        key, value = self.key_name.decode(), self.value_name.decode()
        column = f"column {self.wrong_at + 1:,}"
        if self.wrong == NOTHING_WRONG:
            limit = f"the limit is {self.max_line_bytes:,}: {reading.MORE_MEMORY}"
            return f"a line of {len(line):,} bytes or more, beginning {excerpt(line)}; {limit}"
        if self.wrong == ENDS:
            return "the line ends within its JSON text; each object is one line"
        if self.wrong == KEY_SIZE:
            return f"a key of {self.wrong_at:,} bytes; the limit is {MAX_KEY_BYTES:,}"
        if self.wrong == VALUE_SIZE:
            return f"a value of {self.wrong_at:,} bytes; the limit is {self.max_value_bytes:,}"
        if self.wrong == NO_KEY or self.wrong == NO_VALUE:
            what, name = ("key", key) if self.wrong == NO_KEY else ("value", value)
            return f"no field {name!r}; if the {what} has another name, set `{what}`"
        return f"{column}: " + {
            SYNTAX: f"not JSON from here on: {excerpt(line[self.wrong_at:])}",
            NOT_FINITE: "NaN and infinities are not JSON",
            CONTROL: "a control character in a string; JSON wants it escaped",
            ESCAPE: f"no escape of JSON: {excerpt(line[self.wrong_at:])}",
            NOT_UTF8: f"not UTF-8: {excerpt(line[self.wrong_at:])}",
            LONE_SURROGATE: "half a surrogate pair, which no UTF-8 stands for",
            TOO_DEEP: f"nested deeper than {MAX_DEPTH:,}",
            NO_OBJECT: f"a line is one JSON object, this is {excerpt(line[self.wrong_at:])}",
            MORE_AFTER: f"something after the object: {excerpt(line[self.wrong_at:])}",
            KEY_TWICE: f"the field {key!r} is there twice",
            VALUE_TWICE: f"the field {value!r} is there twice",
            KEY_KIND: f'the key {key!r} is neither a string nor {{"base64": "..."}}',
            VALUE_NULL: f"the value {value!r} is null",
            KEY_BASE64: f"the base64 of {key!r} is malformed",
            VALUE_BASE64: f"the base64 of {value!r} is malformed",
        }[self.wrong]


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
