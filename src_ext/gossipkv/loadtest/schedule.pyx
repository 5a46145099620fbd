"""The due times of a run's requests: consecutive stages, all of them closed, or each with its own rate.

Request number n of a stage is due `n / rate` after its beginning, whatever happened to earlier ones.  Of several
processes that share the rate, number `turn` sends the requests `turn`, `turn + share`, `turn + 2 * share` and so on.
All of them together send exactly the requests of one process.
"""

from fractions import Fraction
from math import ceil

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free


def within(rate, duration_ns, turn, share):
    """Return the number of requests of a turn that fall due within a time, exactly: an extra one would be seen."""
    return max(0, ceil((Fraction(rate) * duration_ns / 1_000_000_000 - turn) / share))


cdef inline int64_t due_in(const Stage* stage, uint64_t number) noexcept nogil:
    """Return when a request of this stage is due."""
    return stage.begin_ns + <int64_t>(stage.offset_ns + <double>(number - stage.first) * stage.period_ns)


@cython.final
cdef class Schedule:
    """Stages of `(requests a second, or 0; nanoseconds, or 0: without end)`."""

    def __cinit__(self, stages, *, uint64_t requests=0, uint32_t turn=0, uint32_t share=1):
        cdef list given = [(float(rate), int(duration_ns)) for rate, duration_ns in stages]
        cdef Stage* stage
        cdef uint64_t total = 0
        cdef int64_t begin_ns = 0
        cdef uint32_t i
        cdef bint is_endless
        if not given or any(rate < 0 or duration_ns < 0 for rate, duration_ns in given):
            raise ValueError("a run needs a duration or a number of requests")
        if any(duration_ns == 0 for _, duration_ns in given) and (requests == 0 or len(given) > 1):
            raise ValueError("a run needs a duration or a number of requests")
        if turn >= share or len({rate > 0 for rate, _ in given}) > 1:
            raise ValueError("a run must be closed or open, and the turn must be below the number of processes")
        self.count = <uint32_t>len(given)
        self.stages = <Stage*>calloc(self.count, sizeof(Stage))
        if self.stages == NULL:
            raise MemoryError
        self.is_open = given[0][0] > 0
        for i in range(self.count):
            stage = self.stages + i
            rate, duration_ns = given[i]
            is_endless = duration_ns == 0
            stage.begin_ns = begin_ns
            stage.end_ns = INT64_MAX if is_endless else begin_ns + <int64_t>duration_ns
            stage.first = total
            stage.end = <uint64_t>INT64_MAX
            if self.is_open:
                stage.period_ns = 1e9 * share / <double>rate
                stage.offset_ns = 1e9 * turn / <double>rate
                if not is_endless:
                    stage.end = total + within(rate, duration_ns, turn, share)
            begin_ns = stage.end_ns
            total = stage.end
        self.duration_ns = begin_ns
        self.limit = min(total, requests) if requests > 0 else total

    def __dealloc__(self):
        free(self.stages)

    def due_ns(self, uint64_t number):
        """Return when a request is due, after the beginning.  Requires: the numbers do not fall."""
        return self.due(number)

    def fallen_due(self, int64_t passed_ns):
        """Return the number of requests of an open run that are due by this time after the beginning."""
        return self.due_by(passed_ns)

    cdef int64_t due(self, uint64_t number) noexcept nogil:
        cdef Stage* stage = self.stages + self.at
        while number >= stage.end and self.at + 1 < self.count:
            self.at += 1
            stage += 1
        return due_in(stage, number)

    cdef uint64_t due_by(self, int64_t passed_ns) noexcept nogil:
        cdef Stage* stage
        cdef uint64_t low = 0
        cdef uint64_t high
        cdef uint64_t middle
        cdef uint32_t i
        for i in range(self.count):
            stage = self.stages + i
            low = min(stage.first, self.limit)
            high = min(stage.end, self.limit)
            if i + 1 < self.count and stage.end_ns <= passed_ns:
                continue
            while low < high:
                middle = low + (high - low) // 2
                if due_in(stage, middle) <= passed_ns:
                    low = middle + 1
                else:
                    high = middle
            break
        return low

    cdef uint32_t stage_at(self, int64_t passed_ns) noexcept nogil:
        """Return the stage of a closed loop.  Requires: the times do not fall."""
        while self.at + 1 < self.count and passed_ns >= self.stages[self.at].end_ns:
            self.at += 1
        return self.at

    cdef int64_t last_due(self) noexcept nogil:
        """Return when the last request of an open run is due."""
        cdef uint32_t at = self.count - 1
        if self.limit == 0:
            return 0
        while at > 0 and self.stages[at].first >= self.limit:
            at -= 1
        return due_in(self.stages + at, self.limit - 1)
