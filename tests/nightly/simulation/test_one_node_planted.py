"""Defects planted in a whole node that serves datasets: some seed finds each."""

from __future__ import annotations

import pytest
import trio

from gossipkv.dataset.local.store import VersionStore
from gossipkv.dataset.scrub.scrub import Scrub
from tests.simulation.one_node import CONFIG
from tests.simulation.test_whole_nodes_datasets import upgrades
from tests.simulation.test_whole_nodes_datasets_slow import SCRUBBED, rots
from tests.world.nodes.whole_cluster import Violation, simulate


def test_a_node_that_forgets_what_it_has_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With some seeds the readers see the node step back after a restart."""
    monkeypatch.setattr(VersionStore, "set_active", lambda *_: None)
    monkeypatch.setattr(VersionStore, "_move", lambda self, source, target: self.files.rename(source, target))

    def twenty() -> None:
        for seed in range(20):
            simulate(upgrades, seed, machines=1, config=CONFIG)

    with pytest.raises(Violation, match="and then"):
        twenty()


def test_a_node_that_does_not_read_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mapped file is intact, so only the scrub ever reads the disk."""

    async def rest(_scrub: Scrub) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Scrub, "_read_back_in_turn", rest)
    with pytest.raises(AssertionError, match="does not hold"):
        simulate(rots, 0, machines=1, config=SCRUBBED)
