"""A crash at every moment at which a store changes its disk: batches are whole or absent, and none that was synced is.

`CRASH_STRIDE` says at how many moments: 1 at each; else at every so many-th, and at the first of each sort.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.conformance.store import Witness
from tests.unit.storage.engine.crashing import (
    AFTER,
    BEFORE,
    JUDGES,
    WITHIN,
    Crashes,
    Moment,
    after_a_power_loss,
    live,
)
from tests.unit.storage.engine.places import SimulatedPlace

STRIDE = int(os.environ.get("CRASH_STRIDE", "25"))
MOST_PENDING = 12
LIVES = 10

LOG, RUN, MANIFEST = "/store/log/N.log", "/store/runs/N-N.gkv", "/store/MANIFEST"
# What a store does to its disk, and so where it may be struck.  Of what an opening does as well:
IN_RECOVERY = {
    "create": {"/store/LOCK", f"{MANIFEST}.tmp", LOG},
    "allocate": {LOG},
    "pwrite": {LOG, f"{MANIFEST}.tmp"},
    "sync": {LOG, f"{MANIFEST}.tmp"},
    "rename": {MANIFEST},
    "unlink": {LOG},
    "sync_directory": {"/store", "/store/log"},
}
IN_LIFE = {
    "make_directory": {"/store", "/store/log", "/store/runs"},
    "create": {f"{RUN}.tmp"},
    "pwrite": {f"{RUN}.tmp"},
    "sync": {f"{RUN}.tmp"},
    "rename": {RUN, LOG},  # A segment that is used again; a file of a run that is whole.
    "unlink": {RUN},
    "sync_directory": {"/", "/store/runs"},
}


def moments(*tables: dict[str, set[str]]) -> set[Moment]:
    """Return before, within (what can be cut short) and after each."""
    return {
        Moment(kind, role, when)
        for table in tables
        for kind, roles in table.items()
        for role in roles
        for when in ((BEFORE, WITHIN, AFTER) if kind in {"pwrite", "allocate"} else (BEFORE, AFTER))
    }


def watched(crashes: Crashes, seed: int, batches: int, most_bytes: int = 1_000) -> Crashes:
    """Live under the eyes of `crashes`."""
    witness = Witness(SimulatedPlace(), open_now=False)
    crashes.watch(witness)
    live(witness, seed, batches, most_bytes)
    return crashes


@pytest.mark.parametrize("judge", JUDGES)
def test_a_crash_at_every_moment(judge):
    """Of all that a store does, its openings among it: nothing is lost that was synced, nothing is there in part."""
    crashes = watched(Crashes(judge, STRIDE), seed=17, batches=160)
    assert crashes.tried.keys() == crashes.seen.keys()
    assert crashes.seen.keys() >= moments(IN_RECOVERY, IN_LIFE)
    assert STRIDE > 1 or crashes.tried == crashes.seen


def test_a_crash_at_every_moment_of_recovery():
    """After a crash the store is opened, and crashes again at each moment of that; then it is opened in peace."""
    tried: Counter[Moment] = Counter()

    def judge(crashes, fork):
        disk = fork()
        disk.close_all()
        again = Crashes(JUDGES[crashes.number % 3], max(1, STRIDE // 2), crashes.number * 1_000)
        again.watch(crashes.survivor(disk))
        again.witness.open()
        tried.update(again.tried)

    crashes = watched(Crashes(judge, 8 * STRIDE), seed=18, batches=110)
    assert crashes.tried.keys() == crashes.seen.keys()
    assert tried.keys() >= moments(IN_RECOVERY)


def test_every_state_that_a_power_loss_may_leave():
    """Where few changes are not synced, twelve at most: each combination of them."""
    most, seen, states = Counter(), Counter(), Counter()

    def judge(crashes, fork):
        disk = fork()
        pending = disk.pending
        if pending <= MOST_PENDING and most[pending] < 4_096 * 2 // STRIDE:
            seen[pending] += 1
            for left in disk.power_loss_states():
                states[pending] += 1
                most[pending] += 1
                crashes.survivor(left).open()

    watched(Crashes(judge, max(1, STRIDE // 8)), seed=19, batches=60, most_bytes=300)
    assert {0, 1, 2, 3} < seen.keys()
    assert max(seen) >= MOST_PENDING - 2, seen
    assert all(states[pending] > seen[pending] for pending in seen if pending), states


def test_a_thousand_losses_of_power():
    """In ten long lives, at moments that are drawn: what was synced is there, and more or less of the rest."""
    kept: Counter[str] = Counter()

    def judge(crashes, fork):
        witness = crashes.survivor(fork().power_loss(crashes.number))
        waiting = len(witness.history.batches) - witness.history.synced
        found = witness.open()
        kept["none" if not found else "all" if found == waiting else "some"] += waiting > 0
        kept["losses"] += 1

    for life in range(LIVES):
        watched(Crashes(judge, 15, life * 10_000), seed=100 + life, batches=120)
    assert kept["losses"] > 1_000
    assert min(kept[what] for what in ("none", "some", "all")) > 0, kept


def test_crashes_while_it_is_made():
    """At each moment of the first opening the process ends, and at each moment of the second one the machine."""
    tried = 0

    def judge(crashes, fork):
        nonlocal tried
        disk = fork()
        disk.close_all()
        again = Crashes(after_a_power_loss, 1, crashes.number * 1_000)
        again.watch(crashes.survivor(disk))
        again.witness.open()
        tried += again.tried.total()

    crashes = Crashes(judge, 1)
    witness = Witness(SimulatedPlace(), open_now=False)
    crashes.watch(witness)
    witness.open()
    assert tried > 500
