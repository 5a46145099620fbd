"""Nodes under churn do not take more memory, descriptors, threads and tasks the longer they run.

The test lasts SOAK_SECONDS, and at least a few rounds.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.nightly.soak.soak import SLACK, Soak, grown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
ROUNDS = 6

pytestmark = pytest.mark.timeout(SECONDS + 600)

# The leak happens at each switch.
LEAK = """
from gossipkv.dataset.local.store import VersionStore
kept = []
switch = VersionStore.set_active
def leaking(*arguments):
    kept.append((b"x" * (8 << 20), [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]))
    switch(*arguments)
VersionStore.set_active = leaking
run = node.run
async def growing(*arguments, **options):
    async def follow(nursery):
        while True:
            await trio.sleep(0.02)
            for _ in range(8 * len(kept) + 8 - len(nursery.child_tasks)):
                nursery.start_soon(trio.sleep_forever)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, nursery)
        await run(*arguments, **options)
        nursery.cancel_scope.cancel()
node.run = growing
"""


def test_nothing_grows(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Resources stay flat through switches, kills of another node and changing clients, and all reads are right."""
    began_s = time.monotonic()
    with Soak(tmp_path) as soak:
        try:
            while soak.rounds <= ROUNDS or time.monotonic() - began_s < SECONDS:
                soak.round()
        finally:
            record_property("measured", f"{time.monotonic() - began_s:.0f} s: {soak.told()}")
        assert [grown(looked.series) for looked in soak.looked] == [[], []]


def test_a_leak_is_found(tmp_path: Path) -> None:
    """A leak of memory, descriptors and tasks at each switch is found."""
    with Soak(tmp_path, staying=1, churned=False, changed=LEAK) as soak:
        for _ in range(ROUNDS):
            soak.round()
        (looked,) = soak.looked
    found = {line.partition(":")[0] for line in grown(looked.series)}
    assert found == {"resident_kib", "peak_kib", "descriptors", "tasks"}


def test_what_is_flat() -> None:
    """A growing beginning and bad moments are accepted; a slow rise is found if it lasts."""
    noisy = [number % 3 * 1000 for number in range(300)]
    assert grown({"resident_kib": [*range(0, 100_000, 1000), *[100_000 + more for more in noisy]]}) == []
    assert grown({"descriptors": [10] * 100 + [11, 500, 10] * 100}) == []
    assert grown({"descriptors": [10 + number // 20 for number in range(300)]}) != []
    assert grown({"resident_kib": [50_000 + 100 * number for number in range(300)]}) != []
    assert set(SLACK) == {"resident_kib", "peak_kib", "descriptors", "threads", "tasks"}
