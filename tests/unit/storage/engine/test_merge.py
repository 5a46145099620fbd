"""Merges agree with a dict, divide their records into files as told, and are invisible to readers."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.engine.manifest import RunFile
from gossipkv.storage.engine.merge import MIN_MEMORY_BYTES
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import merge as oracle
from tests.oracle import sorted_file
from tests.unit.storage.engine.merge_world import World, described, parts, switched
from tests.unit.storage.memory_files import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Path
    from gossipkv.storage.engine.merge import MergeOutput
    from tests.oracle.merge import Operation, Records


SPACES = range(5)
OVERHEAD_BYTES = 1_500  # Roughly the size of an empty file, so that such files have one record each.


class TracingFiles(MemoryFiles):
    """Records the names that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def open(self, path: Path, flags: int = 0, mode: int = 0o644) -> int:
        self.read.append(str(path).rpartition("/")[2])
        return super().open(path, flags, mode)


words = st.text("abc", max_size=3).map(str.encode)
keys = st.builds(oracle.key_of, st.sampled_from(SPACES), words)
values = st.one_of(
    st.just(b"\x02"),
    st.builds(lambda size, byte: b"\x01" + bytes([byte]) * size, st.integers(0, 600), st.integers(0, 255)),
)
runs = st.dictionaries(keys, values, max_size=25)
cuts = st.lists(st.integers(1, 24), max_size=4)
operations = st.lists(
    st.one_of(
        st.tuples(st.just(1), st.sampled_from(SPACES), words, st.binary(max_size=90)),
        st.tuples(st.just(2), st.sampled_from(SPACES), words, st.just(b"")),
        st.tuples(st.sampled_from([3, 4]), st.sampled_from(SPACES), st.just(b""), st.just(b"")),
    ),
    max_size=30,
)
spaces = st.sets(st.sampled_from(SPACES))
limits = st.sampled_from([1, OVERHEAD_BYTES, 3_000, 6_000, 1 << 20])


def make_world(young: list[tuple[Records, list[int]]], oldest: tuple[Records, list[int]]) -> World:
    """Return a world of these runs, each cut into files; empty runs are left out."""
    world = World(TracingFiles(), "store")
    for content, at in young:
        if content:
            world.add_young(parts(content, at))
    plain = {
        key: value for key, value in oldest[0].items() if value[0] == oracle.VALUE
    }  # Merges leave no tombstones in the oldest run.
    if plain:
        world.add_oldest(parts(plain, oldest[1]))
    return world


def batches_of(done: list[Operation], at: list[int]) -> list[bytes]:
    edges = [0, *sorted(at), len(done)]
    return [oracle.encode(done[one:two]) for one, two in pairwise(edges)]


def check_files(world: World, output: MergeOutput, file_bytes: int) -> None:
    """Check that each file is whole, as described, and within the size limit."""
    for file in output.files:
        content = world.read(world.path(file.name))
        assert described(file.name, content) == file
        assert file.size_bytes <= file_bytes or file.records == 1
        with SortedFile(content) as opened:
            told = opened.describe()
        assert told["common_prefix"] == file.first[: len(told["common_prefix"])]
        assert told["duplicates"] == 0


@given(
    young=st.lists(st.tuples(runs, cuts), max_size=5),
    old=st.tuples(runs, cuts),
    done=operations,
    live=spaces,
    file_bytes=limits,
    data=st.data(),
)
def test_into_a_young_run(
    *,
    young: list[tuple[Records, list[int]]],
    old: tuple[Records, list[int]],
    done: list[Operation],
    live: set[int],
    file_bytes: int,
    data: st.DataObject,
) -> None:
    """Neighbouring runs become one with the newest record of each key, tombstones too, without dropped spaces."""
    world = make_world(young, old)
    first = data.draw(st.integers(0, len(world.young)))
    inputs = world.young[first : first + data.draw(st.integers(0, len(world.young) - first))]
    world.log = {3: batches_of(done[:10], []), 4: batches_of(done[10:], [5])}
    contents = [world.content(files) for files in inputs] if inputs else [oracle.records(done)]
    before = dict(world.files.named)

    outputs = world.merge(world.order(inputs, live, file_bytes=file_bytes))

    made, names = inputs[-1] if inputs else [], set()
    for output in outputs:
        check_files(world, output, file_bytes)
        names |= {world.path(file.name) for file in output.files}
        made = switched(made, output)
    assert [*world.content(made).items()] == oracle.merged(contents, live, drops_tombstones=False)
    now = world.files.named
    assert now.keys() - before.keys() == names
    assert all(now[name] == before[name] for name in before)
    assert not world.files.opened


