"""Pages of a table's scan: what a host reads, and what the asked node makes of the hosts' pages, is as the oracle."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, ProtocolError
from gossipkv.replication.replica.record import MAX_TOMBSTONES, PAGE_BYTES, join_pages, read_page
from gossipkv.storage.engine._engine import View
from tests.oracle import page as oracle
from tests.oracle import record
from tests.oracle.memtable import TOMBSTONE, VALUE, internal
from tests.unit.storage.engine.layers import memtable_of, run_of

KINDS = st.sampled_from((record.PUT, record.PUT, record.DELETED, record.EXPIRING))
NAMES = st.binary(max_size=2) | st.binary(max_size=3).map(lambda name: b"8 bytes " + name)
SPACES = (1, 2, 3)
ORIGINS = 20  # More than a source keeps without objects.
FIRST, END = b"\1", b"\2"


@st.composite
def records(draw):
    kind = draw(KINDS)
    dependencies = draw(st.sampled_from((b"", b"", b"depends", b"d" * 200)))
    value = b"" if kind == record.DELETED else draw(st.binary(max_size=9))
    expires_ms = 7 if kind == record.EXPIRING else 0
    origin, counter = draw(st.integers(1, ORIGINS)), draw(st.integers(1, 300))
    return record.encode((draw(st.integers(0, 9)), origin, counter, kind, dependencies, value, expires_ms))


def spread(keys, draw):
    """Draw layers in which each key has its space."""
    rows = st.just(bytes([TOMBSTONE])) | records().map(lambda data: bytes([VALUE]) + data)
    spaces = {key: draw(st.sampled_from(SPACES)) for key in keys}
    chosen = st.dictionaries(st.sampled_from(keys), rows, max_size=12) if keys else st.just({})
    return [
        {internal(spaces[key], b"\1" + key): row for key, row in draw(chosen).items()}
        for _ in range(draw(st.integers(1, 4)))
    ]


@st.composite
def stores(draw):
    """Draw a view of memtables over runs, and its layers: a newer record may lie in any of them."""
    layers = [layer for layer in spread(draw(st.lists(NAMES, max_size=20, unique=True)), draw) if layer]
    memtables = draw(st.integers(0, min(3, len(layers))))
    others = {internal(space, kind): b"\1other" for space in SPACES for kind in (b"\0i", b"\2time")}
    cuts = st.lists(st.integers(0, 30), max_size=3)
    runs = [run_of({**layer, **others}, draw(cuts)) for layer in layers[memtables:]]
    return View([memtable_of(layer) for layer in layers[:memtables]], runs), layers


def bounds(draw):
    start, end = draw(NAMES | st.just(b"")), draw(NAMES | st.none())
    return FIRST + start, END if end is None else FIRST + end


@given(stores(), st.booleans(), st.integers(1, 9), st.sampled_from((0, 6, 7, 8)), st.data())
def test_a_page_of_several_parts_is_as_the_oracle(store, reverse, limit, now_ms, data):
    view, layers = store
    parts = [(space, *bounds(data.draw)) for space in SPACES]
    expected = oracle.read(layers, parts, reverse=reverse, limit=limit, now_ms=now_ms)
    rows, *others = read_page(view, parts, reverse=reverse, limit=limit, now_ms=now_ms)
    assert msgpack.unpackb(rows) == [part for row in expected.rows for part in row]
    assert others == [*expected[1:]]


@given(st.dictionaries(NAMES, records(), max_size=20), st.integers(0, 4), NAMES | st.none(), st.data())
def test_joined_pages_are_as_the_oracle(found, count, bound, data):
    reverse, limit = data.draw(st.booleans()), data.draw(st.integers(1, 9))
    pages = [[] for _ in range(count)]
    for key, one in sorted(found.items(), reverse=reverse) if pages else ():
        if record.decode(one)[3] != record.DELETED:
            data.draw(st.sampled_from(pages)).append((key, one))
    rows, size_bytes, reached = oracle.join(pages, bound, reverse=reverse, limit=limit)
    packed = [msgpack.packb([part for row in page for part in row]) for page in pages]
    expected = b"".join(msgpack.packb([*row]) for row in rows)
    assert join_pages(packed, bound, reverse=reverse, limit=limit) == (expected, len(rows), size_bytes, reached)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("value_bytes", "count"), [(0, MAX_TOMBSTONES + 5), (PAGE_BYTES // 8, 10)])
def test_a_page_ends_at_its_limits_of_tombstones_and_bytes(reverse, value_bytes, count):
    kind = record.PUT if value_bytes else record.DELETED
    layers = [
        {
            internal(space, b"\1%05d" % number): bytes([VALUE])
            + record.encode((1, space, number + 1, kind, b"", bytes(value_bytes), 0))
            for number in range(space, count, 2)
        }
        for space in (0, 1)
    ]
    parts = [(space, FIRST, END) for space in (0, 1)]
    view = View([], [run_of(layers[0] | layers[1])])
    expected = oracle.read([layers[0] | layers[1]], parts, reverse=reverse, limit=1000)
    rows, bound, counters, dependencies = read_page(view, parts, reverse=reverse, limit=1000, now_ms=0)
    assert (bound, counters, dependencies) == expected[1:]
    assert bound is not None
    assert msgpack.unpackb(rows) == [part for row in expected.rows for part in row]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("spaces", [(1,), range(1, 301)])
def test_many_deleted_records_between_two_are_passed_in_several_pages(reverse, spaces):
    """Each page passes some, also if there are more parts than it passes records."""
    data = bytes([VALUE]) + record.encode((1, 1, 1, record.PUT, b"", b"v", 0))
    keys = [b"%05d" % number for number in range(10_000)]
    run = {internal(spaces[at % len(spaces)], b"\1" + key): bytes([TOMBSTONE]) for at, key in enumerate(keys)}
    run |= {internal(spaces[0], b"\1" + key): data for key in (keys[0], keys[9_900])}
    run |= {internal(space, b"\1" + keys[0]): bytes([TOMBSTONE]) for space in spaces[1:]}
    view = View([], [run_of(run)])
    start, end, bound, found, pages = b"", None, b"", [], 0
    while bound is not None:
        parts = [(space, FIRST + start, END if end is None else FIRST + end) for space in spaces]
        rows, bound, _, _ = read_page(view, parts, reverse=reverse, limit=9, now_ms=0)
        found += msgpack.unpackb(rows)[::2]
        start, end = (start, bound) if reverse else (bound, end)
        pages += 1
        assert pages < 700
    assert found == [keys[9_900], keys[0]][:: 1 if reverse else -1]
    assert pages > 1


def test_what_is_no_record_is_refused():
    view = View([], [run_of({internal(1, b"\1a"): b"\1no record"})])
    with pytest.raises(ProtocolError, match="the record ends within its head"):
        read_page(view, [(1, FIRST, END)], reverse=False, limit=9, now_ms=0)
    damaged = View([], [run_of({internal(1, b"\1a"): b"\3odd flag"})])
    with pytest.raises(Corrupt):
        read_page(damaged, [(1, FIRST, END)], reverse=False, limit=9, now_ms=0)


@pytest.mark.parametrize("page", [7, [b"k"], [b"k", 1], [1, b"r"], [b"k", b"no record"], [b"k", "text"]])
def test_what_is_no_page_is_refused(page):
    with pytest.raises(ProtocolError):
        join_pages([msgpack.packb(page)], None, reverse=False, limit=9)


def test_a_tombstone_of_another_node_is_refused():
    deleted = record.encode((1, 1, 1, record.DELETED, b"", b"", 0))
    with pytest.raises(ProtocolError, match="a tombstone"):
        join_pages([msgpack.packb([b"k", deleted])], None, reverse=False, limit=9)
