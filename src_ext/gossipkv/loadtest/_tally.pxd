# What a run counts.  The rules stand in _tally.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._latency cimport Histogram
from gossipkv.loadtest._dialect cimport KINDS, Dialect, Reply

cdef enum:
    CODES = 16  # Different error codes that are told apart; a node has fewer.
    CODE_BYTES = 40
    EVIDENCE_BYTES = 64
    VERSION_BYTES = 255

# Why a connection broke, in the order of `REASON_NAMES`.
cdef enum Reason:
    CLOSED_BY_PEER = 0
    RESET = 1
    BAD_ANSWER = 2
    UNASKED_ANSWER = 3
    SILENT = 4
    NO_MEMORY = 5
    REASONS = 6

cdef struct Timing:
    Histogram recent  # since somebody asked last
    Histogram before

cdef class Tally:
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
    cdef bint is_touched  # since somebody asked last
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

    cdef void count_sent(self, int64_t late_ns) noexcept nogil
    cdef void count(self, const Reply* reply, int kind, uint64_t took_ns) noexcept nogil
    cdef void count_broken(self, int reason) noexcept nogil
    cdef void count_lost(self, uint32_t lost) noexcept nogil
    cdef void count_wrong(self, const Reply* reply) noexcept nogil
    cdef void count_code(self, const Reply* reply) noexcept nogil
    cdef void count_bytes(self, Py_ssize_t sent, Py_ssize_t received) noexcept nogil
    cdef void count_step_back(self) noexcept nogil
    cdef void count_reconnect(self) noexcept nogil
