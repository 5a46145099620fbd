"""Shared runs give several readers any range of groups, without reading unwanted parts."""

from __future__ import annotations

import random
from itertools import count, pairwise

import pytest

from gossipkv.storage._storage import OrderedRecords, RecordSorter, RunReader, Runs, Scratch, SortedFileWriter
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles

ROOMY = 1 << 30
PART_BYTES = 1 << 18

Grouped = tuple[bytes, bytes, int]


class CountingFiles(MemoryFiles):
    read_bytes = 0

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        data = super().pread(descriptor, size_bytes, offset)
        self.read_bytes += len(data)
        return data


def write_runs(
    files: MemoryFiles, records: list[Grouped], memory_bytes: int = ROOMY
) -> tuple[RecordSorter, list[RunReader]]:
    """Write the records to runs that can be shared; the sorter owns the runs."""
    numbers = count()
    sorter = RecordSorter(
        lambda: Scratch(files, f"run-{next(numbers)}.tmp"), memory_bytes, 1 + max(r[2] for r in records)
    )
    for key, value, group in records:
        sorter.add(key, value, group)
    return sorter, sorter.put_aside()


def shared(files: MemoryFiles, runs: list[RunReader], first: int, end: int, memory_bytes: int = ROOMY) -> Runs:
    """Start a merge of those groups of the runs."""
    numbers = count()
    merge = Runs(lambda: Scratch(files, f"private-{next(numbers)}.tmp"), memory_bytes)
    for run in runs:
        merge.add(run.share(first, end))
    merge.start()
    return merge


def drained(ordered: OrderedRecords, groups: range) -> dict[int, list[tuple[bytes, bytes]]]:
    """Write a file of each group that has records, and return their records."""
    files = MemoryFiles()
    found = {}
    for group in groups:
        writer = SortedFileWriter(
            files, f"{group}", memory_bytes=ROOMY, compression=oracle.NONE, seed=1, common_prefix=b"", metadata=b""
        )
        if ordered.write_group(writer, group, ROOMY):
            writer.finish(0)
            with SortedFile(bytes(files.named[f"{group}"])) as file:
                found[group] = list(file.scan())
        else:
            writer.abort()
    return found


def expected(records: list[Grouped], groups: range) -> dict[int, list[tuple[bytes, bytes]]]:
    found: dict[int, dict[bytes, bytes]] = {}
    for key, value, group in records:
        if group in groups:
            found.setdefault(group, {})[key] = value
    return {group: sorted(content.items()) for group, content in found.items()}


@pytest.mark.parametrize(
    "sizes",
    [
        {0: 9, 3: 2000, 4: 1, 5: 1, 9: 3000, 10: 4},  # Groups that begin in one part, and that span many.
        {2: 1},
        {2: 4000},
        dict.fromkeys(range(12), 200),
        dict.fromkeys(range(0, 30, 7), 700),  # Every part begins another group.
    ],
    ids=["mixed", "one record", "one long", "many short", "far apart"],
)
def test_any_range_of_groups(sizes: dict[int, int]) -> None:
    """Any first and end group, even absent ones, give exactly their records, from the needed parts only."""
    source = random.Random(51)
    records = [(b"%d" % n, source.randbytes(400), group) for group, size in sizes.items() for n in range(size)]
    files = CountingFiles()
    sorter, runs = write_runs(files, records)
    size, last = files.scratch_bytes, max(sizes) + 3
    cuts = sorted({edge for group in sizes for edge in (group, group + 1)} | {last})
    for first in cuts:
        for end in cuts:
            files.read_bytes = 0
            groups = range(first, end)
            merge = shared(files, runs, first, end)
            assert drained(merge, groups) == expected(records, groups)
            merge.close()
            wanted = sum((412 + 5) * count for group, count in sizes.items() if group in groups)
            # The excess: the rest of the first and the last part, and one needless part.
            assert files.read_bytes <= wanted + 3 * PART_BYTES + 100 < size + 4 * PART_BYTES
    assert files.opened, "what was shared stays"
    sorter.close()
    assert not files.named
    assert not files.opened


@pytest.mark.parametrize("memory_bytes", [0, 3 * PART_BYTES, ROOMY])
def test_runs_of_several_sorters(memory_bytes: int) -> None:
    """The last run's record of a key is kept, by one merge or by several."""
    source = random.Random(52)
    files = MemoryFiles()
    parts = [[(b"%d" % source.randrange(300), b"%d" % turn, source.randrange(6)) for turn in range(500)] for _ in "abc"]
    made = []
    for number, part in enumerate(parts):
        numbers = map(f"run-{number}-{{}}".format, count())
        sorter = RecordSorter(lambda numbers=numbers: Scratch(files, next(numbers)), 2_000, 6)
        for key, value, group in part:
            sorter.add(key, value, group)
        made.append((sorter, sorter.put_aside()))
    runs = [run for _, more in made for run in more]
    assert len(runs) == 6
    before = files.scratch_opened
    everything = [record for part in parts for record in part]
    for first, end in pairwise((0, 1, 4, 6)):
        merge = shared(files, runs, first, end, memory_bytes)
        assert drained(merge, range(first, end)) == expected(everything, range(first, end))
        merge.close()
    assert (files.scratch_opened > before) == (memory_bytes < ROOMY)
    for sorter, _ in made:
        sorter.close()
    assert not files.opened


def test_the_merge_makes_the_oracles_file() -> None:
    """The runs come from two sorters."""
    files = MemoryFiles()
    parts = [[(b"%d" % n, b"%d" % lane, n // 6 % 2) for n in range(0, 900, 2 + lane)] for lane in range(2)]
    made = []
    for number, part in enumerate(parts):
        sorter = RecordSorter(lambda number=number: Scratch(files, f"run-{number}"), ROOMY, 2)
        for key, value, group in part:
            sorter.add(key, value, group)
        made.append((sorter, sorter.put_aside()))
    merge = shared(files, [run for _, runs in made for run in runs], 1, 2)
    records = [(key, value) for part in parts for key, value, group in part if group == 1]
    writer = SortedFileWriter(
        files,
        "1",
        memory_bytes=ROOMY,
        compression=oracle.NONE,
        seed=7,
        common_prefix=oracle.common_prefix([key for key, _ in records]),
        metadata=b"",
    )
    assert merge.write_group(writer, 1, ROOMY) == len(dict(records)) < len(records)
    writer.finish(len(records) - len(dict(records)))
    assert bytes(files.named["1"]) == oracle.write(records, seed=7)
    merge.close()
    for sorter, _ in made:
        sorter.close()


def test_long_records_of_others_bound_the_merge() -> None:
    """A merge leaves room for parts as long as the longest of any lane."""
    files = MemoryFiles()
    sorter, runs = write_runs(files, [(b"k", bytes(3 << 20), 0)])
    largest = 3 << 20
    few, many = (shared(files, runs * 5, 0, 1, memory_bytes) for memory_bytes in (2 * 3 * largest, 2 * 6 * largest))
    assert (len(few), len(many)) == (2, 5)
    few.close()
    many.close()
    sorter.close()
