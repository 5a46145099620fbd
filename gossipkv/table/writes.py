"""Writes to tables: at the copy here if that may originate, else at one host of the partition after the other.

A write goes to one host at a time, and to the next only when it was certainly not applied: refused, or never sent.
What was sent and not answered is *unknown*.  A request that was forwarded is never forwarded again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    NotServed,
    Overloaded,
    TooLarge,
    Unavailable,
    Unknown,
    UnknownDatabase,
    UnknownMethod,
)
from gossipkv.replication.copy import Write
from gossipkv.replication.levels import LEVELS, MAJORITY, slots_needed
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.copy import Copy
    from gossipkv.replication.shell import Replication
    from gossipkv.replication.waiting import Waiter
    from gossipkv.table.routing import Place, Route, Routing
    from gossipkv.wire.arguments import Arguments, Options
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

WRITE_OPTIONS: Final = ("level", "token", "wait_ms", "timeout_ms", "config")
TIMEOUT_MS: Final = 1000
MOST_ROWS: Final = 1 << 16
REFUSED: Final = (Unavailable, NotReady, NotServed, Overloaded, UnknownDatabase, UnknownMethod)  # Nothing was applied.


@final
@dataclass(slots=True, eq=False)
class Writing:
    """A write to one partition that is under way."""

    route: Route
    place: Place
    writes: list[Write]
    level: str
    deadline: float
    on_done: Callable[[tuple[int, int] | GossipKVError], object]  # The dot of its last record, or why not.
    hosts: list[bytes] | None = None  # Who is to be asked yet; None: it may go nowhere but here.
    refusals: dict[str, str] = field(default_factory=dict)
    waiter: Waiter | None = None


@final
class Writes:
    """The methods that write, for clients and for other nodes."""

    def __init__(
        self,
        routing: Routing,
        replication: Callable[[], Replication],
        name_of: Callable[[bytes], str],
        *,
        max_key: int,
        max_value: int,
    ) -> None:
        """`replication`: of the store as it is open now; raises `NotReady`."""
        self._routing = routing
        self._replication = replication
        self._name_of = name_of
        self._max_key = max_key
        self._max_value = max_value

    # -- for clients -------------------------------------------------------------------------------------------------

    def put(self, arguments: Arguments) -> Later:
        """`token`."""
        table, key = arguments.text("table"), arguments.key("key", self._max_key)
        write = Write(key, self._value(arguments.blob("value")))
        return self._later(table, [write], arguments.options(*WRITE_OPTIONS))

    def delete(self, arguments: Arguments) -> Later:
        """`token`."""
        table, key = arguments.text("table"), arguments.key("key", self._max_key)
        return self._later(table, [Write(key, None)], arguments.options(*WRITE_OPTIONS))

    def put_many(self, arguments: Arguments) -> Later:
        """`token`."""
        table = arguments.text("table")
        writes: list[Write] = []
        for row in arguments.rows("list of keys and values", MOST_ROWS):
            match row:
                case [bytes(key), bytes(value)] if len(key) <= self._max_key:
                    writes.append(Write(key, self._value(value)))
                case _:
                    raise BadRequest(f"put_many: a row is [key, value], with a key of {self._max_key} bytes at most")
        return self._later(table, writes, arguments.options(*WRITE_OPTIONS))

    def _value(self, value: bytes) -> bytes:
        if len(value) > self._max_value:
            size, limit = len(value), self._max_value
            raise TooLarge(f"the value has {size} bytes, and may have {limit}", {"limit": limit, "size": size})
        return value

    def _later(self, table: str, writes: Sequence[Write], options: Options) -> Later:
        level = options.text("level") or MAJORITY
        if level not in LEVELS:
            raise BadRequest(f"the level is one of {', '.join(LEVELS)}, not {level[:80]}", {"option": "level"})
        timeout_ms = options.timeout_ms()
        options.blob("token"), options.number("wait_ms"), options.number("config")
        route = self._routing.route(table)
        parts: dict[bytes, tuple[Place, list[Write]]] = {}
        for write in writes:
            place = route.place(write.key)
            parts.setdefault(place.first, (place, []))[1].append(write)

        def begin(on_result: OnResult) -> None:
            deadline = self._replication().now() + (TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
            together = _Together(len(parts), on_result)
            for place, rows in parts.values():
                hosts = self._routing.hosts(place.partition)
                self.begin(Writing(route, place, rows, level, deadline, together.one_done, hosts))
            together.begun()

        return Later(begin)

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def write(self, arguments: Arguments) -> Later:
        """`table_write [table id, level, timeout_ms, [[key, value or nil, dependencies], ...]]`: the last one's dot."""
        table, level = arguments.blob("table"), arguments.text("level")
        timeout_ms, rows = arguments.whole("timeout_ms", 1 << 40), arguments.rows("rows", MOST_ROWS)
        arguments.end()
        writes: list[Write] = []
        for row in rows:
            match row:
                case [bytes(key), None | bytes() as value, bytes(dependencies)] if len(key) <= self._max_key:
                    writes.append(Write(key, value, dependencies))
                case _:
                    raise BadRequest("table_write: a row is [key, value or nil, dependencies]")
        route = self._routing.route_of(table)
        places = {route.place(write.key).first: route.place(write.key) for write in writes}
        if level not in LEVELS or len(places) != 1:
            raise BadRequest("table_write: a level, and rows of one partition")
        (place,) = places.values()

        def begin(on_result: OnResult) -> None:
            def done(result: tuple[int, int] | GossipKVError) -> None:
                on_result(result if isinstance(result, GossipKVError) else [*result])

            deadline = self._replication().now() + timeout_ms / 1000
            self.begin(Writing(route, place, writes, level, deadline, done))

        return Later(begin)

    # -- a write to one partition ------------------------------------------------------------------------------------

    def begin(self, writing: Writing) -> None:
        """Have it go where it can; its `on_done` is called once."""
        try:
            replication = self._replication()
            copy = replication.replicas.copies.get((writing.route.table.id, writing.place.partition.id))
            self._try_here(replication, copy, writing)
        except REFUSED as refusal:
            self._refused(writing, None, refusal)
        except GossipKVError as error:
            writing.on_done(error)

    def _try_here(self, replication: Replication, copy: Copy | None, writing: Writing) -> None:
        """Write it at the copy here.  Raises GossipKVError: nothing was applied."""
        replicas = replication.replicas
        state = next((host.available for host in copy.hosts if host.node == replicas.me), False) if copy else False
        if copy is None or not state:
            raise NotServed("the partition is not held here", {"partition": writing.place.partition.id})
        if not replicas.may_originate(copy):
            raise NotReady(copy.aside or "this node has just begun, and asks others what they have of its records")
        levels = replicas.levels[copy]
        there, needed = levels.connected(replicas.reached), slots_needed(writing.level, levels.slots)
        if there < needed:
            words = f"{writing.level} needs {needed} slots of the partition, and {there} can confirm"
            raise Unavailable(words, {"partition": writing.place.partition.id, "connected": there, "needed": needed})
        size_bytes = sum(len(write.key) + len(write.value or b"") for write in writing.writes)
        late = partial(self._late, writing)
        writing.waiter = replication.waiting.begin(writing.deadline, size_bytes, late)
        try:
            counter = replicas.originate(copy, writing.writes)
        except GossipKVError:
            replication.waiting.end(writing.waiter)
            raise
        done = partial(self._reached, replication, writing, (copy.assignment, counter))
        levels.wait(writing.level, counter, done)

    @staticmethod
    def _reached(replication: Replication, writing: Writing, dot: tuple[int, int]) -> None:
        assert writing.waiter is not None
        if writing.waiter.on_late is not None:
            replication.waiting.end(writing.waiter)
            writing.on_done(dot)

    @staticmethod
    def _late(writing: Writing) -> None:
        words = f"the write was applied, and did not reach the level {writing.level} in time: it may become visible"
        writing.on_done(Unknown(words, {"level": writing.level, "partition": writing.place.partition.id}))

    def _refused(self, writing: Writing, node: bytes | None, refusal: GossipKVError) -> None:
        """Go on to the next host: nothing was applied."""
        replication = self._replication()
        me = replication.replicas.me
        writing.refusals[self._name_of(me if node is None else node)] = refusal.message
        hosts = [host for host in writing.hosts or () if host != me]
        left_s = writing.deadline - replication.now()
        if not hosts or left_s <= 0:
            if writing.hosts is None:
                writing.on_done(refusal)
            else:
                words = "; ".join(f"{name}: {why}" for name, why in writing.refusals.items())
                words = f"no host takes the write, and nothing was applied: {words}"
                writing.on_done(
                    Unavailable(words, {"partition": writing.place.partition.id, "asked": {**writing.refusals}})
                )
            return
        host, writing.hosts = hosts[0], hosts[1:]
        rows: list[Value] = [[one.key, one.value, one.dependencies] for one in writing.writes]
        params: list[Value] = [writing.route.table.id, writing.level, max(1, int(left_s * 1000)), rows]
        replication.ask_whole(host, "table_write", params, left_s, partial(self._answered, writing, host))

    def _answered(self, writing: Writing, host: bytes, result: Value, error: GossipKVError | None) -> None:
        if isinstance(error, REFUSED):
            self._refused(writing, host, error)
        elif error is not None:
            writing.on_done(error)
        else:
            match result:
                case [int(origin), int(counter)]:
                    writing.on_done((origin, counter))
                case _:
                    writing.on_done(Unknown(f"{self._name_of(host)} answered something else than the dot of a write"))


@final
class _Together:
    """The parts of one request, answered once."""

    def __init__(self, parts: int, on_result: OnResult) -> None:
        self._left = parts + 1
        self._parts = parts
        self._on_result = on_result
        self._errors: list[GossipKVError] = []

    def one_done(self, result: tuple[int, int] | GossipKVError) -> None:
        """One of them has ended."""
        if isinstance(result, GossipKVError):
            self._errors.append(result)
        self.begun()

    def begun(self) -> None:
        """All were begun, or one has ended."""
        self._left -= 1
        if self._left:
            return
        if not self._errors:
            self._on_result(b"")
        elif self._parts == len(self._errors) and all(isinstance(error, REFUSED) for error in self._errors):
            self._on_result(self._errors[0])
        else:
            worst = next((error for error in self._errors if not isinstance(error, REFUSED)), self._errors[0])
            if self._parts == 1:
                self._on_result(worst)
            else:
                words = f"{self._parts - len(self._errors)} of {self._parts} partitions have it: {worst.message}"
                self._on_result(Unknown(words, worst.details))
