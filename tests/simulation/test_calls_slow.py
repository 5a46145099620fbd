"""Work over many nodes or partitions stays cheap: ceilings for the Python calls of each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.calls import count_catch_up, count_moves, count_transactions, count_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.calls import Calls

# Over twenty nodes.
VERDICT = {"verdict, the asked node": 1500, "verdict, another node": 1000, "idle second": 730}
TRANSACTIONS = {"transaction, the asked server": 930, "transaction, another server": 710}
# For each record that a node has missed, in a quarter as many partitions: only one of two others feeds the node.
CATCH_UP = {"catch-up, a feeder": 16, "catch-up, another node": 11, "catch-up, the node": 80}
MOVES = {"a move, the busiest node": 2200, "a move, the added node": 2300}


@pytest.mark.parametrize(
    ("count", "ceilings"),
    [
        (count_verdict, VERDICT),
        (count_transactions, TRANSACTIONS),
        (count_catch_up, CATCH_UP),
        (count_moves, MOVES),
    ],
    ids=["verdict", "transactions", "catch-up", "moves"],
)
def test_the_calls(count: Callable[[], dict[str, Calls]], ceilings: dict[str, int]) -> None:
    counted = count()
    for node, ceiling in ceilings.items():
        assert counted[node].total <= ceiling, f"{node}: {counted[node]}"
