"""The input of a store's merge, and its selection, by record: batches of the log into a sorter, and files of runs.

`gossipkv.storage._storage` has the heap, in which the newest record of a key wins, and the writer of sorted files.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.storage._storage cimport (
    HEADER_SIZE, MAX_KEY_SIZE, PAGE_SIZE, WALK_RECORD, Merge, Record, RecordSorter, RunEntry, SortedFile,
    SortedFileWriter, Source, Walk, compare_keys, is_whole, record_size, seek, walk_begin, walk_next,
)

from gossipkv.errors import Corrupt

cdef extern from "gossipkv/storage/region.h" nogil:
    void forget_pages "gkv_forget_pages"(const void* region, size_t size)

cdef enum:
    FORGET_SIZE = 2097152       # Maximum of a map's bytes that stay in memory behind the walk.
    SAMPLES = 1024
    FIRST_SAMPLE_BYTES = 16     # No record is shorter.
    STALE_SHARE = 3


cdef inline uint32_t space_of(const uint8_t* key) noexcept nogil:
    """Return the big-endian space of a key."""
    return <uint32_t> key[0] << 24 | <uint32_t> key[1] << 16 | <uint32_t> key[2] << 8 | key[3]


def add_operations(RecordSorter sorter not None, bytes payload not None, frozenset spaces not None):
    """Add the records of one batch that lie in `spaces`, in order; returns how many bytes of `payload` are operations.

    A result below the payload's size means that the next operation is invalid.
    """
    cdef const uint8_t* begin = <const uint8_t*> PyBytes_AS_STRING(payload)
    cdef const uint8_t* end = begin + PyBytes_GET_SIZE(payload)
    cdef const uint8_t* at = begin
    cdef const uint8_t* after
    cdef uint8_t* value
    cdef Operation operation
    cdef uint32_t space, last_space = 0
    cdef bint is_live = 0 in spaces
    while at < end:
        after = next_operation(at, end, &operation)
        if after == NULL:
            break
        at = after
        if operation.kind >= NEW_SPACE:
            continue
        space = space_of(operation.key)
        if space != last_space:
            last_space, is_live = space, space in spaces
        if is_live:
            value = sorter.make_room(0, operation.key, operation.key_size, 1 + <Py_ssize_t> operation.value_size)
            value[0] = operation.kind
            memcpy(value + 1, operation.value, operation.value_size)
    return at - begin


@cython.final
cdef class FilesSource(Source):
    """Reads sorted files with ascending keys one after the other, each front to back, from `start` on.

    `open_file(path)` opens the next file when the one before has ended, so one file at a time is open. `on_read` is
    called now and then with the number of bytes read since the last call, including those of skipped records.
    """

    cdef object open_file
    cdef object on_read
    cdef list paths
    cdef bytes start
    cdef Py_ssize_t next_path
    cdef SortedFile file              # The current file; None between two files.
    cdef Walk walk
    cdef uint64_t forgotten           # Bytes that were reported, and released from the map.

    def __cinit__(self, open_file not None, paths not None, bytes start not None, on_read not None):
        self.open_file = open_file
        self.on_read = on_read
        self.paths = list(paths)
        self.start = start

    cdef int open_next(self) except -1:
        cdef uint64_t at = 0
        self.file = self.open_file(self.paths[self.next_path])
        self.next_path += 1
        self.forgotten = 0
        if seek(self.file, <const uint8_t*> PyBytes_AS_STRING(self.start), PyBytes_GET_SIZE(self.start), &at) < 0:
            raise self.file.damage()
        walk_begin(self.file, &self.walk, at, self.file.position_end, False)
        return 0

    cdef bint advance(self) except -1 with gil:
        cdef Record record
        cdef uint64_t position
        cdef int result
        while True:
            if self.file is None:
                if self.next_path == len(self.paths):
                    return False
                self.open_next()
            result = walk_next(self.file, &self.walk, &record, &position)
            if result == WALK_RECORD:
                break
            if result < 0:
                raise self.file.damage()
            self.on_read(self.file.position_end - self.forgotten)
            self.close_file()
        if record.key.size < SPACE_BYTES or record.value.size < 1 or not VALUE <= record.value.data[0] <= TOMBSTONE:
            self.refuse("a record has no space or no flag")
        if position - self.forgotten >= FORGET_SIZE:
            position -= position % PAGE_SIZE
            if self.file.map != NULL:
                # Other readers may use the file, so its pages stay in the system's cache, and leave only this process.
                forget_pages(self.file.base + self.forgotten, <size_t> (position - self.forgotten))
            self.on_read(position - self.forgotten)
            self.forgotten = position
        self.entry.key = record.key.data
        self.entry.key_size = <uint32_t> record.key.size
        self.entry.value = record.value.data
        self.entry.value_size = <uint32_t> record.value.size
        return True

    cdef int refuse_order(self) except -1:
        return self.refuse("keys do not ascend")

    cdef int refuse(self, str reason) except -1:
        """Raise `Corrupt` for a file with valid checksums that no merge has written."""
        if not is_whole(self.file):
            raise self.file.loss()
        raise Corrupt(self.file.name, HEADER_SIZE + self.walk.at, reason + " before this place")

    cdef int close_file(self) except -1:
        """Close the current file. Its records were copied, and are valid if the file was whole until now."""
        self.confirm()
        if self.file is not None:
            file, self.file = self.file, None
            file.close()
        return 0

    def confirm(self):
        """Check that all bytes read from the file were really there.

        Raises:
            Corrupt: the file was cut short meanwhile, or its disk failed.
        """
        if self.file is not None and not is_whole(self.file):
            raise self.file.loss()


cdef class MergeFilter:
    """Tells when records may leave the disk; this one keeps all of them. Subclasses know the bytes of values."""

    cdef uint64_t leaves_ms(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t size
    ) noexcept:
        """Return the time of day from which a record may leave, if all goes well: `LEAVES_NOW`, or `NEVER_LEAVES`.

        The key begins with its space.
        """
        return NEVER_LEAVES


@cython.final
cdef class StoreMerge(Merge):
    """The merge of sources, from the oldest to the newest; only records of live `spaces` come out.

    With `drops_tombstones` no tombstones come out; without, they replace the records that the filter lets go. With
    `purges` only the target's records come out, without those that newer sources hide. The first place is for the files
    of the target, which join one by one.
    """

    cdef frozenset spaces
    cdef bint drops_tombstones, purges
    cdef uint32_t space               # The space looked up last.
    cdef bint has_space, is_live
    cdef MergeFilter leaving
    cdef uint64_t leaves_ms           # The time of the record that `stays` looked at last.
    cdef readonly uint64_t records, tombstones
    cdef uint64_t expiring
    # Times from which bytes of the file may leave: one byte in `sample_bytes` is looked at.
    cdef uint64_t[SAMPLES] samples
    cdef int sampled
    cdef uint64_t sample_bytes, seen_bytes, next_sample
    cdef uint8_t* written_key
    cdef uint32_t written_size

    def __cinit__(
        self, list sources not None, frozenset spaces not None, MergeFilter leaving not None, bint drops_tombstones,
        bint purges,
    ):
        self.spaces = spaces
        self.leaving = leaving
        self.begin_samples()
        self.drops_tombstones = drops_tombstones
        self.purges = purges
        self.written_key = <uint8_t*> malloc(MAX_KEY_SIZE + 1)
        if self.written_key == NULL:
            raise MemoryError
        self.start_merge([None, *sources])

    def __dealloc__(self):
        free(self.written_key)

    def join_oldest(self, FilesSource files not None):
        """Add files to the merge, as the oldest source. Requires: those added before have ended."""
        self.settle()
        self.join(0, files)

    def next_key(self):
        """Return the next key, whether or not its record stays; None at the end."""
        cdef const RunEntry* found = self.settle()
        return None if found == NULL else PyBytes_FromStringAndSize(<const char*> found.key, found.key_size)

    def next_kept(self, bytes bound):
        """Return the next key below `bound` (None: any) whose record stays; skips the records before it."""
        cdef const RunEntry* found = self.look(bound)
        return None if found == NULL else PyBytes_FromStringAndSize(<const char*> found.key, found.key_size)

    cdef bint stays(self, const RunEntry* entry) except -1:
        """Return True if the record that `settle` has just found comes out."""
        cdef uint32_t space = space_of(entry.key)
        if self.purges and self.heap[0].source:
            return False
        if not self.has_space or space != self.space:
            self.has_space = True
            self.space = space
            self.is_live = space in self.spaces
        if not self.is_live:
            return False
        if entry.value[0] == TOMBSTONE:
            return not self.drops_tombstones
        self.leaves_ms = self.leaving.leaves_ms(entry.key, entry.key_size, entry.value + 1, entry.value_size - 1)
        return not (self.drops_tombstones and self.leaves_ms == LEAVES_NOW)

    cdef void begin_samples(self) noexcept:
        self.sampled = 0
        self.seen_bytes = 0
        self.sample_bytes = self.next_sample = FIRST_SAMPLE_BYTES

    cdef void sample(self, uint64_t size, uint64_t leaves_ms) noexcept:
        """Count bytes that may leave at a time."""
        cdef int at
        self.seen_bytes += size
        while self.next_sample <= self.seen_bytes:
            if self.sampled == SAMPLES:  # Keep every second sample, so they stay evenly spaced.
                self.sampled = SAMPLES // 2
                for at in range(self.sampled):
                    self.samples[at] = self.samples[2 * at + 1]
                self.sample_bytes *= 2
                self.next_sample += self.sample_bytes // 2
                continue
            self.samples[self.sampled] = leaves_ms
            self.sampled += 1
            self.next_sample += self.sample_bytes

    cdef const RunEntry* look(self, bytes bound) except? NULL:
        cdef const RunEntry* found
        cdef const uint8_t* end = NULL if bound is None else <const uint8_t*> PyBytes_AS_STRING(bound)
        while True:
            found = self.settle()
            if found == NULL:
                return NULL
            if end != NULL and compare_keys(found.key, found.key_size, end, PyBytes_GET_SIZE(bound)) >= 0:
                return NULL
            if self.stays(found):
                return found
            self.take()

    def write(self, SortedFileWriter writer not None, bytes bound, uint64_t file_bytes):
        """Append the kept records below `bound`; returns True if the file is full before the next of them."""
        cdef const RunEntry* found
        cdef uint8_t tombstone = TOMBSTONE
        while True:
            found = self.look(bound)
            if found == NULL:
                return False
            if self.records and writer.size_with(record_size(found.key_size, found.value_size)) > file_bytes:
                return True
            self.records += 1
            if found.value[0] == TOMBSTONE or self.leaves_ms == LEAVES_NOW:
                writer.append(found.key, found.key_size, &tombstone, 1)
                self.tombstones += 1
                self.sample(found.key_size, NEVER_LEAVES)
            else:
                writer.append(found.key, found.key_size, found.value, found.value_size)
                self.expiring += self.leaves_ms != NEVER_LEAVES
                self.sample(found.key_size + found.value_size, self.leaves_ms)
            self.written_size = found.key_size
            memcpy(self.written_key, found.key, found.key_size)
            self.take()

    def end_file(self):
        """Return the counts of the file that ends here.

        These are its records, its last key, its tombstones, its records with an expiry, and the time from which a third
        of its bytes may leave; 0: never.
        """
        times = sorted([self.samples[at] for at in range(self.sampled)])
        stale_ms = times[len(times) // STALE_SHARE] if times else NEVER_LEAVES
        cdef object counts = (
            self.records, PyBytes_FromStringAndSize(<const char*> self.written_key, self.written_size),
            self.tombstones, self.expiring, 0 if stale_ms == NEVER_LEAVES else stale_ms,
        )
        self.records = self.tombstones = self.expiring = 0
        self.begin_samples()
        return counts

    def confirm(self):
        """Check that all records that came out were really in their files.

        Raises:
            Corrupt: a file was cut short meanwhile, or its disk failed.
        """
        for source in self.merging:
            if isinstance(source, FilesSource):
                (<FilesSource> source).confirm()
