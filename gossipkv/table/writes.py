"""Writes to tables: each goes to one copy of its partition, which is its origin and answers at the level that is asked.

`put_many` is cut by partitions, and into batches that are small beside what the log and a message between nodes take.
Each batch is a write of its own: some may be applied, and others not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    LimitExceeded,
    NotReady,
    NotServed,
    ProtocolError,
    StorageError,
    TooLarge,
    Unavailable,
    Unknown,
)
from gossipkv.replication import clock
from gossipkv.replication.copy import Write
from gossipkv.replication.levels import LEVELS, MAJORITY, slots_needed
from gossipkv.table.forwarding import Request, answering, held
from gossipkv.table.readiness import BEHIND, Wanted, wanted_of
from gossipkv.table.requests import record_options
from gossipkv.table.settling import size
from gossipkv.table.token import Seen, decode_body, merged, only
from gossipkv.wire.arguments import MAX_TIMEOUT_MS
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.replication.copy import Copy
    from gossipkv.replication.replicas import Replicas
    from gossipkv.replication.shell import Replication
    from gossipkv.table.forwarding import Forwarding
    from gossipkv.table.readiness import OnAnswer
    from gossipkv.table.route import Place, Route
    from gossipkv.table.routing import Routing
    from gossipkv.table.settling import Sessions
    from gossipkv.table.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

MOST_ROWS: Final = 1 << 16
MOST_ID: Final = (1 << 64) - 1
BATCH_BYTES: Final = 256 << 10  # One row more: the smallest segment of a log has room for four.


@final
class Writes:
    """The methods that write, for clients and for other nodes."""

    def __init__(
        self,
        routing: Routing,
        forwarding: Forwarding,
        replication: Callable[[], Replication],
        sessions: Sessions,
        *,
        most_key: int,
        most_value: int,
    ) -> None:
        """`replication`: of the store as it is open now; raises `NotReady`."""
        self._routing = routing
        self._forwarding = forwarding
        self._replication = replication
        self._ready, self._settling = sessions
        self._most_key = most_key
        self._most_value = most_value

    # -- for clients -------------------------------------------------------------------------------------------------

    def put(self, arguments: Arguments) -> Later:
        """`put [table, key, value, {options}]`: the token."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        value = self._value(arguments.blob("value"))
        return self._later(table, {key: value}, arguments)

    def delete(self, arguments: Arguments) -> Later:
        """`delete [table, key, {options}]`: the token."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        return self._later(table, {key: None}, arguments)

    def put_many(self, arguments: Arguments) -> Later:
        """`put_many [table, [[key, value], ...], {options}]`: the token; of two rows of a key the later one counts."""
        table, rows = arguments.text("table"), dict[bytes, bytes | None]()
        for number, row in enumerate(arguments.rows("rows", MOST_ROWS)):
            match row:
                case [bytes(key), bytes(value)] if len(key) <= self._most_key:
                    rows[key] = self._value(value)
                case _:
                    words = f"put_many: row {number} should be a key of {self._most_key} bytes at most, and a value"
                    raise BadRequest(words)
        return self._later(table, rows, arguments)

    def _value(self, value: bytes) -> bytes:
        if len(value) > self._most_value:
            size, limit = len(value), self._most_value
            raise TooLarge(f"the value has {size} bytes, and may have {limit}", {"limit": limit, "size": size})
        return value

    def _later(self, table: str, rows: Mapping[bytes, bytes | None], arguments: Arguments) -> Later:
        options = record_options(arguments, "level")
        level = options.given.text("level") or MAJORITY
        if level not in LEVELS:
            raise BadRequest(f"the level is one of {', '.join(LEVELS)}, not {level[:80]}", {"option": "level"})

        token = self._settling.read(options.token)

        def begin(on_result: OnResult) -> None:
            now = self._replication().now()
            deadline, until = now + options.timeout_s, now + options.wait_s

            def go_on(token: Token) -> None:
                route = self._routing.route(table)
                batches = [*_batches(route, level, rows, Wanted(token, until))]
                route.check(options.config, (place for place, _ in batches))
                together = _Together(len(batches), partial(self._settling.write, token), on_result)
                for place, batch in batches:
                    self._begin(table, batch, place.hosts, deadline, together)
                together.begun()

            def begin_by(route: Route) -> None:
                if options.config > route.config:
                    words = "the request goes by a newer map than this node, which takes no write by an older one"
                    raise NotReady(words, {BEHIND: "map", "config": route.config})
                self._settling.begin(token, deadline, go_on, on_result)

            self._routing.once_known(table, options.config, until, begin_by, on_result)

        return Later(begin)

    def _begin(self, table: str, batch: _Batch, hosts: tuple[bytes, ...], deadline: float, together: _Together) -> None:
        """Have a batch written by a copy of its partition."""
        flat: list[Value] = [part for write in batch.writes for part in (write.key, write.value)]
        self._forwarding.begin(
            Request(
                what=f"partition {batch.partition:016x}",
                nodes=hosts,
                renewed=lambda: self._routing.route(table).place(batch.writes[0].key).hosts,
                here=partial(self._write_here, batch, deadline),
                method="table_write",
                params=[batch.table, batch.partition, batch.level, flat],
                size_bytes=batch.size_bytes,
                deadline=deadline,
                on_done=together.one_done,
                wanted=batch.wanted,
                is_write=True,
            )
        )

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def write(self, arguments: Arguments) -> Later:
        """`table_write [table id, partition, level, [key, value or nil, ...], timeout_ms, seen, wait_ms]`.

        The answer is what it adds to what was seen.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MOST_ID)
        level, flat = arguments.text("level"), arguments.rows("rows", 2 * MOST_ROWS)
        timeout_ms = arguments.whole("timeout_ms", MAX_TIMEOUT_MS)
        wanted = wanted_of(arguments, self._replication().now())
        batch = _Batch(table, partition, level, wanted)
        for key, value in zip(flat[::2], flat[1::2], strict=False):
            if not isinstance(key, bytes) or not (value is None or isinstance(value, bytes)):
                raise BadRequest("table_write: rows are keys and values, or nil")
            batch.add(Write(key, value))
        if level not in LEVELS or not flat or len(flat) % 2:
            raise BadRequest("table_write: there are to be a level, and keys with a value or nil each")

        def begin(on_result: OnResult) -> None:
            self._write_here(batch, self._replication().now() + timeout_ms / 1000, answering(on_result))

        return Later(begin)

    # -- here --------------------------------------------------------------------------------------------------------

    def _write_here(self, batch: _Batch, deadline: float, on_answer: OnAnswer) -> None:
        """Write to the copy here, once it is ready.  Raises GossipKVError: nothing was applied."""
        copies = [*self._copies_of(batch)]
        if not all(copy.originates for copy in copies):
            raise NotServed("the partition leaves this node: others take its writes", {"partition": batch.partition})
        wanted = batch.wanted._replace(until=min(batch.wanted.until, deadline))
        self._ready.begin(copies, wanted, partial(self._originate, batch, deadline, on_answer), on_answer)

    def _copies_of(self, batch: _Batch) -> dict[Copy, list[Write]]:
        """The copies here of a batch's keys: several, if who sent it has not heard yet that their range was divided.

        Raises:
            NotServed: they are not here.
        """
        replicas = self._replication().replicas
        found: dict[Copy, list[Write]] = {}
        for write in batch.writes:
            copy = next((one for one in found if one.bounds.has(write.key)), None)
            copy = copy or held(replicas, batch.table, batch.partition, write.key)
            found.setdefault(copy, []).append(write)
        return found

    def _originate(self, batch: _Batch, deadline: float, on_answer: OnAnswer) -> None:
        """Write to the copy here, as the origin.  Raises GossipKVError: nothing was applied."""
        replication = self._replication()
        replicas, level = replication.replicas, batch.level
        copies = self._copies_of(batch)
        for copy in copies:
            _check_originates(replicas, copy)
            _check_level(replicas, copy, level)

        def late() -> None:
            words = f"the write was applied, and did not reach the level {level} in time: it may become visible"
            on_answer(None, Unknown(words, {"level": level, "partition": batch.partition}))

        waiter = replication.waiting.begin(deadline, batch.size_bytes, late)
        try:
            depending = self._depending
            counters = replicas.originate({copy: depending(batch, copy, some) for copy, some in copies.items()})
        except GossipKVError as error:
            replication.waiting.end(waiter)
            match error:
                case StorageError():
                    raise Unavailable(f"its store takes no writes: {error.message}") from error
                case LimitExceeded():
                    raise TooLarge(
                        f"the log has no room for so much at once: {error.message}", error.details
                    ) from error
            raise

        seen = Seen(max(copy.config for copy in copies), clock.of(counters.items()))
        left = len(copies)

        def reached() -> None:
            nonlocal left
            left -= 1
            if not left and waiter.on_late is not None:
                replication.waiting.end(waiter)
                on_answer(self._settling.kept({batch.table: seen}), None)

        for copy, some in copies.items():
            copy.requests += len(some)
            replicas.levels[copy].wait(level, counters[copy.assignment], reached)

    def _depending(self, batch: _Batch, copy: Copy, writes: list[Write]) -> list[Write]:
        """What is written, with what it depends on.

        That is what the session has seen, but for what the copy has itself of present assignments: the order of its
        log says that.
        """
        token = batch.wanted.token
        if not token:
            return writes
        others = only(token, lambda table, origin, _: table != batch.table or origin not in copy.assigned)
        body = self._settling.kept(others)
        return [write._replace(dependencies=body) for write in writes]


