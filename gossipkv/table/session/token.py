r"""Session tokens: an opaque *token*, carried by the client, says which writes of tables its session has seen.

    token       [format 2][length u32][body][seal of all before it (`replication.replica.token_keys`)]
    body        of each table, ascending: [table 16 bytes][config id u64][count u32][[assignment u64][counter u64], ...]

Records keep a body alone as their dependencies, and nodes exchange bodies. The entries of a table are a packed clock
(`replication.replica.clock`) over all its partitions: assignment ids are unique for ever, so no entry names a
partition. The config id is that of the newest map seen. Settled entries are omitted; the entry `LEFT_OUT` tells the
oldest map by which entries were omitted. A client concatenates the tokens of concurrent requests, and a node merges
them.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest, NotReady, ProtocolError
from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.token_keys import SEAL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gossipkv.replication.replica.token_keys import TokenKeys

FORMAT: Final = 2
HEAD: Final = struct.Struct(">BI")
PART: Final = struct.Struct(">16sQI")
ENTRY_BYTES: Final = 16
LACKED: Final = "install it in this node's key ring; if it was removed from all of them, begin a new session"
MAX_TOKENS_BYTES: Final = 4 << 20  # Requests in flight have each brought a token to a session.
LONG_BYTES: Final = 1 << 10  # Longer tokens are compacted before their request.


class TableSeen(NamedTuple):
    """The newest config id and the clock that a session has seen of a table."""

    config: int
    clock: bytes


if TYPE_CHECKING:
    Token = Mapping[bytes, TableSeen]  # By the table's id.

NOTHING: Final[Token] = MappingProxyType({})

_LATEST: Final = (1 << 64) - 1


def left_out(config: int) -> bytes:
    """Return a LEFT_OUT entry for that config id; an older map has the greater counter, so merging keeps it."""
    return clock.of([(LEFT_OUT, _LATEST - config)])


def merged(*tokens: Token) -> Token:
    """Merge tokens: the result covers each of them."""
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
    """Return a token without the entries for which `keep(table, assignment, counter)` is False.

    The config ids stay: they exclude reads by older maps, even where no entry is needed any more.
    """
    return {
        table: TableSeen(seen.config, clock.of([entry for entry in clock.entries(seen.clock) if keep(table, *entry)]))
        for table, seen in token.items()
    }


def seen_in(table: bytes, config: int, records: Iterable[bytes]) -> Token:
    """Return the token of a session that has seen these records of a table, tombstones among them.

    Raises:
        ProtocolError: the dependencies of a record are malformed.
    """
    return seen_of(table, config, *record.newest(records))


def seen_of(table: bytes, config: int, counters: Mapping[int, int], bodies: Iterable[bytes]) -> Token:
    """Return the token of a session that has seen these counters of origins, and records with these dependencies.

    Raises:
        ProtocolError: the dependencies of a record are malformed.
    """
    return merged({table: TableSeen(config, clock.of(counters.items()))}, *map(decode_body, bodies))


def encode_body(token: Token) -> bytes:
    """Encode a token's body, as records and nodes keep it."""
    parts = [
        PART.pack(table, config, len(seen) // ENTRY_BYTES) + seen for table, (config, seen) in sorted(token.items())
    ]
    return b"".join(parts)


def decode_body(data: bytes) -> Token:
    """Decode a body. Raises ProtocolError."""
    token: dict[bytes, TableSeen] = {}
    at, last = 0, b""
    while at < len(data):
        if at + PART.size > len(data):
            raise ProtocolError("a table's part of the token ends within its head", {"offset": at})
        table, config, entries = PART.unpack_from(data, at)
        begin, at = at + PART.size, at + PART.size + entries * ENTRY_BYTES
        if at > len(data) or (token and table <= last):
            raise ProtocolError("the token's tables do not ascend, or the token is incomplete", {"offset": begin})
        clock.check(data[begin:at])
        token[table] = TableSeen(config, data[begin:at])
        last = table
    return token


def encode(token: Token, keys: TokenKeys) -> bytes:
    """Encode a token for a client; an empty token gives no bytes."""
    if not token:
        return b""
    body = encode_body(token)
    return keys.seal(HEAD.pack(FORMAT, len(body)) + body)


def decode(data: bytes, keys: TokenKeys) -> Token:
    """Decode and merge the tokens of a client: one, or several concatenated.

    Raises:
        BadRequest: a token is cut, changed or of another cluster.
        NotReady: this node lacks the key of a token.
    """
    if len(data) > MAX_TOKENS_BYTES:
        raise _refused(f"the token has {len(data):,} bytes, the limit is {MAX_TOKENS_BYTES:,}")
    tokens: list[Token] = []
    at = 0
    while at < len(data):
        try:
            format_, length = HEAD.unpack_from(data, at)
        except struct.error:
            raise _refused("the token is incomplete") from None
        if format_ != FORMAT:
            raise _refused(f"the token has format {format_}, which this node does not know")
        end = at + HEAD.size + length + SEAL_BYTES
        sealed = data[at:end]
        if not keys.is_sealed(sealed):
            if keys.lacks_key(sealed):
                raise NotReady(f"the key that sealed the token is not here: {LACKED}", {"option": "token"})
            raise _refused("the token was changed, or is of another cluster")
        try:
            tokens.append(decode_body(sealed[HEAD.size : -SEAL_BYTES]))
        except ProtocolError as error:
            raise _refused(error.message) from error
        at = end
    return merged(*tokens)


def _refused(why: str) -> BadRequest:
    return BadRequest(f"the token was not given by this cluster: {why}", {"option": "token"})


MAX_MET: Final = 1024  # Clients may make up ids. A forgotten id counts as not ended until it is met and read again.


@final
class EndedTables:
    """Tells dropped tables from new ones, among ids that the local catalogue does not name.

    A table has ended if a quorum read of the catalogue, begun after the id was met, does not name it either:
    tables are named before they hold records, and an id is never used twice.
    """

    def __init__(self) -> None:
        self._begun, self._done = 0, 0  # Numbers of the last begun and the last finished read.
        self._met: dict[bytes, int] = {}  # By id: the last read begun before the id was met.

    def begin_read(self) -> None:
        """Note the start of a quorum read of the catalogue; reads do not overlap."""
        self._begun += 1

    def end_read(self) -> None:
        """Note the end of the read: the local catalogue is at least as new."""
        self._done = self._begun

    def has(self, table: bytes) -> bool:
        """Return True if a table that the local catalogue does not name has ended."""
        met = self._met.setdefault(table, self._begun)
        if len(self._met) > MAX_MET:
            del self._met[next(iter(self._met))]
        return self._done > met


def is_short(token: Token) -> bool:
    """Return True if a token needs no compaction."""
    return size(token) <= LONG_BYTES


def size(token: Token) -> int:
    """Return the size of a token's body in bytes."""
    return sum(PART.size + len(seen.clock) for seen in token.values())
