r"""Keys of replicas in a space of the store.

A space has one replica or, after a split, several side by side. Keys begin with their kind:

    \0 i                identity: [1, table, partition, assignment, first key, end or nil]; all keys of a shard
    \0 c                STATE: time, config id, clock before and after the last batch
    \0 l                bulk load under way; no replica yet (`snapshot.transfer`)
    \0 j                spans of an incomplete replica (`replica.bootstrap`)
    \0 a                the assignment is not AVAILABLE, by the adopted placement
    \0 e                ended assignments that the clock omits: a clock up to which all their records are here
    \0 x                quarantined: never read, accepts and gives nothing; the value is the reason
    \0 b                split (`maintenance.split`): the parent's identity, for its log entries
    \0 d                departed, records still to be deleted (`maintenance.range_cleanup`): the identity
    \1 key              the record of a user's key (`record`)
    \2 time key         a tombstone: the record of that key was a delete of that time

Two-byte kinds are followed by the replica's suffix: empty for the replica for which the space was made, else the 8
bytes of its partition.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica import clock

IDENTITY: Final = b"\0i"
STATE: Final = b"\0c"
LOADING: Final = b"\0l"
JOINING: Final = b"\0j"
MOVES: Final = b"\0a"
ENDED: Final = b"\0e"
QUARANTINED: Final = b"\0x"
DIVIDED: Final = b"\0b"
ABANDONED: Final = b"\0d"
RECORD: Final = b"\1"
TOMBSTONE: Final = b"\2"
END_OF_RECORDS: Final = TOMBSTONE
KIND_BYTES: Final = len(IDENTITY)
OWN_ROWS: Final = (IDENTITY, STATE, MOVES, ENDED)  # The rows of a complete replica that takes part.

FORMAT: Final = 1
TIME_BYTES: Final = 8
HEAD_BYTES: Final = 16  # Head of a state: time, config id.
ORDER_BYTES: Final = 24  # Head of a record: time, origin, counter.
ID_BYTES: Final = 8


class KeyBounds(NamedTuple):
    """A range of users' keys, from the first to before the end."""

    first: bytes
    end: bytes | None  # None: there is no end.

    def has(self, key: bytes) -> bool:
        """Return True if a key is in the range."""
        return self.first <= key and (self.end is None or key < self.end)

    def covers(self, other: KeyBounds) -> bool:
        """Return True if all keys of another range are in this one."""
        return self.first <= other.first and (self.end is None or (other.end is not None and other.end <= self.end))

    def clip(self, other: KeyBounds) -> KeyBounds:
        """Return the common range; if that is empty, its end is not behind its first key."""
        ends = [end for end in (self.end, other.end) if end is not None]
        return KeyBounds(max(self.first, other.first), min(ends, default=None))

    @property
    def records(self) -> tuple[bytes, bytes]:
        """The keys of a space between which the range's records lie."""
        return RECORD + self.first, END_OF_RECORDS if self.end is None else RECORD + self.end


WHOLE: Final = KeyBounds(b"", None)


class ReplicaIdentity(NamedTuple):
    """The immutable identity of a replica."""

    table: bytes
    partition: int
    assignment: int
    bounds: KeyBounds = WHOLE  # A shard may have any key.

    def encode(self) -> bytes:
        """Encode the value under `IDENTITY`."""
        packed: bytes = msgpack.packb((FORMAT, *self[:3], *self.bounds))
        return packed


def decode_identity(value: bytes) -> ReplicaIdentity:
    """Decode the value under `IDENTITY`. Raises ProtocolError: it is malformed."""
    match msgpack.unpackb(value):
        case [int(format_), bytes(table), int(partition), int(assignment), bytes(first), None | bytes() as end] if (
            format_ == FORMAT
        ):
            return ReplicaIdentity(table, partition, assignment, KeyBounds(first, end))
    words = "a replica's identity has the form [1, table, partition, assignment, first key, end or nil]"
    raise ProtocolError(words, {"got": repr(value)[:80]})


def suffix_of(partition: int) -> bytes:
    """Return the suffix of the keys of a replica that a split made."""
    return partition.to_bytes(ID_BYTES, "big")


def decode_state(value: bytes) -> tuple[int, int, bytes, bytes]:
    """Decode a state: time, config id, clock after and before. Raises ProtocolError."""
    half = (len(value) - HEAD_BYTES) // 2
    after, before = value[HEAD_BYTES : HEAD_BYTES + half], value[HEAD_BYTES + half :]
    clock.check(after)
    clock.check(before)
    return int.from_bytes(value[:8], "big"), int.from_bytes(value[8:HEAD_BYTES], "big"), after, before
