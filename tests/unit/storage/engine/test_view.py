"""A view agrees with layers of dicts in lookups and pages, refuses damage in its files, and holds its sources."""

from __future__ import annotations

import gc
import os
import random
import sys
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage import sigbus
from gossipkv.storage.engine._engine import PAGE_BYTES, Memtable, View
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file
from tests.oracle import view as oracle
from tests.oracle.memtable import TOMBSTONE, VALUE, encode, internal
from tests.unit.storage.engine.layers import BOUNDS, LAYERS, SPACES, memtable_of, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WAYS = pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])


@dataclass
class Stack:
    view: View
    layers: list[Mapping[bytes, bytes]]
    page_bytes: int = PAGE_BYTES
    names: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.names = sorted({key[4:] for layer in self.layers for key in layer} | {b"", b"absent", b"\xff" * 3})

    def check_lookups(self) -> None:
        """Check every key of any layer, and some absent ones, in every space."""
        for space in (*SPACES, 9):
            expected = [oracle.get(self.layers, space, name) for name in self.names]
            assert [self.view.get(space, name) for name in self.names] == expected
            assert self.view.get_many(space, self.names) == expected

    def check_scan(
        self,
        space: int,
        start: bytes | None,
        end: bytes | None,
        *,
        reverse: bool,
        limit: int | None = None,
        most_bytes: int = PAGE_BYTES,
    ) -> int:
        """Check page by page up to the last one; return the number of pages."""
        pages = 0
        while True:
            options = {} if limit is None else {"limit": limit}
            page = self.view.scan(space, start, end, reverse=reverse, most_bytes=most_bytes, **options)
            assert page == oracle.scan(
                self.layers, space, start, end, reverse=reverse, limit=limit, most_bytes=most_bytes
            )
            pages += 1
            if page[1] is None:
                return pages
            start, end = (start, page[1]) if reverse else (page[1], end)


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    """Draw memtables over runs of several files, compressed or not."""
    layers = draw(st.lists(LAYERS, min_size=1, max_size=6))
    memtables = draw(st.integers(0, min(3, len(layers))))
    layers[memtables:] = [layer for layer in layers[memtables:] if layer]
    runs = [
        run_of(layer, draw(st.lists(st.integers(0, 30), max_size=3)), draw(st.sampled_from([0, 0, 1])))
        for layer in layers[memtables:]
    ]
    return Stack(View([memtable_of(layer) for layer in layers[:memtables]], runs), layers)


def alternating(count: int = 40) -> list[dict[bytes, bytes]]:
    """Return six layers that replace and delete each other's records, in two spaces."""
    numbers = random.Random(count)
    return [
        {
            internal(numbers.choice((1, 2)), b"key%03d" % numbers.randrange(count)): bytes([TOMBSTONE])
            if numbers.random() < 0.3
            else b"%c%d of layer %d" % (VALUE, number, layer)
            for number in range(count)
        }
        for layer in range(6)
    ]


def stacked(layers: Sequence[Mapping[bytes, bytes]], memtables: int = 2) -> Stack:
    """Put the first layers in memory, the others in runs of three files."""
    runs = [run_of(layer, (10, 20)) for layer in layers[memtables:]]
    return Stack(View([memtable_of(layer) for layer in layers[:memtables]], runs), list(layers))


# -- answers of a view -----------------------------------------------------------------------------------------------


@given(stacks(), st.sampled_from(SPACES) | st.just(1), st.tuples(BOUNDS, BOUNDS), st.booleans(), st.data())
def test_all_that_a_view_shows(
    stack: Stack, space: int, bounds: tuple[bytes | None, bytes | None], reverse: bool, data: st.DataObject
) -> None:
    """Lookups, and scans between any bounds with any limits, agree with the layers."""
    start, end = bounds
    stack.check_lookups()
    stack.check_scan(space, start, end, reverse=reverse)
    stack.check_scan(
        space,
        start,
        end,
        reverse=reverse,
        limit=data.draw(st.none() | st.integers(1, 5)),
        most_bytes=data.draw(st.integers(0, 60)),
    )


@WAYS
@pytest.mark.parametrize("limit", [1, 2, 7, None])
@pytest.mark.parametrize("memtables", [0, 2, 4])
def test_layers_that_replace_each_other(limit: int | None, memtables: int, *, reverse: bool) -> None:
    """Every key comes from its newest layer, in memory or not."""
    stack = stacked(alternating(), memtables)
    stack.check_lookups()
    names = [None, b"", b"key", b"key000", b"key017", b"key017\0", b"key039", b"z"]
    for start, end in product(names, names):
        stack.check_scan(1, start, end, reverse=reverse, limit=limit)
    assert stack.check_scan(2, None, None, reverse=reverse, most_bytes=0) > 3, "a record a page at least"


