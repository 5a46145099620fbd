"""A sorted file in memory: opened, checked page by page when first touched, pinned while it is read.

Functions that read through the map are `noexcept nogil` and return -1 for damage. They set `fault_*` to its place and
reason, and `damage()` makes an exception from these once the GIL is held.

Rules for editors of the readers (`mapped_file`, `records`, `scan`, `sorted_file`):

* Use no byte before `check_range` has verified its page's checksum. Compare every size read from the file with its
  limit before arithmetic: a checksum proves that bytes are unchanged, not that they are sane.
* Return no answer before calling `is_whole`, and copy nothing after it: even a checked page can be cut off, or read
  again from a failing disk. An absent key and the end of a scan are answers, too.
* Only one thread at a time reads a file. The lz4 cache has no lock; each other thread has a twin (`twin_for`).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy
from posix.types cimport off_t
from posix.unistd cimport close as close_descriptor


import mmap
import os
import weakref

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat, other_format

cdef extern from "gossipkv/storage/residency.h" nogil:
    void read_by_page "gkv_read_by_page"(
        int descriptor, const char* region, size_t size, size_t index, size_t index_size
    )
    void read_by_stretch "gkv_read_by_stretch"(int descriptor, const void* region, size_t size)
    void populate "gkv_populate"(const void* region, size_t size)
    bint may_look "gkv_may_look"(int descriptor)
    bint is_in_memory "gkv_is_in_memory"(bint may_look, int descriptor, const uint8_t* base, size_t offset)

cdef extern from *:
    """
    #define gkv_load(from) __atomic_load_n(from, __ATOMIC_RELAXED)
    #define gkv_store(to, value) __atomic_store_n(to, value, __ATOMIC_RELAXED)
    """
    uint64_t atomic_load "gkv_load"(const uint64_t* source) noexcept nogil
    void atomic_store "gkv_store"(uint64_t* target, uint64_t value) noexcept nogil

cdef enum:
    CHUNK_PAGES = PAGE_SIZE // 4    # These page checksums share one checksum.

cdef uint64_t this_epoch = 1  # Shared by all threads.


cdef void begin_epoch(uint64_t epoch) noexcept nogil:
    """Begin an epoch: pages count as being in memory only once they are found there again. All threads share epochs.

    Readers call this every few milliseconds. So a page with many readers costs one query per epoch. A page that the
    kernel evicts within an epoch is waited for; that is rare, since the kernel evicts pages that were long unused.
    """
    atomic_store(&this_epoch, epoch)


cdef object pretence = None


def pretend(seeds):
    """Simulate missing pages in each file opened from now on, with the next of these seeds; None: stop.

    For tests of serving from files.
    """
    global pretence
    pretence = seeds


FORMAT = FORMAT_VERSION
HEADER_MAGIC = b"GKVSORT\n"
FOOTER_MAGIC = b"\nGKVEND\n"

cdef dict FAULT_TEXT = {
    FAULT_PAGE: "a page's checksum does not match",
    FAULT_CHUNK: "the checksum of the page checksums does not match",
    FAULT_RECORD: "a record is longer than its file or than the limit",
    FAULT_BLOCK: "a compressed block cannot be decompressed",
    FAULT_CHAIN: "an index entry points past the end of the index",
    FAULT_ANCHOR: "an anchor points past the records",
    FAULT_PLACE: "the index points past the records",
    FAULT_TABLE: "an entry of the block table points past the records",
}


cdef int open_image(MappedFile self) except -1:
    """Check header and footer, and set every pointer."""
    cdef bytes magic = (<const char*> self.base)[:min(8, self.size)]
    if magic != HEADER_MAGIC:
        if self.size == 0:
            self.refuse(0, "the file is empty")
        raise UnsupportedFormat(
            f"{self.name}: not a sorted file: it begins with {magic!r} instead of {HEADER_MAGIC!r}",
            {"file": self.name, "offset": 0},
        )
    if self.size < HEADER_SIZE + FOOTER_SIZE:
        self.refuse(self.size, "the file ends before its footer", HEADER_SIZE + FOOTER_SIZE, self.size)
    check_format(self.name, load32(self.base + 8), 8)
    parse_footer(self, self.base + self.size - FOOTER_SIZE)
    self.checked_pages = <uint8_t*> calloc(<size_t> (self.page_count // 8 + 1), 1)
    self.checked_chunks = <uint8_t*> calloc(<size_t> (self.chunk_count // 8 + 1), 1)
    if self.checked_pages == NULL or self.checked_chunks == NULL:
        raise MemoryError
    if not is_whole(self):
        raise self.loss()
    return 0


def check_format(name, uint32_t version, uint64_t offset):
    """Check the format number at that offset of a sorted file. Raises UnsupportedFormat."""
    if version != FORMAT_VERSION:
        do = "build the file again, or run that release"
        raise other_format(f"{name}: the sorted file", version, FORMAT_VERSION, do, file=name, offset=offset)


cdef int parse_footer(MappedFile self, const uint8_t* footer) except -1:
    """Read the footer's fields; each is compared with those that imply it before it is used."""
    cdef uint64_t at = self.size - FOOTER_SIZE
    cdef uint32_t crc = crc32c_of(footer + 4, FOOTER_SIZE - 4, 0)
    if memcmp(footer + 248, PyBytes_AS_STRING(FOOTER_MAGIC), 8) != 0:
        self.refuse(at + 248, "the footer is missing: the file was cut off or never finished")
    if crc != load32(footer):
        self.refuse(at, "the footer's checksum does not match", load32(footer), crc)
    check_format(self.name, load32(footer + 4), at + 4)
    if load64(footer + 8) != self.size:
        self.refuse(at + 8, "the file does not have the size that its footer states", load64(footer + 8), self.size)
    self.body_size = load64(footer + 16)
    self.record_count = load64(footer + 24)
    self.position_end = load64(footer + 32)
    self.records_end = load64(footer + 40)
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
        or self.records_end > self.size or self.metadata_offset > self.size or self.metadata_size > self.size
        or load64(footer + 48) > self.size or load64(footer + 80) > self.size or load64(footer + 96) > self.size
        or self.home_count > self.bucket_count or self.home_count == 0
        or self.record_count > self.position_end // 8
        or self.common_size > MAX_COMMON_PREFIX or self.compression > COMPRESSION_LZ4
    ):
        self.refuse(at + 16, "the footer contradicts itself")
    return check_layout(self, footer, at)


