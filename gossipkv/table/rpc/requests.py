"""Arguments of requests about tables and their acceptors, decoded and checked without other knowledge.

A register belongs to a table, or to the catalogue of all tables; a nil name stands for the catalogue.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError
from gossipkv.keyspace.time_key import time_key_of
from gossipkv.placement.partition import MAX_REPLICATION
from gossipkv.register.metadata.operations import MAX_KEY_BYTES, OPERATION_ID_BYTES
from gossipkv.register.metadata.partitions import HASH, MAX_SHARDS, MURMUR3, PARTITIONERS, RANGE
from gossipkv.settings.databases import NAMES, is_table_name
from gossipkv.settings.setting import NAME_FORM, read_isolation_group
from gossipkv.settings.tables import CREATION_MS, DECISION_MS, MAX_DECISION_MS, MAX_TTL_MS, MAX_WEIGHT

if TYPE_CHECKING:
    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.rpc import Value

KINDS: Final = (HASH, RANGE)

DEFAULT_PARTITIONS: Final = 64  # A few shards for each processor of a few nodes, and each shard still large.
MAX_BOUNDS: Final = 10_000  # A request is decoded in one step; ranges are divided further as they grow.
MAX_SURVIVORS: Final = 16  # No register has so many acceptors.
MAX_ROWS: Final = 512  # Partitions in one answer, which is made in one step while other requests wait.
TABLE_DIGITS: Final = re.compile("[0-9a-f]{32}")


class CreateTableArguments(NamedTuple):
    """Arguments of `create_table`."""

    name: str
    kind: str
    partitions: int
    replication: int  # 0: three, or the number of members if fewer.
    bounds: tuple[bytes, ...]  # First keys of a range table's partitions but the first, in order.
    operation: bytes | None  # Operation id of 20 bytes; a repeat with the same id gets the first outcome. None: new.
    timeout_ms: int = CREATION_MS  # Timeout of the whole request.
    partitioner: str = MURMUR3
    time_key: TimeKey | None = None
    smears: bool = False  # True if other nodes may keep its puts, and forward them later.
    ttl_ms: int = 0  # Default lifetime of its records; 0: they never expire.
    retention_ms: int = 0  # Age of times from which whole ranges are retired; 0: they stay.

    def options(self) -> dict[str, Value]:
        """Return the options of a forwarded request."""
        partitions = self.partitions if self.kind == HASH else None
        return {
            "kind": self.kind,
            "partitions": partitions,
            "replication": self.replication or None,
            "bounds": [*self.bounds] if self.kind == RANGE else None,
            **({"partitioner": self.partitioner} if self.partitioner != MURMUR3 else {}),  # Old nodes do not know it.
            **({"time_key": [*self.time_key], "smear": self.smears} if self.time_key is not None else {}),
            **({"ttl_ms": self.ttl_ms} if self.ttl_ms else {}),
            **({"retention_ms": self.retention_ms} if self.retention_ms else {}),
        }


class DropTableArguments(NamedTuple):
    """Arguments of `drop_table`."""

    name: str
    table: bytes | None  # Table id; None for any table of that name.
    operation: bytes | None = None  # Operation id, by which a repeated request recognizes its own first attempt.
    timeout_ms: int = DECISION_MS  # Timeout of the whole request.


class NodeArguments(NamedTuple):
    """Arguments of methods that add, remove, replace or weigh a node of tables."""

    node: str
    instead_of: str | None = None  # The node to be replaced.
    is_gone: bool = False  # True if the removed node is lost for good, with its disk.
    isolation_group: str | None = None  # None: no change, or the node's own setting.
    weight: int | None = None  # None: no change, or the node's own setting.
    timeout_ms: int = DECISION_MS


class ReshardArguments(NamedTuple):
    """Arguments of `reshard`: the number of node groups for a table's shards."""

    table: str
    groups: int  # 0: no groups.
    timeout_ms: int = DECISION_MS


class RangeArguments(NamedTuple):
    """Arguments of `split`, `join`, `leave` and `force_join`."""

    table: str
    key: bytes  # Any key of the range (for `force_join`: or shard); for `split`, the first key of the second child.
    node: str = ""  # The node that joins or leaves the range.
    copy: str | None = None  # Replica for `force_join`; empty: start empty; None: the only replica, if any.
    is_shard: bool = False  # For `force_join`: the key is the number of a hash table's shard, in 4 bytes.
    timeout_ms: int = DECISION_MS


