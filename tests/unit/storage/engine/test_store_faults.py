"""After a failure at any operation of the disk the store reports it, and no synced batch is lost."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections import Counter

import pytest

from gossipkv.errors import Overloaded, StorageError
from tests.conformance.store import FIRST, Witness, begun, filled, scanned
from tests.oracle.store import VALUE
from tests.unit.storage.engine.places import TINY, SimulatedPlace
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


def says_why(witness: Witness) -> None:
    """Check that a closed store refuses every call with the reason, and shows the synced records."""
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
    """A second sync after a failed write or sync of the log would prove nothing."""
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
    """Writes are refused with the reason, records stay readable, and new room is used."""
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