def test_what_is_put_later_is_seen() -> None:
    """A view shows later puts into its memtables, and a page shows one moment."""
    memtable = Memtable(1 << 16)
    view = View([memtable], [run_of({internal(1, b"a"): b"\1old"})])
    assert view.scan(1) == ([(b"a", b"old")], None)
    memtable.apply(encode([(TOMBSTONE, 1, b"a", b""), (VALUE, 1, b"b", b"new")]))
    assert view.scan(1) == ([(b"b", b"new")], None)
    assert (view.get(1, b"a"), view.get(1, b"b")) == (None, b"new")


def test_long_keys() -> None:
    """The keys are longer than any buffer of a lookup, in memory and in runs."""
    layers = [
        {internal(1, b"k" * size): b"\1%d" % (size + layer) for size in range(layer, 65_532, 7_281)}
        | {internal(1, b"q" * size): b"\1%d" % (size + layer) for size in range(245, 260)}
        for layer in range(2)
    ]
    stack = stacked(layers, 1)
    stack.check_lookups()
    stack.check_scan(1, None, None, reverse=False, limit=3)
    stack.check_scan(1, b"k" * 40_000, b"q" * 250, reverse=True, limit=3)
    assert stack.view.get(1, b"k" * 70_000) is None


def test_a_view_of_nothing() -> None:
    for view in (View([], []), View([Memtable(1)], [])):
        assert view.get(1, b"a") is None
        assert view.get_many(1, [b"a", b"b"]) == [None, None]
        assert view.scan(1) == view.scan(1, b"a", b"b", reverse=True) == ([], None)
        assert (view.size_bytes(1), view.middle_key(1)) == (0, None)


@WAYS
def test_a_limit_is_one_at_least(*, reverse: bool) -> None:
    for limit in (0, -2):
        with pytest.raises(ValueError, match="limit must be at least 1"):
            View([], []).scan(1, reverse=reverse, limit=limit)


def test_keys_are_bytes() -> None:
    """The error names the position of the key."""
    view = stacked(alternating()).view
    with pytest.raises(TypeError, match=r"keys\[1\] must be bytes, not str"):
        view.get_many(1, [b"a", "b"])
    with pytest.raises(TypeError):
        view.get(1, "a")


# -- damage ----------------------------------------------------------------------------------------------------------

QUESTIONS: dict[str, Callable[[View], object]] = {
    "get": lambda view: [view.get(space, b"key%03d" % number) for space in (1, 2) for number in range(41)],
    "get_many": lambda view: [view.get_many(space, [b"key%03d" % number for number in range(41)]) for space in (1, 2)],
    "scan": lambda view: [view.scan(space) for space in (1, 2)],
    "scan backwards": lambda view: [view.scan(space, reverse=True) for space in (1, 2)],
    "small pages": lambda view: [view.scan(1, b"key%03d" % number, limit=2) for number in range(41)],
    "sizes": lambda view: [
        (view.size_bytes(space, *bounds), view.rows(space, *bounds), view.middle_key(space, *bounds))
        for space, bounds in product((1, 2), ((), (b"key010", b"key030")))
    ],
}
ASKED = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


@pytest.fixture(autouse=True)
def _outlive() -> None:
    """Install the handler, so that lost maps do not end this process."""
    sigbus.install()


@pytest.mark.parametrize("value", [b"", b"\0", b"\3", b"\xffvalue"])
@pytest.mark.parametrize("compression", [sorted_file.NONE, sorted_file.LZ4])
def test_a_flag_that_is_not_known_is_damage(value: bytes, compression: int) -> None:
    """The error names the file; a newer record of the key hides the damage from lookups only."""
    good = {internal(1, b"key%03d" % number): b"\1v" for number in range(9)}
    bad = run_of(good | {internal(1, b"key004"): value}, compression=compression)
    view = View([], [run_of(good), bad])
    assert view.get(1, b"key004") == b"v"
    view = View([], [run_of({internal(1, b"key000"): b"\1v"}), bad])
    for question in (
        lambda: view.get(1, b"key004"),
        lambda: view.get_many(1, [b"key003", b"key004", b"key005"]),
        lambda: view.scan(1),
        lambda: view.scan(1, b"key004", reverse=True),
        lambda: view.scan(1, b"key003", b"key005", limit=2),
    ):
        with pytest.raises(Corrupt, match=r"0\.gkv: damaged at byte \d+: a record is neither a value nor a tombstone"):
            question()
    assert view.scan(1, limit=3) == ([(b"key%03d" % number, b"v") for number in range(3)], b"key003")
    assert view.get(1, b"key003") == b"v"


