from __future__ import annotations

import json
from base64 import b64encode

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import TimedOut
from gossipkv.http import json_lines
from gossipkv.http.batches import MAX_KEYS
from gossipkv.http.json_lines import MAX_DOCUMENT_BYTES
from gossipkv.http.read_options import ReadSession
from gossipkv.wire.json_form import json_form
from tests.unit.http.asking import ask, context_of
from tests.unit.http.fake_node import FakeDatabase, FakeNode, baby_names

LINES = "application/x-ndjson"
PACKED = "application/msgpack"


async def mget(body, headers=None, *, node=None, path="/baby-names/_mget", **context):
    return await ask(context_of(node or baby_names(), **context), "POST", path, headers, body)


def said(body):
    """Return the records of an answer in JSON lines."""
    assert body.endswith(b"\n") or not body
    return [json.loads(line) for line in body.splitlines()]


async def test_keys_and_values_in_json_lines():
    """Each key has its value or null, in the order asked, from one version; bytes that are no text are base64."""
    body = b'"1881/boy"\n{"base64": "AAAAKg=="}\n\n"foo"\r\n"empty"\n"1881/boy"'
    status, headers, answer = await mget(body, {"Content-Type": LINES})
    assert (status, headers["Content-Type"], headers["X-Sequins-Version"]) == (200, LINES, "2")
    assert said(answer) == [
        {"key": "1881/boy", "value": "Johnny"},
        {"key": "\0\0\0*", "value": "\0\0\0d"},
        {"key": "foo", "value": None},
        {"key": "empty", "value": ""},
        {"key": "1881/boy", "value": "Johnny"},
    ]


async def test_keys_and_values_in_messagepack():
    """Keys and values are arrays; a str means its UTF-8."""
    body = msgpack.packb([b"1881/boy", "München", b"foo", b""])
    status, headers, answer = await mget(body, {"Content-Type": PACKED})
    assert (status, headers["Content-Type"], headers["X-Sequins-Version"]) == (200, PACKED, "2")
    assert msgpack.unpackb(answer) == [b"Johnny", b"Isar", None, b"of no key"]


@pytest.mark.parametrize(
    ("sent", "accepted", "answered"),
    [(LINES, PACKED, PACKED), (PACKED, LINES, LINES), (PACKED, "application/json", LINES), (LINES, "*/*", LINES)],
)
async def test_the_answer_has_the_form_that_is_accepted(sent, accepted, answered):
    """The Accept header decides, whatever form the request had."""
    body = b'"foo"\n' if sent == LINES else msgpack.packb([b"foo"])
    status, headers, answer = await mget(body, {"Content-Type": sent, "Accept": accepted})
    assert (status, headers["Content-Type"]) == (200, answered)
    assert answer == (msgpack.packb([None]) if answered == PACKED else b'{"key":"foo","value":null}\n')


async def test_forms_that_are_not_spoken():
    """415 and 406 list the supported forms."""
    status, headers, body = await mget(b"x", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (status, headers["Accept-Post"]) == (415, f"{LINES}, {PACKED}")
    assert LINES.encode() in body
    status, _, body = await mget(b'"x"', {"Accept": "text/html, */*;q=0"})
    assert (status, LINES.encode() in body) == (406, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'"a"\nnull\n', b"line 2"),
        (b'"a"\n\n{"base64": "!"}', b"line 3"),
        (b'{"base64": "AA=="}\n{"base64": 1}', b"line 2"),
        (b'{"base64": "AA==", "x": 1}', b"line 1"),
        (b'"\\ud800"', b"UTF-8"),
        (b"[" * 100_000, b"line 1"),
        (b"9" * 10_000, b"line 1"),
        (b'"a', b"line 1"),
        (b"\xff", b"line 1"),
        (b'["a", "b"]', b"line 1"),
    ],
)
async def test_lines_that_are_no_keys(body, words):
    """The answer is 400 and names the line; the node is not asked."""
    node = baby_names()
    status, headers, answer = await mget(body, {"Content-Type": LINES}, node=node)
    assert (status, headers["X-GossipKV-Error"], node.calls) == (400, "BAD_REQUEST", [])
    assert words in answer
    assert answer.count(b"\n") == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb({"a": 1}),
        msgpack.packb([1]),
        msgpack.packb([None]),
        msgpack.packb([[b"a"]]),
        msgpack.packb([[[]] * 1000] * 1000),
        msgpack.packb([{}]),
        msgpack.packb([{"a": 1}]),
        msgpack.packb([b"a"]) + b"x",
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\x00\x03\xc4",
        b"\x91" * 5000,
        msgpack.packb([msgpack.ExtType(1, b"x")]),
        msgpack.packb([msgpack.Timestamp(1)]),
        b"\x81\x90\x01",
        b"\x91\xc6\xff\xff\xff\xff",
    ],
)
async def test_messagepack_that_is_no_array_of_keys(body):
    """The answer is 400, and the node is not asked."""
    node = baby_names()
    status, headers, _ = await mget(body, {"Content-Type": PACKED}, node=node)
    assert (status, headers["X-GossipKV-Error"], node.calls) == (400, "BAD_REQUEST", [])


