"""The inlined functions of `message.pxd`, exposed to tests: write or read one value of a named kind.

Node, client and load generator use them in whole messages, which have few widths of few kinds.
`tests/oracle/messagepack.py` states in plain Python how they treat any bytes, cut anywhere.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve


def write_value(str kind not None, value):
    """Return the bytes of a nil, an unsigned, a bin or str (at most 255 bytes), or of the head of an array or map."""
    cdef bytes content = value if kind in ("bin", "str") else b""
    cdef uint64_t number = value if kind in ("unsigned", "array", "map") else 0
    cdef Buffer out
    buffer_init(&out)
    if buffer_reserve(&out, HEAD_BYTES + PyBytes_GET_SIZE(content)) < 0:
        raise MemoryError
    if kind == "nil":
        put_nil(&out)
    elif kind == "unsigned":
        put_unsigned(&out, number)
    elif kind == "bin":
        put_bin(&out, <const uint8_t*>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
    elif kind == "str":
        put_text(&out, PyBytes_AS_STRING(content))
    elif kind == "array":
        put_array(&out, <Py_ssize_t>number)
    elif kind == "map":
        put_map(&out, <Py_ssize_t>number)
    written = PyBytes_FromStringAndSize(<const char*>out.data, out.end)
    buffer_release(&out)
    return written


def read_value(str kind not None, bytes data not None, Py_ssize_t size):
    """Read a value of this kind from the first `size` bytes, and its length; None if there is no whole one.

    Bytes taken without a value give (None, length), which is right for nil only.
    """
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Cursor cursor = Cursor(start, start + min(size, PyBytes_GET_SIZE(data)))
    cdef Blob blob = Blob(NULL, -1)
    cdef uint64_t number = 0
    cdef Py_ssize_t count = -1
    value = None
    if kind == "nil":
        take_nil(&cursor)
    elif kind == "unsigned":
        value = number if take_unsigned(&cursor, &number) else None
    elif kind == "array":
        count = take_array(&cursor)
    elif kind == "map":
        count = take_map(&cursor)
    elif kind == "bin":
        take_bin(&cursor, &blob)
    elif kind == "str":
        take_str(&cursor, &blob)
    elif kind == "blob":
        take_blob(&cursor, &blob)
    if count >= 0:
        value = count
    elif blob.size >= 0:
        value = PyBytes_FromStringAndSize(<const char*>blob.data, blob.size)
    return None if cursor.at == start else (value, cursor.at - start)


def size_of_unsigned(uint64_t number):
    """Return the size of a number according to `unsigned_size`."""
    return unsigned_size(number)
