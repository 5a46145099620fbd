"""Decisions about resident memory put into effect in virtual time, on fake and on mapped files."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from gossipkv.dataset.memory.paging import LOOK_S, MIN_PAUSE_S, PIECE_BYTES, OpenVersion, Paging, measure, to_warm
from gossipkv.dataset.memory.residency import Level, Mapped
from gossipkv.environment.memory import Room
from gossipkv.log import Log
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.sorted_file import SortedFile
from tests.world.logs import capture_logs

MIB = 1 << 20
INDEX_PART = 4  # This part of a file is its index.


class File:
    """A sorted file of so many MiB that records its calls."""

    def __init__(self, size_mib, done, *, is_compressed=False):
        self.size_bytes = size_mib * MIB
        self.paged = is_compressed
        self.is_closed = False
        self.pins = 0
        self._done = done  # (file, "paged" | "resident" | "warm", when, first, size)

    @property
    def index_range(self):
        return self.size_bytes - self.size_bytes // INDEX_PART, self.size_bytes // INDEX_PART

    def pin(self):
        if self.is_closed:
            raise ValueError("closed")
        self.pins += 1

    def unpin(self):
        self.pins -= 1

    def set_paged(self, paged):
        assert self.pins
        assert paged != self.paged
        self.paged = paged
        self._done.append((self, "paged" if paged else "resident", trio.current_time(), 0, 0))

    def prewarm(self, first, size):
        assert self.pins
        assert 0 < size <= PIECE_BYTES
        assert first + size <= self.size_bytes
        self._done.append((self, "warm", trio.current_time(), first, size))


class Threads:
    """A fake of worker threads: each call takes so long, and ends even if it is cancelled."""

    def __init__(self):
        self.takes_s = 0.01

    async def run(self, function, *arguments):
        with trio.CancelScope(shield=True):
            await trio.sleep(self.takes_s)
        return function(*arguments)


class Node:
    """Open versions, a memory, and the paging of them."""

    def __init__(self, setting="auto", room_mib=None):
        self.done = []
        self.versions = []
        self.threads = Threads()
        self.reserve = 0
        self.room_mib = room_mib
        self.paging = Paging(
            setting,
            versions=lambda: list(self.versions),
            memory=self,
            reserve=lambda: self.reserve * MIB,
            threads=self.threads,
            chance=random.Random(5),
            log=Log("gossipkv.test"),
        )

    def room(self):
        return None if self.room_mib is None else Room("memory.max of /a", self.room_mib * MIB)

    def open(self, *sizes_mib, compression="none", is_active=True):
        files = [File(size, self.done, is_compressed=compression == "lz4") for size in sizes_mib]
        version = SimpleNamespace(files=[None, *files], manifest=SimpleNamespace(compression=compression))
        self.versions.append(OpenVersion(version, is_active))
        self.paging.versions_changed()
        return files

    def close(self, at):
        for file in self.versions.pop(at).files:
            file.is_closed = True
        self.paging.versions_changed()

    def warmed(self, file):
        """Return the ranges of a file that were read in, in order and joined."""
        joined = []
        for found, what, _, first, size in self.done:
            if found is file and what == "warm":
                if joined and joined[-1][1] == first:
                    joined[-1][1] += size
                else:
                    joined.append([first, first + size])
        return [(first // MIB, end // MIB) for first, end in joined]

    @property
    def resident(self):
        return self.paging.to_map()["resident"]


async def start(node, nursery):
    await nursery.start(node.paging.run)


def opened(*versions):
    return [
        OpenVersion(
            SimpleNamespace(files=[File(size, [])], manifest=SimpleNamespace(compression=compression)), is_active
        )
        for size, compression, is_active in versions
    ]


def test_what_counts():
    """Compressed files count separately; the others also by active versions."""
    versions = opened((5, "none", True), (7, "none", False), (11, "lz4", True), (13, "lz4", False))
    assert measure(versions) == Mapped(5 * MIB, 12 * MIB, 24 * MIB)


@pytest.mark.parametrize(("level", "room_mib", "expected"), [
    (Level.ALL, None, [(1, 0, 8), (0, 0, 12), (2, 12, 16)]),  # The active one first; the index of the compressed one.
    (Level.ACTIVE, None, [(1, 0, 8), (2, 12, 16), (0, 9, 12)]),
    (Level.NONE, None, [(1, 6, 8), (2, 12, 16), (0, 9, 12)]),
    (Level.NONE, 8, [(1, 6, 8), (2, 12, 16)]),
    (Level.NONE, 1, []),
    (Level.ALL, 12, [(1, 0, 8)]),  # A setting may ask for it.
])  # fmt: skip
def test_what_is_read_in_beforehand(level, room_mib, expected):
    """The most important files come first, within the room."""
    versions = opened((12, "none", False), (8, "none", True), (16, "lz4", True))
    room_bytes = None if room_mib is None else room_mib * MIB
    files = [each.files[0] for each in versions]
    found = [(files.index(file), first // MIB, end // MIB) for file, first, end in to_warm(versions, level, room_bytes)]
    assert found == expected


async def test_what_fits_is_read_in_and_left_alone(autojump_clock, nursery):
    """Each file is read once, the active version first, at half the rate of the disk; nothing is advised."""
    node = Node(room_mib=100)
    (old,), (new,), (packed,) = node.open(4, is_active=False), node.open(6), node.open(8, compression="lz4")
    await start(node, nursery)
    await trio.sleep(60)
    assert {what for _, what, *_ in node.done} == {"warm"}
    assert [node.warmed(file) for file in (new, old, packed)] == [[(0, 6)], [(0, 4)], [(6, 8)]]
    assert [found for found, *_ in node.done] == 3 * [new] + 2 * [old] + [packed]
    times = [at for _, _, at, _, _ in node.done]
    assert all(later - sooner == pytest.approx(0.02) for sooner, later in pairwise(times))
    node.threads.takes_s = 0.0
    (more,) = node.open(6)
    await trio.sleep(1)
    assert node.warmed(more) == [(0, 6)]
    assert node.done[-1][2] - node.done[-2][2] == pytest.approx(MIN_PAUSE_S)


async def test_what_does_not_fit_is_paged_before_it_is_served(autojump_clock, nursery):
    """When `run` reports, the files are paged as decided; then their indexes are read in."""
    node = Node(room_mib=10)
    files = node.open(8, 12)
    with capture_logs() as logs:
        await start(node, nursery)
    assert [file.paged for file in files] == [True, True]
    assert [line["event"] for line in logs] == ["residency"]
    assert node.paging.to_map() == {
        "residency": "auto",
        "resident": "none",
        "mapped_bytes": 20 * MIB,
        "active_bytes": 20 * MIB,
        "compressed_bytes": 0,
        "room_bytes": 10 * MIB,
        "limit": "memory.max of /a",
    }
    await trio.sleep(60)
    assert [node.warmed(file) for file in files] == [[(6, 8)], [(9, 12)]]


async def test_memory_that_shrinks_and_grows(autojump_clock, nursery):
    """Files are paged at the next look, and resident again after several looks, with reading in."""
    node = Node(room_mib=100)
    (file,) = node.open(20)
    await start(node, nursery)
    await trio.sleep(10)
    node.room_mib = 19
    await trio.sleep(LOOK_S + 1)
    assert (file.paged, node.resident) == (True, "none")
    node.room_mib = 24  # It would fit, but hardly.
    await trio.sleep(1_000)
    assert file.paged
    node.room_mib = 100
    await trio.sleep(9)
    assert file.paged
    await trio.sleep(20)
    assert (file.paged, node.resident) == (False, "all")
    await trio.sleep(10)
    assert node.warmed(file) == [(0, 20), (15, 20), (0, 20)]
    assert file.pins == 0


async def test_what_the_node_may_yet_take_is_not_room(autojump_clock, nursery):
    """The rest is the room, which is never reported as negative."""
    node = Node(room_mib=30)
    node.reserve = 15
    (file,) = node.open(20)
    await start(node, nursery)
    assert (file.paged, node.paging.to_map()["room_bytes"]) == (True, 15 * MIB)
    node.reserve = 50
    await trio.sleep(LOOK_S + 1)
    assert node.paging.to_map()["room_bytes"] == 0


async def test_a_switch_pages_the_old_version_alone(autojump_clock, nursery):
    """A new version that becomes active at once is never paged."""
    node = Node(room_mib=30)
    (old,) = node.open(20)
    await start(node, nursery)
    await trio.sleep(10)
    (new,) = node.open(20, is_active=False)
    await trio.sleep(0.02)
    node.versions = [OpenVersion(each.version, each.files == [new]) for each in node.versions]
    node.paging.versions_changed()
    await trio.sleep(1)
    assert (old.paged, new.paged, node.resident) == (True, False, "active")
    assert [what for file, what, *_ in node.done if file is new and what != "warm"] == []
    await trio.sleep(10)
    assert node.warmed(new) == [(0, 20)]
    node.close(0)
    await trio.sleep(60)
    assert node.resident == "all"


async def test_nothing_goes_on_after_a_decision_has_changed(autojump_clock, nursery):
    """If a file is paged while it is read in, at most the current piece is still read."""
    node = Node(room_mib=1_000)
    (file,) = node.open(900)
    await start(node, nursery)
    await trio.sleep(1)
    node.room_mib = 10
    (_,) = node.open(2, is_active=False)  # A new version triggers a look.
    await trio.sleep(100)
    done = [(what, at) for found, what, at, *_ in node.done if found is file]
    paged_at = next(at for what, at in done if what == "paged")
    assert [at for what, at in done if what == "warm" and at > paged_at + 2 * node.threads.takes_s] == []


async def test_a_file_is_held_for_a_piece_only(autojump_clock, nursery):
    """The file can be closed between two pieces, without effect on other files."""
    node = Node(room_mib=1_000)
    (first,), (second,) = node.open(100), node.open(4)
    await start(node, nursery)
    await trio.sleep(0.105)
    while first.pins:
        await trio.sleep(0.001)
    node.close(0)
    before = len(node.done)
    await trio.sleep(10)
    assert {file for file, *_ in node.done[before:]} == {second}
    assert node.warmed(second) == [(0, 4)]


async def test_a_file_that_is_closed_before_anybody_says_so(autojump_clock, nursery):
    node = Node()
    (first,), (second,) = node.open(100), node.open(4)
    await start(node, nursery)
    await trio.sleep(0.2)
    first.is_closed = True
    node.versions.pop(0)
    await trio.sleep(60)
    assert node.warmed(second) == [(0, 4)]


async def test_the_end_waits_for_the_piece_at_hand_alone(autojump_clock):
    """The files are not pinned afterwards."""
    node = Node()
    (file,) = node.open(1_000)
    node.threads.takes_s = 1.0
    async with trio.open_nursery() as nursery:
        await nursery.start(node.paging.run)
        await trio.sleep(4.5)
        ended_s = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - ended_s <= 1.0
    assert file.pins == 0


@pytest.mark.parametrize(("setting", "resident", "is_paged"), [("resident", "all", False), ("paged", "none", True)])
async def test_a_setting_overrides(setting, resident, is_paged, autojump_clock, nursery):
    for room_mib in (1, 1_000):
        node = Node(setting, room_mib=room_mib)
        (file,) = node.open(20)
        await start(node, nursery)
        await trio.sleep(60)
        assert (file.paged, node.resident) == (is_paged, resident)


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_mapped_files_answer_all_the_same(compression, autojump_clock, nursery, tmp_path):
    """A file answers while it is paged, warmed and made resident, and can be closed meanwhile."""
    records = {b"key%06d" % number: b"value" * (number % 50) for number in range(20_000)}
    with SortedFileBuilder(tmp_path, ["0.gkv"], compression=compression) as building:
        building.add_all(records.items(), 0)
        building.finish()
    node = Node(room_mib=0)
    with SortedFile(tmp_path / "0.gkv") as file:
        node.versions = [
            OpenVersion(
                SimpleNamespace(files=[file], manifest=SimpleNamespace(compression=compression)), is_active=True
            )
        ]
        await start(node, nursery)
        for room_mib in (0, 1_000, 1_000, 0, 2):
            node.room_mib = room_mib
            await trio.sleep(60)
            assert file.paged is (compression == "lz4" or room_mib < 3)
            assert dict(file.scan()) == records
            assert file.get_many(list(records)) == list(records.values())
        node.versions = []