def create_table(arguments: Arguments) -> CreateTableArguments:
    """Read `[name, {kind, partitions, partitioner, replication, bounds, time_key, smear, ttl_ms, …}]`.

    Raises:
        BadRequest: the arguments have another form, or no such table is possible.
    """
    name = table_name(arguments)
    options = arguments.options(
        *("kind", "partitions", "partitioner", "replication", "bounds", "time_key", "smear", "ttl_ms"),
        *("retention_ms", "operation", "timeout_ms"),
    )
    kind, operation = options.text("kind"), _operation(arguments.method, options)
    if kind not in KINDS:
        raise BadRequest(f"{arguments.method}: the kind must be {' or '.join(KINDS)}, not {kind}", {"option": "kind"})
    bounds, partitioner = _bounds(arguments.method, options), options.text("partitioner")
    if partitioner not in {None, *PARTITIONERS} or (partitioner and kind == RANGE):
        words = f"{' or '.join(PARTITIONERS)} of a hash table, not {partitioner}"
        raise BadRequest(f"{arguments.method}: the partitioner must be {words}", {"option": "partitioner"})
    partitions = options.number("partitions", least=1, most=MAX_SHARDS)
    if kind == HASH and bounds:
        raise BadRequest(f"{arguments.method}: a hash table has no bounds", {"option": "bounds"})
    if kind == RANGE and partitions not in {None, len(bounds) + 1}:
        raise BadRequest(
            f"{arguments.method}: {len(bounds)} bounds make {len(bounds) + 1} partitions, not {partitions}",
            {"option": "partitions"},
        )
    time_key, smears = _time_key(arguments.method, options, kind)
    retention_ms = options.number("retention_ms", most=MAX_TTL_MS) or 0
    if retention_ms and time_key is None:
        words = "only a table with a time key has a retention, because ranges are retired by the times of their keys"
        raise BadRequest(f"{arguments.method}: {words}", {"option": "retention_ms"})
    return CreateTableArguments(
        name,
        kind,
        len(bounds) + 1 if kind == RANGE else partitions or DEFAULT_PARTITIONS,
        options.number("replication", least=1, most=MAX_REPLICATION) or 0,
        bounds,
        operation,
        _timeout_ms(options, CREATION_MS),
        partitioner or MURMUR3,
        time_key,
        smears,
        options.number("ttl_ms", most=MAX_TTL_MS) or 0,
        retention_ms,
    )


def drop_table(arguments: Arguments) -> DropTableArguments:
    """Read `[name, {table, operation, timeout_ms}]`.  Raises BadRequest: another form."""
    name = table_name(arguments)
    options = arguments.options("table", "operation", "timeout_ms")
    digits = options.text("table")
    if digits is not None and not TABLE_DIGITS.fullmatch(digits):
        raise BadRequest(f"{arguments.method}: a table's id must be 32 hexadecimal digits, not {digits[:80]!r}")
    table = None if digits is None else bytes.fromhex(digits)
    return DropTableArguments(name, table, _operation(arguments.method, options), _timeout_ms(options))


def table_name(arguments: Arguments) -> str:
    """Read a table name.  Raises BadRequest: no table can have that name."""
    name = arguments.text("table")
    if not is_table_name(name):
        raise BadRequest(f"{arguments.method}: {name!r} cannot be a table's name: {NAMES}")
    return name


def membership(arguments: Arguments) -> tuple[str | None, str]:
    """Read `[table or nil, node]`.  Raises BadRequest: another form."""
    table, node = arguments.text_or_nil("table"), arguments.text("node")
    arguments.end()
    return table, node


def replacement(arguments: Arguments) -> tuple[str | None, str, str]:
    """Read `[table or nil, old node, new node]`.  Raises BadRequest: another form."""
    table, old, new = arguments.text_or_nil("table"), arguments.text("old node"), arguments.text("new node")
    arguments.end()
    return table, old, new


def force(arguments: Arguments) -> tuple[str | None, tuple[str, ...]]:
    """Read `[table or nil, [node, …]]`.

    Raises:
        BadRequest: another form, no node, too many nodes, or a node named twice.
    """
    table, survivors = arguments.text_or_nil("table"), arguments.texts("list of survivors")
    arguments.end()
    if not 1 <= len(survivors) <= MAX_SURVIVORS:
        raise BadRequest(f"{arguments.method}: 1 to {MAX_SURVIVORS} survivors must be named, not {len(survivors)}")
    if len(set(survivors)) < len(survivors):
        raise BadRequest(f"{arguments.method}: a survivor is named twice")
    return table, tuple(survivors)


def add_node(arguments: Arguments) -> NodeArguments:
    """Read `[node, {isolation_group, weight, timeout_ms}]`.  Raises BadRequest: another form."""
    node, options = arguments.text("node"), arguments.options("isolation_group", "weight", "timeout_ms")
    return _newcomer(arguments.method, node, options)


def remove_node(arguments: Arguments) -> NodeArguments:
    """Read `[node, {force, timeout_ms}]`.  Raises BadRequest: another form."""
    node, options = arguments.text("node"), arguments.options("force", "timeout_ms")
    return NodeArguments(node, is_gone=options.flag("force"), timeout_ms=_timeout_ms(options))


def replace_node(arguments: Arguments) -> NodeArguments:
    """Read `[old, new, {force, isolation_group, weight, timeout_ms}]`.  Raises BadRequest: another form."""
    old, new = arguments.text("old node"), arguments.text("new node")
    options = arguments.options("force", "isolation_group", "weight", "timeout_ms")
    return _newcomer(arguments.method, new, options)._replace(instead_of=old, is_gone=options.flag("force"))


