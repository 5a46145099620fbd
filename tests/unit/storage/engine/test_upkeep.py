"""The changes of a store's manifest: merges, switches, floors, and leftovers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine.manifest import LifeEnd, RunFile, SegmentName, SortedRun, StoreManifest, segment_path
from gossipkv.storage.engine.merge import MergeOutput, run_name, run_path
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.policy import Compaction
from gossipkv.storage.engine.segments import Segment
from gossipkv.storage.engine.upkeep import ManifestUpkeep, SyncedState, with_stretch
from gossipkv.storage.engine.works import Remove

KIB = 1 << 10
OPTIONS = EngineOptions(segment_bytes=10 * KIB, table_log=25 * KIB)


def file(name, low, high=None):
    return RunFile(name, 5, 1000, 1, b"%04d" % low, b"%04d" % (low if high is None else high))


def run(name):
    return SortedRun((file(f"{name}.gkv", 0, 999),))


def segment(number, end=10 * KIB):
    return Segment(SegmentName(number, number * 7), number * 100, number * 100 + 99, end, 10 * KIB)


def manifest(young=(), oldest=(), **more):
    return StoreManifest(
        store=1,
        life=2,
        spaces=frozenset({1}),
        next_space=2,
        next_merge=50,
        recovery_floor=SegmentName(4, 28),
        log_floor=SegmentName(2, 14),
        young=tuple(map(run, young)),
        oldest=SortedRun(tuple(oldest)),
        **more,
    )


def upkeep_of(known, kept=(2, 3), closed=(4,)):
    """Return the upkeep of a store with these kept and closed segments; its files are open."""
    files = {one.name: object() for one in known.run_files}
    return ManifestUpkeep(
        PurePosixPath("/store"), OPTIONS, known, map(segment, kept), map(segment, closed), files=files
    )


NOW = SyncedState({1, 3}, 9, SegmentName(5, 35), 5 * KIB)


def switch(upkeep, now=NOW):
    work = upkeep.next_switch(now)
    assert upkeep.next_switch(now) is None, "one at a time"
    upkeep.switched(work, {one.name: object() for one in work.opens})
    assert set(upkeep.files) == {one.name for one in upkeep.manifest.run_files}
    return work


def removal_of(*names):
    """Return the removal of runs' files, given by name, and of segments, given by number."""
    store = PurePosixPath("/store")
    return Remove(tuple(run_path(store, one) if isinstance(one, str) else segment_path(store, one) for one in names))


def flushed(upkeep, names=("00000050-0001.gkv",)):
    work = upkeep.begin_flush({1}, 0)
    upkeep.merged(work, MergeOutput((), tuple(file(name, 10 * at) for at, name in enumerate(names)), None))
    return work


def compacted(upkeep, chosen, replaced=(), made=(), end=None):
    """Finish a stretch of a compaction, without the switch."""
    work = upkeep.begin_compaction(chosen, {1}, 0, 1000)
    upkeep.merged(work, MergeOutput(replaced, made, end))
    return work


def names_of(known):
    return [young.files[0].name for young in known.young]


def test_a_flush():
    """A flush turns closed segments into the newest young run; recovery then begins after them."""
    upkeep = upkeep_of(manifest(young="ab"))
    work = flushed(upkeep)
    assert [one.number for one in work.order.log] == [4]
    assert (work.order.runs, work.order.drops_tombstones) == ((), False)
    done = switch(upkeep)
    assert [one.name for one in done.opens] == ["00000050-0001.gkv"]
    assert upkeep.manifest is done.manifest
    assert names_of(done.manifest) == ["00000050-0001.gkv", "a.gkv", "b.gkv"]
    assert done.manifest.recovery_floor == NOW.active
    assert (done.manifest.spaces, done.manifest.next_space, done.manifest.next_merge) == ({1, 3}, 9, 51)
    assert upkeep.merge is None
    assert upkeep.closed == []


