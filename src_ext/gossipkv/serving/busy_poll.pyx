"""Adaptive busy-polling: whether to look out for the next event for a moment before sleeping.

A sleep and the wake-up that ends it take tens of microseconds of a round trip and ten of the processor.  When requests
follow each other closer than that, it is cheaper and faster to look again and again for a moment (50 µs at most, and
no longer than the round may last) than to sleep.  When they do not, it is pure waste.  So the recent gaps decide:

* A look-out that met an event, and a sleep that was so short that a look-out would have, earn 1, up to 8.
* A look-out in vain costs 4, a long sleep everything.
* From 4 on it pays.

So a steady stream is looked out for until two look-outs in a row were in vain, four out of five must hit, and an idle
node looks out once or twice and then sleeps: where nothing comes, there is no next round.  The gap after a look-out in
vain does not count a second time.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class PollPolicy:
    """The decision by hand; the loop calls the same functions."""

    cdef PollCredit credit

    def pays(self):
        """Whether to look out now."""
        return bool(poll_pays(&self.credit))

    def hit(self):
        """A look-out met an event."""
        poll_hit(&self.credit)

    def missed(self):
        """A look-out met none."""
        poll_missed(&self.credit)

    def slept(self, int64_t gap_ns):
        """There was no look-out, and the next event came after so long."""
        poll_slept(&self.credit, gap_ns)
