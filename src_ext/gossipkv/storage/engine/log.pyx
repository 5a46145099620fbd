"""Batches, and the frames of the log that carry them.

A frame begins at a multiple of 8 in its segment (`segments`), and is padded with zeros to the next one:

    offset size field
    0      4    CRC-32C, begun from the salt, of all following bytes up to the payload's end
    4      4    size of the payload in bytes
    8      8    position
    16     8    synced: the highest position known to be synced when the frame was written; 0 in a store without syncs
    24     1    kind: 1 batch, 2 mark, 3 next, 4 begin
    25     7    zero
    32     n    payload of a batch: its operations, end to end; of `next`: number and salt of the next segment, 8 bytes
                each; of `begin`: the life, 8 bytes; of a mark: nothing

The checksum is begun from the salt: the CRC-32C of the salt's eight bytes is continued with the frame's. So no frame
left from an earlier use of the file is ever valid, wherever it lies. Numbers are little-endian.

Every frame takes the position after the one before; a `begin` may take any higher position.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from gossipkv.storage._storage cimport (
    aligned8, checksum_between, checksums, crc32c_of, load32, load64, store32, store64,
)

from gossipkv.errors import LimitExceeded

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    FIRST_BYTES = 256               # Initial memory of a batch; most have one small record.
    KEPT_BYTES = 4194304            # Memory that frames keep for the next ones.

# Names for Python.
BATCH = BATCH_FRAME
MARK = MARK_FRAME
NEXT = NEXT_FRAME
BEGIN = BEGIN_FRAME
HEADER_BYTES = SEGMENT_HEADER_BYTES
FRAME_BYTES = FRAME_HEADER_BYTES
PUT = VALUE
DELETE = TOMBSTONE
MADE = NEW_SPACE
DROPPED = DROPPED_SPACE
KEY_LIMIT = MAX_KEY_BYTES
VALUE_LIMIT = MAX_VALUE_BYTES
BATCH_LIMIT = MAX_BATCH_BYTES


cdef uint32_t space_number(object space) except? 0xFFFFFFFF:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(space, &overflow)
    if overflow or not 0 <= number <= 0xFFFFFFFF:
        raise ValueError(f"{space!r} is not the number of a space: 0 to 4,294,967,295")
    return <uint32_t> number


cdef inline uint32_t space_at(const uint8_t* key) noexcept nogil:
    return <uint32_t> key[0] << 24 | <uint32_t> key[1] << 16 | <uint32_t> key[2] << 8 | key[3]


@cython.final
@cython.freelist(16)
cdef class Batch:
    """Operations that happen together or not at all, in order, encoded as in the log."""

    def __dealloc__(self):
        free(self.data)

    def put(self, space, bytes key not None, bytes value not None):
        """Set a key of a space to this value.

        Raises:
            LimitExceeded: the key, value or batch is too long; the batch is unchanged.
            ValueError: `space` is no space's number.
        """
        self.add(
            VALUE, space_number(space),
            <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
            <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
        )

    def delete(self, space, bytes key not None):
        """Delete a key of a space. Raises as `put`."""
        self.add(
            TOMBSTONE, space_number(space), <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), NULL, 0
        )

    def new_space(self, space):
        """Begin a space, whose number was never used before."""
        self.add(NEW_SPACE, space_number(space), NULL, 0, NULL, 0)

    def drop_space(self, space):
        """End a space, and delete everything in it."""
        self.add(DROPPED_SPACE, space_number(space), NULL, 0, NULL, 0)

    def extend(self, Batch more not None):
        """Append another batch; the whole relieves, or may fill, if both do. Raises LimitExceeded: it is unchanged."""
        cdef bint relieves = self.relieves and more.relieves
        self.reserve(more.used)
        if more.used:
            memcpy(self.data + self.used, more.data, <size_t> more.used)
        if self.records == 0:
            self.space = more.space
        self.is_mixed = self.is_mixed or more.is_mixed or (more.records > 0 and more.space != self.space)
        self.used += more.used
        self.count += more.count
        self.records += more.records
        self.puts += more.puts
        self.is_relief = relieves
        self.may_fill = self.may_fill and more.may_fill

    def overwrite(self, Py_ssize_t offset, bytes value not None):
        """Replace a value, or a part of one, at an offset of the payload. Raises ValueError: it ends beyond."""
        if not 0 <= offset <= self.used - PyBytes_GET_SIZE(value):
            raise ValueError(f"{len(value)} bytes at offset {offset} end beyond the batch of {self.used} bytes")
        memcpy(self.data + offset, PyBytes_AS_STRING(value), <size_t> PyBytes_GET_SIZE(value))

    cdef int add(
        self, uint8_t kind, uint32_t space,
        const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size,
    ) except -1:
        """Append one operation, with the space in front of the key."""
        cdef uint8_t* at
        if key_size > MAX_KEY_BYTES:
            raise LimitExceeded(
                f"a key has at most {MAX_KEY_BYTES:,} bytes, got {key_size:,}",
                {"limit": MAX_KEY_BYTES, "size": key_size},
            )
        if value_size > MAX_VALUE_BYTES:
            raise LimitExceeded(
                f"a value has at most {MAX_VALUE_BYTES:,} bytes, got {value_size:,}",
                {"limit": MAX_VALUE_BYTES, "size": value_size},
            )
        self.reserve(OPERATION_HEADER_BYTES + SPACE_BYTES + key_size + value_size)
        at = self.data + self.used
        at[0] = kind
        at[1] = <uint8_t> (key_size + SPACE_BYTES)
        at[2] = <uint8_t> ((key_size + SPACE_BYTES) >> 8)
        store32(at + 3, <uint32_t> value_size)
        at += OPERATION_HEADER_BYTES
        at[0] = <uint8_t> (space >> 24)
        at[1] = <uint8_t> (space >> 16)
        at[2] = <uint8_t> (space >> 8)
        at[3] = <uint8_t> space
        if key_size:
            memcpy(at + SPACE_BYTES, key, <size_t> key_size)
        if value_size:
            memcpy(at + SPACE_BYTES + key_size, value, <size_t> value_size)
        self.used += OPERATION_HEADER_BYTES + SPACE_BYTES + key_size + value_size
        self.count += 1
        if kind <= TOMBSTONE:
            if self.records == 0:
                self.space = space
            elif space != self.space:
                self.is_mixed = True
            self.records += 1
            self.puts += kind == VALUE
        return 0

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = max(self.capacity, <Py_ssize_t> FIRST_BYTES)
        cdef uint8_t* grown
        if more > MAX_BATCH_BYTES - self.used:
            raise LimitExceeded(
                f"a batch has at most {MAX_BATCH_BYTES:,} bytes, got {self.used + more:,}",
                {"limit": MAX_BATCH_BYTES, "size": self.used + more},
            )
        if self.used + more <= self.capacity:
            return 0
        while capacity < self.used + more:
            capacity *= 2
        grown = <uint8_t*> realloc(self.data, <size_t> capacity)
        if grown == NULL:
            raise MemoryError
        self.data = grown
        self.capacity = capacity
        return 0

    cdef tuple spaces_of(self, uint8_t least, uint8_t most):
        """Return the spaces of operations of these kinds, each once, in order of first use."""
        cdef Operation operation
        cdef const uint8_t* at = self.data
        cdef dict found = {}
        cdef uint64_t last = 1 << 32    # No space: most operations are of the space of the one before.
        memset(&operation, 0, sizeof(Operation))
        while at != self.data + self.used:
            at = next_operation(at, self.data + self.used, &operation)
            assert at != NULL, "a batch has whole operations"
            if least <= operation.kind <= most and space_at(operation.key) != last:
                last = space_at(operation.key)
                found[last] = None
        return tuple(found)

    @property
    def size_bytes(self):
        """The size of the payload."""
        return self.used

    @property
    def payload(self):
        """The operations, end to end."""
        return (<const char*> self.data)[:self.used] if self.used else b""

    @property
    def relieves(self):
        """True if the batch frees room or serves that: always without values, otherwise if its maker says so."""
        return self.is_relief or not (self.puts or self.made)

    @relieves.setter
    def relieves(self, bint is_relief):
        self.is_relief = is_relief

    @property
    def steps(self):
        """The space operations in order, as (kind, space); adjacent records of one space count as one `PUT`."""
        cdef Operation operation
        cdef const uint8_t* at = self.data
        cdef list found = []
        while at != self.data + self.used:
            at = next_operation(at, self.data + self.used, &operation)
            assert at != NULL, "a batch has whole operations"
            step = (VALUE if operation.kind <= TOMBSTONE else operation.kind, space_at(operation.key))
            if operation.kind > TOMBSTONE or not found or found[len(found) - 1] != step:
                found.append(step)
        return found

    @property
    def made(self):
        """The spaces that the batch makes."""
        return () if self.count == self.records else self.spaces_of(NEW_SPACE, NEW_SPACE)

    @property
    def dropped(self):
        """The spaces that the batch drops."""
        return () if self.count == self.records else self.spaces_of(DROPPED_SPACE, DROPPED_SPACE)


def operations(bytes payload not None):
    """Return the operations of a batch, as (kind, space, key, value).

    Raises:
        ValueError: the payload is no batch.
    """
    return listed(<const uint8_t*> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), None, False)


def space_changes(bytes payload not None):
    """Return the spaces that a batch makes or drops, in order, as (kind, space).

    Raises:
        ValueError: the payload is no batch.
    """
    return listed(<const uint8_t*> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), None, True)


cdef list listed(const uint8_t* at, Py_ssize_t size, frozenset spaces, bint only_changes):
    """Return the operations of a batch that touch `spaces`, or any space."""
    cdef Operation operation
    cdef const uint8_t* end = at + size
    cdef list found = []
    cdef bint is_wanted = spaces is None
    cdef uint64_t last = 1 << 32    # Space of the last operation, since most batches touch one space.
    while at != end:
        at = next_operation(at, end, &operation)
        if at == NULL:
            raise ValueError("the bytes are not operations of a batch")
        if spaces is not None and last != space_at(operation.key):
            last = space_at(operation.key)
            is_wanted = last in spaces
        if not is_wanted:
            continue
        if not only_changes:
            found.append((
                operation.kind,
                space_at(operation.key),
                (<const char*> operation.key + SPACE_BYTES)[:operation.key_size - SPACE_BYTES],
                (<const char*> operation.value)[:operation.value_size],
            ))
        elif operation.kind >= NEW_SPACE:
            found.append((operation.kind, space_at(operation.key)))
    return found


def frame_bytes(Py_ssize_t payload_bytes):
    """Return the size of a frame in its segment."""
    if not 0 <= payload_bytes <= MAX_BATCH_BYTES:
        raise ValueError(f"a frame cannot have {payload_bytes:,} bytes")
    return aligned8(FRAME_HEADER_BYTES + <uint64_t> payload_bytes)


cdef uint32_t seed_of(uint64_t salt) noexcept nogil:
    cdef uint8_t salted[8]
    store64(salted, salt)
    return crc32c_of(salted, 8, 0)


@cython.final
cdef class FrameBuffer:
    """Consecutive frames, stamped with the salt of their segment: the data of one write."""

    def __cinit__(self, uint64_t salt):
        self.seed = seed_of(salt)

    def __dealloc__(self):
        free(self.data)

    def append(self, uint8_t kind, uint64_t position, uint64_t synced, payload not None):
        """Append one frame; its payload is bytes, or a batch.

        Raises:
            ValueError: there is no such frame.
            BufferError: a view of the frames exists.
        """
        cdef Batch batch
        if type(payload) is Batch:
            batch = <Batch> payload
            self.append_bytes(kind, position, synced, batch.data, batch.used)
        else:
            self.append_bytes(
                kind, position, synced, <const uint8_t*> PyBytes_AS_STRING(<bytes?> payload), PyBytes_GET_SIZE(payload)
            )

    cdef int append_bytes(
        self, uint8_t kind, uint64_t position, uint64_t synced, const uint8_t* payload, Py_ssize_t size
    ) except -1:
        cdef Py_ssize_t total, capacity = max(self.capacity, <Py_ssize_t> FIRST_BYTES)
        cdef uint8_t* at
        if size > MAX_BATCH_BYTES or not can_be(kind, position, synced, <uint32_t> size):
            raise ValueError(f"a frame of kind {kind} at {position}, synced {synced}, cannot have {size:,} bytes")
        if self.views:
            raise BufferError("a view of the frames exists")
        total = <Py_ssize_t> aligned8(FRAME_HEADER_BYTES + <uint64_t> size)
        while capacity < self.used + total:
            capacity *= 2
        if capacity > self.capacity:
            at = <uint8_t*> realloc(self.data, <size_t> capacity)
            if at == NULL:
                raise MemoryError
            self.data = at
            self.capacity = capacity
        at = self.data + self.used
        store64(at + total - 8, 0)
        store32(at + 4, <uint32_t> size)
        store64(at + 8, position)
        store64(at + 16, synced)
        store64(at + 24, kind)
        if size:
            memcpy(at + FRAME_HEADER_BYTES, payload, <size_t> size)
        store32(at, crc32c_of(at + 4, FRAME_HEADER_BYTES - 4 + size, self.seed))
        self.used += total
        return 0

    def clear(self, uint64_t salt):
        """Start again with no frames, for a segment with this salt.

        Raises:
            BufferError: a view of the frames exists.
        """
        if self.views:
            raise BufferError("a view of the frames exists")
        self.seed = seed_of(salt)
        self.used = 0
        if self.capacity > KEPT_BYTES:
            free(self.data)
            self.data = NULL
            self.capacity = 0

    def view(self):
        """Return a view of the bytes; while it is held, nothing can be appended."""
        return memoryview(self)

    @property
    def size_bytes(self):
        """The size of all frames together."""
        return self.used

    def __getbuffer__(self, Py_buffer* view, int flags):
        # An empty buffer needs a valid address, too.
        PyBuffer_FillInfo(view, self, self.data if self.used else <uint8_t*> b"", self.used, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1


cdef inline bint can_be(uint64_t kind, uint64_t position, uint64_t synced, uint32_t size) noexcept nogil:
    """Return True if a frame may have such a header; checked for frames written and read.

    The position is higher than the synced one, which was written before; and no batch is empty.
    """
    if synced >= position:
        return False
    if kind == BATCH_FRAME:
        return 0 < size <= MAX_BATCH_BYTES
    if kind == MARK_FRAME:
        return size == 0
    if kind == NEXT_FRAME:
        return size == 16
    return kind == BEGIN_FRAME and size == 8


cdef inline bint ends_with_zeros(const uint8_t* header) noexcept nogil:
    """Return True if the padding of a payload is zero, since no checksum covers it."""
    cdef uint64_t end = FRAME_HEADER_BYTES + <uint64_t> load32(header + 4), i
    for i in range(end, aligned8(end)):
        if header[i] != 0:
            return False
    return True


@cython.final
@cython.freelist(16)
cdef class Frame:
    """A complete frame of a segment: its place and content."""


@cython.final
cdef class FrameParser:
    """Reads the frames in a part of a segment, and checks each: `buffer` begins at `base` of a file of `limit` bytes.

    `offset` is the start of the next frame; `position` is that of the last frame, 0 if any may come first. `first` is
    the position of the first frame read; `synced` is the highest position that any frame read calls synced.
    """

    def __cinit__(
        self, buffer, uint64_t salt, uint64_t offset=SEGMENT_HEADER_BYTES, uint64_t position=0,
        *, uint64_t base=0, limit=None
    ):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*> self.view.buf
        self.base = base
        self.limit = base + <uint64_t> self.view.len
        if limit is not None:
            self.limit = limit
        self.seed = seed_of(salt)
        self.offset = offset
        self.position = position
        if offset < base or offset % 8 or self.limit < base + <uint64_t> self.view.len:
            raise ValueError(f"no frame can begin at {offset} of {self.limit} bytes; the buffer begins at {base}")

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def next(self):
        """Return the next frame; None if there is no valid one.

        In that case `wanted` is the length from `offset` on that is needed to judge the frame there, or 0 if there is
        surely no valid one; `is_torn` is True if a part of the expected frame is there.
        """
        cdef const uint8_t* header = self.look()
        cdef Frame frame
        if header == NULL:
            return None
        frame = Frame.__new__(Frame)
        frame.offset = self.offset
        self.step(header)
        frame.end = self.offset
        frame.position = self.position
        frame.synced = load64(header + 16)
        frame.kind = header[24]
        frame.payload = (<const char*> header + FRAME_HEADER_BYTES)[:load32(header + 4)]
        return frame

    def each_batch(self, on_batch not None, name):
        """Call `on_batch(name, position, payload)` for each batch, up to a frame of another kind or an invalid one.

        This is `next` without an object for each frame, since most frames are batches.
        """
        cdef const uint8_t* header
        while True:
            header = self.look()
            if header == NULL or header[24] != BATCH_FRAME:
                return
            self.step(header)
            on_batch(name, self.position, (<const char*> header + FRAME_HEADER_BYTES)[:load32(header + 4)])

    def touching(self, frozenset spaces not None, uint64_t after, uint64_t until):
        """Return each batch above position `after` that touches `spaces`, as its position and those operations.

        Stops behind position `until`, behind a `next` (then `has_ended` is True), or before an invalid frame.

        Raises:
            ValueError: a payload is no batch.
        """
        cdef const uint8_t* header
        cdef list found = [], operations
        while not self.has_ended and self.position < until:
            header = self.look()
            if header == NULL or load64(header + 8) > until:
                break
            self.step(header)
            self.has_ended = header[24] == NEXT_FRAME
            if header[24] == BATCH_FRAME and self.position > after:
                operations = listed(header + FRAME_HEADER_BYTES, load32(header + 4), spaces, False)
                if operations:
                    found.append((self.position, operations))
        return found

    cdef const uint8_t* look(self) noexcept nogil:
        """Return the frame at `offset` if it is valid; else NULL, and set `wanted` and `is_torn`."""
        cdef uint64_t at = self.offset - self.base, here = <uint64_t> self.view.len, position, total
        cdef const uint8_t* header
        self.wanted = 0
        self.is_torn = False
        if self.limit < self.offset or self.limit - self.offset < FRAME_HEADER_BYTES:
            return NULL
        if here < at or here - at < FRAME_HEADER_BYTES:
            self.wanted = FRAME_HEADER_BYTES
            return NULL
        header = self.data + at
        position = load64(header + 8)
        if not can_be(load64(header + 24), position, load64(header + 16), load32(header + 4)):
            return NULL
        if self.position and position != self.position + 1 and (
            header[24] != BEGIN_FRAME or position <= self.position
        ):
            return NULL
        total = aligned8(FRAME_HEADER_BYTES + <uint64_t> load32(header + 4))
        if total > self.limit - self.offset:
            return NULL
        if total > here - at:
            self.wanted = total
            return NULL
        self.is_torn = not self.is_whole(at)
        if self.is_torn:
            return NULL
        return header

    cdef void step(self, const uint8_t* header) noexcept nogil:
        """Move behind the frame that `look` found."""
        self.offset += aligned8(FRAME_HEADER_BYTES + <uint64_t> load32(header + 4))
        self.position = load64(header + 8)
        self.synced = max(self.synced, load64(header + 16))
        if self.first == 0:
            self.first = self.position

    cdef bint is_whole(self, uint64_t at) noexcept nogil:
        """Return True if the complete frame at `at` has its checksum, and zeros behind its payload."""
        cdef const uint8_t* header = self.data + at
        cdef Py_ssize_t covered = FRAME_HEADER_BYTES - 4 + <Py_ssize_t> load32(header + 4)
        return ends_with_zeros(header) and load32(header) == crc32c_of(header + 4, covered, self.seed)

    def claims(self, uint64_t offset, uint64_t least=1):
        """Return the highest `synced`, at least `least`, of any valid frame at or behind `offset`; or 0.

        A frame may lie at any multiple of 8. Impossible headers, and those with nothing new, are skipped. Checksums of
        the others are derived from those of stretches, so the work is bounded by the buffer's size whatever its
        content: at most a stretch twice, and 32 products, for each eight bytes.
        """
        if offset < self.base:
            raise ValueError(f"{offset} lies before the buffer, which begins at {self.base}")
        return self.highest_claim(aligned8(offset) - self.base, max(least, <uint64_t> 1))

    cdef uint64_t highest_claim(self, uint64_t at, uint64_t least) except? 0xFFFFFFFFFFFFFFFF:
        cdef uint64_t here = <uint64_t> self.view.len, highest = 0, synced
        cdef uint32_t* stretches = NULL
        cdef const uint8_t* header
        cdef uint32_t size
        try:
            with nogil:
                while at + FRAME_HEADER_BYTES <= here:
                    header = self.data + at
                    at += 8
                    # In most of the data, only this word of a frame is so small.
                    if load64(header + 24) - BATCH_FRAME > BEGIN_FRAME - BATCH_FRAME:
                        continue
                    synced = load64(header + 16)
                    size = load32(header + 4)
                    if synced < least or synced <= highest:
                        continue
                    if not can_be(load64(header + 24), load64(header + 8), synced, size):
                        continue
                    if aligned8(FRAME_HEADER_BYTES + <uint64_t> size) > here - (at - 8):
                        continue
                    if not ends_with_zeros(header):
                        continue
                    if stretches == NULL:
                        stretches = checksums(self.data, here)
                        if stretches == NULL:
                            with gil:
                                raise MemoryError
                    if load32(header) == checksum_between(
                        self.data, stretches, at - 4, at - 8 + FRAME_HEADER_BYTES + size, self.seed
                    ):
                        highest = synced
        finally:
            free(stretches)
        return highest
