"""Segments are made as a whole or not at all, and are read in parts as if at once."""

from __future__ import annotations

import errno
import random
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.directories import make_directory
from gossipkv.storage.engine import segments
from gossipkv.storage.engine._engine import BATCH, BEGIN, HEADER_BYTES, MARK, NEXT, FrameBuffer, operations
from gossipkv.storage.engine.log_reader import MARK_BYTES, SLICE_BYTES, LogCursor, LogPlace, LogReader
from gossipkv.storage.engine.manifest import LOG, SegmentName, segment_path
from gossipkv.storage.engine.segments import (
    PART_BYTES,
    SegmentHeader,
    SegmentReader,
    decode_header,
    encode_header,
    make_segment,
    next_name,
    read_segment,
)
from tests.oracle import log as oracle
from tests.unit.storage.engine.logs import (
    ROOT,
    SEGMENT_BYTES,
    STEPS,
    STORE,
    Disk,
    Faulty,
    Log,
    Real,
    next_payload,
    salt_of,
)
from tests.world.faulty_files import Action, Crash, Fault

WORD = st.integers(0, 2**64 - 1)
HEADERS = st.builds(SegmentHeader, WORD, WORD, WORD, WORD, WORD)
HEADER = SegmentHeader(STORE, 7, salt_of(7), 3, SEGMENT_BYTES)
PATH = segment_path(ROOT, 7)


def disk_with_log():
    disk = Disk()
    make_directory(disk, ROOT / LOG)
    return disk


def content(files, path):
    descriptor = files.open(path)
    data = files.pread(descriptor, files.size(descriptor), 0)
    files.close(descriptor)
    return data


@given(HEADERS)
def test_a_header_has_the_bytes_of_the_format(header):
    """The oracle writes the same bytes, and they are read back."""
    data = encode_header(header)
    assert data == oracle.header(*header)
    assert decode_header(data, "it") == header


