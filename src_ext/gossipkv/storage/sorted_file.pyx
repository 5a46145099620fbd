"""The sorted file for its users: lookups of one key or many by the hash index, and verification."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp
from posix.types cimport off_t


cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object sequence)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    object PySequence_Fast(object sequence, const char* message)

cdef enum:
    STAGGER = 6           # Lookups between two stages of a batch; more than a core's outstanding misses bring nothing.
    WINDOW = 32           # At least 3 * STAGGER + 1.
    LINE = 64
    FIRST_LINES = 3       # A record of some 100 bytes lies in these.
    PAGES_A_MIB = 1 << 20 >> 12
    VALUE_LINES = 32      # A batch prefetches at most this many lines of a value; the hardware prefetches the rest.

cdef struct PendingLookup:
    Slice key
    uint64_t hash
    uint32_t place


cdef inline int find_hashed(
    SortedFile self, const uint8_t* key, Py_ssize_t size, uint64_t hash, Slice* value
) noexcept nogil:
    cdef Record record
    cdef uint64_t position
    cdef int found = self.locate(key, size, hash, &record, &position)
    if found > 0:
        value[0] = record.value
    return found


cdef inline void prefetch_lines(SortedFile self, uint32_t place, int lines) noexcept nogil:
    """Prefetch a record's first lines; a prefetch of a wrong address is harmless."""
    cdef const uint8_t* at = self.base + HEADER_SIZE - 8 + <uint64_t> place * 8
    cdef int line
    prefetch(at)
    prefetch(at + LINE)
    prefetch(at + 2 * LINE)
    for line in range(FIRST_LINES, lines):
        prefetch(at + line * LINE)


