from __future__ import annotations

import json

import pytest

from gossipkv.errors import Unavailable
from gossipkv.http.answers import HttpRequest
from gossipkv.http.read_options import ReadSession
from tests.unit.http.asking import answer_to, ask, context_of
from tests.unit.http.fake_node import FakeDatabase, FakeNode

RECORDS = {b"key%03d" % number: b"value%d" % number for number in range(50)}


def a_node(page=7):
    """Return a node that pages a few records at a time."""
    older = dict.fromkeys(RECORDS, b"older")
    return FakeNode({"db": FakeDatabase({"1": older, "2": RECORDS}, "2")}, page=page)


async def scan(options, headers=None, *, node=None, path="/db/_scan", **context):
    """Scan; return the status, the records and the last line."""
    body = options if isinstance(options, bytes) else json.dumps(options).encode()
    status, told, answer = await ask(context_of(node or a_node(), **context), "POST", path, headers, body)
    if status != 200:
        return status, told, answer
    *lines, last = answer.splitlines()
    return status, [(record["key"], record["value"]) for record in map(json.loads, lines)], json.loads(last)


def expected(keys):
    return [(key.decode(), RECORDS[key].decode()) for key in keys]


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, sorted(RECORDS)),
        (b"", sorted(RECORDS)),
        ({"start": "key010", "end": "key020"}, sorted(RECORDS)[10:20]),
        ({"prefix": "key04"}, sorted(RECORDS)[40:]),
        ({"prefix": {"base64": "a2V5MDQ="}}, sorted(RECORDS)[40:]),
        ({"reverse": True, "end": "key010", "limit": None}, sorted(RECORDS)[9::-1]),
        ({"prefix": "none"}, []),
    ],
)
async def test_records_come_in_order_over_all_pages(options, keys):
    """The last line has no cursor."""
    assert await scan(options) == (200, expected(keys), {"cursor": None, "version": "2"})


@pytest.mark.parametrize("limit", [1, 6, 7, 8, 14, 49, 50, 51])
async def test_a_limit_is_of_all_pages(limit):
    """The limit spans pages, and the returned cursor continues the scan."""
    status, records, last = await scan({"limit": limit})
    assert (status, records) == (200, expected(sorted(RECORDS)[:limit]))
    assert (last["cursor"] is None) is (limit >= 50)
    if last["cursor"] is not None:
        _, more, last = await scan({"limit": 100, "cursor": last["cursor"]})
        assert records + more == expected(sorted(RECORDS))
        assert last == {"cursor": None, "version": "2"}


async def test_a_page_at_a_time():
    """A page is requested when the one before was taken; none is read ahead."""
    node = a_node()
    context = context_of(node)
    answer = await answer_to(context, HttpRequest(b"POST", b"/db/_scan"))
    for pages in range(1, 5):
        await anext(answer.body)
        assert len(node.asked("scan")) == pages
    await answer.body.aclose()


async def test_all_pages_are_from_one_version():
    """The header has the version of the first page, and the cursor keeps it through a switch."""
    node = a_node()
    context = context_of(node)
    answer = await answer_to(context, HttpRequest(b"POST", b"/db/_scan"))
    assert (b"X-Sequins-Version", b"2") in answer.headers
    node.databases["db"].active = "1"
    lines = b"".join([piece async for piece in answer.body]).splitlines()
    assert {json.loads(line)["value"] for line in lines[:-1]} == {value.decode() for value in RECORDS.values()}


async def test_an_error_amid_the_answer_is_the_last_line():
    """The status has been sent already, so the last line has the error and no cursor."""
    node = a_node()
    node.failure, node.fails, node.after = Unavailable("nobody is left"), "scan", 2
    status, records, last = await scan({}, node=node)
    assert (status, records) == (200, expected(sorted(RECORDS)[:14]))
    assert last == {"error": "UNAVAILABLE", "message": "nobody is left"}


async def test_a_page_of_another_version_is_an_error():
    """A node that mixes versions causes an error."""
    node = a_node()
    inner = node._scan

    def mixing(name, options=None):
        records, cursor, version = inner(name, options)
        return [records, cursor, "3" if options else version]

    node._scan = mixing
    status, records, last = await scan({}, node=node)
    assert (status, len(records), last.get("error")) == (200, 7, "BAD_REQUEST")


async def test_an_error_before_the_first_record_is_a_status():
    """Errors have the statuses of other reads."""
    node = a_node()
    node.failure = Unavailable("nobody")
    assert (await scan({}, node=node))[0] == 502
    assert (await scan({}, path="/other/_scan"))[0] == 404
    assert (await scan({}, path="/a.b/_scan"))[0] == 404
    assert (await scan({}, {"X-Sequins-Version": "9"}))[0] == 404
    assert (await scan({}, {"X-GossipKV-Min-Version": "9"}))[0] == 503


async def test_what_steers_a_read_steers_these():
    """Version and time apply to every page; a gateway alone does not go back to an older version."""
    node = a_node()
    _, records, last = await scan({}, {"X-Sequins-Version": "1", "X-GossipKV-Timeout-Ms": "9"}, node=node)
    assert (records[0][1], last["version"]) == ("older", "1")
    assert all(options["version"] == "1" and options["timeout_ms"] == 9 for _, options in node.asked("scan"))
    node, session = a_node(page=100), ReadSession()
    for _ in range(2):
        await scan({}, node=node, alone=True, session=session)
    assert [params[1:] for params in node.asked("scan")] == [(), ({"min_version": "2"},)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefx": "a"}, b"did you mean prefix?"),
        ({"x": "a"}, b"known options are start, end"),
        ({"version": "1"}, b"X-Sequins-Version"),
        ({"local": True}, b"?proxy=true"),
        ({"limit": 0}, b"limit must be"),
        ({"limit": True}, b"limit must be"),
        ({"limit": 1.0}, b"limit must be"),
        ({"limit": 2**63}, b"limit must be"),
        ({"reverse": 1}, b"reverse must be"),
        ({"start": 1}, b"start must be"),
        ({"cursor": {"base64": "?"}}, b"cursor is not valid base64"),
        ([], b"JSON object"),
        (b"{", b"not valid JSON"),
        (b"[" * 100_000, b"not valid JSON"),
    ],
)
async def test_options_that_are_none(options, words):
    """The answer is 400 with a helpful line, and the node is not asked."""
    node = a_node()
    status, headers, body = await scan(options, node=node)
    assert (status, headers["X-GossipKV-Error"], node.calls) == (400, "BAD_REQUEST", [])
    assert words in body
    assert body.count(b"\n") == 1


async def test_forms_that_are_not_spoken():
    """A body is JSON, and an answer is JSON lines."""
    assert (await scan({}, {"Content-Type": "text/plain"}))[0] == 415
    assert (await scan({}, {"Content-Type": "application/json; charset=utf-8"}))[0] == 200
    assert (await scan({}, {"Accept": "application/msgpack"}))[0] == 406


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [[], None],
        [[[b"k"]], None, "2"],
        [[["k", b"v"]], None, "2"],
        [[], b"cursor", "2"],
        [[[b"k", b"v"]], "cursor", "2"],
        [[[b"k", b"v"]] * 3, None, "2"],
        [[], None, "\n"],
    ],
)
async def test_a_node_that_answers_something_else(answer):
    """502; an empty page with a cursor would never end."""
    node = a_node()
    node._scan = lambda *params: answer
    assert (await scan({"limit": 2}, node=node))[0] == 502
