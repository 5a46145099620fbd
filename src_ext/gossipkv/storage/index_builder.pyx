"""The hash index of a sorted file, built in one pass in bucket order, in bounded memory.

A bucket is one cache line:

    offset size field
    0      12   fingerprints: the low byte of each key's hash
    12     4    keys that passed through this bucket to the next: bit (hash >> 8) & 31 of each
    16     48   positions: twelve of 4 bytes, the record's position / 8 + 1; 0 is an empty slot

Entries sorted by the hash's high half come in the order of their home buckets. A bucket first takes its home entries
(so 93 of 100 keys need one line), then carried entries, oldest first; the rest is carried on. Buckets behind the last
home take the remaining carried entries, so nothing wraps around, and the index is written front to back. The order
(high half, position) does not depend on the memory budget, so neither does the file.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset


from gossipkv.errors import LimitExceeded

cdef extern from "gossipkv/storage/region.h" nogil:
    void* region_resize "gkv_region_resize"(void* old, size_t old_size, size_t size)
    void region_free "gkv_region_free"(void* region, size_t size)

cdef enum:
    FIRST_INDEX_ITEMS = 1024
    PART_ITEMS = 4096           # 64 KiB for each part of a run.
    MAX_INDEX_FAN_IN = 64             # Maximum of open files in a merge.
    LOAD_PERCENT = 90  # Measured: lookups cost the same at 80 to 95; 90 keeps the index under 6 bytes a record.


@cython.final
cdef class IndexBuilder:
    """Collects (hash, position) and writes the buckets; `limit_bytes` bounds its memory, including sorting."""

    def __cinit__(self, make_scratch not None, uint64_t limit_bytes):
        self.make_scratch = make_scratch
        self.limit = max(<Py_ssize_t> FIRST_INDEX_ITEMS, <Py_ssize_t> (limit_bytes // (2 * sizeof(Item))))
        self.fan_in = <int> min(<Py_ssize_t> MAX_INDEX_FAN_IN, max(<Py_ssize_t> 2, self.limit // PART_ITEMS))
        self.runs = []

    def __dealloc__(self):
        region_free(self.items, <size_t> self.capacity * sizeof(Item))

    cdef int add(self, uint64_t hash, uint32_t position) except -1 nogil:
        if self.used == self.capacity:
            with gil:
                if 2 * self.capacity <= self.limit:
                    self.grow()
                else:
                    self.spill()
        # The position is packed with the hash bits that the bucket needs: the fingerprint and the carried bit.
        self.items[self.used].word = hash
        self.items[self.used].place = (<uint64_t> position << 16) | (hash & 0xFFFF)
        self.used += 1
        self.count += 1
        return 0

    cdef int grow(self) except -1:
        cdef Py_ssize_t capacity = max(<Py_ssize_t> FIRST_INDEX_ITEMS, 2 * self.capacity)
        cdef Item* grown = <Item*> region_resize(
            self.items, <size_t> self.capacity * sizeof(Item), <size_t> capacity * sizeof(Item)
        )
        if grown == NULL:
            raise MemoryError
        self.items = grown
        self.capacity = capacity
        return 0

    cdef int sort(self) except -1:
        cdef size_t size = <size_t> max(<Py_ssize_t> 1, self.used) * sizeof(Item)
        cdef Item* spare = <Item*> region_resize(NULL, 0, size)
        if spare == NULL:
            raise MemoryError
        with nogil:
            radix_sort(self.items, spare, self.used, 4)
            region_free(spare, size)
        return 0

    cdef int spill(self) except -1:
        """Sort the items in memory and write them as one run; merge the runs of a level when there are many."""
        cdef Scratch scratch = self.make_scratch()
        cdef IndexRunReader run
        cdef uint64_t total = <uint64_t> self.used
        cdef int level = 0
        cdef list merged
        self.sort()
        self.write_run(scratch)
        self.runs.append(IndexRunReader(scratch, total, 0))
        while len(self.runs) >= self.fan_in:
            merged = self.runs[len(self.runs) - self.fan_in:]
            total = 0
            for run in merged:
                if run.level != level:
                    return 0
                total += run.total
            scratch = self.make_scratch()
            self.drain(merged, scratch, None)
            level += 1
            self.runs[len(self.runs) - self.fan_in:] = [IndexRunReader(scratch, total, level)]
        return 0

    cdef int write_run(self, Scratch scratch) except -1:
        """Append the sorted items in memory to a run."""
        cdef Py_ssize_t start = 0
        with nogil:
            while start < self.used:
                scratch.write_part(
                    <const uint8_t*> (self.items + start),
                    <uint32_t> (min(<Py_ssize_t> PART_ITEMS, self.used - start) * sizeof(Item)),
                )
                start += PART_ITEMS
        self.used = 0
        return 0

    cdef int write(self, PageWriter out, uint64_t* home_count, uint64_t* bucket_count) except -1:
        """Write all buckets; returns the number of home buckets and of all buckets."""
        cdef BucketWriter buckets
        cdef Py_ssize_t i
        home_count[0] = max(<uint64_t> 1, (self.count * 100 + BUCKET_SLOTS * LOAD_PERCENT - 1)
                            // (BUCKET_SLOTS * LOAD_PERCENT))
        buckets = BucketWriter(out, home_count[0])
        if self.runs:
            if self.used:
                self.spill()
            self.drain(self.runs, None, buckets)
        else:
            self.sort()
            with nogil:
                for i in range(self.used):
                    buckets.put(self.items[i])
        buckets.finish()
        bucket_count[0] = buckets.at
        return 0

    cdef int drain(self, list runs, Scratch scratch, BucketWriter buckets) except -1:
        """Merge all entries of `runs`, in order, into a longer run or into the buckets.

        Hashes are uniform, so slices of their range are planned for half of the memory, which leaves room for larger
        ones. Each run contributes its part of a slice; the stable sort keeps the order of runs.
        """
        cdef IndexRunReader run
        cdef Py_ssize_t i
        cdef uint64_t total = 0, drained = 0, slices, number
        for run in runs:
            total += run.total
        slices = 2 * total // <uint64_t> self.limit + 1
        for number in range(1, slices + 1):
            for run in runs:
                self.gather(run, <uint64_t> 0xFFFFFFFF if number == slices else (number << 32) // slices)
            self.sort()
            drained += <uint64_t> self.used
            if scratch is not None:
                self.write_run(scratch)
            else:
                with nogil:
                    for i in range(self.used):
                        buckets.put(self.items[i])
                self.used = 0
        assert drained == total, "a merge yields as many entries as its runs have"
        return 0

    cdef int gather(self, IndexRunReader run, uint64_t last) except -1:
        """Take a run's next entries with a high half of at most `last`."""
        cdef const Item* items
        while run.at < run.count or run.advance():
            items = <const Item*> PyBytes_AS_STRING(run.part)
            with nogil:
                while run.at < run.count:
                    if (items[run.at].word >> 32) > last:
                        return 0
                    if self.used == self.capacity:
                        with gil:
                            self.grow()
                    self.items[self.used] = items[run.at]
                    self.used += 1
                    run.at += 1
        return 0


