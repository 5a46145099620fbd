"""Several lanes of one build make the oracle's files and a single lane's reports, for any split and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage import builder
from gossipkv.storage.builder import BuildReport, LaneBuilder, SortedFileBuilder, put_in_place, remove_leftovers
from gossipkv.storage.shared_build import combined, share_groups, share_out
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import KEYS, MIN_BUDGET, VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.environment.seam import Files


Grouped = tuple[bytes, bytes, int]


def names_of(count: int) -> list[str]:
    return [f"{number}.gkv" for number in range(count)]


def build_in_lanes(
    parts: Sequence[Sequence[Grouped]], groups: int, files: Files, *, memory_bytes: int = MIN_BUDGET
) -> tuple[list[BuildReport], bool]:
    """Build these parts, a lane each, in this process; return the reports, and True if the lanes had to exchange.

    The threads of a build do the same; here the lanes run one after the other.
    """
    names = names_of(groups)
    lanes = [
        LaneBuilder("d", names, files=files, memory_bytes=memory_bytes, lane=number) for number in range(len(parts))
    ]
    for lane, part in zip(lanes, parts, strict=True):
        for key, value, group in part:
            lane.add(key, value, group)
    shares = share_groups([lane.totals() for lane in lanes], groups)
    reports: dict[int, BuildReport] = {}
    runs = [run for lane in lanes for run in lane.put_aside()] if shares.exchange else None
    for lane, share in zip(lanes, shares.groups, strict=True):
        reports.update(zip(share, lane.write(shares.totals, share, runs), strict=True))
    for lane in lanes:
        lane.close()
    put_in_place("d", names, files)
    return [reports[group] for group in range(groups)], shares.exchange


def images(files: MemoryFiles, groups: int) -> list[bytes]:
    """Return the bytes of all files, and check that no other file exists."""
    assert sorted(files.named) == sorted(f"d/{name}" for name in names_of(groups))
    assert not files.opened
    return [bytes(files.named[f"d/{name}"]) for name in names_of(groups)]


def in_one_lane(records: Sequence[Grouped], groups: int) -> tuple[list[BuildReport], list[bytes]]:
    files = MemoryFiles()
    with SortedFileBuilder("d", names_of(groups), files=files, memory_bytes=1 << 30) as building:
        for record in records:
            building.add(*record)
        reports = building.finish()
    return reports, images(files, groups)


def split(records: Sequence[Grouped], cuts: Sequence[int]) -> list[Sequence[Grouped]]:
    at = sorted(cut % (len(records) + 1) for cut in cuts)
    return [records[start:stop] for start, stop in zip([0, *at], [*at, len(records)], strict=True)]


@given(
    records=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 4)), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_any_records_in_any_lanes(records: list[Grouped], cuts: list[int]) -> None:
    """The cases include empty lanes, empty groups, and keys that all lanes have."""
    files = MemoryFiles()
    reports, _ = build_in_lanes(split(records, cuts), 5, files)
    expected = [oracle.write([(k, v) for k, v, at in records if at == group]) for group in range(5)]
    assert images(files, 5) == expected
    assert reports == in_one_lane(records, 5)[0]


def test_what_comes_partitioned_is_not_exchanged() -> None:
    """Each lane writes its groups from memory; groups come in any order, and empty groups are shared out."""
    homes = [{7, 0}, {1, 3, 4}, {2}]
    parts = [[(b"key %d" % n, b"v", group) for n in range(200) for group in home] for home in homes]
    files = MemoryFiles()
    reports, exchanged = build_in_lanes(parts, 10, files)
    assert not exchanged
    assert files.scratch_opened == 0
    assert (reports, images(files, 10)) == in_one_lane([record for part in parts for record in part], 10)


def test_the_last_lanes_record_stays_and_each_is_counted_once() -> None:
    """Equal keys in all lanes, twice in each, are resolved as if one lane had read them in order."""
    parts = [[(b"%d" % (n % 50), b"%d of %d" % (n, lane), n % 2) for n in range(100)] for lane in range(4)]
    files = MemoryFiles()
    reports, _ = build_in_lanes(parts, 2, files)
    assert [(report.records, report.duplicates) for report in reports] == [(25, 175), (25, 175)]
    items = oracle.File(bytes(files.named["d/0.gkv"])).items()
    assert items == sorted((b"%d" % n, b"%d of 3" % (50 + n)) for n in range(0, 50, 2))


def test_the_least_that_is_common_is_the_prefix() -> None:
    """A longer prefix of one lane is cut to the prefix of all keys."""
    parts = [[(b"same:a1", b"", 0), (b"same:a2", b"", 0)], [(b"same:b", b"", 0)], []]
    files = MemoryFiles()
    build_in_lanes(parts, 1, files)
    assert oracle.Footer.unpack(files.named["d/0.gkv"][-256:]).prefix.rstrip(b"\0") == b"same:"


def test_totals_are_those_of_one_lane() -> None:
    """The sums agree even when the hashes exceed 64 bits."""
    records = [(b"%d" % n, b"v" * (n % 9), n % 3) for n in range(500)]
    lanes = []
    for part in (records, records[:100], records[100:350], records[350:]):
        lane = LaneBuilder("d", names_of(3), files=MemoryFiles(), lane=1)
        for record in part:
            lane.add(*record)
        lanes.append(lane.totals())
        lane.close()
    assert combined(lanes[1:]) == lanes[0]
    for group, total in lanes[0].groups.items():
        assert sum(lane.groups[group].hash_sum for lane in lanes[1:] if group in lane.groups) > total.hash_sum
        assert total.seed == oracle.seed_of(key for key, _, at in records if at == group)


@given(st.lists(st.integers(0, 50), max_size=9), st.integers(1, 5))
def test_shares_are_as_even_as_neighbours_can_be(sizes: list[int], count: int) -> None:
    """The shares are compared with all ways to cut."""

    def least(at: int, left: int) -> int:
        if left == 1:
            return sum(sizes[at:])
        return min(max(sum(sizes[at:stop]), least(stop, left - 1)) for stop in range(at, len(sizes) + 1))

    shares = share_out(sizes, count)
    assert len(shares) == count
    assert [at for share in shares for at in share] == list(range(len(sizes)))
    assert max(sum(sizes[at] for at in share) for share in shares) == least(0, count)


def test_a_lane_that_is_left_takes_its_runs_and_files_with_it() -> None:
    """Runs have no names, so only unfinished files need removal."""
    files = MemoryFiles()
    with LaneBuilder("d", names_of(2), files=files, memory_bytes=MIN_BUDGET, lane=3) as lane:
        lane.add_all(((b"%d" % n, bytes(200)) for n in range(20_000)), 1)
        lane.write(lane.totals(), [1], lane.put_aside())
        assert list(files.named) == ["d/1.gkv.tmp"]
        assert files.opened
    assert not files.named
    assert not files.opened


def test_what_a_killed_lane_leaves_is_removed_by_the_next_build() -> None:
    """The next build removes unfinished files and a run that still had its name, and nothing else."""
    files = MemoryFiles()
    lane = LaneBuilder("d", names_of(2), files=files, memory_bytes=MIN_BUDGET, lane=12)
    lane.add_all((b"%d" % n, bytes(200)) for n in range(20_000))
    lane.write(lane.totals(), [0], lane.put_aside())
    files.named["d/other.tmp"] = bytearray()
    left = files.named | {"d/run-12-9.tmp": bytearray()}
    files.named.update(left)
    assert len(left) > 2
    remove_leftovers("d", files)
    assert list(files.named) == ["d/other.tmp"]
    files.named.update(left)
    lane.abort()


def test_no_more_after_putting_aside() -> None:
    lane = LaneBuilder("d", names_of(1), files=MemoryFiles(), memory_bytes=builder.MIN_MEMORY_BYTES, lane=0)
    lane.add(b"k", b"v")
    lane.put_aside()
    with pytest.raises(ValueError, match="finished"):
        lane.add(b"k", b"v")
    with pytest.raises(ValueError, match="finished"):
        lane.write(lane.totals(), [0])
    lane.close()