@ASKED
def test_bytes_of_a_run_flipped(ask: Callable[[View], object]) -> None:
    """All answers are right, or the damage is named; both happen."""
    layers = alternating()
    image = sorted_file.write(sorted(layers[2].items()), metadata=bytes(8_192))  # Unused bytes.
    newer = memtable_of(layers[0])
    older = run_of(layers[5])
    first = min(layers[2])
    expected = ask(View([newer], [[(first, SortedFile(image))], older]))
    right = named = 0
    for at in range(0, len(image), 3):
        damaged = bytearray(image)
        damaged[at] ^= 1 << at % 8
        try:
            file = SortedFile(damaged, name="damaged.gkv")
        except (Corrupt, UnsupportedFormat):  # Other tests cover refused openings.
            continue
        try:
            answer = ask(View([newer], [[(first, file)], older]))
        except Corrupt as error:
            assert error.file == "damaged.gkv"
            named += 1
        else:
            assert answer == expected
            right += 1
    assert named > 0
    assert right > 0


@ASKED
@pytest.mark.parametrize("checked", [False, True], ids=["never read", "checked before"])
def test_a_run_that_is_cut_short_answers_nothing(
    tmp_path: Path, ask: Callable[[View], object], *, checked: bool
) -> None:
    """The other runs are whole and have answers of their own."""
    layers = alternating()
    image = sorted_file.write(sorted(layers[2].items()), metadata=bytes(9_000))
    path = tmp_path / "run.gkv"
    for size in (*range(0, len(image), 1_021), len(image) - 1):
        path.write_bytes(image)
        file = SortedFile(path)
        view = View([memtable_of(layers[0])], [run_of(layers[1]), [(min(layers[2]), file)], run_of(layers[5])])
        if checked:
            ask(view)
        os.truncate(path, size)
        with pytest.raises(Corrupt, match=r"run\.gkv: damaged at byte \d+: the file was cut short"):
            ask(view)
        view.close()
        file.close()


def test_what_a_newer_source_answers_needs_no_older_one(tmp_path: Path) -> None:
    """A lost run does not affect keys that newer sources answer."""
    image = sorted_file.write([(internal(1, b"a"), b"\1old"), (internal(1, b"b"), b"\1old")])
    path = tmp_path / "run.gkv"
    path.write_bytes(image)
    newer = {internal(1, b"a"): b"\1new", internal(1, b"c"): b"\2"}
    for view in (
        View([memtable_of(newer)], [[(internal(1, b"a"), SortedFile(path))]]),
        View([], [run_of(newer), [(internal(1, b"a"), SortedFile(path))]]),
    ):
        os.truncate(path, 0)
        assert view.get_many(1, [b"a", b"c"]) == [b"new", None]
        for key in (b"b", b"d"):
            with pytest.raises(Corrupt):
                view.get(1, key)
        path.write_bytes(image)


# -- resources of a view ---------------------------------------------------------------------------------------------


def test_files_are_held_until_the_view_is_closed() -> None:
    """Each view pins its files; a closed view refuses questions, and a second close does nothing."""
    run = run_of(alternating()[0], (10, 20))
    view, other = View([], [run]), View([], [run, run_of(alternating()[1])])
    for held in (view, other):
        for _, file in run:
            with pytest.raises(BufferError):
                file.close()
        held.close()
        held.close()
    for question in (*QUESTIONS.values(), lambda view: view.scan(1, limit=1)):
        with pytest.raises(ValueError, match="the view is closed"):
            question(view)
    for _, file in run:
        file.close()


def test_a_view_that_is_dropped_lets_go() -> None:
    """The collector also releases a view in a cycle."""
    run = run_of(alternating()[0], (10, 20))
    cycle: list[object] = [View([], [run])]
    cycle.append(cycle)
    del cycle
    gc.collect()
    for _, file in run:
        file.close()


def test_memtables_live_until_the_view_is_closed() -> None:
    """An open view keeps its memtables alive, and a closed one releases them."""
    memtable = memtable_of({internal(1, b"a"): b"\1" + b"v" * 100_000})
    view = View([memtable], [])
    held = sys.getrefcount(memtable)
    view.close()
    assert sys.getrefcount(memtable) == held - 1
    view = View([memtable], [])
    del memtable
    gc.collect()
    assert view.get(1, b"a") == b"v" * 100_000


def test_what_no_view_is_made_of() -> None:
    """Sources that are too many, empty, unordered or closed are refused, and none stays pinned."""
    run = run_of(alternating()[0], (10, 20))
    closed = run_of(alternating()[1])
    closed[0][1].close()
    for memtables, runs, reason in (
        ([Memtable(1)] * 5, [run], "at most 4 memtables"),
        ([], [run] * 33, "at most 32 runs"),
        ([], [run, []], "at least one file"),
        ([], [run, run[::-1]], "must ascend"),
        ([], [[run[0], run[0]]], "must ascend"),
        ([], [run, closed], "is closed"),
    ):
        with pytest.raises(ValueError, match=reason):
            View(memtables, runs)
    for memtables, runs in (
        ([None], []),
        ([b"none"], []),
        ([], [[(b"", b"no file")]]),
        ([], [[(b"", None)]]),
        ([], [[(None, run[0][1])]]),
    ):
        with pytest.raises(TypeError):
            View(memtables, runs)
    View([Memtable(1)] * 4, [run] * 32).close()
    for _, file in run:
        file.close()