async def test_too_many_keys():
    """The limit itself is accepted, one key more is 413."""
    keys = [b"%d" % number for number in range(MAX_KEYS + 1)]
    for form, body in ((PACKED, msgpack.packb(keys)), (LINES, b"".join(b'"%b"\n' % key for key in keys))):
        status, headers, _ = await mget(body, {"Content-Type": form})
        assert (status, headers["X-GossipKV-Error"]) == (413, "TOO_LARGE")
    # Empty lines and long keys cost time as well.
    for body in (b"\n" * MAX_KEYS + b'"x"', b'"%b"' % (b"k" * MAX_DOCUMENT_BYTES)):
        assert (await mget(body))[0] == 413
    status, _, answer = await mget(b"".join(b'"%b"\n' % key for key in keys[1:]))
    assert (status, len(said(answer))) == (200, MAX_KEYS)


async def test_a_key_of_65535_bytes():
    """No request target is that long, so such a key must be posted."""
    key = b"k" * 65_535
    node = FakeNode({"long": FakeDatabase({"1": {key: b"found"}}, "1")})
    status, _, answer = await mget(b'"%b"' % key, node=node, path="/long/_mget")
    assert (status, said(answer)[0]["value"]) == (200, "found")


async def test_a_large_answer_comes_in_pieces():
    """The pieces are small enough for other requests to be served between them."""
    records = {b"%d" % number: b"\xff%d" % number * 2000 for number in range(100)}
    node = FakeNode({"large": FakeDatabase({"1": records}, "1")})
    status, _, answer = await mget(b"".join(b'"%b"\n' % key for key in records), node=node, path="/large/_mget")
    assert status == 200
    assert said(answer) == [
        {"key": key.decode(), "value": {"base64": b64encode(value).decode()}} for key, value in records.items()
    ]
    pieces = list(json_lines.pieces(json_lines.record(key, value) for key, value in records.items()))
    longest = max(len(json_lines.record(key, value)) for key, value in records.items())
    assert b"".join(pieces) == answer
    assert max(map(len, pieces)) <= json_lines.PIECE_BYTES + longest


async def test_what_steers_a_read_steers_these():
    """Version, time and `proxy` work as for single reads, and a gateway alone keeps its session."""
    node = baby_names()
    status, headers, answer = await mget(b'"1881/boy"', {"X-Sequins-Version": "1"}, node=node)
    assert (status, headers["X-Sequins-Version"], said(answer)[0]["value"]) == (200, "1", "John")
    status, headers, _ = await mget(b'"away"', path="/baby-names/_mget?proxy=true")
    assert (status, headers["X-GossipKV-Error"]) == (500, "NOT_SERVED")
    session = ReadSession()
    for _ in range(2):
        await mget(b'"x"', node=node, alone=True, session=session)
    assert [call[2:] for call in node.asked("get_many")][-2:] == [(), ({"min_version": "2"},)]


async def test_errors_are_those_of_reads():
    """Errors have the statuses of single reads."""
    node = baby_names()
    node.failure = TimedOut("too late")
    assert (await mget(b'"x"', node=node))[0] == 504
    assert (await mget(b'"x"', path="/otherdb/_mget"))[0] == 404
    assert (await mget(b'"x"', path="/a.b/_mget"))[0] == 404
    for answer in (None, [[], "2"], [[1], "2"], [[None], "\r\n"]):
        node = baby_names()
        node._get_many = lambda *params, answer=answer: answer
        assert (await mget(b'"x"', node=node))[0] == 502


async def test_get_of_its_name_is_a_key():
    assert (await ask(context_of(baby_names()), "GET", "/baby-names/_mget"))[0] == 404


@given(st.binary())
def test_bytes_in_json(data):
    """Any bytes survive the round trip."""
    assert json_lines.key_of(json.loads(json_lines.line(json_form(data))), "it") == data