def test_a_flush_of_nothing():
    """Every record was in dropped spaces, so no run is made."""
    upkeep = upkeep_of(manifest(young="a"))
    flushed(upkeep, ())
    switch(upkeep)
    assert names_of(upkeep.manifest) == ["a.gkv"]
    assert upkeep.closed == []


@pytest.mark.parametrize(
    ("table_log", "kept", "floor"),
    [
        (0, [4], 4),
        (15 * KIB, [4], 4),
        (15 * KIB + 1, [3, 4], 3),
        (25 * KIB, [3, 4], 3),
        (99 * KIB, [2, 3, 4], 2),
    ],
)
def test_so_much_of_the_log_is_kept(table_log, kept, floor):
    """The kept log has at least the requested bytes, and no needless segment."""
    upkeep = upkeep_of(manifest())
    upkeep._options = replace(OPTIONS, table_log=table_log)
    flushed(upkeep)
    switch(upkeep)
    assert [one.name.number for one in upkeep.kept] == kept
    assert upkeep.manifest.log_floor == SegmentName(floor, floor * 7)
    gone = sorted({2, 3, 4}.difference(kept))
    assert upkeep.next_removal() == (removal_of(*gone[1:]) if gone[1:] else None)
    assert upkeep.take_free() == (gone[0] if gone else None)


def test_lives_are_known_as_long_as_their_segments_are_kept():
    """The end of a life is kept as long as its cut segment."""
    ends = tuple(LifeEnd(life, life, 5000, 9, SegmentName(life + 1, 1)) for life in (2, 3, 4))
    upkeep = upkeep_of(manifest(lives=ends))
    upkeep._options = replace(OPTIONS, table_log=15 * KIB + 1)
    flushed(upkeep)
    switch(upkeep)
    assert upkeep.manifest.log_floor.number == 3
    assert upkeep.manifest.lives == ends[2:]


OLDEST = [file("x.gkv", 0, 4), file("y.gkv", 5, 9), file("z.gkv", 10, 19)]
MOVES = st.lists(st.sampled_from(["flush", "stretch", "nested", "failed merge", "failed switch"]), max_size=14)


@given(MOVES)
def test_a_compaction_stretch_by_stretch_and_what_comes_between(moves):
    """Each stretch has its own switch; young runs leave with the last one, and newer runs are merged meanwhile."""
    upkeep = upkeep_of(manifest(young="cde", oldest=OLDEST))
    newest, left, replaced = [], [*OLDEST], []
    for move in [*moves, "stretch", "stretch", "stretch"]:
        number = upkeep._next_merge
        name = run_name(number, 1)
        if move == "failed merge":
            upkeep.begin_compaction(Compaction(0, 3), {1}, 0, 1000) if left else upkeep.begin_flush({1}, 0)
            upkeep.merge_failed()
            continue
        if move == "flush":
            upkeep.closed = [segment(4)]
            flushed(upkeep, (name,))
            newest.insert(0, name)
        elif move == "nested" and len(newest) > 1 and left:
            compacted(upkeep, Compaction(4, len(newest) - 1), (newest[-1],), (file(name, 0, 99),))
            newest = [name]
        elif move == "stretch" and left:
            old = left.pop(0)
            made, end = old._replace(name=name), left[0].first if left else None
            work = compacted(upkeep, Compaction(0, 3), (old.name,), (made,), end)
            assert work.order.start == (old.first if replaced else b"")
            assert [run[0].name for run in work.order.runs[:-1]] == ["c.gkv", "d.gkv", "e.gkv"]
            assert work.order.drops_tombstones
            replaced.append(name)
        elif move != "failed switch":
            continue
        if upkeep.next_switch(NOW) is not None:
            upkeep.switch_failed()
            switch(upkeep)
        assert names_of(upkeep.manifest) == [*newest, *(["c.gkv", "d.gkv", "e.gkv"] if left else [])]
        assert [one.name for one in upkeep.manifest.oldest.files] == [*replaced, *(one.name for one in left)]
    assert upkeep.state(active_share=0.0, free_bytes=0).begun is None
    gone = {path.name for path in upkeep.next_removal().paths}
    assert gone.isdisjoint(upkeep.files)
    assert {f"{name}.gkv" for name in "cdexyz"} <= gone


