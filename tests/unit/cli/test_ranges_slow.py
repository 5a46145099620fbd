"""The range commands of `table` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json

import pytest

from gossipkv.cli import ranges
from gossipkv.cli.ranges import IN_FLIGHT, PATIENCE_S, RangeDeletion
from gossipkv.client import blocking
from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, TooLarge, Unavailable, UnknownDatabase
from tests.unit.cli.asked_node import answering, raising
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

DIVIDED = {"table": "t", "partition": 7, "partitions": [{"id": 8, "start": b""}, {"id": 9, "start": b"k"}]}


def test_a_split(ask):
    """The output names the key and the children; --json passes on the answer."""
    done, asked = ask("table", "split", "t", "k", "--timeout", "3s", split=lambda *_: DIVIDED)
    assert (done.status, asked) == (0, [("split", ["t", b"k", {"timeout_ms": 3000}])])
    assert done.out == "t: divided at 'k', into 8 and 9\n"
    done, asked = ask("table", "split", "t", "0x00ff", "--hex", split=lambda *_: DIVIDED)
    assert (asked[0][1][1], done.out) == (b"\x00\xff", "t: divided at 0x00ff, into 8 and 9\n")
    done, asked = ask("table", "split", "t", "0x00ff", split=lambda *_: DIVIDED)
    assert (asked[0][1][1], done.out) == (b"0x00ff", "t: divided at '0x00ff', into 8 and 9\n")
    done, asked = ask("table", "split", "--hex", "t", "0x0", split=lambda *_: DIVIDED)
    assert (done.status, asked, "pairs of hexadecimal digits behind 0x" in done.err) == (2, [], True)
    done, _ = ask("table", "split", "t", "k", "--json", split=lambda *_: DIVIDED)
    assert [one["id"] for one in json.loads(done.out)["partitions"]] == [8, 9]


def test_a_split_of_which_nothing_is_known(ask):
    """The split is requested again; a range that begins at the key then means success, other conflicts are errors."""
    there = Conflict("divided already", {**DIVIDED, "partition": None})
    for error, status, out in (
        (there, 0, "t: divided at 'k', into 8 and 9\n"), (Conflict("it moves"), 3, ""), (EOFError(), 3, ""),
    ):  # fmt: skip
        done, asked = ask("table", "split", "t", "k", split=answering(EOFError(), error))
        assert (done.status, done.out, asked[0]) == (status, out, asked[1])
        assert "asking what became of it" in done.err
    done, _ = ask("table", "split", "t", "k", split=raising(there))
    assert (done.status, done.err) == (3, "gossipkv: divided already\n")


MOVE = {"table": "t", "partition": 7, "slot": 2, "from": "n1", "to": "n4", "changed": True}


@pytest.mark.parametrize("method", ["join", "leave"])
def test_a_slot_moves(ask, method):
    """The line names slot, source and target; a repeated command has a note, and --json passes on the answer."""
    command = ["table", method, "t", "k", "n4"]
    done, asked = ask(*command, "--timeout", "3s", **{method: lambda *_: MOVE})
    assert (done.status, asked) == (0, [(method, ["t", b"k", "n4", {"timeout_ms": 3000}])])
    assert (done.out, done.err) == ("t: slot 2 of the range that 'k' is in moves from n1 to n4\n", "")
    done, _ = ask(*command, **{method: lambda *_: {**MOVE, "from": None, "changed": False}})
    assert done.out == "t: slot 2 of the range that 'k' is in is on n4\n"
    assert done.err == "nothing to do: it was so already\n"
    done, _ = ask(*command, "--json", **{method: lambda *_: MOVE})
    assert json.loads(done.out) == MOVE


def test_a_leave_of_which_nothing_is_known(ask):
    """The leave is requested again; a node that holds nothing then means success."""
    gone = Conflict("n1 holds nothing", {**MOVE, "slot": None, "to": None, "changed": False})
    done, asked = ask("table", "leave", "t", "k", "n1", leave=answering(EOFError(), gone))
    assert (done.status, done.out, len(asked)) == (0, "t: the range that 'k' is in moves from n1\n", 2)
    done, asked = ask("table", "leave", "t", "k", "n1", leave=raising(gone))
    assert (done.status, done.err, len(asked)) == (3, "gossipkv: n1 holds nothing\n", 1)


def test_force_join_says_first_what_may_be_lost(ask):
    """Without --yes nothing is done, with status 2; with it the possible loss is named."""
    for copy, begins in (
        (None, "set aside there, or with nothing"),
        ("5", "with the copy 5"),
        ("none", "n4, with nothing"),
    ):
        more = [] if copy is None else ["--copy", copy]
        done, asked = ask("table", "force-join", "t", "k", "n4", *more)
        assert (done.status, done.out, asked) == (2, "", [])
        for words in "nothing was done", begins, "would be lost", "--yes":
            assert words in done.err
    told = {"table": "t", "partition": 9, "node": "n4", "copy": "5", "may_be_lost": "all that only n1 had"}
    for more, options in (["--copy", "5"], {"copy": "5"}), (["--copy", "none"], {"copy": ""}), ([], {}):
        done, asked = ask("table", "force-join", "t", "k", "n4", *more, "--yes", force_join=lambda *_: told)
        assert (done.status, asked) == (0, [("force_join", ["t", b"k", "n4", options])])
        assert (done.out, done.err) == ("t: partition 9 on n4: all that only n1 had\n", "")
    done, _ = ask("table", "force-join", "t", "k", "n4", "--yes", force_join=lambda *_: {**told, "changed": False})
    assert (done.status, done.err) == (0, "nothing to do: it was so already\n")
    done, _ = ask("table", "force-join", "t", "k", "n4", "--yes", "--json", force_join=lambda *_: told)
    assert json.loads(done.out) == told


def partition(start, end, **more):
    hosts = [{"node": node, "slot": slot, "state": "AVAILABLE"} for slot, node in enumerate(("n1", "n2"))]
    return {"id": 7, "start": start, "end": end, "hosts": hosts, "bytes": 2048, "rows": 1500, "rate": 12.34, **more}


def test_partitions(ask):
    """Each partition has a row, over all pages, with moves and unknown sizes; a hash table shows the shard."""
    moving = [{"node": "n3", "slot": 0, "state": "PROPOSED"}]
    pages = [
        {"kind": "range", "partitions": [partition(b"", b"k")], "next": b"k"},
        {"kind": "range", "partitions": [partition(b"k", None, hosts=moving, bytes=None, rows=None, rate=None)],
         "next": None},
    ]  # fmt: skip
    done, asked = ask("table", "partitions", "t", partitions=answering(*pages))
    assert (done.status, done.err, asked) == (
        0,
        "",
        [("partitions", ["t", {}]), ("partitions", ["t", {"start": b"k"}])],
    )
    assert [line.split() for line in done.out.splitlines()] == [
        ["partition", "start", "end", "hosts", "size", "rows", "rate"],
        ["7", "''", "'k'", "n1", "n2", "2.0", "KiB", "1,500", "12.3"],
        ["7", "'k'", "-", "n3(PROPOSED)", "-", "-", "-"],
    ]
    done, _ = ask("table", "partitions", "t", "--json", partitions=answering(*pages))
    assert [one["start"] for one in json.loads(done.out)["partitions"]] == ["", "k"]
    page = {"kind": "hash", "partitions": [partition(b"\0\0\0\x0b", None)], "next": None}
    done, _ = ask("table", "partitions", "t", partitions=lambda *_: page)
    assert [line.split()[:3] for line in done.out.splitlines()] == [["partition", "shard", "hosts"], ["7", "11", "n1"]]


def scanning(*pages):
    """Return a scan that yields these keys, page after page."""
    return answering(
        *([[[key, b""] for key in page], page[-1] if page is not pages[-1] else None, b"t"] for page in pages)
    )


def test_a_range_is_deleted(ask):
    """The keys of a scan within the bounds are deleted and counted."""
    done, asked = ask(
        "table", "delete-range", "t", "a", "c", "--prefix", "a", "--level", "all",
        scan=scanning([b"a", b"aa"], [b"ab"]), delete=lambda *_: b"",
    )  # fmt: skip
    assert (done.status, done.out, done.err) == (0, "t: 3 records deleted\n", "")
    assert asked[0] == ("scan", ["t", {"start": b"a", "end": b"c", "prefix": b"a"}])
    deletes = [params for method, params in asked if method == "delete"]
    assert [(key, options["level"]) for _, key, options in deletes] == [(b"a", "all"), (b"aa", "all"), (b"ab", "all")]
    done, _ = ask("table", "delete-range", "t", "a", "--json", scan=scanning([b"a"]), delete=lambda *_: b"")
    assert json.loads(done.out) == {"table": "t", "deleted": 1}


@pytest.mark.parametrize(("error", "status"), [(BadRequest("t is a dataset"), 2), (KeyboardInterrupt(), 130)])
def test_a_deletion_that_ends_early(ask, monkeypatch, error, status):
    """The error says how far the deletion came and that it can be repeated, unless it has not begun."""
    take = ranges.tables.token_of
    answers = iter([None, None, error])

    def token_of(method, answer):
        if (ends := next(answers)) is not None:
            raise ends
        return take(method, answer)

    monkeypatch.setattr(ranges.tables, "token_of", token_of)
    command = ["table", "delete-range", "t", "a"]
    done, _ = ask(*command, scan=scanning([b"a", b"aa", b"ab"]), delete=lambda *_: b"")
    assert (done.status, done.out) == (status, "")
    assert "gossipkv: 2 records deleted, up to 'aa'; say it again to go on\n" in done.err
    done, _ = ask(*command, scan=raising(UnknownDatabase("there is no table t")))
    assert (done.status, done.err) == (1, "gossipkv: there is no table t\n")


@pytest.mark.parametrize(("error", "status"), [
    (Conflict("it moves"), 3), (BadRequest("n9 is no node of tables"), 2), (Unavailable("n4 is down"), 3),
    (NotReady("no table was ever made here"), 3), (UnknownDatabase("there is no table t"), 1),
])  # fmt: skip
def test_what_the_node_refuses(ask, error, status):
    for arguments, method in (
        ("split t k", "split"), ("join t k n4", "join"), ("leave t k n4", "leave"),
        ("force-join t k n4 --yes", "force_join"), ("partitions t", "partitions"),
    ):  # fmt: skip
        done, asked = ask("table", *arguments.split(), **{method: raising(error)})
        assert (done.status, done.out, done.err, len(asked)) == (status, "", f"gossipkv: {error}\n", 1)


@pytest.mark.parametrize("arguments", [
    "split t", "split t k l", "join t k", "join t k n4 n5", "leave t", "force-join t k", "partitions", "partitions t u",
    "delete-range t", "delete-range t b a", "delete-range t a a", "delete-range t a b c",
    "delete-range t a --level two",
])  # fmt: skip
def test_wrong_use(ask, arguments):
    done, asked = ask("table", *arguments.split())
    assert (done.status, done.out, asked) == (2, "", [])


KEYS = [b"a", *(b"a%02d" % number for number in range(1, 9)), b"b", b"c"]


class RangeNode(TableNode):
    """A node whose scans continue after the last key, as real scans do."""

    def __init__(self, fails=None):
        super().__init__(fails)
        self.records = dict.fromkeys(KEYS, b"v")

    def scan(self, options=None):
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
    """Return the keys left at a node, the number deleted, and the last deleted key."""
    with FakeNode(node) as listening, blocking.connect(listening.address, timeout_ms=20_000) as client:
        job = RangeDeletion(client, "t", pause=pause, **bounds)
        counts = [*job.run()]
        assert counts == sorted(counts)
        return sorted(node.records), job.deleted, job.last


def error_of(node, **bounds):
    """Return the error that ends a deletion, or None."""
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
    """Exactly the keys within the bounds are deleted, at the requested level."""
    node = RangeNode()
    left, count, last = cleared(node, level="all", **bounds)
    assert (left, count, last) == ([key for key in KEYS if key not in gone], len(gone), gone[-1] if gone else None)
    deletes = [params for method, params in node.asked if method == "delete"]
    assert [key for key, _ in deletes] == gone
    assert {options["level"] for _, options in deletes} <= {"all"}


def test_what_fails_for_now():
    """The deletion continues after the last deleted key and counts no key twice."""
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
    """The error ends the deletion, which reports how far it came."""
    node = RangeNode({4: [code, "no", {}]})
    with FakeNode(node) as listening, blocking.connect(listening.address, timeout_ms=20_000) as client:
        job = RangeDeletion(client, "t", start=b"a")
        with pytest.raises(error):
            list(job.run())
        assert (job.deleted, job.last) == (2, b"a01")


def test_patience_ends(monkeypatch):
    """The deletion fails after PATIENCE_S without an answer; each answer starts the time anew."""
    now = [0.0]
    monkeypatch.setattr(ranges, "monotonic", lambda: now[0])

    def pause(_):
        now[0] += PATIENCE_S * 2 / 3

    failing = {number: ["NOT_READY", "for now", {}] for number in (2, 4, 6, 8, 10, *range(12, 1000))}
    monkeypatch.setattr(blocking, "pause_s", lambda *_: None)
    monkeypatch.setattr("gossipkv.client.pipeline.pause_s", lambda *_: None)
    assert isinstance(error_of(RangeNode(failing), start=b"a", pause=pause), NotReady)
    assert now[0] >= PATIENCE_S


def test_a_node_that_ends_amid_it():
    """Another node continues, and unconfirmed deletes are sent again."""
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
    """Missing bounds and empty bounds are refused, and no node is asked."""
    node = RangeNode()
    for bounds, words in (
        ({}, "all of t would be deleted"), ({"start": b"", "prefix": b""}, "all of t would be deleted"),
        ({"start": b"k", "end": b"k"}, "no key is at 'k' or behind it, and before 'k'"), ({"end": b""}, "no key"),
    ):  # fmt: skip
        error = error_of(node, **bounds)
        assert isinstance(error, BadRequest)
        assert words in error.message
    assert node.asked == []


def test_a_long_page():
    """The page has more keys than deletes in flight: all are deleted, in order."""
    node = RangeNode()
    node.records = {b"%05d" % number: b"" for number in range(IN_FLIGHT * 5)}
    node.scan = lambda _: [[[key, b""] for key in sorted(node.records)], None, b"token"]
    assert cleared(node, start=b"0") == ([], IN_FLIGHT * 5, b"%05d" % (IN_FLIGHT * 5 - 1))