@cython.final
cdef class IndexRunReader:
    """A reader of one sorted run."""

    def __cinit__(self, Scratch scratch not None, uint64_t total, int level):
        self.scratch = scratch
        self.total = total
        self.level = level

    cdef bint advance(self) except -1:
        """Load the next part, if there is one."""
        self.part = self.scratch.read_part(&self.offset)
        if self.part is None:
            self.scratch.close()
            return False
        self.count = len(self.part) // <Py_ssize_t> sizeof(Item)
        self.at = 0
        return True


@cython.final
cdef class BucketWriter:
    """Fills buckets from entries in home order: first home entries, then carried ones, oldest first."""

    def __cinit__(self, PageWriter out not None, uint64_t home_count):
        self.out = out
        self.home_count = home_count

    cdef int put(self, Item item) except -1 nogil:
        cdef uint64_t home = bucket_of(item.word, self.home_count)
        require(home >= self.at, "entries arrive in the order of their home buckets")
        while self.at < home:
            self.emit()
        if self.at_home < BUCKET_SLOTS:
            self.home[self.at_home] = item.place
            self.at_home += 1
            return 0
        if self.waiting == MAX_CARRIED:
            with gil:
                raise LimitExceeded(
                    f"more than {MAX_CARRIED} keys collide in the hash index: their hashes were made equal on purpose"
                )
        self.carried[(self.head + self.waiting) % MAX_CARRIED] = item.place
        self.waiting += 1
        return 0

    cdef int emit(self) except -1 nogil:
        cdef uint8_t* bucket = self.out.room(BUCKET_SIZE)
        cdef int slot, taken = min(<int> BUCKET_SLOTS - self.at_home, self.waiting)
        cdef uint64_t place
        cdef uint32_t carried = 0
        memset(bucket, 0, BUCKET_SIZE)
        for slot in range(self.at_home + taken):
            if slot < self.at_home:
                place = self.home[slot]
            else:
                place = self.carried[(self.head + slot - self.at_home) % MAX_CARRIED]
            bucket[slot] = <uint8_t> place
            store32(bucket + BUCKET_POSITIONS_AT + 4 * slot, <uint32_t> (place >> 16))
        self.head = (self.head + taken) % MAX_CARRIED
        self.waiting -= taken
        require(0 <= self.waiting <= MAX_CARRIED, "the carried entries fit")
        self.at_home = 0
        for slot in range(self.waiting):
            carried |= carried_bit(self.carried[(self.head + slot) % MAX_CARRIED])
        store32(bucket + BUCKET_CARRIED_AT, carried)
        self.out.used += BUCKET_SIZE
        self.at += 1
        return 0

    cdef int finish(self) except -1 nogil:
        while self.at < self.home_count or self.at_home or self.waiting:
            self.emit()
        return 0
