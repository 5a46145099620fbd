"""Sorted runs of spilled records, and their merge: of equal keys the newest run's record stays.

Runs of a level are merged into one of the next level when memory has no room for the parts of more. So neither memory
nor open files grow with the input. A run is a scratch file; its parts hold whole records:

    offset size field
    0      4    group
    4      4    size of the key
    8      4    size of the value
    12     …    key, value

If several threads build together, each merges its share of the groups from the runs of all. So a run keeps its places
in memory, for each part in which a group begins:

    offset size field
    0      4    the first group that begins in it
    4      8    its offset in the file

A reader therefore skips at most one part.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy


cdef enum:
    PART_SIZE = 262144          # Read size of a run: long enough to amortize seeks, short enough for many runs.
    MAX_FAN_IN = 128            # Maximum of open files in a merge.
    PLACE_SIZE = 12

cdef extern from *:
    """
    #define GKV_NO_GROUP 0xFFFFFFFFU
    """
    const uint32_t NO_GROUP "GKV_NO_GROUP"


cdef class OrderedRecords:
    """Records in order by (group, key), without duplicate keys: the input of sorted files and runs."""

    cdef int next(self, RunEntry* entry) except -1 nogil:
        """Return 1 and the next record, the last of its equals; 0 at the end. It is valid until the next call."""
        with gil:
            raise NotImplementedError

    def write_group(self, SortedFileWriter writer not None, uint32_t group, Py_ssize_t limit):
        """Append up to `limit` records of `group` to `writer`; returns how many, less than `limit` only at its end."""
        cdef RunEntry entry
        cdef Py_ssize_t done = 0
        with nogil:
            while done < limit:
                if self.pending.key == NULL:
                    if not self.next(&entry):
                        break
                    self.pending = entry
                if self.pending.group != group:
                    break
                writer.append(self.pending.key, self.pending.key_size, self.pending.value, self.pending.value_size)
                self.pending.key = NULL
                done += 1
        return done

    cdef uint32_t write_run(self, Scratch scratch, bytearray places) except 0:
        """Write all of `next` in parts of whole records, and append their places; returns the longest part's size."""
        cdef RunEntry entry
        cdef uint32_t used = 0, size, capacity = PART_SIZE, group = NO_GROUP
        cdef uint8_t place[PLACE_SIZE]
        cdef bint placed = False
        cdef uint8_t* grown
        cdef uint8_t* part = <uint8_t*> malloc(capacity)
        if part == NULL:
            raise MemoryError
        try:
            with nogil:
                while self.next(&entry):
                    size = RECORD_HEADER_SIZE + entry.key_size + entry.value_size
                    if used + size > capacity:
                        if used:
                            scratch.write_part(part, used)
                            used = 0
                            placed = False
                        if size > capacity:
                            grown = <uint8_t*> realloc(part, size)
                            if grown == NULL:
                                with gil:
                                    raise MemoryError
                            part = grown
                            capacity = size
                    if entry.group != group:
                        group = entry.group
                        if not placed:
                            placed = True
                            store32(place, group)
                            store64(place + 4, scratch.end)
                            with gil:
                                places += (<const char*> place)[:PLACE_SIZE]
                    store32(part + used, entry.group)
                    store32(part + used + 4, entry.key_size)
                    store32(part + used + 8, entry.value_size)
                    memcpy(part + used + RECORD_HEADER_SIZE, entry.key, entry.key_size)
                    memcpy(part + used + RECORD_HEADER_SIZE + entry.key_size, entry.value, entry.value_size)
                    used += size
                    require(used <= capacity, "a part has whole records")
                if used:
                    scratch.write_part(part, used)
        finally:
            free(part)
        return capacity


cdef class Source:
    """An ordered source of a merge, without duplicate keys; `entry` is its record after `advance` returns True."""

    cdef bint advance(self) except -1 nogil:
        """Step to the next record; returns False at the end. The record before becomes invalid."""
        with gil:
            raise NotImplementedError

    cdef int refuse_order(self) except -1:
        """Raise an error, since the current record is lower than an earlier one."""
        raise AssertionError("a source yields records in the order of groups and keys")


