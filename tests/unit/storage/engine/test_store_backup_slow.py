"""Tests that cost seconds; `test_store_backup.py` has the others."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from gossipkv.errors import Corrupt, StorageError
from tests.unit.storage.engine.crashing import Crashes, Watched, after_a_kill, after_a_power_loss
from tests.unit.storage.engine.test_store_backup import STRIDE, crashed, lived, put_back, restored, taken


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_a_crash_at_every_moment_of_a_backup(how):
    """The store is unchanged; the backup is whole or refused, and whole once it was reported."""
    witness, outcomes, done = lived(), Counter(), []

    def judge(crashes, fork):
        (after_a_kill if how == "kill" else after_a_power_loss)(crashes, fork)
        disk = crashed(fork(), how, crashes.number)
        try:
            put_back(disk)
        except (StorageError, Corrupt) as refusal:
            assert "no backup" in str(refusal), refusal
            assert not done, "a backup that was told of is gone"
            outcomes["none"] += 1
        else:
            restored(witness, disk).close()
            outcomes["whole"] += 1

    crashes = Crashes(judge, STRIDE)
    crashes.witness = witness
    taken(witness, Watched(witness.place.files, crashes))
    done.append("told")
    for _ in range(8):
        crashes.number += 1
        judge(crashes, lambda: copy.deepcopy(witness.place.files))
    assert {kind for kind, *_ in crashes.tried} >= {"create", "pwrite", "sync", "link", "rename", "sync_directory"}
    assert min(outcomes["none"], outcomes["whole"]) > 0
    witness.close()
