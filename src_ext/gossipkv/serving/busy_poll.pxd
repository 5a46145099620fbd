"""Whether to look out for the next event before sleeping.  The idea stands in `busy_poll.pyx`."""

from libc.stdint cimport int64_t

cdef enum:
    POLL_NS = 50000  # The longest look-out.  One in vain ends the round; one that hits is work like any other.
    SHORT_SLEEP_NS = 100000  # A sleep this short would have been a hit: 50 µs of it is the waking up.
    MAX_CREDIT = 8
    MIN_CREDIT = 4  # From here on it pays.
    MISS_COST = 4

cdef struct PollCredit:
    int credit


cdef inline bint poll_pays(const PollCredit* poll) noexcept nogil:
    return poll.credit >= MIN_CREDIT


cdef inline void poll_hit(PollCredit* poll) noexcept nogil:
    """A look-out met an event."""
    poll.credit = min(MAX_CREDIT, poll.credit + 1)


cdef inline void poll_missed(PollCredit* poll) noexcept nogil:
    """A look-out met none."""
    poll.credit = max(0, poll.credit - MISS_COST)


cdef inline void poll_slept(PollCredit* poll, int64_t gap_ns) noexcept nogil:
    """There was none, and the next event came after so long."""
    if gap_ns <= SHORT_SLEEP_NS:
        poll.credit = min(MAX_CREDIT, poll.credit + 1)
    else:
        poll.credit = 0
