"""The writer of a sorted file: takes records in key order, writes the file front to back.

Nothing is written twice, and memory does not grow with the file: index entries, anchors, block table and checksums are
buffered in bounded memory until the records have ended. The footer comes last. Until the caller renames the file into
place, no reader takes it for a sorted file.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset


from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import LimitExceeded

cdef extern from *:
    """
    #define GKV_MAX_POSITION 0x7FFFFFFF0ULL
    """
    const uint64_t MAX_POSITION "GKV_MAX_POSITION"     # 32 GiB: the maximum of a bucket's 4 bytes, in units of 8.

cdef enum:
    SPOOL_LIMIT = 1048576       # Limit of each spool; 1 MiB of anchors stands for 350 MB of records.
    FOOTER_FIELDS = 18
    SPARE_BUCKETS = 8


cdef int begin_file(SortedFileWriter self) except -1:
    cdef uint8_t header[HEADER_SIZE]
    memset(header, 0, HEADER_SIZE)
    memcpy(header, PyBytes_AS_STRING(HEADER_MAGIC), 8)
    store32(header + 8, FORMAT_VERSION)
    self.out.append(header, HEADER_SIZE)
    if self.compression == COMPRESSION_LZ4:
        reserve_block(self, PAGE_SIZE)
    return 0


cdef int check_follows(SortedFileWriter self, const uint8_t* key, Py_ssize_t key_size) except -1 with gil:
    """Assert that the key may follow the last one, and make it the last one."""
    last, self.last_key = self.last_key, (<const char*> key)[:key_size]
    assert last is None or last < self.last_key, f"{self.path}: keys ascend"
    assert self.last_key.startswith(self.common_prefix), f"{self.path}: keys begin with {self.common_prefix!r}"
    return 0


cdef int append_raw(
    SortedFileWriter self,
    const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size, uint64_t size,
) except -1 nogil:
    cdef uint8_t header[8]
    cdef uint8_t* at
    add_anchor(self, key, key_size)
    self.index.add(hash64_of(key, key_size, self.seed), <uint32_t> (self.position // 8 + 1))
    if size <= PAGE_SIZE:
        write_record(self.out.room(size), key, key_size, value, value_size, size)
        self.out.used += <uint32_t> size
    else:
        at = put_varint(put_varint(header, <uint32_t> key_size), <uint32_t> value_size)
        self.out.append(header, <uint64_t> (at - header))
        self.out.append(key, <uint64_t> key_size)
        self.out.append(value, <uint64_t> value_size)
        self.out.pad(8)
    self.position += size
    require(self.out.position() == HEADER_SIZE + self.position, "records lie end to end")
    return 0


cdef int append_to_block(
    SortedFileWriter self,
    const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size, uint64_t size,
) except -1 nogil:
    if self.block_used and self.block_used + size > PAGE_SIZE:
        end_block(self)
    if size > PAGE_SIZE:
        reserve_block(self, size)
    self.position = self.block_count * PAGE_SIZE + self.block_used
    add_anchor(self, key, key_size)
    self.index.add(hash64_of(key, key_size, self.seed), <uint32_t> (self.position // 8 + 1))
    require(self.block_used + size <= self.block_capacity, "a block has room for its longest record")
    write_record(self.block + self.block_used, key, key_size, value, value_size, size)
    self.block_used += size
    self.position += size
    if self.block_used >= PAGE_SIZE:
        end_block(self)
    return 0


cdef int add_anchor(SortedFileWriter self, const uint8_t* key, Py_ssize_t key_size) except -1 nogil:
    """Record the first record that begins in each 4 KiB of positions."""
    cdef uint64_t word
    cdef uint32_t position
    if self.position // PAGE_SIZE == self.last_stretch:
        return 0
    self.last_stretch = self.position // PAGE_SIZE
    word = word_of(key, key_size, self.common_size)
    position = <uint32_t> (self.position // 8 + 1)
    self.anchor_words.append(<uint8_t*> &word, 8)
    self.anchor_positions.append(<uint8_t*> &position, 4)
    return 0


cdef int reserve_block(SortedFileWriter self, uint64_t capacity) except -1 nogil:
    """Make room for a block, or for one record longer than a block."""
    cdef uint8_t* grown
    if capacity > self.block_capacity:
        grown = <uint8_t*> realloc(self.block, <size_t> capacity)
        if grown == NULL:
            with gil:
                raise MemoryError
        self.block = grown
        self.block_capacity = capacity
        self.packed_capacity = <uint64_t> lz4_bound(<int> capacity)
        grown = <uint8_t*> realloc(self.packed, <size_t> self.packed_capacity)
        if grown == NULL:
            with gil:
                raise MemoryError
        self.packed = grown
    return 0


cdef int end_block(SortedFileWriter self) except -1 nogil:
    """Compress and write the block; uncompressed if compression does not shrink it."""
    cdef uint64_t entry = self.out.position(), end, spanned
    cdef int size = lz4_compress(self.block, <int> self.block_used, self.packed, <int> self.packed_capacity)
    if size <= 0 or <uint64_t> size >= self.block_used:
        self.out.append(self.block, self.block_used)
        entry |= RAW_BLOCK
    else:
        self.out.append(self.packed, <uint64_t> size)
    self.blocks.append(<uint8_t*> &entry, 8)
    end = self.out.position()
    spanned = (self.block_used + PAGE_SIZE - 1) // PAGE_SIZE
    self.block_count += spanned
    while spanned > 1:
        self.blocks.append(<uint8_t*> &end, 8)
        spanned -= 1
    self.block_used = 0
    require(self.blocks.size == 8 * self.block_count, "the block table has an entry for each 4 KiB of positions")
    return 0


cdef uint32_t write_checksums(SortedFileWriter self) except? 0xFFFFFFFF:
    """Write the page checksums, then one checksum for each 4 KiB of those; returns the checksum of the latter."""
    cdef bytes part
    cdef bytearray chunks = bytearray()
    cdef uint64_t cursor = 0, number = 0
    cdef uint32_t crc
    cdef bytearray page = bytearray()
    self.checksums.rewind(&cursor)
    while True:
        part = self.checksums.next_part(&cursor)
        if part is not None:
            self.out.append(<const uint8_t*> PyBytes_AS_STRING(part), <uint64_t> len(part))
            page += part
        while len(page) >= PAGE_SIZE or (part is None and page):
            whole = bytes(page[:PAGE_SIZE])
            crc = crc32c_of(<const uint8_t*> PyBytes_AS_STRING(whole), len(whole), <uint32_t> number)
            chunks += crc.to_bytes(4, "little")
            del page[:PAGE_SIZE]
            number += 1
        if part is None:
            break
    whole = bytes(chunks)
    self.out.append(<const uint8_t*> PyBytes_AS_STRING(whole), <uint64_t> len(whole))
    return crc32c_of(<const uint8_t*> PyBytes_AS_STRING(whole), len(whole), 0)


cdef int write_footer(SortedFileWriter self, uint64_t* fields, uint32_t checksums_crc) except -1:
    cdef uint8_t footer[FOOTER_SIZE]
    cdef int i
    memset(footer, 0, FOOTER_SIZE)
    store32(footer + 4, FORMAT_VERSION)
    for i in range(FOOTER_FIELDS):
        store64(footer + 8 + 8 * i, fields[i])
    footer[152] = <uint8_t> self.compression
    footer[153] = <uint8_t> len(self.common_prefix)
    store32(footer + 156, checksums_crc)
    memcpy(footer + 160, PyBytes_AS_STRING(self.common_prefix), <size_t> len(self.common_prefix))
    memcpy(footer + FOOTER_SIZE - 8, PyBytes_AS_STRING(FOOTER_MAGIC), 8)
    store32(footer, crc32c_of(footer + 4, FOOTER_SIZE - 4, 0))
    return self.out.append(footer, FOOTER_SIZE)


@cython.final
cdef class SortedFileWriter:
    """Writes one sorted file at `path`, which must not exist.

    `on_write` is called with the size of each write, and may wait, while the written data goes to the disk.

    Requires: keys strictly ascend, and all begin with `common_prefix`. Ensures: `finish` returns with the whole file
    synced. The bytes depend only on records, compression, seed, common prefix and metadata.

    Raises:
        LimitExceeded: the records need more than 32 GiB.
        OSError: the file system refuses; call `abort`.
    """

    def __cinit__(
        self, files not None, str path not None, *, uint64_t memory_bytes, int compression, uint64_t seed,
        bytes common_prefix not None, bytes metadata not None, on_write=None,
    ):
        cdef int number = 0

        def make_scratch():
            nonlocal number
            number += 1
            return Scratch(files, f"{path}.{number}.tmp")

        self.files = files
        self.path = path
        self.descriptor = -1
        self.compression = compression
        self.seed = seed
        self.common_prefix = common_prefix[:MAX_COMMON_PREFIX]
        self.common_size = len(self.common_prefix)
        self.metadata = metadata
        self.metadata_size = len(metadata)
        self.last_stretch = <uint64_t> -1
        self.index = IndexBuilder(make_scratch, memory_bytes)
        self.checksums = Spool(make_scratch, SPOOL_LIMIT)
        self.anchor_words = Spool(make_scratch, SPOOL_LIMIT)
        self.anchor_positions = Spool(make_scratch, SPOOL_LIMIT)
        self.blocks = Spool(make_scratch, SPOOL_LIMIT)
        self.descriptor = files.open(path, WRITE_NEW)
        self.out = PageWriter(files, self.descriptor, self.checksums, on_write)
        begin_file(self)

    def __dealloc__(self):
        free(self.block)
        free(self.packed)

    def abort(self):
        """Close and remove the unfinished file."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            self.files.close(descriptor)
            self.files.unlink(self.path)

    # -- records ---------------------------------------------------------------------------------------------------

    cdef int append(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1 nogil:
        cdef uint64_t size = record_size(key_size, value_size)
        if CHECKED:
            check_follows(self, key, key_size)
        if self.position + size > MAX_POSITION:
            with gil:
                raise LimitExceeded(
                    f"{self.path}: a sorted file holds at most 32 GiB of records; split the data into more partitions",
                    {"file": self.path, "limit": MAX_POSITION},
                )
        if self.compression == COMPRESSION_LZ4:
            append_to_block(self, key, key_size, value, value_size, size)
        else:
            append_raw(self, key, key_size, value, value_size, size)
        self.count += 1
        self.key_bytes += <uint64_t> key_size
        self.value_bytes += <uint64_t> value_size
        return 0

    @property
    def size_bytes(self):
        """The approximate size of the file if it ends here."""
        return self.size_with(0)

    cdef uint64_t size_with(self, uint64_t more) noexcept nogil:
        """Estimate the size of the file if it ends after one more record of `more` bytes; it is hardly ever too low.

        The estimate has a bucket for each 12 x 90 % keys, and an eighth more. A compressed file is shorter.
        """
        cdef uint64_t count = self.count + 1, position = self.position + more, body
        cdef uint64_t stretches = position // PAGE_SIZE + 2
        cdef uint64_t buckets = count // 10 + count // 80 + SPARE_BUCKETS
        body = HEADER_SIZE + position + buckets * BUCKET_SIZE + stretches * ANCHOR_SIZE + <uint64_t> self.metadata_size
        if self.compression == COMPRESSION_LZ4:
            body += 8 * stretches
        return body + body // (PAGE_SIZE // 4) + body // (PAGE_SIZE // 4) // (PAGE_SIZE // 4) + 16 + FOOTER_SIZE

    # -- lz4 blocks ------------------------------------------------------------------------------------------------

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self, uint64_t duplicates=0):
        """Write everything that follows the records, sync and close; returns the size of the file in bytes."""
        cdef uint64_t fields[FOOTER_FIELDS]
        cdef uint64_t end
        cdef PageWriter out = self.out
        cdef uint32_t crc
        assert self.descriptor >= 0, f"{self.path}: a file is finished once"
        if self.compression == COMPRESSION_LZ4:
            if self.block_used:
                end_block(self)
            end = out.position()
            self.blocks.append(<uint8_t*> &end, 8)
        assert self.index.count == self.count, "the index has an entry for each record"
        assert self.anchor_words.size == 2 * self.anchor_positions.size, "an anchor has a word and a position"
        fields[2] = self.count
        fields[3] = self.position
        fields[4] = out.position()
        out.pad(BUCKET_SIZE)
        fields[5] = out.position()
        self.index.write(out, &fields[7], &fields[6])
        fields[8] = self.seed
        fields[9] = out.position()
        fields[10] = self.anchor_words.size // 8
        out.append_spool(self.anchor_words)
        out.append_spool(self.anchor_positions)
        out.pad(8)
        fields[11] = out.position()
        fields[12] = self.block_count
        out.append_spool(self.blocks)
        fields[13] = out.position()
        fields[14] = <uint64_t> len(self.metadata)
        out.append(<const uint8_t*> PyBytes_AS_STRING(self.metadata), fields[14])
        fields[15] = self.key_bytes
        fields[16] = self.value_bytes
        fields[17] = duplicates
        fields[1] = out.position()
        out.end_pages()
        crc = write_checksums(self)
        fields[0] = out.position() + FOOTER_SIZE
        assert (
            HEADER_SIZE <= fields[4] <= fields[5] <= fields[9] <= fields[11] <= fields[13] <= fields[1] < fields[0]
        ), "the regions lie in the order in which the footer names them"
        write_footer(self, fields, crc)
        out.flush()
        self.files.sync(self.descriptor)
        descriptor, self.descriptor = self.descriptor, -1
        self.files.close(descriptor)
        return fields[0]


cdef inline void write_record(
    uint8_t* target, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size,
    uint64_t size,
) noexcept nogil:
    """Write lengths, key, value, and zeros up to a multiple of 8; the last word is cleared before it is overwritten."""
    cdef uint8_t* at
    store64(target + size - 8, 0)
    at = put_varint(put_varint(target, <uint32_t> key_size), <uint32_t> value_size)
    memcpy(at, key, <size_t> key_size)
    memcpy(at + key_size, value, <size_t> value_size)
