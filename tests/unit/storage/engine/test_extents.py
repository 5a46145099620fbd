"""The bytes, records and middle key between two bounds of a space, against layers of dicts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt
from gossipkv.storage.engine._engine import View
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file
from tests.oracle import view as oracle
from tests.oracle.memtable import internal
from tests.unit.storage.engine.layers import BOUNDS, LAYERS, SPACES, memtable_of, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


WHOLE = (b"", None)


class Extents:
    """A view of layers, some in memory, the others in runs that are cut into files."""

    def __init__(
        self, layers: Sequence[Mapping[bytes, bytes]], memtables: int, cuts: Sequence[int], compression: int = 0
    ) -> None:
        self.layers = layers
        self.memtables = memtables
        runs = [run_of(layer, cuts, compression) for layer in layers[memtables:]]
        self.view = View([memtable_of(layer) for layer in layers[:memtables]], runs)
        self.files = [  # The records of each file of all runs.
            {key: value for key, value in layer.items() if first <= key < end}
            for layer, run in zip(layers[memtables:], runs, strict=True)
            for first, end in pairwise([*(first for first, _ in run), max(layer) + b"\0"])
        ]

    def check(self, space: int, start: bytes, end: bytes | None) -> None:
        """Check that bytes are exact, records differ only by cut files, and the middle halves the largest source."""
        sizes = oracle.sizes(self.layers, self.memtables, space, start, end)
        keys = sorted({key for source in sizes for key in source})
        assert self.view.size_bytes(space, start, end) == sum(sum(source.values()) for source in sizes)
        rows = self.view.rows(space, start, end)
        assert abs(rows - sum(map(len, sizes))) <= self.cut_records(space, start, end)
        assert (rows > 0) == bool(keys)
        middle = self.view.middle_key(space, start, end)
        if len(keys) < 2:
            assert middle is None
            return
        assert middle in keys[1:], "there is something on both sides"
        largest = max(sizes, key=lambda source: sum(source.values()))
        before = sum(size for key, size in largest.items() if key < middle)
        assert abs(before - sum(largest.values()) / 2) <= max(largest.values())

    def cut_records(self, space: int, start: bytes, end: bytes | None) -> int:
        """Count the records of the files that lie partly between the bounds."""
        within = [len(found) for found in oracle.sizes(self.files, 0, space, start, end)]
        return sum(len(file) for file, found in zip(self.files, within, strict=True) if 0 < found < len(file))

    def share(self, space: int, start: bytes, end: bytes | None) -> float:
        """Return the share of the bytes between the bounds that is before the middle key."""
        sizes = oracle.sizes(self.layers, self.memtables, space, start, end)
        middle = self.view.middle_key(space, start, end)
        assert middle is not None
        return sum(size for source in sizes for key, size in source.items() if key < middle) / sum(
            sum(source.values()) for source in sizes
        )


@st.composite
def extents(draw: st.DrawFn) -> Extents:
    layers = draw(st.lists(LAYERS.filter(bool), min_size=1, max_size=4))
    return Extents(layers, draw(st.integers(0, min(3, len(layers)))), draw(st.lists(st.integers(0, 30), max_size=3)))


@given(extents(), st.lists(st.tuples(BOUNDS.map(lambda bound: bound or b""), BOUNDS), max_size=6))
def test_any_bounds(drawn: Extents, bounds: list[tuple[bytes, bytes | None]]) -> None:
    """The bounds are in any space; descending bounds have nothing between them."""
    for space in (*SPACES, 9):
        for start, end in (WHOLE, *bounds):
            drawn.check(space, start, end)


@given(extents(), st.sets(st.binary(max_size=2), max_size=8))
def test_parts_are_the_whole(drawn: Extents, names: set[bytes]) -> None:
    """The bytes of the parts add up; records may differ by one for each file in a part."""
    parts = list(pairwise([b"", *sorted(names - {b""}), None]))
    for space in SPACES:
        assert sum(drawn.view.size_bytes(space, *part) for part in parts) == drawn.view.size_bytes(space)
        rows = sum(drawn.view.rows(space, *part) for part in parts) - drawn.view.rows(space)
        assert abs(rows) <= len(parts) * len(drawn.files)


def test_records_of_one_size_are_counted() -> None:
    """The count is exact in memory and whole files, and off by one for each cut file."""
    layer = {internal(space, b"%05d" % number): b"\1value" for space in (1, 2) for number in range(1_000)}
    for memtables, cuts, error in ((1, (), 0), (0, (), 1), (0, (300, 600, 1_300), 2)):
        view = Extents([layer], memtables, cuts).view
        for start, end in ((0, 1_000), (0, 1), (123, 124), (250, 350), (299, 901), (999, 1_000)):
            assert 0 <= view.rows(1, b"%05d" % start, b"%05d" % end) - (end - start) <= error
        assert view.rows(1, b"00300", b"00600") == 300 or len(cuts) < 3


LONE = {internal(1, b"b"): b"\1" + bytes(5_000)}
FEW = {internal(1, name): b"\1" for name in (b"b", b"c", b"d")}


@pytest.mark.parametrize("memtables", [0, 1, 2])
def test_a_key_that_has_most_of_the_bytes(memtables: int) -> None:
    """The key is before the middle if it is the first; alone it cannot be halved."""
    for layers in ([LONE, FEW], [FEW, LONE], [FEW | LONE]):
        view = Extents(layers, min(memtables, len(layers)), ()).view
        for start, end in (WHOLE, (b"b", None), (b"a", b"c\0"), (b"b", b"d")):
            assert view.middle_key(1, start, end) == b"c"
        for start, end in ((b"a", b"c"), (b"b", b"c"), (b"b", b"b\0"), (b"d", None)):
            assert view.middle_key(1, start, end) is None
            assert view.rows(1, start, end) > 0


@pytest.mark.parametrize("memtables", [0, 1])
def test_bounds_without_anything_between_them(memtables: int) -> None:
    """The bounds are reversed, equal, outside all keys, or between neighbours."""
    view = Extents([FEW | {internal(2, b""): b"\1"}], memtables, (1, 2)).view
    for start, end in ((b"d", b"b"), (b"c", b"c"), (b"", b""), (b"a", b""), (b"", b"b"), (b"b\0", b"c"), (b"e", None)):
        assert (view.size_bytes(1, start, end), view.rows(1, start, end)) == (0, 0)
        assert view.middle_key(1, start, end) is None


def test_a_key_without_a_space() -> None:
    """The error names the file."""
    view = View([], [[(b"", SortedFile(sorted_file.write([(b"\0\0\1", b"\1")]), name="odd.gkv"))]])
    with pytest.raises(Corrupt, match=r"odd\.gkv: damaged at byte \d+: a key has no space"):
        view.middle_key(255)
