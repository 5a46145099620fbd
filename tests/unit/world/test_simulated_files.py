"""The simulated disk behaves as a real disk, and forgets only what a disk may forget."""

import errno
import os
import tracemalloc

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ, READ_WRITE_NEW
from tests.world.faulty_files import Crash
from tests.world.simulated_files import SECTOR_BYTES, SimulatedFiles
from tests.world.sparse_bytes import BLOCK_BYTES

SEEDS = range(200)


def put(files, path, data, *, sync=True):
    descriptor = files.open(path, READ_WRITE_NEW)
    files.pwrite(descriptor, data, 0)
    if sync:
        files.sync(descriptor)
    files.close(descriptor)


def get(files, path):
    try:
        descriptor = files.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        return files.pread(descriptor, 1 << 20, 0)
    finally:
        files.close(descriptor)


def check_allocation(files, descriptor):
    """Check allocations in the suite's file of ten bytes."""
    files.allocate(descriptor, 4, 16)
    files.allocate(descriptor, 0, 8)
    assert files.pread(descriptor, 100, 0) == b"hello\0\0\0\0!" + bytes(10)
    assert files.size(descriptor) == 20
    for offset, size_bytes in ((-1, 5), (0, 0), (0, -1)):
        with pytest.raises(OSError, match=rf"^\[Errno {errno.EINVAL}\]"):
            files.allocate(descriptor, offset, size_bytes)
    for operation in (lambda: files.pread(descriptor, 1, -1), lambda: files.pwrite(descriptor, b"x", -1)):
        with pytest.raises(OSError, match=rf"^\[Errno {errno.EINVAL}\]"):
            operation()
    files.pwrite(descriptor, b"", 100)
    assert files.size(descriptor) == 20


def check_links(files, root, descriptor):
    """Check links of an open file, which ends with its second name only."""
    files.link(f"{root}/copy", f"{root}/e/link")
    files.unlink(f"{root}/copy")
    files.pwrite(descriptor, b"J", 0)
    assert get(files, f"{root}/e/link").startswith(b"Jello")
    for source, target, number in [
        ("none", "x", errno.ENOENT), ("e/link", "none/x", errno.ENOENT), ("e/link", "a/x", errno.ENOTDIR),
        ("e/link", "a", errno.EEXIST), ("e/link", "e/link", errno.EEXIST), ("e", "x", errno.EPERM),
    ]:  # fmt: skip
        with pytest.raises(OSError, match=rf"^\[Errno {number}\]"):
            files.link(f"{root}/{source}", f"{root}/{target}")
    for source, target, number in [("e", "e/x", errno.EINVAL), ("e/link", "e", errno.ENOTEMPTY)]:
        with pytest.raises(OSError, match=rf"^\[Errno {number}\]"):
            files.rename(f"{root}/{source}", f"{root}/{target}")


