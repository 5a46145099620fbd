"""Adaptive busy-polling: a decision whether to poll for a moment before the loop sleeps.

A sleep and its wake-up take tens of microseconds of a round trip, and ten of the processor. If requests follow each
other faster, polling for a moment (at most 50 µs, and within the round) is cheaper and faster; otherwise it is waste.
The recent gaps decide by a credit:

* A poll that met an event, or a sleep so short that a poll would have, earns 1, up to 8.
* A poll without an event costs 4, and a long sleep costs the whole credit.
* Polling pays from 4 on.

So a steady stream is polled for until two polls in a row fail, and four out of five must hit. An idle node polls once
or twice and then sleeps. The gap after a failed poll is not counted again.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class PollPolicy:
    """The polling decision for use from Python; the loop calls the same functions."""

    cdef PollCredit credit

    def pays(self):
        """Return True if a busy poll pays now."""
        return bool(poll_pays(&self.credit))

    def hit(self):
        """Record a busy poll that met an event."""
        poll_hit(&self.credit)

    def missed(self):
        """Record a busy poll without an event."""
        poll_missed(&self.credit)

    def slept(self, int64_t gap_ns):
        """Record a sleep without a busy poll, which an event ended after `gap_ns`."""
        poll_slept(&self.credit, gap_ns)