cdef inline uint32_t candidate(SortedFile self, uint64_t hash) noexcept nogil:
    """Return the first place along the key's buckets that may be the key's; 0 also if a bucket's page is unchecked.

    A place that is wrong by a bit could lead into a value that looks like the record, so its page must be checked
    first.
    """
    cdef uint64_t bucket = bucket_of(hash, self.home_count)
    cdef const uint8_t* line
    cdef uint32_t mask
    while bucket < self.bucket_count:
        line = self.index + bucket * BUCKET_SIZE
        if not bit(self.checked_pages, <uint64_t> (line - self.base) // PAGE_SIZE):
            return 0
        mask = match12(line, <uint8_t> hash)
        if mask:
            return load32(line + BUCKET_POSITIONS_AT + 4 * lowest_bit(mask))
        if not load32(line + BUCKET_CARRIED_AT) & carried_bit(hash):
            return 0
        bucket += 1
    return 0


cdef void read_bucket_ahead(SortedFile self, uint64_t hash) noexcept nogil:
    """Start reading the key's bucket from the disk: the first stage of a batch from a paged file."""
    cdef uint64_t offset = <uint64_t> (self.index - self.base) + bucket_of(hash, self.home_count) * BUCKET_SIZE
    if self.descriptor >= 0:
        file_read_ahead(self.descriptor, <off_t> (offset - offset % PAGE_SIZE), PAGE_SIZE)


cdef void read_record_ahead(SortedFile self, uint64_t hash) noexcept nogil:
    """Start reading the begin of the key's record from the disk: the second stage."""
    cdef uint64_t position = <uint64_t> candidate(self, hash) * 8
    if 0 < position <= self.position_end:
        self.read_ahead(position - 8, position)


cdef int place_of(SortedFile self, bytes key, uint64_t* position) except -1:
    """Find the position of the first record not below `key`, through the index if the key exists, like a cursor's."""
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(key)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
    cdef Record record
    cdef int found = self.locate(data, size, hash64_of(data, size, self.seed), &record, position)
    if found == 0:
        found = seek(self, data, size, position)
    if found < 0:
        raise self.damage()
    return 0


cdef int verify_anchor(SortedFile self, uint64_t anchor, uint64_t position, bytes key) except -1:
    """Check that the anchor of a stretch names its first record."""
    cdef uint64_t words = <uint64_t> (self.anchor_words - self.base) + 8 * anchor
    cdef uint64_t places = <uint64_t> (self.anchor_positions - self.base) + 4 * anchor
    if anchor >= self.anchor_count:
        return 0    # Too few anchors: the caller compares their number at the end.
    if load32(self.base + places) != position // 8 + 1:
        self.refuse(places, "an anchor does not point to the first record of its stretch")
    if load64(self.base + words) != word_of(
        <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.common_size
    ):
        self.refuse(words, f"an anchor's word does not match its key {key!r}")
    return 0


cdef uint64_t place_in_file(SortedFile self, uint64_t position):
    """Return the file offset of a position, for an error."""
    if self.compression == COMPRESSION_NONE:
        return HEADER_SIZE + position
    return self.block_offset(position // PAGE_SIZE)


@cython.no_gc
@cython.final
cdef class SortedFile(RecordReader):
    """An immutable, checksummed map from bytes to bytes, in key order, read in place.

    `source` is a path, or a buffer with a whole file. Opening reads the header, the footer, and four bytes for each 4
    MiB; every other page is checked when it is first touched.

    Raises:
        Corrupt: damage; names file, offset and reason. Also raised by every read of a damaged page.
        UnsupportedFormat: another kind of file, or a newer format.
        StorageError: the file cannot be opened or mapped.

    Lifetime: values are copies. `close` refuses with `BufferError` during a scan or after `pin`.
    """

    def __cinit__(self, source, *, files=None, name=None, cache_bytes=None):
        if self.record_count:
            self.record_lines = <int> min(
                <uint64_t> VALUE_LINES, (self.key_bytes + self.value_bytes) // self.record_count // LINE + 2
            )

    # -- lookup ----------------------------------------------------------------------------------------------------

    cdef int find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil:
        """Return 1 and the value, 0 if absent, -1 if damaged."""
        return find_hashed(self, key, size, hash64_of(key, size, self.seed), value)

    cdef inline int locate(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, Record* record, uint64_t* position
    ) noexcept nogil:
        """Return 1, the key's record and its position; 0 if absent, -1 if damaged."""
        cdef uint64_t bucket = bucket_of(hash, self.home_count), offset
        cdef const uint8_t* line
        cdef uint32_t mask, place
        if self.asks and not self.is_in_memory(self.size - 1, 1):  # `is_whole` reads the last byte.
            return -1
        while True:
            if bucket >= self.bucket_count:
                return fault(self, FAULT_CHAIN, <uint64_t> (self.index - self.base))
            line = self.index + bucket * BUCKET_SIZE
            offset = <uint64_t> (line - self.base)
            if self.asks and not self.is_in_memory(offset, BUCKET_SIZE):
                return -1
            if not bit(self.checked_pages, offset // PAGE_SIZE):
                if self.check_page(offset // PAGE_SIZE) < 0:
                    return -1
            mask = match12(line, <uint8_t> hash)
            while mask:
                place = load32(line + BUCKET_POSITIONS_AT + 4 * lowest_bit(mask))
                mask &= mask - 1
                if place == 0:
                    continue  # The fingerprint of an empty slot is zero, like that of some keys.
                position[0] = <uint64_t> place * 8 - 8
                if position[0] >= self.position_end:
                    return fault(self, FAULT_PLACE, offset)
                if self.compression == COMPRESSION_NONE:
                    prefetch_lines(self, place, self.record_lines)
                    if read_raw(self, position[0], record) < 0:
                        return -1
                elif self.read_compressed(position[0], record, False) < 0:
                    return -1
                if record.key.size == size and memcmp(record.key.data, key, <size_t> size) == 0:
                    return 1
            if not load32(line + BUCKET_CARRIED_AT) & carried_bit(hash):
                return 0
            bucket += 1

    cdef uint64_t prefetch_bucket(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """Prefetch the key's bucket, and return the hash for the later stages: the first stage of a batch."""
        cdef uint64_t hash = hash64_of(key, size, self.seed)
        prefetch(self.index + bucket_of(hash, self.home_count) * BUCKET_SIZE)
        return hash

    cdef uint32_t prefetch_record(self, uint64_t hash) noexcept nogil:
        """Prefetch the record (or the compressed block's table entry), and return its place: the second stage.

        A paged file yields no place: only the last stage may wait for a page, or query its residency.
        """
        cdef uint32_t position = 0 if self.paged else candidate(self, hash)
        if position == 0:
            return 0
        if self.compression == COMPRESSION_NONE:
            prefetch_lines(self, position, FIRST_LINES)
        else:
            prefetch(self.blocks + 8 * ((<uint64_t> position * 8 - 8) // PAGE_SIZE))
        return position

    cdef void prefetch_value(self, uint32_t position) noexcept nogil:
        """Prefetch the value's further lines: the third stage, for long values."""
        cdef uint64_t at = <uint64_t> position * 8 - 8, line
        cdef Record record
        cdef Slice rest
        if position == 0 or self.compression != COMPRESSION_NONE or at >= self.position_end:
            return
        rest.data = self.base + HEADER_SIZE + at
        rest.size = <Py_ssize_t> (self.position_end - at)
        if parse_record(rest, &record) == 0:
            return
        for line in range(FIRST_LINES, min(<uint64_t> VALUE_LINES, <uint64_t> (record.value.size // LINE + 1))):
            prefetch(rest.data + line * LINE)

    cdef int find_at(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, uint32_t position, Slice* value
    ) noexcept nogil:
        """Return the record found by the second stage if it is the key's, else look the key up: the last stage."""
        cdef Record record
        if position and self.compression == COMPRESSION_NONE:
            if read_raw(self, <uint64_t> position * 8 - 8, &record) == 0:
                if record.key.size == size and memcmp(record.key.data, key, <size_t> size) == 0:
                    value[0] = record.value
                    return 1
        return find_hashed(self, key, size, hash, value)

    # -- Python ----------------------------------------------------------------------------------------------------

    def get(self, bytes key not None):
        """Return the value of `key`, or None.

        Raises:
            Corrupt: a page of the lookup is damaged.
        """
        cdef Slice value
        cdef int found
        if self.base == NULL:
            self.ensure_open()
        found = self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value)
        if found > 0:
            answer = PyBytes_FromStringAndSize(<const char*> value.data, value.size)
            if is_whole(self):
                return answer
        elif found == 0 and is_whole(self):
            return None
        raise self.damage()

    def get_many(self, keys):
        """Return the values of `keys`, in their order, with None for absent keys.

        Lookups are staggered, so that many of them share one memory latency.

        Raises:
            Corrupt: a page of a lookup is damaged.
        """
        cdef object sequence = PySequence_Fast(keys, "keys must be a sequence of bytes")
        cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence), i
        cdef PyObject** items = PySequence_Fast_ITEMS(sequence)
        cdef PendingLookup window[WINDOW]
        cdef PendingLookup* pending
        cdef Slice value
        cdef int found
        cdef object key, answer
        cdef list answers
        cdef bint long_values
        self.ensure_open()
        if self.compression != COMPRESSION_NONE:
            # Python's lz4 may let other threads run, which might change a list.
            sequence = tuple(keys)
            items = PySequence_Fast_ITEMS(sequence)
            count = PySequence_Fast_GET_SIZE(sequence)
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
                if self.paged:
                    read_bucket_ahead(self, pending.hash)
            if STAGGER <= i < count + STAGGER:
                pending = &window[(i - STAGGER) % WINDOW]
                pending.place = self.prefetch_record(pending.hash)
                if self.paged:
                    read_record_ahead(self, pending.hash)
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
        if not is_whole(self):
            raise self.loss()
        return answers

    def __contains__(self, bytes key not None):
        cdef Slice value
        cdef int found
        self.ensure_open()
        found = self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value)
        if found < 0 or not is_whole(self):
            raise self.damage()
        return found > 0

    def __len__(self):
        self.ensure_open()
        return self.record_count

    def scan(self, bytes start=None, bytes end=None, *, bytes prefix=None, bint reverse=False, limit=None):
        """Iterate over `(key, value)` in key order from `start` (inclusive) to `end` (exclusive), or backwards.

        `prefix` narrows both ends; `limit` bounds the number of records.

        Raises:
            Corrupt: on the step that meets a damaged page.
        """
        cdef uint64_t at = 0, stop = self.position_end
        self.ensure_open()
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        if prefix is not None:
            start = prefix if start is None or start < prefix else start
            after = prefix_end(prefix)
            if after is not None:
                end = after if end is None or end > after else end
        if start is not None:
            place_of(self, start, &at)
        if end is not None:
            place_of(self, end, &stop)
        return open_scan(self, at, stop, reverse, -1 if limit is None else limit)

    def verify(self, on_progress=lambda share: None):
        """Check every byte: all checksums, the order of keys, and that index and anchors lead to each record.

        `on_progress` is called after each MiB with the progress, from 0 to 1; checksums and records count for half
        each.

        Raises:
            Corrupt: the first damage found.
        """
        cdef uint64_t page, position = 0, seen = 0, anchors = 0, stretch = <uint64_t> -1
        cdef Record record
        cdef Slice value
        cdef bytes before = None, key
        self.ensure_open()
        for page in range(self.page_count):
            if page % PAGES_A_MIB == 0 and self.descriptor >= 0:
                file_read_ahead(self.descriptor, <off_t> (page * PAGE_SIZE), 2 * PAGES_A_MIB * PAGE_SIZE)
            if self.check_page(page) < 0:
                raise self.damage()
            if page % PAGES_A_MIB == 0:
                on_progress(page / <double> self.page_count / 2)
        while position < self.position_end:
            if read_record(self, position, &record) < 0:
                raise self.damage()
            key = PyBytes_FromStringAndSize(<const char*> record.key.data, record.key.size)
            if before is not None and before >= key:
                self.refuse(place_in_file(self, position), f"keys do not ascend: {key!r} after {before!r}")
            if not key.startswith(self.common_prefix[:self.common_size]):
                self.refuse(self.size - FOOTER_SIZE + 160, f"the key {key!r} lacks the prefix in the footer")
            if position // PAGE_SIZE != stretch:
                stretch = position // PAGE_SIZE
                verify_anchor(self, anchors, position, key)
                anchors += 1
                if anchors % PAGES_A_MIB == 0:
                    on_progress(0.5 + position / <double> self.position_end / 2)
            if self.find(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &value) <= 0:
                self.refuse(place_in_file(self, position), f"the index does not find the key {key!r}")
            position = record.next
            before = key
            seen += 1
        if seen != self.record_count:
            self.refuse(self.size - FOOTER_SIZE + 24, "the number of records does not match the footer",
                        self.record_count, seen)
        if anchors != self.anchor_count:
            self.refuse(self.size - FOOTER_SIZE + 88, "the number of anchors does not match the records",
                        anchors, self.anchor_count)
        if not is_whole(self):
            raise self.loss()

    def describe(self):
        """Return the footer's content, for people and scripts; sizes are in bytes."""
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


def prefix_end(bytes prefix not None):
    """Return the least key above all keys that begin with `prefix`; None if there is none."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef bytes end = PyBytes_FromStringAndSize(NULL, size)
    size = write_prefix_end(
        <const uint8_t*> PyBytes_AS_STRING(prefix), size, <uint8_t*> PyBytes_AS_STRING(end)
    )
    return end[:size] if size > 0 else None
