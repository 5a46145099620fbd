"""A node's identity survives restarts and never goes back."""

import random

import pytest

from gossipkv.address import Address
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.node import identity
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import NodeRecord, read_node, write_node
from gossipkv.storage.document import encode
from gossipkv.storage.slots import write_slots
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

FILES = RealFiles()
UUID = "0123456789abcdef" * 2
PEERS = [Address("10.0.0.1", 7070), Address("::1", 7071)]


def opened(path, files=FILES, **options):
    """Open the directory, like a start of a node."""
    return DataDirectory.open(path, files, cluster="test", random=random.Random(1), **options)


def test_each_start_is_a_higher_epoch(tmp_path):
    """Epochs start at 1 and are on the disk before they are used."""
    for expected in (1, 2, 3):
        with opened(tmp_path, node=f"name-{expected}") as data:
            assert data.record.epoch == expected
            assert read_node(FILES, tmp_path) == data.record


def test_an_older_copy_put_back_repeats_no_epoch(tmp_path):
    """Each epoch is at least the wall clock in milliseconds, and a clock set back causes no repetition."""
    epochs = []
    for wall_ms in (1000, 2000, 3000):
        with opened(tmp_path, least_epoch=wall_ms) as data:
            epochs.append(data.record.epoch)
        if wall_ms == 1000:
            copy = (tmp_path / "NODE").read_bytes()
    (tmp_path / "NODE").write_bytes(copy)
    for wall_ms in (4000, 500):
        with opened(tmp_path, least_epoch=wall_ms) as data:
            epochs.append(data.record.epoch)
    assert epochs == [1000, 2000, 3000, 4000, 4001]


def test_a_lost_document_is_another_node(tmp_path):
    """The new node starts at epoch 1; other nodes reveal that its name was used before."""
    opened(tmp_path).close()
    opened(tmp_path).close()
    (tmp_path / "NODE").unlink()
    with opened(tmp_path, node="same") as data:
        assert (data.record.node, data.record.epoch) == ("same", 1)


def test_what_is_kept_is_there_at_the_next_start(tmp_path):
    """The cluster id and the place stay; the epoch continues from the stored one."""
    with opened(tmp_path) as data:
        data.keep(epoch=9, cluster_id="ab" * 8)
        data.keep(shard_id=3)
        assert data.record == read_node(FILES, tmp_path)
        kept = data.record
    assert (kept.epoch, kept.cluster_id, kept.shard_id, kept.pinned) == (9, "ab" * 8, 3, False)
    with opened(tmp_path) as data:
        assert data.record == kept._replace(epoch=10)


def test_the_store_and_its_life_survive(tmp_path):
    """Any 64 bits are an id; another store begins at any life."""
    with opened(tmp_path) as data:
        assert (data.record.store, data.record.life) == (0, 0)
        data.keep(store=2**64 - 1, life=1)
        data.keep(life=7)
    with opened(tmp_path) as data:
        assert (data.record.store, data.record.life) == (2**64 - 1, 7)
        data.keep(store=5, life=1)
    with opened(tmp_path) as data:
        assert (data.record.store, data.record.life) == (5, 1)


@pytest.mark.parametrize("back", [
    {"epoch": 1}, {"life": 6}, {"store": 9, "life": 6}, {"store": 2**64}, {"pinned": False}, {"cluster_id": "cd" * 8},
])  # fmt: skip
def test_nothing_goes_back(tmp_path, back):
    """An older epoch or life, or another cluster of a pinned node, is a defect, and nothing is written."""
    with opened(tmp_path, least_epoch=9) as data:
        data.keep(cluster_id="ab" * 8, store=9, life=7, pinned=True)
        before = data.record
        with pytest.raises(AssertionError):
            data.keep(**back)
        assert data.record == before == read_node(FILES, tmp_path)


def test_a_pinned_node_stays_pinned(tmp_path):
    write_node(FILES, tmp_path, NodeRecord("test", UUID, "n", 4, "ab" * 8, pinned=True))
    with opened(tmp_path) as data:
        data.keep(shard_id=2)
    with opened(tmp_path) as data:
        assert data.record.pinned


