"""Log entries as a log sender reads them from batches of the store (`Spaces.read`), page by page.

A page may span many batches with one record for a replica each. Entries that continue each other are joined, so the
receiver merges, syncs and confirms them as one.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from gossipkv.storage.engine._engine cimport VALUE

cdef enum:
    STATE_KIND_BYTES = 2
    MAX_JOINED_BYTES = 16384  # A larger entry would make messages and batches far longer than their limits.


def log_entries(batches, dict alone not None, dict beside not None, dict divided not None, /):
    """Return the entries of log batches, in order, and the states of divided replicas.

    `alone`: replicas by space; `beside` and `divided`: by space and suffix. A divided replica's state comes with the
    batch's records of its space: `(position, space, suffix, state, records)`. Raises ProtocolError: a malformed clock.
    """
    cdef list found = [], of_divided = [], states, here
    cdef dict records
    cdef bytes key, value, state, suffix
    cdef const unsigned char* at
    cdef Py_ssize_t size
    for position, operations in batches:
        states, records = [], {}
        for kind, space, key, value in operations:
            at, size = bytes_of(key), PyBytes_GET_SIZE(key)
            if kind != VALUE or not size:
                continue
            if at[0] == RECORD_ROW:
                here = records.get(space)
                if here is None:
                    here = records[space] = []
                here.append((key[1:], value))
            elif key.startswith(STATE_KEY):
                states.append((space, key[STATE_KIND_BYTES:], value))
        for space, suffix, state in states:
            here = records.get(space, [])
            if suffix in divided.get(space, ()):
                of_divided.append((position, space, suffix, state, here))
                continue
            replica = beside.get(space, {}).get(suffix) if suffix else alone.get(space)
            entry = None if replica is None else entry_of(replica, position, here, state)
            if entry is not None:
                found.append(entry)
    return found, of_divided


cdef object entry_of(object replica, uint64_t position, list records, bytes state):
    """Rebuild an entry from a batch's records and the state after it; None: the clock did not move."""
    cdef const unsigned char* at = bytes_of(state)
    cdef Py_ssize_t half = (PyBytes_GET_SIZE(state) - 2 * NUMBER_BYTES) // 2
    cdef bytes after = state[2 * NUMBER_BYTES:2 * NUMBER_BYTES + half], before = state[2 * NUMBER_BYTES + half:]
    cdef uint64_t own = replica.assignment
    cdef LogEntry entry
    check_clock(after)
    check_clock(before)
    if before == after:
        return None
    bounds = replica.bounds
    first, end = bounds
    if first or end is not None:
        records = [row for row in records if first <= row[0] and (end is None or row[0] < end)]
    config = load_number(at + NUMBER_BYTES)
    entry = LogEntry(replica, tuple(records), before, after, False, position, config=config)
    # Own records that came back from other nodes may lack losers: such a batch is no local write.
    entry.is_own = (
        entry.origins == (own,) and <uint64_t>len(entry.records) == counter_in(after, own) - counter_in(before, own)
    )
    return entry


@cython.final
cdef class LogPage:
    """Entries of a part of the log, in order; an entry joins the last one of its replica if that continues in it.

    Joined entries have the position of the first one: a reader that goes back there gets all of them again.
    """

    cdef readonly list entries
    cdef dict last  # By replica: its last entry.

    def __cinit__(self):
        self.entries, self.last = [], {}

    def add(self, list entries not None, /, *, bint joins):
        """Add entries behind those of the page; `joins`: join them."""
        cdef LogEntry entry, last
        for entry in entries:
            last = self.last.get(entry.replica)
            if (
                not joins or last is None or last.after != entry.before or last.config != entry.config
                or last.size_bytes + entry.size_bytes > MAX_JOINED_BYTES
            ):
                self.last[entry.replica] = entry
                self.entries.append(entry)
            else:
                last.join(entry)


def first_batch(read not None, Py_ssize_t most, Py_ssize_t most_bytes, /):
    """Return the first entries that have one position: at most so many, and so many bytes unless the first has more."""
    cdef list batch = []
    cdef LogEntry entry
    for entry in read:
        most_bytes -= entry.size_bytes
        if batch and (entry.position != (<LogEntry>batch[0]).position or len(batch) >= most or most_bytes < 0):
            break
        batch.append(entry)
    return batch