def test_a_young_run_of_which_nothing_stays():
    """The run leaves after its merge, since a begun compaction counts the runs."""
    upkeep = upkeep_of(manifest(young="abc", oldest=OLDEST))
    compacted(upkeep, Compaction(2, 1), ("b.gkv",), (), b"0500")
    switch(upkeep)
    assert [len(one.files) for one in upkeep.manifest.young] == [1, 0, 1]
    assert upkeep.state(active_share=0.0, free_bytes=0).begun == Compaction(2, 1)
    work = compacted(upkeep, Compaction(2, 1))
    assert work.order.start == b"0500"
    assert not work.order.drops_tombstones
    switch(upkeep)
    assert names_of(upkeep.manifest) == ["c.gkv"]


def test_a_switch_that_failed_is_done_again_and_nothing_goes_before():
    """The switch may have happened, so its inputs stay until its outcome is known."""
    upkeep = upkeep_of(manifest(young="a"))
    flushed(upkeep)
    for _ in range(3):
        work = upkeep.next_switch(NOW)
        upkeep.switch_failed()
        assert upkeep.next_removal() is None
        assert upkeep.take_free() is None
        assert [one.name.number for one in upkeep.closed] == [4]
    assert switch(upkeep).manifest == work.manifest


def test_a_refused_switch():
    """The merge is repeated and its file removed, unless an earlier attempt may have put it into the manifest."""
    upkeep = upkeep_of(manifest(young="a"))
    work = flushed(upkeep)
    upkeep.next_switch(NOW)
    upkeep.switch_failed()
    upkeep.next_switch(NOW)
    upkeep.switch_refused()
    assert upkeep.next_switch(NOW) is not None, "the system did not say whether it happened before"
    assert upkeep.next_removal() is None
    again = upkeep_of(manifest(young="a"))
    work = flushed(again)
    again.next_switch(NOW)
    again.switch_refused()
    assert again.next_switch(NOW) is None
    assert again.merge is None
    assert [one.name.number for one in again.closed] == [4]
    assert again.next_removal() == removal_of(run_name(work.order.number, 1))
    assert flushed(again, ("00000051-0001.gkv",)).order.number == work.order.number + 1
    switch(again)


def test_a_refused_stretch():
    """Earlier switches stay, and the stretch is merged again from its start."""
    upkeep = upkeep_of(manifest(young="ab", oldest=OLDEST))
    compacted(upkeep, Compaction(0, 2), ("x.gkv",), (file("1.gkv", 0),), b"0005")
    switch(upkeep)
    compacted(upkeep, Compaction(0, 2), ("y.gkv",), (file("2.gkv", 5),), b"0010")
    upkeep.next_switch(NOW)
    upkeep.switch_refused()
    assert upkeep.next_removal() == removal_of("x.gkv", "2.gkv")
    assert upkeep.begin_compaction(Compaction(0, 2), {1}, 0, 1000).order.start == b"0005"
    assert [one.name for one in upkeep.manifest.oldest.files] == ["1.gkv", "y.gkv", "z.gkv"]
    assert names_of(upkeep.manifest) == ["a.gkv", "b.gkv"]


def test_numbers_of_merges_are_not_used_again():
    """A failed merge may have left files, so its number is not reused."""
    upkeep = upkeep_of(manifest(young="ab"))
    first = upkeep.begin_compaction(Compaction(1, 1), {1}, 0, 1000)
    upkeep.merge_failed()
    second = upkeep.begin_compaction(Compaction(1, 1), {1}, 0, 1000)
    assert (first.order.number, second.order.number) == (50, 51)
    upkeep.merge_failed()
    flushed(upkeep)
    assert switch(upkeep).manifest.next_merge == 53


