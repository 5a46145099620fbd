"""Temporary data of a build: parts in a scratch file, each with its checksum, read back in the order of writing.

    offset size field
    0      4    size of the part
    4      4    checksum of the part
    8      …    the part

The file loses its name as soon as it is open, so it disappears when the process ends, for whatever reason.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


from gossipkv.environment.seam import READ_WRITE_NEW
from gossipkv.errors import Corrupt

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef enum:
    PART_HEADER_SIZE = 8
    FIRST_SPOOL_BYTES = 4096


@cython.final
cdef class Scratch:
    """An append-only file of parts, without a name."""

    def __cinit__(self, files not None, str path not None):
        self.files = files
        self.path = path
        self.descriptor = -1
        self.descriptor = files.open(path, READ_WRITE_NEW, 0o600)
        files.unlink(path)

    def close(self):
        """Release the space; closing twice is harmless."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            self.files.close(descriptor)

    def __dealloc__(self):
        if self.descriptor >= 0:
            try:
                self.files.close(self.descriptor)
            except OSError:
                pass

    cdef int write_part(self, const uint8_t* data, uint32_t size) except -1 nogil:
        cdef uint8_t header[PART_HEADER_SIZE]
        store32(header, size)
        store32(header + 4, crc32c_of(data, size, 0))
        with gil:
            self.write_at(self.end, header, PART_HEADER_SIZE)
            self.write_at(self.end + PART_HEADER_SIZE, data, size)
        self.end += PART_HEADER_SIZE + size
        return 0

    cdef int write_at(self, uint64_t offset, const uint8_t* data, uint32_t size) except -1:
        self.files.pwrite(self.descriptor, PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ), offset)
        return 0

    cdef bytes read_part(self, uint64_t* cursor):
        """Return the part at `cursor`, which moves to the next; None at the end.

        Raises:
            Corrupt: the bytes read differ from those written.
        """
        cdef bytes header, part
        cdef const uint8_t* data
        cdef Py_ssize_t got
        cdef uint32_t size, crc
        cdef uint64_t offset = cursor[0]
        if offset >= self.end:
            return None
        header = self.files.pread(self.descriptor, PART_HEADER_SIZE, offset)
        if len(header) != PART_HEADER_SIZE:
            raise Corrupt(self.path, offset, "the scratch file ends too early")
        size = load32(PyBytes_AS_STRING(header))
        part = self.files.pread(self.descriptor, size, offset + PART_HEADER_SIZE)
        data, got = <const uint8_t*> PyBytes_AS_STRING(part), len(part)
        with nogil:
            crc = crc32c_of(data, got, 0)
        if <uint32_t> got != size or crc != load32(PyBytes_AS_STRING(header) + 4):
            raise Corrupt(self.path, offset, "a part of the scratch file differs from the written part")
        cursor[0] += PART_HEADER_SIZE + size
        return part


@cython.final
cdef class Spool:
    """An ordered byte buffer: in memory up to `limit`, then in a scratch file that `make_scratch()` opens."""

    def __cinit__(self, make_scratch not None, uint32_t limit):
        self.make_scratch = make_scratch
        self.limit = limit

    def __dealloc__(self):
        free(self.buffer)

    cdef int append(self, const uint8_t* data, uint32_t size) except -1 nogil:
        cdef uint8_t* grown
        cdef uint32_t capacity
        if self.used + size > self.capacity:
            if self.used + size > self.limit and self.used:
                with gil:
                    self.spill()
            capacity = max(<uint32_t> FIRST_SPOOL_BYTES, self.capacity)
            while capacity < self.used + size:
                capacity *= 2
            if capacity > self.capacity:
                grown = <uint8_t*> realloc(self.buffer, capacity)
                if grown == NULL:
                    with gil:
                        raise MemoryError
                self.buffer = grown
                self.capacity = capacity
        require(self.used + size <= self.capacity, "the buffer has room for the requested bytes")
        memcpy(self.buffer + self.used, data, size)
        self.used += size
        self.size += size
        return 0

    cdef int spill(self) except -1:
        if self.scratch is None:
            self.scratch = self.make_scratch()
        self.scratch.write_part(self.buffer, self.used)
        self.used = 0
        return 0

    cdef int rewind(self, uint64_t* cursor) except -1:
        """Begin reading; nothing may be appended any more."""
        if self.scratch is not None and self.used:
            self.spill()
        cursor[0] = 0
        return 0

    cdef bytes next_part(self, uint64_t* cursor):
        """Return the next bytes, or None at the end."""
        cdef bytes part
        if self.scratch is None:
            if cursor[0] or not self.used:
                return None
            cursor[0] = 1
            return (<const char*> self.buffer)[:self.used]
        part = self.scratch.read_part(cursor)
        if part is None:
            self.scratch.close()
        return part
