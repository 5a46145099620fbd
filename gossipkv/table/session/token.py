r"""What a session has seen of tables, as a client carries it: an opaque *token*.

    token       [format 1][length u32][body][CRC-32C u32, of the cluster's id and all before it]
    body        of each table, ascending: [table 16 bytes][config id u64][count u32][[assignment u64][counter u64], ...]

A body alone is what a record depends on, and what nodes tell each other.  The entries of a table are a packed clock
(`replication.replica.clock`) over all its partitions: ids of assignments are never used twice, so nothing names a
partition. The config id is the newest that anything seen is of.  What all copies have is left out; one entry,
`LEFT_OUT`, tells the oldest map by which something was.  Tokens may follow each other: a client joins those of requests
that were under way at the same time, and a node reads what all of them say.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest, ProtocolError
from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.replica import clock, record
from gossipkv.storage.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FORMAT: Final = 1
HEAD: Final = struct.Struct(">BI")
PART: Final = struct.Struct(">16sQI")
CHECKSUM: Final = struct.Struct(">I")
ENTRY_BYTES: Final = 16


class TableSeen(NamedTuple):
    """What was seen of a table."""

    config: int  # The newest.
    clock: bytes


if TYPE_CHECKING:
    Token = Mapping[bytes, TableSeen]  # By the table's id.

NOTHING: Final[Token] = MappingProxyType({})

_LATEST: Final = (1 << 64) - 1


def left_out(config: int) -> bytes:
    """Return the entry of what was left out under the map with that config id: of two the older one's is greater."""
    return clock.of([(LEFT_OUT, _LATEST - config)])


def merged(*tokens: Token) -> Token:
    """All that some tokens have seen."""
    given = [token for token in tokens if token]
    if len(given) <= 1:
        return given[0] if given else NOTHING
    whole: dict[bytes, TableSeen] = {}
    for token in given:
        for table, seen in token.items():
            had = whole.get(table)
            if had is not None:
                whole[table] = TableSeen(max(had.config, seen.config), clock.merge(had.clock, seen.clock))
            else:
                whole[table] = seen
    return whole


def only(token: Token, keep: Callable[[bytes, int, int], bool]) -> Token:
    """A token with those entries alone that are to be kept: of a table, an assignment and a counter.

    Its config ids stay: they say which maps are too old to read by, also of what needs no entry any more.
    """
    return {
        table: TableSeen(seen.config, clock.of([one for one in clock.entries(seen.clock) if keep(table, *one)]))
        for table, seen in token.items()
    }


def seen_in(table: bytes, config: int, records: Iterable[bytes]) -> Token:
    """What somebody has seen who was shown these records of a table, tombstones among them.

    Raises:
        ProtocolError: the dependencies of one are none.
    """
    dots: dict[int, int] = {}
    bodies: set[bytes] = set()
    for data in records:
        ((origin, count),) = clock.entries(record.dot(data))
        dots[origin] = max(count, dots.get(origin, 0))
        bodies.add(record.dependencies(data))
    own = {table: TableSeen(config, clock.of(dots.items()))}
    return merged(own, *map(decode_body, bodies - {b""}))


def encode_body(token: Token) -> bytes:
    """What a record keeps of a token."""
    return b"".join(
        PART.pack(table, seen.config, len(seen.clock) // ENTRY_BYTES) + seen.clock
        for table, seen in sorted(token.items())
    )


def decode_body(data: bytes) -> Token:
    """Read a body.  Raises ProtocolError."""
    token: dict[bytes, TableSeen] = {}
    at, last = 0, b""
    while at < len(data):
        if at + PART.size > len(data):
            raise ProtocolError("what was seen of a table ends within its head", {"offset": at})
        table, config, entries = PART.unpack_from(data, at)
        begin, at = at + PART.size, at + PART.size + entries * ENTRY_BYTES
        if at > len(data) or (token and table <= last):
            raise ProtocolError("what was seen has tables that do not ascend, or is cut", {"offset": begin})
        clock.check(data[begin:at])
        token[table] = TableSeen(config, data[begin:at])
        last = table
    return token


def encode(token: Token, cluster: bytes) -> bytes:
    """The bytes that a client carries; of nothing none."""
    if not token:
        return b""
    body = encode_body(token)
    covered = HEAD.pack(FORMAT, len(body)) + body
    return covered + CHECKSUM.pack(crc32c(cluster + covered))


def decode(data: bytes, cluster: bytes) -> Token:
    """Read what a client carried: one token, or several.

    Raises:
        BadRequest: it is none of this cluster's, or not whole.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(data):
        try:
            format_, length = HEAD.unpack_from(data, at)
            end = at + HEAD.size + length
            (checksum,) = CHECKSUM.unpack_from(data, end)
        except struct.error:
            raise _refused("it is cut") from None
        if format_ != FORMAT:
            raise _refused(f"it has the form {format_}, which this node does not know")
        if checksum != crc32c(cluster + data[at:end]):
            raise _refused("it is damaged, or of another cluster")
        try:
            tokens.append(decode_body(data[at + HEAD.size : end]))
        except ProtocolError as error:
            raise _refused(error.message) from error
        at = end + CHECKSUM.size
    return merged(*tokens)


def _refused(why: str) -> BadRequest:
    return BadRequest(f"the token is not one that this cluster has given: {why}", {"option": "token"})


MAX_MET: Final = 1024  # Anybody may make up ids; of those that were let go of it is not known for a while.


@final
class EndedTables:
    """Ids that were met and that the catalogue here does not name, against reads of it by a quorum.

    A table that the catalogue does not name here may be a new one.  It has ended if a quorum, read after its id was
    met, does not name it either: a table is named before it holds a record, and an id is never given twice.
    """

    def __init__(self) -> None:
        self._begun, self._done = 0, 0  # The last read that was begun, and the last that came to its end.
        self._met: dict[bytes, int] = {}  # By id: the last read that was begun before.

    def begin_read(self) -> None:
        """The catalogue is about to be read by a quorum; one read at a time."""
        self._begun += 1

    def end_read(self) -> None:
        """It was read, and what is known here is at least as new."""
        self._done = self._begun

    def has(self, table: bytes) -> bool:
        """Whether a table has ended that the catalogue here does not name now."""
        met = self._met.setdefault(table, self._begun)
        if len(self._met) > MAX_MET:
            del self._met[next(iter(self._met))]
        return self._done > met