cdef int check_layout(MappedFile self, const uint8_t* footer, uint64_t at) except -1:
    """Compare the regions with each other and with the file, and set the pointers to them."""
    cdef uint64_t offset = load64(footer + 48), index_end, anchors_end, blocks_end
    cdef uint32_t crc
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
        self.refuse(at + 40, "the footer's regions overlap, or extend beyond the file")
    self.index = self.base + offset
    self.anchor_words = self.base + load64(footer + 80)
    self.anchor_positions = self.anchor_words + 8 * self.anchor_count
    self.blocks = self.base + load64(footer + 96)
    self.page_checksums = self.base + self.body_size
    self.chunk_checksums = self.page_checksums + 4 * self.page_count
    crc = crc32c_of(self.chunk_checksums, <Py_ssize_t> (4 * self.chunk_count), 0)
    if crc != load32(footer + 156):
        self.refuse(
            self.body_size + 4 * self.page_count, "the checksum of the checksums does not match",
            load32(footer + 156), crc,
        )
    return 0


cdef bint find_in_memory(MappedFile self, uint64_t page) noexcept nogil:
    if self.pretended != NULL:
        return is_pretended(self, page)
    if self.descriptor < 0 or map_is_lost(self.map):  # The zeros of a lost map need no disk.
        return True
    return is_in_memory(self.may_look, self.descriptor, self.base, page * PAGE_SIZE)


cdef bint is_pretended(MappedFile self, uint64_t page) noexcept nogil:
    """Return True if that page counts as in memory; if another was asked about before, 1 in 32 is then evicted."""
    cdef bint there = bit(self.pretended, page)
    if there and page == self.asked_last:
        return True
    self.asked_last = page
    self.drawn = self.drawn * 6364136223846793005ULL + 1442695040888963407ULL
    if there and self.drawn >> 59 == 0:
        clear_bits(self.pretended, page, page + 1)
    return there


