r"""What stands under which key in a space of copies.

A space has a copy, or, since the range of one was divided, several side by side.  Its keys begin with a byte that says
of what they are:

    \0 i                what a copy is: [1, table, partition, assignment, first key, end or nil]; all keys of a shard
    \0 c                how it stands: time, config id, clock before and after the last batch
    \0 l                it is being loaded, and is no copy yet (`snapshot.transfer`)
    \0 j                it is not whole yet: what it has beside its clock (`replica.bootstrap`)
    \0 a                its assignment is not AVAILABLE, by the map that it has adopted last
    \0 e                of whom its clock is silent since they have ended: up to where it has all of each, a clock
    \0 x                it is set aside: nobody reads it, and it takes and gives nothing; here stands why
    \0 b                it was divided (`maintenance.split`): what it was, for what the log has of it
    \0 d                it has left, and what it had is still to be deleted (`maintenance.range_cleanup`): what it was
    \1 key              the record of a user's key (`record`)
    \2 time key         a tombstone: the record of that key was a delete of that time

Behind what is named by two bytes stands whose it is: nothing, of the copy that the space was made for; of one that came
by a division its partition, in 8 bytes.
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
ASIDE: Final = b"\0x"
DIVIDED: Final = b"\0b"
LEFT: Final = b"\0d"
RECORD: Final = b"\1"
TOMBSTONE: Final = b"\2"
END_OF_RECORDS: Final = TOMBSTONE
KIND_BYTES: Final = len(IDENTITY)
OF_COPY: Final = (IDENTITY, STATE, MOVES, ENDED)  # What stands of one that takes part, and is whole.

FORMAT: Final = 1
TIME_BYTES: Final = 8
HEAD_BYTES: Final = 16  # Of a state: time, config id.
ORDER_BYTES: Final = 24  # Of a record: time, origin, counter.
ID_BYTES: Final = 8


class KeyBounds(NamedTuple):
    """Keys of users, from the first to before the end."""

    first: bytes
    end: bytes | None  # None: there is none.

    def has(self, key: bytes) -> bool:
        """Whether a key is among them."""
        return self.first <= key and (self.end is None or key < self.end)

    def covers(self, other: KeyBounds) -> bool:
        """Whether all keys of others are among them."""
        return self.first <= other.first and (self.end is None or (other.end is not None and other.end <= self.end))

    def clip(self, other: KeyBounds) -> KeyBounds:
        """Those of both; where there is none, its end is not behind its first."""
        ends = [end for end in (self.end, other.end) if end is not None]
        return KeyBounds(max(self.first, other.first), min(ends, default=None))

    @property
    def records(self) -> tuple[bytes, bytes]:
        """Between which keys of a space their records stand."""
        return RECORD + self.first, END_OF_RECORDS if self.end is None else RECORD + self.end


WHOLE: Final = KeyBounds(b"", None)


class ReplicaIdentity(NamedTuple):
    """What a copy is; it never changes."""

    table: bytes
    partition: int
    assignment: int
    bounds: KeyBounds = WHOLE  # Of a shard: any key may be in it.

    def encode(self) -> bytes:
        """What stands under `IDENTITY`."""
        packed: bytes = msgpack.packb((FORMAT, *self[:3], *self.bounds))
        return packed


def decode_identity(value: bytes) -> ReplicaIdentity:
    """Read what stands under `IDENTITY`.  Raises ProtocolError: it is nothing that was written there."""
    match msgpack.unpackb(value):
        case [int(format_), bytes(table), int(partition), int(assignment), bytes(first), None | bytes() as end] if (
            format_ == FORMAT
        ):
            return ReplicaIdentity(table, partition, assignment, KeyBounds(first, end))
    words = "a copy's identity is [1, table, partition, assignment, first key, end or nil]"
    raise ProtocolError(words, {"got": repr(value)[:80]})


def suffix_of(partition: int) -> bytes:
    """What stands behind the keys of a copy that came by a division."""
    return partition.to_bytes(ID_BYTES, "big")


def encode_state(time: int, config: int, after: bytes, before: bytes) -> bytes:
    """What stands under `STATE`: both clocks have the same assignments."""
    assert len(after) == len(before)
    return time.to_bytes(8, "big") + config.to_bytes(8, "big") + after + before


def decode_state(value: bytes) -> tuple[int, int, bytes, bytes]:
    """Time, config id, clock after and before.  Raises ProtocolError."""
    half = (len(value) - HEAD_BYTES) // 2
    after, before = value[HEAD_BYTES : HEAD_BYTES + half], value[HEAD_BYTES + half :]
    clock.check(after)
    clock.check(before)
    return int.from_bytes(value[:8], "big"), int.from_bytes(value[8:HEAD_BYTES], "big"), after, before
