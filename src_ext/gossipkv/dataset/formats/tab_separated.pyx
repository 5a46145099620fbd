"""A line of tab-separated text: the key before the first TAB, the value after it."""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from gossipkv.storage._storage cimport RecordBatch

from gossipkv.dataset.formats.excerpt import excerpt

cdef enum:
    TAB = 9


@cython.final
cdef class TabSeparatedLines(Lines):
    """The records of tab-separated text."""

    def __cinit__(self, str name not None, Py_ssize_t max_value_bytes):
        self.max_line_bytes = MAX_KEY_BYTES + 1 + max_value_bytes

    cdef LineResult take(self, const uint8_t* line, Py_ssize_t size, RecordBatch batch) noexcept nogil:
        cdef const uint8_t* tab
        cdef Py_ssize_t key_size, value_size
        if self.offset == 0 and size >= 3 and memcmp(line, b"\xef\xbb\xbf", 3) == 0:  # Skip the byte order mark.
            line += 3
            size -= 3
        if size == 0:
            return TAKEN
        tab = <const uint8_t*> memchr(line, TAB, <size_t> size)
        if tab == NULL:
            return WRONG_LINE
        key_size = tab - line
        value_size = size - key_size - 1
        if key_size > MAX_KEY_BYTES or value_size > self.max_value_bytes:
            return WRONG_LINE
        if not batch.put(line, key_size, tab + 1, value_size, self.offset):
            return BATCH_FULL
        return TAKEN

    cdef str reason(self, bytes line):
        key, tab, value = line.partition(b"\t")
        if not tab and len(line) <= MAX_KEY_BYTES:
            return f"the line {excerpt(line)} contains no TAB"
        if len(key) > MAX_KEY_BYTES:
            subject = "the key" if tab else "the line contains no TAB, or its key"
            size = f"at least {len(key):,} bytes; the limit is {MAX_KEY_BYTES:,} bytes"
            return f"{subject} has {size}; it begins with {excerpt(key)}"
        return (
            f"the value of key {excerpt(key)} has at least {len(value):,} bytes; the limit is "
            f"{self.max_value_bytes:,} bytes"
        )