@given(
    young=st.lists(st.tuples(runs, cuts), max_size=4),
    old=st.tuples(runs, cuts),
    newer=runs,
    live=spaces,
    file_bytes=limits,
)
def test_into_the_oldest_run(
    *,
    young: list[tuple[Records, list[int]]],
    old: tuple[Records, list[int]],
    newer: Records,
    live: set[int],
    file_bytes: int,
) -> None:
    """Readers see the same records after each switch, and after the last."""
    world = make_world(young, old)
    inputs = [*map(world.content, world.young)]
    oldest = list(world.oldest)
    wanted = oracle.answers([newer, *inputs, world.content(oldest)], live)
    merged = oracle.merged([*inputs, world.content(oldest)], live, drops_tombstones=True)

    for output in world.merge(world.order_into_oldest(live, file_bytes=file_bytes)):
        check_files(world, output, file_bytes)
        oldest = switched(oldest, output)
        below = world.content(oldest)
        assert oracle.answers([newer, *inputs, below], live) == wanted
    assert sorted(below.items()) == merged
    assert oracle.answers([newer, below], live) == wanted
    assert not world.files.opened


def wide(space: int, numbers: range, value: bytes = b"\x01" + bytes(90)) -> Records:
    return {oracle.key_of(space, b"%05d" % number): value for number in numbers}


def eight_files() -> World:
    """Return an oldest run of eight files, each with a hundred records of one space; the last has two spaces."""
    world = World(TracingFiles(), "store")
    pieces = [wide(1, range(100 * part, 100 * part + 100)) for part in range(8)]
    pieces[7] |= wide(2, range(1))
    world.add_oldest(pieces)
    return world


FULL_BYTES = 16_000  # Less than twice a file of a hundred such records.


@pytest.mark.parametrize(
    ("younger", "live", "read"),
    [
        pytest.param({}, {1, 2}, set(), id="nothing"),
        pytest.param(wide(1, range(350, 351)), {1, 2}, {3}, id="one record"),
        pytest.param(wide(1, range(350, 351), b"\x02"), {1, 2}, {3}, id="one tombstone"),
        pytest.param(wide(1, range(100, 101)), {1, 2}, {1}, id="the first of a file"),
        pytest.param(wide(1, range(199, 200)), {1, 2}, {1}, id="the last of a file"),
        pytest.param(wide(1, range(150, 350, 199)), {1, 2}, {1, 3}, id="two"),
        pytest.param(wide(1, range(199, 201)), {1, 2}, {1, 2}, id="on both sides of an edge"),
        pytest.param(wide(3, range(1)), {1, 2, 3}, set(), id="behind all"),
        pytest.param(wide(0, range(1)), {0, 1, 2}, {0}, id="before all, too few for a file"),
        pytest.param(wide(0, range(250)), {0, 1, 2}, set(), id="before all, enough for files"),
        pytest.param({}, {1}, {7}, id="a space dropped"),
        pytest.param({}, {2}, set(range(8)), id="the greater space dropped"),
    ],
)
def test_files_that_stay(younger: Records, live: set[int], read: set[int]) -> None:
    """A file of the oldest run without newer records or dropped spaces in its range is not even opened."""
    world = eight_files()
    names = [file.name for file in world.oldest]
    if younger:
        world.add_young([younger])
    world.files.read.clear()
    outputs = world.merge(world.order_into_oldest(live, file_bytes=FULL_BYTES))
    opened = {names.index(name) for name in world.files.read if name in names}
    assert opened == read
    assert {names.index(name) for output in outputs for name in output.replaced} == read


