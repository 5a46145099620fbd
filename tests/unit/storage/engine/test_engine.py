"""The core of a store: accepted and refused batches, visibility of records, and work on a full disk."""

from __future__ import annotations

import random
from pathlib import PurePosixPath

import pytest

from gossipkv.errors import LimitExceeded, Overloaded, StorageError
from gossipkv.storage.engine import engine as core
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import HEADER_BYTES, Batch
from gossipkv.storage.engine.manifest import segment_path
from gossipkv.storage.engine.merge import merge
from gossipkv.storage.engine.opening import open_store
from gossipkv.storage.engine.options import MAX_WAITING_BYTES, EngineOptions
from gossipkv.storage.engine.segments import RESERVED_BYTES
from gossipkv.storage.engine.works import MakeSegment, Remove, Reserve, RunningMerge, Switch
from tests.world.simulated_files import SimulatedFiles

DIRECTORY = PurePosixPath("/store")
TINY = EngineOptions(segment_bytes=24 << 10, table_log=48 << 10, file_bytes=16 << 10, stretch_bytes=16 << 10)


class Core:
    """An engine and its disk; work is done when a test says so."""

    def __init__(self, options=TINY):
        self.files = SimulatedFiles()
        self.engine = open_store(self.files, DIRECTORY, options, random.Random(4)).engine
        self.engine.free_bytes = 1 << 40
        self.write()
        self.space = self.make()

    def write(self):
        while (group := self.engine.group()) is not None:
            self.files.pwrite(group.descriptor, group.data, group.offset)
            self.files.sync(group.descriptor)
            self.engine.synced(group.position)

    def make(self):
        space = self.engine.reserve_space()
        batch = Batch()
        batch.new_space(space)
        self.engine.append(batch)
        self.write()
        return space

    def put(self, key, size=2000, space=None):
        batch = Batch()
        batch.put(space or self.space, key, bytes(size))
        return self.engine.append(batch)

    def drop(self, space):
        batch = Batch()
        batch.drop_space(space)
        return self.engine.append(batch)

    def perform(self, work):
        if isinstance(work, RunningMerge):
            self.engine.merged(work, merge(self.files, work.order))
        else:
            self.engine.done(work, works.perform(self.files, DIRECTORY, work))

    def fill(self, *, merges=False):
        """Write until a batch is refused; return the reason and the number of accepted batches."""
        for number in range(10_000):
            try:
                self.put(b"%d" % number)
            except Overloaded as refusal:
                return refusal.details["reason"], number
            self.write()
            while not merges and isinstance(work := self.engine.next_work((RunningMerge,)), MakeSegment):
                self.perform(work)
        raise AssertionError


@pytest.fixture
def store():
    return Core()


def batch_of(*operations):
    batch = Batch()
    for name, *arguments in operations:
        getattr(batch, name)(*arguments)
    return batch


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([], "has no operations"),
        ([("put", 7, b"k", b"v")], "the store has no space 7"),
        ([("delete", 7, b"k")], "the store has no space 7"),
        ([("put", 1, b"k", b"v"), ("put", 7, b"k", b"v")], "the store has no space 7"),
        ([("drop_space", 7)], "the store has no space 7"),
        ([("new_space", 7)], "space 7 was not reserved"),
        ([("new_space", 1)], "space 1 was not reserved, or exists already"),
        ([("drop_space", 2), ("new_space", 2)], "the store has no space 2"),
        ([("new_space", 2), ("drop_space", 2), ("new_space", 2)], "space 2 was not reserved, or exists already"),
        ([("drop_space", 1), ("new_space", 1)], "space 1 was not reserved, or exists already"),
        ([("drop_space", 1), ("put", 1, b"k", b"v")], "the store has no space 1"),
        ([("drop_space", 1), ("drop_space", 1)], "the store has no space 1"),
        ([("put", 2, b"k", b"v"), ("new_space", 2)], "the store has no space 2"),
    ],
)
def test_batches_that_make_no_sense(store, operations, reason):
    """A senseless batch is refused with the reason, as a restart would refuse it, and changes nothing."""
    assert store.engine.reserve_space() == 2
    position = store.engine.position
    with pytest.raises(ValueError, match=reason):
        store.engine.append(batch_of(*operations))
    assert store.engine.position == position
    assert store.engine.group() is None