@pytest.mark.parametrize("body", [
    {"epoch": -1}, {"epoch": "1"}, {"epoch": True}, {"shard_id": None}, {"cluster_id": "xyz"}, {"cluster_id": 1},
    {"cluster_id": "g" * 16}, {"uuid": 1}, {"store": -1}, {"store": 2**64}, {"store": "1"}, {"life": -1},
    {"life": None}, {"drew": "xyz"}, {"drew": None}, {"drew": 1}, {"drew_store": -1}, {"drew_store": 2**64},
])  # fmt: skip
def test_a_wrong_field_is_damage(body, tmp_path):
    """A document with a field that no node writes is reported as damage."""
    whole = {**NodeRecord("test", UUID, "n", 4, "ab" * 8)._asdict(), **body}
    write_slots(FILES, tmp_path / "NODE", "NODE", whole)
    with pytest.raises(Corrupt, match="NODE"):
        opened(tmp_path)


def test_every_field_is_needed(tmp_path):
    whole = NodeRecord("test", UUID, "n", 4, "ab" * 8)._asdict()
    for field in whole:
        write_slots(FILES, tmp_path / "NODE", "NODE", {name: told for name, told in whole.items() if name != field})
        with pytest.raises(Corrupt, match="NODE"):
            opened(tmp_path)


def test_a_disk_that_refuses_is_said(tmp_path):
    """`record` keeps the stored values."""
    files = FaultyFiles(FILES, Fault(10**9, Action.FAIL, kinds=CHANGING))
    with opened(tmp_path, files) as data:
        before = data.record
        files.faults = (Fault(0, Action.FAIL, kinds=CHANGING, lasting=True),)
        with pytest.raises(StorageError, match="NODE: the file cannot be written"):
            data.keep(epoch=9)
        with pytest.raises(StorageError, match=r"PEERS\.tmp: the file cannot be written"):
            data.remember(PEERS)
        assert data.record == before


@pytest.mark.parametrize("seed", range(8))
def test_an_epoch_that_was_told_is_never_had_again(seed):
    """After a power loss at any step the next epoch is higher than all known ones."""
    told = []
    disk = SimulatedFiles()
    for at in range(30):
        files = FaultyFiles(disk, Fault(at, Action.CRASH_AFTER, kinds=CHANGING))
        try:
            data = opened("/data", files)
        except Crash:
            pass
        else:
            told.append(data.record.epoch)
            data.close()
        disk = disk.power_loss(seed * 100 + at)
    assert len(told) > 3
    assert told == sorted(set(told))


def test_peers_are_remembered(tmp_path):
    """The number of peers is limited; both address families work."""
    with opened(tmp_path) as data:
        assert data.peers() == []
        data.remember(PEERS)
        assert data.peers() == PEERS
        data.remember([Address("10.0.0.1", port) for port in range(1, 1000)])
        assert len(data.peers()) == identity.MAX_PEERS


@pytest.mark.parametrize("content", [
    b"", b"junk", encode("PEERS", {}), encode("PEERS", {"peers": 1}), encode("PEERS", {"peers": [1]}),
    encode("PEERS", {"peers": []}, format_number=9), encode("NODE", {}),
])  # fmt: skip
def test_lost_peers_are_harmless(content, tmp_path):
    """A damaged document counts as none and is replaced."""
    with opened(tmp_path) as data:
        (tmp_path / "PEERS").write_bytes(content)
        assert data.peers() == []
        data.remember(PEERS)
        assert data.peers() == PEERS


@pytest.mark.parametrize("content", [None, b"junk", encode("PEERS", {}), encode("BACKUPS", {"carts": "x"})])
def test_times_of_backups_outlive_a_start(content, tmp_path):
    """The last time of each table counts, dropped tables are forgotten, and a damaged document counts as none."""
    with opened(tmp_path) as data:
        data.backed_up(["carts", "old"], 1_000, {"carts", "old", "users"})
        data.backed_up(["users"], 2_000, {"carts", "users"})
    if content is not None:
        (tmp_path / "BACKUPS").write_bytes(content)
    with opened(tmp_path) as data:
        assert data.backups_ms == ({"carts": 1_000, "users": 2_000} if content is None else {})
        data.backed_up(["users"], 3_000, {"users"})
    with opened(tmp_path) as data:
        assert data.backups_ms == {"users": 3_000}


def test_another_cluster_is_refused_before_the_epoch_is_raised(tmp_path):
    """A refused start changes nothing."""
    opened(tmp_path).close()
    before = (tmp_path / "NODE").read_bytes()
    with pytest.raises(UnsupportedFormat, match="belongs to the cluster"):
        DataDirectory.open(tmp_path, FILES, cluster="other", random=random.Random(1))
    assert (tmp_path / "NODE").read_bytes() == before
