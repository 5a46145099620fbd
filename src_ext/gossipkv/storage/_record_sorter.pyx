"""External sorting of records by (group, key): any number in, in bounded memory, in order out, the last of equals kept.

Records are collected in an arena; a full one is sorted and put aside as a run; runs are merged.  Sorting is by words:
eight bytes of key at a time through a radix sort, descending only into items whose words are equal, so that keys are
compared byte by byte only where few are left.  Runs of a level are merged into one of the next when there are as many
as memory has room for parts of, so neither memory nor open files grow with the input.

A record in the arena and in a run:

    offset size field
    0      4    group
    4      4    size of the key
    8      4    size of the value
    12     …    key, value
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from gossipkv.storage._batch cimport Batch, Record
from gossipkv.storage._format cimport (
    MAX_COMMON_PREFIX, MAX_KEY_SIZE, MAX_VALUE_SIZE, compare_keys, hash64_of, load32, mix, prefetch, store32, word_of,
)
from gossipkv.storage._radix cimport Item, radix_sort
from gossipkv.storage._scratch cimport Scratch
from gossipkv.storage._sorted_file_writer cimport SortedFileWriter

from gossipkv.errors import LimitExceeded

cdef extern from "gossipkv/storage/region.h" nogil:
    void* region_resize "gkv_region_resize"(void* old, size_t old_size, size_t size)
    void region_free "gkv_region_free"(void* region, size_t size)

cdef enum:
    RECORD_HEADER_SIZE = 12
    FIRST_ARENA = 65536
    FIRST_ITEMS = 1024
    PART_SIZE = 262144          # What a run is read in: long enough that seeks vanish, short enough for many runs.
    FEW = 24                    # Below this many equal words, keys are compared whole.
    AHEAD = 12                  # Records asked for before they are read, in an order that the cache cannot guess.
    MAX_FAN_IN = 128            # Open files of one merge.
    MAX_GROUPS = 65536


@cython.final
cdef class RecordSorter:
    """Sorts records by (group, key) within about `memory_bytes`; later records replace earlier ones of the same key.

    `make_scratch()` opens a fresh scratch file.  After `finish_adding`, `write_group` drains group after group.
    """

    def __cinit__(self, make_scratch not None, uint64_t memory_bytes, uint32_t group_count=1):
        cdef uint32_t group
        if not 1 <= group_count <= MAX_GROUPS:
            raise LimitExceeded(f"a build has 1 to {MAX_GROUPS} partitions, got {group_count}")
        self.make_scratch = make_scratch
        self.memory_bytes = memory_bytes
        self.group_count = group_count
        self.group_bytes = 0 if group_count == 1 else 3
        self.runs = []
        self.duplicates = <uint64_t*> calloc(group_count, sizeof(uint64_t))
        self.prefixes = <Prefix*> malloc(group_count * sizeof(Prefix))
        self.last_key = <uint8_t*> malloc(MAX_KEY_SIZE + 1)
        if self.duplicates == NULL or self.prefixes == NULL or self.last_key == NULL:
            raise MemoryError
        for group in range(group_count):
            self.prefixes[group].size = -1

    def __dealloc__(self):
        self.release_memory()
        free(self.duplicates)
        free(self.prefixes)
        free(self.last_key)
        free(self.heap)

    # -- adding ----------------------------------------------------------------------------------------------------

    def add(self, bytes key not None, bytes value not None, uint32_t group=0):
        """Add one record.

        Raises:
            LimitExceeded: the key or the value is too long.
        """
        self.add_record(
            group, <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
            <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
        )

    def add_all(self, records, uint32_t group=0):
        """Add an iterable of (key, value): `add` without a call for each."""
        cdef bytes key, value
        for key, value in records:
            if key is None or value is None:
                raise TypeError(f"a record is a pair of bytes, got {(key, value)!r}")
            self.add_record(
                group, <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
            )

    def add_batch(self, Batch batch not None):
        """Add the records of a batch, each to its group."""
        cdef Record* record
        cdef Py_ssize_t number
        for number in range(batch.count):
            record = &batch.records[number]
            self.add_record(record.group, record.key, record.key_size, record.value, record.value_size)

    cdef int add_record(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1:
        cdef uint64_t size = RECORD_HEADER_SIZE + <uint64_t> key_size + <uint64_t> value_size
        cdef uint8_t* at
        if key_size > MAX_KEY_SIZE or value_size > MAX_VALUE_SIZE or group >= self.group_count:
            self.refuse(group, key_size, value_size)
        if self.used + size > self.capacity or self.count == self.item_capacity or self.finished:
            self.grow(size)
        if self.count == 0:
            self.shared = key_size
        elif self.shared:
            self.note_shared(key, key_size)
        at = self.arena + self.used
        store32(at, group)
        store32(at + 4, <uint32_t> key_size)
        store32(at + 8, <uint32_t> value_size)
        memcpy(at + RECORD_HEADER_SIZE, key, <size_t> key_size)
        memcpy(at + RECORD_HEADER_SIZE + key_size, value, <size_t> value_size)
        self.items[self.count].place = self.used
        self.count += 1
        self.used += size
        self.added += 1
        self.hash_sum += hash64_of(key, key_size, 0)
        self.note_prefix(group, key, key_size)
        return 0

    cdef int refuse(self, uint32_t group, Py_ssize_t key_size, Py_ssize_t value_size) except -1:
        """One clear error for a record that no sorted file can hold."""
        if group >= self.group_count:
            raise ValueError(f"group must be below {self.group_count}, got {group}")
        if key_size > MAX_KEY_SIZE:
            raise LimitExceeded(
                f"a key is at most {MAX_KEY_SIZE} bytes long, got {key_size}", {"limit": MAX_KEY_SIZE, "got": key_size}
            )
        raise LimitExceeded(
            f"a value is at most {MAX_VALUE_SIZE} bytes long, got {value_size}",
            {"limit": MAX_VALUE_SIZE, "got": value_size},
        )

    cdef inline void note_shared(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """Shorten what all keys in memory share to what `key` shares, too."""
        cdef const uint8_t* first = self.arena + RECORD_HEADER_SIZE
        cdef Py_ssize_t shared = 0, most = min(self.shared, size)
        if self.shared <= size and memcmp(first, key, <size_t> self.shared) == 0:
            return
        while shared < most and first[shared] == key[shared]:
            shared += 1
        self.shared = shared

    cdef inline int note_prefix(self, uint32_t group, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """The same for all keys of a group, of which a sorted file keeps the first bytes."""
        cdef Prefix* prefix = &self.prefixes[group]
        cdef int shared = 0, most
        if prefix.size == 0:
            return 0
        if prefix.size < 0:
            prefix.size = <int> min(size, <Py_ssize_t> MAX_COMMON_PREFIX)
            memcpy(prefix.bytes, key, <size_t> prefix.size)
            return 0
        most = <int> min(<Py_ssize_t> prefix.size, size)
        while shared < most and prefix.bytes[shared] == key[shared]:
            shared += 1
        prefix.size = shared
        return 0

    cdef int grow(self, uint64_t size) except -1:
        """Make room for a record of `size`: in memory while that is allowed, else by putting a run aside."""
        cdef uint64_t wanted
        cdef void* grown
        if self.finished:
            raise ValueError("the build is finished: it takes no more records")
        # An item needs a spare beside it while it is sorted.
        if self.count and self.used + size + <uint64_t> (self.count + 1) * 2 * sizeof(Item) > self.memory_bytes:
            self.spill()
        if self.used + size > self.capacity:
            wanted = max(<uint64_t> FIRST_ARENA, 2 * self.capacity)
            if wanted > self.memory_bytes:
                wanted = max(self.capacity, self.memory_bytes)
            wanted = max(wanted, self.used + size)
            grown = region_resize(self.arena, <size_t> self.capacity, <size_t> wanted)
            if grown == NULL:
                raise MemoryError
            self.arena = <uint8_t*> grown
            self.capacity = wanted
        if self.count == self.item_capacity:
            wanted = max(<uint64_t> FIRST_ITEMS, 2 * <uint64_t> self.item_capacity)
            grown = region_resize(
                self.items, <size_t> self.item_capacity * sizeof(Item), <size_t> wanted * sizeof(Item)
            )
            if grown == NULL:
                raise MemoryError
            self.items = <Item*> grown
            self.item_capacity = <Py_ssize_t> wanted
        return 0

    # -- sorting in memory -----------------------------------------------------------------------------------------

    cdef inline uint64_t word(self, uint64_t place, int level) noexcept nogil:
        """Eight bytes of (group, key behind what all share), at a level of eight bytes each."""
        cdef const uint8_t* at = self.arena + place
        cdef Py_ssize_t size = <Py_ssize_t> load32(at + 4)
        if level == 0 and self.group_bytes:
            return (<uint64_t> load32(at) << 40) | (word_of(at + RECORD_HEADER_SIZE, size, self.shared) >> 24)
        return word_of(at + RECORD_HEADER_SIZE, size, self.shared + 8 * level - self.group_bytes)

    cdef inline int compare(self, uint64_t a, uint64_t b) noexcept nogil:
        cdef const uint8_t* left = self.arena + a
        cdef const uint8_t* right = self.arena + b
        return compare_keys(
            left + RECORD_HEADER_SIZE, <Py_ssize_t> load32(left + 4),
            right + RECORD_HEADER_SIZE, <Py_ssize_t> load32(right + 4),
        )

    cdef void sort_few(self, Item* items, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i, j
        cdef Item item
        for i in range(1, count):
            item = items[i]
            j = i
            while j > 0 and self.compare(items[j - 1].place, item.place) > 0:
                items[j] = items[j - 1]
                j -= 1
            items[j] = item

    cdef void sort_range(self, Item* items, Item* spare, Py_ssize_t count, int level) noexcept nogil:
        """Sort items that agree in all bytes before `level`; equal keys stay in the order of adding."""
        cdef Py_ssize_t start = 0, stop, i
        cdef Py_ssize_t depth = self.shared + 8 * (level + 1) - self.group_bytes
        cdef bint longer
        for i in range(count):
            if i + AHEAD < count:
                prefetch(self.arena + items[i + AHEAD].place)
            items[i].word = self.word(items[i].place, level)
        radix_sort(items, spare, count, 0)
        while start < count:
            stop = start + 1
            while stop < count and items[stop].word == items[start].word:
                stop += 1
            if stop - start > 1:
                if stop - start <= FEW:
                    self.sort_few(items + start, stop - start)
                else:
                    longer = False
                    for i in range(start, stop):
                        if <Py_ssize_t> load32(self.arena + items[i].place + 4) > depth:
                            longer = True
                            break
                    if longer:
                        self.sort_range(items + start, spare, stop - start, level + 1)
                    else:
                        # Equal but for zeros at their ends: the shorter key comes first.
                        for i in range(start, stop):
                            items[i].word = load32(self.arena + items[i].place + 4)
                        radix_sort(items + start, spare, stop - start, 0)
            start = stop

    cdef int sort(self) except -1:
        cdef size_t size = <size_t> max(<Py_ssize_t> 1, self.count) * sizeof(Item)
        cdef Item* spare = <Item*> region_resize(NULL, 0, size)
        if spare == NULL:
            raise MemoryError
        with nogil:
            self.sort_range(self.items, spare, self.count, 0)
        region_free(spare, size)
        self.next_item = 0
        return 0

    # -- runs ------------------------------------------------------------------------------------------------------

    cdef int spill(self) except -1:
        """Sort what is in memory and put it aside as a run."""
        cdef RunReader reader
        cdef Scratch scratch = self.make_scratch()
        self.sort()
        self.write_run(scratch)
        reader = RunReader(scratch, 0)
        self.runs.append(reader)
        self.used = 0
        self.count = 0
        self.collapse()
        return 0

    cdef int fan_in(self):
        """How many runs one merge may read: each holds a part in memory, and half of it is for them."""
        return <int> min(
            <uint64_t> MAX_FAN_IN, max(<uint64_t> 2, self.memory_bytes // (2 * max(<uint32_t> 1, self.largest_part)))
        )

    cdef int collapse(self) except -1:
        """Merge the newest runs of one level into one of the next while there are as many as fit."""
        cdef RunReader reader
        cdef int fan_in, level = 0
        while True:
            fan_in = self.fan_in()
            if len(self.runs) < fan_in:
                return 0
            for reader in self.runs[len(self.runs) - fan_in:]:
                if reader.level != level:
                    return 0
            level += 1
            self.merge_newest(fan_in, level)

    cdef int merge_newest(self, Py_ssize_t count, int level) except -1:
        """Make one run of the newest `count`."""
        cdef RunReader reader
        cdef Scratch scratch = self.make_scratch()
        self.release_memory()   # Room for the parts.
        self.start_merge(self.runs[len(self.runs) - count:])
        self.write_run(scratch)
        for reader in self.readers:
            reader.scratch.close()
        self.readers = None
        self.runs[len(self.runs) - count:] = [RunReader(scratch, level)]
        return 0

    cdef int write_run(self, Scratch scratch) except -1:
        """Write what `next` yields, in parts of whole records."""
        cdef Entry entry
        cdef uint32_t used = 0, size, capacity = PART_SIZE
        cdef uint8_t* grown
        cdef uint8_t* part = <uint8_t*> malloc(capacity)
        if part == NULL:
            raise MemoryError
        try:
            while self.next(&entry):
                size = RECORD_HEADER_SIZE + entry.key_size + entry.value_size
                if used + size > capacity:
                    if used:
                        scratch.write_part(part, used)
                        used = 0
                    if size > capacity:
                        grown = <uint8_t*> realloc(part, size)
                        if grown == NULL:
                            raise MemoryError
                        part = grown
                        capacity = size
                store32(part + used, entry.group)
                store32(part + used + 4, entry.key_size)
                store32(part + used + 8, entry.value_size)
                memcpy(part + used + RECORD_HEADER_SIZE, entry.key, entry.key_size)
                memcpy(part + used + RECORD_HEADER_SIZE + entry.key_size, entry.value, entry.value_size)
                used += size
            if used:
                scratch.write_part(part, used)
            self.largest_part = max(self.largest_part, capacity)
        finally:
            free(part)
        return 0

    cdef int start_merge(self, list readers) except -1:
        cdef RunReader reader
        cdef int number
        self.readers = readers
        self.has_last = False
        self.pending = False
        free(self.heap)
        self.heap = <int*> malloc(max(<size_t> 1, <size_t> len(readers)) * sizeof(int))
        if self.heap == NULL:
            raise MemoryError
        self.heap_size = 0
        for number, reader in enumerate(readers):
            if reader.advance():
                self.heap[self.heap_size] = number
                self.heap_size += 1
        for number in range(self.heap_size // 2 - 1, -1, -1):
            self.sift_down(number)
        return 0

    cdef bint before(self, int a, int b):
        """Whether run `a`'s record comes before run `b`'s; of equal keys the newer run's comes first, and wins."""
        cdef Entry* left = &(<RunReader> self.readers[a]).entry
        cdef Entry* right = &(<RunReader> self.readers[b]).entry
        cdef int order
        if left.group != right.group:
            return left.group < right.group
        order = compare_keys(left.key, left.key_size, right.key, right.key_size)
        return order < 0 or (order == 0 and a > b)

    cdef void sift_down(self, int at):
        cdef int child, run = self.heap[at]
        while True:
            child = 2 * at + 1
            if child >= self.heap_size:
                break
            if child + 1 < self.heap_size and self.before(self.heap[child + 1], self.heap[child]):
                child += 1
            if not self.before(self.heap[child], run):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = run

    # -- the order -------------------------------------------------------------------------------------------------

    cdef int next(self, Entry* entry) except -1:
        """1 and the next record, the last of its equals; 0 at the end.  It lives until the next call."""
        if self.readers is None:
            return self.next_from_memory(entry)
        return self.next_from_runs(entry)

    cdef inline bint next_from_memory(self, Entry* entry) noexcept nogil:
        cdef const uint8_t* at
        cdef const uint8_t* after
        while self.next_item < self.count:
            if self.next_item + AHEAD < self.count:
                at = self.arena + self.items[self.next_item + AHEAD].place
                prefetch(at)
                prefetch(at + 64)
                prefetch(at + 128)
            at = self.arena + self.items[self.next_item].place
            self.next_item += 1
            if self.next_item < self.count:
                after = self.arena + self.items[self.next_item].place
                if (
                    load32(at) == load32(after) and load32(at + 4) == load32(after + 4)
                    and memcmp(at + RECORD_HEADER_SIZE, after + RECORD_HEADER_SIZE, load32(at + 4)) == 0
                ):
                    self.duplicates[load32(at)] += 1
                    continue
            set_entry(entry, at)
            return True
        return False

    cdef int next_from_runs(self, Entry* entry) except -1:
        cdef RunReader reader
        cdef Entry* found
        while True:
            if self.pending:
                # The record handed out last lies in this run's part: only now may the run move on.
                self.pending = False
                reader = self.readers[self.heap[0]]
                if not reader.advance():
                    self.heap_size -= 1
                    self.heap[0] = self.heap[self.heap_size]
                if self.heap_size:
                    self.sift_down(0)
            if self.heap_size == 0:
                return 0
            self.pending = True
            found = &(<RunReader> self.readers[self.heap[0]]).entry
            if (
                self.has_last and found.group == self.last_group and found.key_size == self.last_size
                and memcmp(found.key, self.last_key, found.key_size) == 0
            ):
                self.duplicates[found.group] += 1
                continue
            self.has_last = True
            self.last_group = found.group
            self.last_size = found.key_size
            memcpy(self.last_key, found.key, found.key_size)
            entry[0] = found[0]
            return 1

    # -- draining --------------------------------------------------------------------------------------------------

    def finish_adding(self):
        """No more records come: sort, or put the last run aside and start the merge."""
        if self.finished:
            raise ValueError("the build is finished already")
        self.finished = True
        if not self.runs:
            self.sort()
            return
        if self.count:
            self.spill()
        self.release_memory()
        while len(self.runs) > self.fan_in():
            self.merge_newest(min(self.fan_in(), len(self.runs) - self.fan_in() + 1), 0)
        self.start_merge(self.runs)

    @property
    def seed(self):
        """A seed for the hash index: the content's own, so that a build repeats and a crowd cannot be planned."""
        return mix(self.hash_sum, self.added)

    def common_prefix(self, uint32_t group):
        """What all keys of a group begin with, up to what a footer holds."""
        cdef Prefix* prefix = &self.prefixes[group]
        return b"" if prefix.size <= 0 else (<const char*> prefix.bytes)[:prefix.size]

    def group_duplicates(self, uint32_t group):
        """How many records of a group were replaced by later ones, as far as it has been drained."""
        return self.duplicates[group]

    def write_group(self, SortedFileWriter writer not None, uint32_t group, Py_ssize_t limit):
        """Append up to `limit` records of `group` to `writer`: how many; fewer than `limit` once it has ended."""
        cdef Entry entry
        cdef Py_ssize_t done = 0
        while done < limit:
            if self.pending_entry.key == NULL:
                if not self.next(&entry):
                    break
                self.pending_entry = entry
            if self.pending_entry.group != group:
                break
            writer.append(
                self.pending_entry.key, self.pending_entry.key_size,
                self.pending_entry.value, self.pending_entry.value_size,
            )
            self.pending_entry.key = NULL
            done += 1
        return done

    def close(self):
        """Give back scratch space and memory; nothing can be added any more."""
        self.finished = True
        cdef RunReader reader
        for reader in self.runs:
            reader.scratch.close()
        self.runs = []
        self.readers = []
        self.heap_size = 0
        self.release_memory()

    cdef void release_memory(self) noexcept:
        """Give the arena and the items back."""
        region_free(self.arena, <size_t> self.capacity)
        region_free(self.items, <size_t> self.item_capacity * sizeof(Item))
        self.arena = NULL
        self.items = NULL
        self.used = self.capacity = 0
        self.count = self.item_capacity = 0


cdef inline void set_entry(Entry* entry, const uint8_t* at) noexcept nogil:
    entry.group = load32(at)
    entry.key_size = load32(at + 4)
    entry.value_size = load32(at + 8)
    entry.key = at + RECORD_HEADER_SIZE
    entry.value = entry.key + entry.key_size


@cython.final
cdef class RunReader:
    """Walks over one run; `entry` is the record it stands at."""

    def __cinit__(self, Scratch scratch not None, int level):
        self.scratch = scratch
        self.level = level

    cdef bint advance(self) except -1:
        """Step to the next record, if there is one.  The parts' checksums hold, so their records are as written."""
        if self.at == self.end:
            self.part = None    # A long part goes before the next one comes.
            self.part = self.scratch.read_part(&self.offset)
            if self.part is None:
                self.at = self.end = NULL
                return False
            self.at = <const uint8_t*> PyBytes_AS_STRING(self.part)
            self.end = self.at + len(self.part)
        set_entry(&self.entry, self.at)
        self.at = self.entry.value + self.entry.value_size
        return True
