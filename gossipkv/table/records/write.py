"""Writes to tables: one replica of the partition originates each write, and answers at the requested level.

`put_many` is split by partition, and into batches that are small against a log segment and a message between nodes.
Each batch is a write of its own, so a failed `put_many` may be applied in part.
"""

from __future__ import annotations

from collections import Counter
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
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.acks import LEVELS, MAJORITY, slots_needed
from gossipkv.replication.replica.hlc import check_left
from gossipkv.replication.replica.replica import RecordWrite
from gossipkv.replication.replica.smeared import sift
from gossipkv.table.records.forward import ForwardRequest, answering, held
from gossipkv.table.records.options import record_options
from gossipkv.table.records.token_compaction import size
from gossipkv.table.session.readiness import BEHIND, WantedClock, wanted_of
from gossipkv.table.session.token import TableSeen, decode_body, merged, only
from gossipkv.wire.key_text import shown
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import OnAnswer, Replication
    from gossipkv.table.controllers.smear_buffer import OnForwarded, SmearBuffer
    from gossipkv.table.controllers.smear_schedule import SmearedPut
    from gossipkv.table.records.forward import Forwarder, OnAnswered
    from gossipkv.table.records.route import PartitionRoute, TableRoute
    from gossipkv.table.records.router import Router
    from gossipkv.table.records.token_compaction import Sessions
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

MAX_ROWS: Final = 1 << 16
MAX_ID: Final = (1 << 64) - 1
FORWARD_S: Final = 5.0  # Timeout for hosts to take smeared puts; then the puts are forwarded again.
BATCH_BYTES: Final = 256 << 10  # A batch exceeds this by one row at most: the smallest log segment has room for four.


