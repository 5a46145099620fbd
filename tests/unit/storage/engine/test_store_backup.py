"""A backup is the whole store at one moment, or none; a restored store is a whole new store, or none."""

from __future__ import annotations

import copy
import errno
import os
import random
from collections import Counter

import pytest

from gossipkv.errors import Corrupt, StorageError
from gossipkv.storage.engine.backup import back_up, restore
from gossipkv.storage.engine.manifest import read_manifest
from tests.conformance.store import FIRST, Witness, drawn
from tests.oracle.store import NEW_SPACE, VALUE
from tests.unit.storage.engine.crashing import Crashes, Watched, survivor
from tests.unit.storage.engine.damage import contents
from tests.unit.storage.engine.places import DIRECTORY, TINY, SimulatedPlace
from tests.world.faulty_files import Action, Fault, FaultyFiles

BACKUP, RESTORED = DIRECTORY.with_name("backup"), DIRECTORY.with_name("restored")
STRIDE = max(1, int(os.environ.get("CRASH_STRIDE", "25")) // 12)


def lived(batches: int = 90) -> Witness:
    """Return the witness of an open store with runs, a log, and a life that was cut off."""
    witness = Witness(SimulatedPlace())
    chance = random.Random(29)
    witness.reserve()
    witness.write((NEW_SPACE, FIRST, b"", b""))
    for number in range(batches):
        witness.append(drawn(witness, chance, 1_000))
        if number % 3:
            witness.commit()
        if number % 4 == 0:
            witness.store.maintain()
        if number == batches // 2:
            witness.crash("kill", 0)
    witness.commit()
    assert list(witness.store.engine.manifest.run_files)
    return witness


def taken(witness: Witness, files=None):
    """Back up the open store, as its owner does."""
    engine = witness.store.engine
    engine.upkeep.hold()
    try:
        return back_up(files or witness.place.files, engine.directory, engine.manifest, engine.log(), BACKUP)
    finally:
        engine.upkeep.release()


def put_back(files, seed: int = 3):
    return restore(files, BACKUP, RESTORED, random.Random(seed), segment_bytes=TINY.segment_bytes)


def restored(witness: Witness, disk) -> Witness:
    """Return the witness of the restored store, opened."""
    other = survivor(witness, disk, 5_000)
    other.place.directory = RESTORED
    other.seen = set()  # Those of another store.
    other.open()
    return other


def test_a_backup_while_it_runs():
    """The backup has the records synced before it, and no later ones; the store goes on."""
    witness = lived()
    told = taken(witness)
    assert told.linked_bytes > 0
    assert told.copied_bytes > 0
    assert told.position == witness.history.batches[-1].position
    then = survivor(witness, witness.place.files, 0)
    for number in range(40):
        witness.write((VALUE, FIRST, b"later %d" % number, bytes(2_000)))
        witness.store.maintain()
    old = read_manifest(witness.place.files, BACKUP)
    new = put_back(witness.place.files)
    assert new.store != old.store, "two stores have one id"
    assert new.life == 1
    other = restored(then, witness.place.files)
    other.write((VALUE, FIRST, b"it", b"goes on"))
    for _ in range(3):
        other.store.maintain()
    other.look()
    other.close()
    witness.look()
    witness.crash("lose_power", 1)
    witness.close()


def test_files_that_cannot_have_two_names_are_copied():
    """Links fail as on another file system."""
    witness = lived()
    faulty = FaultyFiles(witness.place.files, Fault(0, Action.FAIL, kinds={"link"}, error=errno.EXDEV, lasting=True))
    told = taken(witness, faulty)
    assert told.linked_bytes == 0
    put_back(FaultyFiles(witness.place.files, Fault(0, Action.FAIL, {"link"}, errno.EXDEV, lasting=True)))
    restored(witness, witness.place.files).close()


def test_a_directory_that_is_there_already():
    witness = lived()
    taken(witness)
    before = contents(witness.place.files, str(BACKUP))
    with pytest.raises(StorageError, match="not empty"):
        taken(witness)
    put_back(witness.place.files)
    with pytest.raises(StorageError, match="not empty"):
        put_back(witness.place.files)
    assert contents(witness.place.files, str(BACKUP)) == before
    restored(witness, witness.place.files).close()


def crashed(disk, how: str, number: int):
    if how == "lose_power":
        return disk.power_loss(number)
    disk.close_all()
    return disk


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_a_crash_at_every_moment_of_putting_back(how):
    """The restored directory opens with every record and its own id, or does not open."""
    witness, outcomes, done = lived(), Counter(), []
    taken(witness)
    witness.close()

    def judge(crashes, fork):
        disk = crashed(fork(), how, crashes.number)
        try:
            manifest = read_manifest(disk, RESTORED)
        except (FileNotFoundError, Corrupt) as refusal:
            assert isinstance(refusal, FileNotFoundError)
            assert not done, "a store that was told of is gone"
            outcomes["none"] += 1
        else:
            assert manifest.store != witness_store, "two stores have one id"
            restored(witness, disk).close()
            outcomes["whole"] += 1

    witness_store = read_manifest(witness.place.files, BACKUP).store
    crashes = Crashes(judge, STRIDE)
    crashes.witness = witness
    put_back(Watched(witness.place.files, crashes))
    done.append("told")
    for _ in range(8):
        crashes.number += 1
        judge(crashes, lambda: copy.deepcopy(witness.place.files))
    assert min(outcomes["none"], outcomes["whole"]) > 0
