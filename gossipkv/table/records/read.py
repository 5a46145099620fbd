"""Reads of single records: from the local replica, else from hosts of the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    Corrupt,
    GossipKVError,
    NotReady,
    NotServed,
    ProtocolError,
    StorageError,
    TooLarge,
    Unavailable,
)
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.settings.tables import MAX_KEY_BYTES
from gossipkv.table.records.forward import HostRequest, NodeRequest, held
from gossipkv.table.records.request import ClientRequest, record_options
from gossipkv.table.records.router import ID_BYTES, packed_ids, unpacked_ids
from gossipkv.table.session.readiness import wanted_of
from gossipkv.table.session.token import NOTHING, decode_body, is_short, seen_in
from gossipkv.wire.arguments import ROW_BYTES, fits_message
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.forward import RecordRequest, RecordServices
    from gossipkv.table.records.request import RecordOptions
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

ANSWER_BYTES: Final = (16 << 20) + (512 << 10)  # Fits a frame of 17 MiB with its header.
HEAD_BYTES: Final = 8  # Largest header of a value in an answer.
MAX_KEYS: Final = 1 << 16  # Keys of one get_many.


@final
class TableReads:
    """The methods that read single records, for clients and for other nodes."""

    def __init__(self, services: RecordServices) -> None:
        self._services = services

    def get(self, arguments: Arguments) -> Value | Later:
        """`get [table, key, {options}]`: `[value or nil, token]`, and with `explain` the node that answered."""
        table, key = arguments.text("table"), arguments.key("key", self._services.most_key)
        options = record_options(arguments, "local", "explain")
        request = ReadRequest(self._services, table, [key], options, is_get=True)
        return request.answer_here() or Later(request.begin)

    def get_many(self, arguments: Arguments) -> Later:
        """`get_many [table, [key, ...], {options}]`: `[[value or nil, ...], token]`, not from one snapshot."""
        table, keys = arguments.text("table"), arguments.keys("keys", self._services.most_key, MAX_KEYS)
        return Later(ReadRequest(self._services, table, keys, record_options(arguments, "local")).begin)

    def get_here(self, arguments: Arguments) -> Later:
        """`table_get [table id, partitions, keys, seen, wait_ms]`: `[records, token body]`.

        `partitions`: for each key the id of its partition, in 8 bytes. `keys`: a packed array.
        """
        table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
        rows = arguments.message_rows("keys", 1)
        keys = [key for key in rows if isinstance(key, bytes) and len(key) <= MAX_KEY_BYTES]
        request = NodeRequest[FoundRecords](self._services, table)
        request.wanted = wanted_of(arguments, request.deadline)
        if len(keys) != len(rows) or len(partitions) != len(keys):
            words = f"keys must be bytes, each at most {MAX_KEY_BYTES}, and have partition ids of {ID_BYTES} bytes"
            raise BadRequest(f"table_get: {len(rows)} {words}")
        request.part = KeysRead(request, keys, partitions)
        return Later(request.begin)


class FoundRecords(NamedTuple):
    """The records of keys, None for keys without one; and the token of a session that reads them."""

    records: Sequence[bytes | None]
    seen: Token


@final
class ReadRequest(ClientRequest[FoundRecords]):
    """A client's get or get_many.

    answer_here  answer a get at once from the local replica, the usual case
    plan         divide the keys among the hosts of their partitions
    part_done    gather the records of the parts; after the last one, answer
    """

    def __init__(
        self,
        services: RecordServices,
        name: str,
        keys: Sequence[bytes],
        options: RecordOptions,
        *,
        is_get: bool = False,
    ) -> None:
        """Take the arguments. Raises BadRequest: the token is malformed."""
        super().__init__(services, name, options)
        self._keys, self._is_get = keys, is_get
        self._records: list[bytes | None] = [None] * len(keys)
        self._seen: list[Token] = []
        self._unanswered = 0  # Parts without an answer; 0: the request is answered.

    def answer_here(self) -> Value:
        """Return the answer to a get if the local replica has the key and is ready; None: `begin`.

        Raises:
            UnknownDatabase, StaleConfig, WriteLost, TooLarge: the error is the answer.
        """
        services, config, token, (key,) = self.services, self.options.config, self.wanted.token, self._keys
        replication = services.service.replication
        try:
            route = services.routing.route(self.name)
            if config > route.config or replication is None or (token and not is_short(token)):
                return None
            self.replication = replication
            place = route.place(key)
            if config:
                route.check(config, (place,))
            replica = held(replication.replicas, route.table.id, place.partition, key)
            if token and not services.readiness.is_ready(replica, token):
                return None
            data = replication.get(replica.space, RECORD + key)
            seen = services.tokens.write_read(token, replica, data)
        except (NotServed, NotReady, Unavailable, Corrupt, StorageError, ProtocolError):
            return None
        replica.requests += 1
        return self._answer((data,), seen, replication.replicas.me)

    def _plan(self) -> None:
        """Raises StaleConfig."""
        route, keys = self.route, self._keys
        self.table = route.table.id
        places = [*map(route.place, keys)]
        route.check(self.options.config, places)
        parts, begun = list[KeysRead](), dict[tuple[bytes, ...], KeysRead]()  # Keys with the same hosts share requests.
        for at, (key, place) in enumerate(zip(keys, places, strict=True)):
            part = begun.get(place.hosts)
            if part is None or not part.has_room(key):
                part = begun[place.hosts] = KeysRead(self, [], [], place.hosts)
                part.name = self.name
                parts.append(part)
            part.add(at, key, place.partition)
        self._unanswered = len(parts)
        if parts:
            self.begin_parts(parts)
        else:
            self.complete(self._answer((), self.services.tokens.write(self.wanted.token), b""))

    def part_done(self, part: HostRequest[FoundRecords], result: FoundRecords | GossipKVError) -> None:
        """Take the records of a part, or the error that becomes the answer."""
        assert isinstance(part, KeysRead)
        if not self._unanswered:
            return
        if isinstance(result, GossipKVError):
            self._unanswered = 0
            self.complete(result)
            return
        self._seen.append(result.seen)
        for at, data in zip(part.ats, result.records, strict=True):
            self._records[at] = data
        self._unanswered -= 1
        if self._unanswered:
            return
        if sum(HEAD_BYTES + len(data or b"") for data in self._records) > ANSWER_BYTES:
            self.complete(_too_large())
            return
        token = self.services.tokens.write(self.wanted.token, *self._seen)
        try:
            self.complete(self._answer(self._records, token, part.node))
        except ProtocolError as damaged:
            self.complete(Unavailable(f"a record in a node's answer is malformed: {damaged.message}"))

    def _answer(self, records: Sequence[bytes | None], token: bytes, node: bytes) -> Value:
        """Return the answer. Raises ProtocolError if a record is malformed."""
        now_ms = self.replication.replicas.skew.expiry_ms
        values: list[Value] = [None if data is None else record.value(data, now_ms) for data in records]
        if not self._is_get:
            return [values, token]
        if not self.options.given.flag("explain"):
            return [*values, token]
        explained: dict[str, Value] = {"node": self.services.name_of(node)}
        if records[0] is not None and values[0] is not None and (expires_ms := record.expires_ms(records[0])):
            explained["expires_at"] = expires_ms
        return [*values, token, explained]


@final
class KeysRead(HostRequest[FoundRecords]):
    """The read of keys whose partitions have the same hosts."""

    method = "table_get"

    def __init__(
        self,
        request: RecordRequest[FoundRecords],
        keys: list[bytes],
        partitions: list[int],
        nodes: tuple[bytes, ...] = (),
    ) -> None:
        super().__init__(request, nodes)
        self._keys, self._partitions = keys, partitions
        self.ats: list[int] = []  # The places of the keys in the client's request.
        self.name = ""  # The table's name.

    def has_room(self, key: bytes) -> bool:
        """Return True if another node takes this key in the same request."""
        return fits_message(len(self._keys) + 1, self.size_bytes + len(key) + ROW_BYTES)

    def add(self, at: int, key: bytes, partition: int) -> None:
        """Add the key at that place of the client's request."""
        self.ats.append(at)
        self._keys.append(key)
        self._partitions.append(partition)
        self.size_bytes += len(key) + ROW_BYTES

    def _what(self) -> str:
        return f"{len(self._keys)} keys of {self.name}" if len(self._keys) > 1 else f"a key of {self.name}"

    def _params(self) -> list[Value]:
        return [self.table, packed_ids(self._partitions), msgpack.packb(self._keys)]

    def _parsed(self, answer: Value) -> FoundRecords:
        match answer:
            case [list(records), bytes(seen)] if len(records) == len(self._keys):
                try:
                    found = [data if isinstance(data, bytes) else None for data in records]
                    return FoundRecords(found, decode_body(seen))
                except ProtocolError as damaged:
                    raise Unavailable(f"the token in a node's answer is malformed: {damaged.message}") from damaged
        raise Unavailable("the answer of a node is not a list of records")

    def encoded(self, result: FoundRecords) -> Value:
        """Return the records, and the body of the token."""
        return [[*result.records], self.request.services.tokens.to_node(result.seen)]

    def _here(self) -> None:
        self.request.services.readiness.begin(self._held(), self.request.wanted, self._read, self.here_done)

    def _held(self) -> list[Replica]:
        replicas, table = self.request.replication.replicas, self.table
        return [held(replicas, table, at, key) for at, key in zip(self._partitions, self._keys, strict=True)]

    def _read(self) -> None:
        self.here_done(read_records(self.request.replication, self._held(), self._keys))


def read_records(replication: Replication, replicas: Sequence[Replica], keys: Sequence[bytes]) -> FoundRecords:
    """Read keys from local replicas of one table.

    Raises:
        Unavailable, Corrupt, TooLarge: the records cannot be read.
    """
    found: list[bytes | None] = []
    room = ANSWER_BYTES
    try:
        for replica, key in zip(replicas, keys, strict=True):
            replica.requests += 1
            data = replication.get(replica.space, RECORD + key)
            found.append(data)
            room -= HEAD_BYTES + len(data or b"")
            if room < 0:
                raise _too_large()
    except StorageError as error:
        raise Unavailable(f"the node's store cannot be read: {error.message}") from error
    if not replicas:
        return FoundRecords([], NOTHING)
    config = max([replica.taken_config for replica in replicas])
    try:
        return FoundRecords(
            found, seen_in(replicas[0].partition[0], config, [data for data in found if data is not None])
        )
    except ProtocolError as damaged:
        raise Unavailable(f"a record is damaged: {damaged.message}") from damaged


def _too_large() -> TooLarge:
    return TooLarge("the values do not fit into one answer: ask for fewer keys", {"limit": ANSWER_BYTES})
