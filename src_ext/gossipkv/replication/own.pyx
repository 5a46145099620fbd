"""The steps of a batch for each of its replicas: local writes, appended records, and synced entries.

Python does the rest, once for each batch: `own_writes` and `replica_set` have the rules.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from gossipkv.storage.engine._engine cimport Batch

cdef enum:
    IS_BESIDE = 0  # A field of a `Lineage`.

cdef uint64_t MAX_TIME = 0xFFFFFFFF00000000  # The bound of `replica.hlc`.
cdef bytes STATE_KEY = b"\0c"  # `STATE` of `replica.keys`.


def encode_state(uint64_t time, uint64_t config, bytes after not None, bytes before not None, /):
    """Return the value under `STATE`.  Raises ValueError: the clocks do not have equally many assignments."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(after)
    if size != PyBytes_GET_SIZE(before):
        raise ValueError(f"the clock has {size} bytes after the batch, but {PyBytes_GET_SIZE(before)} before it")
    cdef bytes state = PyBytes_FromStringAndSize(NULL, 2 * (NUMBER_BYTES + size))
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(state)
    store_number(at, time)
    store_number(at + NUMBER_BYTES, config)
    memcpy(at + 2 * NUMBER_BYTES, bytes_of(after), size)
    memcpy(at + 2 * NUMBER_BYTES + size, bytes_of(before), size)
    return state


def put_state(Batch batch not None, replica, bytes after not None, bytes before not None, /):
    """Put a replica's clocks after and before a batch; return the offset of the value in the batch."""
    cdef bytes state = encode_state(replica.time, replica.config, after, before)
    cdef bytes key = STATE_KEY + replica.suffix if field(replica.lineage, IS_BESIDE) else STATE_KEY
    put_row(batch, replica.space, key, state)
    return batch.used - PyBytes_GET_SIZE(state)


# Local writes ---------------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc  # Nothing that a share refers to refers to shares.
cdef class OpenShare:
    """The writes of one replica in an open batch."""

    cdef readonly object replica
    cdef object config          # The config by which the clocks name assignments.
    cdef bytes before, after    # Packed clocks.
    cdef list records           # Keys and records.
    cdef Py_ssize_t state_at    # Offset of the replica's STATE in the batch.


def count_beginning(gathered, dict acks not None, confirms, may_originate, /):
    """Return how many gathered writes come before the first that may not begin.

    They begin if their replica is calm, may originate, and reaches their levels with the hosts that pass `confirms`.
    `may_originate(replica)` is asked about those of which a host was not heard yet; the local clock is right.
    """
    cdef Py_ssize_t count = 0
    cdef AckTracker tracker
    for writes in gathered:
        replica = writes.replica
        if replica.calm is None or replica.barred is not None or <uint64_t>replica.time > MAX_TIME:
            break
        tracker = acks[replica]
        if not tracker.has_heard(replica.assigned) and not may_originate(replica):
            break
        slots = field(replica.quorum, 0)
        if not all([tracker.confirming(confirms) >= slots_needed(level, slots) for level in writes.levels]):
            break
        count += 1
    return count


def new_shares(Batch batch not None, writes, time_ms, /):
    """Add the records of writes to a batch, in order, and return the share of each replica.

    `writes`: by replica, each of which may originate; all keys are in its range. `time_ms(sharers)`: the time of day.
    """
    cdef list shares = []
    cdef dict times = {}
    cdef OpenShare share
    cdef uint64_t counter
    for replica, group in writes.items():
        sharers = replica.sharers
        now_ms = times.get(sharers)
        if now_ms is None:
            now_ms = times[sharers] = time_ms(sharers)
        share = OpenShare.__new__(OpenShare)
        share.replica, share.before, share.config = replica, replica.appended, replica.config
        counter = counter_in(share.before, replica.assignment)
        share.records, replica.time = new_records(group, replica.time, replica.assignment, counter, now_ms)
        put_records(batch, replica.space, share.records)
        share.after = raised(share.before, replica.assignment, counter + <uint64_t>len(share.records))
        shares.append(share)
    return shares


def put_states(Batch batch not None, list shares not None, /):
    """Put the STATE of the replicas of shares."""
    cdef OpenShare share
    for share in shares:
        share.state_at = put_state(batch, share.replica, share.after, share.before)


def join_shares(Batch batch not None, dict opened not None, list shares not None, Py_ssize_t begins, /):
    """Join shares, whose records are in an open batch, to those that it has; return the counters by assignment.

    `begins`: the offset of the batch in which they put their states.
    """
    cdef dict counters = {}
    cdef OpenShare share, first
    for share in shares:
        replica = share.replica
        first = opened.get(replica)
        append_records(replica, share.records, share.after)
        counters[replica.assignment] = counter_in(share.after, replica.assignment)
        if first is None:
            share.state_at += begins
            opened[replica] = share
        else:
            first.records += share.records
            first.after = share.after
            batch.overwrite(first.state_at, encode_state(replica.time, replica.config, first.after, first.before))
    return counters


def own_entries(dict opened not None, uint64_t position, /):
    """Return the log entries of a batch, once it is synced."""
    cdef list entries = []
    cdef OpenShare share
    for share in opened.values():
        entries.append(LogEntry(
            share.replica, tuple(share.records), share.before, share.after, True, position, config=share.config
        ))
    return entries


# Replicas -------------------------------------------------------------------------------------------------------------


def append_records(replica, records, bytes after not None, /):
    """Let a replica continue from records whose batch is appended."""
    replica.appended = after
    if replica.taken_config != replica.config:
        replica.take_config()  # Not when they are synced: further serving loops read them a moment before.
    if records:
        replica.unsynced = replica.unsynced or {}  # Replicas at rest share an empty one.
        replica.unsynced.update(records)


def sync_clock(replica, bytes after not None, /):
    """Take note that all up to a clock is synced."""
    cdef bytes synced = named(after, replica.named)  # The clock may be older than the adopted placement.
    replica.synced = replica.appended if synced == replica.appended else synced
    replica.settled = None
    if replica.calm is not None:
        replica.calm.syncs(replica.synced)


def sync_entries(entries, dict acks not None, dict nothing not None, /):
    """Let replicas take note that their entries are synced, in order; return the entries of present replicas.

    `acks` has the present replicas; those at rest share the dict `nothing`.
    """
    cdef list present = []
    cdef LogEntry entry
    for entry in entries:
        replica = entry.replica
        replica.synced_joining = None if entry.joining is None or entry.joining.is_over else entry.joining
        sync_clock(replica, entry.after)
        if replica.unsynced:
            forget_synced(replica.unsynced, entry.records)
            replica.unsynced = replica.unsynced or nothing
        if replica in acks:  # Others were dropped meanwhile.
            present.append(entry)
    return present
