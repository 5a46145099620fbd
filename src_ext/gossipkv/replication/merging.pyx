"""Merging: entries of other nodes are read from messages, and their records compared with what a local replica has.

Records that the replica's clock covers are skipped. Of others the later wins by time, origin and counter over what is
appended, synced or not. Losers leave only their count in the clock.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.storage.engine._engine cimport VALUE, Batch

from gossipkv.errors import ProtocolError

cdef enum:
    # The kinds of keys in a replica's space (`replica.keys`).
    RECORD_ROW = 1
    TOMBSTONE_ROW = 2


cdef bytes row_key(uint8_t kind, bytes middle, Py_ssize_t middle_size, bytes key):
    """Return the key of a row: its kind, the first bytes of `middle`, and a user's key."""
    cdef bytes row = PyBytes_FromStringAndSize(NULL, 1 + middle_size + PyBytes_GET_SIZE(key))
    cdef unsigned char* at = <unsigned char*> PyBytes_AS_STRING(row)
    at[0] = kind
    memcpy(at + 1, bytes_of(middle), middle_size)
    memcpy(at + 1 + middle_size, bytes_of(key), PyBytes_GET_SIZE(key))
    return row


cdef int put_row(Batch batch, uint32_t space, bytes row, bytes value) except -1:
    return batch.add(VALUE, space, bytes_of(row), PyBytes_GET_SIZE(row), bytes_of(value), PyBytes_GET_SIZE(value))


def put_records(Batch batch not None, uint32_t space, records, /):
    """Put records under their users' keys; a tombstone is also listed by its time. Raises LimitExceeded."""
    cdef bytes key, data
    for key, data in records:
        put_row(batch, space, row_key(RECORD_ROW, b"", 0, key), data)
        if head_of(data)[DOT_END] == KIND_DELETED:
            put_row(batch, space, row_key(TOMBSTONE_ROW, data, NUMBER_BYTES, key), b"")


def entries_of(peer, dict by_partition not None, list message not None, /):
    """Return the entries of a message, and by the peer's numbers the replicas of these, each with the peer's row.

    The third result are `[number, origin]` of new records of other origins than the peer's assignment, and the last one
    are the numbers of replicas not here. Raises ProtocolError.
    """
    cdef dict rows = peer.rows, found = {}, lacking = {}, last = {}
    cdef list entries = [], news = []
    cdef bytes begins, ends
    cdef tuple records
    cdef LogEntry entry
    for item in message:
        if not (
            isinstance(item, list) and len(item) == 4 and isinstance(item[0], int) and isinstance(item[3], list)
            and (item[1] is None or isinstance(item[1], list)) and (item[2] is None or isinstance(item[2], list))
        ):
            raise ProtocolError("an entry must be [number, clock before, clock after, [key, record, ...]]")
        number, before, after, flat = item
        row = rows.get(number)
        replica = None if row is None else by_partition.get(row.partition)
        # The peer sends skipped entries again once it knows of the replica here, or is a host here.
        if replica is None or peer.node not in replica.sharers or row.assignment not in replica.assigned:
            if row is not None and replica is None:
                lacking[number] = None
            continue
        records = records_of(flat)
        begins = last.get(number) if before is None else clock_of(row.ids, before)
        if begins is None:
            raise ProtocolError("a replica's first entry in a message must have the clock before it")
        ends = last[number] = ends_of(begins, None if after is None else clock_of(row.ids, after), records)
        if replica.never_gave_out(ends):
            given = counter(replica.appended, replica.assignment)
            raise ProtocolError(f"an entry has records of this replica after record {given}, which is its last")
        entry = LogEntry(
            replica, records, begins, ends, False, source=row.assignment, config=peer.newer.get(number, 0)
        )
        entries.append(entry)
        found[number] = replica, row
        if entry.origins != (row.assignment,) and not Merged(replica).has(entry):
            news += [[number, origin] for origin in entry.origins if origin != row.assignment]
    return entries, found, news, list(lacking)