@cython.final
cdef class OrderedSource(Source):
    """A source of records that are in order already."""

    def __cinit__(self, OrderedRecords records not None):
        self.records = records

    cdef bint advance(self) except -1 nogil:
        return self.records.next(&self.entry)


@cython.final
cdef class RunReader(Source):
    """Reads the records of a run in groups from `first_group` up to, but without, `end_group`."""

    def __cinit__(
        self, Scratch scratch not None, bytes places not None, uint32_t largest_part, int level=0,
        uint32_t first_group=0, uint32_t end_group=NO_GROUP, bint borrowed=False,
    ):
        self.scratch = scratch
        self.places = places
        self.largest_part = largest_part
        self.level = level
        self.first_group = first_group
        self.end_group = end_group
        self.borrowed = borrowed
        if first_group:
            self.find_start()

    def share(self, uint32_t first_group, uint32_t end_group):
        """Return another reader of the run, for some groups. Lifetime: until the run's own reader is closed."""
        return RunReader(self.scratch, self.places, self.largest_part, 0, first_group, end_group, True)

    def close(self):
        """Release the run's space, unless another reader does."""
        if not self.borrowed:
            self.scratch.close()

    cdef int find_start(self) except -1:
        """Begin at the last part in which no group behind `first_group` begins first.

        If that part has no wanted records, the first wanted group begins in the next part of the places.
        """
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(self.places)
        cdef Py_ssize_t low = 0, count = len(self.places) // PLACE_SIZE, high = count, middle
        while low < high:
            middle = (low + high) // 2
            if load32(at + PLACE_SIZE * middle) <= self.first_group:
                low = middle + 1
            else:
                high = middle
        if low:
            self.offset = load64(at + PLACE_SIZE * (low - 1) + 4)
            self.next_place = self.scratch.end
            if low < count:
                self.next_place = load64(at + PLACE_SIZE * low + 4)
        return 0

    cdef bint load(self) except -1:
        """Load the next part, if there is one."""
        if self.next_place and self.part is not None:
            self.offset, self.next_place = self.next_place, 0
        self.part = None    # A long part is freed before the next one is read.
        self.part = self.scratch.read_part(&self.offset)
        if self.part is None:
            self.at = self.end = NULL
            return False
        self.at = <const uint8_t*> PyBytes_AS_STRING(self.part)
        self.end = self.at + len(self.part)
        return True

    cdef bint advance(self) except -1 nogil:
        """Step to the next record, if there is one. The parts' checksums hold, so their records are as written."""
        while True:
            if self.at == self.end:
                with gil:
                    if not self.load():
                        return False
            set_entry(&self.entry, self.at)
            self.at = self.entry.value + self.entry.value_size
            require(self.at <= self.end, "a part has whole records")
            if self.entry.group >= self.end_group:
                with gil:
                    self.part = None
                self.at = self.end = NULL
                self.offset, self.next_place = self.scratch.end, 0
                return False
            if self.entry.group >= self.first_group:
                self.next_place = 0
                return True


