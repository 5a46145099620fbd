"""The builder makes the oracle's file for any memory, order and way of adding, and all files of a build or none."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, LimitExceeded, StorageError
from gossipkv.storage.builder import BuildReport, SortedFileBuilder
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import (
    COMPRESSIONS,
    KEYS,
    MIN_BUDGET,
    RECORDS,
    VALUES,
    built,
    edge_cases,
    many,
)
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Sequence


Record = tuple[bytes, bytes]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def content(image: bytes) -> tuple:
    """Return the parts that no build of liblz4 may change."""
    file = oracle.File(image)
    file.check()
    f = file.footer
    return file.items(), file.index, file.anchors, file.metadata, f.seed, f.duplicates, f.compression, f.positions_end


def assert_same(image: bytes, expected: bytes, way: str) -> None:
    """Compare every byte; of native lz4 only the parts that liblz4 does not choose."""
    if way == "lz4":
        assert content(image) == content(expected)
    assert way == "lz4" or image == expected


@pytest.mark.parametrize(
    "records",
    [[], [(b"", b"")], [(b"k" * 65_535, b"v")], edge_cases(), many(20, 1000), many(21, 1000, keys=40)],
    ids=["nothing", "one empty", "one long key", "edges", "many", "duplicates"],
)
def test_the_oracles_bytes(records: list[Record], way: str) -> None:
    for metadata in (b"", b"built for a test"):
        expected = oracle.write(records, compression=COMPRESSIONS.index(way), metadata=metadata)
        assert_same(built(records, compression=way, metadata=metadata), expected, way)


@given(records=RECORDS, compression=st.sampled_from(COMPRESSIONS), metadata=st.binary(max_size=20))
def test_any_records(records: list[Record], compression: str, metadata: bytes) -> None:
    expected = oracle.write(records, compression=COMPRESSIONS.index(compression), metadata=metadata)
    assert_same(built(records, compression=compression, metadata=metadata), expected, compression)


@given(records=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 2)), max_size=40))
def test_any_groups(records: list[tuple[bytes, bytes, int]]) -> None:
    """Each file of a build holds its group's records, as if it were built alone."""
    files = MemoryFiles()
    names = ["c.gkv", "a.gkv", "b.gkv"]
    with SortedFileBuilder("d", names, files=files, memory_bytes=MIN_BUDGET) as building:
        for record in records:
            building.add(*record)
        reports = building.finish()
    for group, (name, report) in enumerate(zip(names, reports, strict=True)):
        mine = [(key, value) for key, value, at in records if at == group]
        image = bytes(files.named[f"d/{name}"])
        assert image == oracle.write(mine)
        assert report == BuildReport(len(dict(mine)), len(mine) - len(dict(mine)), len(image))