@final
class TableWrites:
    """The methods that write, for clients and for other nodes."""

    def __init__(
        self,
        routing: Router,
        forwarding: Forwarder,
        replication: Callable[[], Replication],
        sessions: Sessions,
        *,
        accepting: Callable[[], SmearBuffer | None],
        note: Callable[[bytes, Iterable[RecordWrite]], object],
        most_key: int,
        most_value: int,
    ) -> None:
        """`replication` and `accepting` return those of the open store; `replication` raises `NotReady`.

        `note`: called with the writes of a table that this node originated.
        """
        self._routing = routing
        self._forwarding = forwarding
        self._replication = replication
        self._ready, self._compactor = sessions
        self._accepting = accepting
        self._note = note
        self._most_key = most_key
        self._most_value = most_value

    # -- for clients -------------------------------------------------------------------------------------------------

    def put(self, arguments: Arguments) -> Later:
        """`put [table, key, value, {options}]`: the token, or `{"accepted": true}` for a smeared put."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        value = self._value(arguments.blob("value"))
        return self._later(table, {key: value}, arguments, may_smear=True)

    def delete(self, arguments: Arguments) -> Later:
        """`delete [table, key, {options}]`: the token."""
        table, key = arguments.text("table"), arguments.key("key", self._most_key)
        return self._later(table, {key: None}, arguments)

    def put_many(self, arguments: Arguments) -> Later:
        """`put_many [table, [[key, value], ...], {options}]`: the token; the last row of a key counts."""
        table, rows = arguments.text("table"), dict[bytes, bytes | None]()
        for number, row in enumerate(arguments.rows("rows", MAX_ROWS)):
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

    def _later(
        self, table: str, rows: Mapping[bytes, bytes | None], arguments: Arguments, *, may_smear: bool = False
    ) -> Later:
        options = record_options(arguments, "level", "smear")
        may_smear = may_smear and may_wait(options.given)
        level = options.given.text("level") or MAJORITY
        if level not in LEVELS:
            raise BadRequest(f"the level is one of {', '.join(LEVELS)}, not {level[:80]}", {"option": "level"})

        token = self._compactor.read(options.token)

        def begin(on_result: OnResult) -> None:
            now = self._routing.replicating(table).now()
            deadline, until = now + options.timeout_s, now + options.wait_s

            def go_on(token: Token) -> None:
                route = self._routing.route(table)
                _check_times(route, rows)
                batches = [*_batches(route, level, rows, WantedClock(token, until))]
                route.check(options.config, (place for place, _ in batches))

                def write() -> None:
                    together = _GroupedWrite(len(batches), partial(self._compactor.write, token), on_result)
                    for place, batch in batches:
                        self._begin(batch, place.hosts, deadline, together.one_done)
                    together.begun()

                if may_smear and (accepting := self._smears(route, batches[0][0])) is not None:
                    or_else, hosts = partial(_or_answer, write, on_result), batches[0][0].hosts
                    accepting.accept(route.table.id, _only(rows), deadline, on_result, or_else, hosts=hosts)
                else:
                    write()

            def begin_by(route: TableRoute) -> None:
                if options.config > route.config:
                    words = "the request goes by a newer map than this node, which takes no write by an older one"
                    raise NotReady(words, {BEHIND: "map", "config": route.config})
                self._compactor.begin(token, deadline, go_on, on_result)

            self._routing.once_known(table, options.config, until, begin_by, on_result)

        return Later(begin)

    def _begin(self, batch: _PartitionWrite, hosts: tuple[bytes, ...], deadline: float, on_done: OnAnswered) -> None:
        head: list[Value] = [batch.table, batch.partition]
        if batch.is_accepted:
            flat: list[Value] = [part for write in batch.writes for part in (write.key, write.value, write.time)]
            method, params = "table_accepted", [*head, flat]
        else:
            flat = [part for write in batch.writes for part in (write.key, write.value)]
            method, params = "table_write", [*head, batch.level, flat]
        self._forwarding.begin(
            ForwardRequest(
                what=f"partition {batch.partition}",
                nodes=hosts,
                renewed=lambda: self._routing.route_of(batch.table).place(batch.writes[0].key).hosts,
                here=partial(self._write_here, batch, deadline),
                method=method,
                params=params,
                size_bytes=batch.size_bytes,
                deadline=deadline,
                on_done=on_done,
                wanted=batch.wanted,
                is_write=True,
            )
        )

    def _smears(self, route: TableRoute, place: PartitionRoute) -> SmearBuffer | None:
        """Return the smear buffer for puts into a partition; None: write them at once."""
        time_key = route.table.time_key
        if time_key is None or not route.table.smears or not time_key.is_short(place.first, place.end):
            return None
        replicas = self._replication().replicas
        is_host = replicas.me in place.hosts or any(assignment.node == replicas.me for assignment in place.moving)
        is_off = replicas.skew.refusal() is not None  # The clock is too far off to timestamp the put.
        return None if is_host or is_off else self._accepting()

    def forward(self, table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded) -> None:
        """Forward smeared puts of one table to hosts, which write them under the time of their acceptance."""
        try:
            route, deadline = self._routing.route_of(table), self._replication().now() + FORWARD_S
        except GossipKVError as error:
            on_forwarded(puts, error)
            return
        for place, group in _parts(route, puts):
            batch = _PartitionWrite(table, place.partition, MAJORITY, WantedClock({}, 0.0))
            for put in group:
                batch.add(RecordWrite(put.key, put.value, time=put.time))

            def done(
                _result: Value, error: GossipKVError | None, _node: bytes, group: Sequence[SmearedPut] = group
            ) -> None:
                on_forwarded(group, error)

            self._begin(batch, place.hosts, deadline, done)

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def write(self, arguments: Arguments) -> Later:
        """`table_write [table id, partition, level, [key, value or nil, ...], deadline, seen, wait_ms]`.

        The deadline is a hybrid time by this node's clock: nothing is written after it. The answer is the token body of
        the write.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        level, flat = arguments.text("level"), arguments.rows("rows", 2 * MAX_ROWS)
        deadline = arguments.whole("deadline", MAX_ID)
        wanted = wanted_of(arguments, self._replication().now())
        batch = _PartitionWrite(table, partition, level, wanted)
        for key, value in zip(flat[::2], flat[1::2], strict=False):
            if not isinstance(key, bytes) or not (value is None or isinstance(value, bytes)):
                raise BadRequest("table_write: rows are keys and values, or nil")
            batch.add(RecordWrite(key, value))
        if level not in LEVELS or not flat or len(flat) % 2:
            raise BadRequest("table_write: there are to be a level, and keys with a value or nil each")
        return self._written_here(batch, deadline)

    def write_accepted(self, arguments: Arguments) -> Later:
        """`table_accepted [table id, partition, [key, value, time, ...], deadline, seen, wait_ms]`, at `majority`.

        The hybrid times say when another node accepted the puts. All else is as for `table_write`.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        flat, deadline = arguments.rows("rows", 3 * MAX_ROWS), arguments.whole("deadline", MAX_ID)
        batch = _PartitionWrite(table, partition, MAJORITY, wanted_of(arguments, self._replication().now()))
        for row in zip(flat[::3], flat[1::3], flat[2::3], strict=False):
            match row:
                case [bytes(key), bytes(value), int(time)] if 0 < time <= MAX_ID and time is not True:
                    batch.add(RecordWrite(key, value, time=time))
                case _:
                    raise BadRequest("table_accepted: rows are keys, values, and the times at which they were accepted")
        if not flat or len(flat) % 3:
            raise BadRequest("table_accepted: there are to be keys, with a value and a time each")
        return self._written_here(batch, deadline)

    # -- here --------------------------------------------------------------------------------------------------------

    def _written_here(self, batch: _PartitionWrite, deadline: int) -> Later:
        def begin(on_result: OnResult) -> None:
            replication = self._replication()
            until = replication.now() + replication.replicas.skew.left_s(deadline)
            self._write_here(batch, until, answering(on_result))

        return Later(begin)

    def _write_here(self, batch: _PartitionWrite, deadline: float, on_answer: OnAnswer) -> None:
        """Write to the local replicas once they are ready. Raises GossipKVError: nothing was applied."""
        replicas = [*self._replicas_of(batch)]
        if not all(replica.originates for replica in replicas):
            raise NotServed("the partition leaves this node: others take its writes", {"partition": batch.partition})
        wanted = batch.wanted._replace(until=min(batch.wanted.until, deadline))
        self._ready.begin(replicas, wanted, partial(self._originate, batch, deadline, on_answer), on_answer)

    def _replicas_of(self, batch: _PartitionWrite) -> dict[Replica, list[RecordWrite]]:
        """Return the local replicas of a batch's keys: several, if the sender has not heard of a split of their range.

        Raises:
            NotServed: this node lacks one of them.
        """
        replicas = self._replication().replicas
        found: dict[Replica, list[RecordWrite]] = {}
        for write in batch.writes:
            replica = next((candidate for candidate in found if candidate.bounds.has(write.key)), None)
            replica = replica or held(replicas, batch.table, batch.partition, write.key)
            found.setdefault(replica, []).append(write)
        return found

    def _originate(self, batch: _PartitionWrite, deadline: float, on_answer: OnAnswer) -> None:
        """Write to the local replicas, as the origin. Raises GossipKVError: nothing was applied."""
        replication = self._replication()
        check_left(deadline - replication.now())
        replicas, level = replication.replicas, batch.level
        by_replica = self._replicas_of(batch)
        for replica in by_replica:
            _check_originates(replicas, replica)
            _check_level(replicas, replica, level)

        def late() -> None:
            words = f"the write was applied, and did not reach the level {level} in time: it may become visible"
            on_answer(None, Unknown(words, {"level": level, "partition": batch.partition}))

        waiter = replication.waiting.begin(deadline, batch.size_bytes, late)
        try:
            written, lost_to = self._written(batch, by_replica)
            counters = replicas.originate(written) if written else {}
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

        seen = TableSeen(max(replica.config for replica in by_replica), clock.of(counters.items()))

        def reached() -> None:
            if waiter.on_late is not None:
                replication.waiting.end(waiter)
                on_answer(self._compactor.to_node({batch.table: seen}), None)

        self._note(batch.table, batch.writes)
        for replica, writes in by_replica.items():
            replica.requests += len(writes)
        awaited = [(replica, counters[replica.assignment], replica.assignment) for replica in written]
        awaited += [
            (replica, clock.counter(replica.appended, origin), origin)
            for replica, origins in lost_to.items()
            for origin in origins
        ]
        _once_all_reached(replicas, level, awaited, reached)
        for replica in lost_to:
            replicas.acks[replica].look()  # The level may have been reached long before.

    def _written(
        self, batch: _PartitionWrite, writes: Mapping[Replica, list[RecordWrite]]
    ) -> tuple[dict[Replica, list[RecordWrite]], dict[Replica, set[int]]]:
        """Return the writes for each replica; and the origins whose records win over smeared puts."""
        if not batch.is_accepted:
            return {replica: self._depending(batch, replica, group) for replica, group in writes.items()}, {}
        replication = self._replication()
        now_ms, most_ahead_ms = replication.now_ms(), replication.replicas.skew.most_ms
        sifted = {
            replica: sift(replica, puts, replication.get, now_ms, most_ahead_ms) for replica, puts in writes.items()
        }
        written = {replica: puts for replica, (puts, _) in sifted.items() if puts}
        return written, {replica: origins for replica, (_, origins) in sifted.items() if origins}

    def _depending(self, batch: _PartitionWrite, replica: Replica, writes: list[RecordWrite]) -> list[RecordWrite]:
        """Add the session's token to the writes, as their dependencies.

        Entries of the replica's own present assignments are omitted: the order of its log implies them.
        """
        token = batch.wanted.token
        if not token:
            return writes
        needed = only(token, lambda table, origin, _: table != batch.table or origin not in replica.assigned)
        body = self._compactor.kept(needed)
        return [write._replace(dependencies=body) for write in writes]


def _once_all_reached(
    replicas: ReplicaSet, level: str, awaited: Sequence[tuple[Replica, int, int]], reached: Callable[[], object]
) -> None:
    """Call `reached` once every replica has the level for its origin's writes up to a counter."""
    left = len(awaited)

    def replica_reached() -> None:
        nonlocal left
        left -= 1
        if not left:
            reached()

    for replica, counter, origin in awaited:
        replicas.acks[replica].wait(level, counter, replica_reached, origin=origin)


