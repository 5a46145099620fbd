"""Tests that cost seconds; `test_view.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.storage import sigbus
from gossipkv.storage.engine._engine import View
from tests.oracle.memtable import TOMBSTONE, internal
from tests.unit.storage.engine.layers import run_of

MAX_PASSED = 4096
WAYS = pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])


@WAYS
@pytest.mark.parametrize("alone", [True, False])
def test_a_page_passes_over_so_many_and_no_more(alone: bool, *, reverse: bool) -> None:
    """A page among deleted records may be empty; it is not the last one, and the scan goes on from its end."""
    count = 4 * MAX_PASSED
    deleted = {internal(1, b"%06d" % number): bytes([TOMBSTONE]) for number in range(count)}
    live = {internal(1, b"%06d" % number): b"\1v" for number in (0, count // 2, count)}
    layers = [{**deleted, **live}] if alone else [live, deleted, dict.fromkeys(deleted, b"\1old")]
    view = View([], [run_of(layer, (100, 5_000)) for layer in layers])
    start: bytes | None = None
    end: bytes | None = None
    found, pages, empty, after = [], 0, 0, b""
    while True:
        records, after = view.scan(1, start, end, reverse=reverse)
        found += records
        pages += 1
        empty += not records
        if after is None:
            break
        assert (end is None or after < end) if reverse else (start is None or after > start), "each page leads on"
        start, end = (start, after) if reverse else (after, end)
    assert found == sorted(((key[4:], b"v") for key in live), reverse=reverse)
    assert pages in ({4} if alone else {8, 9})
    assert empty >= 1


@pytest.fixture(autouse=True)
def _outlive() -> None:
    """Install the handler, so that lost maps do not end this process."""
    sigbus.install()
