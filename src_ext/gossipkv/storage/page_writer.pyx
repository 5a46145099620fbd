"""The writer of a file of checksummed pages: bytes are written in order, in large writes, never through a map.

While pages are written, their checksums are collected; after `end_pages` plain bytes follow.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset


cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef enum:
    # Bytes of one write, at a multiple of its size. Linux keeps a write in one piece if the file system can, and maps
    # an aligned piece of 2 MiB by one page-table entry, which speeds lookups.
    WRITE_SIZE = 2097152
    BUFFER_SIZE = WRITE_SIZE + PAGE_SIZE
    NUDGE_SIZE = 16777216       # Writeback starts after this many bytes, so that the last sync is short.


@cython.final
cdef class PageWriter:
    """Append to a file from its start on; `checksums` receives four bytes a page.

    `on_write`, if there is one, is called with each write's size once it is done and on its way to the disk.
    """

    def __cinit__(self, files not None, int descriptor, Spool checksums not None, on_write=None):
        self.files = files
        self.descriptor = descriptor
        self.checksums = checksums
        self.on_write = on_write
        self.paged = True
        self.buffer = <uint8_t*> malloc(BUFFER_SIZE)
        if self.buffer == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.buffer)

    cdef uint64_t position(self) noexcept nogil:
        return self.flushed + self.used

    cdef uint8_t* room(self, uint64_t size) except NULL nogil:
        """Return room for `size` <= PAGE_SIZE bytes; the caller advances `used`."""
        if self.used >= WRITE_SIZE:
            self.write(WRITE_SIZE)
        require(self.used + size <= BUFFER_SIZE, "at most one page follows at most one write")
        return self.buffer + self.used

    cdef int append(self, const uint8_t* data, uint64_t size) except -1 nogil:
        cdef uint64_t part
        while size:
            if self.used >= WRITE_SIZE:
                self.write(WRITE_SIZE)
            part = min(size, <uint64_t> (WRITE_SIZE - self.used))
            memcpy(self.buffer + self.used, data, <size_t> part)
            self.used += <uint32_t> part
            data += part
            size -= part
        return 0

    cdef int pad(self, uint32_t alignment) except -1 nogil:
        """Append zeros up to a multiple of `alignment`, at most a page."""
        cdef uint32_t missing = <uint32_t> (-self.position() % alignment)
        if missing:
            memset(self.room(missing), 0, missing)
            self.used += missing
        return 0

    cdef int append_spool(self, Spool spool) except -1:
        cdef uint64_t cursor = 0, begun = self.position()
        cdef bytes part
        spool.rewind(&cursor)
        while True:
            part = spool.next_part(&cursor)
            if part is None:
                assert self.position() - begun == spool.size, "all that was put aside comes back"
                return 0
            self.append(<const uint8_t*> PyBytes_AS_STRING(part), <uint64_t> len(part))

    cdef int flush(self) except -1:
        """Write all buffered bytes; only after the pages have ended, since a part of a page is no page."""
        if self.used:
            self.write(self.used)
        return 0

    cdef int write(self, uint32_t size) except -1 nogil:
        cdef uint32_t start = 0, length
        cdef uint32_t crc
        require(size <= self.used <= BUFFER_SIZE, "the written bytes are in the buffer")
        if self.paged:
            require(self.flushed % PAGE_SIZE == 0, "pages lie end to end")
            while start < size:
                length = min(<uint32_t> PAGE_SIZE, size - start)
                crc = crc32c_of(self.buffer + start, length, <uint32_t> ((self.flushed + start) // PAGE_SIZE))
                self.checksums.append(<uint8_t*> &crc, 4)
                start += length
            require(
                self.checksums.size == 4 * ((self.flushed + size + PAGE_SIZE - 1) // PAGE_SIZE),
                "each page has a checksum",
            )
        with gil:
            self.hand_over(size)
        return 0

    cdef int hand_over(self, uint32_t size) except -1:
        """Write the first `size` bytes of the buffer."""
        self.files.pwrite(
            self.descriptor, PyMemoryView_FromMemory(<char*> self.buffer, size, PyBUF_READ), self.flushed
        )
        self.flushed += size
        self.used -= size
        if self.used:
            memcpy(self.buffer, self.buffer + size, self.used)  # Less than a page, copied from behind many.
        # Paced writes go to the disk at once, since a large backlog would delay syncs of others.
        if self.on_write is not None or self.flushed - self.nudged >= NUDGE_SIZE:
            self.files.start_writeback(self.descriptor, self.nudged, self.flushed - self.nudged)
            self.nudged = self.flushed
        if self.on_write is not None:
            self.on_write(size)
        return 0

    cdef int end_pages(self) except -1:
        """Write the last page, which may be short; later bytes have no checksums of their own."""
        self.flush()
        self.paged = False
        return 0
