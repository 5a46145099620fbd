"""The waiting writes of a replica, and the counters that its hosts have confirmed; `replica.acks` has the rules."""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from collections import deque as _deque

cdef enum:
    MAX_SLOTS = 64  # More than a table has (`placement.partition.MAX_REPLICATION`).
    # The fields of a `ReplicaStatus`, and of the `SpanEnds` in it.
    OF_ASSIGNMENT = 0
    OF_CLOCK = 1
    OF_CONFIG = 2
    OF_SPAN = 5
    OF_BEFORE = 0
    OF_AFTER = 1


def slots_needed(str level not None, Py_ssize_t slots, /):
    """Return the number of slots that a write at a level needs."""
    if level == "majority":
        return slots // 2 + 1
    return {"one": 1, "all": slots}[level]


cdef inline uint64_t counter_in(object clock, uint64_t assignment) noexcept:
    """Return the counter of an assignment in a packed clock."""
    return clock_counter(bytes_of(<bytes>clock), PyBytes_GET_SIZE(clock), assignment)


cdef inline object field(object record, int place):
    """Return a field of a named tuple."""
    return (<tuple>record)[place]


cdef bint is_older(object status, object other) except -1:
    """True if a status is older than another: neither config nor clock of a host goes back."""
    if field(status, OF_CONFIG) != field(other, OF_CONFIG):
        return field(status, OF_CONFIG) < field(other, OF_CONFIG)
    clock, later = field(status, OF_CLOCK), field(other, OF_CLOCK)
    return clock != later and reaches(later, clock)


@cython.final
cdef class _SplitWrite:
    """A write of a split replica: it reaches its level when all children confirm, wherever its keys are."""

    cdef Py_ssize_t left
    cdef object on_reached

    def child_reached(self):
        self.left -= 1
        if not self.left:
            self.on_reached()


@cython.final
cdef class AckTracker:
    """The waiting writes of one replica; few of a node's thousands of replicas have any."""

    cdef object replica
    cdef tuple statuses  # Last status of each other host.
    # By level and the assignment of the write (the replica's, or a parent's from before a split): the counter of the
    # last record of each write, and what to call then. None: no write waits.
    cdef dict pending

    def __init__(self, replica, /):
        self.replica = replica
        self.statuses = ()

    def confirming(self, confirms, /):
        """Return how many slots can confirm now: those whose counting hosts are local or pass `confirms`."""
        cdef object replica = self.replica
        cdef tuple assigned = replica.assigned, roles = replica.roles
        cdef Py_ssize_t there = 0
        own = replica.assignment
        for places in replica.quorum.places:
            for place in places:
                if assigned[place] != own and not confirms(roles[place].node):
                    break
            else:
                there += 1
        return there

    def has_heard(self, assignments, /):
        """Return True if all of these hosts but this one have reported a clock in this run."""
        cdef object own = self.replica.assignment
        for assignment in assignments:
            if assignment != own and status_of(self.statuses, assignment) is None:
                return False
        return True

    def wait(self, str level not None, uint64_t counter, on_reached, *, origin=None):
        """Call `on_reached` once the record of a counter and all earlier ones have reached the level.

        `origin`: the assignment of the local write; None: the replica's.
        """
        by = level, self.replica.assignment if origin is None else origin
        if self.pending is None:
            self.pending = {}
        pending = self.pending.get(by)
        if pending is None:
            pending = self.pending[by] = _deque()
        assert not pending or pending[len(pending) - 1][0] <= counter, "in the order of counters"
        pending.append((counter, on_reached))

    def divided(self, children, /):
        """Hand waiting writes to the children after a split: all must confirm anew."""
        pending, self.pending = self.pending or {}, None
        for (level, origin), writes in pending.items():
            for counter, on_reached in writes:
                everywhere = _SplitWrite()
                everywhere.left, everywhere.on_reached = len(children), on_reached
                for child in children:
                    child.wait(level, counter, everywhere.child_reached, origin=origin)

    def confirms(self, status, /):
        """Take a host's status; an older one from its other link is ignored."""
        cdef list others = []
        for other in self.statuses:
            if field(other, OF_ASSIGNMENT) != field(status, OF_ASSIGNMENT):
                others.append(other)
            elif is_older(status, other):
                status = other
        others.append(status)
        self.statuses = tuple(others)
        self.look()

    def look(self):
        """Complete the writes whose level is reached."""
        cdef uint64_t reached
        if self.pending is None:
            return
        for (level, origin), pending in list(self.pending.items()):
            reached = last_reached(self, level, 0, origin)
            while pending:
                first = pending[0]
                if <uint64_t>field(first, 0) > reached:
                    break
                pending.popleft()
                field(first, 1)()
            if pending and (begins := begins_of(self.statuses, origin)):
                look_behind(self, level, origin, pending, begins)
            if not pending and self.pending is not None:
                self.pending.pop((level, origin), None)
                self.pending = self.pending or None

    def reached(self, str level not None, uint64_t behind=0, *, origin=None):
        """Return the last counter of local writes that reached a level; with `behind`, count only records behind that.

        `origin`: as in `wait`.
        """
        return last_reached(self, level, behind, self.replica.assignment if origin is None else origin)


