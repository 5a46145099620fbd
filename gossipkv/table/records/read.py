"""Reads of single records: from the local replica, else from hosts of the partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

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
from gossipkv.table.records.forward import ForwardRequest, answering, held
from gossipkv.table.records.options import record_options
from gossipkv.table.records.route import ID_BYTES, packed_ids, unpacked_ids
from gossipkv.table.records.token_compaction import is_short
from gossipkv.table.session.readiness import WantedClock, wanted_of
from gossipkv.table.session.token import NOTHING, decode_body, merged, seen_in
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import OnAnswer, Replication
    from gossipkv.table.records.forward import Forwarder
    from gossipkv.table.records.options import RecordOptions
    from gossipkv.table.records.router import Router
    from gossipkv.table.records.token_compaction import Sessions
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

    # Takes the records, the token, and a node that answered.
    Answer = Callable[[Sequence[Value], bytes, bytes], list[Value]]

ANSWER_BYTES: Final = (16 << 20) + (512 << 10)  # Fits a frame of 17 MiB with its header.
HEAD_BYTES: Final = 8  # Largest header of a value in an answer.
MAX_ASKED: Final = 1000  # Keys per request: a request between nodes has at most 1,024 elements.


@final
class TableReads:
    """The methods that read single records, for clients and for other nodes."""

    def __init__(
        self,
        routing: Router,
        forwarding: Forwarder,
        replication: Callable[[], Replication],
        name_of: Callable[[bytes], str],
        sessions: Sessions,
        *,
        most_key: int,
    ) -> None:
        """`replication` returns the open store's, or raises `NotReady`."""
        self._routing = routing
        self._forwarding = forwarding
        self._replication = replication
        self._name_of = name_of
        self._ready, self._compactor = sessions
        self._most_key = most_key

    # -- for clients -------------------------------------------------------------------------------------------------

    def get(self, arguments: Arguments) -> Value | Later:
        """`get [table, key, {options}]`: `[value or nil, token]`, and with `explain` the node that answered."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        options = record_options(arguments, "local", "explain")
        explain = options.given.flag("explain")

        def answer(records: Sequence[Value], token: bytes, node: bytes) -> list[Value]:
            answered: list[Value] = [_value(records[0]), token]
            return [*answered, {"node": self._name_of(node)}] if explain else answered

        token, replication = self._compactor.read(options.token), self._replication()
        try:  # Fast path: the local replica holds the partition and is ready.
            route = self._routing.route(table)
            place = route.place(key)
            route.check(options.config, [place])
            replica = held(replication.replicas, route.table.id, place.partition, key)
            if self._ready.is_ready(replica, token) and is_short(token) and options.config <= route.config:
                records, seen = self._read_here([replica], [key])
                return answer(records, self._compactor.write(token, seen), replication.replicas.me)
        except (NotServed, NotReady, Unavailable, Corrupt):
            pass
        return Later(partial(self._read, table, [key], options, answer))

    def get_many(self, arguments: Arguments) -> Later:
        """`get_many [table, [key, ...], {options}]`: `[[value or nil, ...], token]`, not from one snapshot."""
        table, keys = arguments.text("table"), arguments.keys("keys", self._most_key)
        options = record_options(arguments, "local")

        def answer(records: Sequence[Value], token: bytes, node: bytes) -> list[Value]:
            del node
            return [[*map(_value, records)], token]

        return Later(partial(self._read, table, keys, options, answer))

    def _read(
        self, table: str, keys: Sequence[bytes], options: RecordOptions, answer: Answer, on_result: OnResult
    ) -> None:
        now = self._replication().now()
        deadline, until = now + options.timeout_s, now + options.wait_s

        def go_on(token: Token) -> None:
            def finish(records: Sequence[Value], seen: Token, node: bytes) -> list[Value]:
                return answer(records, self._compactor.write(token, seen), node)

            gathering = _ReadGroup(len(keys), finish, on_result)
            self._ask(table, keys, WantedClock(token, until), gathering, deadline=deadline, options=options)

        def begin(_: object) -> None:
            self._compactor.begin(self._compactor.read(options.token), deadline, go_on, on_result)

        self._routing.once_known(table, options.config, until, begin, on_result)

    def _ask(
        self,
        table: str,
        keys: Sequence[bytes],
        wanted: WantedClock,
        gathering: _ReadGroup,
        *,
        deadline: float,
        options: RecordOptions,
    ) -> None:
        """Ask the hosts of all keys. Raises NotReady, UnknownDatabase, StaleConfig."""
        route = self._routing.route(table)
        places = [*map(route.place, keys)]
        route.check(options.config, places)
        groups: dict[tuple[bytes, ...], list[int]] = {}  # Keys with the same hosts share requests.
        for at, place in enumerate(places):
            groups.setdefault(place.hosts, []).append(at)
        questions = [
            (nodes, ats[first : first + MAX_ASKED])  # At most MAX_ASKED keys fit.
            for nodes, ats in groups.items()
            for first in range(0, len(ats), MAX_ASKED)
        ]
        gathering.begin(len(questions))
        for nodes, ats in questions:
            partitions, theirs = [places[at].partition for at in ats], [keys[at] for at in ats]
            self._forwarding.begin(
                ForwardRequest(
                    what=f"{len(ats)} keys of {table}" if len(ats) > 1 else f"a key of {table}",
                    nodes=nodes,
                    here=partial(self._give_here, route.table.id, partitions, theirs, wanted),
                    method="table_get",
                    params=[route.table.id, packed_ids(partitions), [*theirs]],
                    size_bytes=0,
                    deadline=deadline,
                    on_done=partial(gathering.one_done, ats),
                    wanted=wanted,
                    local=options.local,
                )
            )

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def get_here(self, arguments: Arguments) -> Later:
        """`table_get [table id, partitions, keys, seen, wait_ms]`: `[records, token body]`.

        `partitions`: for each key the id of its partition, in 8 bytes.
        """
        table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
        keys = arguments.keys("keys", self._most_key)
        wanted = wanted_of(arguments, self._replication().now())
        if len(partitions) != len(keys):
            raise BadRequest(f"table_get: {len(keys)} keys have {ID_BYTES * len(keys)} bytes of partitions")
        return Later(lambda on_result: self._give_here(table, partitions, keys, wanted, answering(on_result)))

    # -- here --------------------------------------------------------------------------------------------------------

    def _give_here(
        self, table: bytes, partitions: Sequence[int], keys: Sequence[bytes], wanted: WantedClock, on_answer: OnAnswer
    ) -> None:
        replicas = self._replication().replicas

        def held_here() -> list[Replica]:
            return [held(replicas, table, partition, key) for partition, key in zip(partitions, keys, strict=True)]

        def give() -> None:
            records, seen = self._read_here(held_here(), keys)
            on_answer([records, self._compactor.to_node(seen)], None)

        self._ready.begin(held_here(), wanted, give, on_answer)

    def _read_here(self, replicas: Sequence[Replica], keys: Sequence[bytes]) -> tuple[list[Value], Token]:
        """Return the records of keys in local replicas of one table, and the token of a session that reads them.

        Raises:
            Unavailable, Corrupt, TooLarge: the records cannot be read.
        """
        replication = self._replication()
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
            raise Unavailable(f"its store cannot be read: {error.message}") from error
        if not replicas:
            return [], NOTHING
        config = max(replica.taken_config for replica in replicas)
        try:
            return [*found], seen_in(replicas[0].identity.table, config, (data for data in found if data is not None))
        except ProtocolError as damaged:
            raise Unavailable(f"a record is damaged: {damaged.message}") from damaged


@final
class _ReadGroup:
    """Gathers the records of one request from several nodes, and answers once."""

    def __init__(
        self, keys: int, answer: Callable[[Sequence[Value], Token, bytes], list[Value]], on_result: OnResult
    ) -> None:
        self._records: list[Value] = [None] * keys
        self._seen: list[Token] = []
        self._left = 0
        self._answer = answer
        self._on_result = on_result

    def begin(self, groups: int) -> None:
        self._left = groups
        if not groups:
            self._on_result(self._answer([], NOTHING, b""))

    def one_done(self, ats: Sequence[int], result: Value, error: GossipKVError | None, node: bytes) -> None:
        """Take the records at these places, or the error that replaces them."""
        self._left -= 1
        if self._left < 0:  # Another group has failed, and that error was the answer.
            return
        match result:
            case [list(records), bytes(seen)] if error is None and len(records) == len(ats):
                try:
                    self._seen.append(decode_body(seen))
                except ProtocolError as damaged:
                    error = Unavailable(f"a node answered with what is no token: {damaged.message}")
                for at, data in zip(ats, records, strict=True):
                    self._records[at] = data
            case _ if error is None:
                error = Unavailable("a node answered something else than records")
        if error is not None:
            self._left = 0
            self._on_result(error)
            return
        if not self._left:
            is_large = sum(HEAD_BYTES + len(data) for data in self._records if isinstance(data, bytes)) > ANSWER_BYTES
            try:
                token = merged(*self._seen)
                self._on_result(_too_large() if is_large else self._answer(self._records, token, node))
            except ProtocolError as damaged:
                self._on_result(Unavailable(f"a node answered with what is no record: {damaged.message}"))


def _too_large() -> TooLarge:
    return TooLarge("the values do not fit into one answer: ask for fewer", {"limit": ANSWER_BYTES})


def _value(data: Value) -> Value:
    return record.value(data) if isinstance(data, bytes) else None
