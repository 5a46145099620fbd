"""What a run counts, of one server in one stage.

Each request that was `sent` is in the end one of `answered` (with values, right or wrong), `refused` (with an error) or
`lost` (with its connection); the histograms have the answered ones, by what they asked.  `wrong` counts keys, not
requests.  The first wrong value is kept as evidence.

What has come since somebody asked last can be had alone (`news`): the sum of all news is the whole, exactly.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from gossipkv.wire._latency cimport HISTOGRAM_BUCKETS, Histogram, LatencyHistogram, histogram_record
from gossipkv.loadtest._dialect cimport Dialect, Reply
from gossipkv.loadtest._records cimport ABSENT

REASON_NAMES = ("closed", "reset", "garbage", "unasked", "timeout", "memory")


cdef void add_up(Histogram* whole, const Histogram* part) noexcept:
    cdef int i
    for i in range(HISTOGRAM_BUCKETS):
        whole.buckets[i] += part.buckets[i]
    whole.count += part.count
    whole.total_ns += part.total_ns
    whole.maximum_ns = max(whole.maximum_ns, part.maximum_ns)


cdef tuple take_news(Timing* timing):
    """`(count, total_ns, maximum_ns, [bucket, count, bucket, count, ...])` of what is recent, which then is before."""
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


@cython.final
cdef class Tally:
    """The counts, for Python."""

    def __cinit__(self, Dialect dialect not None):
        self.dialect = dialect
        memset(self.timings, 0, sizeof(self.timings))
        memset(&self.late, 0, sizeof(Timing))

    @property
    def histogram(self):
        """How long the answered requests took, of whatever kind."""
        cdef LatencyHistogram found = LatencyHistogram()
        cdef int kind
        for kind in range(KINDS):
            add_up(&found.histogram, &self.timings[kind].before)
            add_up(&found.histogram, &self.timings[kind].recent)
        return found

    @property
    def lateness(self):
        """How much later than they were due the requests of an open loop were sent."""
        cdef LatencyHistogram found = LatencyHistogram()
        add_up(&found.histogram, &self.late.before)
        add_up(&found.histogram, &self.late.recent)
        return found

    def news(self):
        """Latencies by number of kind, and lateness, since the last time; None when nothing was counted since."""
        cdef int kind
        if not self.is_touched:
            return None
        self.is_touched = False
        timings = {kind: take_news(&self.timings[kind]) for kind in range(KINDS) if self.timings[kind].recent.count > 0}
        return timings, take_news(&self.late) if self.late.recent.count > 0 else None

    def errors(self):
        """How often the server answered with which code."""
        found = {}
        for i in range(self.code_count):
            code = self.codes[i][:self.code_sizes[i]].decode("utf-8", "backslashreplace")
            found[code] = found.get(code, 0) + self.code_counts[i]
        if self.other_codes > 0:
            found["other"] = found.get("other", 0) + self.other_codes
        return found

    def broken(self):
        """How many connections broke, by reason."""
        return {name: self.broken_links[i] for i, name in enumerate(REASON_NAMES) if self.broken_links[i] > 0}

    def first_wrong(self):
        """The first wrong value: `(key or None, expected or None, got or None, size of what was got)`, or None.

        The key is None for a value too many.  Of what was got, 64 bytes.
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
        """The version that gave the first wrong value; empty when it told none."""
        return self.version[:self.version_size].decode("utf-8", "backslashreplace")

    cdef void count_sent(self, int64_t late_ns) noexcept nogil:
        """A request goes out, so much later than it was due; below zero, it was not due at any time."""
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
        self.keys += reply.keys
        self.misses += reply.misses
        self.unchecked += reply.unchecked
        histogram_record(&self.timings[kind].recent, took_ns, 1)
        if reply.wrong > 0:
            self.count_wrong(reply)

    cdef void count_broken(self, int reason) noexcept nogil:
        """A connection ended."""
        self.is_touched = True
        self.broken_links[reason] += 1

    cdef void count_lost(self, uint32_t lost) noexcept nogil:
        """So many requests went with their connection."""
        self.is_touched = True
        self.lost += lost

    cdef void count_bytes(self, Py_ssize_t sent, Py_ssize_t received) noexcept nogil:
        self.bytes_sent += <uint64_t>sent
        self.bytes_received += <uint64_t>received

    cdef void count_step_back(self) noexcept nogil:
        self.steps_back += 1

    cdef void count_reconnect(self) noexcept nogil:
        """A connection that was broken is there again."""
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
