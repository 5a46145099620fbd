"""A stable radix sort of (word, place) items: high bytes first until pieces fit the cache, then low bytes first.

A pass over more than the second-level cache waits for memory at each item; within a piece it does not. Bytes that are
equal in all words of a piece are skipped.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset


cdef enum:
    SMALL = 48          # Below this, insertion is faster than counting.
    PIECE = 16384       # 512 KiB, including its spare.


cdef void insertion_sort(Item* items, Py_ssize_t count, int first_byte) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef Item item
    cdef int shift = 8 * first_byte
    for i in range(1, count):
        item = items[i]
        j = i
        while j > 0 and (items[j - 1].word >> shift) > (item.word >> shift):
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


cdef void scatter(const Item* source, Item* target, Py_ssize_t count, int byte, Py_ssize_t* starts) noexcept nogil:
    """Move items to the start of their byte's range; `starts` then holds the ends of these ranges."""
    cdef Py_ssize_t i
    cdef int value
    for i in range(count):
        value = <int> ((source[i].word >> (8 * byte)) & 255)
        target[starts[value]] = source[i]
        starts[value] += 1


cdef void sort_piece(Item* items, Item* spare, Py_ssize_t count, int first_byte, int last_byte) noexcept nogil:
    """Sort by the bytes from `first_byte` to `last_byte`, the lowest first."""
    cdef Py_ssize_t counts[8][256]
    cdef Py_ssize_t i, total, here
    cdef uint64_t word
    cdef int byte, value
    cdef Item* source = items
    cdef Item* target = spare
    memset(counts[first_byte], 0, <size_t> (last_byte + 1 - first_byte) * sizeof(counts[0]))
    for i in range(count):
        word = items[i].word >> (8 * first_byte)
        for byte in range(first_byte, last_byte + 1):
            counts[byte][word & 255] += 1
            word >>= 8
    for byte in range(first_byte, last_byte + 1):
        if counts[byte][(source[0].word >> (8 * byte)) & 255] == count:
            continue
        total = 0
        for value in range(256):
            here = counts[byte][value]
            counts[byte][value] = total
            total += here
        scatter(source, target, count, byte, counts[byte])
        source, target = target, source
    if source != items:
        memcpy(items, source, <size_t> count * sizeof(Item))


cdef void sort_from(Item* items, Item* spare, Py_ssize_t count, int first_byte, int byte) noexcept nogil:
    """Sort by the bytes from `first_byte` to `byte`; all items agree in higher bytes."""
    cdef Py_ssize_t counts[256]
    cdef Py_ssize_t i, total, here, end
    cdef int value
    if count <= SMALL:
        insertion_sort(items, count, first_byte)
        return
    if count <= PIECE or byte == first_byte:
        sort_piece(items, spare, count, first_byte, byte)
        return
    memset(counts, 0, sizeof(counts))
    for i in range(count):
        counts[(items[i].word >> (8 * byte)) & 255] += 1
    if counts[(items[0].word >> (8 * byte)) & 255] == count:
        sort_from(items, spare, count, first_byte, byte - 1)
        return
    total = 0
    for value in range(256):
        here = counts[value]
        counts[value] = total
        total += here
    scatter(items, spare, count, byte, counts)
    memcpy(items, spare, <size_t> count * sizeof(Item))
    i = 0
    for value in range(256):
        end = counts[value]
        if end - i > 1:
            sort_from(items + i, spare + i, end - i, first_byte, byte - 1)
        i = end


cdef void radix_sort(Item* items, Item* spare, Py_ssize_t count, int first_byte) noexcept nogil:
    """Sort by bytes `first_byte` .. 7 of the word (0 is the lowest); `spare` is as large as `items`."""
    sort_from(items, spare, count, first_byte, 7)


def sort_words(list words not None, int first_byte=0):
    """Return the places of `words` in stable order of their bytes from `first_byte` up; for tests."""
    cdef Py_ssize_t count = len(words), i
    cdef bytearray memory = bytearray(2 * max(1, count) * sizeof(Item))
    cdef Item* items = <Item*> PyByteArray_AS_STRING(memory)
    if not 0 <= first_byte <= 7:
        raise ValueError(f"first_byte must be 0 to 7, got {first_byte}")
    for i in range(count):
        items[i].word = words[i]
        items[i].place = <uint64_t> i
    radix_sort(items, items + count, count, first_byte)
    return [items[i].place for i in range(count)]
