"""The counts of a run: a tally for each stage and target, and the versions from which each target answered.

Each `sent` request ends as `answered` (with values, right or wrong), `refused` (with an error) or `lost` (with its
connection); the histograms have the answered ones, by kind.  `wrong` counts keys, not requests.  The first wrong value
is kept as evidence.  `news` returns the counts since the last call; the sum of all news is exactly the total.

A request counts in the stage in which it was due.  A connection's bytes and its end count in the current stage.

Versions are ordered as strings.  An answer is a step back if its version is older than the newest one that the server
had answered with when the request was sent.  Concurrent answers may come in any order.  Answers without a version have
the empty name, and are no steps.  Versions beyond 64, and too long names, count as "other", and are no steps either.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from gossipkv.wire._wire cimport HISTOGRAM_BUCKETS, Histogram, LatencyHistogram, histogram_record

cdef enum:
    CODES = 16  # Distinct error codes; a node has fewer.
    CODE_BYTES = 40
    EVIDENCE_BYTES = 64
    NAMELESS = 0  # The version of answers that name none.
    OTHER = 1

cdef struct Timing:
    Histogram recent  # The counts since the last call of `news`.
    Histogram before

REASON_NAMES = ("closed", "reset", "garbage", "unasked", "timeout", "memory")


cdef void add_up(Histogram* whole, const Histogram* part) noexcept:
    cdef int i
    for i in range(HISTOGRAM_BUCKETS):
        whole.buckets[i] += part.buckets[i]
    whole.count += part.count
    whole.total_ns += part.total_ns
    whole.maximum_ns = max(whole.maximum_ns, part.maximum_ns)


cdef tuple take_news(Timing* timing):
    """Move the recent counts to the earlier ones; return `(count, total_ns, maximum_ns, [bucket, count, ...])`."""
    cdef Histogram* recent = &timing.recent
    cdef list counts = []
    cdef int i
    for i in range(HISTOGRAM_BUCKETS):
        if recent.buckets[i] > 0:
            counts.append(i)
            counts.append(recent.buckets[i])
    found = (recent.count, recent.total_ns, recent.maximum_ns, counts)
    add_up(&timing.before, recent)
    memset(recent, 0, sizeof(Histogram))
    return found


cdef LatencyHistogram whole_of(const Timing* timings, int count):
    """Return the sum of several timings."""
    cdef LatencyHistogram found = LatencyHistogram()
    for i in range(count):
        add_up(&found.histogram, &timings[i].before)
        add_up(&found.histogram, &timings[i].recent)
    return found


@cython.final
cdef class Tally:
    """The counts of one server in one stage, for Python; a ledger updates them."""

    cdef Dialect dialect
    cdef Timing timings[KINDS]
    cdef Timing late
    cdef readonly uint64_t sent
    cdef readonly uint64_t answered
    cdef readonly uint64_t keys
    cdef readonly uint64_t misses
    cdef readonly uint64_t unchecked
    cdef readonly uint64_t wrong
    cdef readonly uint64_t steps_back
    cdef readonly uint64_t refused
    cdef readonly uint64_t lost
    cdef readonly uint64_t reconnects
    cdef readonly uint64_t bytes_received
    cdef readonly uint64_t bytes_sent
    cdef bint is_touched  # True if anything was counted since the last call of `news`.
    cdef uint64_t broken_links[REASONS]
    cdef char codes[CODES][CODE_BYTES]
    cdef int code_sizes[CODES]
    cdef uint64_t code_counts[CODES]
    cdef int code_count
    cdef uint64_t other_codes
    # The first wrong value.
    cdef bint has_evidence
    cdef uint32_t wrong_key
    cdef bint got_value
    cdef Py_ssize_t got_size
    cdef uint8_t got[EVIDENCE_BYTES]
    cdef Py_ssize_t version_size
    cdef uint8_t version[VERSION_BYTES]

    def __cinit__(self, Dialect dialect not None):
        self.dialect = dialect

    @property
    def histogram(self):
        """Return the latencies of answered requests, of all kinds."""
        return whole_of(self.timings, KINDS)

    @property
    def lateness(self):
        """Return how late the requests of an open loop were sent."""
        return whole_of(&self.late, 1)

    def news(self):
        """Return latencies by number of kind, and lateness, since the last call; None if nothing was counted."""
        cdef int kind
        if not self.is_touched:
            return None
        self.is_touched = False
        timings = {kind: take_news(&self.timings[kind]) for kind in range(KINDS) if self.timings[kind].recent.count > 0}
        return timings, take_news(&self.late) if self.late.recent.count > 0 else None

    def errors(self):
        """Return the server's errors, by code."""
        found = {}
        for i in range(self.code_count):
            code = self.codes[i][:self.code_sizes[i]].decode("utf-8", "backslashreplace")
            found[code] = found.get(code, 0) + self.code_counts[i]
        if self.other_codes > 0:
            found["other"] = found.get("other", 0) + self.other_codes
        return found

    def broken(self):
        """Return the broken connections, by reason."""
        return {name: self.broken_links[i] for i, name in enumerate(REASON_NAMES) if self.broken_links[i] > 0}

    def first_wrong(self):
        """Return the first wrong value, or None: `(key or None, expected or None, got or None, size of the value)`.

        The key is None for a surplus value.  At most 64 bytes of the received value are kept.
        """
        cdef Py_ssize_t shown = min(self.got_size, <Py_ssize_t>EVIDENCE_BYTES)
        if not self.has_evidence:
            return None
        key, expected = None, None
        if self.wrong_key != <uint32_t>ABSENT:
            version = self.version[:self.version_size].decode("utf-8", "backslashreplace")
            key, expected = self.dialect.truth.record(self.wrong_key, version)
        return key, expected, self.got[:shown] if self.got_value else None, self.got_size

    @property
    def wrong_version(self):
        """Return the version that gave the first wrong value; empty if unknown."""
        return self.version[:self.version_size].decode("utf-8", "backslashreplace")

    cdef void count_sent(self, int64_t late_ns) noexcept nogil:
        """Count a sent request with its lateness; below zero, it had no due time."""
        self.is_touched = True
        self.sent += 1
        if late_ns >= 0:
            histogram_record(&self.late.recent, <uint64_t>late_ns, 1)

    cdef void count(self, const Reply* reply, int kind, uint64_t took_ns) noexcept nogil:
        self.is_touched = True
        if reply.is_error:
            self.refused += 1
            self.count_code(reply)
            return
        self.answered += 1
        histogram_record(&self.timings[kind].recent, took_ns, 1)
        self.count_values(reply)

    cdef void count_values(self, const Reply* reply) noexcept nogil:
        self.keys += reply.keys
        self.misses += reply.misses
        self.unchecked += reply.unchecked
        if reply.wrong > 0:
            self.count_wrong(reply)

    cdef void count_broken(self, int reason) noexcept nogil:
        """Count a broken connection."""
        self.is_touched = True
        self.broken_links[reason] += 1

    cdef void count_lost(self) noexcept nogil:
        """Count a request that was lost with its connection."""
        self.is_touched = True
        self.lost += 1

    cdef void count_bytes(self, Py_ssize_t sent, Py_ssize_t received) noexcept nogil:
        self.bytes_sent += <uint64_t>sent
        self.bytes_received += <uint64_t>received

    cdef void count_step_back(self) noexcept nogil:
        self.steps_back += 1

    cdef void count_reconnect(self) noexcept nogil:
        """Count a connection that was made again."""
        self.is_touched = True
        self.reconnects += 1

    cdef void count_wrong(self, const Reply* reply) noexcept nogil:
        self.wrong += reply.wrong
        if self.has_evidence:
            return
        self.has_evidence = True
        self.wrong_key = reply.wrong_key
        self.got_value = reply.got != NULL
        self.got_size = reply.got_size if self.got_value else 0
        if self.got_value:
            memcpy(self.got, reply.got, min(reply.got_size, <Py_ssize_t>EVIDENCE_BYTES))
        self.version_size = min(reply.version_size, <Py_ssize_t>VERSION_BYTES)
        memcpy(self.version, reply.version, self.version_size)

    cdef void count_code(self, const Reply* reply) noexcept nogil:
        cdef int i
        for i in range(self.code_count):
            if self.code_sizes[i] == reply.code_size and memcmp(self.codes[i], reply.code, reply.code_size) == 0:
                self.code_counts[i] += 1
                return
        if not 0 < reply.code_size <= CODE_BYTES or self.code_count == CODES:
            self.other_codes += 1
            return
        memcpy(self.codes[self.code_count], reply.code, reply.code_size)
        self.code_sizes[self.code_count] = <int>reply.code_size
        self.code_counts[self.code_count] = 1
        self.code_count += 1


