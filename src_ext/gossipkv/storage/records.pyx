"""Records by position, compressed or not.

A lookup decompresses only as far as its record usually reaches; a scan decompresses whole blocks. A `Slice` into an lz4
file points into its cache, and is valid until the next call on the same file.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy
from posix.types cimport off_t


cdef enum:
    LOOKAHEAD = 192       # Bytes decompressed past a record's start; most records end within them.

DEFAULT_CACHE_BYTES = 256 * 1024


@cython.no_gc
cdef class RecordReader(MappedFile):
    """A mapped file, with a cache of its decompressed blocks."""

    def __cinit__(self, source, *, files=None, name=None, uint64_t cache_bytes=DEFAULT_CACHE_BYTES):
        self.large_block = -1
        self.cache_slots = max(<uint32_t> 1, <uint32_t> (cache_bytes // PAGE_SIZE))
        if self.compression == COMPRESSION_LZ4:
            self.cache = <CachedBlock*> calloc(self.cache_slots, sizeof(CachedBlock))
            if self.cache == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef uint32_t slot
        if self.cache != NULL:
            for slot in range(self.cache_slots):
                free(self.cache[slot].data)
            free(self.cache)
        free(self.large)

    cdef void read_ahead(self, uint64_t position, uint64_t end) noexcept nogil:
        """Start reading the records between two positions from the disk; does not wait. Requires: position < end."""
        cdef uint64_t first = HEADER_SIZE + position, last = HEADER_SIZE + end, table
        if self.compression == COMPRESSION_LZ4:
            table = <uint64_t> (self.blocks - self.base) + 8 * (position // PAGE_SIZE)
            end = min((end + PAGE_SIZE - 1) // PAGE_SIZE, self.block_count)
            if end <= position // PAGE_SIZE or check_range(self, table, 8 * (end + 1 - position // PAGE_SIZE)) < 0:
                return  # A later reader will report the damage.
            first, last = self.block_offset(position // PAGE_SIZE), self.block_offset(end)
        if self.descriptor >= 0 and first < last <= self.size:
            file_read_ahead(self.descriptor, <off_t> first, <off_t> (last - first))

    cdef int read_compressed(self, uint64_t position, Record* record, bint whole) noexcept nogil:
        """Read the record at a position of an lz4 file; `whole` if `record.next` is needed, too."""
        cdef uint64_t block = position // PAGE_SIZE, within = position % PAGE_SIZE, end, next = 0
        cdef Slice data, rest
        if position >= self.position_end or position % 8 != 0:
            return fault(self, FAULT_RECORD, self.records_end)
        if self.load_block(block, within, whole, &data, &next) < 0:
            return -1
        if <uint64_t> data.size < within + 2:
            return fault(self, FAULT_BLOCK, min(self.block_offset(block), self.records_end))
        rest.data = data.data + within
        rest.size = data.size - <Py_ssize_t> within
        end = parse_record(rest, record)
        if end == 0 and not whole:
            # The record is longer than the decompressed part.
            if self.load_block(block, within, True, &data, &next) < 0:
                return -1
            rest.data = data.data + within
            rest.size = data.size - <Py_ssize_t> within
            end = parse_record(rest, record)
        if end == 0:
            return fault(self, FAULT_RECORD, min(self.block_offset(block), self.records_end))
        record.next = position + end
        if whole and within + end >= <uint64_t> data.size:
            record.next = next
        return 0

    # -- lz4 blocks ------------------------------------------------------------------------------------------------

    cdef inline uint64_t block_offset(self, uint64_t block) noexcept nogil:
        return load64(self.blocks + 8 * block) & ~RAW_BLOCK

    cdef int load_block(
        self, uint64_t block, uint64_t within, bint whole, Slice* data, uint64_t* next
    ) noexcept nogil:
        """Decompress a block, or as much as a record at `within` usually needs; `next` is the start of the next block.

        A record longer than a block has a unit of blocks to itself, whose entries after the first are empty.
        """
        cdef uint64_t table = <uint64_t> (self.blocks - self.base), length = 1, wanted
        cdef CachedBlock* slot
        if block >= self.block_count:
            return fault(self, FAULT_BLOCK, table)
        if check_range(self, table + 8 * block, min(<uint64_t> 24, 8 * (self.block_count + 1 - block))) < 0:
            return -1
        while (
            block + length < self.block_count
            and self.block_offset(block + length + 1) == self.block_offset(block + length)
        ):
            length += 1
            if length > MAX_RECORD_SIZE // PAGE_SIZE + 1:
                return fault(self, FAULT_BLOCK, table + 8 * block)
            if check_range(self, table + 8 * (block + length), 16 if block + length < self.block_count else 8) < 0:
                return -1
        next[0] = (block + length) * PAGE_SIZE
        if length > 1:
            return self.load_large(block, length, data)
        slot = &self.cache[block % self.cache_slots]
        if slot.data == NULL:
            slot.data = <uint8_t*> malloc(PAGE_SIZE)
            if slot.data == NULL:
                return fault(self, FAULT_MEMORY, 0)
            slot.block = -1
        if slot.block != <int64_t> block or not (
            slot.whole or (not whole and <uint64_t> slot.size >= within + LOOKAHEAD)
        ):
            slot.block = -1
            slot.whole = whole or within + LOOKAHEAD >= PAGE_SIZE
            wanted = PAGE_SIZE if slot.whole else within + LOOKAHEAD
            if self.decompress(block, slot.data, wanted, PAGE_SIZE, &slot.size) < 0:
                return -1
            slot.block = <int64_t> block
        data.data = slot.data
        data.size = slot.size
        return 0

    cdef int load_large(self, uint64_t block, uint64_t length, Slice* data) noexcept nogil:
        cdef uint64_t capacity = length * PAGE_SIZE
        cdef uint8_t* grown
        if self.large_block != <int64_t> block:
            self.large_block = -1
            if capacity > self.large_capacity:
                grown = <uint8_t*> realloc(self.large, <size_t> capacity)
                if grown == NULL:
                    return fault(self, FAULT_MEMORY, 0)
                self.large = grown
                self.large_capacity = capacity
            if self.decompress(block, self.large, capacity, capacity, &self.large_size) < 0:
                return -1
            self.large_block = <int64_t> block
        data.data = self.large
        data.size = self.large_size
        return 0

    cdef int decompress(
        self, uint64_t block, uint8_t* target, uint64_t wanted, uint64_t capacity, int32_t* size
    ) noexcept nogil:
        cdef uint64_t start = self.block_offset(block), end = self.block_offset(block + 1), stored
        if start < HEADER_SIZE or end > self.records_end or start >= end:
            return fault(self, FAULT_TABLE, <uint64_t> (self.blocks - self.base) + 8 * block)
        stored = end - start
        if self.paged and not self.asks and self.descriptor >= 0 and start // PAGE_SIZE != (end - 1) // PAGE_SIZE:
            # A block across two pages is read at once, to wait only once.
            file_read_ahead(self.descriptor, <off_t> (start - start % PAGE_SIZE), <off_t> (stored + start % PAGE_SIZE))
        if check_range(self, start, stored) < 0:
            return -1
        if load64(self.blocks + 8 * block) & RAW_BLOCK:
            if stored > capacity:
                return fault(self, FAULT_BLOCK, start)
            memcpy(target, self.base + start, <size_t> stored)
            size[0] = <int32_t> stored
            return 0
        size[0] = lz4_decompress(self.base + start, <int> stored, target, <int> wanted, <int> capacity)
        if size[0] < 0:
            return fault(self, FAULT_BLOCK, start)
        return 0
