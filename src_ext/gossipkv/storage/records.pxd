from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef struct Slice:
    const uint8_t* data
    Py_ssize_t size


cdef struct Record:
    Slice key
    Slice value
    uint64_t next       # The position after the record, including padding.


cdef struct CachedBlock:
    int64_t block       # -1: empty.
    int32_t size        # Number of decompressed bytes, from its start.
    bint whole          # True if it is completely decompressed.
    uint8_t* data       # PAGE_SIZE bytes.


cdef class RecordReader(MappedFile):
    # Used for lz4 only: a direct-mapped cache of blocks, and one buffer for a record longer than a block.
    cdef CachedBlock* cache
    cdef uint32_t cache_slots
    cdef uint8_t* large
    cdef uint64_t large_capacity
    cdef int64_t large_block
    cdef int32_t large_size

    cdef void read_ahead(self, uint64_t position, uint64_t end) noexcept nogil
    cdef int read_compressed(self, uint64_t position, Record* record, bint whole) noexcept nogil
    cdef int load_block(self, uint64_t block, uint64_t within, bint whole, Slice* data, uint64_t* next) noexcept nogil
    cdef int load_large(self, uint64_t block, uint64_t length, Slice* data) noexcept nogil
    cdef int decompress(
        self, uint64_t block, uint8_t* target, uint64_t wanted, uint64_t capacity, int32_t* size
    ) noexcept nogil
    cdef uint64_t block_offset(self, uint64_t block) noexcept nogil


cdef inline uint64_t parse_record(Slice rest, Record* record) noexcept nogil:
    """Parse the record at the start of `rest`; returns its padded size, or 0 if it does not fit or breaks a limit.

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


cdef inline int read_raw(RecordReader file, uint64_t position, Record* record) noexcept nogil:
    """Read the uncompressed record at a position; key and value point into the file."""
    cdef uint64_t offset = HEADER_SIZE + position, end
    cdef Slice rest
    if position >= file.position_end or position % 8 != 0:
        return fault(file, FAULT_RECORD, min(offset, file.records_end))
    if file.asks and not file.is_in_memory(offset, 1):
        return -1
    if not bit(file.checked_pages, offset // PAGE_SIZE):
        if file.check_page(offset // PAGE_SIZE) < 0:
            return -1
    rest.data = file.base + offset
    rest.size = <Py_ssize_t> (file.position_end - position)
    end = parse_record(rest, record)
    if end == 0:
        return fault(file, FAULT_RECORD, offset)
    record.next = position + end
    # The last byte is padding or the value's own, so this checks all pages of the record.
    return check_range(file, offset, end)


cdef inline int read_record(RecordReader file, uint64_t position, Record* record) noexcept nogil:
    """Read the record at a position; key and value are valid until the next call on the same file."""
    if file.compression == COMPRESSION_NONE:
        return read_raw(file, position, record)
    return file.read_compressed(position, record, True)
