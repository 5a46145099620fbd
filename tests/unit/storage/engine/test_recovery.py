"""Recovery of the log cuts a torn tail, refuses damage, and keeps every batch that was shown."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.errors import Corrupt
from gossipkv.storage.engine import recovery
from gossipkv.storage.engine._engine import BATCH, HEADER_BYTES, NEXT
from gossipkv.storage.engine.manifest import LifeEnd, SegmentName, segment_path
from gossipkv.storage.engine.segments import make_segment
from tests.oracle import log as oracle
from tests.unit.storage.engine.logs import (
    LIFE_STEP,
    ROOT,
    SEGMENT_BYTES,
    STORE,
    Log,
    check,
    next_payload,
    path_of,
    payload_of,
    refused,
    salt_of,
)

STEP = st.sampled_from(["put", "put", "put", "long", "sync", "mark", "roll", "reopen", "kill", "power"])


def step_on(log, step, chance):
    """Return the log after a step; the end of a life may show unsynced batches, but loses no synced one."""
    match step:
        case "put":
            log.put(chance.randrange(100))
        case "long":
            log.put(chance.randrange(3000))
        case "sync":
            log.sync()
        case "mark":
            log.mark()
        case "roll":
            log.roll()
        case "reopen":
            log.sync()
            return reopen(log, log.files)
        case "kill":
            return reopen(log, log.files)
        case "power":
            return reopen(log, log.files.power_loss(chance.randrange(2**32)))
    return log


def reopen(log, files):
    """Return the log in its next life; check that it has every shown batch."""
    before = replace(log, files=files)
    expected = check(before)
    assert expected is not None, "a loss of power is no damage"
    together = log.shown + log.written
    again = before.reopened()
    assert again.shown == expected.batches
    assert again.shown == together[: len(again.shown)]
    assert len(again.shown) >= len(log.shown)
    return again


@settings(deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(0, 2**32))
def test_what_was_synced_stays_through_any_lives(steps, seed):
    """After any sequence of kills and losses of power a prefix remains, with every synced batch."""
    chance = random.Random(seed)
    log = Log.made()
    for step in steps:
        log = step_on(log, step, chance)
    log = reopen(log, log.files.power_loss(seed))
    assert reopen(log, log.files.power_loss(seed + 1)).shown == log.shown


def of_many_segments():
    """Return a log of three lives, whose segments follow each other by name or by the end of a life."""
    log = Log.made()
    for number in range(40):
        log.put(60 + number)
        log.sync()
        if number in {12, 25}:
            log = log.reopened()
    log.roll()
    for _ in range(5):
        log.put()
        log.sync()
    log.mark()
    return log


@settings(max_examples=settings.default.max_examples * 2)
@given(st.data())
def test_damage_anywhere_is_refused_or_harmless(data):
    """A flipped byte or a zeroed sector is refused where the oracle says, or every batch is read."""
    log = of_many_segments()
    files = log.bytes_of_files()
    number = data.draw(st.sampled_from(sorted(files)))
    offset = data.draw(st.one_of(st.integers(0, 200), st.integers(0, len(files[number]) - 1)))
    if data.draw(st.booleans()):
        log.overwrite(number, offset, bytes([files[number][offset] ^ data.draw(st.integers(1, 255))]))
    else:
        size = data.draw(st.sampled_from([1, 8, 512]))
        log.overwrite(number, offset, bytes(size)[: len(files[number]) - offset])
    outcome = check(log)
    if outcome is not None:
        last_frame = log.end - 32
        assert outcome.batches == log.shown or (number == log.name.number and offset + 512 > last_frame)


def test_every_byte_that_counts():
    """Each flipped byte of headers and frames is refused with file and offset, or every batch is read."""
    log = Log.made()
    for _ in range(3):
        log.put(5)
        log.sync()
    log.roll()
    log.put(5)
    log.mark()
    whole = log.bytes_of_files()
    ends = {1: max(frame.end for frame in oracle.frames(whole[1], salt_of(1))), 2: log.end}
    found = {"refused": 0, "harmless": 0}
    for number, end in ends.items():
        for offset in [*range(100), HEADER_BYTES - 1, *range(HEADER_BYTES, end + 9)]:
            log.overwrite(number, offset, bytes([whole[number][offset] ^ 0x41]))
            try:
                _, batches = log.recover()
            except Corrupt as error:
                assert error.file == path_of(number)
                assert error.offset <= max(offset, 60)
                found["refused"] += 1
            else:
                assert batches == log.shown
                found["harmless"] += 1
            log.overwrite(number, offset, whole[number][offset : offset + 1])
    # Only the last mark, 32 bytes, is confirmed by no other frame; bytes after it, or after the `next` frame, are
    # ignored.
    assert found["harmless"] == 32 + 9 + 9
    assert found["refused"] == 2 * 101 + ends[1] + ends[2] - 2 * HEADER_BYTES - 32


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES, HEADER_BYTES + 40, SEGMENT_BYTES - 1, SEGMENT_BYTES + 1])
@pytest.mark.parametrize("number", [1, 2])
def test_a_file_of_another_size(size, number):
    """No loss of power changes a file's size, so it is damage even if the frames hold."""
    log = Log.made()
    log.put()
    log.sync()
    log.roll()
    log.put()
    log.sync()
    data = log.bytes_of_files()[number]
    log.replace_file(number, data[:size].ljust(size, b"\0"))
    assert refused(log)[0] == path_of(number)