@final
@dataclass(slots=True)
class _Batch:
    """What is written to a partition at once."""

    table: bytes
    partition: int
    level: str
    wanted: Wanted
    writes: list[Write] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, write: Write) -> None:
        """Have it write that, too."""
        self.writes.append(write)
        self.size_bytes += len(write.key) + len(write.value or b"") + size(self.wanted.token)


@final
class _Together:
    """The batches of one request, answered once."""

    def __init__(self, batches: int, write: Callable[[Token], bytes], on_result: OnResult) -> None:
        """`write`: what was seen is added to the token that the request came with."""
        self._write = write
        self._seen: list[Token] = []
        self._left = batches + 1
        self._batches = batches
        self._on_result = on_result
        self._errors: list[GossipKVError] = []

    def one_done(self, result: Value, error: GossipKVError | None, node: bytes) -> None:
        """One of them has ended."""
        del node
        try:
            if error is not None:
                raise error
            if not isinstance(result, bytes):
                raise Unknown("a node answered something else than what it has written")
            self._seen.append(decode_body(result))
        except ProtocolError as damaged:
            self._errors.append(Unknown(f"a node answered with what is no token: {damaged.message}"))
        except GossipKVError as failed:
            self._errors.append(failed)
        self.begun()

    def begun(self) -> None:
        """All were begun, or one has ended."""
        self._left -= 1
        if self._left:
            return
        unknown = next((error for error in self._errors if isinstance(error, Unknown)), None)
        done = self._batches - len(self._errors)
        if not self._errors:
            self._on_result(self._write(merged(*self._seen)))
        elif self._batches == 1 or (unknown is None and not done):
            self._on_result(self._errors[0])
        else:
            worst = unknown or self._errors[0]
            words = f"{done} of {self._batches} parts of it are written, others not or perhaps: {worst.message}"
            self._on_result(Unknown(words, worst.details))


