"""All records of a store, read as one: memtables, young runs, the oldest run; the newest record of a key wins.

A view has a fixed set of runs and memtables, and shows later puts into these memtables; another set needs another view.
It pins its files until it is closed.

A lookup prefetches the filter lines of all memtables, and the key's bucket in every run, before it reads the first of
them. So it waits about as long as for one run, however many there are. Then it asks the memtables, and then the runs
whose bucket has a place that may be the key's; most have none.

Rules for editors:

* A record's value begins with its flag; an unknown flag is damage, and yields no answer.
* No answer leaves before each run that was asked was found whole, including those without the key.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gossipkv.storage._storage cimport (
    HEADER_SIZE, WALK_RECORD, Record, Slice, SortedFile, Walk, hash64_of, is_whole, seek, walk_begin, walk_next,
)

from gossipkv.errors import Corrupt

cdef extern from "Python.h":
    object PySequence_Fast(object sequence, const char* message)

cdef enum:
    STAGGER = 4                 # Lookups between two stages of a batch, each with a cache miss for every run.
    WINDOW = 16                 # At least 2 * STAGGER + 1.
    MAX_SPACE = 0xFFFFFFFF
    FETCHED_LINES = 3           # A record of some 100 bytes lies in these.


PAGE_BYTES = 1 << 16      # A longer page would have left the cache when Python reads it.


cdef bytes internal_key(uint32_t space, bytes key):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, SPACE_BYTES + PyBytes_GET_SIZE(key))
    cdef uint8_t* data = <uint8_t*> PyBytes_AS_STRING(made)
    write_space(data, space)
    memcpy(data + SPACE_BYTES, PyBytes_AS_STRING(key), <size_t> PyBytes_GET_SIZE(key))
    return made


cdef bytes space_end(uint32_t space):
    """Return the start of the next space; empty behind the last one."""
    return internal_key(space + 1, b"") if space < MAX_SPACE else b""


cdef bytes end_of(uint32_t space, bytes end):
    """Return the internal key of a bound; None: of the space's end."""
    return space_end(space) if end is None else internal_key(space, end)


cdef inline Slice whole_slice(bytes data):
    cdef Slice slice
    slice.data = <const uint8_t*> PyBytes_AS_STRING(data)
    slice.size = PyBytes_GET_SIZE(data)
    return slice


cdef inline KeyBounds bounds_of(bytes low, bytes high):
    """Return the bounds of a forward scan. Lifetime: both keys must stay alive."""
    cdef KeyBounds bounds
    bounds.start = whole_slice(low)
    bounds.end = whole_slice(high)
    bounds.reverse = False
    return bounds


