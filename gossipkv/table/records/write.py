"""Writes to tables: one replica of each partition originates them (`origin`), and answers at the requested level.

`put_many` and `delete_many` are split by partition, and into batches that are small against a log segment and a message
between nodes. Each batch is a write of its own, so a request that failed may be applied in part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

from gossipkv.errors import BadRequest, GossipKVError, NotReady, TooLarge, Unknown
from gossipkv.replication.replica.acks import LEVELS, MAJORITY
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.settings.tables import MAX_EXPIRES_MS, MAX_TTL_MS, MIN_EXPIRES_MS
from gossipkv.table.records.forward import LOOK_S, NodeRequest, RecordRequest
from gossipkv.table.records.origin import PartitionWrite
from gossipkv.table.records.request import DEFAULTS, ClientRequest, record_options
from gossipkv.table.session.readiness import BEHIND, WantedClock, wanted_of
from gossipkv.table.session.token import NOTHING
from gossipkv.wire.key_text import shown
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.table.controllers.smear_buffer import OnForwarded, SmearBuffer
    from gossipkv.table.controllers.smear_schedule import SmearedPut
    from gossipkv.table.records.forward import HostRequest, RecordServices
    from gossipkv.table.records.request import RecordOptions
    from gossipkv.table.records.router import PartitionRoute
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Raw

    Rows = Mapping[bytes, bytes | None]  # Values by key; None: the key is deleted.

T = TypeVar("T")

MAX_ROWS: Final = 1 << 16
PUT_OPTIONS: Final = ("level", "smear", "ttl_ms", "expires_at")
MAX_ID: Final = (1 << 64) - 1
FORWARD_S: Final = 5.0  # Timeout for hosts to take smeared puts; then the puts are forwarded again.


@final
class TableWrites:
    """The methods that write, for clients and for other nodes."""

    def __init__(self, services: RecordServices) -> None:
        self._services = services

    # -- for clients -------------------------------------------------------------------------------------------------

    def put(self, arguments: Arguments) -> Later:
        """`put [table, key, value, {options}]`: the token, or `{"accepted": true}` for a smeared put."""
        table, key = arguments.text("table"), arguments.key("key", self._services.most_key)
        value = self._value(arguments.blob("value"))
        options = record_options(arguments, *PUT_OPTIONS)
        return Later(WriteRequest(self._services, table, {key: value}, options, may_smear=may_wait(options)).begin)

    def delete(self, arguments: Arguments) -> Later:
        """`delete [table, key, {options}]`: the token."""
        table, key = arguments.text("table"), arguments.key("key", self._services.most_key)
        return Later(
            WriteRequest(self._services, table, {key: None}, record_options(arguments, "level", "smear")).begin
        )

    def put_many(self, arguments: Arguments) -> Later:
        """`put_many [table, [[key, value], ...], {options}]`: the token; the last row of a key counts.

        A row may have its own `expires_at` behind the value.
        """
        table, rows, most_key = arguments.text("table"), dict[bytes, bytes | None](), self._services.most_key
        expiries: dict[bytes, int] = {}
        for number, row in enumerate(arguments.rows("rows", MAX_ROWS)):
            match row:
                case [bytes(key), bytes(value), *own] if len(key) <= most_key and len(own) <= 1:
                    rows[key] = self._value(value)
                    expiries.pop(key, None)
                    if own:
                        expiries[key] = _checked_expiry(own[0], f"put_many: expires_at of row {number}")
                case _:
                    words = f"put_many: row {number} must be a key of at most {most_key} bytes, and a value"
                    raise BadRequest(words)
        request = WriteRequest(self._services, table, rows, record_options(arguments, *PUT_OPTIONS))
        request.expiries = expiries
        return Later(request.begin)

    def delete_many(self, arguments: Arguments) -> Later:
        """`delete_many [table, [key, ...], {options}]`: the token."""
        table, keys = arguments.text("table"), arguments.keys("keys", self._services.most_key, MAX_ROWS)
        rows = dict[bytes, bytes | None].fromkeys(keys)
        return Later(WriteRequest(self._services, table, rows, record_options(arguments, "level", "smear")).begin)

    def _value(self, value: bytes) -> bytes:
        limit = self._services.most_value
        if len(value) > limit:
            raise TooLarge(
                f"the value has {len(value)} bytes; the limit is {limit}", {"limit": limit, "size": len(value)}
            )
        return value

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def write(self, arguments: Arguments) -> Later:
        """`table_write [table id, partition, level, rows, deadline, seen, wait_ms]`; rows: packed `[key, value, ...]`.

        A value is nil of a deleted key, and `[value, expiry]` of a record that expires (`RecordWrite` has its form).
        The deadline is a hybrid time by this node's clock: nothing is written after it. The answer is the token body of
        the write.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        level, flat = arguments.text("level"), arguments.message_rows("rows", 2)
        request, batch = self._from_node(arguments, table, partition, level)
        for key, value in zip(flat[::2], flat[1::2], strict=False):
            if not isinstance(key, bytes):
                raise BadRequest("table_write: rows must be keys, each with a value or nil")
            data, expiry = value_from(arguments, value)
            batch.add(RecordWrite(key, data, expiry=expiry))
        if level not in LEVELS:
            raise BadRequest(f"table_write: a level is required, one of {', '.join(LEVELS)}")
        return Later(request.begin)

    def write_accepted(self, arguments: Arguments) -> Later:
        """`table_accepted [table id, partition, rows, deadline, seen, wait_ms]`, at `majority`.

        The rows are packed, `[key, value, time, ...]`. The hybrid times say when another node accepted the puts. All
        else is as for `table_write`.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        flat = arguments.message_rows("rows", 3)
        request, batch = self._from_node(arguments, table, partition, MAJORITY)
        for row in zip(flat[::3], flat[1::3], flat[2::3], strict=False):
            match row:
                case [bytes(key), value, int(time)] if value is not None and 0 < time <= MAX_ID and time is not True:
                    data, expiry = value_from(arguments, value)
                    batch.add(RecordWrite(key, data, time=time, expiry=expiry))
                case _:
                    raise BadRequest("table_accepted: rows must be keys, each with a value and its time of acceptance")
        return Later(request.begin)

    def _from_node(
        self, arguments: Arguments, table: bytes, partition: int, level: str
    ) -> tuple[NodeRequest[Token], PartitionWrite]:
        request: NodeRequest[Token] = NodeRequest(self._services, table)
        deadline = arguments.whole("deadline", MAX_ID)
        request.wanted = wanted_of(arguments, request.deadline)
        request.deadline += request.replication.replicas.skew.left_s(deadline)
        request.part = batch = PartitionWrite(request, partition, level)
        return request, batch

    def forward(self, table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded) -> None:
        """Forward smeared puts of one table to hosts, which write them under the time of their acceptance."""
        try:
            ForwardedPuts(self._services, table, puts, on_forwarded).begin()
        except GossipKVError as error:
            on_forwarded(puts, error)


@final
class ForwardedPuts(RecordRequest["Token"]):
    """Smeared puts of a table on their way to hosts."""

    def __init__(
        self, services: RecordServices, table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded
    ) -> None:
        """Divide the puts into batches. Raises GossipKVError: the table is not known now."""
        self.services, self.replication, self.table = services, services.service.replicating(), table
        now = self.replication.now()
        self.deadline, self.looks_at, self.local = now + FORWARD_S, now + LOOK_S, False
        self.wanted = WantedClock(NOTHING, 0.0)
        self._on_forwarded = on_forwarded
        self._of_batch: dict[HostRequest[Token], list[SmearedPut]] = {}
        route, begun = services.routing.route_of(table), dict[int, PartitionWrite]()
        for put in puts:
            write = RecordWrite(put.key, put.value, time=put.time, expiry=put.expires_ms)
            batch = added(write, self, MAJORITY, route.place(put.key), begun)
            self._of_batch.setdefault(batch, []).append(put)

    def begin(self) -> None:
        """Forward the batches."""
        self.begin_parts([*self._of_batch])

    def part_done(self, part: HostRequest[Token], result: Token | GossipKVError) -> None:
        """Tell the buffer of a batch's result."""
        self._on_forwarded(self._of_batch[part], result if isinstance(result, GossipKVError) else None)


