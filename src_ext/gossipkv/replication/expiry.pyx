"""The filter of merges: expired records leave the disk once no replica needs them (`maintenance.expiry`).

An expired record is needed as long as a tombstone: an older record of its key may arrive from another replica.
"""

from bisect import bisect_right

import msgpack

cimport cython
from gossipkv.storage._storage cimport compare_keys
from gossipkv.storage.engine._engine cimport LEAVES_NOW, NEVER_LEAVES, SPACE_BYTES, MergeFilter

cdef enum:
    RECORD_KIND = 1         # The byte between the space and the user's key of a record.
    RETRY_MS = 600000       # A record that is still needed is looked at again so much later.

cdef uint64_t MAX_LEFT_MS = 1 << 62     # Longer lifetimes are cut to this, so no sum overflows.


@cython.final
cdef class ExpiryFilter(MergeFilter):
    """Lets records go that are over by a range's horizon, and whose dots its replica need not keep.

    `packed` has rows in MessagePack: `[first key, end, settled clock, clock of all named origins or nil, horizon]`.
    With the latter clock, records of origins that it does not name may go, too. The first row, `[b"", b"", b"", nil,
    horizon]`, holds for the keys of no other row: it lets nothing go.
    """

    cdef uint64_t now_ms
    cdef list firsts, rows  # In the order of keys, without gaps.
    # The row of the last key.
    cdef bytes first, end, settled, named
    cdef uint64_t horizon_ms

    def __init__(self, uint64_t now_ms, bytes packed not None):
        unpacker = msgpack.Unpacker()
        unpacker.feed(packed)
        (_, last, *default), *rows = unpacker
        self.now_ms = now_ms
        self.rows = []
        for row in sorted(rows):
            self.rows += [(last, row[0], *default), row]
            last = row[1]
        self.rows.append((last, None, *default))
        self.firsts = [row[0] for row in self.rows]
        self.first, self.end, self.settled, self.named, self.horizon_ms = self.rows[0]

    def leaves_at(self, bytes key not None, bytes data not None):
        """Return the time of day from which the record of a key may leave: 0, now; None: never."""
        cdef uint64_t leaves_ms = self.leaves_ms(
            bytes_of(key), PyBytes_GET_SIZE(key), bytes_of(data), PyBytes_GET_SIZE(data)
        )
        return None if leaves_ms == NEVER_LEAVES else leaves_ms

    cdef uint64_t leaves_ms(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* data, Py_ssize_t size
    ) noexcept:
        cdef RecordView view
        cdef uint64_t over_ms
        if size <= HEAD_BYTES or data[DOT_END] != KIND_EXPIRING or key_size <= SPACE_BYTES:
            return NEVER_LEAVES
        if key[SPACE_BYTES] != RECORD_KIND or parse_record(data, size, &view) != SOUND:
            return NEVER_LEAVES
        self.seek(key, key_size)
        # The expiry may lie before the time of the record, and that may lie in the future.
        over_ms = max(view.expires_ms, load_number(data) >> TIME_COUNT_BITS)
        if over_ms >= self.horizon_ms:
            return self.now_ms + min(over_ms - self.horizon_ms, MAX_LEFT_MS)
        return LEAVES_NOW if self.is_settled(data + DOT_OFFSET) else self.now_ms + RETRY_MS

    cdef bint is_settled(self, const unsigned char* dot) noexcept:
        cdef uint64_t origin = load_number(dot)
        cdef Py_ssize_t at
        if clock_covers(bytes_of(self.settled), PyBytes_GET_SIZE(self.settled), dot, ENTRY_BYTES):
            return True
        if self.named is None:
            return False
        at = clock_place(bytes_of(self.named), PyBytes_GET_SIZE(self.named), origin)
        return at == PyBytes_GET_SIZE(self.named) or load_number(bytes_of(self.named) + at) != origin

    cdef int seek(self, const uint8_t* key, Py_ssize_t size) noexcept:
        """Make the row of a key the current one."""
        if compare_keys(key, size, bytes_of(self.first), PyBytes_GET_SIZE(self.first)) < 0 or (
            self.end is not None and compare_keys(key, size, bytes_of(self.end), PyBytes_GET_SIZE(self.end)) >= 0
        ):
            row = self.rows[bisect_right(self.firsts, (<const char*>key)[:size]) - 1]
            self.first, self.end, self.settled, self.named, self.horizon_ms = row
        return 0
