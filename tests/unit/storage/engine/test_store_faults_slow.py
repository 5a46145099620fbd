"""Tests that cost seconds; `test_store_faults.py` has the others."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter

import pytest

from gossipkv.errors import GossipKVError, Overloaded, StorageError
from tests.conformance.store import FIRST, Witness, drawn
from tests.oracle.store import NEW_SPACE, VALUE
from tests.unit.storage.engine.places import SimulatedPlace
from tests.unit.storage.engine.test_store_faults import says_why
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

STRIDE = max(1, int(os.environ.get("CRASH_STRIDE", "25")) // 8)
KINDS = CHANGING | {"open", "pread", "map", "size", "stat", "list_directory", "free_bytes", "lock"}


def life(witness: Witness, outcomes: Counter[str]) -> None:
    """Open, write, merge and close; failures must raise, and completed calls must have had their effect."""
    chance = random.Random(23)
    witness.open()
    if not witness.history.batches:
        witness.reserve()
        witness.write((NEW_SPACE, FIRST, b"", b""))
    for number in range(60):
        try:
            witness.append(drawn(witness, chance, 900))
        except Overloaded as refusal:
            assert refusal.details["reason"]
            outcomes["refused"] += 1
        else:
            witness.commit()
        if number % 4 == 0:
            witness.store.maintain()
    witness.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
def test_a_failure_at_every_operation(error, record_property):
    """After a single failure the store refuses or goes on, a failed write closes it, and accepted batches stay."""
    calm = FaultyFiles(SimulatedFiles())
    life(Witness(SimulatedPlace(files=calm), open_now=False), Counter())
    total = sum(calm.counts[kind] for kind in KINDS)
    outcomes, struck = Counter(), Counter()
    for at in range(0, total, STRIDE):
        disk = SimulatedFiles()
        faulty = FaultyFiles(disk, Fault(at, Action.FAIL_HALFWAY, kinds=KINDS, error=error))
        place = SimulatedPlace(files=faulty)
        witness = Witness(place, open_now=False)
        try:
            life(witness, outcomes)
            outcomes["goes on"] += 1
        except GossipKVError as refusal:
            outcomes[type(refusal).__name__] += 1
            assert isinstance(refusal, StorageError), refusal
            if witness.store is not None and witness.store.engine.closed is not None:
                outcomes["ended"] += 1
                says_why(witness)
        struck.update(line.split()[0] for line in faulty.struck)
        assert faulty.struck
        faulty.strike()
        disk.close_all()
        place.files = disk
        witness.open()
        witness.write((VALUE, FIRST, b"later", b"on")) if witness.history.shown else None
        witness.crash("lose_power", at)
        witness.close()
    assert outcomes["goes on"]
    assert outcomes["ended"]
    record_property("measured", f"{dict(outcomes)}, of {dict(struck)}")