def test_limits(way: str) -> None:
    """The longest key and value are kept; a byte more is refused with its size, and no file is left."""
    longest = [(b"k" * 65_535, b"short"), (b"short", b"v" * (16 << 20))]
    with SortedFile(built(longest, compression=way)) as file:
        assert file.get_many([b"k" * 65_535, b"short"]) == [b"short", b"v" * (16 << 20)]
        assert file.get(b"k" * 65_536) is None
    for record in (
        (b"k" * 65_536, b""),
        (b"", bytes((16 << 20) + 1)),
        (b"k" * 10_000_000, b""),
        (b"", bytes(80 << 20)),
    ):
        files = MemoryFiles()
        with pytest.raises(LimitExceeded, match="at most"):
            build("d/a.gkv", [(b"a", b"b"), record], files=files, compression=way)
        assert not files.named
        assert not files.opened


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "zstd"}, "compression must be one of none, lz4, got 'zstd'"),
        ({"memory_bytes": MIN_BUDGET - 1}, f"memory_bytes must be at least {MIN_BUDGET}, got {MIN_BUDGET - 1}"),
    ],
)
def test_refuses_options(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SortedFileBuilder("d", ["a.gkv"], files=MemoryFiles(), **options)


@pytest.mark.parametrize("names", [[], ["a"] * 65_537])
def test_number_of_files(names: Sequence[str]) -> None:
    """A build makes 1 to 65,536 files."""
    with pytest.raises(LimitExceeded, match="65536"):
        SortedFileBuilder("d", names, files=MemoryFiles())


def test_progress() -> None:
    """Progress rises to the number of records, with replaced ones, and states the total."""
    told: list[tuple[int, int]] = []
    records = [(b"%d" % (number % 150_000), b"") for number in range(200_000)]
    with SortedFileBuilder(
        "d", ["a", "b"], files=MemoryFiles(), on_progress=lambda done, total: told.append((done, total))
    ) as building:
        building.add_all(records)
        building.add(b"other", b"", 1)
        assert building.added == 200_001
        building.finish()
    assert len(told) > 3
    assert told == sorted(told)
    assert {total for _, total in told} == {200_001}
    assert told[-1][0] == 200_001


def test_on_a_real_disk(tmp_path: Path) -> None:
    """The directory holds only the named files, and the report has their sizes."""
    with SortedFileBuilder(tmp_path, ["x.gkv", "y.gkv"], memory_bytes=MIN_BUDGET) as building:
        for number in range(60_000):
            building.add(b"%d" % number, b"v" * 40, number % 2)
        assert not names_in(tmp_path), "scratch files lose their names at once"
        reports = building.finish()
    assert names_in(tmp_path) == ["x.gkv", "y.gkv"]
    assert [report.size_bytes for report in reports] == [
        (tmp_path / name).stat().st_size for name in ("x.gkv", "y.gkv")
    ]
    assert [report.records for report in reports] == [30_000, 30_000]
    for number, name in enumerate(("x.gkv", "y.gkv")):
        with SortedFile(tmp_path / name) as file:
            file.verify()
            assert file.get(b"%d" % (2 + number)) == b"v" * 40
            assert file.get(b"%d" % (3 - number)) is None


def test_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert build("a.gkv", [(b"k", b"v")]) == BuildReport(1, 0, (tmp_path / "a.gkv").stat().st_size)
    assert build(Path("b.gkv"), iter([])).records == 0
    assert names_in(tmp_path) == ["a.gkv", "b.gkv"]


def test_replaces_the_file_as_a_whole() -> None:
    """The old file stays until the new one is synced."""
    files = MemoryFiles()
    build("d/a.gkv", [(b"k", b"old")], files=files)
    old = bytes(files.named["d/a.gkv"])
    with SortedFileBuilder("d", ["a.gkv"], files=files) as building:
        building.add(b"k", b"new")
        assert files.named["d/a.gkv"] == old
        files.synced.clear()
        building.finish()
    assert files.synced == ["d/a.gkv.tmp", "d"]
    assert files.named["d/a.gkv"] != old


def test_leaving_early_removes_everything() -> None:
    """An exception, or leaving without `finish`, leaves neither files nor descriptors."""
    for error in (KeyError("mine"), None):
        files = MemoryFiles()
        with contextlib.suppress(KeyError):
            with SortedFileBuilder("d", ["a.gkv", "b.gkv"], files=files, memory_bytes=MIN_BUDGET) as building:
                building.add_all((b"%d" % number, b"v" * 100) for number in range(50_000))
                assert files.scratch_open > 0
                if error:
                    raise error
            assert error is None, "an exception goes on after the clean-up"
        assert not files.named
        assert not files.opened


def test_failing_in_the_middle_of_finish() -> None:
    """A failed build removes its own files; earlier files stay."""

    class Stop(Exception):
        pass

    def stop(done: int, _total: int) -> None:
        if done > 1:
            raise Stop

    files = MemoryFiles()
    files.named["d/a.gkv"] = bytearray(b"before")
    building = SortedFileBuilder("d", ["a.gkv", "b.gkv"], files=files, on_progress=stop)
    building.add(b"k", b"v")
    building.add(b"l", b"v", 1)
    with pytest.raises(Stop), building:
        building.finish()
    assert files.named == {"d/a.gkv": b"before"}
    assert not files.opened


def test_leftovers_of_a_killed_build_go(tmp_path: Path) -> None:
    """An earlier build's leftovers are removed; other names stay."""
    for name in ("a.gkv.tmp", "run-3.tmp", "kept.gkv", "tmp"):
        (tmp_path / name).write_bytes(b"left")
    (tmp_path / "directory.tmp").mkdir()
    build(tmp_path / "a.gkv", [])
    assert names_in(tmp_path) == ["a.gkv", "directory.tmp", "kept.gkv", "tmp"]


def test_what_others_call_temporary_stays(tmp_path: Path) -> None:
    for name in ("notes.tmp", "other.csv.tmp", ".tmp"):
        (tmp_path / name).write_bytes(b"mine")
    build(tmp_path / "a.gkv", [])
    assert names_in(tmp_path) == [".tmp", "a.gkv", "notes.tmp", "other.csv.tmp"]


def test_refusals_of_the_file_system_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"missing.*cannot build sorted files: No such file"):
        build(tmp_path / "missing" / "a.gkv", [])
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file: cannot build sorted files: Not a directory") as refusal:
        build(tmp_path / "file" / "a.gkv", [])
    assert refusal.value.details["file"] == str(tmp_path / "file")
    (tmp_path / "a.gkv").mkdir()
    with pytest.raises(StorageError, match=r"a\.gkv.*cannot build sorted files: Is a directory"):
        build(tmp_path / "a.gkv", [])
    if os.geteuid() != 0:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        with pytest.raises(StorageError, match="Permission denied"):
            build(tmp_path / "a.gkv", [])