@given(HEADERS, st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_damaged_header_is_noticed(header, at, difference):
    data = bytearray(encode_header(header))
    data[at] ^= difference
    with pytest.raises(Corrupt, match=r"^it: damaged at byte"):
        decode_header(bytes(data), "it")
    with pytest.raises(Corrupt, match="cut short"):
        decode_header(bytes(data[:at]), "it")


def test_a_header_of_another_kind_or_time():
    """A newer format is distinguished from damage; another kind of document is damage, since its name was the log's."""
    for number, writer in ((2, "a newer GossipKV"), (0, "an older GossipKV")):
        with pytest.raises(UnsupportedFormat, match=f"format {number}, and this program reads format 1: {writer}"):
            decode_header(oracle.header(1, 2, 3, 4, 5, format_number=number), "it")
    with pytest.raises(Corrupt, match="not synced"):
        decode_header(oracle.header(1, 2, 3, 4, 5, is_synced=0), "it")
    other = bytearray(oracle.header(1, 2, 3, 4, 5)[:60])
    other[:8] = b"GKVSORT\n"
    other += oracle.crc32c(bytes(other)).to_bytes(4, "little")
    with pytest.raises(Corrupt, match="not a segment"):
        decode_header(bytes(other).ljust(HEADER_BYTES, b"\0"), "it")


@given(WORD, WORD)
def test_payloads(number, salt):
    assert next_name(next_payload(SegmentName(number, salt))) == (number, salt)


@pytest.mark.parametrize("recycled", [False, True])
@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_segment_is_made_whole_or_not_at_all(recycled, action):
    """No loss of power removes a finished segment, and an unfinished one is not taken for one."""
    old = HEADER._replace(number=5, salt=salt_of(5))

    def fresh():
        disk = disk_with_log()
        if recycled:
            make_segment(disk, ROOT, old)
        return disk

    def work(files):
        make_segment(files, ROOT, HEADER, 5 if recycled else None)

    calm = Faulty(fresh())
    work(calm)
    assert content(calm.inner, PATH)[:HEADER_BYTES] == encode_header(HEADER)
    steps = sum(calm.counts[kind] for kind in STEPS)
    assert steps == (4 if recycled else 5)
    for at in range(steps):
        for seed in range(20):
            disk = fresh()
            faulty = Faulty(disk, Fault(at, action, kinds=STEPS))
            with pytest.raises(Crash):
                work(faulty)
            assert faulty.struck
            found = disk.power_loss(seed)
            held = []
            for entry in found.list_directory(ROOT / LOG):
                try:
                    with SegmentReader(found, ROOT / LOG / entry.name) as reader:
                        if entry.name == f"{reader.header.number:016d}.log":
                            held.append(reader.header)
                except Corrupt:
                    pass
            assert held in ([], [HEADER], [old])
            if at == steps - 1 and action is Action.CRASH_AFTER:
                assert held == [HEADER]


@pytest.mark.parametrize("kind", ["allocate", "create", "pwrite", "sync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_segment_that_is_refused_leaves_nothing(kind, number):
    """The system's error passes on, and the free space is as before."""
    disk = disk_with_log()
    free = disk.free_bytes("/")
    faulty = Faulty(disk, Fault(0, Action.FAIL_HALFWAY, kinds={kind}, error=number))
    with pytest.raises(OSError, match=re.escape(f"[Errno {number}]")):
        make_segment(faulty, ROOT, HEADER)
    assert disk.list_directory(ROOT / LOG) == []
    assert disk.free_bytes("/") == free
    make_segment(disk, ROOT, HEADER)


def test_a_full_disk_refuses_a_segment():
    """The space of a segment is allocated at once, so that no later write finds the disk full."""
    disk = Disk(capacity_bytes=SEGMENT_BYTES - 1)
    make_directory(disk, ROOT / LOG)
    with pytest.raises(OSError, match="No space"):
        make_segment(disk, ROOT, HEADER)
    assert disk.list_directory(ROOT / LOG) == []
    disk.capacity_bytes = SEGMENT_BYTES
    make_segment(disk, ROOT, HEADER)
    assert len(content(disk, PATH)) == SEGMENT_BYTES


def test_a_number_is_given_once():
    disk = disk_with_log()
    make_segment(disk, ROOT, HEADER)
    with pytest.raises(FileExistsError):
        make_segment(disk, ROOT, HEADER._replace(salt=1))


def test_a_recycled_file_keeps_its_place():
    """The old name is gone, and the old bytes are still there, but none counts."""
    log = Log.made()
    log.put()
    log.sync()
    old = content(log.files, segment_path(ROOT, 1))
    make_segment(log.files, ROOT, HEADER, 1)
    new = content(log.files, PATH)
    assert new == encode_header(HEADER) + old[HEADER_BYTES:]
    assert [entry.name for entry in log.files.list_directory(ROOT / LOG)] == [PATH.name]
    with SegmentReader(log.files, PATH) as reader:
        assert [*reader.frames()] == []


@pytest.mark.parametrize("size", [SEGMENT_BYTES - 4096, SEGMENT_BYTES + 4096])
def test_a_recycled_file_of_another_size_is_not_used(size):
    """A file of the right size is made instead."""
    disk = disk_with_log()
    make_segment(disk, ROOT, HEADER._replace(number=5, size_bytes=size))
    make_segment(disk, ROOT, HEADER, 5)
    assert [(entry.name, entry.size_bytes) for entry in disk.list_directory(ROOT / LOG)] == [(PATH.name, SEGMENT_BYTES)]


def test_real_files(tmp_path):
    """On a real disk the blocks are allocated."""
    files = Real()
    (tmp_path / LOG).mkdir()
    make_segment(files, tmp_path, HEADER)
    path = tmp_path / LOG / PATH.name
    assert path.stat().st_size == SEGMENT_BYTES
    assert path.stat().st_blocks * 512 >= SEGMENT_BYTES
    with SegmentReader(files, path) as reader:
        assert reader.header == HEADER


# Reading -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_frames_of_any_length_are_read_across_parts(seed):
    """Parts of a segment end anywhere within frames, and some frames are longer than a part."""
    chance = random.Random(seed)
    frames = FrameBuffer(HEADER.salt)
    expected = []
    for position in range(1, chance.randrange(2, 60)):
        size = chance.choice([1, 100, 5000, 60_000, 400_000])
        if chance.random() < 0.02:
            size = 3 * PART_BYTES
        payload = chance.randbytes(size)
        frames.append(BATCH, position, position - 1, payload)
        expected.append((position, payload))
    disk = disk_with_log()
    header = HEADER._replace(size_bytes=HEADER_BYTES + frames.size_bytes + chance.randrange(0, 5000))
    make_segment(disk, ROOT, header, fill=lambda descriptor: disk.pwrite(descriptor, frames.view(), HEADER_BYTES))
    with SegmentReader(disk, PATH) as reader:
        assert [(frame.position, frame.payload) for frame in reader.frames()] == expected
        assert reader.offset == HEADER_BYTES + frames.size_bytes
        assert reader.position == len(expected)
        assert reader.claims(1) == 0
    third = expected[len(expected) // 2]
    with SegmentReader(disk, PATH) as reader:
        offset = next(frame.offset for frame in reader.frames() if frame.position == third[0])
    with SegmentReader(disk, PATH, offset, third[0] - 1) as reader:
        assert [(frame.position, frame.payload) for frame in reader.frames()] == expected[len(expected) // 2 :]
    with SegmentReader(disk, PATH) as reader:
        assert reader.claims(1) == len(expected) - 1


def test_a_file_that_is_cut_while_it_is_read():
    """The offset of the damage is the present end."""
    frames = FrameBuffer(HEADER.salt)
    frames.append(BATCH, 1, 0, bytes(PART_BYTES * 2))
    disk = disk_with_log()
    header = HEADER._replace(size_bytes=PART_BYTES * 4)
    make_segment(disk, ROOT, header, fill=lambda descriptor: disk.pwrite(descriptor, frames.view(), HEADER_BYTES))

    class Cut(Faulty):
        def pread(self, descriptor, size_bytes, offset):
            return super().pread(descriptor, size_bytes, offset)[: max(0, 50_000 - offset)]

    with SegmentReader(Cut(disk), PATH) as reader, pytest.raises(Corrupt, match="cut short") as error:
        [*reader.frames()]
    assert error.value.offset == 50_000


def test_a_segment_up_to_its_end():
    """With an end, every frame before it is read, or the missing one is damage; without one, the valid frames."""
    log = Log.made()
    for _ in range(3):
        log.put()
    log.sync()

    def read(**bounds):
        return [frame.position for frame in read_segment(log.files, ROOT, log.name, STORE, **bounds)]

    starts = [frame.offset for frame in read_segment(log.files, ROOT, log.name, STORE)]
    assert read() == read(end=log.end) == [1, 2, 3, 4]
    assert read(end=starts[2]) == [1, 2]
    with pytest.raises(Corrupt, match="is damaged") as error:
        read(end=log.end + 8)
    assert (error.value.file, error.value.offset) == (str(segment_path(ROOT, 1)), log.end)
    with pytest.raises(Corrupt, match="another store"):
        next(read_segment(log.files, ROOT, log.name, STORE + 1))


# Batches for followers -----------------------------------------------------------------------------------------------


def followed(log):
    """Return a reader of the log, and the segments as the engine knows them."""
    recovered, _ = log.recover()
    found = [*recovered.kept, *recovered.segments, recovered.cut]
    return LogReader(ROOT, STORE), [segment for segment in found if segment.first]


def read(reader, files, cursor, named, synced, *, most_bytes=SLICE_BYTES):
    """Return the next batches for a cursor, as a store reads them; None at the end."""
    for _ in range(10_000):
        part = reader.next(cursor, named, synced, most_bytes)
        if part is None:
            return None
        told = part.read(files)
        if told.trouble is not None:
            raise told.trouble
        if reader.advance(cursor, told.place, named[0].first - 1):
            return told.batches
    raise AssertionError("it never comes to the cursor's position")


@cache
def long_log():
    """Return some segments of two lives; the log must not be changed."""
    log = Log.made()
    for number in range(40):
        log.put(500)
        log.sync()
        if number == 20:
            log = log.reopened()
    return log


@given(st.data())
def test_slices_of_batches(data):
    """From any position, in slices of any size, all synced batches that touch the spaces are read once."""
    log = long_log()
    reader, found = followed(log)
    cursors = []
    for _ in range(4):
        synced = data.draw(st.sampled_from([position for position, _ in log.shown]))
        named = found[data.draw(st.integers(0, len(found) - 1)) :]
        if cursors and data.draw(st.booleans()):
            cursor = data.draw(st.sampled_from(cursors))
            named = named if named[0].first - 1 <= cursor.position else found
        else:
            position = data.draw(st.sampled_from([0, *(position for position, _ in log.shown)]))
            spaces = data.draw(st.sampled_from([{1}, {1, 2}, {2}]))
            cursor = LogCursor(frozenset(spaces), max(position, named[0].first - 1))
            cursors.append(cursor)
        most_bytes = data.draw(st.integers(1, 5000))
        least = cursor.position
        pages = []
        while (page := read(reader, log.files, cursor, named, synced, most_bytes=most_bytes)) is not None:
            assert len(page) <= 1 or sum(len(told[0][3]) for _, told in page) <= most_bytes
            assert [position for position, _ in page if position > cursor.position] == []
            pages += page
        expected = [(at, operations(payload)) for at, payload in log.shown if least < at <= synced]
        assert pages == (expected if 1 in cursor.spaces else [])
        assert cursor.position >= min(synced, max([least, *(at for at, _ in expected)]))


class Noted(Faulty):
    """Records the offsets and sizes of reads, without headers."""

    def __init__(self, inner):
        super().__init__(inner)
        self.read = []

    def pread(self, descriptor, size_bytes, offset):
        if offset:
            self.read.append((offset, size_bytes))
        return super().pread(descriptor, size_bytes, offset)


def one_long_segment(size=1000, count=200, segment_bytes=4 << 20):
    """Return a log of one segment, with its reader and recording files."""
    log = Log.made(segment_bytes=segment_bytes)
    for _ in range(count):
        log.put(size)
    log.sync()
    return log, *followed(log), Noted(log.files)


def test_followers_do_not_send_each_other_back():
    """Two followers, one batch apart, read each part once, and batch by batch no more than the batch."""
    log, reader, found, files = one_long_segment()
    positions = [position for position, _ in log.shown]
    early, late = (LogCursor(frozenset({1}), 0) for _ in range(2))
    for before, synced in pairwise(positions):
        assert read(reader, files, early, found, synced, most_bytes=3000) is not None
        assert read(reader, files, late, found, before, most_bytes=3000) is not None
    assert (early.position, late.position) == (positions[-1], positions[-2])
    offsets = [offset for offset, _ in files.read]
    assert offsets[::2] == sorted(set(offsets[::2]))
    assert offsets[1::2] == sorted(set(offsets[1::2]))
    assert len(offsets) == 2 * (len(positions) - 1)


def test_a_follower_far_behind_takes_a_slice():
    """A read takes a slice, or a whole frame if that is longer."""
    log, reader, found, files = one_long_segment()
    cursor = LogCursor(frozenset({2}), 0)
    while read(reader, files, cursor, found, log.synced, most_bytes=8000) is not None:
        pass
    assert cursor.position == log.synced
    assert max(size for _, size in files.read) == 8000
    log, reader, found, files = one_long_segment(size=10_000, count=3)
    cursor = LogCursor(frozenset({1}), log.shown[0][0])
    assert read(reader, files, cursor, found, log.synced, most_bytes=100) == [
        (log.shown[1][0], operations(log.shown[1][1]))
    ]
    assert max(size for _, size in files.read) < 11_000


def test_a_new_cursor_begins_at_a_mark():
    """A cursor in the middle of a read segment starts at a mark nearby, not at the segment's start."""
    log, reader, found, files = one_long_segment(size=20_000, count=150)
    cursor = LogCursor(frozenset({1}), 0)
    while read(reader, files, cursor, found, log.synced) is not None:
        pass
    assert len(reader._marks) <= 1 + log.end // MARK_BYTES
    for position, _ in log.shown[::20]:
        files.read.clear()
        assert read(reader, files, LogCursor(frozenset({1}), position), found, log.synced)[0][0] == position + 1
        assert sum(size for _, size in files.read) <= MARK_BYTES + 3 * SLICE_BYTES
    before = len(reader._marks)
    assert reader.advance(LogCursor(frozenset(), 0), LogPlace(log.synced, 2, HEADER_BYTES), log.synced)
    assert len(reader._marks) == 1 < before, "what was let go of has no marks"


def test_damage_is_not_passed_over():
    """A synced frame that does not hold, and segments that do not follow each other, raise."""
    log = long_log()
    _, named = followed(log)

    def follow(files, segments):
        reader, cursor = LogReader(ROOT, STORE), LogCursor(frozenset({1}), 0)
        while read(reader, files, cursor, segments, log.synced) is not None:
            pass

    for number, offset in ((named[1].name.number, HEADER_BYTES + 700), (log.name.number, log.end - 40)):
        broken = replace(log, files=log.files.copied())
        broken.overwrite(number, offset, b"\xff\xff")
        with pytest.raises(Corrupt) as error:
            follow(broken.files, named)
        assert error.value.file == str(segment_path(ROOT, number))
        assert offset - 600 <= error.value.offset <= offset
    with pytest.raises(Corrupt, match="is damaged"):
        follow(log.files, [named[0], *named[2:]])


# For people ----------------------------------------------------------------------------------------------------------


def test_the_names_of_frames():
    """The constants are those of the oracle."""
    assert segments.FORMAT == 1
    assert {BATCH, MARK, NEXT, BEGIN} == {oracle.BATCH, oracle.MARK, oracle.NEXT, oracle.BEGIN}
