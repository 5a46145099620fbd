"""Tests that cost seconds; `test_slots.py` has the others."""

import random

import pytest

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.slots import read_slots, write_slots
from tests.world.faulty_files import Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

PATH = "/NODE"
STEPS = frozenset({"pwrite", "sync"})
CRASHES = (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER)


def write(files, number, path=PATH):
    write_slots(files, path, "NODE", {"number": number})


def read(files, path=PATH):
    return read_slots(files, path, "NODE")["number"]


def crashed(disk, number, step, action, seed):
    """Return the disk after a loss of power at a step of a write."""
    with pytest.raises(Crash):
        write(FaultyFiles(disk, Fault(step, action, kinds=STEPS)), number)
    return disk.power_loss(seed)


def written_once(sector_bytes=512):
    """Return a disk on which the file has number 1."""
    disk = SimulatedFiles(sector_bytes=sector_bytes)
    write(disk, 1)
    disk.sync_directory("/")
    return disk


@pytest.mark.parametrize("sector_bytes", [8, 512, 4096])
@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("action", CRASHES)
def test_the_power_goes_at_any_step(sector_bytes, step, action):
    """The old or the new value counts; once the first slot is synced, the new one."""
    found = {read(crashed(written_once(sector_bytes), 2, step, action, seed)) for seed in range(60)}
    if step > 1 or (step, action) == (1, Action.CRASH_AFTER):
        assert found == {2}
    else:
        assert found <= {1, 2}
        assert 1 in found


@pytest.mark.parametrize("seed", range(60))
def test_one_crash_after_the_other(seed):
    """Each crash strikes the previous one's disk: a slot is always whole, and completed writes are never lost."""
    chance = random.Random(seed)
    disk, least = written_once(8), 1
    for number in range(2, 40):
        if chance.random() < 0.2:
            write(disk, number)
            disk, least = disk.power_loss(chance.getrandbits(32)), number
        else:
            disk = crashed(disk, number, chance.randrange(4), chance.choice(CRASHES), chance.getrandbits(32))
        try:
            found = read(disk)
        except (Corrupt, UnsupportedFormat):
            found = None
        assert found in range(least, number + 1)