def set_weight(arguments: Arguments) -> NodeArguments:
    """Read `[node, weight, {timeout_ms}]`.  Raises BadRequest: another form."""
    node, weight = arguments.text("node"), arguments.whole("weight", MAX_WEIGHT)
    options = arguments.options("timeout_ms")
    if not weight:
        words = f"a weight must be 1 to {MAX_WEIGHT}; to let the node hold nothing, remove the node"
        raise BadRequest(f"{arguments.method}: {words}")
    return NodeArguments(node, weight=weight, timeout_ms=_timeout_ms(options))


def reshard(arguments: Arguments) -> ReshardArguments:
    """Read `[table, groups, {timeout_ms}]`.  Raises BadRequest: another form."""
    table, groups = arguments.text("table"), arguments.whole("groups", MAX_SHARDS)
    return ReshardArguments(table, groups, _timeout_ms(arguments.options("timeout_ms")))


def split(arguments: Arguments) -> RangeArguments:
    """Read `[table, key, {timeout_ms}]`.  Raises BadRequest: another form, or no range can begin at that key."""
    table, key = arguments.text("table"), arguments.blob("key")
    options = arguments.options("timeout_ms")
    if not 1 <= len(key) <= MAX_KEY_BYTES:
        words = f"the first key of a range must have 1 to {MAX_KEY_BYTES} bytes, not {len(key)}"
        raise BadRequest(f"{arguments.method}: {words}")
    return RangeArguments(table, key, timeout_ms=_timeout_ms(options))


def hosting(arguments: Arguments, extra: tuple[str, ...] = ()) -> RangeArguments:
    """Read `[table, key, node, {timeout_ms}]`, and the options `extra`.  Raises BadRequest: another form."""
    table, key, node = arguments.text("table"), arguments.blob("key"), arguments.text("node")
    options = arguments.options(*extra, "timeout_ms")
    return RangeArguments(table, key, node, options.text("copy"), options.flag("shard"), _timeout_ms(options))


def page(arguments: Arguments) -> tuple[str, bytes, int]:
    """Read `[table, {start, limit}]`.  Raises BadRequest: another form."""
    table, options = arguments.text("table"), arguments.options("start", "limit")
    limit = options.number("limit", least=1) or MAX_ROWS
    return table, options.blob("start") or b"", min(limit, MAX_ROWS)


def _time_key(method: str, options: OptionArguments, kind: str) -> tuple[TimeKey | None, bool]:
    """Read the time key of a new table, and its smear flag, which is True by default for a table with a time key."""
    given, smears = options.array("time_key"), options.flag_or_nil("smear")
    if given is None:
        if smears:
            words = "smearing needs a time key"
            raise BadRequest(f"{method}: {words}", {"option": "smear"})
        return None, False
    if kind != RANGE:
        raise BadRequest(f"{method}: only a range table can have a time key", {"option": "time_key"})
    try:
        parts = [part.decode(errors="replace") if isinstance(part, bytes) else part for part in given]
        return time_key_of(parts), smears is not False
    except ProtocolError as error:
        raise BadRequest(f"{method}: {error.message}", {**error.details, "option": "time_key"}) from error


def _operation(method: str, options: OptionArguments) -> bytes | None:
    operation = options.blob("operation")
    if operation is not None and len(operation) != OPERATION_ID_BYTES:
        raise BadRequest(
            f"{method}: the operation must be {OPERATION_ID_BYTES} bytes, not {len(operation)}", {"option": "operation"}
        )
    return operation


def _timeout_ms(options: OptionArguments, default_ms: int = DECISION_MS) -> int:
    return min(options.number("timeout_ms", least=1) or default_ms, MAX_DECISION_MS)


def _newcomer(method: str, node: str, options: OptionArguments) -> NodeArguments:
    group, weight = _isolation_group(method, options), options.number("weight", least=1, most=MAX_WEIGHT)
    return NodeArguments(node, isolation_group=group, weight=weight, timeout_ms=_timeout_ms(options))


def _isolation_group(method: str, options: OptionArguments) -> str | None:
    """Read an isolation group: empty for `none`, None if the option is missing."""
    group = options.text("isolation_group")
    try:
        return None if group is None else read_isolation_group(group)
    except ValueError:
        raise BadRequest(f"{method}: an isolation group's name must be {NAME_FORM}, not {group!r}") from None


def _bounds(method: str, options: OptionArguments) -> tuple[bytes, ...]:
    """Read the first keys of all partitions but the first; they must ascend strictly, and not be empty."""
    bounds = options.keys("bounds", MAX_KEY_BYTES) or []
    if len(bounds) > MAX_BOUNDS:
        words = f"a new table has at most {MAX_BOUNDS:,} bounds, not {len(bounds):,}"
        raise BadRequest(f"{method}: {words}: add more with `gossipkv table split`", {"option": "bounds"})
    if any(low >= high for low, high in pairwise([b"", *bounds])):
        raise BadRequest(f"{method}: the bounds must ascend, and the first must not be empty", {"option": "bounds"})
    return tuple(bounds)
