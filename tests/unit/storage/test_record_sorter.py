"""The external sort, with so little memory that runs, collapses and merges of several levels really happen.

Each case goes through a writer into a whole file, which is compared with that of the oracle's writer.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from functools import partial
from itertools import count
from sys import getrefcount

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, LimitExceeded
from gossipkv.storage._storage import RecordSorter, Scratch, SortedFileWriter, seed_of
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import KEYS, RECORDS, VALUES, edge_cases, many

Grouped = tuple[bytes, bytes, int]
ROOMY = 1 << 30


@dataclass
class Sorted:
    images: list[bytes]
    duplicates: list[int]
    scratches: int
    scratch_bytes: int
    most_open: int
    left_open: int


def sort(records: list[Grouped], memory_bytes: int, *, groups: int = 1, step: int = 7) -> Sorted:
    """Sort, and write a file for each group; the writers have enough memory to need no scratch files."""
    files = MemoryFiles()
    numbers = count()
    sorter = RecordSorter(lambda: Scratch(files, f"run-{next(numbers)}.tmp"), memory_bytes, groups)
    for key, value, group in records:
        sorter.add(key, value, group)
    assert sorter.added == len(records)
    ordered = sorter.finish_adding()
    images, duplicates = [], []
    for group in range(groups):
        writer = SortedFileWriter(
            files,
            f"{group}.gkv",
            memory_bytes=ROOMY,
            compression=oracle.NONE,
            seed=seed_of(sorter.group_hash_sum(group), sorter.group_records(group)),
            common_prefix=sorter.common_prefix(group),
            metadata=b"",
        )
        written = done = ordered.write_group(writer, group, step)
        while done == step:
            done = ordered.write_group(writer, group, step)
            written += done
        duplicates.append(sorter.group_records(group) - written)
        size = writer.finish(duplicates[-1])
        images.append(bytes(files.named[f"{group}.gkv"]))
        assert size == len(images[-1])
    sorter.close()
    return Sorted(
        images, duplicates, files.scratch_opened, files.scratch_bytes, files.scratch_open_most, files.scratch_open
    )


def expected(records: list[Grouped], groups: int = 1) -> list[bytes]:
    return [oracle.write([(k, v) for k, v, at in records if at == group]) for group in range(groups)]


@pytest.mark.parametrize(
    ("memory_bytes", "scratches"),
    [
        (ROOMY, range(1)),
        (100_000, range(2, 5)),  # A few runs, merged once.
        (4_000, range(40, 80)),  # Every two runs are merged at once, over several levels.
        (0, range(2_500, 4_000)),  # A run for every record or two.
    ],
)
def test_memory_decides_the_way_and_never_the_bytes(memory_bytes: int, scratches: range) -> None:
    """The ways reach from everything in memory to a run per record; duplicates are counted alike."""
    records = [(key, value, 0) for key, value in many(5, 2000, keys=900)]
    found = sort(records, memory_bytes, step=100)
    assert found.images == expected(records)
    assert found.scratches in scratches, "the case must take the way it is here for"
    assert found.left_open == 0
    assert found.duplicates == [2000 - len({key for key, _, _ in records})]


def test_levels_stay_few() -> None:
    """Merged runs are merged again, so open files and written bytes grow with the logarithm of the runs."""
    records = [(b"%06d" % (number * 7919 % 4096), b"", 0) for number in range(4096)]
    found = sort(records, 0)
    assert found.scratches > 4096  # A scratch file per record, and the merged ones.
    assert found.most_open <= 12 + 3  # log2 of the runs, and those of the current merge.
    assert found.scratch_bytes < 4096 * (12 + 6 + 8) * (12 + 3)  # Each record with its headers, once a level.
    assert found.images == expected(records)


def test_larger_records_than_the_memory() -> None:
    """A record of any size is accepted, and parts of a run grow for it."""
    source = random.Random(6)
    records = [
        (b"%d" % source.randrange(6), source.randbytes(source.choice([10, 300_000, 600_000])), 0) for _ in range(20)
    ]
    found = sort(records, 100_000)
    assert found.images == expected(records)
    assert found.scratches > 5


@pytest.mark.parametrize("memory_bytes", [ROOMY, 20_000])
def test_edge_cases(memory_bytes: int) -> None:
    records = [(key, value, 0) for key, value in edge_cases()]
    found = sort(records, memory_bytes)
    assert found.images == expected(records)
    assert (found.scratches > 10) == (memory_bytes < ROOMY)


@given(records=RECORDS, memory_bytes=st.sampled_from([0, 500, 3000, ROOMY]))
def test_any_records(records: list[tuple[bytes, bytes]], memory_bytes: int) -> None:
    grouped = [(key, value, 0) for key, value in records]
    assert sort(grouped, memory_bytes).images == expected(grouped)


@given(
    records=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 4)), max_size=50),
    memory_bytes=st.sampled_from([0, 500, 3000, ROOMY]),
    step=st.sampled_from([1, 3, 1000]),
)
def test_any_groups(records: list[Grouped], memory_bytes: int, step: int) -> None:
    """Groups are separate files: equal keys in two groups are no duplicates, and empty groups are written."""
    found = sort(records, memory_bytes, groups=5, step=step)
    assert found.images == expected(records, 5)
    assert sum(found.duplicates) == len(records) - len({(key, group) for key, _, group in records})


@pytest.mark.parametrize("memory_bytes", [ROOMY, 60_000])
@pytest.mark.parametrize("groups", [1, 3])
def test_words_that_are_equal(memory_bytes: int, groups: int) -> None:
    """Hundreds of keys agree for many words; some end in zeros that others lack."""
    source = random.Random(7)
    starts = [b"", b"s" * 5, b"s" * 13, b"s" * 21 + b"\0" * 30]
    records = [
        (
            source.choice(starts) + bytes(source.randrange(12)) + source.choice([b"", b"\0", b"a"]),
            b"%d" % turn,
            turn % groups,
        )
        for turn in range(3000)
    ]
    found = sort(records, memory_bytes, groups=groups)
    assert found.images == expected(records, groups)


@pytest.mark.parametrize("memory_bytes", [ROOMY, 1500])
def test_the_last_of_equals_stays(memory_bytes: int) -> None:
    """The last of hundreds of equal keys is kept, within a run and across all levels of runs."""
    records = [(b"%d" % (turn % 3), b"value %d" % turn, 0) for turn in range(900)]
    found = sort(records, memory_bytes)
    assert oracle.File(found.images[0]).items() == [(b"%d" % n, b"value %d" % (897 + n)) for n in range(3)]
    assert found.duplicates == [897]
    assert found.images == expected(records)


@given(
    records=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 2)), min_size=1, max_size=60),
    strays=st.lists(st.tuples(st.integers(0, 60), KEYS, VALUES, st.integers(0, 2)), max_size=2),
    memory_bytes=st.sampled_from([0, 500, 1500, 3000, ROOMY]),
)
def test_records_in_order_but_for_a_few(
    records: list[Grouped], strays: list[tuple[int, bytes, bytes, int]], memory_bytes: int
) -> None:
    """Equal keys, and strays at any place, before and after runs, make the same files as any other order."""
    records.sort(key=lambda record: (record[2], record[0]))
    for place, *stray in strays:
        records.insert(place, (stray[0], stray[1], stray[2]))
    found = sort(records, memory_bytes, groups=3)
    assert found.images == expected(records, 3)
    assert sum(found.duplicates) == len(records) - len({(key, group) for key, _, group in records})


IN_ORDER = [(b"%06d" % number, b"%d" % number, number // 500) for number in range(1500)]
ARENA_BYTES = sum(12 + len(key) + len(value) for key, value, _ in IN_ORDER)


def test_records_in_order_need_no_items() -> None:
    """Records in order fit where unordered ones would not; with a byte less there are two runs and their merge."""
    assert sort(IN_ORDER, ARENA_BYTES, groups=3).scratches == 0
    assert sort(IN_ORDER, ARENA_BYTES - 1, groups=3).scratches == 2 + 1
    assert sort(IN_ORDER[::-1], ARENA_BYTES, groups=3).scratches > 0


@pytest.mark.parametrize("memory_bytes", [ARENA_BYTES // 3, ARENA_BYTES + 100, ROOMY])
@pytest.mark.parametrize("place", [0, 1, 700, 1499])
def test_one_key_out_of_order_at_the_end(memory_bytes: int, place: int) -> None:
    """The key replaces its record in a run, in memory, or added last."""
    key, _, group = IN_ORDER[place]
    records = [*IN_ORDER, (key, b"the later one", group)]
    found = sort(records, memory_bytes, groups=3)
    assert found.images == expected(records, 3)
    assert oracle.File(found.images[group]).items()[place - 500 * group][1] == b"the later one"
    assert sum(found.duplicates) == 1


LONG = st.builds(
    lambda letter, size: letter * size, st.sampled_from([b"a", b"b"]), st.sampled_from([0, 511, 512, 3000])
)


@given(
    records=st.lists(st.tuples(KEYS, LONG, st.integers(0, 1)), max_size=60),
    memory_bytes=st.sampled_from([0, 70_000, 80_000, ROOMY]),
    in_order=st.booleans(),
)
def test_long_values(records: list[Grouped], memory_bytes: int, in_order: bool) -> None:
    """Values that are kept, and copied where memory has no more room, make the same files."""
    if in_order:
        records.sort(key=lambda record: (record[2], record[0]))
    found = sort(records, memory_bytes, groups=2)
    assert found.images == expected(records, 2)
    assert found.left_open == 0


@pytest.mark.parametrize(("memory_bytes", "least", "most"), [(ROOMY, 100, 100), (300_000, 1, 73), (60_000, 0, 0)])
def test_long_values_are_kept_while_memory_has_room(memory_bytes: int, least: int, most: int) -> None:
    """A run releases the values that it has, and the end all others; sizes of groups are those of copied values."""
    values = [bytes([number]) * 4000 for number in range(100)]
    free = sum(map(getrefcount, values))
    sorter = RecordSorter(lambda: Scratch(MemoryFiles(), "run.tmp"), memory_bytes)
    sorter.add_all((b"%03d" % (number * 37 % 100), values[number]) for number in range(100))
    assert least <= sum(map(getrefcount, values)) - free <= most
    assert sorter.group_size_bytes(0) == 100 * (12 + 3 + 4000)
    sorter.close()
    assert sum(map(getrefcount, values)) == free


def test_what_is_out_of_order_ends_the_way_for_those_in_order() -> None:
    """Equal keys keep the order; a lower key or a lower group breaks it."""
    for last, expected_order in (((b"b", 1), True), ((b"c", 1), True), ((b"a", 1), False), ((b"z", 0), False)):
        sorter = RecordSorter(lambda: Scratch(MemoryFiles(), "run.tmp"), ROOMY, 2)
        for key, group in ((b"a", 0), (b"a", 1), (b"b", 1), last):
            sorter.add(key, b"", group)
        assert sorter.ordered == expected_order


def test_nothing_is_added_after_the_end() -> None:
    """A refused record out of order does not change the sorter."""
    sorter = RecordSorter(lambda: Scratch(MemoryFiles(), "run.tmp"), ROOMY)
    sorter.add(b"b", b"")
    sorter.finish_adding()
    for key in (b"a", b"c"):
        with pytest.raises(ValueError, match="finished"):
            sorter.add(key, b"")
    assert sorter.ordered


def test_many_long_keys_that_agree_almost_to_their_ends() -> None:
    """The descent through 64 KiB of equal key, word by word, needs little stack, even on a small thread."""
    keys = [b"a" + b"m" * 65_530 + b"%04d" % number for number in range(40)]
    records = [(key, b"%d" % at, 0) for at, key in enumerate([b"b", *keys, *keys[::3]])]
    random.Random(8).shuffle(records)
    found: list[bytes] = []
    before = threading.stack_size(4 << 20)
    try:
        thread = threading.Thread(target=lambda: found.extend(sort(records, ROOMY).images))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert [key for key, _ in oracle.File(found[0]).items()] == [*keys, b"b"]


def test_add_all_is_add() -> None:
    """The loop in C adds as single calls do, from any iterable and into any group."""
    records = many(9, 50)
    one, other = (RecordSorter(lambda: None, ROOMY, 3) for _ in range(2))
    for key, value in records:
        one.add(key, value, 2)
    other.add_all(iter(records), 2)
    for sorter in (one, other):
        seeds = [seed_of(sorter.group_hash_sum(group), sorter.group_records(group)) for group in range(3)]
        assert seeds == [oracle.seed_of([]), oracle.seed_of([]), oracle.seed_of(key for key, _ in records)]
    assert one.added == other.added == 50
    assert [sorter.common_prefix(group) for sorter in (one, other) for group in range(3)] == [
        b"",
        b"",
        b"user:0000",
    ] * 2


def test_limits() -> None:
    """The largest key and value are accepted; a byte more is refused with the size, and nothing is added."""
    sorter = RecordSorter(lambda: None, ROOMY)
    sorter.add(b"k" * 65_535, b"")
    sorter.add(b"k", bytes(16 << 20))
    for key, value, limit in ((b"k" * 65_536, b"", 65_535), (b"", bytes((16 << 20) + 1), 16 << 20)):
        with pytest.raises(LimitExceeded, match=f"at most {limit:,} bytes, got {limit + 1:,}") as refusal:
            sorter.add(key, value)
        assert refusal.value.details == {"limit": limit, "got": limit + 1}
        with pytest.raises(LimitExceeded):
            sorter.add_all([(key, value)])
    assert sorter.added == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((b"", b"", 3), ValueError),
        ((b"", b"", -1), OverflowError),
        ((b"", None), TypeError),
        ((None, b""), TypeError),
        (("", b""), TypeError),
        ((bytearray(), b""), TypeError),
    ],
)
def test_refuses_what_is_no_record(arguments, error) -> None:
    sorter = RecordSorter(lambda: None, ROOMY, 3)
    with pytest.raises(error):
        sorter.add(*arguments)
    assert sorter.added == 0


@pytest.mark.parametrize("records", [[(b"k",)], [(b"k", b"v", b"w")], [b"kv", 7], [(b"k", None)], [None], 7])
def test_add_all_refuses_what_are_no_records(records) -> None:
    with pytest.raises((TypeError, ValueError)):
        RecordSorter(lambda: None, ROOMY).add_all(records)


@pytest.mark.parametrize("groups", [0, 65_537])
def test_number_of_groups(groups: int) -> None:
    """A build has 1 to 65,536 partitions."""
    RecordSorter(lambda: None, ROOMY, 65_536)
    with pytest.raises(LimitExceeded, match="65536"):
        RecordSorter(lambda: None, ROOMY, groups)


def sort_all(sorter: RecordSorter, records: list[Grouped]) -> None:
    """Add all records and finish; no writer is needed."""
    for key, value, group in records:
        sorter.add(key, value, group)
    sorter.finish_adding()


def test_scratch_bytes_that_come_back_changed() -> None:
    """A changed or truncated part is damage that names the scratch file, and never leads to a wrong file."""
    records = [(key, value, 0) for key, value in many(10, 300)]
    changes = [
        lambda data, _: bytes([data[0] ^ 1, *data[1:]]) if len(data) > 8 else data,
        lambda data, _: data[:-1] if len(data) > 8 else data,
        lambda data, _: data[:3],
        lambda data, _: data[:0],
        lambda data, _: bytes([data[0] ^ 1, *data[1:]]) if len(data) == 8 else data,
    ]
    for change in changes:
        files = MemoryFiles()
        files.lie = change
        sorter = RecordSorter(partial(Scratch, files, "run.tmp"), 3_000)
        with pytest.raises(Corrupt, match=r"run\.tmp: damaged at byte \d+: .*scratch file"):
            sort_all(sorter, records)
        sorter.close()
        del sorter
        assert files.scratch_opened > 1
        assert files.scratch_open == 0