def may_wait(given: OptionArguments) -> bool:
    """Return True if the options allow a smeared put: they have neither a token, even an empty one, nor a level."""
    is_told = given.text("level") is not None or given.blob("token") is not None
    return given.flag_or_nil("smear") is not False and not is_told


def _check_times(route: TableRoute, rows: Mapping[bytes, bytes | None]) -> None:
    """Raise BadRequest if the table has a time key and a put key has no time."""
    time_key = route.table.time_key
    if time_key is not None:
        for key, value in rows.items():
            if value is not None and (fault := time_key.fault_of(key)):
                words = f"{fault}; {shown(key)} has {len(key)}"
                raise BadRequest(words, {"time_key": [*time_key], "size": len(key)})


def _or_answer(do: Callable[[], object], on_result: OnResult) -> None:
    """Call `do` after its request has begun: errors go to `on_result`."""
    try:
        do()
    except GossipKVError as error:
        on_result(error)


def _only(rows: Mapping[bytes, bytes | None]) -> tuple[bytes, bytes]:
    ((key, value),) = rows.items()
    assert value is not None, "a delete is not smeared"
    return key, value


def _parts(route: TableRoute, puts: Iterable[SmearedPut]) -> Iterator[tuple[PartitionRoute, Sequence[SmearedPut]]]:
    """Split puts by partition, into parts of about BATCH_BYTES."""
    begun: dict[int, tuple[PartitionRoute, list[SmearedPut]]] = {}
    sizes = Counter[int]()
    for put in puts:
        place = route.place(put.key)
        begun.setdefault(place.partition, (place, []))[1].append(put)
        sizes[place.partition] += put.size_bytes
        if sizes[place.partition] >= BATCH_BYTES:
            del sizes[place.partition]
            yield begun.pop(place.partition)
    yield from begun.values()


