"""Crashes at every moment of recovery and creation, and a thousand losses of power, lose no synced batch."""

from __future__ import annotations

from collections import Counter

from tests.conformance.store import Witness
from tests.unit.storage.engine.crashing import (
    JUDGES,
    Crashes,
    Moment,
    after_a_power_loss,
)
from tests.unit.storage.engine.places import SimulatedPlace
from tests.unit.storage.engine.test_store_crashes_slow import IN_RECOVERY, STRIDE, moments, watched

MAX_PENDING = 12

LIVES = 10


def test_a_crash_at_every_moment_of_recovery():
    """The opening after a crash crashes again at each moment, and then the store is opened undisturbed."""
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
    """Each combination of unsynced changes is tried where at most twelve are pending."""
    most, seen, states = Counter(), Counter(), Counter()

    def judge(crashes, fork):
        disk = fork()
        pending = disk.pending
        if pending <= MAX_PENDING and most[pending] < 4_096 * 2 // STRIDE:
            seen[pending] += 1
            for left in disk.power_loss_states():
                states[pending] += 1
                most[pending] += 1
                crashes.survivor(left).open()

    watched(Crashes(judge, max(1, STRIDE // 8)), seed=19, batches=60, most_bytes=300)
    assert {0, 1, 2, 3} < seen.keys()
    assert max(seen) >= MAX_PENDING - 2, seen
    assert all(states[pending] > seen[pending] for pending in seen if pending), states


def test_a_thousand_losses_of_power():
    """In ten long lives, at random moments, synced batches stay, with some or none of the rest."""
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
    """The process ends at each moment of the first opening, and the machine at each moment of the second."""
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
