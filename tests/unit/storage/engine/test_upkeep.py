"""What a store consists of and how that changes: switches, merges side by side, floors, and what is left over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine.manifest import LifeEnd, Manifest, Run, RunFile, SegmentName
from gossipkv.storage.engine.merge import Output, run_name
from gossipkv.storage.engine.options import Options
from gossipkv.storage.engine.policy import Compaction, Flush
from gossipkv.storage.engine.segments import Segment
from gossipkv.storage.engine.upkeep import Now, Upkeep, place_of, with_merged, with_stretch
from gossipkv.storage.engine.works import Remove

KIB = 1 << 10
OPTIONS = Options(segment_bytes=10 * KIB, table_log=25 * KIB)


def file(name, low, high=None):
    """A file with keys of that range."""
    return RunFile(name, 5, 1000, 1, b"%04d" % low, b"%04d" % (low if high is None else high))


def run(name):
    """A young run."""
    return Run((file(f"{name}.gkv", 0, 999),))


def segment(number, end=10 * KIB):
    """A full one."""
    return Segment(SegmentName(number, number * 7), number * 100, number * 100 + 99, end, 10 * KIB)


def manifest(young=(), oldest=(), **more):
    """One with these runs."""
    return Manifest(
        store=1,
        life=2,
        spaces=frozenset({1}),
        next_space=2,
        next_merge=50,
        recovery_floor=SegmentName(4, 28),
        log_floor=SegmentName(2, 14),
        young=tuple(map(run, young)),
        oldest=Run(tuple(oldest)),
        **more,
    )


def upkeep_of(known, kept=(2, 3), closed=(4,)):
    """The upkeep of a store in which these segments are kept and closed; its files are open."""
    files = {one.name: object() for one in known.run_files}
    return Upkeep(PurePosixPath("/store"), OPTIONS, known, map(segment, kept), map(segment, closed), files=files)


NOW = Now({1, 3}, 9, SegmentName(5, 35), 5 * KIB)


def switch(upkeep, now=NOW):
    """Do the next one; what it was."""
    work = upkeep.next_switch(now)
    assert upkeep.next_switch(now) is None, "one at a time"
    upkeep.switched(work, {one.name: object() for one in work.opens})
    assert set(upkeep.files) == {one.name for one in upkeep.manifest.run_files}
    return work


def flushed(upkeep, names=("00000050-0001.gkv",)):
    """A flush, done and not switched to."""
    work = upkeep.begin_flush(Flush(0), {1}, 0)
    upkeep.output(work, Output((), tuple(file(name, 10 * at) for at, name in enumerate(names)), is_last=True))
    upkeep.merged(work)
    return work


def test_a_flush():
    """Closed segments in, a young run out, the newest; recovery begins behind them from then on."""
    upkeep = upkeep_of(manifest(young="ab"))
    work = flushed(upkeep)
    assert [one.number for one in work.order.log] == [4]
    assert (work.order.young, work.order.oldest, work.order.into_oldest) == ((), (), False)
    assert upkeep.is_changing
    done = switch(upkeep)
    assert [one.name for one in done.opens] == ["00000050-0001.gkv"]
    assert upkeep.manifest is done.manifest
    assert [young.files[0].name for young in done.manifest.young] == ["00000050-0001.gkv", "a.gkv", "b.gkv"]
    assert done.manifest.recovery_floor == NOW.active
    assert (done.manifest.spaces, done.manifest.next_space, done.manifest.next_merge) == ({1, 3}, 9, 51)
    assert upkeep.flush is None
    assert upkeep.closed == []


def test_a_flush_of_nothing():
    """All that the segments had was dropped: no run comes of it."""
    upkeep = upkeep_of(manifest(young="a"))
    flushed(upkeep, ())
    switch(upkeep)
    assert [young.files[0].name for young in upkeep.manifest.young] == ["a.gkv"]
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
    """At least as much as was asked for, and no segment more; a segment before the one where recovery begins stays."""
    upkeep = upkeep_of(manifest())
    upkeep._options = replace(OPTIONS, table_log=table_log)
    flushed(upkeep)
    switch(upkeep)
    assert [one.name.number for one in upkeep.kept] == kept
    assert upkeep.manifest.log_floor == SegmentName(floor, floor * 7)
    gone = sorted({2, 3, 4}.difference(kept))
    removal = upkeep.next_removal()
    free = upkeep.take_free()
    assert sorted([*([] if removal is None else removal.segments), *([] if free is None else [free])]) == gone
    assert (free is None) == (not gone)


def test_lives_are_known_as_long_as_their_segments_are_kept():
    """Where one ended is said while anybody may come to the segment that was cut."""
    ends = tuple(LifeEnd(life, life, 5000, 9, SegmentName(life + 1, 1)) for life in (2, 3, 4))
    upkeep = upkeep_of(manifest(lives=ends))
    upkeep._options = replace(OPTIONS, table_log=15 * KIB + 1)
    flushed(upkeep)
    switch(upkeep)
    assert upkeep.manifest.log_floor.number == 3
    assert upkeep.manifest.lives == ends[2:]


def compacted(upkeep, chosen):
    """A compaction, begun."""
    return upkeep.begin_compaction(chosen, {1}, 0)


MOVES = st.lists(st.sampled_from(["flush", "compact", "stretch", "switch", "fail"]), max_size=14)


@given(MOVES, st.integers(1, 2), st.booleans())
def test_a_flush_and_a_compaction_in_any_order(moves, taken, into_oldest):
    """Each leaves in its own switch, its inputs with it, and nothing else; files follow each other by age."""
    upkeep = upkeep_of(manifest(young="abcde", oldest=[file("x.gkv", 0, 4), file("y.gkv", 5, 9)]))
    flush = upkeep.begin_flush(Flush(taken), {1}, 0)
    first = 2
    compaction = compacted(upkeep, Compaction(first, 3 if into_oldest else 2, into_oldest))
    assert flush.order.young == tuple((f"{name}.gkv",) for name in "abcde"[:taken])
    outputs = [Output((old,), (file(run_name(compaction.order.number, at + 1), 5 * at),), at == 1)
               for at, old in enumerate(("x.gkv", "y.gkv"))]  # fmt: skip
    done = set()
    for move in moves:
        if move == "flush" and "flush" not in done:
            upkeep.output(flush, Output((), (file(run_name(flush.order.number, 1), 0, 99),), is_last=True))
            upkeep.merged(flush)
            done.add("flush")
        elif move == "stretch" and into_oldest and outputs:
            upkeep.output(compaction, outputs.pop(0))
        elif move == "compact" and "compaction" not in done and (not into_oldest or not outputs):
            if not into_oldest:
                upkeep.output(
                    compaction, Output((), (file(run_name(compaction.order.number, 1), 0, 99),), is_last=True)
                )
            upkeep.merged(compaction)
            done.add("compaction")
        elif move == "switch" and upkeep.is_changing:
            switch(upkeep)
        elif move == "fail" and (work := upkeep.next_switch(NOW)) is not None:
            upkeep.switch_failed()
            assert upkeep.next_switch(NOW).manifest == work.manifest
            upkeep.switch_failed()
    while upkeep.is_changing:
        switch(upkeep)
    young = [one.files[0].name for one in upkeep.manifest.young]
    newest = [run_name(flush.order.number, 1)] if "flush" in done else list("ab"[:taken])
    middle = list("ab"[taken:])
    old = list("cde")
    if "compaction" in done:
        old = [] if into_oldest else [run_name(compaction.order.number, 1), "e"]
    assert [name.removesuffix(".gkv") if len(name) == 5 else name for name in young] == [*newest, *middle, *old]
    oldest = [one.name for one in upkeep.manifest.oldest.files]
    written = [run_name(compaction.order.number, at) for at in (1, 2)]
    assert oldest == [*written[: 2 - len(outputs)], *["x.gkv", "y.gkv"][2 - len(outputs) :]] if into_oldest else True
    removal = upkeep.next_removal() or Remove((), ())
    everything = {f"{name}.gkv" for name in "abcdexy"} | {run_name(flush.order.number, 1), *written}
    assert set(removal.run_files) == {
        name for name in everything if name not in upkeep.files and (name[0] in "abcdexy")
    }, "what left, and nothing else"


def test_a_switch_that_failed_is_done_again_and_nothing_goes_before():
    """It may have happened: its inputs stay until it is known."""
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
    """A file is not what was said: its merge is done anew, and the file goes; not where it may be in the manifest."""
    upkeep = upkeep_of(manifest(young="a"))
    work = flushed(upkeep)
    upkeep.next_switch(NOW)
    upkeep.switch_failed()
    upkeep.next_switch(NOW)
    upkeep.switch_refused()
    assert upkeep.is_changing, "the system did not say whether it happened before"
    assert upkeep.next_removal() is None
    again = upkeep_of(manifest(young="a"))
    work = flushed(again)
    again.next_switch(NOW)
    again.switch_refused()
    assert not again.is_changing
    assert again.flush is None
    assert [one.name.number for one in again.closed] == [4]
    assert again.next_removal() == Remove((), (run_name(work.order.number, 1),))
    assert flushed(again, ("00000051-0001.gkv",)).order.number == work.order.number + 1
    switch(again)


def test_a_refused_stretch_of_a_merge_that_goes_on():
    """What was switched to stays; what comes after is not heeded, and the merge has failed when it ends."""
    upkeep = upkeep_of(manifest(young="ab", oldest=[file("x.gkv", 0, 4), file("y.gkv", 5, 9), file("z.gkv", 10)]))
    work = compacted(upkeep, Compaction(0, 2, into_oldest=True))
    upkeep.output(work, Output(("x.gkv",), (file("1.gkv", 0),), is_last=False))
    switch(upkeep)
    upkeep.output(work, Output(("y.gkv",), (file("2.gkv", 5),), is_last=False))
    upkeep.next_switch(NOW)
    upkeep.switch_refused()
    assert upkeep.compaction is work
    upkeep.output(work, Output(("z.gkv",), (file("3.gkv", 10),), is_last=True))
    assert not upkeep.is_changing
    upkeep.merged(work)
    assert not upkeep.is_changing
    assert upkeep.compaction is None
    assert [one.name for one in upkeep.manifest.oldest.files] == ["1.gkv", "y.gkv", "z.gkv"]
    assert [one.files[0].name for one in upkeep.manifest.young] == ["a.gkv", "b.gkv"]
    assert sorted(upkeep.next_removal().run_files) == ["2.gkv", "3.gkv", "x.gkv"]


def test_a_merge_that_failed():
    """Its inputs stay; what it wrote goes, but the stretches that it had told of count by themselves."""
    upkeep = upkeep_of(manifest(young="abc", oldest=[file("x.gkv", 0, 4)]))
    work = compacted(upkeep, Compaction(0, 2, into_oldest=False))
    upkeep.output(work, Output((), (file("1.gkv", 0),), is_last=False))
    upkeep.merge_failed(work)
    assert upkeep.compaction is None
    assert upkeep.next_removal() == Remove((), ("1.gkv",))
    upkeep.removed()
    work = compacted(upkeep, Compaction(0, 3, into_oldest=True))
    upkeep.output(work, Output(("x.gkv",), (file("2.gkv", 0),), is_last=False))
    upkeep.merge_failed(work)
    switch(upkeep)
    assert [one.name for one in upkeep.manifest.oldest.files] == ["2.gkv"]
    assert len(upkeep.manifest.young) == 3


def test_numbers_of_merges_are_not_used_again():
    """Not even one that failed: its files may be there."""
    upkeep = upkeep_of(manifest(young="ab"))
    first = compacted(upkeep, Compaction(0, 2, into_oldest=False))
    upkeep.merge_failed(first)
    second = compacted(upkeep, Compaction(0, 2, into_oldest=False))
    assert (first.order.number, second.order.number) == (50, 51)
    flushed(upkeep)
    assert switch(upkeep).manifest.next_merge == 53


def test_debt_of_dropped_spaces():
    """It goes with a merge into the oldest run that began after the drop."""
    upkeep = upkeep_of(manifest(young="ab", dropped_bytes=100))
    work = compacted(upkeep, Compaction(0, 2, into_oldest=True))
    upkeep.dropped_bytes += 30
    upkeep.output(work, Output((), (file("1.gkv", 0),), is_last=True))
    upkeep.merged(work)
    while upkeep.is_changing:
        switch(upkeep)
    assert upkeep.dropped_bytes == upkeep.manifest.dropped_bytes == 30


def test_nothing_goes_while_somebody_holds_it():
    """Neither files nor segments, until the last one lets go; nor is a segment used again."""
    upkeep = upkeep_of(manifest())
    upkeep._options = replace(OPTIONS, table_log=0)
    flushed(upkeep)
    upkeep.hold()
    upkeep.hold()
    switch(upkeep)
    for _ in range(2):
        assert upkeep.next_removal() is None
        assert upkeep.take_free() is None
        upkeep.release()
    assert upkeep.take_free() == 2
    assert upkeep.next_removal() == Remove((3,), ())


def test_removals():
    """One at a time; one that failed is tried again, with what has come meanwhile; at the end all of it is known."""
    upkeep = upkeep_of(manifest())
    upkeep.abandon([9])
    assert upkeep.next_removal() == Remove((9,), ())
    upkeep.abandon([8])
    assert upkeep.next_removal() is None
    assert upkeep.leftovers() == ((8, 9), ())
    upkeep.removal_failed()
    assert sorted(upkeep.next_removal().segments) == [8, 9]
    upkeep.removed()
    assert upkeep.next_removal() is None
    assert upkeep.leftovers() == ((), ())


def test_runs_that_change_places():
    """A merged run has the place of its inputs; a stretch that of the files it replaces, in the order of keys."""
    young = tuple(map(run, "abcd"))
    assert place_of(young, [("b.gkv",), ("c.gkv",)]) == 1
    assert place_of(young, []) == 0
    merged = with_merged(young, [("b.gkv",), ("c.gkv",)], (file("n.gkv", 0),))
    assert [one.files[0].name for one in merged] == ["a.gkv", "n.gkv", "d.gkv"]
    assert with_merged(young, [("a.gkv",)], ()) == young[1:]
    with pytest.raises(AssertionError, match="neighbour"):
        place_of(young, [("a.gkv",), ("c.gkv",)])
    oldest = Run((file("x.gkv", 0, 4), file("y.gkv", 5, 9), file("z.gkv", 10)))
    there = with_stretch(oldest, Output(("y.gkv",), (file("1.gkv", 5), file("2.gkv", 7)), is_last=False))
    assert [one.name for one in there.files] == ["x.gkv", "1.gkv", "2.gkv", "z.gkv"]
    with pytest.raises(AssertionError, match="what is there"):
        with_stretch(oldest, Output(("other.gkv",), (), is_last=False))
