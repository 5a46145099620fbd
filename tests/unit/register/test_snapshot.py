"""A snapshot that is read while the map changes is the map after the last edit, or is refused."""

from __future__ import annotations

from random import Random

import msgpack
import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register import snapshot
from gossipkv.register.edits import MapValue
from gossipkv.register.snapshot import SnapshotPage, SnapshotReader, page_of, snapshot_page_of
from gossipkv.register.state import RegisterMap


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_PAGE_BYTES", 40)


def edit(map_, edits):
    value = MapValue(map_.base.sequence, map_.base.digest, map_.base.sequence) if map_.base is not None else MapValue()
    value = map_.next_value(value, map_.state_of(value), edits)
    assert map_.decide(value, 0, value.sequence)


def edit_randomly(map_, random):
    keys = random.sample(range(60), random.choice([1, 2, 8]))
    edit(map_, [(b"%02d" % key, random.choice([None, random.randbytes(7), bytes(60)])) for key in sorted(keys)])


def page(map_, start):
    """Return a page, as another node reads it."""
    return snapshot_page_of(msgpack.unpackb(msgpack.packb(page_of(map_.base, start))))


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_read_while_the_map_changes_is_the_last_map(seed):
    """Each page is of its own moment; the transactions since the first page make one map of them."""
    random, map_ = Random(seed), RegisterMap()
    for _ in range(random.choice([1, 20])):
        edit_randomly(map_, random)
    reader, pages = SnapshotReader(1 << 20), []
    while reader.start is not None:
        pages.append(page(map_, reader.start))
        sizes = [len(key) + len(record) for key, record in pages[-1].entries]
        assert sum(sizes) <= 40 or len(sizes) == 1
        reader.take(pages[-1])
        for _ in range(random.choice([0, 0, 1, 3])):
            edit_randomly(map_, random)
    base = reader.finish(map_.since(0, reader.first.sequence), map_.base.digest)
    assert [*base.entries.scan()] == [*map_.base.entries.scan()]
    assert (base.place, base.digest, base.size_bytes) == (map_.base.place, map_.base.digest, map_.base.size_bytes)
    copy = RegisterMap()
    copy.replace(base)
    edit_randomly(map_, random)
    assert copy.follow(0, map_.since(0, base.sequence))
    assert copy.base.digest == map_.base.digest


A, B, C = (b"a", b"1"), (b"b", b"1"), (b"c", b"1")


@pytest.mark.parametrize(
    "row",
    [
        [0, 1, [[*B], [*A]], None],  # The keys do not ascend.
        [0, 1, [[*A], [*A]], None],
        [0, 1, [[*B]], b"b"],  # The next page would begin again, or before this one.
        [0, 1, [[*B]], b"a"],
        [0, 1, [], b"a"],  # A page without entries would never end.
        *[[number, 1, [[*A]], None] for number in (-1, None, "0", 1.0)],
        *[[0, number, [[*A]], None] for number in (-1, None, "0", 1.0)],
        *[[0, 1, entries, None] for entries in (None, {}, b"", [None], [[b"a"]], [[b"a", None]], [["a", b"1"]])],
        *[[0, 1, [[*A]], following] for following in (1, "b", [])],
        *[None, 7, [], {}, [0, 1, [[*A]]], [0, 1, [[*A]], None, 1]],
    ],
)
def test_a_malformed_page_is_refused(row):
    with pytest.raises(ProtocolError, match=r"a page of a map must be|an entry of a map must be"):
        snapshot_page_of(row)


@pytest.mark.parametrize(
    "following",
    # The page goes back, is older than the first one, or is of another generation.
    [SnapshotPage(0, 5, (A,), None), SnapshotPage(0, 4, (C,), None), SnapshotPage(1, 5, (C,), None)],
)
def test_a_page_that_does_not_continue_the_reading_is_refused(following):
    reader = SnapshotReader(100)
    reader.take(SnapshotPage(0, 5, (A,), b"b"))
    with pytest.raises(ProtocolError, match="does not continue the reading at b'b'"):
        reader.take(following)
    reader.take(snapshot_page_of([0, 5, [], None]))  # The reading may go on.
    assert reader.start is None


@pytest.mark.parametrize(("record", "taken"), [(bytes(36), 25), (b"1", 51)])
def test_a_snapshot_that_never_ends_is_refused(record, taken):
    """Its bytes are bounded, and its pages: two neighbours together are larger than a page."""
    reader = SnapshotReader(1000)
    pages = [SnapshotPage(0, 5, ((b"%04d" % number, record),), b"%04d" % (number + 1)) for number in range(taken + 1)]
    for each in pages[:taken]:
        reader.take(each)
    with pytest.raises(ProtocolError, match="larger than a map can be"):
        reader.take(pages[taken])


def test_another_history_or_digest_is_refused():
    """The history begins after the first page, has no hole, and gives the decided digest."""
    map_ = RegisterMap()
    for entry in (A, B, C, (b"a", None)):
        edit(map_, [entry])
        if entry == A:
            first = page(map_, b"")
    steps, digest = map_.since(0, 1), map_.base.digest
    bad_edits = steps[0]._replace(edits=((b"b", b"2"),))
    for history, expected, words in (
        (steps[1:], digest, "the history of a map goes from 1 to 3"),
        (steps[:1] + steps[2:], digest, "the history of a map goes from 2 to 4"),
        (map_.since(0, 0), digest, "the history of a map goes from 1 to 1"),
        (steps[:-1], digest, "the map after transaction 3 does not"),
        ([bad_edits, *steps[1:]], digest, "the map after transaction 4 does not"),
        (steps, first.entries[0][0] * 32, "the map after transaction 4 does not"),
        ([], digest, "the map after transaction 1 does not have its digest"),
    ):
        reader = SnapshotReader(100)
        reader.take(first)
        with pytest.raises(ProtocolError, match=words):
            reader.finish(history, expected)
    reader = SnapshotReader(100)
    reader.take(first)
    assert [*reader.finish(steps, digest).entries.scan()] == [B, C]


def test_without_the_history_a_snapshot_of_several_moments_is_found_out(monkeypatch):
    """A planted defect: pages of several moments are taken as one map."""
    monkeypatch.setattr(RegisterMap, "since", lambda self, generation, sequence: [])
    with pytest.raises(ProtocolError, match="does not have its digest"):
        test_a_snapshot_read_while_the_map_changes_is_the_last_map(1)