def test_a_space_that_may_lie_between_is_looked_for() -> None:
    """A file whose range could hold a dropped space is opened, and replaced if it has records of one."""
    for between, replaced in (({}, False), (wide(3, range(1)), True)):
        world = World(TracingFiles(), "store")
        world.add_oldest([wide(1, range(100)) | between | wide(5, range(100))])
        outputs = world.merge(world.order_into_oldest({1, 5}))
        assert any(output.replaced for output in outputs) == replaced
        assert world.oldest[0].name in world.files.read


def test_a_stretch_is_as_short_as_it_may_be() -> None:
    """Long files are replaced one by one, short ones together, until they make a long one."""
    world = eight_files()
    everywhere = {key: b"\x01new" for piece in range(8) for key in wide(1, range(100 * piece + 50, 100 * piece + 51))}
    world.add_young([everywhere])
    long = world.merge(world.order_into_oldest({1, 2}, file_bytes=FULL_BYTES))
    assert [len(output.replaced) for output in long] == [1] * 8
    assert [len(output.files) for output in long] == [1] * 8

    world = eight_files()
    world.add_young([everywhere])
    short = world.merge(world.order_into_oldest({1, 2}, file_bytes=4 * FULL_BYTES))
    assert [len(output.replaced) for output in short] == [3, 3, 2]
    assert [len(output.files) for output in short] == [1, 1, 1]


def test_what_becomes_nothing_leaves_soon() -> None:
    """Emptied files are replaced by nothing, a few at a time, so that deletes need no room."""
    world = eight_files()
    world.add_young([wide(1, range(800), b"\x02")])
    outputs = world.merge(world.order_into_oldest({1, 2}, file_bytes=FULL_BYTES))
    assert sum(len(output.replaced) for output in outputs) == 8
    assert max(len(output.replaced) for output in outputs) <= 4
    assert [len(output.files) for output in outputs] == [0] * (len(outputs) - 1) + [1]


@pytest.mark.parametrize("file_bytes", [FULL_BYTES, 4 * FULL_BYTES])
def test_a_purge(file_bytes: int) -> None:
    """A purge only keeps records that nothing newer hides, so the target never grows."""
    world = eight_files()
    before = world.content(world.oldest)
    hidden = wide(1, range(3, 400, 7)) | wide(1, range(200, 300), b"\x02") | wide(2, range(50))
    world.add_young([hidden | wide(1, range(9000, 9900))])
    outputs = world.merge(replace(world.order_into_oldest({1}, file_bytes=file_bytes), purges=True))
    world.oldest = functools.reduce(switched, outputs, world.oldest)
    stay = {key: value for key, value in before.items() if key not in hidden and key.startswith(b"\0\0\0\x01")}
    assert world.content(world.oldest) == stay
    assert len(outputs) > 1


def test_a_stretch_replaces_a_few_files_at_most() -> None:
    """A stretch ends before it holds much space twice, even if little stays of each file."""
    world = eight_files()
    gone = {key: b"\x02" for number in range(8) for key in wide(1, range(100 * number + 1, 100 * number + 100))}
    world.add_young([gone])
    outputs = world.merge(world.order_into_oldest({1, 2}, file_bytes=FULL_BYTES))
    assert max(len(output.replaced) for output in outputs) <= 3
    assert sum(len(output.replaced) for output in outputs) == 8


def test_more_than_memory_holds() -> None:
    """A log that is sorted in parts has the same result."""
    source = random.Random(5)
    done = [(1, 1, source.randbytes(3), source.randbytes(3_000)) for _ in range(9_000)]
    world = World(MemoryFiles(), "store")
    world.log = {number: [oracle.encode(done[3_000 * number : 3_000 * number + 3_000])] for number in range(3)}
    (output,) = world.merge(world.order([], {1}, file_bytes=8 << 20))
    assert world.files.scratch_opened > 1
    assert len(output.files) > 3
    found = world.content(output.files)
    assert list(found.items()) == oracle.merged([oracle.records(done)], {1}, drops_tombstones=False)
    assert not world.files.opened


