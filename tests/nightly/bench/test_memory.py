"""The benchmark of data larger than memory stops at a wrong value, and finds a cgroup of either version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench import data
from tests.bench.measurement import WrongAnswerError
from tests.bench.memory import cgroup, disk
from tests.bench.memory.reader import BATCHES, RUN, SCANS, UNIFORM, ZIPF, Asker
from tests.bench.peers.python_dict import PythonDict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.data import Record

COUNT = 300


def asker(made: list[Record], right: list[Record]) -> Asker:
    """Return an asker of a dict of `made` that expects `right`."""

    class Ordered(PythonDict):
        def get_many(self, keys: list[bytes]) -> list[bytes | None]:
            return [self.get(key) for key in keys]

        def first(self, start: bytes, count: int) -> list[Record]:
            return sorted(record for record in made if record[0] >= start)[:count]

    right = sorted(right)
    return Asker(Ordered(made), len(right), [(right[0][0].decode(), data.checksum(right[:RUN]))])


@pytest.mark.parametrize("shape", [UNIFORM, ZIPF, BATCHES, SCANS])
def test_a_wrong_value_stops_the_reader(shape: str) -> None:
    """Right values are counted; a wrong or missing value ends the turn."""
    made = data.mixed(COUNT)
    turn = asker(made, made).turn(shape, 0.01, 1)
    assert turn.units > 0
    assert turn.busy_ns > 0
    for wrong in ([(key, value[:-1] + b"?") for key, value in made], made[:1]):
        with pytest.raises(WrongAnswerError, match="dict: "):
            asker(wrong, made).turn(shape, 0.01, 1)


def test_records_differ() -> None:
    """Keys and values have their size, and no two are equal."""
    made = data.mixed(10_000)
    assert {len(key) + len(value) for key, value in made} == {data.RECORD_BYTES}
    assert len({key for key, _ in made}) == len({value for _, value in made}) == len(made)
    assert data.checksum(made[:2]) != data.checksum(made[1::-1])


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        ("4:memory:/a/b\n0::/c\n", "cgroup {0}/v1 cgroup rw,memory 0 0\ncgroup2 {0}/v2 cgroup2 rw 0 0\n",
         ["v1/a/b", "v1/a", "v1", "v2/c", "v2"]),
        ("0::/c\n", "cgroup2 {0}/v2 cgroup2 rw 0 0\n", ["v2/c", "v2"]),
        ("0::/away\n", "cgroup2 {0}/v2 cgroup2 rw 0 0\n", ["v2"]),
        ("3:cpu:/a\n", "cgroup {0}/v1 cgroup rw,cpu 0 0\nproc /proc proc rw 0 0\n", []),
    ],
    ids=["both", "version 2", "a namespace", "no memory"],
)  # fmt: skip
def test_where_a_group_may_be_made(tmp_path: Path, groups: str, mounts: str, expected: list[str]) -> None:
    """Groups may be made in or above this process' group, in the hierarchy that limits memory."""
    for place in ("v1/a/b", "v2/c"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mounts").write_text(mounts.format(tmp_path))
    assert list(cgroup.parents(tmp_path)) == [tmp_path / place for place in expected]


def test_the_loop_in_c_reads(tmp_path: Path) -> None:
    """The loop reads at each depth, and refuses a file without pages."""
    path = tmp_path / "pages"
    path.write_bytes(bytes(64 << 10))
    for threads in (1, 8):
        assert min(disk.read(path, threads, 0.01, 1)) > 0
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match="direct_reads"):
        disk.read(path, 1, 0.01, 1)
