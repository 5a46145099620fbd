"""A range of keys is deleted by what a scan shows, whatever fails for now in between."""

from __future__ import annotations

import pytest

from gossipkv.client import blocking, deletion
from gossipkv.client.deletion import IN_FLIGHT, PATIENCE_S, RangeDeletion
from gossipkv.errors import BadRequest, GossipKVError, NotReady, TooLarge, UnknownDatabase
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

KEYS = [b"a", *(b"a%02d" % number for number in range(1, 9)), b"b", b"c"]


class RangeNode(TableNode):
    """One whose scans go on behind the last key, as those of nodes do."""

    def __init__(self, fails=None):
        super().__init__(fails)
        self.records = dict.fromkeys(KEYS, b"v")

    def scan(self, options=None):
        """Two keys a page."""
        options = options or {}
        end = options.get("end")
        found = [
            [key, value]
            for key, value in sorted(self.records.items())
            if key >= options.get("start", b"") and key > options.get("cursor", b"")
            and (end is None or key < end) and key.startswith(options.get("prefix", b""))
        ]  # fmt: skip
        return [found[:2], found[1][0] if len(found) > 2 else None, b"token"]


def cleared(node, *, pause=lambda _: None, **bounds):
    """What is left at a node, how many were deleted, and up to which key."""
    with FakeNode(node) as listening, blocking.connect(listening.address, timeout_ms=20_000) as client:
        job = RangeDeletion(client, "t", pause=pause, **bounds)
        counts = [*job.run()]
        assert counts == sorted(counts)
        return sorted(node.records), job.deleted, job.last


def error_of(node, **bounds):
    """Why nothing more is deleted at a node; None: all is."""
    try:
        cleared(node, **bounds)
    except GossipKVError as error:
        return error
    return None


@pytest.mark.parametrize(("bounds", "gone"), [
    ({"start": b"a03", "end": b"a07"}, KEYS[3:7]), ({"start": b"a07"}, KEYS[7:]), ({"end": b"a03"}, KEYS[:3]),
    ({"prefix": b"a"}, KEYS[:9]), ({"prefix": b"a", "start": b"a07", "end": b"z"}, KEYS[7:9]),
    ({"start": b"", "end": b"b"}, KEYS[:9]), ({"start": b"x"}, []),
])  # fmt: skip
def test_what_is_deleted(bounds, gone):
    """All that is within the bounds, nothing else, at the level that is asked for."""
    node = RangeNode()
    left, count, last = cleared(node, level="all", **bounds)
    assert (left, count, last) == ([key for key in KEYS if key not in gone], len(gone), gone[-1] if gone else None)
    deletes = [params for method, params in node.asked if method == "delete"]
    assert [key for key, _ in deletes] == gone
    assert {options["level"] for _, options in deletes} <= {"all"}


def test_what_fails_for_now():
    """It goes on behind the last key that is deleted, and counts no key twice that it sends again."""
    errors = {number: [code, "for now", {}] for number, code in (
        (1, "NOT_READY"), (4, "UNAVAILABLE"), (5, "UNAVAILABLE"), (9, "UNKNOWN"), (12, "TIMEOUT"), (13, "OVERLOADED"),
    )}  # fmt: skip
    pauses = []
    node = RangeNode(errors)
    assert cleared(node, start=b"a", pause=pauses.append) == ([], len(KEYS), b"c")
    assert len(pauses) >= 4
    assert len(node.asked) < len(KEYS) * 3


@pytest.mark.parametrize(("code", "error"), [
    ("UNKNOWN_DATABASE", UnknownDatabase), ("BAD_REQUEST", BadRequest), ("TOO_LARGE", TooLarge),
])  # fmt: skip
def test_what_stays_so(code, error):
    """It ends with that, and says how far it came."""
    node = RangeNode({4: [code, "no", {}]})
    with FakeNode(node) as listening, blocking.connect(listening.address, timeout_ms=20_000) as client:
        job = RangeDeletion(client, "t", start=b"a")
        with pytest.raises(error):
            list(job.run())
        assert (job.deleted, job.last) == (2, b"a01")


def test_patience_ends(monkeypatch):
    """After so long without one answer it fails, and each answer gives it all of its patience again."""
    now = [0.0]
    monkeypatch.setattr(deletion, "monotonic", lambda: now[0])

    def pause(_):
        now[0] += PATIENCE_S * 2 / 3

    failing = {number: ["NOT_READY", "for now", {}] for number in (2, 4, 6, 8, 10, *range(12, 1000))}
    monkeypatch.setattr(blocking, "pause_s", lambda *_: None)
    monkeypatch.setattr("gossipkv.client.pipeline.pause_s", lambda *_: None)
    assert isinstance(error_of(RangeNode(failing), start=b"a", pause=pause), NotReady)
    assert now[0] >= PATIENCE_S


def test_a_node_that_ends_amid_it():
    """Another one goes on: what may have been done is sent once more."""
    node = RangeNode()

    def breaks(connection):
        for _ in range(2):
            message_id, method, params = connection.next_request()
            connection.answer(message_id, getattr(node, method)(*params[1:]))
        connection.next_request()

    with FakeNode(breaks) as first, FakeNode(node) as second:
        with blocking.connect(first.address, second.address, timeout_ms=20_000) as client:
            job = RangeDeletion(client, "t", start=b"a")
            list(job.run())
        assert (node.records, job.deleted, job.last) == ({}, len(KEYS), b"c")


def test_bounds_that_are_none():
    """Nothing bounds it, or nothing is within the bounds: nobody is asked."""
    node = RangeNode()
    for bounds, words in (
        ({}, "all of t would be deleted"), ({"start": b"", "prefix": b""}, "all of t would be deleted"),
        ({"start": b"k", "end": b"k"}, "no key is at b'k' or behind it, and before b'k'"), ({"end": b""}, "no key"),
    ):  # fmt: skip
        error = error_of(node, **bounds)
        assert isinstance(error, BadRequest)
        assert words in error.message
    assert node.asked == []


def test_a_long_page():
    """It has more keys than there are deletes on their way at once: all are deleted, in their order."""
    node = RangeNode()
    node.records = {b"%05d" % number: b"" for number in range(IN_FLIGHT * 5)}
    node.scan = lambda _: [[[key, b""] for key in sorted(node.records)], None, b"token"]
    assert cleared(node, start=b"0") == ([], IN_FLIGHT * 5, b"%05d" % (IN_FLIGHT * 5 - 1))
