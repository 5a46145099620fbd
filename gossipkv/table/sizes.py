"""How large the partitions of a table are, and how busy, as their hosts say it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from gossipkv.errors import GossipKVError
from gossipkv.replication.messages import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.table.deciding import Deciding
    from gossipkv.wire.rpc import Value

SIZES_S: Final = 1.0  # In which nodes say how much they have.


class Size(NamedTuple):
    """What is said of a partition; None: nobody says it."""

    size_bytes: int | None = None
    rows: int | None = None
    rate: float | None = None  # Requests a second, at all of its hosts.

    def beside(self, other: Size) -> Size:
        """What two hosts say together: the larger copy, and all requests."""
        rates = [each.rate for each in (self, other) if each.rate is not None]
        return Size(
            max(self.size_bytes or 0, other.size_bytes or 0),
            max((each.rows for each in (self, other) if each.rows is not None), default=None),
            sum(rates) if rates else None,
        )


async def sizes(deciding: Deciding, table: bytes, nodes: Iterable[bytes]) -> dict[int, Size]:
    """What these nodes say of their copies of a table, by partition; who does not answer says nothing."""
    found: dict[int, Size] = {}

    async def ask(node: bytes) -> None:
        with contextlib.suppress(GossipKVError):
            if node == deciding.taking_part()[0].me.node:
                told: Value = [[*row] for row in deciding.replicating().sizes(table).items()]
            else:
                told = unpacked(await deciding.asking.ask(node, "table_sizes", [table], SIZES_S))
            for row in told if isinstance(told, list) else ():
                match row:
                    case [int(partition), int() as size_bytes]:  # One of the last release.
                        said = Size(size_bytes)
                    case [int(partition), int() as size_bytes, int() as rows, int() | float() as rate]:
                        said = Size(size_bytes, rows, rate)
                    case _:
                        continue
                found[partition] = said.beside(found.get(partition, Size()))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    return found