def check_files(files, root):
    root = str(root)
    assert files.list_directory(root) == []
    put(files, f"{root}/b", b"hello")
    put(files, f"{root}/a", b"")
    files.make_directory(f"{root}/d")
    entries = [(entry.name, entry.kind) for entry in files.list_directory(root)]
    assert entries == [("a", "file"), ("b", "file"), ("d", "directory")]
    assert files.stat(f"{root}/b").size_bytes == 5
    assert files.resolve(f"{root}/d/../b") == os.path.realpath(f"{root}/b")
    for operation, number in [
        (lambda: files.open(f"{root}/none"), errno.ENOENT),
        (lambda: files.open(f"{root}/b", READ_WRITE_NEW), errno.EEXIST),
        (lambda: files.open(f"{root}/d", os.O_WRONLY), errno.EISDIR),
        (lambda: files.stat(f"{root}/b/x"), errno.ENOTDIR),
        (lambda: files.stat(f"{root}/none"), errno.ENOENT),
        (lambda: files.resolve(f"{root}/none"), errno.ENOENT),
        (lambda: files.make_directory(f"{root}/d"), errno.EEXIST),
        (lambda: files.unlink(f"{root}/none"), errno.ENOENT),
        (lambda: files.unlink(f"{root}/d"), errno.EISDIR),
        (lambda: files.list_directory(f"{root}/b"), errno.ENOTDIR),
        (lambda: files.rename(f"{root}/none", f"{root}/x"), errno.ENOENT),
        (lambda: files.rename(f"{root}/b", f"{root}/d"), errno.EISDIR),
        (lambda: files.rename(f"{root}/d", f"{root}/b"), errno.ENOTDIR),
    ]:
        with pytest.raises(OSError, match=rf"^\[Errno {number}\]"):
            operation()
    put(files, f"{root}/d/inner", b"x")
    for refused in (lambda: files.remove_directory(f"{root}/d"), lambda: files.rename(f"{root}/e", f"{root}/d")):
        if not any(entry.name == "e" for entry in files.list_directory(root)):
            files.make_directory(f"{root}/e")
        with pytest.raises(OSError, match="not empty"):
            refused()
    files.rename(f"{root}/d", f"{root}/e")
    files.rename(f"{root}/b", f"{root}/a")
    assert get(files, f"{root}/a") == b"hello"
    assert get(files, f"{root}/e/inner") == b"x"
    descriptor = files.open(f"{root}/a", os.O_RDWR)
    files.pwrite(descriptor, b"!", 9)
    assert files.size(descriptor) == 10
    assert files.pread(descriptor, 100, 3) == b"lo\0\0\0\0!"
    assert bytes(files.map(descriptor, 5)) == b"hello"
    files.start_writeback(descriptor, 0, 10)
    copy = files.open(f"{root}/copy", READ_WRITE_NEW)
    assert [files.copy_range(descriptor, copy, offset, 8) for offset in (0, 8, 10)] == [8, 2, 0]
    assert files.pread(copy, 100, 0) == files.pread(descriptor, 100, 0)
    check_allocation(files, copy)
    check_links(files, root, copy)
    files.unlink(f"{root}/e/link")
    files.close(copy)
    files.lock(descriptor)
    second = files.open(f"{root}/a")
    with pytest.raises(BlockingIOError):
        files.lock(second)
    files.close(descriptor)
    files.lock(second)
    files.close(second)
    before = files.stat(f"{root}/a").modified_ns
    assert before > 0
    assert files.free_bytes(root) > 0
    files.unlink(f"{root}/a")
    files.unlink(f"{root}/e/inner")
    files.remove_directory(f"{root}/e")
    files.sync_directory(root)
    assert files.list_directory(root) == []


def test_the_simulation_conforms():
    check_files(SimulatedFiles(), "/")


def test_the_real_files_conform(tmp_path):
    """The simulation must not simulate anything else."""
    check_files(RealFiles(), tmp_path)


@pytest.mark.parametrize("sector_bytes", [8, SECTOR_BYTES])
def test_torn_files_are_counted(sector_bytes):
    """A file is torn when it mixes old and new pieces that a reader can tell apart."""
    old, new = b"o" * 2000, b"n" * 2000
    seen = set()
    for seed in SEEDS:
        files = SimulatedFiles(sector_bytes=sector_bytes)
        put(files, "/a", old)
        files.sync_directory("/")
        descriptor = files.open("/a", os.O_RDWR)
        files.pwrite(descriptor, new, 0)
        files = files.power_loss(seed)
        content = get(files, "/a")
        assert files.torn == (content not in {old, new})
        seen.add(files.torn)
        pieces = {content[at : at + sector_bytes] for at in range(0, 2000 - 2000 % sector_bytes, sector_bytes)}
        assert pieces <= {old[:sector_bytes], new[:sector_bytes]}
    assert seen == {0, 1}


def test_equal_content_is_not_torn():
    """An overwrite with the same bytes reads the same, whichever pieces landed."""
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"o" * 2000)
        files.sync_directory("/")
        files.pwrite(files.open("/a", os.O_RDWR), b"o" * 2000, 0)
        assert files.power_loss(seed).torn == 0


def test_what_was_synced_with_its_name_stays():
    """`sync` keeps the data, and `sync_directory` the name."""
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"x" * 2000)
        files.sync_directory("/")
        assert get(files.power_loss(seed), "/a") == b"x" * 2000