def test_the_longest_batch(store):
    """A batch may fill a segment; a byte more is refused with the limit."""
    store.perform(store.engine.next_work((RunningMerge,)))
    most = TINY.segment_bytes - HEADER_BYTES - RESERVED_BYTES
    assert TINY.most_batch_bytes == most
    overhead = batch_of(("put", 1, b"k", b"")).size_bytes + 32
    with pytest.raises(LimitExceeded, match="divide the batch"):
        store.put(b"k", most - overhead + 1)
    store.put(b"k", most - overhead)
    store.write()
    assert store.engine.view.get(1, b"k") == bytes(most - overhead)


def test_a_space_is_given_out_once(store):
    """A number is never given out again, whether the space was dropped or never made."""
    first, second = store.engine.reserve_space(), store.engine.reserve_space()
    assert second == first + 1
    with pytest.raises(ValueError, match="the store has no space"):
        store.put(b"k", space=first)
    store.engine.append(batch_of(("new_space", first), ("put", first, b"k", b"v")))
    assert first not in store.engine.spaces, "not before it is synced"
    store.put(b"l", space=first)
    store.write()
    assert first in store.engine.spaces
    assert store.engine.spaces == {1, first}
    store.drop(first)
    assert first in store.engine.spaces, "the drop is not synced"
    with pytest.raises(ValueError, match="was dropped"):
        store.put(b"m", space=first)
    with pytest.raises(ValueError, match="was dropped"):
        store.drop(first)
    store.write()
    assert first not in store.engine.spaces
    with pytest.raises(ValueError, match="was not reserved"):
        store.engine.append(batch_of(("new_space", first)))
    assert store.engine.reserve_space() == second + 1


def test_a_space_that_its_batch_makes_and_drops(store):
    """The space never exists, not even after a restart; the other operations take effect."""
    space = store.engine.reserve_space()
    made = [("new_space", space), ("put", space, b"k", b"v"), ("put", 1, b"l", b"w"), ("drop_space", space)]
    store.engine.append(batch_of(*made))
    store.write()
    assert store.engine.spaces == {1}
    store.files.close_all()
    again = open_store(store.files, DIRECTORY, TINY, random.Random(5)).engine
    assert again.spaces == {1}
    assert again.view.get(1, b"l") == b"w"


def test_all_numbers_of_spaces(store, monkeypatch):
    """A key has no room for higher numbers."""
    monkeypatch.setattr(core, "MAX_SPACES", 4)
    assert [store.engine.reserve_space() for _ in range(2)] == [2, 3]
    with pytest.raises(LimitExceeded, match="are used"):
        store.engine.reserve_space()


def test_nothing_is_read_before_it_is_synced(store):
    """Records are invisible while they wait and while they are written, and then all appear."""
    store.put(b"k")
    assert store.engine.view.get(1, b"k") is None
    group = store.engine.group()
    assert store.engine.view.get(1, b"k") is None
    store.engine.synced(group.position)
    assert store.engine.view.get(1, b"k") == bytes(2000)


def test_nothing_is_applied_after_a_failure(store):
    """Groups in flight and waiting batches are neither handed out nor shown; callers get the reason."""
    store.put(b"under way")
    group = store.engine.group()
    store.put(b"waits")
    store.engine.failed(OSError(5, "the disk burns"))
    assert store.engine.closed == "its log cannot be written: the disk burns"
    assert store.engine.group() is None
    with pytest.raises(AssertionError, match="after a failure"):
        store.engine.synced(group.position)
    assert store.engine.view.get(1, b"under way") is None
    for call in (lambda: store.put(b"k"), store.engine.reserve_space, store.engine.check_open):
        with pytest.raises(StorageError, match="the disk burns"):
            call()
    assert store.engine.next_work() is None
    assert not store.engine.mark()
    store.engine.close()
    assert "burns" in store.engine.closed, "the first reason counts"