cdef int32_t find_version(ServerVersions* versions, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """Return the number of a version, adding it to the table."""
    cdef int32_t at = versions.last
    cdef VersionCounts* known_versions = versions.counts
    if size == 0:
        return NAMELESS
    if at > OTHER and known_versions[at].size == size and memcmp(known_versions[at].name, name, size) == 0:
        return at
    for at in range(OTHER + 1, versions.count):
        if known_versions[at].size == size and memcmp(known_versions[at].name, name, size) == 0:
            versions.last = at
            return at
    if versions.count == VERSIONS or size > VERSION_BYTES:
        return OTHER
    at = versions.count
    memcpy(known_versions[at].name, name, size)
    known_versions[at].size = size
    versions.count += 1
    versions.last = at
    return at


cdef bint is_older(const ServerVersions* versions, int32_t left, int32_t right) noexcept nogil:
    """Return True if version `left` precedes `right`, both known."""
    cdef const VersionCounts* first = versions.counts + left
    cdef const VersionCounts* second = versions.counts + right
    cdef int found
    if left == right or left <= OTHER or right <= OTHER:
        return False
    found = memcmp(first.name, second.name, min(first.size, second.size))
    return found < 0 or (found == 0 and first.size < second.size)


cdef int32_t note_version(ServerVersions* versions, const Reply* reply) noexcept nogil:
    """Count an answer, its wrong and its unknown values; return the number of its version."""
    cdef int32_t at = find_version(versions, reply.version, reply.version_size)
    versions.counts[at].requests += 1
    versions.counts[at].wrong += reply.wrong
    versions.counts[at].untold += reply.untold
    if at > OTHER and (versions.newest < 0 or is_older(versions, versions.newest, at)):
        versions.newest = at
    return at


cdef inline PyObject* tally_of(Ledger ledger, uint32_t stage, uint32_t target) noexcept nogil:
    return ledger.tally_of[stage * ledger.targets + target]


@cython.final
cdef class Ledger:
    """Tallies of a number of stages, for targets given by their dialects."""

    def __cinit__(self, uint32_t stages, list dialects not None):
        cdef uint32_t i
        self.stages = stages
        self.targets = <uint32_t>len(dialects)
        if stages < 1 or not dialects:
            raise ValueError("a ledger needs at least one stage and one target")
        self.tallies = [Tally(dialect) for _ in range(stages) for dialect in dialects]
        self.tally_of = <PyObject**>calloc(<size_t>stages * self.targets, sizeof(PyObject*))
        self.versions = <ServerVersions*>calloc(self.targets, sizeof(ServerVersions))
        if self.tally_of == NULL or self.versions == NULL:
            raise MemoryError
        for i in range(stages * self.targets):
            self.tally_of[i] = <PyObject*>self.tallies[i]
        for i in range(self.targets):
            memcpy(self.versions[i].counts[OTHER].name, b"other", 5)
            self.versions[i].counts[OTHER].size = 5
            self.versions[i].count = OTHER + 1
            self.versions[i].newest = -1

    def __dealloc__(self):
        free(self.tally_of)
        free(self.versions)

    def tally_at(self, uint32_t stage, uint32_t target):
        """Return the tally of one target in one stage."""
        if stage >= self.stages or target >= self.targets:
            raise IndexError(f"stage {stage} of {self.stages} or target {target} of {self.targets} does not exist")
        return self.tallies[stage * self.targets + target]

    def versions_at(self, uint32_t target):
        """Return requests, wrong and unknown values of each version from which a target answered."""
        if target >= self.targets:
            raise IndexError(f"target {target} of {self.targets} does not exist")
        found = {}
        for i in range(self.versions[target].count):
            version = self.versions[target].counts[i]
            if version.requests > 0:
                name = version.name[:version.size].decode("utf-8", "backslashreplace")
                counted = version.requests, version.wrong, version.untold
                found[name] = tuple(map(sum, zip(counted, found.get(name, (0, 0, 0)), strict=True)))
        return found

    def touched(self):
        """Return stage and target of each tally with counts since its last `news`."""
        return [
            (i // self.targets, i % self.targets)
            for i in range(self.stages * self.targets)
            if (<Tally>self.tally_of[i]).is_touched
        ]

    cdef uint64_t ended(self) noexcept:
        """Return the requests that were answered, refused or lost."""
        cdef uint64_t found = 0
        cdef Tally tally
        for tally in self.tallies:
            found += tally.answered + tally.refused + tally.lost
        return found

    cdef void count_broken(self, uint32_t stage, uint32_t target, int reason, const Window* window) noexcept nogil:
        """Count the end of a connection, and the loss of its requests in flight."""
        cdef uint32_t i
        (<Tally>tally_of(self, stage, target)).count_broken(reason)
        for i in range(window.capacity):
            if window.slots[i].busy:
                (<Tally>tally_of(self, window.slots[i].stage, target)).count_lost()

    cdef void count(self, uint32_t target, const Slot* slot, const Reply* reply, int64_t now) noexcept nogil:
        """Count an answer."""
        cdef PyObject* tally = tally_of(self, slot.stage, target)
        cdef ServerVersions* versions = self.versions + target
        (<Tally>tally).count(reply, slot.kind, <uint64_t>max(<int64_t>0, now - slot.due_ns))
        if not reply.is_error and is_older(versions, note_version(versions, reply), slot.floor):
            (<Tally>tally).count_step_back()
