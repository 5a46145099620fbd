"""Tables in a node's report, and their holders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.status.reading import list_of, map_of, maps_of, number_of, whole_of
from gossipkv.status.words import plain, size_text
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.wire.rpc import Value

RANGE: Final = "range"
KINDS: Final = ("hash", RANGE)


class TableHolder(NamedTuple):
    """A node that holds partitions of a table."""

    node: str
    state: str
    partitions: int
    lag_records: int  # Records of the asked node that this one lacks.
    lag_s: float
    coming: int = 0  # These partitions move to this node.
    leaving: int = 0  # Partitions whose copy here goes once other nodes have all of it.

    @property
    def moves(self) -> str:
        """Return the moves at this node, in words."""
        told = (self.coming, "coming"), (self.leaving, "leaving")
        return ", ".join(f"{count:,} {words}" for count, words in told if count)

    @property
    def lag(self) -> str:
        """Return the lag of this node, in words."""
        return f"{self.lag_records:,} records, for {self.lag_s:.1f} s" if self.lag_records else ""


class TableStatus(NamedTuple):
    """One table."""

    name: str
    kind: str
    partitions: int
    replication: int
    holders: tuple[TableHolder, ...]


def partition_row(kind: str, told: Mapping[str, Value]) -> tuple[str, ...]:
    """Return an entry of `partitions` as a row: id, bounds of a range or shard number, hosts, size, rows, rate."""
    start, size, rows, rate = (told.get(key) for key in ("start", "bytes", "rows", "rate"))
    first = start if isinstance(start, bytes) else b""
    return (
        plain(told.get("id")),
        *((shown(first), plain(told.get("end"))) if kind == RANGE else (f"{int.from_bytes(first, 'big')}",)),
        " ".join(map(_host, map(map_of, list_of(told.get("hosts"))))),
        size_text(size) if isinstance(size, int) else "-",
        f"{rows:,}" if isinstance(rows, int) else "-",
        f"{rate:,.1f}" if isinstance(rate, (int, float)) else "-",
    )


def _host(host: Mapping[str, Value]) -> str:
    """Return a host, with its state unless it is AVAILABLE."""
    name, state = plain(host.get("node")), plain(host.get("state"))
    return name if state == "AVAILABLE" else f"{name}({state})"


def datasets(told: Mapping[str, Value]) -> dict[str, Value]:
    """Return the entries of databases that are no tables."""
    return {name: entry for name, entry in told.items() if map_of(entry).get("kind") not in KINDS}


def tables(told: Mapping[str, Value]) -> Iterator[TableStatus]:
    """Yield the tables, in order."""
    for name, entry in sorted(maps_of(dict(told)).items()):
        if entry.get("kind") in KINDS:
            holders = tuple(map(_holder, map(map_of, list_of(entry.get("nodes")))))
            partitions, replication = (whole_of(entry.get(what)) or 0 for what in ("partition_count", "replication"))
            yield TableStatus(name, plain(entry["kind"]), partitions, replication, holders)


def _holder(told: dict[str, Value]) -> TableHolder:
    partitions, records = whole_of(told.get("partitions")) or 0, whole_of(told.get("lag_records")) or 0
    coming, leaving = (whole_of(told.get(what)) or 0 for what in ("coming", "leaving"))
    lag_s = number_of(told.get("lag_s")) or 0.0
    return TableHolder(plain(told.get("node")), plain(told.get("state")), partitions, records, lag_s, coming, leaving)