def test_a_disk_that_changes_what_was_put_aside() -> None:
    """Changed scratch bytes end the build, in runs, index and anchors alike."""
    files = MemoryFiles()
    files.lie = lambda data, offset: data[:-1] + bytes([data[-1] ^ 4]) if offset > 8 else data
    with pytest.raises(Corrupt, match=r"run-[\d-]+\.tmp: damaged"):
        build("d/a.gkv", many(24, 60_000), files=files, memory_bytes=MIN_BUDGET)
    assert not files.named
    assert not files.opened


@pytest.mark.parametrize("memory_bytes", [MIN_BUDGET, 1 << 30])
def test_after_finish(memory_bytes: int) -> None:
    """A finished build refuses records and a second finish, and its files stay."""
    files = MemoryFiles()
    building = SortedFileBuilder("d", ["a.gkv"], files=files, memory_bytes=memory_bytes)
    building.add_all((b"%d" % number, b"v" * 100) for number in range(50_000))
    building.finish()
    image = bytes(files.named["d/a.gkv"])
    for use in (partial(building.add, b"k", b"v"), partial(building.add_all, [(b"k", b"v")]), building.finish):
        with pytest.raises(ValueError, match="finished"):
            use()
    building.abort()
    assert files.named == {"d/a.gkv": image}


def test_wrong_use() -> None:
    """Malformed records and unknown groups are refused; earlier records are kept."""
    files = MemoryFiles()
    with SortedFileBuilder("d", ["a.gkv"], files=files) as building:
        building.add(b"k", b"v")
        with pytest.raises(ValueError, match="group must be below 1, got 1"):
            building.add(b"k", b"w", 1)
        with pytest.raises(TypeError):
            building.add("k", b"w")
        with pytest.raises(TypeError):
            building.add_all([(b"k", "w")])
        building.finish()
    with SortedFile(files.named["d/a.gkv"]) as file:
        assert list(file.scan()) == [(b"k", b"v")]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_file_is_written_in_aligned_pieces(compression: str) -> None:
    """Writes go front to back, 2 MiB at multiples of 2 MiB, which Linux can map by one page-table entry each."""

    class Recorder(MemoryFiles):
        """Records the offset and length of every write of a named file."""

        def __init__(self) -> None:
            super().__init__()
            self.writes: list[tuple[int, int]] = []

        def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
            if descriptor not in self._scratches:
                self.writes.append((offset, len(data)))
            super().pwrite(descriptor, data, offset)

    files = Recorder()
    source = random.Random(35)
    build("d/a.gkv", [(source.randbytes(9), source.randbytes(150)) for _ in range(60_000)], files=files)
    piece = 2 << 20
    *pieces, end_of_pages, (tail, tail_size) = files.writes
    assert len(pieces) >= 4
    assert pieces == [(number * piece, piece) for number in range(len(pieces))]
    assert end_of_pages == (len(pieces) * piece, tail - len(pieces) * piece)
    assert tail + tail_size == len(files.named["d/a.gkv"])
