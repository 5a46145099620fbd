"""After a crash at every moment of a disk change batches are whole or absent, and synced ones are never absent.

`CRASH_STRIDE` sets the number of moments: 1 tries each; otherwise every so many-th, and the first of each kind.
"""

from __future__ import annotations

import os

import pytest

from tests.conformance.store import Witness
from tests.unit.storage.engine.crashing import (
    AFTER,
    BEFORE,
    JUDGES,
    WITHIN,
    Crashes,
    Moment,
    live,
)
from tests.unit.storage.engine.places import SimulatedPlace

STRIDE = int(os.environ.get("CRASH_STRIDE", "25"))

LOG, RUN, MANIFEST = "/store/log/N.log", "/store/runs/N-N.gkv", "/store/MANIFEST"
# The disk changes of a store, which are the moments of crashes. An opening also makes these:
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
    "rename": {RUN, LOG},  # A recycled segment, or a finished file of a run.
    "unlink": {RUN},
    "sync_directory": {"/", "/store/runs"},
}


def moments(*tables: dict[str, set[str]]) -> set[Moment]:
    """Return the moments before, after and, for operations that can be cut short, within each change."""
    return {
        Moment(kind, role, when)
        for table in tables
        for kind, roles in table.items()
        for role in roles
        for when in ((BEFORE, WITHIN, AFTER) if kind in {"pwrite", "allocate"} else (BEFORE, AFTER))
    }


def watched(crashes: Crashes, seed: int, batches: int, most_bytes: int = 1_000) -> Crashes:
    witness = Witness(SimulatedPlace(), open_now=False)
    crashes.watch(witness)
    live(witness, seed, batches, most_bytes)
    return crashes


@pytest.mark.parametrize("judge", JUDGES)
def test_a_crash_at_every_moment(judge):
    """Crashes strike every operation, also during an opening: no synced batch is lost, and no batch is partial."""
    crashes = watched(Crashes(judge, STRIDE), seed=17, batches=160)
    assert crashes.tried.keys() == crashes.seen.keys()
    assert crashes.seen.keys() >= moments(IN_RECOVERY, IN_LIFE)
    assert STRIDE > 1 or crashes.tried == crashes.seen
