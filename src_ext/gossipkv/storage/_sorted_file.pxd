from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef struct Slice:
    const uint8_t* data
    Py_ssize_t size


cdef struct Record:
    Slice key
    Slice value
    uint64_t next       # The position after it, padding included.


cdef struct CachedBlock:
    int64_t block       # -1: empty.
    int32_t size        # How many bytes of it are decompressed, counted from its start.
    bint whole          # Nothing of it is missing.
    uint8_t* data       # PAGE_SIZE bytes.


cdef class SortedFile:
    # Constant after opening.
    cdef Py_buffer buffer
    cdef bint holds_buffer
    cdef readonly str name
    cdef const uint8_t* base
    cdef uint64_t size, body_size, page_count, chunk_count
    cdef const uint8_t* page_checksums
    cdef const uint8_t* chunk_checksums
    cdef uint64_t record_count, position_end
    cdef const uint8_t* index
    cdef uint64_t bucket_count, home_count, seed
    cdef const uint8_t* anchor_words
    cdef const uint8_t* anchor_positions
    cdef uint64_t anchor_count
    cdef const uint8_t* blocks
    cdef uint64_t block_count, records_end
    cdef int compression
    cdef uint8_t common_prefix[64]
    cdef Py_ssize_t common_size
    cdef uint64_t metadata_offset, metadata_size, key_bytes, value_bytes, duplicates

    # What was checked since opening: a bit for each page, a bit for each page of the pages' checksums.
    cdef uint8_t* checked_pages
    cdef uint8_t* checked_chunks

    # lz4 only: a direct-mapped cache of blocks, and one buffer for a record longer than a block.
    cdef CachedBlock* cache
    cdef uint32_t cache_slots
    cdef uint8_t* large
    cdef uint64_t large_capacity
    cdef int64_t large_block
    cdef int32_t large_size

    cdef Py_ssize_t pins

    # The first damage that a nogil function met; `damage()` turns it into an exception.
    cdef uint64_t fault_offset
    cdef int fault_reason
    cdef uint32_t fault_expected, fault_got

    cdef int find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil
    cdef int find_hashed(self, const uint8_t* key, Py_ssize_t size, uint64_t hash, Slice* value) noexcept nogil
    cdef uint64_t prefetch_bucket(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef uint32_t prefetch_record(self, uint64_t hash) noexcept nogil
    cdef void prefetch_value(self, uint32_t position) noexcept nogil
    cdef int find_at(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, uint32_t position, Slice* value
    ) noexcept nogil

    cdef int check_page(self, uint64_t page) noexcept nogil
    cdef int check_range(self, uint64_t offset, uint64_t size) noexcept nogil
    cdef int read_record(self, uint64_t position, Record* record) noexcept nogil
    cdef int read_raw(self, uint64_t position, Record* record) noexcept nogil
    cdef int read_compressed(self, uint64_t position, Record* record, bint whole) noexcept nogil
    cdef int load_block(self, uint64_t block, uint64_t within, bint whole, Slice* data, uint64_t* next) noexcept nogil
    cdef int load_large(self, uint64_t block, uint64_t length, Slice* data) noexcept nogil
    cdef int decompress(
        self, uint64_t block, uint8_t* target, uint64_t wanted, uint64_t capacity, int32_t* size
    ) noexcept nogil
    cdef uint64_t block_offset(self, uint64_t block) noexcept nogil
    cdef void prefetch_lines(self, uint32_t position) noexcept nogil
    cdef uint32_t candidate(self, uint64_t hash) noexcept nogil
    cdef uint64_t anchor_position(self, uint64_t anchor) noexcept nogil
    cdef int anchors_below(self, const uint8_t* key, Py_ssize_t size, uint64_t* count) noexcept nogil
    cdef int seek(self, const uint8_t* key, Py_ssize_t size, uint64_t* position) noexcept nogil
    cdef int fault(self, int reason, uint64_t offset) noexcept nogil
    cdef object damage(self)
    cdef int ensure_open(self) except -1
    cdef int open_image(self) except -1
    cdef int parse_footer(self, const uint8_t* footer) except -1
    cdef int refuse(self, uint64_t offset, str reason, object expected=*, object got=*) except -1
