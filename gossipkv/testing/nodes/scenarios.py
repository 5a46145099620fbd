"""What whole nodes go through, by name; each scenario draws its details from the seed, and ends when all is well again.

A scenario that fails raises `Violation`, or an `AssertionError` when something did not come about in time.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gossipkv.testing.nodes.bad_network import partition, storm, tree
from gossipkv.testing.nodes.churn import blackout, crashes, join, leave, read_only, restarts
from gossipkv.testing.nodes.misconfiguration import strangers, twins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gossipkv.testing.nodes.cluster import SimulatedCluster

SCENARIOS: Final[Mapping[str, Callable[[SimulatedCluster], Awaitable[None]]]] = MappingProxyType(
    {
        function.__name__: function
        for function in (join, leave, restarts, blackout, crashes, read_only, partition, storm, tree, twins, strangers)
    }
)
