# cython: profile=False
"""Reading a sorted file: lookup, ordered scans, verification.

Everything that touches the mapped bytes is `noexcept nogil` and answers 1 (there), 0 (not there) or -1 (damaged: the
place and the reason stand in `fault_*`, and `damage()` makes the exception of them once the GIL is held).

Rules for whoever edits this file:

* No byte is used before `check_range` has seen its page's checksum hold, and no size read from the file enters
  arithmetic before it was compared with its limit: a checksum proves that bytes are old, not that they are sane.
* A `Slice` into an lz4 file lives until the next call on the same file.
* One thread at a time reads a file.  The lz4 cache has no lock; the serving loop, which drops the GIL, opens its own.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from gossipkv.storage._checksum cimport crc32c_of
from gossipkv.storage._compression cimport lz4_decompress
from gossipkv.storage._format cimport *

import os

from gossipkv.environment import READ, RealFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat

HEADER_MAGIC = b"GKVSORT\n"
FOOTER_MAGIC = b"\nGKVEND\n"
DEFAULT_CACHE_BYTES = 256 * 1024

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object sequence)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    object PySequence_Fast(object sequence, const char* message)

cdef extern from *:
    """
    #define GKV_RAW_BLOCK 0x8000000000000000ULL
    """
    const uint64_t RAW_BLOCK "GKV_RAW_BLOCK"

cdef enum Fault:
    FAULT_PAGE = 1
    FAULT_CHUNK
    FAULT_RECORD
    FAULT_BLOCK
    FAULT_CHAIN
    FAULT_ANCHOR
    FAULT_MEMORY

cdef enum:
    STAGGER = 6            # Lookups between two stages of a batch; more than a core's outstanding misses gain nothing.
    WINDOW = 32           # At least 3 * STAGGER + 1.
    LINE = 64
    LOOKAHEAD = 192       # Bytes of a block decompressed past a record's start: most records end within them.
    VALUE_LINES = 32      # A batch prefetches at most this many lines of a value; the hardware follows the rest.

cdef struct Pending:
    Slice key
    uint64_t hash
    uint32_t place

cdef dict FAULT_TEXT = {
    FAULT_PAGE: "a page's checksum does not hold",
    FAULT_CHUNK: "the checksum of the page checksums does not hold",
    FAULT_RECORD: "a record is longer than its file or its limits",
    FAULT_BLOCK: "a compressed block cannot be decompressed",
    FAULT_CHAIN: "the index leads past its end",
    FAULT_ANCHOR: "an anchor leads past the records",
}


@cython.final
cdef class SortedFile:
    """An immutable, checksummed map from bytes to bytes, in key order, read where it lies.

    `source` is a path, or a buffer that holds a whole file.  Opening reads the header, the footer and four bytes for
    each 4 MiB; every other page is checked when it is first touched.

    Raises:
        Corrupt: damage; names file, offset and reason.  Also raised by every read that meets a damaged page.
        UnsupportedFormat: another kind of file, or a newer format.
        StorageError: the file cannot be opened or mapped.

    Lifetime: values are copies.  `close` refuses with `BufferError` while a scan is under way or `pin` was called.
    """

    def __cinit__(self, source, *, files=None, name=None, uint64_t cache_bytes=DEFAULT_CACHE_BYTES):
        self.large_block = -1
        self.cache_slots = <uint32_t> max(1, cache_bytes // PAGE_SIZE)
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fspath(source) if name is None else name
            source = map_file(RealFiles() if files is None else files, source, self.name)
        else:
            self.name = "<buffer>" if name is None else name
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.holds_buffer = True
        self.base = <const uint8_t*> self.buffer.buf
        self.size = <uint64_t> self.buffer.len
        try:
            self.open_image()
        except BaseException:
            self.base = NULL
            PyBuffer_Release(&self.buffer)
            self.holds_buffer = False
            raise

    def __dealloc__(self):
        cdef uint32_t slot
        if self.cache != NULL:
            for slot in range(self.cache_slots):
                free(self.cache[slot].data)
            free(self.cache)
        free(self.large)
        free(self.checked_pages)
        free(self.checked_chunks)
        if self.holds_buffer:
            PyBuffer_Release(&self.buffer)

    # -- opening and closing ---------------------------------------------------------------------------------------

    cdef int refuse(self, uint64_t offset, str reason, object expected=None, object got=None) except -1:
        raise Corrupt(self.name, offset, reason, expected=expected, got=got)

    cdef int open_image(self) except -1:
        """Check header and footer, and set every pointer."""
        cdef bytes magic = (<const char*> self.base)[:min(8, self.size)]
        cdef uint32_t version
        if magic != HEADER_MAGIC:
            if self.size == 0:
                self.refuse(0, "the file is empty")
            raise UnsupportedFormat(
                f"{self.name}: not a sorted file: begins with {magic!r} instead of {HEADER_MAGIC!r}",
                {"file": self.name, "offset": 0},
            )
        if self.size < HEADER_SIZE + FOOTER_SIZE:
            self.refuse(self.size, "the file ends before its footer", HEADER_SIZE + FOOTER_SIZE, self.size)
        version = load32(self.base + 8)
        if version != FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{self.name}: sorted file of format {version}; this program reads format {FORMAT_VERSION}."
                " Build it again, or read it with a program that knows that format.",
                {"file": self.name, "offset": 8, "version": version},
            )
        self.parse_footer(self.base + self.size - FOOTER_SIZE)
        self.checked_pages = <uint8_t*> calloc(<size_t> (self.page_count // 8 + 1), 1)
        self.checked_chunks = <uint8_t*> calloc(<size_t> (self.chunk_count // 8 + 1), 1)
        if self.compression == COMPRESSION_LZ4:
            self.cache = <CachedBlock*> calloc(self.cache_slots, sizeof(CachedBlock))
        if (
            self.checked_pages == NULL or self.checked_chunks == NULL
            or (self.compression == COMPRESSION_LZ4 and self.cache == NULL)
        ):
            raise MemoryError
        return 0

    cdef int parse_footer(self, const uint8_t* footer) except -1:
        """Read the footer's fields; each is compared with what the others imply before it is used."""
        cdef uint64_t at = self.size - FOOTER_SIZE, index_end, anchors_end, blocks_end, offset
        cdef uint32_t crc = crc32c_of(footer + 4, FOOTER_SIZE - 4, 0)
        if memcmp(footer + 248, PyBytes_AS_STRING(FOOTER_MAGIC), 8) != 0:
            self.refuse(at + 248, "the footer is missing: the file was cut off or never finished")
        if crc != load32(footer):
            self.refuse(at, "the footer's checksum does not hold", load32(footer), crc)
        if load64(footer + 8) != self.size:
            self.refuse(at + 8, "the file has another size than its footer says", load64(footer + 8), self.size)
        self.body_size = load64(footer + 16)
        self.record_count = load64(footer + 24)
        self.position_end = load64(footer + 32)
        self.records_end = load64(footer + 40)
        offset = load64(footer + 48)
        self.bucket_count = load64(footer + 56)
        self.home_count = load64(footer + 64)
        self.seed = load64(footer + 72)
        self.compression = footer[152]
        self.common_size = footer[153]
        self.anchor_count = load64(footer + 88)
        self.block_count = load64(footer + 104)
        self.metadata_offset = load64(footer + 112)
        self.metadata_size = load64(footer + 120)
        self.key_bytes = load64(footer + 128)
        self.value_bytes = load64(footer + 136)
        self.duplicates = load64(footer + 144)
        memcpy(self.common_prefix, footer + 160, MAX_COMMON_PREFIX)
        self.page_count = (self.body_size + PAGE_SIZE - 1) // PAGE_SIZE
        self.chunk_count = (self.page_count * 4 + PAGE_SIZE - 1) // PAGE_SIZE
        if (
            self.body_size > self.size
            or self.body_size + 4 * self.page_count + 4 * self.chunk_count + FOOTER_SIZE != self.size
            or self.bucket_count > self.size or self.anchor_count > self.size or self.block_count > self.size
            or self.metadata_size > self.size or self.home_count > self.bucket_count or self.home_count == 0
            or self.common_size > MAX_COMMON_PREFIX or self.compression > COMPRESSION_LZ4
        ):
            self.refuse(at + 16, "the footer contradicts itself")
        index_end = offset + self.bucket_count * BUCKET_SIZE
        anchors_end = load64(footer + 80) + self.anchor_count * ANCHOR_SIZE
        blocks_end = load64(footer + 96) + (self.block_count + 1) * 8 * (self.compression == COMPRESSION_LZ4)
        if (
            self.records_end < HEADER_SIZE or self.records_end > offset or offset % BUCKET_SIZE != 0
            or index_end > load64(footer + 80) or load64(footer + 80) % 8 != 0
            or anchors_end > load64(footer + 96) or load64(footer + 96) % 8 != 0
            or blocks_end > self.metadata_offset or self.metadata_offset + self.metadata_size > self.body_size
            or (self.compression == COMPRESSION_NONE and self.position_end + HEADER_SIZE != self.records_end)
            or (self.compression == COMPRESSION_LZ4 and self.position_end > self.block_count * PAGE_SIZE)
        ):
            self.refuse(at + 40, "the footer's regions overlap or leave the file")
        self.index = self.base + offset
        self.anchor_words = self.base + load64(footer + 80)
        self.anchor_positions = self.anchor_words + 8 * self.anchor_count
        self.blocks = self.base + load64(footer + 96)
        self.page_checksums = self.base + self.body_size
        self.chunk_checksums = self.page_checksums + 4 * self.page_count
        crc = crc32c_of(self.chunk_checksums, <Py_ssize_t> (4 * self.chunk_count), 0)
        if crc != load32(footer + 156):
            self.refuse(
                self.body_size + 4 * self.page_count, "the checksum of the checksums does not hold",
                load32(footer + 156), crc,
            )
        return 0

    cdef int ensure_open(self) except -1:
        if self.base == NULL:
            raise ValueError(f"{self.name}: the sorted file is closed")
        return 0

    def pin(self):
        """Forbid `close` until `unpin`: somebody holds pointers into the file."""
        self.ensure_open()
        self.pins += 1

    def unpin(self):
        """Take back one `pin`."""
        if self.pins <= 0:
            raise ValueError(f"{self.name}: unpin without a pin")
        self.pins -= 1

    def close(self):
        """Unmap the file.  Every later call raises `ValueError`; closing twice is harmless.

        Raises:
            BufferError: the file is pinned: a scan is under way, or the serving loop reads it.
        """
        if self.base == NULL:
            return
        if self.pins:
            raise BufferError(f"{self.name}: {self.pins} readers hold the sorted file; close them first")
        self.base = NULL
        self.holds_buffer = False
        PyBuffer_Release(&self.buffer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- checking --------------------------------------------------------------------------------------------------

    cdef int fault(self, int reason, uint64_t offset) noexcept nogil:
        self.fault_reason = reason
        self.fault_offset = offset
        return -1

    cdef object damage(self):
        """The exception for the fault that a nogil function met last."""
        if self.fault_reason == FAULT_MEMORY:
            return MemoryError()
        if self.fault_reason == FAULT_PAGE or self.fault_reason == FAULT_CHUNK:
            return Corrupt(
                self.name, self.fault_offset, FAULT_TEXT[self.fault_reason],
                expected=self.fault_expected, got=self.fault_got,
            )
        return Corrupt(self.name, self.fault_offset, FAULT_TEXT[self.fault_reason])

    cdef int check_page(self, uint64_t page) noexcept nogil:
        """Compare one page with its checksum, and that checksum's own page with its checksum; remember both."""
        cdef uint64_t chunk = page * 4 // PAGE_SIZE, start, length
        if not bit(self.checked_chunks, chunk):
            start = chunk * PAGE_SIZE
            length = min(<uint64_t> PAGE_SIZE, self.page_count * 4 - start)
            self.fault_got = crc32c_of(self.page_checksums + start, <Py_ssize_t> length, <uint32_t> chunk)
            self.fault_expected = load32(self.chunk_checksums + 4 * chunk)
            if self.fault_got != self.fault_expected:
                return self.fault(FAULT_CHUNK, self.body_size + start)
            set_bit(self.checked_chunks, chunk)
        start = page * PAGE_SIZE
        length = min(<uint64_t> PAGE_SIZE, self.body_size - start)
        self.fault_got = crc32c_of(self.base + start, <Py_ssize_t> length, <uint32_t> page)
        self.fault_expected = load32(self.page_checksums + 4 * page)
        if self.fault_got != self.fault_expected:
            return self.fault(FAULT_PAGE, start)
        set_bit(self.checked_pages, page)
        return 0

    cdef inline int check_range(self, uint64_t offset, uint64_t size) noexcept nogil:
        """Check the pages of `size` > 0 bytes at `offset`, which the caller knows to lie within the body."""
        cdef uint64_t page = offset // PAGE_SIZE, last = (offset + size - 1) // PAGE_SIZE
        while page <= last:
            if not bit(self.checked_pages, page):
                if self.check_page(page) < 0:
                    return -1
            page += 1
        return 0

    # -- records ---------------------------------------------------------------------------------------------------

    cdef inline int read_raw(self, uint64_t position, Record* record) noexcept nogil:
        """The record at a position, where records lie uncompressed; key and value point into the file."""
        cdef uint64_t offset = HEADER_SIZE + position, end
        cdef Slice rest
        if position >= self.position_end or position % 8 != 0:
            return self.fault(FAULT_RECORD, offset)
        if not bit(self.checked_pages, offset // PAGE_SIZE):
            if self.check_page(offset // PAGE_SIZE) < 0:
                return -1
        rest.data = self.base + offset
        rest.size = <Py_ssize_t> (self.position_end - position)
        end = parse_record(rest, record)
        if end == 0:
            return self.fault(FAULT_RECORD, offset)
        record.next = position + end
        # The last byte is padding or the value's own: one check of the pages in between covers all.
        return self.check_range(offset, end)

    cdef int read_compressed(self, uint64_t position, Record* record, bint whole) noexcept nogil:
        """The record at a position of an lz4 file; `whole` when `record.next` is wanted, too."""
        cdef uint64_t block = position // PAGE_SIZE, within = position % PAGE_SIZE, end, next = 0
        cdef Slice data, rest
        if position >= self.position_end or position % 8 != 0:
            return self.fault(FAULT_RECORD, self.records_end)
        if self.load_block(block, within, whole, &data, &next) < 0:
            return -1
        if <uint64_t> data.size < within + 2:
            return self.fault(FAULT_BLOCK, self.block_offset(block))
        rest.data = data.data + within
        rest.size = data.size - <Py_ssize_t> within
        end = parse_record(rest, record)
        if end == 0 and not whole:
            # Longer than what was decompressed so far.
            if self.load_block(block, within, True, &data, &next) < 0:
                return -1
            rest.data = data.data + within
            rest.size = data.size - <Py_ssize_t> within
            end = parse_record(rest, record)
        if end == 0:
            return self.fault(FAULT_RECORD, self.block_offset(block))
        record.next = position + end
        if whole and within + end >= <uint64_t> data.size:
            record.next = next
        return 0

    cdef inline int read_record(self, uint64_t position, Record* record) noexcept nogil:
        if self.compression == COMPRESSION_NONE:
            return self.read_raw(position, record)
        return self.read_compressed(position, record, True)

    # -- lz4 blocks ------------------------------------------------------------------------------------------------

    cdef inline uint64_t block_offset(self, uint64_t block) noexcept nogil:
        return load64(self.blocks + 8 * block) & ~RAW_BLOCK

    cdef int load_block(
        self, uint64_t block, uint64_t within, bint whole, Slice* data, uint64_t* next
    ) noexcept nogil:
        """Decompress a block, or as much as a record at `within` usually needs; `next` is where the next one begins.

        A record longer than a block has a unit of blocks to itself: the entries after its first are empty.
        """
        cdef uint64_t table = <uint64_t> (self.blocks - self.base), length = 1, wanted
        cdef CachedBlock* slot
        if block >= self.block_count:
            return self.fault(FAULT_BLOCK, table)
        if self.check_range(table + 8 * block, min(<uint64_t> 24, 8 * (self.block_count + 1 - block))) < 0:
            return -1
        while (
            block + length < self.block_count
            and self.block_offset(block + length + 1) == self.block_offset(block + length)
        ):
            length += 1
            if length > MAX_RECORD_SIZE // PAGE_SIZE + 1:
                return self.fault(FAULT_BLOCK, table + 8 * block)
            if self.check_range(table + 8 * (block + length), 16 if block + length < self.block_count else 8) < 0:
                return -1
        next[0] = (block + length) * PAGE_SIZE
        if length > 1:
            return self.load_large(block, length, data)
        slot = &self.cache[block % self.cache_slots]
        if slot.data == NULL:
            slot.data = <uint8_t*> malloc(PAGE_SIZE)
            if slot.data == NULL:
                return self.fault(FAULT_MEMORY, 0)
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
                    return self.fault(FAULT_MEMORY, 0)
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
            return self.fault(FAULT_BLOCK, start)
        stored = end - start
        if self.check_range(start, stored) < 0:
            return -1
        if load64(self.blocks + 8 * block) & RAW_BLOCK:
            if stored > capacity:
                return self.fault(FAULT_BLOCK, start)
            memcpy(target, self.base + start, <size_t> stored)
            size[0] = <int32_t> stored
            return 0
        size[0] = lz4_decompress(self.base + start, <int> stored, target, <int> wanted, <int> capacity)
        if size[0] < 0:
            return self.fault(FAULT_BLOCK, start)
        return 0

    # -- lookup ----------------------------------------------------------------------------------------------------

    cdef int find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil:
        """1 and the value, 0 for absent, -1 for damaged."""
        return self.find_hashed(key, size, hash64_of(key, size, self.seed), value)

    cdef inline int find_hashed(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, Slice* value
    ) noexcept nogil:
        cdef uint64_t bucket = bucket_of(hash, self.home_count), offset
        cdef const uint8_t* line
        cdef uint32_t mask, position
        cdef Record record
        while True:
            if bucket >= self.bucket_count:
                return self.fault(FAULT_CHAIN, <uint64_t> (self.index - self.base))
            line = self.index + bucket * BUCKET_SIZE
            offset = <uint64_t> (line - self.base)
            if not bit(self.checked_pages, offset // PAGE_SIZE):
                if self.check_page(offset // PAGE_SIZE) < 0:
                    return -1
            mask = match12(line, <uint8_t> hash)
            while mask:
                position = load32(line + BUCKET_POSITIONS_AT + 4 * lowest_bit(mask))
                mask &= mask - 1
                if position == 0:
                    continue  # An empty slot's fingerprint is zero, as some keys' are.
                if self.compression == COMPRESSION_NONE:
                    self.prefetch_lines(position)
                    if self.read_raw(<uint64_t> position * 8 - 8, &record) < 0:
                        return -1
                elif self.read_compressed(<uint64_t> position * 8 - 8, &record, False) < 0:
                    return -1
                if record.key.size == size and memcmp(record.key.data, key, <size_t> size) == 0:
                    value[0] = record.value
                    return 1
            if not line[BUCKET_OVERFLOW_AT]:
                return 0
            bucket += 1

    cdef inline void prefetch_lines(self, uint32_t position) noexcept nogil:
        """Ask for a record's first lines at once; a prefetch of a wrong address is harmless."""
        cdef const uint8_t* at = self.base + HEADER_SIZE - 8 + <uint64_t> position * 8
        prefetch(at)
        prefetch(at + LINE)
        prefetch(at + 2 * LINE)

    cdef uint64_t prefetch_bucket(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """First stage of a batch: ask for the key's bucket and the next.  Its hash is for the later stages."""
        cdef uint64_t hash = hash64_of(key, size, self.seed)
        cdef const uint8_t* line = self.index + bucket_of(hash, self.home_count) * BUCKET_SIZE
        prefetch(line)
        prefetch(line + BUCKET_SIZE)
        return hash

    cdef inline uint32_t candidate(self, uint64_t hash) noexcept nogil:
        """The first position in the home bucket, or the next, that may be the key's, or 0.  Only for prefetching."""
        cdef const uint8_t* line = self.index + bucket_of(hash, self.home_count) * BUCKET_SIZE
        cdef uint32_t mask = match12(line, <uint8_t> hash)
        if mask == 0 and line[BUCKET_OVERFLOW_AT]:
            # A bucket that overflows has a successor, unless it is damaged: the footer lies behind it in any case.
            line += BUCKET_SIZE
            mask = match12(line, <uint8_t> hash)
        return load32(line + BUCKET_POSITIONS_AT + 4 * lowest_bit(mask)) if mask else 0

    cdef uint32_t prefetch_record(self, uint64_t hash) noexcept nogil:
        """Second stage of a batch: ask for the record (or for the compressed block's table entry), and name its place."""
        cdef uint32_t position = self.candidate(hash)
        if position == 0:
            return 0
        if self.compression == COMPRESSION_NONE:
            self.prefetch_lines(position)
        else:
            prefetch(self.blocks + 8 * ((<uint64_t> position * 8 - 8) // PAGE_SIZE))
        return position

    cdef void prefetch_value(self, uint32_t position) noexcept nogil:
        """Third stage of a batch, worth it for long values: ask for the value's further lines."""
        cdef uint64_t at = <uint64_t> position * 8 - 8, line
        cdef Record record
        cdef Slice rest
        if position == 0 or self.compression != COMPRESSION_NONE or at >= self.position_end:
            return
        rest.data = self.base + HEADER_SIZE + at
        rest.size = <Py_ssize_t> (self.position_end - at)
        if parse_record(rest, &record) == 0:
            return
        for line in range(3, min(<uint64_t> VALUE_LINES, <uint64_t> (record.value.size // LINE + 1))):
            prefetch(rest.data + line * LINE)

    cdef int find_at(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, uint32_t position, Slice* value
    ) noexcept nogil:
        """Last stage of a batch: the record that the second stage named, if it is the key's; else a lookup.

        The place came from an index page that may not have been checked: the record is, and its key decides.
        """
        cdef Record record
        if position and self.compression == COMPRESSION_NONE:
            if self.read_raw(<uint64_t> position * 8 - 8, &record) == 0:
                if record.key.size == size and memcmp(record.key.data, key, <size_t> size) == 0:
                    value[0] = record.value
                    return 1
        return self.find_hashed(key, size, hash, value)

    # -- order -----------------------------------------------------------------------------------------------------

    cdef inline uint64_t anchor_position(self, uint64_t anchor) noexcept nogil:
        return <uint64_t> load32(self.anchor_positions + 4 * anchor) * 8 - 8

    cdef int anchors_below(self, const uint8_t* key, Py_ssize_t size, uint64_t* count) noexcept nogil:
        """How many anchors have a key less than `key`, which shares the common prefix."""
        cdef uint64_t low = 0, high = self.anchor_count, middle, word = word_of(key, size, self.common_size), found
        cdef uint64_t words = <uint64_t> (self.anchor_words - self.base)
        cdef uint64_t positions = <uint64_t> (self.anchor_positions - self.base)
        cdef bint less
        cdef Record record
        while low < high:
            middle = (low + high) // 2
            if self.check_range(words + 8 * middle, 8) < 0:
                return -1
            found = load64(self.anchor_words + 8 * middle)
            less = found < word
            if found == word:
                if self.check_range(positions + 4 * middle, 4) < 0:
                    return -1
                if self.read_record(self.anchor_position(middle), &record) < 0:
                    return -1
                less = compare_keys(record.key.data, record.key.size, key, size) < 0
            if less:
                low = middle + 1
            else:
                high = middle
        count[0] = low
        return 0

    cdef int seek(self, const uint8_t* key, Py_ssize_t size, uint64_t* position) noexcept nogil:
        """The position of the first record whose key is not less than `key`; the end's when there is none."""
        cdef int order
        cdef uint64_t below = 0, at
        cdef Record record
        order = memcmp(self.common_prefix, key, <size_t> min(self.common_size, size))
        if order > 0 or (order == 0 and size < self.common_size):
            position[0] = 0
            return 0
        if order < 0:
            position[0] = self.position_end
            return 0
        if self.anchors_below(key, size, &below) < 0:
            return -1
        if below == 0:
            position[0] = 0
            return 0
        if self.check_range(<uint64_t> (self.anchor_positions - self.base) + 4 * (below - 1), 4) < 0:
            return -1
        at = self.anchor_position(below - 1)
        while at < self.position_end:
            if self.read_record(at, &record) < 0:
                return -1
            if compare_keys(record.key.data, record.key.size, key, size) >= 0:
                break
            at = record.next
        position[0] = min(at, self.position_end)
        return 0

    # -- Python ----------------------------------------------------------------------------------------------------

    def get(self, bytes key not None):
        """The value of `key`, or None.

        Raises:
            Corrupt: a page that the lookup needs is damaged.
        """
        cdef Slice value
        cdef int found
        if self.base == NULL:
            self.ensure_open()
        found = self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value)
        if found > 0:
            return PyBytes_FromStringAndSize(<const char*> value.data, value.size)
        if found < 0:
            raise self.damage()
        return None

    def get_many(self, keys):
        """The values of `keys`, in their order, None where there is none.

        Lookups run staggered, so that the memory's latency is paid once for many of them.

        Raises:
            Corrupt: a page that a lookup needs is damaged.
        """
        cdef object sequence = PySequence_Fast(keys, "keys must be a sequence of bytes")
        cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence), i
        cdef PyObject** items = PySequence_Fast_ITEMS(sequence)
        cdef Pending window[WINDOW]
        cdef Pending* pending
        cdef Slice value
        cdef int found
        cdef object key, answer
        cdef list answers
        cdef bint long_values
        self.ensure_open()
        long_values = self.record_count > 0 and self.value_bytes // self.record_count > 2 * LINE
        answers = PyList_New(count)
        for i in range(count + 3 * STAGGER):
            if i < count:
                key = <object> items[i]
                if type(key) is not bytes:
                    raise TypeError(f"keys[{i}] must be bytes, not {type(key).__name__}")
                pending = &window[i % WINDOW]
                pending.key.data = <const uint8_t*> PyBytes_AS_STRING(key)
                pending.key.size = PyBytes_GET_SIZE(key)
                pending.hash = self.prefetch_bucket(pending.key.data, pending.key.size)
            if STAGGER <= i < count + STAGGER:
                pending = &window[(i - STAGGER) % WINDOW]
                pending.place = self.prefetch_record(pending.hash)
            if long_values and 2 * STAGGER <= i < count + 2 * STAGGER:
                self.prefetch_value(window[(i - 2 * STAGGER) % WINDOW].place)
            if i >= 3 * STAGGER:
                pending = &window[(i - 3 * STAGGER) % WINDOW]
                found = self.find_at(pending.key.data, pending.key.size, pending.hash, pending.place, &value)
                if found < 0:
                    raise self.damage()
                answer = PyBytes_FromStringAndSize(<const char*> value.data, value.size) if found else None
                Py_INCREF(answer)
                PyList_SET_ITEM(answers, i - 3 * STAGGER, answer)
        return answers

    def __contains__(self, bytes key not None):
        cdef Slice value
        cdef int found
        self.ensure_open()
        found = self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value)
        if found < 0:
            raise self.damage()
        return found > 0

    def __len__(self):
        return self.record_count

    def scan(self, bytes start=None, bytes end=None, *, bytes prefix=None, bint reverse=False, limit=None):
        """Iterate over `(key, value)` in key order from `start` (inclusive) to `end` (exclusive), or backwards.

        `prefix` narrows both ends; `limit` bounds the number of records.

        Raises:
            Corrupt: on the step that meets a damaged page.
        """
        self.ensure_open()
        if prefix is not None:
            start = prefix if start is None or start < prefix else start
            after = successor(prefix)
            if after is not None:
                end = after if end is None or end > after else end
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        return Scan(self, start, end, reverse, -1 if limit is None else limit)

    def verify(self):
        """Check every byte: all checksums, then that keys ascend and that the index finds each of them.

        Raises:
            Corrupt: the first damage found.
        """
        cdef uint64_t page, position = 0, seen = 0
        cdef Record record
        cdef Slice value
        cdef bytes before = None, key
        self.ensure_open()
        for page in range(self.page_count):
            if self.check_page(page) < 0:
                raise self.damage()
        while position < self.position_end:
            if self.read_record(position, &record) < 0:
                raise self.damage()
            key = PyBytes_FromStringAndSize(<const char*> record.key.data, record.key.size)
            if before is not None and before >= key:
                self.refuse(HEADER_SIZE + position, f"keys do not ascend: {key!r} after {before!r}")
            position = record.next
            if self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value) <= 0:
                self.refuse(HEADER_SIZE + position, f"the index does not find the key {key!r}")
            before = key
            seen += 1
        if seen != self.record_count:
            self.refuse(self.size - FOOTER_SIZE + 24, "another number of records than the footer says",
                        self.record_count, seen)

    def describe(self):
        """What the footer says, for people and scripts: sizes in bytes."""
        self.ensure_open()
        return {
            "file": self.name,
            "format": FORMAT_VERSION,
            "records": self.record_count,
            "duplicates": self.duplicates,
            "size_bytes": self.size,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "records_bytes": self.records_end - HEADER_SIZE,
            "index_bytes": self.bucket_count * BUCKET_SIZE,
            "compression": "lz4" if self.compression == COMPRESSION_LZ4 else "none",
            "common_prefix": self.common_prefix[:self.common_size],
            "metadata": self.metadata,
        }

    @property
    def size_bytes(self):
        """The size of the file."""
        return self.size

    @property
    def metadata(self):
        """The bytes that the builder was given to keep with the file."""
        self.ensure_open()
        if self.metadata_size == 0:
            return b""
        if self.check_range(self.metadata_offset, self.metadata_size) < 0:
            raise self.damage()
        return PyBytes_FromStringAndSize(
            <const char*> self.base + self.metadata_offset, <Py_ssize_t> self.metadata_size
        )


cdef inline uint64_t parse_record(Slice rest, Record* record) noexcept nogil:
    """Parse the record at the start of `rest`; its size with padding, or 0 when it does not fit or breaks a limit.

    Records are multiples of 8 bytes, so `rest` holds at least 8 and the two lengths (3 + 4 bytes) always fit.
    """
    cdef const uint8_t* at = rest.data
    cdef uint32_t key_size, value_size, size
    cdef int shift
    if rest.size < 8:
        return 0
    key_size = at[0]
    at += 1
    if key_size >= 0x80:
        key_size = (key_size & 0x7F) | (<uint32_t> (at[0] & 0x7F) << 7)
        if at[0] >= 0x80:
            at += 1
            key_size |= <uint32_t> at[0] << 14
        at += 1
    value_size = at[0]
    at += 1
    if value_size >= 0x80:
        value_size &= 0x7F
        for shift in range(7, 28, 7):
            size = at[0]
            at += 1
            value_size |= (size & 0x7F) << shift
            if size < 0x80:
                break
    if key_size > MAX_KEY_SIZE or value_size > MAX_VALUE_SIZE:
        return 0
    size = <uint32_t> (at - rest.data) + key_size + value_size
    if size > <uint64_t> rest.size:
        return 0
    record.key.data = at
    record.key.size = <Py_ssize_t> key_size
    record.value.data = at + key_size
    record.value.size = <Py_ssize_t> value_size
    return aligned8(size)


cdef bytes successor(bytes prefix):
    """The least key above all keys that begin with `prefix`, or None when there is no bound."""
    cdef bytes stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:len(stripped) - 1] + bytes((stripped[len(stripped) - 1] + 1,))


cdef object map_file(files, path, str name):
    """The whole file as a buffer.

    Raises:
        Corrupt: the file is empty.
        StorageError: the file system refuses.
    """
    try:
        descriptor = files.open(path, READ)
        try:
            size = files.size(descriptor)
            if size == 0:
                raise Corrupt(name, 0, "the file is empty")
            return files.map(descriptor, size)
        finally:
            files.close(descriptor)
    except OSError as error:
        raise StorageError(f"{name}: cannot open the sorted file: {error.strerror or error}", {"file": name}) from error


@cython.final
cdef class Scan:
    """One ordered walk over a sorted file, which it pins until it ends or is closed."""

    cdef SortedFile file
    cdef uint64_t at, end
    cdef int64_t left
    cdef bint reverse
    # Backwards: the positions of the records of one stretch between anchors, and how many are still to come.
    cdef uint64_t* stretch
    cdef Py_ssize_t waiting
    cdef uint64_t anchor

    def __cinit__(self, SortedFile file not None, bytes start, bytes end, bint reverse, int64_t limit):
        file.ensure_open()
        self.end = file.position_end
        if end is not None:
            if file.seek(<const uint8_t*> PyBytes_AS_STRING(end), PyBytes_GET_SIZE(end), &self.end) < 0:
                raise file.damage()
        if start is not None:
            if file.seek(<const uint8_t*> PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start), &self.at) < 0:
                raise file.damage()
        self.left = limit
        self.reverse = reverse
        if reverse:
            self.stretch = <uint64_t*> malloc(PAGE_SIZE // 8 * sizeof(uint64_t))
            if self.stretch == NULL:
                raise MemoryError
            self.anchor = file.anchor_count
        self.file = file
        file.pins += 1

    def __dealloc__(self):
        self.close()
        free(self.stretch)

    cpdef close(self):
        """Let go of the file; the walk ends."""
        if self.file is not None:
            self.file.pins -= 1
            self.file = None

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef uint64_t position
        cdef object key, value, pair
        if self.file is None:
            raise StopIteration
        if self.left == 0 or self.at >= self.end:
            self.close()
            raise StopIteration
        if self.reverse:
            if self.waiting == 0 and self.fill() < 0:
                self.fail()
            self.waiting -= 1
            position = self.stretch[self.waiting]
            self.end = position
        else:
            position = self.at
        if self.file.read_record(position, &record) < 0:
            self.fail()
        if not self.reverse:
            self.at = record.next
        self.left -= self.left > 0
        key = PyBytes_FromStringAndSize(<const char*> record.key.data, record.key.size)
        value = PyBytes_FromStringAndSize(<const char*> record.value.data, record.value.size)
        pair = PyTuple_New(2)
        Py_INCREF(key)
        PyTuple_SET_ITEM(pair, 0, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(pair, 1, value)
        return pair

    cdef int fail(self) except -1:
        cdef object error = self.file.damage()
        self.close()
        raise error

    cdef int fill(self) noexcept:
        """Collect the records from the last anchor below `end` up to it: there is at least one."""
        cdef SortedFile file = self.file
        cdef uint64_t positions = <uint64_t> (file.anchor_positions - file.base), at, low = 0, middle
        cdef Record record
        cdef uint64_t high = self.anchor
        while low < high:
            middle = (low + high) // 2
            if file.check_range(positions + 4 * middle, 4) < 0:
                return -1
            if file.anchor_position(middle) < self.end:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return file.fault(FAULT_ANCHOR, positions)
        self.anchor = low - 1
        if file.check_range(positions + 4 * (low - 1), 4) < 0:
            return -1
        at = file.anchor_position(low - 1)
        while at < self.end:
            if self.waiting >= PAGE_SIZE // 8:
                return file.fault(FAULT_ANCHOR, positions + 4 * (low - 1))
            if file.read_record(at, &record) < 0:
                return -1
            self.stretch[self.waiting] = at
            self.waiting += 1
            at = record.next
        return 0