def test_the_longest_records() -> None:
    """A key and a value at their limits keep their flag."""
    world = World(MemoryFiles(), "store")
    key, value = bytes(65_531), bytes(16 << 20)
    world.log = {1: [oracle.encode([(1, 1, key, value), (2, 1, key[:-1], b"")])]}
    (output,) = world.merge(world.order([], {1}))
    world.young = [[*output.files]]
    (again,) = world.merge(world.order_into_oldest({1}))
    assert world.content(again.files) == {oracle.key_of(1, key): b"\x01" + value}


def test_the_same_merge_writes_the_same_bytes() -> None:
    """A file depends on the records, the store and its number; another store's index differs."""
    images = []
    for store in (1, 1, 2):
        world = World(MemoryFiles(), "store")
        world.add_young([wide(1, range(500))])
        (output,) = world.merge(replace(world.order([*world.young, []], {1}), store=store))
        images.append(world.read(world.path(output.files[0].name)))
    assert images[0] == images[1] != images[2]


def test_too_little_memory_is_refused() -> None:
    world = World(MemoryFiles(), "store")
    with pytest.raises(ValueError, match="memory_bytes must be at least"):
        world.merge(replace(world.order([], {1}), memory_bytes=MIN_MEMORY_BYTES - 1))


class NudgedFiles(MemoryFiles):
    """Records early writebacks, and the bytes written by then."""

    def __init__(self) -> None:
        super().__init__()
        self.nudged: list[tuple[int, int]] = []

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        self.nudged.append((offset, size_bytes))


def test_each_write_goes_to_the_disk_before_the_next() -> None:
    """Every piece is flushed early, and the pace is asked between two pieces."""
    world = World(NudgedFiles(), "store")
    source = random.Random(6)
    world.log = {1: [oracle.encode((1, 1, source.randbytes(8), source.randbytes(900)) for _ in range(9_000))]}
    waits: list[int] = []
    written: list[int] = []
    output = world.stretch(world.order([], {1}), written.append, waits.append)
    sizes = [file.size_bytes for file in output.files]
    assert sum(waits) == sum(sizes)
    assert written == [sum(waits[: count + 1]) for count in range(len(waits))]
    assert max(waits) <= 2 << 20, "so that no sync of others waits for more"
    assert [size for _, size in world.files.nudged] == waits


def test_a_stretch_ends_where_no_old_file_does() -> None:
    """After the last old file, and without old files, a stretch writes about a file."""
    world = World(TracingFiles(), "store")
    world.add_young([wide(1, range(200, 1_000, 2))])
    world.add_young([wide(1, range(201, 1_000, 2))])
    world.add_oldest([wide(1, range(100))])
    outputs = world.merge(world.order_into_oldest({1}, file_bytes=FULL_BYTES))
    assert len(outputs) > 5
    assert all(len(output.files) <= 2 for output in outputs)
    oldest = list(world.oldest)
    for output in outputs:
        oldest = switched(oldest, output)
    assert [*world.content(oldest)] == [*wide(1, range(100)), *wide(1, range(200, 1_000))]


# -- damage ------------------------------------------------------------------------------------------------------------


def mixed() -> World:
    """Return a world in which a merge reads every file of the young and the oldest runs."""
    world = World(TracingFiles(), "store")
    world.add_young(parts(wide(1, range(0, 300, 2)), [80]))
    world.add_young(parts(wide(1, range(0, 300, 3)), [50]))
    world.add_oldest(parts(wide(1, range(300)), [100, 200]))
    return world