# Each function here is outside the class, since a table of methods would add eight bytes to each tracker.


cdef object status_of(tuple statuses, object assignment):
    """Return the last status of a host; None: there is none."""
    for status in statuses:
        if field(status, OF_ASSIGNMENT) == assignment:
            return status
    return None


cdef uint64_t begins_of(tuple statuses, uint64_t origin) except? 0:
    """Return the counter behind which all incomplete hosts' spans begin; 0: all hosts are complete."""
    cdef uint64_t begins = 0
    for status in statuses:
        span = field(status, OF_SPAN)
        if span is not None:
            begins = max(begins, counter_in(field(span, OF_BEFORE), origin))
    return begins


cdef int look_behind(AckTracker tracker, str level, uint64_t origin, object pending, uint64_t begins) except -1:
    """Complete writes from within all spans; earlier ones wait until the targets are complete."""
    reached = last_reached(tracker, level, begins, origin)
    done = [write for write in pending if begins < write[0] <= reached]
    for write in done:
        pending.remove(write)
        write[1]()
    return 0


cdef uint64_t last_reached(AckTracker tracker, str level, uint64_t behind, uint64_t origin) except? 0:
    cdef uint64_t slots[MAX_SLOTS]  # Those that have confirmed most come first.
    cdef uint64_t here, counter
    cdef Py_ssize_t count = 0, needed, at
    cdef object replica = tracker.replica, own = replica.assignment, config = replica.config
    cdef tuple assigned = replica.assigned
    if origin not in replica.named:  # The origin is settled: all replicas have its records.
        return ENDLESS
    here = counter_in(replica.synced, origin)
    if level == "one":
        return here
    quorum = replica.quorum
    for places in field(quorum, 1):
        counter = ENDLESS
        for place in places:
            assignment = assigned[place]
            if assignment == own:
                counter = min(counter, here)
            else:
                counter = min(counter, confirmed(tracker.statuses, assignment, config, origin, behind))
        if count == MAX_SLOTS:
            raise ValueError(f"a partition has at most {MAX_SLOTS} slots")
        at = count
        while at > 0 and slots[at - 1] < counter:
            slots[at] = slots[at - 1]
            at -= 1
        slots[at] = counter
        count += 1
    needed = slots_needed(level, field(quorum, 0))
    return slots[needed - 1] if count >= needed else 0


cdef uint64_t confirmed(
    tuple statuses, object assignment, object config, uint64_t origin, uint64_t behind
) except? 0:
    """Return the last counter that a host has confirmed under a config; with `behind`, in its span as well."""
    cdef uint64_t counter
    status = status_of(statuses, assignment)
    if status is None or field(status, OF_CONFIG) != config:
        return 0
    counter, span = counter_in(field(status, OF_CLOCK), origin), field(status, OF_SPAN)
    if span is not None and counter_in(field(span, OF_BEFORE), origin) <= behind:
        counter = max(counter, counter_in(field(span, OF_AFTER), origin))
    return counter
