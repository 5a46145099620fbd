"""External sorting of records by (group, key), in bounded memory; of equal keys the last record is kept.

Records are collected in an arena. A full arena is sorted and written as a run; runs are merged (`runs`). Sorting is by
words: a radix sort takes eight bytes of key at a time, and descends only into items with equal words. So keys are
compared byte by byte only among few items. A record has the same form in the arena and in a run, but for a long value
of a Python object: the arena has its address, since copying it would take longer than all else.

Records that come in order, as from files that are sorted within partitions, are not sorted again. Each is compared with
the one before; while none is lower, the arena itself is in order. The first lower record ends that for good. Earlier
records are then sorted with the rest, or written as a run if memory has no room for their items.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy


from gossipkv.errors import LimitExceeded

cdef extern from "gossipkv/storage/region.h" nogil:
    void* region_resize "gkv_region_resize"(void* old, size_t old_size, size_t size)
    void region_free "gkv_region_free"(void* region, size_t size)

cdef enum:
    FIRST_ARENA = 65536
    FIRST_ITEMS = 1024
    FEW = 24                    # Up to this many items with equal words, whole keys are compared.
    AHEAD = 12                  # Prefetch distance in records, since the cache cannot predict their order.
    SHORT_LINES = 3             # Cache lines that are prefetched of every record,
    LONG_LINES = 20              # and the most of a long one.
    MAX_GROUPS = 65536
    LONG_VALUE = 512             # From this size on, a value is kept rather than copied,
    KEPT_BYTES = 64              # and takes so much memory besides: its object's header and place in a list.
    KEPT = 1 << 30               # Flag in the size of a value whose address follows the key.


cdef int refuse_record(RecordSorter self, uint32_t group, Py_ssize_t key_size, Py_ssize_t value_size) except -1:
    """Raise one clear error for a record that no sorted file can hold."""
    if group >= self.group_count:
        raise ValueError(f"group must be below {self.group_count}, got {group}")
    if key_size > MAX_KEY_SIZE:
        raise LimitExceeded(
            f"a key has at most {MAX_KEY_SIZE:,} bytes, got {key_size:,}", {"limit": MAX_KEY_SIZE, "got": key_size}
        )
    raise LimitExceeded(
        f"a value has at most {MAX_PLAIN_SIZE:,} bytes, got {value_size:,}",
        {"limit": MAX_PLAIN_SIZE, "got": value_size},
    )


cdef inline void note_shared(RecordSorter self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Shorten the common prefix of all keys in memory to that with `key`."""
    cdef const uint8_t* first = self.arena + RECORD_HEADER_SIZE
    cdef Py_ssize_t shared = 0, most = min(self.shared, size)
    if self.shared <= size and memcmp(first, key, <size_t> self.shared) == 0:
        return
    while shared < most and first[shared] == key[shared]:
        shared += 1
    self.shared = shared