def added(
    write: RecordWrite,
    request: RecordRequest[Token],
    level: str,
    place: PartitionRoute,
    begun: dict[int, PartitionWrite],
) -> PartitionWrite:
    """Add a write to the begun batch of its partition, or to another one if it does not fit; return the batch."""
    batch = begun.get(place.partition)
    if batch is None or not batch.has_room(write):
        batch = begun[place.partition] = PartitionWrite(request, place.partition, level, place.hosts)
    batch.add(write)
    return batch


class ClientWrite(ClientRequest[T]):
    """A client's write, and its level."""

    def __init__(self, services: RecordServices, name: str, options: RecordOptions) -> None:
        """Take the arguments. Raises BadRequest: the level or the token is malformed."""
        level = (options is not DEFAULTS and options.given.text("level")) or MAJORITY
        if level not in LEVELS:
            raise BadRequest(f"the level must be one of {', '.join(LEVELS)}, not {level[:80]}", {"option": "level"})
        super().__init__(services, name, options)
        self.level = level

    def _check_map(self) -> None:
        if self.options.config > self.route.config:
            words = "the request uses a newer map than this node has; the node takes no write by an older map"
            raise NotReady(words, {BEHIND: "map", "config": self.route.config})


@final
class WriteRequest(ClientWrite["Token"]):
    """A client's put, delete, put_many or delete_many.

    plan       divide the rows into batches, one for each partition or more; or accept a smeared put
    part_done  gather the results of the batches; after the last one, answer
    """

    def __init__(
        self, services: RecordServices, name: str, rows: Rows, options: RecordOptions, *, may_smear: bool = False
    ) -> None:
        """Take the arguments. Raises BadRequest: the level, the token or the expiry is malformed."""
        super().__init__(services, name, options)
        self._rows, self._may_smear = rows, may_smear
        self._asked_expiry = None if options is DEFAULTS else expiry_of(options)  # None: by the table's default.
        self._expiry = 0
        self.expiries: Mapping[bytes, int] = {}  # By key, where a row has its own.
        self._batches = self._unanswered = 0
        self._seen: list[Token] = []
        self._errors: list[GossipKVError] = []

    def _plan(self) -> None:
        """Raises BadRequest, StaleConfig; and TimedOut, Overloaded for a smeared put."""
        self.table = self.route.table.id
        self._expiry = -self.route.table.ttl_ms if self._asked_expiry is None else self._asked_expiry
        if self.route.table.time_key is not None:
            self._check_times()
            if self._may_smear and self._is_smeared():
                return
        self._write_at_once()

    def _write_at_once(self) -> None:
        route, begun, batches = self.route, dict[int, PartitionWrite](), dict[PartitionWrite, None]()
        for key, value in self._rows.items():
            place = route.place(key)
            if self.options.config:
                route.check(self.options.config, (place,))
            write = RecordWrite(key, value, expiry=self.expiries.get(key, self._expiry))
            batches[added(write, self, self.level, place, begun)] = None
        self._batches = self._unanswered = len(batches)
        if batches:
            self.begin_parts([*batches])
        else:
            self._answer()

    def _check_times(self) -> None:
        """Raise BadRequest if a put key has no time, where the table has a time key."""
        time_key = self.route.table.time_key
        assert time_key is not None
        for key, value in self._rows.items():
            if value is not None and (fault := time_key.fault_of(key)):
                words = f"{fault}; {shown(key)} has {len(key)} bytes"
                raise BadRequest(words, {"time_key": [*time_key], "size": len(key)})

    def _is_smeared(self) -> bool:
        """Let the smear buffer take the put if it is to be smeared; return True if it does. Raises as `accept`."""
        ((key, value),) = self._rows.items()
        assert value is not None, "a delete is not smeared"
        place = self.route.place(key)
        self.route.check(self.options.config, (place,))
        buffer = self._smear_buffer(place)
        if buffer is None:
            return False
        or_else = partial(self._attempt, self._write_at_once)
        row, hosts = (key, value, self._expiry), place.hosts
        buffer.accept(self.table, row, self.deadline, self.complete, or_else, hosts=hosts)
        return True

    def _smear_buffer(self, place: PartitionRoute) -> SmearBuffer | None:
        """Return the smear buffer for puts into a partition; None: write them at once."""
        time_key = self.route.table.time_key
        if time_key is None or not self.route.table.smears or not time_key.is_short(place.first, place.end):
            return None
        replicas = self.replication.replicas
        is_host = replicas.me in place.hosts or any(assignment.node == replicas.me for assignment in place.moving)
        is_off = replicas.skew.refusal() is not None  # The clock is too far off to timestamp the put.
        return None if is_host or is_off else self.services.service.smear_buffer

    def part_done(self, part: HostRequest[Token], result: Token | GossipKVError) -> None:
        """Take the result of a batch; after the last one, answer."""
        del part
        if isinstance(result, GossipKVError):
            self._errors.append(result)
        else:
            self._seen.append(result)
        self._unanswered -= 1
        if not self._unanswered:
            self._answer()

    def _answer(self) -> None:
        errors = self._errors
        if not errors:
            self.complete(self.services.tokens.write(self.wanted.token, *self._seen))
            return
        unknown = next((error for error in errors if isinstance(error, Unknown)), None)
        self.services.writes_failed[(unknown or errors[0]).code] += 1
        if self._batches == 1 or (unknown is None and not self._seen):
            self.complete(errors[0])
        else:
            worst, done = unknown or errors[0], len(self._seen)
            words = f"{done} of {self._batches} parts are written, the others may be: {worst.message}"
            self.complete(Unknown(words, worst.details))