def _batches(
    route: Route, level: str, rows: Mapping[bytes, bytes | None], wanted: Wanted
) -> Iterator[tuple[Place, _Batch]]:
    """Rows by their partitions, so many in a batch as are small together."""
    begun: dict[int, tuple[Place, _Batch]] = {}
    for key, value in rows.items():
        place = route.place(key)
        _, batch = begun.setdefault(place.partition, (place, _Batch(route.table.id, place.partition, level, wanted)))
        batch.add(Write(key, value))
        if batch.size_bytes >= BATCH_BYTES:
            yield begun.pop(place.partition)
    yield from begun.values()


def _check_originates(replicas: Replicas, copy: Copy) -> None:
    """Raise Unavailable, NotReady: the copy here may give out no counters, for good, or in the first second."""
    if not replicas.may_originate(copy):
        if (why := replicas.refusal(copy)) is not None:
            raise Unavailable(why)
        raise NotReady("it has just begun and asks others what they have of its records, or ends a load")


def _check_level(replicas: Replicas, copy: Copy, level: str) -> None:
    """Raise Unavailable: a write cannot reach the level; NotReady: it can once who is connected has told its clocks."""
    levels = replicas.levels[copy]
    needed = slots_needed(level, levels.slots)
    if needed > 1 and (there := levels.connected(replicas.reached)) < needed:
        words = f"{level} needs {needed} slots of the partition, and {there} can confirm"
        details = {"partition": copy.identity.partition, "connected": there, "needed": needed}
        linked = {node for node, peer in replicas.peers.items() if peer.link or peer.again_at is not None}
        raise (NotReady if levels.connected(linked) >= needed else Unavailable)(words, {**details})
