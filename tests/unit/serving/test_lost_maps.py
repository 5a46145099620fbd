"""The serving core answers nothing from a mapped file that was cut short, or whose disk fails."""

from __future__ import annotations

import os
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.errors import Corrupt
from gossipkv.serving import _serving
from gossipkv.serving.published import publish
from gossipkv.storage import sigbus
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from tests.unit.serving.driven import BuiltVersion, Peer, make_core
from tests.unit.storage.lost_pages import PAGE, lose_page, pages_of
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.wire.rpc import Value

RECORDS = {b"key%04d" % number: b"%04d" % number * (number % 80) for number in range(0, 500, 2)} | {
    b"long": random.Random(1).randbytes(12_000)
}
KEYS = sorted(RECORDS)
ABSENT = [b"key%04d" % number for number in range(1, 500, 2)]
EVERY = [*KEYS, *ABSENT]


@dataclass
class Served:
    """A file, the core that serves it as partition 0 of 1, and a peer."""

    file: SortedFile
    peer: Peer

    def answers(self, method: str, *params: Value) -> Value:
        """Return the result, or None if the request was handed off."""
        hand_offs = self.peer.send(rpc.request(1, method, ["db", *params]))
        said = self.peer.answers()
        if hand_offs:
            assert not said, said
            assert self.peer.driver.reply(self.peer.handle, 1, rpc.response(1, None))
            self.peer.take()
            self.peer.answers()
            return None
        ((_, _, error, result),) = said
        assert error is None, error
        return result


@pytest.fixture(params=["none", "lz4"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the path of a file with either compression."""
    sigbus.install()
    compression: str = request.param
    path = tmp_path / f"{compression}.gkv"
    build(path, RECORDS.items(), compression=compression)
    return path


@contextmanager
def serve(path: Path, *, checked: bool = True) -> Iterator[Served]:
    """Yield a core that serves the file, newly mapped, with all pages checked or none."""
    with SortedFile(path) as file:
        file.set_paged(False)  # Otherwise a read would wait for a pager (`test_cold_reads_slow.py`).
        table = publish([(BuiltVersion("db", "v1", [file]), True)]).table()
        core = make_core()
        core.publish(table)
        if checked:
            file.verify()
        try:
            yield Served(file, Peer(core))
        finally:
            table.release()


def test_a_get_whose_page_is_missed_is_handed_off(place: Path) -> None:
    """For each lost page, answers are correct until the loss is noticed, and all later reads are handed off."""
    handed_off = 0
    for page in pages_of(place):
        with serve(place) as served:
            lose_page(place, page)
            for key in EVERY:
                said = served.answers("get", key)
                assert said in (None, [RECORDS.get(key), "v1"]), key
                assert (said is None) == (served.file.lost_at is not None)
                handed_off += said is None
            counted = served.peer.core.counters()
            assert counted["gets"] + counted["handed_off"] == len(EVERY)
    assert handed_off > len(EVERY)


@pytest.mark.parametrize("checked", [False, True])
def test_a_long_value_of_which_the_end_is_missed_is_handed_off(place: Path, *, checked: bool) -> None:
    """The key is found, and the disk fails while the value is copied."""
    met = set()
    for page in pages_of(place):
        with serve(place, checked=checked) as served:
            lose_page(place, page)
            said = served.answers("get", b"long")
            assert said in (None, [RECORDS[b"long"], "v1"])
            if said is None:
                met.add(page)
                with pytest.raises(Corrupt) as error:
                    served.file.get(b"long")
                assert error.value.offset // PAGE == page
    # The last page holds the footer. A compressed value in the cache is not read again.
    assert len(met) >= (2 if checked and place.stem == "lz4" else 4)


@pytest.mark.parametrize("size", [1, 50, len(EVERY)])
def test_a_get_many_of_which_one_page_is_missed_is_handed_off(place: Path, size: int) -> None:
    """A batch has all its values or none."""
    handed_off = 0
    for page in pages_of(place):
        with serve(place) as served:
            lose_page(place, page)
            for first in range(0, len(EVERY), size):
                keys = EVERY[first : first + size]
                said = served.answers("get_many", keys)
                assert said in (None, [[RECORDS.get(key) for key in keys], "v1"])
                assert (said is None) == (served.file.lost_at is not None)
                handed_off += said is None
    assert handed_off > 0


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 5}, {"start": b"key0301"}, {"prefix": b"key01"}])
def test_a_scan_of_which_one_page_is_missed_is_handed_off(place: Path, options: dict[str, Value]) -> None:
    """A scan has all its records or none."""
    handed_off = 0
    for page in pages_of(place):
        with serve(place) as served:
            expected = served.answers("scan", options)
            lose_page(place, page)
            said = served.answers("scan", options)
            assert said in (None, expected)
            assert (said is None) == (served.file.lost_at is not None)
            handed_off += said is None
    assert handed_off > 0


def test_a_file_cut_anywhere_is_handed_off(place: Path) -> None:
    """The file is handed off though every page was checked, and even if the cut is within a page."""
    image = place.read_bytes()
    for size in (*range(0, len(image), 2_039), len(image) - 1):
        with serve(place) as served:
            os.truncate(place, size)
            for method, *params in (("get", b"long"), ("get", b"absent"), ("get_many", EVERY), ("scan", {"limit": 1})):
                assert served.answers(method, *params) is None
            place.write_bytes(image)
            assert served.answers("get", b"long") is None


def test_what_is_missed_between_two_slices_of_a_page(place: Path, tmp_path: Path) -> None:
    """The page is not answered, although the records of its first slices were correct."""
    other = tmp_path / "other.gkv"
    build(other, [(b"last%d" % number, b"") for number in range(100)])
    with SortedFile(place) as file, SortedFile(other) as whole:
        file.set_paged(False)
        whole.set_paged(False)
        assert len(page([file, whole], work=1)) == len(page([file, whole], work=10_000)) == len(RECORDS) + 100
        os.truncate(place, place.stat().st_size - 1)
        for work in (1, 100, 10_000):
            with pytest.raises(Corrupt) as error:
                page([file, whole], work, start=b"last")
            assert error.value.file == str(place)


def page(files: list[SortedFile], work: int, start: bytes | None = None) -> list[Value]:
    """Return the records of a page that is made in slices of `work`."""
    packed, _ = _serving.page(
        files, start, None, reverse=False, limit=1_000, max_bytes=1 << 20, max_value=1 << 20, slice_work=work
    )
    return msgpack.unpackb(packed)
