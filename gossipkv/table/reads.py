"""Reads of single records: from the copy here, else from hosts of the partition."""

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
from gossipkv.replication import record
from gossipkv.replication.copy import RECORD
from gossipkv.table.forwarding import Request, held
from gossipkv.table.requests import record_options
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.shell import Replication
    from gossipkv.table.forwarding import Forwarding, OnAnswer
    from gossipkv.table.requests import RecordOptions
    from gossipkv.table.routing import Routing
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

    Answer = Callable[[Sequence[Value], bytes], list[Value]]  # Of records, and one of those who gave them.

ID_BYTES: Final = 8
ANSWER_BYTES: Final = (16 << 20) + (512 << 10)  # Fits a frame of 17 MiB, with what is around it.
HEAD_BYTES: Final = 8  # Of a value in an answer, at most.


@final
class TableReads:
    """The methods that read single records, for clients and for other nodes."""

    def __init__(
        self,
        routing: Routing,
        forwarding: Forwarding,
        replication: Callable[[], Replication],
        name_of: Callable[[bytes], str],
        *,
        most_key: int,
    ) -> None:
        """`replication`: of the store as it is open now; raises `NotReady`."""
        self._routing = routing
        self._forwarding = forwarding
        self._replication = replication
        self._name_of = name_of
        self._most_key = most_key

    # -- for clients -------------------------------------------------------------------------------------------------

    def get(self, arguments: Arguments) -> Value | Later:
        """`get [table, key, {options}]`: `[value or nil, token]`, and with `explain` who has answered."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        options = record_options(arguments, "local", "explain")
        explain = options.given.flag("explain")

        def answer(records: Sequence[Value], node: bytes) -> list[Value]:
            answered: list[Value] = [_value(records[0]), b""]
            return [*answered, {"node": self._name_of(node)}] if explain else answered

        try:  # Mostly it is here, and nothing has to be waited for.
            route = self._routing.route(table)
            here = self._read_here(route.table.id, [route.place(key).partition], [key])
            return answer(here, self._replication().replicas.me)
        except (NotServed, NotReady, Unavailable, Corrupt):
            return Later(partial(self._read, table, [key], options, answer))

    def get_many(self, arguments: Arguments) -> Later:
        """`get_many [table, [key, ...], {options}]`: `[[value or nil, ...], token]`, of no one moment."""
        table, keys = arguments.text("table"), arguments.keys("keys", self._most_key)
        options = record_options(arguments, "local")

        def answer(records: Sequence[Value], node: bytes) -> list[Value]:
            del node
            return [[*map(_value, records)], b""]

        return Later(partial(self._read, table, keys, options, answer))

    def _read(
        self, table: str, keys: Sequence[bytes], options: RecordOptions, answer: Answer, on_result: OnResult
    ) -> None:
        deadline = self._replication().now() + options.timeout_s

        route = self._routing.route(table)
        places = [*map(route.place, keys)]
        groups: dict[tuple[bytes, ...], list[int]] = {}  # One question for all that the same nodes hold.
        for at, place in enumerate(places):
            groups.setdefault(place.hosts, []).append(at)
        gathering = _Gathering(len(keys), len(groups), answer, on_result)
        for nodes, ats in groups.items():
            partitions, theirs = [places[at].partition for at in ats], [keys[at] for at in ats]
            packed = b"".join(partition.to_bytes(ID_BYTES, "big") for partition in partitions)
            self._forwarding.begin(
                Request(
                    what=f"{len(ats)} keys of {table}" if len(ats) > 1 else f"a key of {table}",
                    nodes=nodes,
                    here=partial(self._give_here, route.table.id, partitions, theirs),
                    method="table_get",
                    params=[route.table.id, packed, [*theirs]],
                    size_bytes=0,
                    deadline=deadline,
                    on_done=partial(gathering.one_done, ats),
                    local=options.local,
                )
            )

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def get_here(self, arguments: Arguments) -> Value:
        """`table_get [table id, partitions, keys]`: the records here; of each key the partition, in 8 bytes."""
        table, packed = arguments.blob("table"), arguments.blob("partitions")
        keys = arguments.keys("keys", self._most_key)
        arguments.end()
        if len(packed) != ID_BYTES * len(keys):
            raise BadRequest(f"table_get: {len(keys)} keys have {ID_BYTES * len(keys)} bytes of partitions")
        partitions = [int.from_bytes(packed[at : at + ID_BYTES], "big") for at in range(0, len(packed), ID_BYTES)]
        return self._read_here(table, partitions, keys)

    # -- here --------------------------------------------------------------------------------------------------------

    def _give_here(self, table: bytes, partitions: Sequence[int], keys: Sequence[bytes], on_answer: OnAnswer) -> None:
        on_answer(self._read_here(table, partitions, keys), None)

    def _read_here(self, table: bytes, partitions: Sequence[int], keys: Sequence[bytes]) -> list[Value]:
        """The records of keys in the copies here.  Raises NotServed, Unavailable, Corrupt, TooLarge."""
        replication = self._replication()
        found: list[Value] = []
        room = ANSWER_BYTES
        try:
            for partition, key in zip(partitions, keys, strict=True):
                data = replication.get(held(replication.replicas, table, partition).space, RECORD + key)
                found.append(data)
                room -= HEAD_BYTES + len(data or b"")
                if room < 0:
                    raise _too_large()
        except StorageError as error:
            raise Unavailable(f"its store cannot be read: {error.message}") from error
        return found


@final
class _Gathering:
    """The records of one request, from several nodes, answered once."""

    def __init__(self, keys: int, groups: int, answer: Answer, on_result: OnResult) -> None:
        self._records: list[Value] = [None] * keys
        self._left = groups
        self._answer = answer
        self._on_result = on_result
        if not groups:
            on_result(answer([], b""))

    def one_done(self, ats: Sequence[int], result: Value, error: GossipKVError | None, node: bytes) -> None:
        """The records at these places have come, or never will."""
        self._left -= 1
        if self._left < 0:  # One of them has failed.
            return
        if error is None and (not isinstance(result, list) or len(result) != len(ats)):
            error = Unavailable("a node answered something else than records")
        if error is not None:
            self._left = 0
            self._on_result(error)
            return
        assert isinstance(result, list)
        for at, data in zip(ats, result, strict=True):
            self._records[at] = data
        if not self._left:
            is_large = sum(HEAD_BYTES + len(one) for one in self._records if isinstance(one, bytes)) > ANSWER_BYTES
            try:
                self._on_result(_too_large() if is_large else self._answer(self._records, node))
            except ProtocolError as damaged:
                self._on_result(Unavailable(f"a node answered with what is no record: {damaged.message}"))


def _too_large() -> TooLarge:
    return TooLarge("the values do not fit into one answer: ask for fewer", {"limit": ANSWER_BYTES})


def _value(data: Value) -> Value:
    return record.value(data) if isinstance(data, bytes) else None
