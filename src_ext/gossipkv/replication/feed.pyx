"""The steps of a log sender for each entry, and for each row of an answer: `stream.sender` has the rules.

Python does the rest, which comes once for each message, sync or change of a placement.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport put_array, put_bin, put_nil, put_unsigned

cdef enum:
    MAX_HEAD_BYTES = 9  # The longest head of a value in MessagePack.
    # Fields of a `ReplicaStatus`.
    OF_CAN_TAKE = 3
    OF_AVAILABLE = 4
    OF_NODE = 0  # A field of an `AssignmentRole`.

cdef object new_tuple = tuple.__new__


@cython.final
@cython.no_gc  # Nothing that an open entry refers to refers to open entries.
cdef class OpenEntry:
    """An entry that the target does not cover yet; `noted`: the time at which the cursor passed it."""

    cdef readonly uint64_t position
    cdef readonly object replica
    cdef readonly bytes after
    cdef readonly tuple origins
    cdef readonly bint is_own
    cdef readonly double noted
    cdef public bint under_way
    cdef readonly object answered  # Time of the last answer; None: there was none.


cdef class EntryFeed:
    """The state of a log sender that each entry meets; the rest is in `LogSender`."""

    cdef public dict statuses  # By replica: the target's status.
    cdef public object _shared  # The cursor of all replicas without one of their own.
    cdef public dict _cursors  # By replica: cursors of their own.
    cdef public dict _lagging  # These cursors, each once.
    cdef public dict _strangers  # Replicas reported by a node that is no host by the local placement: not fed.
    cdef public dict _gap  # Replicas that lacked entries on connecting, and up to which clock.
    cdef public dict _under_way  # Entries under way by position and replica.
    cdef public dict _relayed  # Times until which an origin's entries are relayed at once, by replica and origin.
    cdef public bint _back
    cdef public double _since  # Time since when the resume position has not moved.

    def _covers(self, replica, bytes after not None, /):
        """Return True unless the target is known to lack something; assignments no longer named have ended."""
        return target_covers(self, replica, after)

    def _is_of(self, cursor, LogEntry entry not None, /):
        """Return True if the entry belongs to the cursor; entries from before the replica's space are obsolete."""
        return belongs(self, cursor, entry)

    def _advance(self, double now, /):
        """Drop the first open entries that hold their cursor no more: they are covered, or their replica has left."""
        cdef OpenEntry item
        for cursor in (self._shared, *self._lagging):
            entries = cursor.open
            while entries:
                item = entries[0]
                is_here = self._cursors.get(item.replica, self._shared) is cursor
                if is_here and not target_covers(self, item.replica, item.after):
                    break
                entries.popleft()
                if cursor is self._shared:
                    self._since = now

    def _open(self, cursor, batch, double now, list entries not None, list items not None, /):
        """Open a cursor's next entries unless the target covers them or they are of another cursor.

        Add those that must be sent now to `entries` and `items`, and return their size.
        """
        cdef LogEntry entry
        cdef OpenEntry item
        cdef Py_ssize_t size_bytes = 0
        cdef bint goes, goes_anyway = self._back or cursor.replicas is not None
        read, opened = cursor.read, cursor.open
        for entry in batch:
            if read:
                read.popleft()
            if not belongs(self, cursor, entry) or target_covers(self, entry.replica, entry.after):
                continue
            item = self._under_way.get((entry.position, entry.replica)) if self._under_way else None
            if item is None or item.after != entry.after:  # A page of a split replica may have held less.
                item = OpenEntry.__new__(OpenEntry)
                item.position, item.replica, item.after = entry.position, entry.replica, entry.after
                item.origins, item.is_own, item.noted = entry.origins, entry.is_own, now
            opened.append(item)
            goes = entry.is_own or goes_anyway or not self.statuses[entry.replica].available
            if not goes and self._relayed:
                goes = any([self._relayed.get((entry.replica, origin), 0.0) > now for origin in entry.origins])
            if goes and not item.under_way:
                entries.append(entry)
                items.append(item)
                size_bytes += entry.size_bytes
        return size_bytes

    def lag(self, replica, /):
        """Return the number of a replica's records that the target lacks; ended assignments do not count."""
        cdef bytes wanted, theirs
        cdef const unsigned char* at
        cdef Py_ssize_t place
        cdef uint64_t count, known, lacking = 0
        status = self.statuses.get(replica)
        if status is None:
            return 0
        wanted, theirs = named(replica.synced, replica.named), field(status, OF_CLOCK)
        at = bytes_of(wanted)
        for place in range(0, PyBytes_GET_SIZE(wanted), ENTRY_BYTES):
            count = load_number(at + place + NUMBER_BYTES)
            known = clock_counter(bytes_of(theirs), PyBytes_GET_SIZE(theirs), load_number(at + place))
            lacking += max(count, known) - known
        return lacking

    def _depart(self, list items not None, /):
        """Take note that these entries are under way."""
        cdef OpenEntry item
        for item in items:
            item.under_way = True
            self._under_way[item.position, item.replica] = item

    def _return(self, list items not None, now, /):
        """Take note that the message with these entries was answered."""
        cdef OpenEntry item
        for item in items:
            item.under_way, item.answered = False, now
            self._under_way.pop((item.position, item.replica), None)


