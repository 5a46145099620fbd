"""The value at the last of many sorted keys up to a given one.

Comparing key objects would miss the processor's cache at each step. So an index has, as numbers, the eight bytes after
the prefix that its keys share; only keys with equal numbers are compared whole. The first key is never compared, since
a key below the second one finds the first value. Numbers, pointers to the values, and the prefix are one block. An
index of indexes points to their blocks: a search among 100,000 values misses the cache for one small block and for the
value. Memory: 16 bytes a key, beside keys and values.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define gkv_prefetch(at) __builtin_prefetch(at)
    #else
    #define gkv_prefetch(at) ((void)(at))
    #endif
    """
    void fetch "gkv_prefetch"(const void* at) noexcept nogil

cdef enum:
    WORD_BYTES = 8
    LINE_BYTES = 64
    MAX_FETCHED = 5  # Cache lines: the block of 16 values.
    MAX_COUNTED = 16  # Words are compared one after the other, without a branch.

cdef struct Block:
    Py_ssize_t count
    Py_ssize_t shared  # The bytes that all keys but the first begin with.
    PyObject* keys
    unsigned char* prefix
    void** values  # Blocks in an index of indexes, each NULL until it was used.
    uint64_t[1] words  # `count` of them; values and prefix follow.


cdef inline uint64_t word_of(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Return the first eight bytes, zero-padded and big-endian, so that words compare as bytes do."""
    cdef uint64_t word = 0
    cdef Py_ssize_t at
    if size >= WORD_BYTES:
        return <uint64_t>big_endian(data) << 32 | big_endian(data + 4)
    for at in range(size):
        word |= <uint64_t>data[at] << (56 - 8 * at)
    return word


cdef inline Py_ssize_t number_of(const Block* block, bytes key) except -1:
    """Return the number of the last key up to `key`, or 0."""
    cdef const unsigned char* data = bytes_of(key)
    cdef const uint64_t* words = block.words
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
    cdef Py_ssize_t low = 1
    cdef Py_ssize_t at, left, middle, high
    cdef int order
    cdef uint64_t word
    for at in range(MAX_FETCHED):
        fetch(<const char*>block + at * LINE_BYTES)
    order = memcmp(data, block.prefix, min(size, block.shared))
    if order > 0:
        return block.count - 1
    if order < 0 or size < block.shared:
        return 0
    word = word_of(data + block.shared, size - block.shared)
    left = block.count - 1
    while left > MAX_COUNTED:  # Without a branch, which the processor would often guess wrong.
        middle = left >> 1
        low += middle & -<Py_ssize_t>(words[low + middle - 1] < word)
        left -= middle
    high = low + left
    for at in range(low, high):
        low += words[at] < word
    high = block.count
    while low < high and words[low] == word:
        middle = (low + high) >> 1
        if words[middle] == word and (<tuple>block.keys)[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@cython.final
@cython.no_gc_clear  # `block` points to the values.
cdef class KeyIndex:
    """Finds the value at the last key up to a given one; if the values are indexes, the value in one of them.

    Requires: the keys ascend; all values are indexes, or none is. An index made without keys is filled later, once.
    """

    cdef readonly tuple keys
    cdef readonly tuple values
    cdef Block* block
    cdef bint is_nested

    def __cinit__(self, keys=(), values=()):
        self.keys = self.values = ()
        if keys:
            self.fill(keys, values)

    def __dealloc__(self):
        PyMem_Free(self.block)

    def fill(self, keys, values, /):
        """Set the keys and values of an empty index.

        Raises:
            ValueError: the index is not empty, or does not get one value for each of some keys.
        """
        cdef const unsigned char* last
        cdef const unsigned char* second
        cdef Py_ssize_t at, most, count
        cdef Py_ssize_t shared = 0
        cdef bytes key
        cdef tuple keys_, values_
        cdef Block* block
        keys_, values_ = tuple(keys), tuple(values)
        count = len(keys_)
        if self.block != NULL or count == 0 or count != len(values_):
            raise ValueError(
                f"an empty index needs keys and one value for each, got {count} keys and {len(values_)} values for "
                f"an index of {len(self.keys)}"
            )
        for key in keys_:
            if key is None:
                raise TypeError("the keys of an index must be bytes, not None")
        key = keys_[count > 1]
        second, most = bytes_of(key), PyBytes_GET_SIZE(key)
        key = keys_[count - 1]
        last, most = bytes_of(key), min(most, PyBytes_GET_SIZE(key))
        while shared < most and second[shared] == last[shared]:
            shared += 1
        block = <Block*>PyMem_Calloc(sizeof(Block) + count * (sizeof(uint64_t) + sizeof(void*)) + shared, 1)
        if block == NULL:
            raise MemoryError
        block.count, block.shared, block.keys = count, shared, <PyObject*>keys_
        block.values = <void**>(&block.words[0] + count)
        block.prefix = <unsigned char*>(block.values + count)
        memcpy(block.prefix, second, shared)
        self.is_nested = isinstance(values_[0], KeyIndex)
        for at in range(count):
            if not self.is_nested:
                block.values[at] = <void*>values_[at]
            if at > 0:
                key = keys_[at]
                (&block.words[0])[at] = word_of(bytes_of(key) + shared, PyBytes_GET_SIZE(key) - shared)
        self.keys, self.values, self.block = keys_, values_, block

    def find(self, bytes key not None, /):
        """Return the value at the last key up to `key`, or the first value; None: an inner index is empty.

        Raises:
            LookupError: this index is empty.
        """
        cdef Block* block = self.block
        cdef Block* inner
        cdef KeyIndex value
        cdef Py_ssize_t number
        if block == NULL:
            raise LookupError("the index has no keys yet: fill it first")
        number = number_of(block, key)
        if not self.is_nested:
            return <object>block.values[number]
        inner = <Block*>block.values[number]
        if inner == NULL:
            value = self.values[number]
            if value.is_nested:
                raise TypeError("the indexes in an index of indexes must hold no indexes")
            if value.block == NULL:
                return None
            inner = block.values[number] = value.block
        return <object>inner.values[number_of(inner, key)]
