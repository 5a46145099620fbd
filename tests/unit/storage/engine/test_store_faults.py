"""A disk that fails, is full, or has no descriptor to give, at any operation: the store says so; nothing is lost."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections import Counter

import pytest

from gossipkv.errors import GossipKVError, Overloaded, StorageError
from tests.conformance.store import FIRST, Witness, begun, drawn, filled, scanned
from tests.oracle.store import NEW_SPACE, VALUE
from tests.unit.storage.engine.places import TINY, SimulatedPlace
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

STRIDE = max(1, int(os.environ.get("CRASH_STRIDE", "25")) // 8)
KINDS = CHANGING | {"open", "pread", "map", "size", "stat", "list_directory", "free_bytes", "lock"}


def life(witness: Witness, outcomes: Counter[str]) -> None:
    """Open, write, merge, close; what fails is told, and what was told to be done is done."""
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
    """Whatever fails, once: the store refuses or goes on, a write that failed ends it, and what it took is there."""
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


def says_why(witness: Witness) -> None:
    """A store whose life has ended takes nothing more and says why; what it shows is what was synced."""
    store, batch = witness.store, filled(witness.place.batch(), [(VALUE, FIRST, b"late", b"1")])
    if FIRST in (synced := witness.history.states[witness.history.synced]):
        shown = None
        with contextlib.suppress(StorageError):
            shown = dict(scanned(store, FIRST))
        assert shown == synced[FIRST]
    for call in (
        lambda: store.read_log({FIRST}, 0),
        lambda: store.append(batch),
        lambda: store.write(batch),
        store.commit,
        store.reserve_space,
    ):
        said = None
        try:
            call()
        except StorageError as error:
            said = error.message
        assert said is not None, "a store whose life has ended answers"
        assert "closed" in said


@pytest.mark.parametrize("kind", ["pwrite", "sync"])
def test_nothing_is_tried_again_after_a_failure(kind):
    """A write or a sync of the log that failed is the last operation on it: a second sync would prove nothing."""
    disk = SimulatedFiles()
    faulty = FaultyFiles(disk)
    witness = begun(SimulatedPlace(files=faulty))
    witness.write((VALUE, FIRST, b"a", b"1"))
    faulty.strike(Fault(0, Action.FAIL, kinds={kind}))
    witness.append([(VALUE, FIRST, b"a", b"2")])
    before = Counter(faulty.counts) + Counter({"pwrite": 1, "sync": kind == "sync"})
    said = None
    try:
        witness.store.commit()
    except StorageError as error:
        said = error.message
    assert said is not None, "what was not written is acknowledged"
    assert os.strerror(errno.EIO) in said
    says_why(witness)
    witness.store.close()
    assert faulty.counts["sync"] == before["sync"]
    assert faulty.counts["pwrite"] == before["pwrite"]
    disk.close_all()
    witness.place.files = disk
    witness.open()
    assert witness.store.get(FIRST, b"a") in (b"1", b"2")
    witness.close()


def test_a_full_disk_ends_writes_and_not_reads():
    """What cannot be taken is refused with the reason; what is there is read; room that comes back is used."""
    disk = SimulatedFiles(capacity_bytes=12 * TINY.segment_bytes)
    witness = begun(SimulatedPlace(files=disk))
    chance, reasons = random.Random(4), Counter()
    for number in itertools.count():
        try:
            witness.append([(VALUE, FIRST, b"%d" % number, chance.randbytes(1_500))])
        except Overloaded as refusal:
            reasons[refusal.details["reason"]] += 1
            if not witness.store.maintain() and reasons.total() > 20:
                break
            continue
        witness.commit()
        witness.store.maintain()
        assert number < 1_000, "a disk holds what it has no room for"
    witness.look()
    assert any("free" in reason for reason in reasons), reasons
    disk.capacity_bytes *= 4
    for number in range(20):
        witness.store.maintain()
        witness.write((VALUE, FIRST, b"again %d" % number, b"1"))
    witness.look()
    witness.close()
