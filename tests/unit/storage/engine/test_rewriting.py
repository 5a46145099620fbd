"""The cut segment is rewritten as a whole and durably, or the log stays as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.errors import Corrupt
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import HEADER_BYTES
from gossipkv.storage.engine.manifest import LOG, LifeEnd, SegmentName, segment_path
from gossipkv.storage.engine.recovery import recover, rewrite
from gossipkv.storage.engine.segments import RESERVED_BYTES
from tests.oracle import log as oracle
from tests.unit.storage.engine.logs import (
    LIFE_STEP,
    ROOT,
    SEGMENT_BYTES,
    STEPS,
    Faulty,
    Log,
    check,
    path_of,
    refused,
    salt_of,
)
from tests.world.faulty_files import Action, Crash, Fault


def test_a_cut_segment_is_written_anew_whole():
    """The frames are the same under a new salt and number; none claims more as synced."""
    log = Log.made()
    for _ in range(5):
        log.put()
    log.sync()
    log.put()
    before = log.bytes_of_files()[1]
    recovered, _ = log.recover()
    name = SegmentName(recovered.next_number, 77)
    segment = rewrite(log.files, ROOT, recovered, log.header(name))
    assert segment == recovered.cut._replace(name=name)
    after = log.bytes_of_files()[2]
    assert [*oracle.frames(after, 77)] == [*oracle.frames(before, salt_of(1))]
    assert not any(after[segment.end :])
    durable = log.files.power_loss(0)
    assert Log(durable).bytes_of_files()[2] == after


@pytest.mark.parametrize("rolls", [1, 2, 3])
def test_empty_segments_are_left_out(rolls):
    """The last segment with a frame is cut, without the frame that names an empty one; later segments are removed."""
    log = Log.made()
    log.put()
    log.sync()
    end = log.end
    for _ in range(rolls):
        log.roll()
    recovered, found = log.recover()
    assert check(log).batches == found == log.shown
    # Segments between have only the frame that names the next one.
    assert (recovered.cut.name.number, recovered.cut.end) == (1, end)
    assert recovered.position == 2
    assert recovered.last_position == 2 + rolls
    assert len(recovered.outlived) == rolls + 1
    again = log.reopened()
    assert again.shown == log.shown
    assert sorted(again.bytes_of_files()) == [rolls + 2]
    assert again.position == 2 + rolls + LIFE_STEP


def test_a_full_segment_stays_full_through_many_lives():
    """Each life adds a frame, since no batch fits: the file grows, and never overflows."""
    log = Log.made()
    while log.name.number == 1:
        log.put(100)
    log.sync()
    full = Log.made()
    while full.end + 200 < SEGMENT_BYTES - RESERVED_BYTES:
        full.put(100)
    full.sync()
    shown = list(full.shown)
    for _ in range(150):
        full.roll()
        full = full.reopened()
        assert full.shown == shown
    assert full.end > SEGMENT_BYTES
    assert len(full.bytes_of_files()[full.name.number]) > full.end


def test_segments_of_another_size():
    """A store with smaller segments than before still has room for the last one's frames."""
    log = Log.made(segment_bytes=SEGMENT_BYTES * 4)
    while log.end < SEGMENT_BYTES * 2:
        log.put(500)
    log.sync()
    log.segment_bytes = SEGMENT_BYTES
    again = log.reopened()
    assert again.shown == log.shown
    size = len(again.bytes_of_files()[again.name.number])
    assert log.end + RESERVED_BYTES <= size <= log.end + RESERVED_BYTES + 4096


ACTIONS = [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER]


def opening(log, disk, fault=None):
    """Open the store on this disk, with a fault; return the faulty files and the manifest that holds afterwards."""
    faulty = Faulty(disk, *([] if fault is None else [fault]))
    switched = [log.manifest]
    broken = replace(log, files=faulty)

    def between(step):
        if step == "switched":
            switched.append(broken_manifest())

    def broken_manifest():
        cut, _ = log.recover() if log.files is disk else replace(log, files=disk).recover()
        name = SegmentName(cut.next_number - 1, salt_of(cut.next_number - 1))
        end = LifeEnd(log.manifest.life, cut.cut.name.number, cut.cut.end, cut.position, name)
        return replace(log.manifest, life=log.manifest.life + 1, lives=(*log.manifest.lives, end))

    try:
        broken.reopened(between=between)
    except Crash:
        assert faulty.struck
    return faulty, switched[-1]