cdef bint target_covers(EntryFeed feed, object replica, bytes after) except -1:
    status = feed.statuses.get(replica)
    if status is None or replica in feed._strangers or reaches(field(status, OF_CLOCK), after):
        return True
    left, span = named(after, replica.named), field(status, OF_SPAN)
    return reaches(field(status, OF_CLOCK), left) or (span is not None and reaches(field(span, OF_AFTER), left))


cdef bint belongs(EntryFeed feed, object cursor, LogEntry entry) except -1:
    if entry.replica not in feed.statuses or feed._cursors.get(entry.replica, feed._shared) is not cursor:
        return False
    return entry.position > <uint64_t>entry.replica.made_at


def host_at(tuple assigned not None, roles not None, bytes node not None, /):
    """Return the assignment of a host, by the roles of the assigned; 0: the node has none."""
    cdef Py_ssize_t at
    for at in range(min(len(assigned), len(roles))):
        if field(field(roles, at), OF_NODE) == node:
            return assigned[at]
    return 0


def show_confirmed(replica, bytes node not None, status, /):
    """Show to the serving loops the writes that a node has confirmed, as `tombstone_gc.confirmed` counts them."""
    show(replica, node, status)


cdef int show(object replica, bytes node, object status) except -1:
    replica.settled = None
    calm = replica.calm
    if calm is None:
        return 0
    host = host_at(replica.assigned, replica.roles, node)
    counts = (
        status is not None and field(status, OF_ASSIGNMENT) == host and field(status, OF_CONFIG) == replica.config
        and field(status, OF_SPAN) is None
    )
    calm.confirms(host, field(status, OF_CLOCK) if counts else None)
    return 0


def hear_counters(list rows not None, peer, dict acks not None, double now, /):
    """Apply the rows of a peer's answer to a feed in which nothing but counters is new; return the other rows.

    `acks` has the trackers of present replicas.

    Raises:
        ProtocolError: the counters of a row are no clock.
    """
    cdef EntryFeed feed = peer.sender
    cdef list numbered = peer.numbered, ids = peer.ids
    cdef dict states = peer.states
    cdef list others = []
    cdef bytes theirs
    for row in rows:
        status = last_status(row, numbered, states, feed)
        replica = None if status is None else numbered[(<list>row)[0]]
        tracker = acks.get(replica)
        if tracker is None:
            others.append(row)
            continue
        theirs = clock_of(ids[(<list>row)[0]], (<list>row)[1])
        if not hear(feed, peer, replica, status, theirs, now, <AckTracker?>tracker):
            others.append(row)
    return others


def hear_rows(rows, peer, dict by_partition not None, dict acks not None, double now, /):
    """Apply the later rows of a peer's report in which nothing but counters is new; return the other rows.

    An answered row is one of the others. Raises as `hear_counters`.
    """
    cdef EntryFeed feed = peer.sender
    cdef dict known = peer.rows, unreported = peer.unreported, newer = peer.newer
    cdef list others = []
    cdef bint is_plain
    for row in rows:
        is_plain = type(row) is list and len(<list>row) == 5 and type((<list>row)[0]) is int
        reported = known.get((<list>row)[0]) if is_plain else None
        if reported is not None and not reported.is_new and (<list>row)[0] not in newer:
            _, config, counters, can_take, is_below = <list>row
            replica = by_partition.get(reported.partition)
            status, tracker = feed.statuses.get(replica), acks.get(replica)
            if (
                tracker is not None and status is not None and replica not in unreported
                and type(config) is int and type(counters) is list and can_take is True and is_below is False
                and field(status, OF_ASSIGNMENT) == reported.assignment and field(status, OF_CONFIG) == config
                and is_steady(feed, replica, status)
                and hear(feed, peer, replica, status, clock_of(reported.ids, counters), now, <AckTracker?>tracker)
            ):
                continue
        others.append(row)
    return others


