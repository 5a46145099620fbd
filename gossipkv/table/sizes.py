"""How large the partitions of a table are, and how busy, as their hosts say it.

A host looks at each of its copies for that, and people go through a table page by page, and look again: what was said
counts for some seconds.
"""

from __future__ import annotations

import contextlib
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.replication.messages import unpacked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.table.deciding import Deciding
    from gossipkv.wire.rpc import Value

SIZES_S: Final = 1.0  # In which nodes say how much they have.
FRESH_S: Final = 10.0


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


@final
class Sizes:
    """What nodes have said of one table, the last that was asked for."""

    def __init__(self, deciding: Deciding) -> None:
        self._deciding = deciding
        self._turn = trio.Lock()
        self._table = b""
        self._asked: set[bytes] = set()
        self._until = -inf
        self._found: dict[int, Size] = {}

    async def of(self, table: bytes, nodes: Collection[bytes]) -> Mapping[int, Size]:
        """What these nodes say of their copies, by partition; who does not answer says nothing."""
        async with self._turn, trio.open_nursery() as nursery:
            if self._table != table or trio.current_time() >= self._until:
                self._table, self._asked, self._found = table, set(), {}
                self._until = trio.current_time() + FRESH_S
            for node in {*nodes} - self._asked:
                nursery.start_soon(self._ask, table, node, self._found)
            self._asked.update(nodes)
        return self._found

    async def _ask(self, table: bytes, node: bytes, found: dict[int, Size]) -> None:
        deciding = self._deciding
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
