"""What a run counts.

Each request that was `sent` is in the end one of `answered` (with values, right or wrong), `refused` (with an error) or
`lost` (with its connection); the histogram has the answered ones.  `wrong` counts keys, not requests.  The first wrong
value is kept as evidence.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.latency._histogram cimport LatencyHistogram, histogram_record
from gossipkv.loadtest._dialect cimport ABSENT, Dialect, Reply

REASON_NAMES = ("closed", "reset", "garbage", "unasked", "timeout", "memory")


@cython.final
cdef class Tally:
    """The counts of one run, for Python when it is over."""

    def __cinit__(self, Dialect dialect not None):
        self.dialect = dialect
        self.histogram = LatencyHistogram()

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
        key, expected = (None, None) if self.wrong_key == ABSENT else self.dialect.record(self.wrong_key)
        return key, expected, self.got[:shown] if self.got_value else None, self.got_size

    cdef void count(self, const Reply* reply, uint32_t keys, uint64_t took_ns) noexcept nogil:
        if reply.is_error:
            self.refused += 1
            self.count_code(reply)
            return
        self.answered += 1
        self.keys += keys
        histogram_record(&self.histogram.histogram, took_ns, 1)
        if reply.wrong > 0:
            self.count_wrong(reply)

    cdef void count_broken(self, int reason, uint32_t lost) noexcept nogil:
        """A connection ended, with so many requests in flight."""
        self.broken_links[reason] += 1
        self.lost += lost

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