def test_any_torn_tail_is_cut():
    """For every subset of the sectors of three unsynced batches, the batches before the hole are kept."""
    log = Log.made()
    log.put(600)
    log.sync()
    base, start = log.bytes_of_files()[1], log.end
    ends = []
    for _ in range(3):
        log.put(600)
        ends.append(log.end)
    full = log.bytes_of_files()[1]
    sectors = range(start // 512, -(-log.end // 512))
    counts = {}
    for landed in range(2 ** len(sectors)):
        mixed = bytearray(base)
        for bit, sector in enumerate(sectors):
            if landed >> bit & 1:
                mixed[sector * 512 : sector * 512 + 512] = full[sector * 512 : sector * 512 + 512]
        log.replace_file(1, bytes(mixed))
        recovered, found = log.recover()
        expected = 0
        while expected < 3 and mixed[: ends[expected]] == full[: ends[expected]]:
            expected += 1
        assert len(found) == 1 + expected
        assert recovered.cut.end == ([start, *ends])[expected]
        counts[expected] = counts.get(expected, 0) + 1
    assert set(counts) == {0, 1, 2, 3}


def test_a_torn_frame_is_told():
    """The report has file and offset; without a begun frame there is no report."""
    log = Log.made()
    log.put()
    log.sync()
    assert log.recover()[0].torn is None
    start = log.end
    log.put(200)
    log.overwrite(1, start + 100, b"\0")
    assert log.recover()[0].torn == (path_of(1), start)


def test_a_lost_frame_is_not_followed_by_a_landed_one():
    """A torn segment is not continued.

    Frame A was lost, and a later frame B landed. If the segment went on at A's place, a new frame of A's length would
    make B valid. Here the new frame is in another segment with another salt, so B never returns.
    """
    log = Log.made()
    log.put()
    log.sync()
    start = log.end
    log.put(77)
    lost = log.end
    log.put(88)
    landed = log.written[-1]
    log.overwrite(1, start, bytes(lost - start))
    again = replace(log, written=[]).reopened()
    assert again.shown == log.shown
    for _ in range(3):
        assert landed not in again.shown
        again.put(77)
        again.sync()
        again = again.reopened()
    assert landed[1] not in [payload for _, payload in again.shown]
    assert len({position for position, _ in again.shown}) == len(again.shown) == 4


@pytest.mark.parametrize(
    "claims", ["in the same segment", "in a later one", "in one that nobody names", "a life's end"]
)
def test_whatever_says_that_it_was_synced_makes_it_damage(claims):
    """The claim is a frame after the hole, in a later segment, in an unnamed segment, or in the manifest."""
    log = Log.made()
    log.put()
    log.sync()
    hole = log.end
    log.put()
    if claims == "in the same segment":
        log.mark()
    elif claims == "in a later one":
        log.roll()
        log.put()
        log.sync()
    elif claims == "in one that nobody names":
        make_segment(log.files, ROOT, log.header(SegmentName(9, salt_of(9))))
        log.overwrite(9, SEGMENT_BYTES - 80, oracle.frame(salt_of(9), oracle.MARK, 900, log.position, b""))
    else:
        end = LifeEnd(1, 77, HEADER_BYTES, log.position, SegmentName(78, 1))
        log.manifest = replace(log.manifest, lives=(end,))
    log.overwrite(1, hole + 40, b"\xff")
    assert refused(log) == (path_of(1), hole)


def test_what_says_less_makes_it_a_tail():
    """Segments of another store, number or salt, and frames with true claims, make no damage."""
    log = Log.made()
    log.put()
    log.sync()
    hole = log.end
    log.put()
    claim = oracle.frame(salt_of(9), oracle.MARK, 900, log.position, b"")
    for number, header in (
        (9, log.header(SegmentName(9, salt_of(9)))._replace(store=STORE + 1)),
        (10, log.header(SegmentName(9, salt_of(9)))),
        (11, log.header(SegmentName(11, salt_of(11)))),
    ):
        make_segment(log.files, ROOT, header._replace(number=number))
        log.overwrite(number, HEADER_BYTES, claim)
        if number == 10:
            log.overwrite(number, 0, oracle.header(STORE, 9, salt_of(9), 1, SEGMENT_BYTES))
    make_segment(log.files, ROOT, log.header(SegmentName(12, salt_of(12))))
    log.overwrite(12, HEADER_BYTES, oracle.frame(salt_of(12), oracle.MARK, 900, log.synced, b""))
    log.overwrite(1, hole + 40, b"\xff")
    assert check(log).batches == log.shown
    recovered, _ = log.recover()
    assert sorted(path.name for path in recovered.strangers) == [f"{number:016d}.log" for number in (9, 10, 11, 12)]
    assert recovered.next_number == 13


def test_a_damaged_next_frame():
    """If the named segment has frames, this is damage; otherwise the crash came before the sync."""
    log = Log.made()
    log.put()
    log.sync()
    at = log.end
    log.roll()
    empty = replace(log, files=log.files.copied())
    empty.overwrite(1, at + 33, b"\xff")
    assert check(empty).batches == log.shown
    log.put()
    log.sync()
    log.overwrite(1, at + 33, b"\xff")
    assert refused(log) == (path_of(1), at)


@pytest.mark.parametrize("offset", [0, 8, 12, 16, 24, 32, 40, 48, 56, 60, 64, HEADER_BYTES - 1])
def test_a_named_segment_has_its_header(offset):
    """A segment is synced before it is named, so even the newest, empty one must have a valid header."""
    log = Log.made()
    log.put()
    log.sync()
    log.roll()
    log.overwrite(2, offset, bytes([log.bytes_of_files()[2][offset] ^ 1]))
    file, at = refused(log)
    assert file == path_of(2)
    assert at <= max(offset, 64)


def test_a_named_segment_is_there():
    """A missing file is damage, and not the end of the log."""
    log = of_many_segments()
    for number in (log.name.number, log.name.number - 1):
        gone = replace(log, files=log.files.copied())
        gone.files.unlink(segment_path(ROOT, number))
        assert refused(gone) == (path_of(number), 0)


def test_segments_that_are_swapped():
    """Each header has its segment's number."""
    log = of_many_segments()
    files = log.bytes_of_files()
    first, *_, last = sorted(files)
    log.replace_file(first, files[last])
    log.replace_file(last, files[first])
    file, offset = refused(log)
    assert (file, offset) == (path_of(first), 24)


def test_a_segment_of_another_store():
    """The segment is refused even if its number and its salt fit."""
    log = Log.made()
    log.overwrite(1, 0, oracle.header(STORE + 1, 1, salt_of(1), 1, SEGMENT_BYTES))
    assert refused(log) == (path_of(1), 16)


def test_a_segment_under_another_salt():
    """A recycled file is refused even under its old number."""
    log = Log.made()
    log.overwrite(1, 0, oracle.header(STORE, 1, salt_of(1) + 1, 1, SEGMENT_BYTES))
    assert refused(log) == (path_of(1), 32)


def test_a_doubled_tail_counts_once():
    """The positions of repeated frames are taken, so the frames are ignored."""
    log = Log.made()
    starts = []
    for _ in range(4):
        starts.append(log.end)
        log.put()
        log.sync()
    log.mark()
    data = log.bytes_of_files()[1]
    for start in starts:
        log.overwrite(1, log.end, data[start : log.end])
        assert check(log).batches == log.shown


def test_a_recycled_segment_whose_old_frames_line_up():
    """Old frames at the right place, with the next positions, have another salt."""
    log = Log.made()
    for _ in range(8):
        log.put(50)
        log.sync()
    old = log.name
    log.roll()
    log.put(50)
    log.sync()
    floor = log.name
    log.manifest = replace(log.manifest, recovery_floor=floor, log_floor=floor)
    log.position = 1  # The same as in the old frames, which would follow even here.
    log.synced = 1
    log.roll(recycled=old.number)
    log.manifest = replace(log.manifest, recovery_floor=log.name, log_floor=log.name)
    before = log.bytes_of_files()[log.name.number]
    assert [*oracle.frames(before, old.salt)], "the old frames are still there"
    for _ in range(3):
        log.put(50)
        log.sync()
    recovered, found = log.recover()
    assert found == log.shown[-3:]
    assert recovered.cut.end == log.end
    check(log)


def test_positions_that_skip():
    """A frame out of order is ignored; if a later frame claims the missing one as synced, that is damage."""
    log = Log.made()
    log.put()
    log.sync()
    at = log.end
    log.put_frame(BATCH, payload_of(9), log.position + 2)
    assert check(log).batches == log.shown
    log.overwrite(1, log.end, oracle.frame(salt_of(1), oracle.MARK, log.position + 1, log.position, b""))
    assert refused(log) == (path_of(1), at)


def test_a_segment_that_names_an_older_one():
    """Otherwise a walk might never end."""
    log = Log.made()
    at = log.end
    log.put_frame(NEXT, next_payload(SegmentName(1, salt_of(1))))
    with pytest.raises(Corrupt) as error:
        log.recover()
    assert (error.value.file, error.value.offset) == (path_of(1), at)
    log.manifest = replace(log.manifest, lives=(LifeEnd(1, 1, HEADER_BYTES, 1, SegmentName(1, salt_of(1))),))
    with pytest.raises(Corrupt, match="continues in a segment that is not newer"):
        log.recover()


def test_the_last_second_may_be_mistaken():
    """No frame confirms bytes after the last mark, so damage there looks like a torn tail."""
    log = Log.made()
    log.put()
    log.mark()
    at = log.end
    log.put()
    log.sync()
    log.overwrite(1, at + 40, b"\xff")
    assert check(log).batches == log.shown[:-1]


# Floors --------------------------------------------------------------------------------------------------------------


def with_kept():
    """Return a log with three segments kept for readers, and two for recovery."""
    log = Log.made()
    names = [log.name]
    for _ in range(4):
        log.put()
        log.sync()
        log.roll()
        names.append(log.name)
    log.put()
    log.sync()
    log.manifest = replace(log.manifest, recovery_floor=names[3], log_floor=names[0], kept=tuple(names[:3]))
    return log, names


def test_kept_segments_are_named_and_not_read():
    """Only headers and first frames of kept segments are checked at the opening."""
    log, names = with_kept()
    recovered, found = log.recover()
    assert [segment.name for segment in recovered.kept] == names[:3]
    assert [segment.first for segment in recovered.kept] == [1, 4, 6]
    assert [segment.name for segment in recovered.segments] == [names[3]]
    assert recovered.cut.name == names[4]
    assert found == log.shown[3:]
    assert recovered.strangers == ()


def test_a_kept_segment_that_does_not_hold():
    """Segments after the damaged one are kept; the others are removed later."""
    for offset in (20, HEADER_BYTES + 9):
        log, names = with_kept()
        log.overwrite(2, offset, b"\xee")
        recovered, found = log.recover()
        assert [segment.name for segment in recovered.kept] == names[2:3]
        assert found == log.shown[3:]
        assert path_of(2) in recovered.damage
        assert recovered.strangers == ()
        assert [*map(str, recovered.outlived[:2])] == [path_of(1), path_of(2)]
    log, names = with_kept()
    first = names[0]._replace(salt=1)
    log.manifest = replace(log.manifest, log_floor=first, kept=(first, *names[1:3]))
    recovered, _ = log.recover()
    assert "another salt" in recovered.damage
    assert [segment.name for segment in recovered.kept] == names[1:3]


def test_a_kept_segment_that_is_missing():
    """The walk along the names notices the gap."""
    log, _ = with_kept()
    log.files.unlink(segment_path(ROOT, 2))
    recovered, _ = log.recover()
    assert len(recovered.kept) == 1
    assert recovered.damage is not None


def test_a_kept_segment_that_cannot_be_read(monkeypatch):
    """A bad sector is damage; an error that may not recur is raised."""
    for error, is_refused in ((errno.EIO, False), (errno.EMFILE, True)):
        log, _ = with_kept()
        look = recovery.SegmentReader

        def refuse(files, path, *more, error=error, look=look, **options):
            if str(path) == path_of(2):
                raise OSError(error, os.strerror(error))
            return look(files, path, *more, **options)

        with monkeypatch.context() as patch:
            patch.setattr(recovery, "SegmentReader", refuse)
            if is_refused:
                with pytest.raises(OSError, match="open files"):
                    log.recover()
            else:
                assert "rror" in log.recover()[0].damage


def test_no_position_twice_when_kept_log_is_lost():
    """If no later frame tells the log's end, positions continue above every possible one, or the opening is refused."""
    log, names = with_kept()
    log.mark()
    log.roll()
    last = log.position
    log.manifest = replace(log.manifest, recovery_floor=log.name, kept=tuple(names))
    for number, offset in ((5, HEADER_BYTES + 9), (5, log.end + 9), (4, 20)):
        broken = replace(log, files=log.files.copied())
        broken.overwrite(number, offset, b"\xee")
        recovered, found = broken.recover()
        assert found == []
        assert recovered.last_position + LIFE_STEP > last
        assert recovered.last_position > 0
    for number in range(1, 6):
        log.overwrite(number, 20, b"\xee")
    refused_for = None
    try:
        log.recover()
    except Corrupt as error:
        refused_for = error.file
    assert refused_for == path_of(5)


def test_positions_go_on_above_what_was_merged():
    """If the segments that count are empty, the last position comes from the segment before."""
    log, names = with_kept()
    log.mark()
    log.roll()
    last = log.position
    log.manifest = replace(log.manifest, recovery_floor=log.name, kept=tuple(names))
    recovered, found = log.recover()
    assert found == []
    assert (recovered.position, recovered.last_position) == (last, last)
    assert recovered.cut.name == log.name
    assert recovered.cut.end == HEADER_BYTES
    again = log.reopened()
    assert again.position == last + LIFE_STEP
    assert again.recover()[0].kept[-1].name.number == log.name.number - 1
    # If the segment was cut to nothing and is the first one, the end of the life has the position.
    bare = replace(again, manifest=replace(again.manifest, log_floor=again.manifest.recovery_floor, kept=()))
    assert bare.recover()[0].last_position >= last


def test_the_first_group_of_a_segment_is_torn():
    """The segment before tells the position of the group, so it is a tail, and after a mark damage."""
    log, names = with_kept()
    log.roll()
    log.manifest = replace(log.manifest, recovery_floor=log.name, kept=tuple(names))
    at = log.end
    log.put()
    log.put()
    torn = replace(log, files=log.files.copied())
    torn.overwrite(log.name.number, at + 40, b"\xff")
    recovered, found = torn.recover()
    assert found == []
    assert recovered.torn == (path_of(log.name.number), at)
    log.mark()
    log.overwrite(log.name.number, at + 40, b"\xff")
    with pytest.raises(Corrupt) as error:
        log.recover()
    assert (error.value.file, error.value.offset) == (path_of(log.name.number), at)