def test_a_name_that_was_not_synced_is_there_or_not():
    """The file is missing or whole, since its data was synced."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"x" * 2000)
        found.add(get(files.power_loss(seed), "/a"))
    assert found == {None, b"x" * 2000}


def test_un_synced_writes_are_torn_at_sectors_only():
    """Any subset of whole sectors may land."""
    patterns = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"o" * (4 * SECTOR_BYTES))
        files.sync_directory("/")
        descriptor = files.open("/a", os.O_RDWR)
        files.pwrite(descriptor, b"n" * (4 * SECTOR_BYTES - 10), 5)
        after = get(files.power_loss(seed), "/a")
        assert len(after) == 4 * SECTOR_BYTES
        patterns.add(tuple(after[at + 5 : at + SECTOR_BYTES - 5] for at in range(0, len(after), SECTOR_BYTES)))
    assert {len(set(sector)) for pattern in patterns for sector in pattern} == {1}
    assert len(patterns) == 16


def test_un_synced_writes_are_lost_independently():
    """A later write may land without the earlier one."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"")
        files.sync_directory("/")
        descriptor = files.open("/a", os.O_RDWR)
        files.pwrite(descriptor, b"1" * SECTOR_BYTES, 0)
        files.pwrite(descriptor, b"2" * SECTOR_BYTES, SECTOR_BYTES)
        found.add(get(files.power_loss(seed), "/a"))
    first, second, hole = b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES, bytes(SECTOR_BYTES)
    assert found == {b"", first, first + second, hole + second}


def test_a_rename_is_old_or_new_and_never_both_or_neither():
    for target in ("/b", "/d/b"):
        found = set()
        for seed in SEEDS:
            files = SimulatedFiles()
            files.make_directory("/d")
            put(files, "/a", b"x")
            files.sync_directory("/")
            files.rename("/a", target)
            after = files.power_loss(seed)
            found.add((get(after, "/a"), get(after, target)))
        assert found == {(b"x", None), (None, b"x")}


def test_a_rename_over_a_file_keeps_one_of_the_two():
    """The replacement of documents relies on this."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"old")
        put(files, "/b", b"new")
        files.sync_directory("/")
        files.rename("/b", "/a")
        found.add(get(files.power_loss(seed), "/a"))
    assert found == {b"old", b"new"}


def test_a_removal_that_was_not_synced_may_come_back():
    """The file comes back with its durable content."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"x")
        files.sync_directory("/")
        files.unlink("/a")
        found.add(get(files.power_loss(seed), "/a"))
    assert found == {None, b"x"}


def test_what_is_in_a_lost_directory_is_lost():
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        files.make_directory("/d")
        put(files, "/d/a", b"x")
        files.sync_directory("/d")
        after = files.power_loss(seed)
        found.add(tuple(entry.name for entry in after.list_directory("/")))
        assert get(after, "/d/a") in (None, b"x")
    assert found == {(), ("d",)}


def test_the_same_seed_finds_the_same_disk():
    """One integer replays a run."""

    def run(seed):
        files = SimulatedFiles()
        for number in range(20):
            put(files, f"/{number}", bytes([number]) * 3000, sync=number % 2 == 0)
        after = files.power_loss(seed)
        return [(entry.name, get(after, f"/{entry.name}")) for entry in after.list_directory("/")]

    assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]
    assert len({str(run(seed)) for seed in range(20)}) > 10


def test_a_full_disk_takes_a_part_and_refuses():
    """A write ends with ENOSPC in the middle; a removal makes room."""
    files = SimulatedFiles(capacity_bytes=1000)
    put(files, "/a", b"x" * 600)
    with pytest.raises(OSError, match="space"):
        put(files, "/b", b"y" * 600)
    assert get(files, "/b") == b"y" * 400
    assert files.free_bytes("/") == 0
    files.unlink("/a")
    assert files.free_bytes("/") == 600


def test_a_disk_without_power_does_nothing():
    """Code that runs on after the loss must not change the disk."""
    files = SimulatedFiles()
    put(files, "/a", b"x")
    files.power_loss(1)
    with pytest.raises(Crash):
        files.unlink("/a")