@final
@dataclass(slots=True)
class _PartitionWrite:
    """A batch of writes to one partition."""

    table: bytes
    partition: int
    level: str
    wanted: WantedClock
    writes: list[RecordWrite] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def is_accepted(self) -> bool:
        """True if these are smeared puts, which keep the time of their acceptance."""
        return bool(self.writes[0].time)

    def add(self, write: RecordWrite) -> None:
        self.writes.append(write)
        self.size_bytes += len(write.key) + len(write.value or b"") + size(self.wanted.token)


@final
class _GroupedWrite:
    """The batches of one request, answered once."""

    def __init__(self, batches: int, write: Callable[[Token], bytes], on_result: OnResult) -> None:
        """`write` merges a token into that of the request, and encodes the result."""
        self._write = write
        self._seen: list[Token] = []
        self._left = batches + 1
        self._batches = batches
        self._on_result = on_result
        self._errors: list[GossipKVError] = []

    def one_done(self, result: Value, error: GossipKVError | None, node: bytes) -> None:
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
        """Count the end of a batch, or of starting them; after the last one, answer."""
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
    route: TableRoute, level: str, rows: Mapping[bytes, bytes | None], wanted: WantedClock
) -> Iterator[tuple[PartitionRoute, _PartitionWrite]]:
    """Split rows by partition, into batches of about BATCH_BYTES."""
    begun: dict[int, tuple[PartitionRoute, _PartitionWrite]] = {}
    for key, value in rows.items():
        place = route.place(key)
        _, batch = begun.setdefault(
            place.partition, (place, _PartitionWrite(route.table.id, place.partition, level, wanted))
        )
        batch.add(RecordWrite(key, value))
        if batch.size_bytes >= BATCH_BYTES:
            yield begun.pop(place.partition)
    yield from begun.values()


def _check_originates(replicas: ReplicaSet, replica: Replica) -> None:
    """Raise Unavailable if the replica may never originate, or NotReady if it may not yet."""
    if not replicas.may_originate(replica):
        if (why := replicas.refusal(replica)) is not None:
            raise Unavailable(why)
        raise NotReady("it has just begun and asks others what they have of its records, or ends a load")


def _check_level(replicas: ReplicaSet, replica: Replica, level: str) -> None:
    """Raise Unavailable if a write cannot reach the level, or NotReady if only clocks of linked nodes are missing."""
    levels = replicas.acks[replica]
    needed = slots_needed(level, levels.slots)
    if needed > 1 and (there := levels.confirming(replicas.confirms)) < needed:
        words = f"{level} needs {needed} slots of the partition, and {there} can confirm"
        details = {"partition": replica.identity.partition, "connected": there, "needed": needed}
        linked = {node for node, peer in replicas.peers.items() if peer.link or peer.restart_at is not None}
        is_soon = levels.confirming(lambda node: node in linked and replicas.is_up(node)) >= needed
        raise (NotReady if is_soon else Unavailable)(words, {**details})