def test_the_next_segment_is_awaited(store):
    """A batch that needs the segment is refused until it is allocated; the refusal has the disk's error."""
    while store.engine._writer.fits(10_000, 0):
        store.put(b"k")
    with pytest.raises(Overloaded, match="not allocated yet"):
        store.put(b"k", 10_000)
    store.write()
    work = store.engine.next_work()
    assert isinstance(work, MakeSegment)
    assert store.engine.next_work((RunningMerge, Reserve)) is None, "one at a time"
    store.engine.put_off(work, OSError(28, "No space left on device"))
    with pytest.raises(Overloaded, match=r"not allocated yet.*No space left"):
        store.put(b"another", 16_000)
    assert store.engine.next_work() == Remove((segment_path(DIRECTORY, work.header.number),))
    again = store.engine.next_work()
    assert again.header.number == work.header.number + 1
    assert again.header.salt != work.header.salt
    store.perform(again)
    store.put(b"another", 16_000)
    assert store.engine.counts.put_off == 1


def test_both_memtables_are_full(store):
    """Records of two segments are accepted, and no more; a merge of the older memtable makes room."""
    reason, taken = store.fill()
    assert "memtables are full" in reason
    assert store.engine.memtable_bytes <= 2 * TINY.memtable_bytes
    assert len(store.engine.upkeep.closed) == 1
    assert all(store.engine.view.get(1, b"%d" % number) == bytes(2000) for number in range(taken))
    flush = store.engine.next_work()
    assert isinstance(flush, RunningMerge)
    assert flush.is_flush
    assert store.engine.next_work() is None
    store.perform(flush)
    with pytest.raises(Overloaded):
        store.put(b"k")
    switch = store.engine.next_work()
    assert isinstance(switch, Switch)
    store.perform(switch)
    store.perform(store.engine.next_work((Remove, RunningMerge)))
    store.put(b"k")
    store.write()
    assert store.engine.view.get(1, b"0") == bytes(2000)


def test_writers_are_slowed_before_they_are_refused(store):
    """The delay rises with the second memtable, from nothing to its maximum before the refusal."""
    delays = []
    try:
        for number in range(10_000):
            delays.append(store.engine.pressure().delay_s)
            store.put(b"%d" % number)
            store.write()
            while isinstance(work := store.engine.next_work((RunningMerge,)), MakeSegment):
                store.perform(work)
    except Overloaded:
        pass
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert delays[-1] > 0.01


def test_small_records_fill_a_memtable_before_a_segment():
    """The overhead of records is counted, so that memory is bounded for records of any size."""
    store = Core(EngineOptions(segment_bytes=1 << 20, table_log=0))
    store.perform(store.engine.next_work((RunningMerge,)))
    number = 0
    while not store.engine.upkeep.closed:
        batch = Batch()
        for _ in range(500):
            batch.put(1, b"%d" % number, b"")
            number += 1
        store.engine.append(batch)
        store.write()
    assert store.engine.upkeep.closed[0].end < store.engine.options.segment_bytes * 3 / 4
    assert store.engine.memtable_bytes <= store.engine.options.memtable_bytes * 1.1