cdef bint is_steady(EntryFeed feed, object replica, object status) except -1:
    """True if the last status is of a complete replica that is fed."""
    return (
        field(status, OF_CAN_TAKE) and field(status, OF_SPAN) is None and replica not in feed._strangers
        and field(status, OF_CONFIG) <= replica.config
    )


cdef bint hear(
    EntryFeed feed, object peer, object replica, object status, bytes theirs, double now, AckTracker tracker
) except -1:
    """Apply a clock to the last status of a peer's replica; False: the replica may have to be barred."""
    cdef bytes synced = replica.synced, told = field(status, OF_CLOCK)
    cdef uint64_t own = replica.assignment
    if counter_in(theirs, own) > counter_in(replica.appended, own):
        return False
    if theirs == synced:
        theirs = synced  # Share one clock among all nodes of a replica at rest.
    if not reaches(theirs, told):  # The clock of the other link is newer.
        theirs = merge(theirs, told)
    status = new_tuple(
        type(status),
        (field(status, OF_ASSIGNMENT), theirs, field(status, OF_CONFIG), True, field(status, OF_AVAILABLE), None),
    )
    feed.statuses[replica] = status
    lacks = feed._gap.get(replica)
    if lacks is not None:
        if theirs != told:
            feed._since = now
        if target_covers(feed, replica, lacks):
            del feed._gap[replica]
    show(replica, peer.node, status)
    tracker.confirms(status)
    return True


cdef object last_status(object row, list numbered, dict states, EntryFeed feed):
    """Return the last status of the replica of a plain row if nothing but its clock can change; otherwise None."""
    if type(row) is not list or len(<list>row) != 2:
        return None
    number, counters = <list>row
    if type(number) is not int or type(counters) is not list or not 0 <= number < len(numbered):
        return None
    replica, state = numbered[number], states.get(number)
    status = feed.statuses.get(replica)
    if status is None or state is None:
        return None
    is_same = field(status, OF_ASSIGNMENT) == field(state, 0) and field(status, OF_CONFIG) == field(state, 1)
    return status if is_same and field(state, 2) and is_steady(feed, replica, status) else None


def pack_entries(list entries not None, dict numbers not None, list ids not None, /):
    """Return the packed rows of entries (`stream.messages`); None if a replica is not known on the link as it is now.

    `numbers`: those of their replicas on the link; `ids`: by these, the assignments of their clocks there.
    """
    cdef LogEntry entry
    cdef Buffer out
    cdef dict last = {}
    buffer_init(&out)
    try:
        reserve(&out, MAX_HEAD_BYTES)
        put_array(&out, len(entries))
        for entry in entries:
            number = numbers.get(entry.replica)
            if number is None or ids[number] != entry.replica.named:
                return None
            reserve(&out, 2 * MAX_HEAD_BYTES)
            put_array(&out, 4)
            put_unsigned(&out, number)
            put_counters(&out, None if last.get(number) == entry.before else entry.before, ids[number])
            put_counters(&out, None if entry.is_own else entry.after, ids[number])
            put_pairs(&out, entry.records if entry.is_own else entry.records_of(ids[number]))
            last[number] = entry.after
        return PyBytes_FromStringAndSize(<const char*>out.data, out.end)
    finally:
        buffer_release(&out)


cdef int reserve(Buffer* out, Py_ssize_t size_bytes) except -1:
    if buffer_reserve(out, size_bytes) < 0:
        raise MemoryError
    return 0


cdef int put_counters(Buffer* out, bytes clock, tuple ids) except -1:
    """Write a clock's counters, or nil."""
    cdef uint64_t id_
    reserve(out, (1 + len(ids)) * MAX_HEAD_BYTES)
    if clock is None:
        put_nil(out)
        return 0
    put_array(out, len(ids))
    for id_ in ids:
        put_unsigned(out, clock_counter(bytes_of(clock), PyBytes_GET_SIZE(clock), id_))
    return 0


cdef int put_pairs(Buffer* out, object records) except -1:
    """Write keys, each with its record."""
    cdef bytes key, data
    reserve(out, MAX_HEAD_BYTES)
    put_array(out, 2 * len(records))
    for key, data in records:
        reserve(out, 2 * MAX_HEAD_BYTES + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(data))
        put_bin(out, bytes_of(key), PyBytes_GET_SIZE(key))
        put_bin(out, bytes_of(data), PyBytes_GET_SIZE(data))
    return 0