def may_wait(options: RecordOptions) -> bool:
    """Return True if the options allow a smeared put: they have neither a token, even an empty one, nor a level."""
    if options is DEFAULTS:
        return True
    given = options.given
    is_told = given.text("level") is not None or given.blob("token") is not None
    return given.flag_or_nil("smear") is not False and not is_told


def expiry_of(options: RecordOptions) -> int | None:
    """Return the expiry that a put asks for, as in `RecordWrite`; None: by the table's default. Raises BadRequest."""
    ttl_ms = options.given.number("ttl_ms", most=MAX_TTL_MS)
    at = options.given.number("expires_at", most=MAX_EXPIRES_MS)
    if at is None:
        return None if ttl_ms is None else -ttl_ms
    if ttl_ms is not None:
        words = "a record has one expiry: give either ttl_ms, from now, or expires_at, since 1970"
        raise BadRequest(words, {"option": "expires_at"})
    return _checked_expiry(at, "expires_at")


def _checked_expiry(at: Raw, name: str) -> int:
    """Return an absolute expiry. Raises BadRequest: it is none."""
    if not isinstance(at, int) or not MIN_EXPIRES_MS <= at <= MAX_EXPIRES_MS:
        words = f"{name} must be milliseconds since 1970, after 2001, not {at!r:.80}: seconds are no milliseconds"
        raise BadRequest(words, {"option": "expires_at"})
    return at


def value_from(arguments: Arguments, value: Raw) -> tuple[bytes | None, int]:
    """Read a value and its expiry from another node. Raises BadRequest."""
    match value:
        case None | bytes():
            return value, 0
        case [bytes(data), int(expiry)] if -MAX_TTL_MS <= expiry <= MAX_EXPIRES_MS:
            return data, expiry
    raise BadRequest(f"{arguments.method}: rows must be keys, each with a value: nil, bytes, or [bytes, expiry]")