@cython.no_gc  # Its members do not refer back to it, and the buffer is released explicitly.
cdef class MappedFile:
    """The bytes of a sorted file and the regions that its footer names."""

    def __cinit__(self, source, *, files=None, name=None, cache_bytes=None):
        cdef bint mapped = isinstance(source, (str, os.PathLike))
        self.descriptor = -1
        self.twins = []
        if isinstance(source, MappedFile):
            self.origin = source
            self.is_twin = True
            self.origin.ensure_open()
            self.name, self.descriptor, self.map = self.origin.name, self.origin.descriptor, self.origin.map
            source = <object> self.origin.buffer.obj
        elif mapped:
            self.name = os.fspath(source) if name is None else name
            source, self.descriptor = map_file(RealFiles() if files is None else files, source, self.name)
        else:
            self.name = "<buffer>" if name is None else name
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.holds_buffer = True
        self.base = <const uint8_t*> self.buffer.buf
        self.size = <uint64_t> self.buffer.len
        self.last_byte = self.base + self.size - 1
        try:
            if self.descriptor >= 0 and self.map == NULL:
                self.map = map_add(self.base, <size_t> self.size)
                if self.map == NULL:
                    raise MemoryError
            open_image(self)
        except BaseException as error:
            lost = self.loss() if self.map != NULL and map_is_lost(self.map) else None
            self.let_go()
            if lost is None:
                raise
            raise lost from error    # An error from the zeros themselves says little.
        if self.origin is not None:
            self.follow()
            return
        # Uncompressed files are assumed to fit into memory until `set_paged` says otherwise; compressed ones are for
        # data that does not fit.
        self.set_paged(self.compression != COMPRESSION_NONE)
        if pretence is not None:
            self.pretend(next(pretence))

    def __dealloc__(self):
        free(self.checked_pages)
        free(self.checked_chunks)
        free(self.pretended)
        free(self.there)
        self.let_go()

    cdef int let_go(self) except -1:
        self.base = NULL
        if self.map != NULL and not self.is_twin:
            map_remove(self.map)
        self.map = NULL
        if self.holds_buffer:
            self.holds_buffer = False
            PyBuffer_Release(&self.buffer)
            if self.descriptor >= 0 and not self.is_twin:
                close_descriptor(self.descriptor)
            self.descriptor = -1
        return 0

    def twin_for(self, guard):
        """Return the same file for another thread, closed with this one; each guard has one twin while it is in use.

        Within `guard` that thread reads nothing. Pinning a twin pins this file.
        """
        cdef MappedFile twin
        for twin in self.live_twins():
            if twin.guard is guard:
                return twin
        twin = type(self)(self)
        twin.guard = guard
        self.twins.append(weakref.ref(twin))
        return twin

    cdef list live_twins(self):
        self.twins = [twin for twin in self.twins if twin() is not None]
        return [twin() for twin in self.twins]

    cdef int follow(self) except -1:
        """Adopt the origin's residency and distrust."""
        if self.origin.paged:
            self.make_room_for_pages()
        self.may_look, self.paged = self.origin.may_look, self.origin.paged
        if self.origin.distrusted and not self.distrusted:
            self.distrusted = True
            self.forget_checks()
        return 0

    cdef int make_room_for_pages(self) except -1:
        if self.there == NULL:
            self.there = <uint8_t*> calloc(<size_t> (self.size // PAGE_SIZE // 8 + 1), 1)
            if self.there == NULL:
                raise MemoryError
        return 0

    cdef int tell_twins(self) except -1:
        """Let all twins adopt this file's settings."""
        cdef MappedFile twin
        for twin in self.live_twins():
            with twin.guard:
                twin.follow()
        return 0

    # -- opening and closing ---------------------------------------------------------------------------------------

    cdef int refuse(self, uint64_t offset, str reason, object expected=None, object got=None) except -1:
        raise Corrupt(self.name, offset, reason, expected=expected, got=got)

    cdef int ensure_open(self) except -1:
        if self.base == NULL:
            raise ValueError(f"{self.name}: the sorted file is closed")
        return 0

    def pin(self):
        """Forbid `close` until `unpin`, while a reader holds pointers into the file."""
        self.ensure_open()
        self.pins += 1
        if self.origin is not None:
            self.origin.pins += 1

    def unpin(self):
        """Undo one `pin`."""
        if self.pins <= 0:
            raise ValueError(f"{self.name}: the sorted file has no pin to remove")
        self.pins -= 1
        if self.origin is not None:
            self.origin.pins -= 1

    def close(self):
        """Unmap the file. Every later call raises `ValueError`; closing twice is harmless.

        Raises:
            BufferError: the file is pinned: a scan is under way, or the serving loop reads it.
        """
        if self.base == NULL:
            return
        if self.pins:
            raise BufferError(f"{self.name}: {self.pins} readers use the sorted file; close them first")
        for twin in self.live_twins():
            (<MappedFile>twin).let_go()
        self.let_go()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def size_bytes(self):
        """The size of the file."""
        return self.size

    @property
    def metadata(self):
        """The bytes that the builder stored with the file."""
        self.ensure_open()
        if self.metadata_size == 0:
            return b""
        if check_range(self, self.metadata_offset, self.metadata_size) < 0:
            raise self.damage()
        metadata = PyBytes_FromStringAndSize(
            <const char*> self.base + self.metadata_offset, <Py_ssize_t> self.metadata_size
        )
        if not is_whole(self):
            raise self.loss()
        return metadata

    @property
    def lost_at(self):
        """The offset of the first lost byte in the map, or None; a map with a lost byte answers nothing again."""
        self.ensure_open()
        return None if is_whole(self) else self.loss().offset

    # -- residency -------------------------------------------------------------------------------------------------

    @property
    def index_range(self):
        """The offset and the size of the index."""
        self.ensure_open()
        return <uint64_t> (self.index - self.base), self.bucket_count * BUCKET_SIZE

    def set_paged(self, bint paged):
        """Read the file by single pages, for files larger than memory, or in large pieces.

        Releases the GIL: requires that the file stays open meanwhile.
        """
        self.ensure_open()
        paged = paged or self.pretended != NULL
        if paged:
            self.make_room_for_pages()
        if self.descriptor >= 0 and paged and not self.paged:
            self.may_look = may_look(self.descriptor)
            with nogil:  # Dropping cached pages takes a tenth of a second per GB.
                read_by_page(
                    self.descriptor, <const char*> self.base, <size_t> self.size,
                    <size_t> (self.index - self.base), <size_t> (self.bucket_count * BUCKET_SIZE),
                )
        elif self.descriptor >= 0 and not paged:
            with nogil:
                read_by_stretch(self.descriptor, self.base, <size_t> self.size)
        self.paged = paged
        self.tell_twins()

    def prewarm(self, uint64_t first, uint64_t size):
        """Wait until those bytes of the file are in memory, and mapped. Call it in a thread, since it blocks.

        Ignores unreadable bytes; their readers will fail. Requires: the file stays open meanwhile.
        """
        cdef uint64_t at = first - first % PAGE_SIZE, end = min(first + size, self.size)
        self.ensure_open()
        if self.descriptor < 0 or at >= end:
            return
        with nogil:
            file_read_ahead(self.descriptor, <off_t> at, <off_t> (end - at))
            populate(self.base + at, <size_t> (end - at))

    def pretend(self, uint64_t seed):
        """Simulate missing pages: each is missing until a pager reads it, and now and then again. For tests."""
        self.ensure_open()
        self.pretended = <uint8_t*> calloc(<size_t> (self.size // PAGE_SIZE // 8 + 1), 1)
        if self.pretended == NULL:
            raise MemoryError
        self.drawn = seed * 2 + 1
        self.set_paged(True)

    cdef bint is_in_memory(self, uint64_t offset, uint64_t size) noexcept nogil:
        """Return True if those bytes are known to be in memory; else record the range from the first missing page."""
        cdef uint64_t page = offset // PAGE_SIZE, end = offset + size
        cdef uint64_t epoch = atomic_load(&this_epoch)
        if self.epoch != epoch:
            self.epoch = epoch
            clear_bits(self.there, 0, self.size // PAGE_SIZE + 1)
        while page * PAGE_SIZE < end:
            if not bit(self.there, page):
                if not find_in_memory(self, page):
                    fault(self, FAULT_COLD, page * PAGE_SIZE)
                    self.fault_size = end - page * PAGE_SIZE
                    return False
                if self.pretended == NULL:
                    set_bit(self.there, page)
            page += 1
        return True

    cdef void note_read(self, uint64_t offset, uint64_t size) noexcept nogil:
        """Record that a pager has read those bytes."""
        cdef uint64_t page = offset // PAGE_SIZE
        if self.pretended != NULL:
            while page * PAGE_SIZE < offset + size:
                set_bit(self.pretended, page)
                page += 1

    # -- checking --------------------------------------------------------------------------------------------------

    cdef object damage(self):
        """Return the exception for the last fault of a nogil function, or for the loss of the file."""
        if not is_whole(self):
            return self.loss()
        if self.fault_reason == FAULT_MEMORY:
            return MemoryError()
        if self.fault_reason == FAULT_PAGE or self.fault_reason == FAULT_CHUNK:
            return Corrupt(
                self.name, self.fault_offset, FAULT_TEXT[self.fault_reason],
                expected=self.fault_expected, got=self.fault_got,
            )
        return Corrupt(self.name, self.fault_offset, FAULT_TEXT[self.fault_reason])

    cdef bint lose(self) noexcept nogil:
        """Make the map unreadable for good, whatever happens to the file; returns False."""
        if self.map != NULL:
            map_lose(self.map, self.size - 1)
        return False

    cdef object loss(self):
        cdef uint64_t offset = self.size - 1 if self.map == NULL else map_lose(self.map, self.size - 1)
        return Corrupt(self.name, offset, "the file was cut short while it was mapped, or its disk failed")

    cdef int check_page(self, uint64_t page) noexcept nogil:
        """Compare one page with its checksum, and that checksum's page with its own; record both results."""
        cdef uint64_t chunk = page * 4 // PAGE_SIZE, start, length
        if self.asks and not self.is_in_memory(self.body_size + chunk * PAGE_SIZE, min(
            <uint64_t> PAGE_SIZE, self.page_count * 4 - chunk * PAGE_SIZE
        )):
            return -1
        if not bit(self.checked_chunks, chunk):
            start = chunk * PAGE_SIZE
            length = min(<uint64_t> PAGE_SIZE, self.page_count * 4 - start)
            self.fault_got = crc32c_of(self.page_checksums + start, <Py_ssize_t> length, <uint32_t> chunk)
            self.fault_expected = load32(self.chunk_checksums + 4 * chunk)
            if self.fault_got != self.fault_expected:
                return fault(self, FAULT_CHUNK, self.body_size + start)
            if not self.distrusted:
                set_bit(self.checked_chunks, chunk)
        start = page * PAGE_SIZE
        length = min(<uint64_t> PAGE_SIZE, self.body_size - start)
        self.fault_got = crc32c_of(self.base + start, <Py_ssize_t> length, <uint32_t> page)
        self.fault_expected = load32(self.page_checksums + 4 * page)
        if self.fault_got != self.fault_expected:
            return fault(self, FAULT_PAGE, start)
        if not self.distrusted:
            set_bit(self.checked_pages, page)
        return 0

    def forget_checks(self, uint64_t part=0, uint64_t parts=1):
        """Forget the checks of one of `parts` equal parts of the file, so that its pages are checked when next read.

        Parts end between chunks, the pages that share a checksum of checksums. Harmless once the file is closed.
        """
        cdef uint64_t first, end
        cdef MappedFile twin
        assert part < parts, (part, parts)
        first = part * self.chunk_count // parts
        end = (part + 1) * self.chunk_count // parts
        clear_bits(self.checked_chunks, first, end)
        clear_bits(self.checked_pages, first * CHUNK_PAGES, min(end * CHUNK_PAGES, self.page_count))
        for twin in self.live_twins():
            with twin.guard:
                twin.forget_checks(part, parts)

    def distrust(self):
        """Check every page at each read from now on, since pages may come damaged from the disk after a good read."""
        self.distrusted = True
        self.forget_checks()
        self.tell_twins()

    def is_checked(self, uint64_t page):
        """Return True if a page may be read without a check."""
        assert page < self.page_count, (page, self.page_count)
        return bool(bit(self.checked_pages, page))


cdef tuple map_file(files, path, str name):
    """Return the whole file as a buffer, and a duplicate descriptor if that maps a real file, else -1.

    Raises:
        Corrupt: the file is empty, or was cut short just now.
        StorageError: the file system refuses.
    """
    try:
        descriptor = files.open(path, READ | getattr(os, "O_NONBLOCK", 0))  # Opening a pipe would wait for its writer.
        try:
            size = files.size(descriptor)
            if size == 0:
                raise Corrupt(name, 0, "the file is empty")
            try:
                buffer = files.map(descriptor, size)
            except ValueError as error:    # Python compares both sizes.
                raise Corrupt(name, size - 1, "the file was cut short while it was opened") from error
            return buffer, os.dup(descriptor) if isinstance(buffer, mmap.mmap) else -1
        finally:
            files.close(descriptor)
    except OSError as error:
        raise StorageError(f"{name}: cannot open the sorted file: {error.strerror or error}", {"file": name}) from error