@cython.final
cdef class Merged:
    """Entries of other nodes, merged into one entry of a replica before it is appended."""

    cdef object replica
    cdef readonly bytes before      # Packed clocks.
    cdef readonly bytes after
    cdef readonly object joining    # Bootstrap state of an incomplete replica.
    cdef readonly dict won          # The winning records by key.
    cdef readonly uint64_t time     # Greatest time of a record that was not skipped.
    cdef readonly bint relieves     # True: every winner deletes an existing record.

    def __init__(self, replica, /):
        self.replica = replica
        self.before = self.after = replica.appended
        self.joining = replica.joining
        self.won = {}
        self.relieves = True

    def has(self, LogEntry entry not None, /):
        """Return True if an entry brings nothing new; assignments that are no longer named have ended."""
        if entry.config > self.replica.config:
            return covers(self.replica.appended, entry.after)
        after = named(entry.after, self.replica.named)
        if self.joining is not None:
            span = self.joining.span(entry.source)
            if span is not None and covers(span.after, after):
                return True
        return covers(self.after, after)

    def take(self, LogEntry entry not None, read, /):
        """Merge an entry; return the approximate size that it adds, or None if it must wait for other entries.

        An incomplete replica merges ahead of its clock. Entries of a newer config wait: they may name origins that are
        unknown here. `read(space, row)` returns a synced value.
        """
        cdef bytes before, after, reached
        if self.has(entry):
            return 0
        replica = self.replica
        before = named(entry.before, replica.named)
        if replica.is_frozen or entry.config > replica.config:
            return None
        if self.joining is None and not covers(self.after, before):
            return None
        after = named(entry.after, replica.named)
        reached = merge(self.after, after)
        self.merge(entry.records, reached, replica.unsynced, read, replica.space)
        if self.joining is None:
            self.after = reached
        else:
            self.joining = self.joining.taken(entry.source, before, after)
        return entry.size_bytes

    def finish(self, Batch batch not None, /):
        """Put the merged records into a batch as one entry, and return that; `Replica.appends_merged` comes next."""
        replica, joining, after = self.replica, self.joining, self.after
        put_records(batch, replica.space, self.won.items())
        replica.time = max(replica.time, self.time)
        if joining is not None:
            joining, after = joining.closed(after, replica.named)
            joining.put(batch, replica.space)
        assert covers(after, self.before), "a clock never goes back"
        # Equal clocks: the entry of an incomplete replica feeds no host (`replica.bootstrap`).
        put_state(batch, replica, after, self.before if joining is None else after)
        return LogEntry(
            replica, tuple(self.won.items()), self.before, after, False, config=replica.config, joining=joining
        )

    cdef int merge(self, tuple records, bytes after, dict unsynced, read, space) except -1:
        """Merge the records between the clock `self.after` and `after`."""
        cdef const unsigned char* covered = bytes_of(self.after)
        cdef Py_ssize_t covered_size = PyBytes_GET_SIZE(self.after)
        cdef const unsigned char* head
        cdef bytes key, data, standing
        cdef uint64_t origin, count
        for key, data in records:
            head = head_of(data)
            origin, count = load_number(head + DOT_OFFSET), load_number(head + DOT_END - NUMBER_BYTES)
            if count <= clock_counter(covered, covered_size, origin):
                continue
            # The placement no longer names the origin.
            if count > clock_counter(bytes_of(after), PyBytes_GET_SIZE(after), origin):
                continue
            self.time = max(self.time, load_number(head))
            standing = self.won.get(key) or unsynced.get(key) or read(space, row_key(RECORD_ROW, b"", 0, key))
            if standing is None or memcmp(head_of(standing), head, DOT_END) < 0:
                self.won[key] = data
                self.relieves = self.relieves and standing is not None and head[DOT_END] == KIND_DELETED
        return 0
