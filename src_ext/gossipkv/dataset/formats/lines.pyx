"""Text in lines, chunk by chunk: the common part of all formats of lines.

Lines end with LF; the last may lack it.  A line within a chunk is taken in place, and the batch holds the chunk.  Only
a line cut by the end of a chunk is copied: its pieces are carried until the LF arrives.  A line over `max_line_bytes`
is refused as soon as that is certain.  Memory is therefore bounded by a chunk and twice the longest line.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr

from gossipkv.storage._storage cimport RecordBatch

from gossipkv.errors import SourceError

cdef enum:
    LF = 10


cdef class Lines:
    """Splits chunks into lines and puts their records into batches; a format implements `take`.

    Call `feed` with a chunk, and `fill` until it returns that the chunk is used up; after the last chunk, call
    `finish`.
    """

    def __cinit__(self, str name not None, Py_ssize_t max_value_bytes, *_args):
        self.name = name
        self.max_value_bytes = max_value_bytes
        self.chunk = b""
        self.carried = []
        self.line = 1

    # -- methods of a format ----------------------------------------------------------------------------------------

    cdef int begin(self, Py_ssize_t size, RecordBatch batch) except -1:
        """Prepare for lines of `size` bytes in all."""
        return 0

    cdef LineResult take(self, const uint8_t* line, Py_ssize_t size, RecordBatch batch) noexcept nogil:
        """Put the line's record into the batch; unless the result is TAKEN, nothing has changed."""
        return WRONG_LINE

    cdef str reason(self, bytes line):
        """Return why the line is no record, or cannot become one however it continues."""
        raise NotImplementedError

    # -- the lines -------------------------------------------------------------------------------------------------

    def feed(self, bytes chunk not None):
        """Set the next chunk, after the previous one was used up."""
        if self.at != PyBytes_GET_SIZE(self.chunk):
            raise ValueError("the previous chunk is not used up")
        self.chunk = chunk
        self.at = 0

    def fill(self, RecordBatch batch not None):
        """Fill the batch; True if the chunk is used up, False if the batch is full.

        Raises:
            SourceError: with `file`, `line` and `offset` (of the line's first byte) in its details.
        """
        cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(self.chunk)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.chunk), start = self.at, end = 0, first
        cdef const uint8_t* found
        cdef LineResult taken = TAKEN
        if self.carried:
            found = <const uint8_t*> memchr(data + start, LF, <size_t> (size - start))
            if found == NULL:
                self.carry(start)
                return True
            end = found - data
            if self.carried_bytes + (end - start) > self.max_line_bytes:
                self.refuse(b"".join(self.carried) + self.chunk[start:end])
            if len(self.carried) > 1 or end > start:  # If a batch was full, the line is joined already.
                self.carried = [b"".join([*self.carried, self.chunk[start:end]])]
                self.carried_bytes += end - start
                self.at = start = end
            if not self.take_whole(self.carried[0], batch):
                return False
            self.carried.clear()
            self.carried_bytes = 0
            self.at = start = end + 1
        first = batch.count
        self.begin(size - start, batch)
        with nogil:
            while True:
                found = <const uint8_t*> memchr(data + start, LF, <size_t> (size - start))
                if found == NULL:
                    break
                end = found - data
                if end - start > self.max_line_bytes:
                    taken = WRONG_LINE
                    break
                taken = self.take(data + start, end - start, batch)
                if taken != TAKEN:
                    break
                self.offset += <uint64_t> (end + 1 - start)
                self.line += 1
                start = end + 1
        self.at = start
        if batch.count > first:
            batch.hold(self.chunk)
        if taken == BATCH_FULL:
            return False
        if taken == WRONG_LINE:
            self.refuse(self.chunk[start:end])
        self.carry(start)
        return True

    def finish(self, RecordBatch batch not None):
        """Take the last line; True if none is left, False if the batch is full.

        Raises:
            SourceError: as `fill`.
        """
        if not self.carried:
            return True
        self.carried = [b"".join(self.carried)]
        if not self.take_whole(self.carried[0], batch):
            return False
        self.carried.clear()
        self.carried_bytes = 0
        return True

    cdef bint take_whole(self, bytes line, RecordBatch batch) except -1:
        """Take a line that is not in the chunk; False if the batch is full."""
        cdef Py_ssize_t first = batch.count, size = PyBytes_GET_SIZE(line)
        cdef LineResult taken
        self.begin(size, batch)
        taken = self.take(<const uint8_t*> PyBytes_AS_STRING(line), size, batch)
        if taken == BATCH_FULL:
            return False
        if taken == WRONG_LINE:
            self.refuse(line)
        if batch.count > first:
            batch.hold(line)
        self.offset += <uint64_t> size + 1
        self.line += 1
        return True

    cdef int carry(self, Py_ssize_t start) except -1:
        """Keep the rest of the chunk: the beginning of a line, or more of it."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.chunk)
        self.at = size
        if start < size:
            self.carried.append(self.chunk[start:])
            self.carried_bytes += size - start
            if self.carried_bytes > self.max_line_bytes:
                self.refuse(b"".join(self.carried))
        return 0

    cdef int refuse(self, bytes line) except -1:
        reason = self.reason(line)
        raise SourceError(
            f"{self.name}: line {self.line:,}, byte {self.offset:,}: {reason}",
            {"file": self.name, "line": self.line, "offset": self.offset, "reason": reason},
        )
