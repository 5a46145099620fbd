"""The manifest reads back as written, is refused if invalid, and is switched as a whole."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.document import encode, read_document
from gossipkv.storage.engine.manifest import (
    KIND,
    MANIFEST,
    LifeEnd,
    RunFile,
    SegmentName,
    SortedRun,
    StoreManifest,
    describe_store,
    read_manifest,
    write_manifest,
)
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

ROOT = PurePosixPath("/tables")

words = st.integers(0, 2**64 - 1)
names = st.builds(SegmentName, words, words)
ends = st.builds(LifeEnd, words, words, words, words, names)


@st.composite
def runs(draw):
    keys = sorted(draw(st.sets(st.binary(min_size=1, max_size=40), max_size=8)))
    files = [
        RunFile(
            f"{draw(st.integers(0, 10**9)):08d}-{draw(st.integers(0, 10**5)):04d}.gkv",
            *(draw(words) for _ in range(3)),
            first,
            last,
            draw(words),
        )
        for first, last in itertools.zip_longest(keys[::2], keys[1::2], fillvalue=keys[-1] if keys else b"")
    ]
    return SortedRun(tuple(files))


@st.composite
def manifests(draw):
    spaces = draw(st.frozensets(st.integers(0, 2**32 - 1), max_size=6))
    low, high = sorted((draw(names), draw(names)))
    return StoreManifest(
        store=draw(words),
        life=draw(st.integers(1, 2**64 - 1)),
        spaces=spaces,
        next_space=draw(st.integers(max(spaces, default=0) + 1, 2**32)),
        next_merge=draw(words),
        recovery_floor=high,
        log_floor=low,
        lives=tuple(draw(st.lists(ends, max_size=3))),
        young=tuple(draw(st.lists(runs(), max_size=3))),
        oldest=draw(runs()),
        dropped_bytes=draw(words),
        kept=(low,) if low != high else (),
    )


def disk():
    files = SimulatedFiles()
    files.make_directory(ROOT)
    files.sync_directory("/")
    return files


def placed(document):
    """Return a disk with these bytes as the manifest."""
    files = disk()
    descriptor = files.open(ROOT / MANIFEST, WRITE_NEW)
    files.pwrite(descriptor, document, 0)
    files.close(descriptor)
    return files


PLAIN = StoreManifest(
    store=7,
    life=3,
    spaces=frozenset({1, 4}),
    next_space=6,
    next_merge=9,
    recovery_floor=SegmentName(5, 55),
    log_floor=SegmentName(4, 44),
    lives=(LifeEnd(2, 4, 5000, 66, SegmentName(5, 55)),),
    young=(SortedRun((RunFile("00000002-0001.gkv", 3, 900, 8, b"\0\0\0\x01a", b"\0\0\0\x01b", 1),)),),
    oldest=SortedRun((
        RunFile("00000001-0001.gkv", 3, 900, 8, b"\0\0\0\x01a", b"\0\0\0\x01b"),
        RunFile("00000001-0002.gkv", 3, 900, 8, b"\0\0\0\x04a", b"\0\0\0\x04a"),
    )),
    dropped_bytes=11,
    kept=(SegmentName(4, 44),),
)  # fmt: skip


@given(manifests())
def test_round_trips(manifest):
    """The manifest also replaces another one, and survives a loss of power."""
    files = disk()
    write_manifest(files, ROOT, PLAIN)
    write_manifest(files, ROOT, manifest)
    assert read_manifest(files, ROOT) == manifest
    assert read_manifest(files.power_loss(1), ROOT) == manifest


def test_what_it_says_of_itself():
    assert [file.name for file in PLAIN.run_files] == ["00000002-0001.gkv", "00000001-0001.gkv", "00000001-0002.gkv"]
    assert PLAIN.ended(4) == PLAIN.lives[0]
    assert PLAIN.ended(5) is None
    assert (PLAIN.oldest.records, PLAIN.oldest.size_bytes, PLAIN.young[0].tombstones) == (6, 1800, 1)


FILE = ["00000001-0001.gkv", 3, 900, 8, "00000001", "00000002", 0]
WRONG_NUMBERS = [-1, 2**64, 1.5, True, None, "1", [], {}]
WRONG_NAMES = [1, None, "", ".", "..", "a/b.gkv", "/a.gkv", "../a.gkv", "a\0.gkv", "a", "a.gkv\n"]
WRONG = {
    **dict.fromkeys(("store", "life", "next_space", "next_merge", "dropped_bytes"), WRONG_NUMBERS),
    "life": [*WRONG_NUMBERS, 0],
    "spaces": [None, 1, {}, "12", *([one] for one in WRONG_NUMBERS), [6], [2**32]],
    "next_space": [*WRONG_NUMBERS, 4, 2**32 + 1],
    "recovery_floor": [None, 5, [], [5], [5, 55, 1], *([5, one] for one in WRONG_NUMBERS), [3, 1]],
    "log_floor": [None, 5, [], [5], [5, 55, 1], *([one, 5] for one in WRONG_NUMBERS), [6, 1]],
    "kept": [
        None, 1, [1], [[]], [[4, 44, 1]], [[3, 44]], [[4, 44], [5, 55]], [], *([[4, one]] for one in WRONG_NUMBERS),
    ],
    "lives": [None, 1, [1], [[]], [[1] * 5], [[1] * 7], *([[1, 2, 3, 4, 5, one]] for one in WRONG_NUMBERS)],
    "young": [None, 1, [1], [[1]], [FILE], [[FILE[:6]]], [[[*FILE, 1]]]],
    "oldest": [
        None,
        1,
        [1],
        [FILE[:6]],
        [[*FILE, 1]],
        *([[name, *FILE[1:]]] for name in WRONG_NAMES),
        *([[*FILE[:at], one, *FILE[at + 1 :]]] for at in (1, 2, 3, 6) for one in WRONG_NUMBERS),
        *([[*FILE[:at], one, *FILE[at + 1 :]]] for at in (4, 5) for one in (None, 1, "0", "zz", [])),
        [[*FILE[:4], "02", "01", 0]],
        [FILE, FILE],
    ],
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_what_cannot_be_is_refused(key):
    """The checksum holds, so the error names the file, and no store is opened."""
    files = disk()
    write_manifest(files, ROOT, PLAIN)
    body = read_document(files, ROOT / MANIFEST, KIND)
    for wrong in WRONG[key]:
        found = placed(encode(KIND, {**body, key: wrong}))
        with pytest.raises(Corrupt) as refusal:
            pytest.fail(f"{wrong!r} is taken for {read_manifest(found, ROOT)}")
        assert refusal.value.details["file"] == str(ROOT / MANIFEST)
    left = {one: value for one, value in body.items() if one != key}
    with pytest.raises(Corrupt, match="MANIFEST"):
        read_manifest(placed(encode(KIND, left)), ROOT)


def test_every_byte_of_it_counts():
    """Every flipped byte and every truncation is refused."""
    files = disk()
    write_manifest(files, ROOT, PLAIN)
    descriptor = files.open(ROOT / MANIFEST)
    document = files.pread(descriptor, files.size(descriptor), 0)
    for at in range(len(document)):
        flipped = document[:at] + bytes([document[at] ^ 1]) + document[at + 1 :]
        for wrong in (flipped, document[:at]):
            with pytest.raises((Corrupt, UnsupportedFormat), match="MANIFEST"):
                read_manifest(placed(wrong), ROOT)


def test_a_newer_format_and_another_kind():
    """Neither is reported as damage."""
    for kind, number in ((KIND, 2), ("OTHER", 1)):
        with pytest.raises(UnsupportedFormat, match="MANIFEST"):
            read_manifest(placed(encode(kind, {}, format_number=number)), ROOT)
    with pytest.raises(FileNotFoundError):
        read_manifest(disk(), ROOT)


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER, Action.FAIL_HALFWAY])
def test_a_switch_is_done_or_not(action):
    """After a crash or a loss of power one of the manifests is read; a completed switch stays."""
    after = StoreManifest(7, 4, frozenset(), 6, 9, SegmentName(6, 1), SegmentName(6, 1))
    calm = FaultyFiles(disk())
    write_manifest(calm, ROOT, PLAIN)
    calm.counts.clear()
    write_manifest(calm, ROOT, after)
    found = set()
    for at in range(sum(calm.counts[kind] for kind in CHANGING)):
        files = disk()
        write_manifest(files, ROOT, PLAIN)
        with pytest.raises((Crash, OSError)):
            write_manifest(FaultyFiles(files, Fault(at, action, kinds=CHANGING)), ROOT, after)
        files.close_all()
        states = [files, *files.power_loss_states()]
        for state in states:
            manifest = read_manifest(state, ROOT)
            assert manifest in (PLAIN, after)
            found.add(manifest.life)
            write_manifest(state, ROOT, after)
            assert read_manifest(state, ROOT) == after
    assert found == {3, 4}


FILES = RealFiles()


def run_file(name, first, last):
    return RunFile(name, records=10, size_bytes=1000, seal=1, first=first, last=last)


def test_what_a_store_consists_of(tmp_path):
    """Runs come from the manifest, the log from its files; missing files of runs are counted."""
    for name in ("log", "runs"):
        (tmp_path / name).mkdir()
    manifest = StoreManifest(
        store=0xABC,
        life=4,
        spaces=frozenset({1, 5}),
        next_space=6,
        next_merge=3,
        recovery_floor=SegmentName(9, 1),
        log_floor=SegmentName(7, 2),
        kept=(SegmentName(7, 2),),
        young=(SortedRun((run_file("b.gkv", b"a", b"z"),)),),
        oldest=SortedRun((run_file("a1.gkv", b"a", b"k"), run_file("a2.gkv", b"l", b"z"))),
        dropped_bytes=77,
    )
    write_manifest(FILES, tmp_path, manifest)
    (tmp_path / "log" / "0000000000000009.log").write_bytes(bytes(4096))
    for name in ("a1.gkv", "b.gkv"):
        (tmp_path / "runs" / name).write_bytes(b"?")
    assert describe_store(FILES, tmp_path) == {
        "store": "0000000000000abc", "life": 4, "spaces": 2, "young_runs": 1, "run_files": 3, "missing_run_files": 1,
        "records": 30, "run_bytes": 3000, "dropped_bytes": 77, "segments": 1, "log_bytes": 4096,
        "recovered_from": 9, "log_kept_from": 7,
    }  # fmt: skip
    write_manifest(FILES, tmp_path, replace(manifest, young=(), oldest=SortedRun(())))
    shutil.rmtree(tmp_path / "runs")
    assert describe_store(FILES, tmp_path)["run_files"] == 0


def test_what_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError):
        describe_store(FILES, tmp_path)
    (tmp_path / "MANIFEST").write_bytes(b"")
    with pytest.raises(Corrupt, match="MANIFEST"):
        describe_store(FILES, tmp_path)