@cython.final
@cython.no_gc_clear
cdef class View:
    """Memtables and runs, each the newest first; a run is a list of (first internal key, file) in key order.

    Raises:
        ValueError: too many memtables or runs, a run without files or not in order, or a closed file.

    Lifetime: values are copies. Files are pinned, and memtables live, until `close`.
    """

    def __cinit__(self, memtables, runs):
        cdef list files = []
        cdef Memtable memtable
        cdef SortedFile file
        self.first_keys = []
        self.memtables = tuple(memtables)
        if len(self.memtables) > MAX_MEMTABLES:
            raise ValueError(f"at most {MAX_MEMTABLES} memtables are read together, got {len(self.memtables)}")
        for memtable in self.memtables:
            if memtable is None:    # A typed variable accepts None, too.
                raise TypeError("a memtable must not be None")
            self.sources.memtables[self.sources.memtable_count] = <PyObject*> memtable
            self.sources.memtable_count += 1
        for run in runs:
            self.add_run(run, files)
        for file in files:
            file.ensure_open()
        self.files = tuple(files)
        for file in files:
            file.pin()
        self.open = True

    def __dealloc__(self):
        cdef int i
        self.close()
        for i in range(self.sources.run_count):
            free(self.sources.runs[i].files)
            free(self.sources.runs[i].first_keys)

    cdef int add_run(self, object run, list files) except -1:
        cdef RunFiles* added
        cdef SortedFile file
        cdef bytes first_key
        cdef list pairs = list(run)
        if self.sources.run_count == MAX_RUNS:
            raise ValueError(f"at most {MAX_RUNS} runs are read together")
        if not pairs:
            raise ValueError("a run must have at least one file")
        added = &self.sources.runs[self.sources.run_count]
        self.sources.run_count += 1
        added.files = <PyObject**> calloc(len(pairs), sizeof(PyObject*))
        added.first_keys = <Slice*> calloc(len(pairs), sizeof(Slice))
        if added.files == NULL or added.first_keys == NULL:
            raise MemoryError
        for first_key, file in pairs:
            if first_key is None or file is None:
                raise TypeError("a run must consist of pairs of a first key and a file")
            if added.count and self.first_keys[len(self.first_keys) - 1] >= first_key:
                raise ValueError("the files of a run must ascend by their first keys")
            added.files[added.count] = <PyObject*> file
            added.first_keys[added.count] = whole_slice(first_key)
            added.count += 1
            self.first_keys.append(first_key)
            files.append(file)
        return 0

    def close(self):
        """Release files and memtables. Every later call raises `ValueError`; closing twice is harmless."""
        cdef SortedFile file
        if self.open:
            self.open = False
            self.sources.memtable_count = 0
            self.memtables = ()
            for file in self.files:
                file.unpin()

    cdef int ensure_open(self) except -1:
        if not self.open:
            raise ValueError("the view is closed")
        return 0

    cdef object damage(self, PyObject* damaged, const uint8_t* bad_record):
        """Return the exception for damage that a nogil function found."""
        cdef SortedFile file = <SortedFile> damaged
        cdef uint64_t offset = HEADER_SIZE
        if bad_record == NULL or not is_whole(file):
            return file.damage()
        if file.base <= bad_record < file.base + file.size:
            offset = <uint64_t> (bad_record - file.base)
        return Corrupt(file.name, offset, "a record is neither a value nor a tombstone")

    # -- lookup ----------------------------------------------------------------------------------------------------

    cdef void begin(self, StoreLookup* lookup) noexcept nogil:
        """Prefetch from all sources for a lookup whose key is set: the first stage."""
        cdef int i
        cdef Py_ssize_t at
        cdef RunProbe* probe
        lookup.leaf = NULL
        lookup.asked = 0
        lookup.damaged = NULL
        lookup.bad_record = NULL
        if self.sources.memtable_count:
            lookup.hash = hash64_of(lookup.key, lookup.size, 0)
            for i in range(self.sources.memtable_count):
                filter_prefetch(<Memtable> self.sources.memtables[i], lookup.hash)
        for i in range(self.sources.run_count):
            probe = &lookup.probes[i]
            at = file_of(&self.sources.runs[i], lookup.key, lookup.size)
            if at < 0:
                probe.file = NULL
                continue
            probe.file = self.sources.runs[i].files[at]
            probe.hash = (<SortedFile> probe.file).prefetch_bucket(lookup.key, lookup.size)

    cdef void fetch(self, StoreLookup* lookup) noexcept nogil:
        """Prefetch the key's leaf in the newest memtable that may have it, else its records in the runs: stage two."""
        cdef int i
        for i in range(self.sources.memtable_count):
            if may_have(<Memtable> self.sources.memtables[i], lookup.hash):
                lookup.leaf = leaf_of(<Memtable> self.sources.memtables[i], lookup.key, lookup.size)
                lookup.layer = i
                lookup.at = -1
                return
        self.fetch_from_runs(lookup)

    cdef void fetch_from_runs(self, StoreLookup* lookup) noexcept nogil:
        """Prefetch the records at the places in the runs' buckets."""
        cdef int i
        cdef RunProbe* probe
        for i in range(self.sources.run_count):
            probe = &lookup.probes[i]
            if probe.file != NULL:
                probe.place = (<SortedFile> probe.file).prefetch_record(probe.hash)

    cdef void locate(self, StoreLookup* lookup) noexcept nogil:
        """Search the leaf, and prefetch the record."""
        cdef Leaf* leaf = lookup.leaf
        cdef int line
        lookup.at = words_below(leaf.words, leaf.count, word_of(lookup.key, lookup.size, leaf.depth))
        if lookup.at < leaf.count:
            for line in range(FETCHED_LINES):
                prefetch(leaf.records[lookup.at] + line * LINE)

    cdef void fetch_all(self, StoreLookup** lookups, Py_ssize_t count) noexcept nogil:
        """Do `fetch` for lookups that have begun, and then prefetch the records in their leaves."""
        cdef Py_ssize_t i
        for i in range(count):
            self.fetch(lookups[i])
        for i in range(count):
            if lookups[i].leaf != NULL:
                self.locate(lookups[i])

    cdef int ask_memtables(self, StoreLookup* lookup) noexcept nogil:
        """Return 1 if a memtable has the value, 0 for a tombstone, -1 if the runs must be asked."""
        cdef Leaf* leaf = lookup.leaf
        cdef bint found = False
        cdef int i
        if lookup.at < 0:
            self.locate(lookup)
        i = place_from(
            lookup.at, leaf.words, leaf.records, leaf.count, leaf.depth, lookup.key, lookup.size, &found
        )
        if found:
            lookup.value = record_value(leaf.records[i])
        for i in range(lookup.layer + 1, self.sources.memtable_count):
            if found:
                break
            found = may_have(<Memtable> self.sources.memtables[i], lookup.hash) and (
                <Memtable> self.sources.memtables[i]
            ).find(lookup.key, lookup.size, &lookup.value)
        if found:
            return lookup.value.data[0] == VALUE
        self.fetch_from_runs(lookup)  # The filter erred.
        return -1

    cdef int find(self, StoreLookup* lookup, Slice* value) noexcept nogil:
        """Return 1 and the value without its flag, 0 if absent, -1 if damaged: the last stage.

        Copy the value, and then call `confirm`, which decides whether the answer may leave, also that of an absent key.
        """
        cdef int found = -1 if lookup.leaf == NULL else self.ask_memtables(lookup)
        cdef RunProbe* probe
        if found < 0:
            found = 0
            while found == 0 and lookup.asked < self.sources.run_count:
                probe = &lookup.probes[lookup.asked]
                lookup.asked += 1
                if probe.file == NULL:
                    continue
                found = (<SortedFile> probe.file).find_at(
                    lookup.key, lookup.size, probe.hash, probe.place, &lookup.value
                )
                if found < 0:
                    lookup.damaged = probe.file
                    return -1
                if found:
                    if lookup.value.size == 0 or not VALUE <= lookup.value.data[0] <= TOMBSTONE:
                        lookup.damaged = probe.file
                        lookup.bad_record = lookup.value.data
                        return -1
                    if lookup.value.data[0] == TOMBSTONE:
                        return 0
        if found:
            value.data = lookup.value.data + 1
            value.size = lookup.value.size - 1
        return found

    cdef bint confirm(self, StoreLookup* lookup) noexcept nogil:
        """Return True if all bytes read for an answer, which is copied by now, were really there."""
        cdef int i
        for i in range(lookup.asked):
            if lookup.probes[i].file != NULL and not is_whole(<SortedFile> lookup.probes[i].file):
                lookup.damaged = lookup.probes[i].file
                lookup.bad_record = NULL
                return False
        return True

    def get(self, uint32_t space, bytes key not None):
        """Return the value of a key, or None.

        Raises:
            Corrupt: a page of the lookup is damaged.
        """
        cdef PendingLookup pending
        cdef bytes long_key
        cdef Slice value
        cdef object answer = None
        cdef int found
        if not self.open:
            self.ensure_open()
        pending.lookup.size = SPACE_BYTES + PyBytes_GET_SIZE(key)
        if pending.lookup.size <= SHORT_KEY_BYTES:
            write_space(pending.key, space)
            memcpy(pending.key + SPACE_BYTES, PyBytes_AS_STRING(key), <size_t> PyBytes_GET_SIZE(key))
            pending.lookup.key = pending.key
        else:
            long_key = internal_key(space, key)
            pending.lookup.key = <const uint8_t*> PyBytes_AS_STRING(long_key)
        self.begin(&pending.lookup)
        self.fetch(&pending.lookup)
        found = self.find(&pending.lookup, &value)
        if found > 0:
            answer = PyBytes_FromStringAndSize(<const char*> value.data, value.size)
        if found < 0 or not self.confirm(&pending.lookup):
            raise self.damage(pending.lookup.damaged, pending.lookup.bad_record)
        return answer

    def get_many(self, uint32_t space, keys):
        """Return the values of `keys`, in their order, with None for absent keys.

        Lookups are staggered, so that many of them share one memory latency.

        Raises:
            Corrupt: a page of a lookup is damaged.
        """
        cdef tuple sequence = tuple(keys)
        cdef Py_ssize_t count = len(sequence), i
        cdef PendingLookup window[WINDOW]
        cdef PendingLookup* pending
        cdef Slice value
        cdef int found
        cdef bytes key, long_key
        cdef object answer
        cdef list answers, held = []
        self.ensure_open()
        answers = PyList_New(count)
        for i in range(count + 2 * STAGGER):
            if i < count:
                if type(sequence[i]) is not bytes:
                    raise TypeError(f"keys[{i}] must be bytes, not {type(sequence[i]).__name__}")
                key = <bytes> sequence[i]
                pending = &window[i % WINDOW]
                pending.lookup.size = SPACE_BYTES + PyBytes_GET_SIZE(key)
                if pending.lookup.size <= SHORT_KEY_BYTES:
                    write_space(pending.key, space)
                    memcpy(pending.key + SPACE_BYTES, PyBytes_AS_STRING(key), <size_t> PyBytes_GET_SIZE(key))
                    pending.lookup.key = pending.key
                else:
                    long_key = internal_key(space, key)
                    held.append(long_key)
                    pending.lookup.key = <const uint8_t*> PyBytes_AS_STRING(long_key)
                self.begin(&pending.lookup)
            if STAGGER <= i < count + STAGGER:
                self.fetch(&window[(i - STAGGER) % WINDOW].lookup)
            if i >= 2 * STAGGER:
                pending = &window[(i - 2 * STAGGER) % WINDOW]
                found = self.find(&pending.lookup, &value)
                answer = PyBytes_FromStringAndSize(<const char*> value.data, value.size) if found > 0 else None
                if found < 0 or not self.confirm(&pending.lookup):
                    raise self.damage(pending.lookup.damaged, pending.lookup.bad_record)
                Py_INCREF(answer)
                PyList_SET_ITEM(answers, i - 2 * STAGGER, answer)
        return answers

    # -- scans -----------------------------------------------------------------------------------------------------

    def scan(
        self, uint32_t space, bytes start=None, bytes end=None, *, bint reverse=False, Py_ssize_t limit=-1,
        Py_ssize_t most_bytes=PAGE_BYTES
    ):
        """Return a page of records from `start` (inclusive) to `end` (exclusive), or backwards, and a bound.

        The page ends behind `limit` records (-1: no limit), before a record that would take keys and values above
        `most_bytes`, or after many skipped tombstones; so it may be empty without being the last. The bound is the
        `start` of the next page, backwards its `end`; None: there is none.

        Raises:
            Corrupt: a part of the page is damaged.
        """
        cdef MergedScan scan
        cdef KeyBounds bounds
        cdef Slice key, value
        cdef int result = STEP_RECORD
        cdef Py_ssize_t left = most_bytes
        cdef list records = []
        cdef object next_key = None, name, contents, pair
        cdef bytes low, high
        self.ensure_open()
        if limit == 0 or limit < -1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if end == b"":
            return records, None
        low = internal_key(space, b"" if start is None else start)
        high = end_of(space, end)
        bounds = bounds_of(low, high)
        bounds.reverse = reverse
        if scan_begin(&scan, &self.sources, &bounds) < 0:
            raise self.damage(scan.damaged, scan.bad_record)
        while limit != 0:
            result = scan_next(&scan, &key, &value)
            if result != STEP_RECORD:
                break
            left -= key.size - SPACE_BYTES + value.size
            if left < 0 and records:
                break
            name = PyBytes_FromStringAndSize(<const char*> key.data + SPACE_BYTES, key.size - SPACE_BYTES)
            contents = PyBytes_FromStringAndSize(<const char*> value.data, value.size)
            pair = PyTuple_New(2)
            Py_INCREF(name)
            PyTuple_SET_ITEM(pair, 0, name)
            Py_INCREF(contents)
            PyTuple_SET_ITEM(pair, 1, contents)
            records.append(pair)
            limit -= limit > 0
        if result == STEP_UNFINISHED or (result == STEP_RECORD and limit == 0):
            result = scan_peek(&scan, &key)
        if result == STEP_RECORD:   # The next record, or the one without room.
            next_key = PyBytes_FromStringAndSize(<const char*> key.data + SPACE_BYTES, key.size - SPACE_BYTES)
            if reverse:
                next_key += b"\0"
        if result < 0:
            raise self.damage(scan.damaged, scan.bad_record)
        scan.damaged = scan_loss(&scan)
        if scan.damaged != NULL:
            raise self.damage(scan.damaged, NULL)
        return records, next_key

    # -- sizes -----------------------------------------------------------------------------------------------------

    cdef int span_of(self, int source, const KeyBounds* bounds, SourceRange* span) except -1:
        """Measure a source's records within bounds, the first below the second, and for a run, find their files."""
        cdef const Slice* end = &bounds.end
        cdef const RunFiles* run
        cdef Py_ssize_t at
        if source < self.sources.memtable_count:
            span.extent = (<Memtable> self.sources.memtables[source]).extent_between(
                bounds.start.data, bounds.start.size, end.data if end.size else NULL, end.size
            )
            return 0
        run = &self.sources.runs[source - self.sources.memtable_count]
        span.extent = Extent(0, 0)
        span.first = max(<Py_ssize_t> 0, file_of(run, bounds.start.data, bounds.start.size))
        span.last = run.count - 1 if end.size == 0 else file_of(run, end.data, end.size)
        for at in range(span.first, span.last + 1):
            self.add_file(
                <SortedFile> run.files[at], &bounds.start if at == span.first else NULL,
                end if at == span.last and end.size else NULL, &span.extent
            )
        return 0

    cdef int add_file(self, SortedFile file, const Slice* start, const Slice* end, Extent* extent) except -1:
        """Add a file's records between two keys; NULL: no bound."""
        cdef uint64_t at = 0, last = file.position_end
        cdef double records
        if start != NULL and seek(file, start.data, start.size, &at) < 0:
            raise file.damage()
        if end != NULL and seek(file, end.data, end.size, &last) < 0:
            raise file.damage()
        if not is_whole(file):
            raise file.loss()
        if at < last:
            records = <double> file.record_count * (<double> (last - at) / <double> file.position_end)
            extent.size_bytes += last - at
            extent.records += <uint64_t> records
            extent.records += <uint64_t> records < records  # A range with bytes has at least one record.
        return 0

    cdef Extent extent_within(self, uint32_t space, bytes start, bytes end) except *:
        """Return the total of all sources within bounds."""
        cdef bytes low = internal_key(space, start), high = end_of(space, end)
        cdef KeyBounds bounds = bounds_of(low, high)
        cdef Extent total = Extent(0, 0)
        cdef SourceRange span
        cdef int i
        self.ensure_open()
        if not high or low < high:
            for i in range(self.sources.memtable_count + self.sources.run_count):
                self.span_of(i, &bounds, &span)
                total.size_bytes += span.extent.size_bytes
                total.records += span.extent.records
        return total

    def size_bytes(self, uint32_t space, bytes start not None=b"", bytes end=None):
        """Return how many bytes the records from `start` (inclusive) to `end` (exclusive) take in their sources.

        Replaced and deleted records count, too. Bounds that do not ascend contain 0 bytes.

        Raises:
            Corrupt: a path to the bounds is damaged.
        """
        return self.extent_within(space, start, end).size_bytes

    def rows(self, uint32_t space, bytes start not None=b"", bytes end=None):
        """Estimate how many records lie from `start` (inclusive) to `end` (exclusive); 0 only if there are none.

        Replaced and deleted records count, too. The estimate is exact except for files that a bound cuts. Their records
        are estimated by bytes, as if all had one size; so each file is off by less than its count. Raises as
        `size_bytes`.
        """
        return self.extent_within(space, start, end).records

    def middle_key(self, uint32_t space, bytes start not None=b"", bytes end=None):
        """Return a key above `start` and below `end`, with about half of the bytes between them before it.

        It halves the source with the most of these bytes. So each side has at least half of that source's share, except
        for one record. Each side has at least one record; None: there is at most one key.

        Raises:
            Corrupt: a path to the key is damaged.
        """
        cdef bytes low = internal_key(space, start), high = end_of(space, end), middle
        cdef KeyBounds bounds = bounds_of(low, high)
        cdef SourceRange span, most
        cdef Slice key
        cdef int largest = 0, i
        self.ensure_open()
        if high and low >= high:
            return None
        most.extent.size_bytes = 0
        for i in range(self.sources.memtable_count + self.sources.run_count):
            self.span_of(i, &bounds, &span)
            if span.extent.size_bytes > most.extent.size_bytes:
                most = span
                largest = i
        if most.extent.size_bytes == 0:
            return None
        if largest < self.sources.memtable_count:
            key = (<Memtable> self.sources.memtables[largest]).key_behind(
                bounds.start.data, bounds.start.size, (most.extent.size_bytes + 1) // 2
            )
            middle = PyBytes_FromStringAndSize(<const char*> key.data, key.size)
        else:
            middle = self.middle_of_run(&self.sources.runs[largest - self.sources.memtable_count], &bounds, &most)
        # A large first record has half of the bytes itself; the middle is then the next key of any source.
        if self.first_key(low, high) == middle:
            middle = self.first_key(middle + b"\0", high)
        return None if middle is None else middle[SPACE_BYTES:]

    cdef bytes first_key(self, bytes low, bytes high):
        """Return the first internal key within bounds of any source, including tombstones; None: there is none."""
        cdef KeyBounds bounds = bounds_of(low, high)
        cdef MergedScan scan
        cdef Slice key
        cdef bytes found = None
        if scan_begin(&scan, &self.sources, &bounds) < 0:
            raise self.damage(scan.damaged, scan.bad_record)
        if scan_peek(&scan, &key) > 0:      # Nothing was handed out yet, so this reads nothing that could be damaged.
            found = PyBytes_FromStringAndSize(<const char*> key.data, key.size)
        scan.damaged = scan_loss(&scan)
        if scan.damaged != NULL:
            raise self.damage(scan.damaged, NULL)
        return found

    cdef bytes middle_of_run(self, const RunFiles* run, const KeyBounds* bounds, const SourceRange* span):
        """Return the last internal key that begins in the first half of a run's span.

        Requires: the span is not empty.
        """
        cdef SortedFile file
        cdef Walk walk
        cdef Record record
        cdef uint64_t position, left = (span.extent.size_bytes + 1) // 2
        cdef Py_ssize_t at = span.first
        while True:
            file = <SortedFile> run.files[at]
            position = 0
            if at == span.first and seek(file, bounds.start.data, bounds.start.size, &position) < 0:
                raise file.damage()
            if at == span.last or left <= file.position_end - position:
                break
            left -= file.position_end - position
            at += 1
        walk_begin(file, &walk, 0, min(position + left, file.position_end), True)
        if walk_next(file, &walk, &record, &position) != WALK_RECORD:
            raise file.damage()
        if record.key.size < SPACE_BYTES:
            raise Corrupt(file.name, HEADER_SIZE + position, "a key has no space")
        key = PyBytes_FromStringAndSize(<const char*> record.key.data, record.key.size)
        if not is_whole(file):
            raise file.loss()
        return key