cdef inline int note_prefix(RecordSorter self, uint32_t group, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Do the same for all keys of a group, whose prefix a sorted file keeps."""
    cdef GroupTotals* noted = &self.groups[group]
    cdef int shared = 0, most
    if noted.prefix_size == 0:
        return 0
    if noted.prefix_size < 0:
        noted.prefix_size = <int> min(size, <Py_ssize_t> MAX_COMMON_PREFIX)
        memcpy(noted.prefix, key, <size_t> noted.prefix_size)
        return 0
    most = <int> min(<Py_ssize_t> noted.prefix_size, size)
    while shared < most and noted.prefix[shared] == key[shared]:
        shared += 1
    noted.prefix_size = shared
    return 0


cdef inline bint follows(RecordSorter self, uint32_t group, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Return True if a record of this key is not lower than the one added last."""
    cdef const uint8_t* at = self.arena + self.last
    if load32(at) != group:
        return load32(at) < group
    return compare_keys(at + RECORD_HEADER_SIZE, <Py_ssize_t> load32(at + 4), key, size) <= 0


cdef int begin_items(RecordSorter self) except -1:
    """Begin to keep an item for each record, including those in memory: the next one is the first out of order."""
    cdef uint64_t place = 0
    cdef Py_ssize_t i
    cdef uint64_t items_size = <uint64_t> (self.count + 1) * 2 * sizeof(Item)
    # Without items more records fit, and the pages of spilled records are still allocated.
    if len(self.runs) or self.used + self.kept_bytes + items_size > self.memory_bytes:
        spill_records(self)
        release_memory(self)
    reserve_items(self, self.count)
    for i in range(self.count):
        self.items[i].place = place
        place += size_of(self.arena + place)
    assert place == self.used, "records lie end to end"
    self.ordered = False
    return 0


cdef int reserve_items(RecordSorter self, Py_ssize_t count) except -1:
    cdef Py_ssize_t wanted = max(<Py_ssize_t> FIRST_ITEMS, self.item_capacity)
    cdef void* grown
    while wanted < count:
        wanted *= 2
    if wanted > self.item_capacity:
        grown = region_resize(
            self.items, <size_t> self.item_capacity * sizeof(Item), <size_t> wanted * sizeof(Item)
        )
        if grown == NULL:
            raise MemoryError
        self.items = <Item*> grown
        self.item_capacity = wanted
    return 0


cdef inline uint64_t items_bytes(RecordSorter self) noexcept nogil:
    """Return the size of all items with one more, and of the spares that sorting needs."""
    return 0 if self.ordered else <uint64_t> (self.count + 1) * 2 * sizeof(Item)


cdef int grow_arena(RecordSorter self, uint64_t size) except -1:
    """Make room for a record of `size`: in memory within the budget, else by writing a run."""
    cdef uint64_t wanted
    cdef void* grown
    if self.finished:
        raise ValueError("the build is finished and takes no more records")
    if self.count and self.used + self.kept_bytes + size + items_bytes(self) > self.memory_bytes:
        spill_records(self)
    if self.used + size > self.capacity:
        wanted = max(<uint64_t> FIRST_ARENA, 2 * self.capacity)
        if wanted + self.kept_bytes > self.memory_bytes:
            wanted = max(self.capacity, self.memory_bytes - min(self.kept_bytes, self.memory_bytes))
        wanted = max(wanted, self.used + size)
        grown = region_resize(self.arena, <size_t> self.capacity, <size_t> wanted)
        if grown == NULL:
            raise MemoryError
        self.arena = <uint8_t*> grown
        self.capacity = wanted
    if not self.ordered:
        reserve_items(self, self.count + 1)
    assert self.used + size <= self.capacity, (self.used, size, self.capacity)
    assert self.ordered or self.count < self.item_capacity, (self.count, self.item_capacity)
    return 0


cdef inline uint64_t word_at(RecordSorter self, uint64_t place, int level) noexcept nogil:
    """Return eight bytes of (group, key behind the common prefix), at a level of eight bytes each."""
    cdef const uint8_t* at = self.arena + place
    cdef Py_ssize_t size = <Py_ssize_t> load32(at + 4)
    if level == 0 and self.group_bytes:
        return (
            <uint64_t> load32(at) << (64 - 8 * self.group_bytes)
            | word_of(at + RECORD_HEADER_SIZE, size, self.shared) >> 8 * self.group_bytes
        )
    return word_of(at + RECORD_HEADER_SIZE, size, self.shared + 8 * level - self.group_bytes)


cdef inline int compare_records(RecordSorter self, uint64_t a, uint64_t b) noexcept nogil:
    cdef const uint8_t* left = self.arena + a
    cdef const uint8_t* right = self.arena + b
    return compare_keys(
        left + RECORD_HEADER_SIZE, <Py_ssize_t> load32(left + 4),
        right + RECORD_HEADER_SIZE, <Py_ssize_t> load32(right + 4),
    )


cdef void sort_few(RecordSorter self, Item* items, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef Item item
    for i in range(1, count):
        item = items[i]
        j = i
        while j > 0 and compare_records(self, items[j - 1].place, item.place) > 0:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


cdef void sort_range(RecordSorter self, Item* items, Item* spare, Py_ssize_t count, int level) noexcept nogil:
    """Sort items that agree in all bytes before `level`; equal keys stay in the order of adding."""
    cdef Py_ssize_t start = 0, stop, i
    cdef Py_ssize_t depth = self.shared + 8 * (level + 1) - self.group_bytes
    cdef bint longer
    for i in range(count):
        if i + AHEAD < count:
            prefetch(self.arena + items[i + AHEAD].place)
        items[i].word = word_at(self, items[i].place, level)
    radix_sort(items, spare, count, 0)
    while start < count:
        stop = start + 1
        while stop < count and items[stop].word == items[start].word:
            stop += 1
        if stop - start > 1:
            if stop - start <= FEW:
                sort_few(self, items + start, stop - start)
            else:
                longer = False
                for i in range(start, stop):
                    if <Py_ssize_t> load32(self.arena + items[i].place + 4) > depth:
                        longer = True
                        break
                if longer:
                    sort_range(self, items + start, spare, stop - start, level + 1)
                else:
                    # The keys differ only in zeros at their ends, so the shorter key comes first.
                    for i in range(start, stop):
                        items[i].word = load32(self.arena + items[i].place + 4)
                    radix_sort(items + start, spare, stop - start, 0)
        start = stop


cdef int sort_items(RecordSorter self) except -1:
    cdef size_t size = <size_t> max(<Py_ssize_t> 1, self.count) * sizeof(Item)
    cdef Item* spare
    self.next_item = 0
    self.next_place = 0
    if self.ordered:
        return 0
    spare = <Item*> region_resize(NULL, 0, size)
    if spare == NULL:
        raise MemoryError
    with nogil:
        sort_range(self, self.items, spare, self.count, 0)
        region_free(spare, size)
    return 0


cdef int spill_records(RecordSorter self) except -1:
    """Sort the records in memory and write them as a run."""
    sort_items(self)
    self.runs.put_aside(self)
    self.kept.clear()
    self.kept_bytes = 0
    self.used = 0
    self.count = 0
    if self.runs.crowded():
        release_memory(self)   # Make room for the parts.
        self.runs.collapse()
    return 0


cdef inline const uint8_t* next_record(RecordSorter self) noexcept nogil:
    """Return the next record in memory; NULL at the end."""
    if self.next_item == self.count:
        return NULL
    return self.arena + (self.next_place if self.ordered else self.items[self.next_item].place)


cdef inline void fetch_ahead(RecordSorter self) noexcept nogil:
    """Prefetch the begin of a coming record, and the rest of a nearer one, whose size is in the cache by now."""
    cdef const uint8_t* at
    cdef uint64_t line, size, first = SHORT_LINES
    if self.next_item + AHEAD < self.count:
        at = self.arena + self.items[self.next_item + AHEAD].place
        for line in range(SHORT_LINES):
            prefetch(at + 64 * line)
        at = self.arena + self.items[self.next_item + AHEAD // 2].place
        size = size_of(at)
        if load32(at + 8) & KEPT:
            size, first = load32(at + 8) & ~<uint32_t> KEPT, 0
            at = kept_value(at)
        for line in range(first, min(<uint64_t> LONG_LINES, size // 64 + 1)):
            prefetch(at + 64 * line)


cdef bint keep_the_last(RecordSorter self) except -1:
    """Sort the records in memory, and keep them as the newest run if the parts of other runs fit beside them."""
    cdef uint64_t items_size = 0 if self.ordered else <uint64_t> self.count * sizeof(Item)
    cdef void* shrunk
    if self.used + self.kept_bytes + items_size + max(items_size, self.runs.parts_bytes()) > self.memory_bytes:
        return False
    # Earlier, larger content left this memory unused.
    shrunk = region_resize(self.arena, <size_t> self.capacity, <size_t> self.used)
    if shrunk == NULL:
        raise MemoryError
    self.arena = <uint8_t*> shrunk
    self.capacity = self.used
    sort_items(self)
    return True


cdef int refuse_more(RecordSorter self) except -1:
    if self.finished:
        raise ValueError("the build is already finished")
    self.finished = True
    return 0


cdef void release_memory(RecordSorter self) noexcept:
    with nogil:
        region_free(self.arena, <size_t> self.capacity)
        region_free(self.items, <size_t> self.item_capacity * sizeof(Item))
    self.arena = NULL
    self.items = NULL
    self.used = self.capacity = 0
    self.count = self.item_capacity = 0


@cython.final
cdef class RecordSorter(OrderedRecords):
    """Sorts records by (group, key) within about `memory_bytes`; later records replace earlier ones of the same key.

    `make_scratch()` opens a fresh scratch file. After `finish_adding`, `write_group` drains group after group; or
    `put_aside` passes all runs to the builders of other lanes.
    """

    def __cinit__(self, make_scratch not None, uint64_t memory_bytes, uint32_t group_count=1):
        cdef uint32_t group
        if not 1 <= group_count <= MAX_GROUPS:
            raise LimitExceeded(f"a build has 1 to {MAX_GROUPS} partitions, got {group_count}")
        self.memory_bytes = memory_bytes
        self.group_count = group_count
        self.ordered = True
        self.group_bytes = 0 if group_count == 1 else 1 if group_count <= 256 else 2
        self.runs = Runs(make_scratch, memory_bytes)
        self.kept = []
        self.groups = <GroupTotals*> calloc(group_count, sizeof(GroupTotals))
        if self.groups == NULL:
            raise MemoryError
        for group in range(group_count):
            self.groups[group].prefix_size = -1

    def __dealloc__(self):
        release_memory(self)
        free(self.groups)

    # -- adding ----------------------------------------------------------------------------------------------------

    def add(self, bytes key not None, bytes value not None, uint32_t group=0):
        """Add one record.

        Raises:
            LimitExceeded: the key or the value is too long.
        """
        self.add_object(group, key, value)

    def add_all(self, records, uint32_t group=0):
        """Add an iterable of (key, value), without a call for each."""
        cdef bytes key, value
        for key, value in records:
            if key is None or value is None:
                raise TypeError(f"a record must be a pair of bytes, got {(key, value)!r}")
            self.add_object(group, key, value)

    def add_batch(self, RecordBatch batch not None):
        """Add the records of a batch, each to its group."""
        cdef BatchRecord* record
        cdef Py_ssize_t number
        with nogil:
            for number in range(batch.count):
                record = &batch.records[number]
                self.add_record(record.group, record.key, record.key_size, record.value, record.value_size)

    cdef int add_object(self, uint32_t group, bytes key, bytes value) except -1:
        """Add a record. A long value is kept until it is written, if memory has room for it; else it is copied."""
        cdef const uint8_t* name = <const uint8_t*> PyBytes_AS_STRING(key)
        cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(value)
        cdef Py_ssize_t name_size = PyBytes_GET_SIZE(key), size = PyBytes_GET_SIZE(value)
        cdef uint8_t* room
        if (
            size < LONG_VALUE or size > MAX_PLAIN_SIZE or name_size > MAX_KEY_SIZE or group >= self.group_count
            or self.capacity + self.kept_bytes + <uint64_t> size + KEPT_BYTES + items_bytes(self) > self.memory_bytes
        ):
            return self.add_record(group, name, name_size, data, size)
        room = self.make_room(group, name, name_size, sizeof(data))
        self.kept.append(value)
        self.kept_bytes += <uint64_t> size + KEPT_BYTES
        self.groups[group].size_bytes += <uint64_t> size - sizeof(data)
        store32(room - name_size - 4, <uint32_t> size | KEPT)
        memcpy(room, &data, sizeof(data))
        return 0

    cdef int add_record(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1 nogil:
        if key_size > MAX_KEY_SIZE or value_size > MAX_PLAIN_SIZE or group >= self.group_count:
            with gil:
                refuse_record(self, group, key_size, value_size)
        memcpy(self.make_room(group, key, key_size, value_size), value, <size_t> value_size)
        return 0

    cdef inline uint8_t* make_room(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, Py_ssize_t value_size
    ) except NULL nogil:
        """Add a record whose value the caller writes to the returned address.

        Requires: it is within the format's limits.
        """
        cdef uint64_t size = RECORD_HEADER_SIZE + <uint64_t> key_size + <uint64_t> value_size
        cdef uint8_t* at
        if self.ordered and self.count and not self.finished and not follows(self, group, key, key_size):
            with gil:
                begin_items(self)
        if self.used + size > self.capacity or self.finished or not self.ordered and self.count == self.item_capacity:
            with gil:
                grow_arena(self, size)
        if self.count == 0:
            self.shared = key_size
        elif self.shared:
            note_shared(self, key, key_size)
        at = self.arena + self.used
        store32(at, group)
        store32(at + 4, <uint32_t> key_size)
        store32(at + 8, <uint32_t> value_size)
        memcpy(at + RECORD_HEADER_SIZE, key, <size_t> key_size)
        if not self.ordered:
            self.items[self.count].place = self.used
        self.last = self.used
        self.count += 1
        self.used += size
        self.added += 1
        self.groups[group].hash_sum += hash64_of(key, key_size, 0)
        self.groups[group].records += 1
        self.groups[group].size_bytes += size
        note_prefix(self, group, key, key_size)
        return at + RECORD_HEADER_SIZE + key_size

    # -- sorting in memory -----------------------------------------------------------------------------------------

    cdef int next(self, RunEntry* entry) except -1 nogil:
        cdef const uint8_t* at = next_record(self)
        cdef const uint8_t* after
        while at != NULL:
            if self.ordered:
                self.next_place += size_of(at)
            else:
                fetch_ahead(self)
            self.next_item += 1
            after = next_record(self)
            if after != NULL:
                if (
                    load32(at) == load32(after) and load32(at + 4) == load32(after + 4)
                    and memcmp(at + RECORD_HEADER_SIZE, after + RECORD_HEADER_SIZE, load32(at + 4)) == 0
                ):
                    at = after
                    continue
                require(
                    load32(at) < load32(after) or (
                        load32(at) == load32(after)
                        and compare_records(self, <uint64_t> (at - self.arena), <uint64_t> (after - self.arena)) < 0
                    ), "records leave memory in the order of groups and keys",
                )
            set_entry(entry, at)
            if entry.value_size & KEPT:
                entry.value_size &= ~<uint32_t> KEPT
                entry.value = kept_value(at)
            return 1
        return 0

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish_adding(self):
        """End adding, and return all records in order: from memory, or from the runs."""
        refuse_more(self)
        if not len(self.runs):
            sort_items(self)
            return self
        if self.count and not keep_the_last(self):
            spill_records(self)
        if not self.count:
            release_memory(self)
        self.runs.start(OrderedSource(self) if self.count else None)
        return self.runs

    def put_aside(self):
        """End adding, and return all records as runs, oldest first."""
        refuse_more(self)
        if self.count:
            spill_records(self)
        release_memory(self)
        return list(self.runs)

    def common_prefix(self, uint32_t group):
        """Return the common prefix of a group's keys, up to the size that a footer holds."""
        cdef GroupTotals* noted = &self.groups[group]
        return b"" if noted.prefix_size <= 0 else (<const char*> noted.prefix)[:noted.prefix_size]

    def group_records(self, uint32_t group):
        """Return how many records of a group were added, including replaced ones."""
        return self.groups[group].records

    def group_size_bytes(self, uint32_t group):
        """Return the size of a group's records in memory or in a run."""
        return self.groups[group].size_bytes

    def group_hash_sum(self, uint32_t group):
        """Return the sum of the hashes of a group's keys, modulo 2^64, from which its index seed is derived."""
        return self.groups[group].hash_sum

    def close(self):
        """Release scratch space and memory; nothing can be added any more."""
        self.finished = True
        release_memory(self)
        self.kept.clear()
        self.runs.close()


cdef inline uint64_t size_of(const uint8_t* at) noexcept nogil:
    """Return the length of the record at `at`, in memory."""
    cdef uint32_t value_size = load32(at + 8)
    return RECORD_HEADER_SIZE + <uint64_t> load32(at + 4) + (sizeof(at) if value_size & KEPT else value_size)


cdef inline const uint8_t* kept_value(const uint8_t* at) noexcept nogil:
    """Return the address of the value of the record at `at`, which is kept."""
    cdef const uint8_t* value
    memcpy(&value, at + RECORD_HEADER_SIZE + load32(at + 4), sizeof(value))
    return value


def seed_of(uint64_t hash_sum, uint64_t added):
    """Return the index seed of a file, from the number of added records and the sum of their keys' hashes.

    The seed depends on the content only. So a build is reproducible, whatever else is built with it, and nobody can
    plan keys that crowd the index.
    """
    return mix(hash_sum, added)
