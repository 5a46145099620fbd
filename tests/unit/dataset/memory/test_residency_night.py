"""Two nodes that share a machine's memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.dataset.memory.residency import (
    Level,
    Mapped,
    Residency,
)
from tests.unit.dataset.memory.test_residency import LOOK_MS


@settings(max_examples=10)
@given(st.integers(0, 1 << 32), st.integers(41, 60))
def test_two_nodes_of_one_machine_come_to_rest(seed, share):
    """Only one of them fits beside the other: after a day at most one is resident, and stays so."""
    chance = random.Random(seed)
    nodes = [Residency("auto", random.Random(chance.random())) for _ in range(2)]
    taken, changes_ms = [0, 0], []
    for now_ms in range(0, 24 * 3_600_000, LOOK_MS):
        for mine, node in enumerate(nodes):
            room = 75 - taken[1 - mine]
            if node.decide(Mapped(share, share, 0), room, now_ms=now_ms + 1_000 * mine):
                changes_ms.append(now_ms)
            # Reading in takes memory gradually; paging frees it at once.
            taken[mine] = min(share, taken[mine] + 5) if node.level is Level.ALL else 0
    assert max(changes_ms) < 12 * 3_600_000
    assert sorted(node.level for node in nodes) == [Level.NONE, Level.ALL]