def test_a_purge_of_every_run():
    """Runs are purged from the newest to the oldest, by all newer runs, which stay; a begun compaction restarts."""
    upkeep = upkeep_of(manifest(young="ab", oldest=[file("o.gkv", 0, 999)]))
    compacted(upkeep, Compaction(0, 2), ("o.gkv",), (file("p.gkv", 0, 999),), b"0500")
    switch(upkeep)
    upkeep.begin_compaction(Compaction(2, 0), {1}, 0, 1000)
    names = []
    while upkeep.merge is not None:
        order = upkeep.merge.order
        assert order.purges
        names.append(["".join(one.name[0] for one in run) for run in order.runs])
        made = MergeOutput((order.runs[-1][0].name,), (order.runs[-1][0]._replace(name=f"{names[-1][-1]}2.gkv"),), None)
        upkeep.merged(upkeep.merge, made)
        upkeep.switched(upkeep.next_switch(NOW), {made.files[0].name: object()})
        if (begun := upkeep.state(active_share=0.0, free_bytes=0).begun) is not None:
            upkeep.begin_compaction(begun, {1}, 0, 1000)
    assert names == [["a"], ["a", "b"], ["a", "b", "p"]]
    again = upkeep.begin_compaction(Compaction(0, 2), {1}, 0, 1000).order
    assert [run[0].name for run in again.runs] == ["a2.gkv", "b2.gkv", "p2.gkv"]
    assert again.start == b"", "the stretch that was merged before the purge is merged again"


def test_a_sweep_of_a_young_run():
    """The order has the run alone; the run leaves if nothing of it is left, and dropped spaces stay a debt."""
    upkeep = upkeep_of(manifest(young="ab", oldest=OLDEST, dropped_bytes=100))
    chosen = Compaction(1, 0, sweeps=True)
    work = compacted(upkeep, chosen, ("b.gkv",))
    assert [[file.name for file in run] for run in work.order.runs] == [["b.gkv"]]
    assert (work.order.sweeps, work.order.purges, work.order.drops_tombstones) == (True, False, False)
    switch(upkeep)
    assert names_of(upkeep.manifest) == ["a.gkv"]
    assert compacted(upkeep, Compaction(0, 0, sweeps=True)).order.drops_tombstones
    switch(upkeep)
    assert upkeep.dropped_bytes == 100


def test_debt_of_dropped_spaces():
    """The debt ends with the last stretch of a merge into the oldest run that began after the drop."""
    upkeep = upkeep_of(manifest(young="ab", oldest=OLDEST, dropped_bytes=100))
    compacted(upkeep, Compaction(0, 2), ("x.gkv",), (), b"0005")
    upkeep.dropped_bytes += 30
    switch(upkeep)
    assert upkeep.dropped_bytes == upkeep.manifest.dropped_bytes == 130
    compacted(upkeep, Compaction(0, 2))
    switch(upkeep)
    assert upkeep.dropped_bytes == upkeep.manifest.dropped_bytes == 30


def test_removals():
    """Removals run one at a time; a failed one is repeated with newer ones, and leftovers list them all."""
    upkeep = upkeep_of(manifest())
    upkeep.abandon([9])
    assert upkeep.next_removal() == removal_of(9)
    upkeep.abandon([8])
    assert upkeep.next_removal() is None
    assert upkeep.leftovers() == [*removal_of(8, 9).paths]
    upkeep.removal_failed()
    assert upkeep.next_removal() == removal_of(8, 9)
    upkeep.removed()
    assert upkeep.next_removal() is None
    assert upkeep.leftovers() == []


def test_a_stretch_takes_the_place_of_its_files():
    """The new files are in the order of keys, and the replaced files must exist."""
    there = with_stretch(SortedRun(tuple(OLDEST)), MergeOutput(("y.gkv",), (file("1.gkv", 5), file("2.gkv", 7)), None))
    assert [one.name for one in there.files] == ["x.gkv", "1.gkv", "2.gkv", "z.gkv"]
    with pytest.raises(AssertionError, match="what is there"):
        with_stretch(SortedRun(tuple(OLDEST)), MergeOutput(("other.gkv",), (), None))
