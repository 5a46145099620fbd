"""A stable radix sort of (word, place) items: a byte a pass from the least, passes in which all agree left out."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset


cdef enum:
    SMALL = 48      # Below this, inserting beats counting.


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


cdef void radix_sort(Item* items, Item* spare, Py_ssize_t count, int first_byte) noexcept nogil:
    """Sort by bytes `first_byte` .. 7 of the word (0 is the lowest); `spare` is as large as `items`."""
    cdef Py_ssize_t counts[8][256]
    cdef Py_ssize_t i, total, here
    cdef uint64_t word
    cdef int byte, value
    cdef Item* source = items
    cdef Item* target = spare
    if count <= SMALL:
        insertion_sort(items, count, first_byte)
        return
    memset(counts, 0, sizeof(counts))
    for i in range(count):
        word = items[i].word
        for byte in range(8):
            counts[byte][(word >> (8 * byte)) & 255] += 1
    for byte in range(first_byte, 8):
        if counts[byte][(source[0].word >> (8 * byte)) & 255] == count:
            continue
        total = 0
        for value in range(256):
            here = counts[byte][value]
            counts[byte][value] = total
            total += here
        for i in range(count):
            value = <int> ((source[i].word >> (8 * byte)) & 255)
            target[counts[byte][value]] = source[i]
            counts[byte][value] += 1
        source, target = target, source
    if source != items:
        memcpy(items, source, <size_t> count * sizeof(Item))


def sort_words(list words not None, int first_byte=0):
    """The places of `words` in stable order of their bytes from `first_byte` up: the way in for tests."""
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
