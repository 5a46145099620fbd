"""A machine's disk keeps all it promised, loses only what it may, and counts only real losses."""

from __future__ import annotations

from collections import Counter

import pytest

from gossipkv.address import Address
from gossipkv.errors import GossipKVError
from gossipkv.storage.slots import SLOT_BYTES, SLOTS
from tests.world.disk import Disk
from tests.world.faulty_files import Crash
from tests.world.streams import Streams

SEEDS = range(300)
NODE = "/data/NODE"
PEERS = [Address("10.0.0.1", 4000), Address("10.0.0.2", 4000)]


def fresh(seed):
    """Return a disk, its fault counters, and a function that starts on it."""
    streams, struck = Streams(seed), Counter()
    disk = Disk("m", streams, struck)
    return disk, struck, lambda: begun(disk, "m", streams["start"], least_epoch=100)


def begun(disk, name, chance, *, least_epoch):
    """Return the record of a start, once its epoch is kept on the disk."""
    record, _ = disk.next_life(name, chance, least_epoch=least_epoch)
    disk.keep(record)
    return record


def damage(disk):
    """Damage one byte of the identity in both slots."""
    files = disk._files
    descriptor = files.open(NODE)
    for slot in range(SLOTS):
        files.pwrite(descriptor, b"!", slot * SLOT_BYTES + 30)
    files.sync(descriptor)
    files.close(descriptor)


def content(disk):
    return disk._files.pread(disk._files.open(NODE), 10_000, 0)


def test_what_was_written_stays_without_the_power():
    disk, struck, start = fresh(1)
    record = start()
    for turn in range(1, 50):
        disk.remember(PEERS[: 1 + turn % 2])
        disk.lose_power()
        again = start()
        assert (again.uuid, again.epoch) == (record.uuid, 100 + turn)
        assert disk.peers() == PEERS[: 1 + turn % 2]
    assert struck == {}


def struck_write(seed):
    """Crash around a write; return NODE's content before, at and after the loss, the counters and the start."""
    disk, struck, start = fresh(seed)
    record = start()
    files, at_loss = disk._files, []
    real = files.power_loss

    def power_loss(drawn):
        at_loss.append(content(disk))
        return real(drawn)

    files.power_loss = power_loss
    before = content(disk)
    disk.crash_soon(power=True)
    with pytest.raises(Crash):
        disk.keep(record._replace(epoch=150))
    assert struck["crash_at_sync"] == struck["power_at_sync"] == 1
    return before, at_loss[0], content(disk), struck, start


def test_a_crash_may_take_the_power():
    """A start finds the old or the new record; a visible record that is lost counts as forgotten."""
    ways = Counter()
    for seed in SEEDS:
        before, at_loss, after, struck, start = struck_write(seed)
        is_forgotten = after != at_loss
        assert struck["disk_forgot"] == is_forgotten
        epoch = start().epoch
        assert epoch in {101, 151}
        if after == before:
            assert epoch == 101
        if before[SLOT_BYTES:] != after[SLOT_BYTES:]:
            assert epoch == 151, "the second slot was begun before the first was safe"
        ways[epoch, is_forgotten] += 1
    assert ways.keys() == {(101, True), (151, False), (151, True)}


def test_a_torn_write():
    """Only a write that reached the disk in part counts as torn; a start succeeds nevertheless."""
    torn = 0
    for seed in SEEDS:
        before, at_loss, after, struck, start = struck_write(seed)
        first_slot = at_loss[:SLOT_BYTES] + before[SLOT_BYTES:]
        assert struck["write_torn"] == (after not in {before, at_loss, first_slot})
        torn += struck["write_torn"]
        assert start().epoch in {101, 151}
    assert 0 < torn < len(SEEDS)


def test_power_has_a_stream_of_its_own():
    """A power loss does not change later random draws for the disk."""
    after = []
    for power in (False, True):
        streams = Streams(5)
        disk = Disk("m", streams, Counter())
        disk.crash_soon(power=power)
        disk.lose_power()
        after.append(streams["disk/m"].random())
    assert after[0] == after[1]


def test_damage_is_noticed():
    disk, _, start = fresh(1)
    start()
    damage(disk)
    with pytest.raises(GossipKVError, match=NODE):
        start()


def test_a_copy():
    disk, _, start = fresh(1)
    record = start()
    disk.remember(PEERS)
    copy, _, start_copy = fresh(2)
    copy.copy_from(disk)
    again = start_copy()
    assert (again.uuid, again.epoch) == (record.uuid, record.epoch + 1)
    assert copy.peers() == PEERS
    assert copy.number == 1
    assert disk.number == 0
