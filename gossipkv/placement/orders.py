"""Orders to pin a database to a version: the latest order to the whole cluster, and to this node alone.

Any node takes an order (`hold`, `release`), writes it down, and publishes it with its statement about the database. A
node that hears of a later order than its own writes that down, obeys and publishes it. So an order outlives the node
that took it, and reaches nodes that come later. Of orders given at two nodes at the same time the stamps decide.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_STAMP: Final = 1 << 62  # No clock comes near this.
# Orders from further in the future are ignored, since no order could follow them. Clocks that begin in 1970 are decades
# off.
MAX_AHEAD_MS: Final = 100 * 365 * 86_400_000


class RollbackOrder(NamedTuple):
    """An operator's order on a database's version; the later of two orders counts."""

    stamp: int  # Milliseconds since 1970, and more than any stamp known to the node that took the order.
    version: str | None  # None releases the database.

    def is_after(self, other: RollbackOrder | None) -> bool:
        """Return True if this order counts beside the other."""
        return other is None or (self.stamp, self.version or "") > (other.stamp, other.version or "")


class Orders(NamedTuple):
    """The latest orders."""

    cluster: RollbackOrder | None = None  # The order to all nodes.
    here: RollbackOrder | None = None  # The order to this node alone, which counts if it is later.

    @property
    def newest(self) -> RollbackOrder | None:
        """The order that this node obeys."""
        return self.here if self.here is not None and self.here.is_after(self.cluster) else self.cluster

    def heard(self, order: RollbackOrder, *, wall_ms: int) -> Orders:
        """Return the orders after another node's order, which counts unless its stamp is far in the future."""
        counts = order.stamp <= wall_ms + MAX_AHEAD_MS and order.is_after(self.cluster)
        return self._replace(cluster=order) if counts else self

    def given(self, version: str | None, *, here: bool, wall_ms: int) -> Orders:
        """Return the orders after an operator's order here; releasing this node alone makes it follow the cluster."""
        latest = max((order.stamp for order in self if order is not None), default=0)
        order = RollbackOrder(min(max(wall_ms, latest + 1), MAX_STAMP), version)  # Other nodes reject higher stamps.
        if here:
            return self._replace(here=None if version is None else order)
        return Orders(order)
