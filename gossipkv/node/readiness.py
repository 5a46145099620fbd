"""Readiness: whether a load balancer should send clients to this node.

Other nodes' state does not count: a partition without an owner must not take every node out at once. A node has
*joined* once its list of members has been still, so that it knows what the others have. A node that was told of no
others does not wait. A node that restarts where the others are gone, or where there are no databases yet, becomes
ready as well: after twice the time to converge, it needs only to hear another member or to serve a dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.members import LIVE

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.core import DatasetCluster
    from gossipkv.dataset.library import Library

PATIENCE: Final = 2  # Factor on the time to converge.
TABLES_S: Final = 5.0  # Limit on the wait for replicas of tables; it is reached only if other nodes are gone.
TABLES_LOOK_S: Final = 0.02


@final
class NodeReadiness:
    """The readiness of one node."""

    def __init__(self, datasets: Library, cluster: DatasetCluster, *, settle_ms: int, now_ms: int) -> None:
        """Begin; `settle_ms` is the setting `time_to_converge`."""
        self.draining = False
        self.tables_opened = False  # True once replicas of tables answer, or were waited for long enough.
        self._datasets = datasets
        self._cluster = cluster
        self._joined = False  # Never reset: a node stays ready when others are gone.
        self._patient_until_ms = now_ms + PATIENCE * settle_ms

    def to_map(self, now_ms: int) -> dict[str, bool]:
        """Return the states that `info` tells; a node is ready if it has joined and opened, and is not draining."""
        opened = self._datasets.opened and self.tables_opened
        return {"joined": self.has_joined(now_ms), "opened": opened, "draining": self.draining}

    def has_joined(self, now_ms: int) -> bool:
        """Return True if the list of members has been still since the start."""
        self._joined = self._joined or self._joins(now_ms)
        return self._joined

    def _joins(self, now_ms: int) -> bool:
        membership = self._cluster.membership
        if not membership.expects_others or self._cluster.convergence.has_settled:
            return True
        hears_somebody = any(member.state in LIVE for member in membership.others)
        return now_ms >= self._patient_until_ms and (hears_somebody or self._datasets.serves_any)