def test_an_allocation_is_refused_whole():
    """Writes into an allocation need no more room; a file with two names counts once."""
    files = SimulatedFiles(capacity_bytes=1000)
    descriptor = files.open("/a", READ_WRITE_NEW)
    files.allocate(descriptor, 0, 600)
    files.link("/a", "/b")
    assert files.free_bytes("/") == 400
    with pytest.raises(OSError, match="space"):
        files.allocate(descriptor, 500, 501)
    assert files.size(descriptor) == 600
    put(files, "/c", b"x" * 400)
    files.pwrite(descriptor, b"y" * 600, 0)
    files.close(descriptor)
    files.unlink("/a")
    assert files.free_bytes("/") == 0
    files.unlink("/b")
    assert files.free_bytes("/") == 600


def test_an_allocation_that_was_not_synced_is_there_or_not():
    """The allocation lands as a whole or not at all, independently of the writes into it."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        put(files, "/a", b"x")
        files.sync_directory("/")
        descriptor = files.open("/a", os.O_RDWR)
        files.allocate(descriptor, 0, 8 * SECTOR_BYTES)
        files.pwrite(descriptor, b"y", SECTOR_BYTES)
        found.add(get(files.power_loss(seed), "/a"))
    written = b"x".ljust(SECTOR_BYTES, b"\0") + b"y"
    assert found == {b"x", b"x".ljust(8 * SECTOR_BYTES, b"\0"), written, written.ljust(8 * SECTOR_BYTES, b"\0")}


def test_a_synced_allocation_stays():
    for seed in SEEDS:
        files = SimulatedFiles()
        descriptor = files.open("/a", READ_WRITE_NEW)
        files.allocate(descriptor, 0, 10_000)
        files.sync(descriptor)
        files.sync_directory("/")
        assert get(files.power_loss(seed), "/a") == bytes(10_000)


def test_a_link_is_durable_when_its_directory_is_synced():
    """Both names are one file, and its content is drawn once."""
    for synced, possible in (("/", {True, False}), ("/d", {True})):
        found = set()
        for seed in SEEDS:
            files = SimulatedFiles()
            files.make_directory("/d")
            put(files, "/a", b"o" * 2000)
            files.sync_directory("/")
            files.link("/a", "/d/b")
            files.pwrite(files.open("/a", os.O_RDWR), b"n" * 2000, 0)
            files.sync_directory(synced)
            after = files.power_loss(seed)
            content = get(after, "/a")
            found.add(get(after, "/d/b") is not None)
            if get(after, "/d/b") is not None:
                assert get(after, "/d/b") == content
                after.pwrite(after.open("/d/b", os.O_RDWR), b"one", 0)
                assert get(after, "/a").startswith(b"one")
        assert found == possible


def test_a_log_costs_what_is_written():
    """Few blocks of a long allocated file are kept, and a sync copies none."""
    files = SimulatedFiles()
    descriptor = files.open("/log", READ_WRITE_NEW)
    files.allocate(descriptor, 0, 64 << 20)
    tracemalloc.start()
    try:
        for number in range(500):
            files.pwrite(descriptor, bytes([number % 255 + 1]) * 100, 4096 + 100 * number)
            files.sync(descriptor)
        mapped = files.map(descriptor, 1 << 20)
        assert mapped[4096 : 4096 + 100] == bytes([1]) * 100
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert files.size(descriptor) == 64 << 20
    assert files.pending == 1  # The name alone is not synced.


def test_every_state_is_found_while_few_wait():
    """At most twelve changes may wait; changes in removed directories do not count."""
    files = SimulatedFiles()
    files.make_directory("/gone")
    put(files, "/gone/a", b"x" * 100 * SECTOR_BYTES, sync=False)
    files.unlink("/gone/a")
    files.remove_directory("/gone")
    put(files, "/a", b"")
    files.sync_directory("/")
    assert files.pending == 0
    assert [get(state, "/a") for state in files.power_loss_states()] == [b""]
    descriptor = files.open("/a", os.O_RDWR)
    for number in range(12):
        files.pwrite(descriptor, b"x", number * SECTOR_BYTES)
    assert files.pending == 12
    states = [get(state, "/a") for state in files.power_loss_states()]
    assert len(states) == len(set(states)) == 1 << 12
    files.pwrite(descriptor, b"x", 12 * SECTOR_BYTES)
    with pytest.raises(ValueError, match=r"^13 writes of sectors"):
        files.power_loss_states()
    files.sync(descriptor)
    assert [get(state, "/a") for state in files.power_loss_states()] == [get(files, "/a")]


def test_equal_states_are_one():
    """States with equal content count once, whatever wrote them."""
    files = SimulatedFiles()
    put(files, "/a", b"x" + bytes(2 * BLOCK_BYTES))
    files.sync_directory("/")
    descriptor = files.open("/b", READ_WRITE_NEW)
    files.pwrite(descriptor, b"x", 0)
    files.allocate(descriptor, 0, 1 + 2 * BLOCK_BYTES)
    files.sync(descriptor)
    files.rename("/b", "/a")
    assert files.pending == 2
    shown = [tuple(entry.name for entry in state.list_directory("/")) for state in files.power_loss_states()]
    assert sorted(shown) == [("a",), ("a", "b")]


def test_a_lost_change_takes_later_ones_of_its_names_in_every_state():
    """A file that was renamed twice has one name, whatever was lost."""
    files = SimulatedFiles()
    put(files, "/a", b"x")
    files.sync_directory("/")
    files.rename("/a", "/b")
    files.rename("/b", "/c")
    shown = [[entry.name for entry in state.list_directory("/")] for state in files.power_loss_states()]
    assert sorted(shown) == [["a"], ["b"], ["c"]]


def test_states_are_those_of_the_moment():
    """Later changes of the disk do not alter the states that are still being listed."""
    files = SimulatedFiles()
    put(files, "/a", b"x")
    files.sync_directory("/")
    descriptor = files.open("/a", os.O_RDWR)
    files.pwrite(descriptor, b"y", 0)
    states = files.power_loss_states()
    files.pwrite(descriptor, b"z", 0)
    files.sync(descriptor)
    files.unlink("/a")
    files.sync_directory("/")
    assert {get(state, "/a") for state in states} == {b"x", b"y"}


def test_equal_blocks_in_other_places_are_other_states():
    files = SimulatedFiles()
    put(files, "/a", bytes(2 * BLOCK_BYTES))
    files.sync_directory("/")
    descriptor = files.open("/a", os.O_RDWR)
    for number in range(2):
        files.pwrite(descriptor, b"x", number * BLOCK_BYTES)
    assert len({get(state, "/a") for state in files.power_loss_states()}) == 4


def test_every_operation_of_the_seam_is_simulated():
    """A missing operation would raise AttributeError in a test."""
    operations = {name for name in vars(RealFiles) if not name.startswith("_")}
    assert operations <= set(vars(SimulatedFiles))


def test_a_rename_between_directories_is_durable_when_both_are_synced():
    """One synced directory is not enough."""
    for synced, possible in ((["/d"], 2), (["/"], 2), (["/", "/d"], 1)):
        found = set()
        for seed in SEEDS:
            files = SimulatedFiles()
            files.make_directory("/d")
            put(files, "/a", b"x")
            files.sync_directory("/")
            files.rename("/a", "/d/b")
            for path in synced:
                files.sync_directory(path)
            after = files.power_loss(seed)
            found.add((get(after, "/a"), get(after, "/d/b")))
        assert (None, b"x") in found
        assert len(found) == possible


def test_changes_of_one_name_keep_their_order():
    """A change is lost with the change that it builds on; a later sync does not restore an earlier name."""
    found = set()
    for seed in SEEDS:
        files = SimulatedFiles()
        files.make_directory("/d")
        put(files, "/a", b"x")
        files.sync_directory("/")
        files.rename("/a", "/d/b")
        files.sync_directory("/d")
        files.rename("/d/b", "/d/c")
        files.sync_directory("/d")
        after = files.power_loss(seed)
        found.add((get(after, "/a"), get(after, "/d/b"), get(after, "/d/c")))
    assert found == {(b"x", None, None), (None, b"x", None), (None, None, b"x")}