def test_a_byte_changed_in_each_page_of_each_input() -> None:
    """The damage is found with its file, or does not matter to a scan; no unnamed file is left."""
    world = mixed()
    names = [file.name for run in (*world.young, world.oldest) for file in run]
    order = world.order_into_oldest({1})
    wanted = oracle.merged([*map(world.content, world.young), world.content(world.oldest)], {1}, drops_tombstones=True)
    before = {path: bytes(held) for path, held in world.files.named.items()}
    found = 0
    for name in names:
        size = len(before[world.path(name)])
        for at in {*range(70, size, 4096), size - 250, size - 1, 0, 9}:
            world.files.named.clear()
            world.files.named |= {path: bytearray(held) for path, held in before.items()}
            world.files.named[world.path(name)][at] ^= 0x40
            try:
                (output,) = world.merge(order)
            except (Corrupt, UnsupportedFormat) as error:
                assert name in str(error)
                found += 1
                assert world.files.named.keys() == before.keys()
            else:
                assert sorted(world.content(switched(world.oldest, output)).items()) == wanted
    assert found > 2 * len(names)


def planted(records: list[tuple[bytes, bytes]], change: Callable[[bytes], bytes]) -> bytes:
    """Return a file with valid checksums and records that no merge writes."""
    content = sorted_file.write(records, seed=1)
    footer = sorted_file.Footer.unpack(content[-sorted_file.Footer.SIZE :])
    return sorted_file.seal(change(content[: footer.body_bytes]), footer)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            planted(
                [(oracle.key_of(1, b"a"), b"\x01"), (oracle.key_of(1, b"b"), b"\x01")],
                lambda body: body.replace(b"\x01b", b"\x01A"),
            ),
            "keys do not ascend",
        ),
        (planted([(oracle.key_of(1, b"a"), b"")], bytes), "has no space or no flag"),
        (planted([(oracle.key_of(1, b"a"), b"\x03")], bytes), "has no space or no flag"),
        (planted([(b"abc", b"\x01")], bytes), "has no space or no flag"),
    ],
    ids=["order", "no flag", "another flag", "no space"],
)
def test_a_file_that_is_insane(content: bytes, reason: str) -> None:
    world = World(MemoryFiles(), "store")
    world.put(world.path("mad.gkv"), content)
    mad = RunFile("mad.gkv", 2, len(content), 0, b"", b"\xff")
    with pytest.raises(Corrupt, match=reason) as caught:
        world.merge(world.order([[mad], []], {1}))
    assert caught.value.file == world.path("mad.gkv")


def test_a_batch_that_is_none() -> None:
    """The error is damage of the segment, with its offset."""
    good = oracle.encode([(1, 1, b"a", b"b")])
    for bad in (b"\x09" + good[1:], good[:-1], good[:8], b"\x01"):
        world = World(MemoryFiles(), "store")
        world.log = {4: [good, good + bad]}
        with pytest.raises(Corrupt, match="invalid operation") as caught:
            world.merge(world.order([], {1}))
        assert (caught.value.file, caught.value.offset) == ("store/log/0000000000000004.log", 4096 + 32 + 2 * len(good))


def test_what_reading_the_log_raises_passes() -> None:
    """Damage found by the log's reader passes on, and no file is left."""
    world = World(MemoryFiles(), "store")
    world.add_young([wide(1, range(9))])
    world.log = {4: []}
    damage = Corrupt("segment", 5000, "torn")

    def fail(*_: object) -> list[tuple[int, bytes]]:
        raise damage

    world.read_log = fail
    before = set(world.files.named)
    with pytest.raises(Corrupt) as caught:
        world.stretch(world.order([], {1}))
    assert caught.value is damage
    assert set(world.files.named) == before


def test_limits_of_a_file_end_it() -> None:
    """A full file is followed by another."""
    world = World(MemoryFiles(), "store")
    world.log = {1: [oracle.encode((1, 1, b"%05d" % number, bytes(90)) for number in range(1_000))]}
    (output,) = world.merge(world.order([], {1}, file_bytes=20_000))
    sizes = [file.size_bytes for file in output.files]
    assert len(sizes) > 5
    assert min(sizes[:-1]) > 20_000 * 3 // 4, "and not before it is nearly full"
