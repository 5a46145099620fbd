"""Whether a balancer should send clients to this node.

It says nothing of others: a partition without an owner must not take every node out at once.  A node has *joined* once
it knows what the others have: its list of members has been still.  Whoever was told of nobody waits for nobody.  One
that restarts where the others are gone, or where there are no databases yet, is not kept out for ever: when it has
had twice the time to converge, it is enough that it hears somebody or serves something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.members import LIVE

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.core import DatasetCluster
    from gossipkv.dataset.library import Library

PATIENCE: Final = 2  # Times to converge.
TABLES_S: Final = 5.0  # For the replicas of tables to answer: it takes longer only where others are gone.
TABLES_LOOK_S: Final = 0.02


@final
class NodeReadiness:
    """One node's."""

    def __init__(self, datasets: Library, cluster: DatasetCluster, *, settle_ms: int, now_ms: int) -> None:
        """`settle_ms`: `time_to_converge`."""
        self.draining = False
        self.tables_opened = False  # Their replicas answer, or were waited for long enough.
        self._datasets = datasets
        self._cluster = cluster
        self._joined = False  # Once it has, it stays so: that others are gone is no reason to be gone as well.
        self._patient_until_ms = now_ms + PATIENCE * settle_ms

    def to_map(self, now_ms: int) -> dict[str, bool]:
        """Return what `info` tells: ready is who has joined and opened, and is not draining."""
        self._joined = self._joined or self._joins(now_ms)
        opened = self._datasets.opened and self.tables_opened
        return {"joined": self._joined, "opened": opened, "draining": self.draining}

    def _joins(self, now_ms: int) -> bool:
        membership = self._cluster.membership
        if not membership.expects_others or self._cluster.convergence.has_settled:
            return True
        hears_somebody = any(member.state in LIVE for member in membership.others)
        return now_ms >= self._patient_until_ms and (hears_somebody or self._datasets.serves_any)
