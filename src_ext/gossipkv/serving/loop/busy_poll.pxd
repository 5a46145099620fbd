"""Busy-polling before a sleep; `busy_poll.pyx` explains the design."""

from libc.stdint cimport int64_t

cdef enum:
    # Longest busy poll. A poll without an event ends the round; a poll with one is work like any other.
    POLL_NS = 50000
    SHORT_SLEEP_NS = 100000  # A sleep this short would have been a hit: 50 µs of it is the wake-up.
    MAX_CREDIT = 8
    MIN_CREDIT = 4  # From this credit on polling pays.
    MISS_COST = 4

cdef struct PollCredit:
    int credit


cdef inline bint poll_pays(const PollCredit* poll) noexcept nogil:
    return poll.credit >= MIN_CREDIT


cdef inline void poll_hit(PollCredit* poll) noexcept nogil:
    """Record a busy poll that met an event."""
    poll.credit = min(MAX_CREDIT, poll.credit + 1)


cdef inline void poll_missed(PollCredit* poll) noexcept nogil:
    """Record a busy poll without an event."""
    poll.credit = max(0, poll.credit - MISS_COST)


cdef inline void poll_slept(PollCredit* poll, int64_t gap_ns) noexcept nogil:
    """Record a sleep without a busy poll, which an event ended after `gap_ns`."""
    if gap_ns <= SHORT_SLEEP_NS:
        poll.credit = min(MAX_CREDIT, poll.credit + 1)
    else:
        poll.credit = 0