def test_so_much_may_wait_for_the_disk():
    """More waiting data would only delay every answer; a single batch of any size is accepted."""
    store = Core(EngineOptions(segment_bytes=64 << 20))
    sizes = [MAX_WAITING_BYTES // 2 - 1000, MAX_WAITING_BYTES // 2 - 1000]
    for size in sizes:
        store.put(b"k", size)
    with pytest.raises(Overloaded, match="wait to be written to the disk"):
        store.put(b"k", 5000)
    store.write()
    store.put(b"k", 16 << 20)


def test_a_full_disk_ends_writes_and_not_reads(store):
    """The refusal names the missing room; writes resume once free room was seen."""
    store.put(b"k")
    store.write()
    store.engine.free_bytes = 10 << 10
    with pytest.raises(Overloaded, match=r"too little free space: a merge needs [\d,]+ bytes, and the disk has 10,240"):
        store.put(b"l", 10)
    assert store.engine.view.get(1, b"k") == bytes(2000)
    assert store.engine.counts.refused == 1
    store.engine.free_bytes = 1 << 40
    store.put(b"l", 10)


@pytest.mark.parametrize(("kind", "fits", "turns"), [("", 0, 0), ("may_fill", 1, 0), ("relieves", 1, 1)])
def test_what_is_taken_where_room_is_scarce(store, kind, fits, turns):
    """`may_fill` admits a batch to the open segment, `relieves` also to the next one; deletes and drops relieve."""

    def takes(*operations):
        batch = batch_of(*operations)
        for name in filter(None, [kind]):
            setattr(batch, name, True)
        try:
            store.engine.append(batch)
        except Overloaded:
            return False
        store.write()
        return True

    store.perform(store.engine.next_work())
    store.put(b"most of it", 14 << 10)
    store.write()
    store.engine.free_bytes = TINY.margin_bytes - 1
    assert takes(("put", store.space, b"k", b"v")) == fits
    assert takes(("put", store.space, b"k", bytes(8 << 10))) == turns
    assert batch_of(("delete", store.space, b"k"), ("drop_space", store.space)).relieves
    assert not batch_of(("new_space", 7)).relieves


def test_what_the_disk_refused_keeps_nothing_else_waiting(store):
    """Failed kinds of work are left out, and removals go on, because other work may need their room."""
    store.engine.upkeep.abandon([99])
    kinds = []
    while (work := store.engine.next_work(kinds)) is not None:
        kinds.append(type(work))
        store.engine.put_off(work, OSError(28, "full"))
    assert kinds == [Remove, MakeSegment, Reserve]
    assert isinstance(store.engine.next_work(), Remove), "all of it is handed out again"


def test_no_merge_begins_while_a_switch_is_due(store):
    """The merge could read files that the switch removes."""
    store.fill()
    store.perform(store.engine.next_work())
    switch = store.engine.next_work()
    store.engine.put_off(switch, OSError(5, "not now"))
    assert store.engine.next_work((Switch,)) is None
    assert store.engine.next_work().manifest == switch.manifest


def test_marks(store):
    """A mark is written only if due, and never by a closed store."""
    assert store.engine.mark()
    assert not store.engine.mark()
    store.write()
    assert not store.engine.mark()
    store.put(b"k")
    store.write()
    store.engine.close()
    assert not store.engine.mark()


def test_what_can_be_read_of_the_log(store):
    """The log is readable from the first frame to the synced position, and kept after a merge."""
    assert store.engine.log_floor == 0
    store.fill()
    log = store.engine.log()
    assert [segment.name.number for segment in log] == [1, 2]
    assert log[0].last + 1 == log[1].first
    assert log[-1].last == store.engine.synced_position
    assert store.engine.unmerged() == log
    flush = store.engine.next_work()
    store.perform(flush)
    store.perform(store.engine.next_work())
    assert store.engine.log() == log, "it is kept for those who read it"
    assert store.engine.unmerged() == log[1:]


def test_counts(store):
    before = store.engine.counts
    told = (before.batches, before.records, before.groups)
    store.put(b"k")
    store.engine.append(batch_of(("delete", 1, b"k"), ("put", 1, b"l", b"")))
    store.write()
    after = store.engine.counts
    assert (after.batches, after.records, after.groups) == (told[0] + 2, told[1] + 3, told[2] + 1)


def test_what_is_left_at_the_end(store):
    """`leftovers` has the prepared segment and pending removals, which a closed store does not need."""
    store.perform(store.engine.next_work())
    store.engine.upkeep.abandon([77])
    assert set(store.engine.leftovers()) == {segment_path(DIRECTORY, number) for number in (2, 77)}
    assert len(store.engine.descriptors) == 2
