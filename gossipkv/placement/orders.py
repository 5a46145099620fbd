"""The orders to hold a database on a version that a node knows: to the whole cluster, and to this node alone.

An order is given at any node (`hold`, `release`), which writes it down and says it beside what else it says of the
database.  Whoever hears of a later one than it knows writes that down, obeys it and says it too.  So an order outlives
the node that it was given at, and reaches nodes that come later.  Orders that are given at two nodes at the same time
are told apart by their stamps: one counts everywhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_STAMP: Final = 1 << 62  # No clock comes near it.
MAX_AHEAD_MS: Final = 600_000  # No order from further ahead is obeyed: nobody could give one after it.


class Order(NamedTuple):
    """An operator's word on which version a database is held; of two the later one counts."""

    stamp: int  # Milliseconds since 1970, and more than of any that was known where it was given.
    version: str | None  # None: it is released.

    def is_after(self, other: Order | None) -> bool:
        """Return True if this one counts beside the other."""
        return other is None or (self.stamp, self.version or "") > (other.stamp, other.version or "")


class Orders(NamedTuple):
    """The latest orders."""

    cluster: Order | None = None  # To all nodes.
    here: Order | None = None  # To this node alone; counts while it is later.

    @property
    def newest(self) -> Order | None:
        """The order that this node obeys."""
        return self.here if self.here is not None and self.here.is_after(self.cluster) else self.cluster

    def heard(self, order: Order, *, wall_ms: int) -> Orders:
        """Return the orders once another node has said its latest one, which counts unless it is from far ahead."""
        counts = order.stamp <= wall_ms + MAX_AHEAD_MS and order.is_after(self.cluster)
        return self._replace(cluster=order) if counts else self

    def given(self, version: str | None, *, here: bool, wall_ms: int) -> Orders:
        """Return the orders once an operator has given one; a release of this node alone has it follow the others."""
        latest = max((each.stamp for each in self if each is not None), default=0)
        order = Order(min(max(wall_ms, latest + 1), MAX_STAMP), version)  # Others read none beyond.
        if here:
            return self._replace(here=None if version is None else order)
        return Orders(order)
