"""Columns of byte strings in Arrow's layout, put into batches row by row without copying.

    values    first[i] = offsets[i], end[i] = offsets[i + 1]      offsets of 4 or 8 bytes, signed
              first[i] = i * width, end[i] = first[i] + width     values of one size
    rows      value[row] = indices[row]                           of 1 to 8 bytes; without them value[row] = row
    nulls     row is null if bit `first + row` of `valid` is 0    without a bitmap no row is

The buffers come from a library that read them from a file, so every offset and index is checked before use.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport RecordBatch


@cython.final
cdef class HeldBuffer:
    """Holds a buffer until it is released."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef inline uint64_t load(const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t word = 0
    memcpy(&word, at, <size_t> size)
    return word


cdef struct View:
    # The values lie one behind the other, either of one size, or from one offset to the next.
    const uint8_t* data
    uint64_t data_size
    uint64_t width  # 0: the values have offsets.
    const uint8_t* offsets
    uint64_t offset_size
    uint64_t value_count

    # A bitmap has a bit for each row that is not null.
    const uint8_t* valid
    uint64_t first_valid

    # The value number of each row, where values are shared.
    const uint8_t* indices
    uint64_t index_size


cdef bint is_null(const View* view, Py_ssize_t row) noexcept nogil:
    cdef uint64_t bit = view.first_valid + <uint64_t> row
    return view.valid != NULL and not (view.valid[bit >> 3] >> (bit & 7)) & 1


cdef bint get_value(const View* view, Py_ssize_t row, const uint8_t** value, uint64_t* size) noexcept nogil:
    """Get the row's value; True if it lies within the buffer."""
    cdef uint64_t number = <uint64_t> row, start, end
    if view.index_size:
        number = load(view.indices + view.index_size * number, view.index_size)
    if number >= view.value_count:
        return False
    if view.offset_size == 0:
        value[0] = view.data + number * view.width
        size[0] = view.width
        return True
    start = load(view.offsets + view.offset_size * number, view.offset_size)
    end = load(view.offsets + view.offset_size * (number + 1), view.offset_size)
    if start > end or end > view.data_size:
        return False
    value[0] = view.data + start
    size[0] = end - start
    return True


@cython.final
cdef class Column:
    """Rows of byte strings.

    Only encoded rows know nulls (`rows.pyx`); others have none.  `width` is the size of every value, or 0 if `offsets`
    (of `offset_bytes` each) delimit them; `first` is the number of the first value.  `chosen` makes a column of indices
    into these values.
    """

    cdef readonly Py_ssize_t count
    cdef list owners

    cdef View view

    def __cinit__(
        self, data, Py_ssize_t count, *, Py_ssize_t first=0, Py_ssize_t width=0, offsets=None, int offset_bytes=4,
        valid=None,
    ):
        cdef uint64_t size = 0
        if min(count, first, width) < 0 or offset_bytes not in (4, 8):
            raise ValueError("a count, first row or width is negative, or the offsets have neither 4 nor 8 bytes")
        self.owners = []
        self.count = count
        self.view.value_count = <uint64_t> count
        self.view.data = self.own(data, &self.view.data_size)
        self.view.width = <uint64_t> width
        if valid is not None:
            self.view.valid = self.own(valid, &size)
            self.view.first_valid = <uint64_t> first
            if size < (<uint64_t> first + <uint64_t> count + 7) // 8:
                raise ValueError("the validity buffer has fewer bits than rows")
        if offsets is None:
            if width and self.view.data_size // self.view.width < <uint64_t> first + <uint64_t> count:
                raise ValueError("the data buffer has fewer bytes than the values need")
            self.view.data += self.view.width * <uint64_t> first
            return
        self.view.offsets = self.own(offsets, &size)
        self.view.offset_size = <uint64_t> offset_bytes
        # Offsets of no values may be missing altogether.
        if count and size // self.view.offset_size < <uint64_t> first + <uint64_t> count + 1:
            raise ValueError("the offset buffer has fewer offsets than the values need")
        self.view.offsets += self.view.offset_size * <uint64_t> first

    def chosen(self, indices, int index_bytes, *, Py_ssize_t first=0, Py_ssize_t count=0):
        """Return the column whose row r has the value `indices[r + first]` of this one."""
        cdef Column column = Column(None, 0)
        cdef uint64_t size = 0
        column.view = self.view
        if min(count, first) < 0 or index_bytes not in (1, 2, 4, 8):
            raise ValueError("a count or first row is negative, or the indices do not have 1, 2, 4 or 8 bytes")
        column.view.indices = column.own(indices, &size)
        column.view.index_size = <uint64_t> index_bytes
        if size // column.view.index_size < <uint64_t> first + <uint64_t> count:
            raise ValueError("the index buffer has fewer indices than rows")
        column.view.indices += column.view.index_size * <uint64_t> first
        column.count = count
        column.owners.append(self)
        return column

    cdef const uint8_t* own(self, object buffer, uint64_t* size) except? NULL:
        cdef HeldBuffer memory
        size[0] = 0
        if buffer is None:
            return <const uint8_t*> b""
        memory = HeldBuffer(buffer)
        self.owners.append(memory)
        size[0] = <uint64_t> memory.view.len
        return <const uint8_t*> memory.view.buf

    def size_of(self, Py_ssize_t row):
        """Return the size of a row's value; None if it is not within the buffer."""
        cdef const uint8_t* value
        cdef uint64_t size
        if not 0 <= row < self.count:
            raise IndexError(row)
        return size if get_value(&self.view, row, &value, &size) else None

    def longest(self):
        """Return the size of the longest value within the buffer."""
        cdef const uint8_t* value
        cdef uint64_t size, most = 0
        cdef Py_ssize_t row
        for row in range(self.count):
            if get_value(&self.view, row, &value, &size):
                most = max(most, size)
        return most


def fill_columns(
    RecordBatch batch not None, Column keys not None, Column values not None, Py_ssize_t row,
    Py_ssize_t max_value_bytes, uint64_t offset,
):
    """Put rows from `row` on into a batch; return the row at which it ended.

    Filling ends behind the last row, when the batch is full, or at a row without key or value or with one over its
    limit.
    """
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef uint64_t key_size, value_size
    cdef Py_ssize_t end = min(keys.count, values.count)
    if row < 0:
        raise IndexError(row)
    batch.hold(keys)
    batch.hold(values)
    with nogil:
        while row < end:
            if (
                not get_value(&keys.view, row, &key, &key_size) or not get_value(&values.view, row, &value, &value_size)
            ):
                break
            if key_size > MAX_KEY_BYTES or value_size > <uint64_t> max_value_bytes:
                break
            if not batch.put(key, <Py_ssize_t> key_size, value, <Py_ssize_t> value_size, offset):
                break
            row += 1
    return row