cdef class Merge(OrderedRecords):
    """The merge of sources in order of age, through a heap: of equal keys the newest record comes out."""

    def __cinit__(self):
        self.last_key = <uint8_t*> malloc(MAX_KEY_SIZE + 1)
        if self.last_key == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.last_key)
        free(self.heap)

    cdef int start_merge(self, list sources) except -1:
        """Begin with these sources, from the oldest to the newest; None reserves a place for a later one."""
        cdef Source source
        cdef int number
        self.merging = sources
        self.has_last = False
        self.behind = False
        free(self.heap)
        self.heap = <MergeHead*> malloc(max(<size_t> 1, <size_t> len(sources)) * sizeof(MergeHead))
        if self.heap == NULL:
            raise MemoryError
        self.heap_size = 0
        for number, source in enumerate(sources):
            if source is not None and source.advance():
                self.heap[self.heap_size].source = number
                self.heap[self.heap_size].owner = <void*> source
                look_at(&self.heap[self.heap_size], &source.entry)
                self.heap_size += 1
        for number in range(self.heap_size // 2 - 1, -1, -1):
            self.sift_down(number)
        return 0

    cdef int join(self, int number, Source source) except -1:
        """Add a source to the merge, at a place that is free or whose source has ended.

        Requires: no record above its first one was handed out.
        """
        cdef MergeHead head
        cdef int at, above
        assert number < len(self.merging) and self.heap_size < len(self.merging), (number, len(self.merging))
        assert not self.behind, "the source at the top stands at a record that is to come"
        self.merging[number] = source
        if not source.advance():
            return 0
        head.source = number
        head.owner = <void*> source
        look_at(&head, &source.entry)
        at = self.heap_size
        self.heap_size += 1
        while at > 0:
            above = (at - 1) // 2
            if not before(&head, &self.heap[above]):
                break
            self.heap[at] = self.heap[above]
            at = above
        self.heap[at] = head
        return 0

    cdef void sift_down(self, int at) noexcept nogil:
        cdef int child
        cdef MergeHead head = self.heap[at]
        while True:
            child = 2 * at + 1
            if child >= self.heap_size:
                break
            if child + 1 < self.heap_size and before(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not before(&self.heap[child], &head):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = head

    cdef const RunEntry* settle(self) except? NULL nogil:
        """Return the next record, which `take` has not handed out yet; NULL at the end."""
        cdef const RunEntry* found
        cdef int order
        while True:
            if self.behind:
                # The record handed out last lies in this source, which may move on only now.
                self.behind = False
                if (<Source> self.heap[0].owner).advance():
                    look_at(&self.heap[0], self.heap[0].entry)
                else:
                    self.heap_size -= 1
                    self.heap[0] = self.heap[self.heap_size]
                if self.heap_size:
                    self.sift_down(0)
            if self.heap_size == 0:
                return NULL
            found = self.heap[0].entry
            if not self.has_last or self.last_group < found.group:
                return found
            order = 1
            if self.last_group == found.group:
                order = compare_keys(self.last_key, self.last_size, found.key, found.key_size)
                if order < 0:
                    return found
            if order > 0:
                with gil:
                    (<Source> self.heap[0].owner).refuse_order()
            self.behind = True    # This is an older record of the same key.

    cdef int take(self) except -1 nogil:
        """Hand out the record that `settle` has found; it is valid until the next `settle`."""
        cdef const RunEntry* found = self.heap[0].entry
        self.behind = True
        self.has_last = True
        self.last_group = found.group
        self.last_size = found.key_size
        memcpy(self.last_key, found.key, found.key_size)
        return 0

    cdef int next(self, RunEntry* entry) except -1 nogil:
        cdef const RunEntry* found = self.settle()
        if found == NULL:
            return 0
        entry[0] = found[0]
        self.take()
        return 1


@cython.final
cdef class Runs(Merge):
    """Runs in order of age, within about `memory_bytes`; `make_scratch()` opens a fresh scratch file.

    Runs are written here one after the other, or added; after `start`, `write_group` drains their merge.
    """

    def __cinit__(self, make_scratch not None, uint64_t memory_bytes):
        self.make_scratch = make_scratch
        self.memory_bytes = memory_bytes
        self.readers = []
        self.largest_part = PART_SIZE

    def __len__(self):
        return len(self.readers)

    cdef int put_aside(self, OrderedRecords records) except -1:
        self.readers.append(self.write_reader(records, 0))
        return 0

    cdef RunReader write_reader(self, OrderedRecords records, int level):
        """Write a run of all `records`, and return its reader."""
        cdef Scratch scratch = self.make_scratch()
        cdef bytearray places = bytearray()
        self.largest_part = max(self.largest_part, records.write_run(scratch, places))
        return RunReader(scratch, bytes(places), self.largest_part, level)

    def add(self, RunReader run not None):
        """Add a run to the merge, as the newest."""
        self.largest_part = max(self.largest_part, run.largest_part)
        self.readers.append(run)

    def __iter__(self):
        """Iterate over the runs, from the oldest to the newest."""
        return iter(self.readers)

    # -- keeping them few ------------------------------------------------------------------------------------------

    cdef int fan_in(self) noexcept:
        """Return how many runs one merge may read: each keeps a part in memory, and parts get half of the memory."""
        return <int> min(
            <uint64_t> MAX_FAN_IN, max(<uint64_t> 2, self.memory_bytes // (2 * <uint64_t> self.largest_part))
        )

    cdef bint crowded(self) except -1:
        """Return True if one merge can read no more than the newest runs of the lowest level."""
        cdef RunReader reader
        cdef int fan_in = self.fan_in()
        if len(self.readers) < fan_in:
            return False
        for reader in self.readers[len(self.readers) - fan_in:]:
            if reader.level != 0:
                return False
        return True

    cdef int collapse(self) except -1:
        """Merge the newest runs of one level into one of the next, as long as a merge's worth of them exists."""
        cdef RunReader reader
        cdef int fan_in, level = 0
        while True:
            fan_in = self.fan_in()
            if len(self.readers) < fan_in:
                return 0
            for reader in self.readers[len(self.readers) - fan_in:]:
                if reader.level != level:
                    return 0
            level += 1
            self.replace(len(self.readers) - fan_in, fan_in, level)

    cdef int replace(self, Py_ssize_t first, Py_ssize_t count, int level) except -1:
        """Merge `count` runs from `first` on into one."""
        cdef RunReader reader
        self.start_merge(self.readers[first:first + count])
        merged = self.write_reader(self, level)
        for reader in self.merging:
            reader.close()
        self.merging = []
        self.readers[first:first + count] = [merged]
        return 0

    cdef uint64_t parts_bytes(self) except? 0:
        """Return the maximum size of the parts of the last merge.

        It is at most half of the memory, except for long records.
        """
        return <uint64_t> min(<Py_ssize_t> self.fan_in(), <Py_ssize_t> len(self.readers)) * self.largest_part

    def start(self, Source newest=None):
        """Begin the last merge, of no more runs than it may read, and of `newest`; no more runs may be written."""
        cdef RunReader reader
        cdef Py_ssize_t first, best, count
        cdef uint64_t total, least
        while len(self.readers) > self.fan_in():
            count = min(<Py_ssize_t> self.fan_in(), len(self.readers) - self.fan_in() + 1)
            # Neighbours keep the order of age; the shortest are chosen, so that none is copied again and again.
            best, least = 0, <uint64_t> -1
            for first in range(len(self.readers) - count + 1):
                total = 0
                for reader in self.readers[first:first + count]:
                    total += reader.scratch.end
                if total < least:
                    best, least = first, total
            self.replace(best, count, 0)
        self.start_merge(self.readers if newest is None else [*self.readers, newest])

    def close(self):
        """Release all scratch space."""
        cdef RunReader reader
        self.heap_size = 0
        self.merging = []
        readers, self.readers = self.readers, []
        for reader in readers:
            reader.close()


cdef inline void look_at(MergeHead* head, const RunEntry* entry) noexcept nogil:
    head.entry = entry
    head.group = entry.group
    head.word = word_of(entry.key, entry.key_size, 0)


cdef inline bint before(const MergeHead* a, const MergeHead* b) noexcept nogil:
    """Return True if the record of `a` comes first; of equal keys the newer source's comes first, and wins."""
    cdef int order
    if a.group != b.group:
        return a.group < b.group
    if a.word != b.word:
        return a.word < b.word
    order = compare_keys(a.entry.key, a.entry.key_size, b.entry.key, b.entry.key_size)
    return order < 0 or (order == 0 and a.source > b.source)