def before_opening():
    """Return a log with unsynced frames, as a kill leaves it."""
    log = Log.made()
    log.put()
    log.sync()
    log.roll()
    for _ in range(3):
        log.put(300)
    log.sync()
    log.put(700)
    log.put(700)
    return log


@pytest.mark.parametrize("action", ACTIONS)
def test_a_crash_at_any_step_of_an_opening(action):
    """After a kill or a loss of power the next opening finds the shown batches and a prefix of the rest."""
    log = before_opening()
    calm, _ = opening(log, log.files.copied())
    steps = sum(calm.counts[kind] for kind in STEPS)
    assert steps >= 9
    for at in range(steps):
        for seed in (None, 1, 2, 3, 4):
            log = before_opening()
            disk = log.files
            faulty, manifest = opening(log, disk, Fault(at, action, kinds=STEPS))
            assert faulty.struck
            if seed is None:
                disk.close_all()
            else:
                disk = disk.power_loss(seed)
            after = replace(log, files=disk, manifest=manifest)
            expected = check(after)
            assert expected is not None
            assert log.shown == expected.batches[: len(log.shown)]
            assert expected.batches == (log.shown + log.written)[: len(expected.batches)]
            if manifest.life > 1:
                assert expected.batches == log.shown + log.written
            again = after.reopened()
            assert again.shown == expected.batches
            assert sorted(again.bytes_of_files()) == sorted({1, again.name.number})


def test_what_was_cut_and_never_switched_to_is_a_stranger():
    """After a crash between cut and switch the old segment is the log, and the fresh one is reported and removed."""
    log = before_opening()
    recovered, found = log.recover()
    name = SegmentName(recovered.next_number, 5)
    rewrite(log.files, ROOT, recovered, log.header(name))
    descriptor = log.files.open(ROOT / LOG / "other.tmp", 0o101)
    log.files.close(descriptor)
    again, batches = log.recover()
    assert batches == found
    assert again.cut == recovered.cut
    assert sorted(again.strangers) == [segment_path(ROOT, name.number), ROOT / LOG / "other.tmp"]
    assert again.next_number == name.number + 1
    works.remove(log.files, again.strangers)
    log.files.sync_directory(ROOT / LOG)
    assert sorted(log.bytes_of_files()) == [1, 2]
    assert log.recover()[0].strangers == ()
    assert sorted(Log(log.files.power_loss(3)).bytes_of_files()) == [1, 2]


def test_a_fresh_segment_that_lost_what_was_cut():
    """The manifest has the end of the complete frames, so a lost frame before it is damage."""
    log = before_opening()
    log.sync()
    recovered, _ = log.recover()
    name = SegmentName(recovered.next_number, salt_of(recovered.next_number))
    segment = rewrite(log.files, ROOT, recovered, log.header(name))
    end = LifeEnd(1, recovered.cut.name.number, recovered.cut.end, recovered.position, name)
    log.manifest = replace(log.manifest, life=2, lives=(end,))
    assert check(log).batches == log.shown
    log.overwrite(name.number, segment.end - 16, b"\xff" * 8)
    file, offset = refused(log)
    assert file == path_of(name.number)
    assert HEADER_BYTES < offset < segment.end


@pytest.mark.parametrize("kind", ["allocate", "create", "pwrite", "sync"])
def test_a_cut_segment_that_cannot_be_written_anew(kind):
    """The log is unchanged, and can be recovered once there is room."""
    log = before_opening()
    before = log.bytes_of_files()
    recovered, found = log.recover()
    name = SegmentName(recovered.next_number, 5)
    faulty = Faulty(log.files, Fault(0, Action.FAIL_HALFWAY, kinds={kind}))
    with pytest.raises(OSError, match="Input/output"):
        rewrite(faulty, ROOT, recovered, log.header(name))
    assert log.bytes_of_files() == before
    assert log.recover() == (recovered, found)


def test_a_cut_segment_that_changes_meanwhile():
    """A changed segment is refused, instead of being rewritten in part."""
    log = before_opening()
    recovered, _ = log.recover()
    log.overwrite(2, HEADER_BYTES + 40, b"\xff")
    name = SegmentName(recovered.next_number, 5)
    with pytest.raises(Corrupt, match="changed during recovery"):
        rewrite(log.files, ROOT, recovered, log.header(name))


def test_the_log_is_not_changed_by_looking():
    log = before_opening()
    faulty = Faulty(log.files)
    recover(faulty, ROOT, log.manifest, lambda *_: None)
    assert faulty.trace == []
