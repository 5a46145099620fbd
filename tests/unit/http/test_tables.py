"""Tables by HTTP: reads without any version, writes, and the token of a session."""

from __future__ import annotations

import json

import msgpack
import pytest

from gossipkv.client.parts import PART_RECORDS
from gossipkv.errors import BadRequest, NotReady, Overloaded, TooLarge, Unavailable, Unknown, WriteLost
from tests.unit.http.asking import ask, context_of

RECORDS = {b"ana": b"two pears", b"bob": b"", b"caf\xc3\xa9": b"\x00\xff"}
TAG = '"9-d3809ed9"'


class TableNode:
    """A node with one table `carts` that returns a given token."""

    def __init__(self, token=b"", failure=None, *, result=b"written", after=0):
        self.token = token
        self.failure, self.after = failure, after
        self.result = result
        self.calls = []

    async def call(self, method, name=None, *params, timeout_ms=None):
        """Answer as a node does for a table."""
        if method == "databases":
            return [{"name": "carts", "kind": "hash", "states": {}, "times": {}}]
        assert name == "carts"
        self.calls.append((method, *params))
        if self.failure is not None and len(self.calls) > self.after:
            raise self.failure
        if method in {"put", "delete", "put_many"}:
            return self.result
        if method == "get":
            return [RECORDS.get(params[0]), self.token, {"node": "n2"}]
        if method == "get_many":
            return [[RECORDS.get(key) for key in params[0]], self.token]
        assert method == "scan"
        (options,) = params or ({},)
        rest = [[key, value] for key, value in sorted(RECORDS.items()) if key > (options.get("cursor") or b"")]
        return [rest[:2], rest[1][0] if len(rest) > 2 else None, self.token + bytes([len(rest)])]


async def get(path, node=None, *, method="GET", headers=None, body=b""):
    return await ask(context_of(node or TableNode()), method, path, headers, body)


async def test_a_key():
    """A value is not cached and has no version; a missing key is 404."""
    status, headers, body = await get("/carts/ana")
    assert (status, body) == (200, b"two pears")
    assert headers == {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": TAG,
        "Cache-Control": "no-store",
        "X-Sequins-Proxied-To": "n2",
    }
    status, headers, body = await get("/carts/zoe")
    assert (status, body) == (404, b"carts has no such key\n")
    assert "X-GossipKV-Error" not in headers


@pytest.mark.parametrize(("method", "path", "body"), [
    ("PUT", "/carts/ana", b"x"), ("DELETE", "/carts/ana", b""), ("POST", "/carts/_mput", b""),
])  # fmt: skip
async def test_a_gateway_that_may_not_write(method, path, body):
    """Each kind of write is refused before the node is asked; reads go on."""
    node = TableNode()
    context = context_of(node, alone=True)
    context.may_write = False
    status, headers, said = await ask(context, method, path, {}, body)
    assert (status, headers["X-GossipKV-Error"], node.calls) == (403, "UNAUTHORIZED", [])
    assert b"--allow-writes" in said
    assert (await ask(context, "GET", "/carts/ana"))[0] == 200


@pytest.mark.parametrize(("path", "allowed"), [
    ("/carts/ana", "GET, HEAD, PUT, DELETE, OPTIONS"),
    ("/carts/_mput", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
    ("/carts/", "GET, HEAD, OPTIONS"),
])  # fmt: skip
async def test_the_methods_of_a_key(path, allowed):
    """Also of one that is called like a path of POST."""
    for method, status in (("OPTIONS", 204), ("PATCH", 405)):
        got, headers, _ = await get(path, method=method)
        assert (got, headers["Allow"]) == (status, allowed)


@pytest.mark.parametrize(("headers", "status", "got"), [
    ({"If-None-Match": TAG}, 304, b""),
    ({"If-None-Match": '"9-00000000"'}, 200, b"two pears"),
    ({"If-Match": '"9-00000000"'}, 412, b"the value does not match If-Match\n"),
    ({"Range": "bytes=4-"}, 206, b"pears"),
    ({"Range": "bytes=4-", "If-Range": TAG}, 206, b"pears"),
    ({"Range": "bytes=9-"}, 416, b"the value has 9 bytes, and the requested range is outside of it\n"),
])  # fmt: skip
async def test_a_condition_and_a_part(headers, status, got):
    answer = await get("/carts/ana", headers=headers)
    assert (answer[0], answer[2]) == (status, got)
    assert answer[1]["Cache-Control"] == "no-store"


async def test_a_token_is_passed_on():
    """The header has the token as Base64."""
    _, headers, _ = await get("/carts/ana", TableNode(token=b"\x00\xfftoken"))
    assert headers["GossipKV-Token"] == "AP90b2tlbg=="


async def test_many_keys():
    """Values come in the order asked, with null for a missing key."""
    status, headers, body = await get(
        "/carts/_mget", method="POST", headers={"Content-Type": "application/msgpack", "Accept": "application/msgpack"},
        body=msgpack.packb([b"bob", b"zoe", b"ana"]),
    )  # fmt: skip
    assert (status, msgpack.unpackb(body)) == (200, [b"", None, b"two pears"])
    assert headers["Cache-Control"] == "no-store"


async def test_a_scan():
    """A scan returns all records over several pages, whose tokens differ, and no version."""
    status, headers, body = await get("/carts/_scan", method="POST")
    lines = [json.loads(line) for line in body.splitlines()]
    assert status == 200
    assert [line["key"] for line in lines[:-1]] == ["ana", "bob", "café"]
    assert lines[-1] == {"cursor": None}
    assert "X-Sequins-Version" not in headers


@pytest.mark.parametrize(("failure", "status"), [
    (NotReady("this node does not know the state of the table carts yet", {"table": "carts", "coming": True}), 503),
    (NotReady("no asked replica is ready", {"waits_for": "records"}), 503),
    (NotReady("this node is about to open its tables"), 503),
    (BadRequest("get: a table has no versions"), 400),
])  # fmt: skip
async def test_what_is_refused(failure, status):
    """A table that is not ready yet is no 404, which a client would believe."""
    got, headers, _ = await get("/carts/ana", TableNode(failure=failure))
    assert (got, headers["X-GossipKV-Error"]) == (status, failure.code)


# Writes ---------------------------------------------------------------------------------------------------------------

SHOWN = {"GossipKV-Token": "AP90b2tlbg=="}
TOKEN = b"\x00\xfftoken"
LINES = b'{"key":"a","value":"1"}\n\n{"key":{"base64":"/w=="},"value":{"base64":"AA=="}}\n'


@pytest.mark.parametrize(("method", "body", "asked"), [
    ("PUT", b"two\r\npears", ("put", b"a/b", b"two\r\npears")),
    ("PUT", b"", ("put", b"a/b", b"")),
    ("DELETE", b"", ("delete", b"a/b")),
])  # fmt: skip
async def test_a_write_of_a_key(method, body, asked):
    """The answer has no body, and the token of a session that has seen the write."""
    node = TableNode()
    status, headers, answer = await get("/carts/a%2Fb", node, method=method, body=body)
    assert (status, headers, answer) == (204, {"GossipKV-Token": "d3JpdHRlbg=="}, b"")
    assert node.calls == [asked]


@pytest.mark.parametrize(("path", "headers", "options"), [
    ("", SHOWN, {"token": TOKEN}),
    ("", {"GossipKV-Token": "AP90b2tlbg==, d3JpdHRlbg=="}, {"token": TOKEN + b"written"}),
    ("", {"GossipKV-Token": ""}, None),
    ("?level=all", {"X-GossipKV-Timeout-Ms": "70"}, {"level": "all", "timeout_ms": 70}),
    ("?level=one", {"X-GossipKV-Level": "one", "X-GossipKV-Wait-Ms": "0"}, {"level": "one", "wait_ms": 0}),
    ("?level=", {"X-Sequins-Version": "1"}, {"version": "1"}),
    ("", {"GossipKV-TTL": "3600"}, {"ttl_ms": 3_600_000}),
    ("", {"GossipKV-TTL": "0"}, {"ttl_ms": 0}),
])  # fmt: skip
async def test_options_of_a_write(path, headers, options):
    """Level by query or header; a session's tokens in one header or in several."""
    node = TableNode()
    for method, body in (("PUT", b"v"), ("DELETE", b"")):
        assert (await get("/carts/ana" + path, node, method=method, headers=headers, body=body))[0] == 204
    assert (await get("/carts/_mput" + path, node, method="POST", headers=headers, body=LINES))[0] == 204
    given = [] if options is None else [options]
    assert [call[1:] for call in node.calls] == [
        (b"ana", b"v", *given), (b"ana", *given), ([[b"a", b"1"], [b"\xff", b"\0"]], *given),
    ]  # fmt: skip


@pytest.mark.parametrize(("path", "method", "body"), [
    ("/carts/ana", "GET", b""), ("/carts/_mget", "POST", b'"ana"\n'), ("/carts/_scan", "POST", b"{}"),
])  # fmt: skip
async def test_a_read_shows_its_session(path, method, body):
    """Each page of a scan is of the session that saw the pages before; the last line has its token."""
    node = TableNode(token=b"t")
    headers = {**SHOWN, "X-GossipKV-Wait-Ms": "50"}
    status, got, lines = await get(path, node, method=method, headers=headers, body=body)
    assert (status, got["GossipKV-Token"]) == (200, "dAM=" if path.endswith("_scan") else "dA==")
    options = [call[-1] for call in node.calls]
    assert all(each["wait_ms"] == 50 for each in options)
    if not path.endswith("_scan"):
        assert [each["token"] for each in options] == [TOKEN]
        return
    assert [each["token"] for each in options] == [TOKEN, b"t\x03"]
    assert json.loads(lines.splitlines()[-1]) == {"cursor": None, "token": "dAE="}


@pytest.mark.parametrize(("path", "headers"), [
    ("", {"GossipKV-Token": "not base64"}),
    ("", {"GossipKV-Token": "AP90b2tlbg"}),
    ("", {"X-GossipKV-Wait-Ms": "-1"}),
    ("", {"X-GossipKV-Timeout-Ms": "0"}),
    ("", {"GossipKV-TTL": "1h"}),
    ("", {"GossipKV-TTL": "9999999999"}),
    ("", {"Content-Range": "bytes 0-1/2"}),
    ("?proxy=true", {}),
    ("?level=all", {"X-GossipKV-Level": "one"}),
])  # fmt: skip
async def test_options_that_a_write_does_not_have(path, headers):
    """400 without a question to the node."""
    node = TableNode()
    status, got, body = await get("/carts/ana" + path, node, method="PUT", headers=headers, body=b"v")
    assert (status, got["X-GossipKV-Error"], body.count(b"\n"), node.calls) == (400, "BAD_REQUEST", 1, [])


@pytest.mark.parametrize("name", [
    "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "If",
])  # fmt: skip
@pytest.mark.parametrize(("path", "method"), [("ana", "PUT"), ("ana", "DELETE"), ("_mput", "POST")])
async def test_no_write_is_conditional(name, path, method):
    """501 says why; a write done regardless would undo another client's."""
    node = TableNode()
    status, _, body = await get("/carts/" + path, node, method=method, headers={name: "*"}, body=b"")
    assert (status, node.calls) == (501, [])
    refusal = "conditional writes are not supported; omit the header"
    assert body == f"{name.lower()}: {refusal}\n".encode()


async def test_a_write_accepted_for_later_is_no_part_of_a_session():
    """202 has no token."""
    for path, method, body in (("ana", "PUT", b"v"), ("_mput", "POST", LINES)):
        node = TableNode(result={"accepted": True})
        assert await get("/carts/" + path, node, method=method, body=body) == (202, {}, b"")


@pytest.mark.parametrize(("failure", "status", "more"), [
    (BadRequest("carts is a dataset", {"database": "carts"}), 405, {"Allow": "GET, HEAD, OPTIONS"}),
    (BadRequest("put: the key is too long"), 400, {}),
    (NotReady("no asked replica is ready", {"waits_for": "records"}), 503, {"Retry-After": "1"}),
    (Overloaded("full"), 429, {"Retry-After": "1"}),
    (WriteLost("gone"), 410, {}),
    (TooLarge("the session's token would need more bytes"), 413, {}),
    (Unavailable("no replica was reached"), 502, {}),
    (Unknown("too few have it yet"), 504, {}),
])  # fmt: skip
async def test_writes_that_fail(failure, status, more):
    """The status is that of the wire's code; a dataset has other methods."""
    for path, method, body in (("ana", "PUT", b"v"), ("ana", "DELETE", b""), ("_mput", "POST", LINES)):
        got, headers, line = await get("/carts/" + path, TableNode(failure=failure), method=method, body=body)
        assert (got, headers.pop("X-GossipKV-Error"), line) == (status, failure.code, f"{failure}\n".encode())
        headers.pop("Content-Type")
        assert headers == more


async def test_many_records_are_written_in_parts():
    """An error says how many were written before it."""
    rows = [[b"%d" % number, b"v"] for number in range(2 * PART_RECORDS + 1)]
    headers = {"Content-Type": "application/msgpack"}
    node = TableNode()
    status, got, _ = await get("/carts/_mput", node, method="POST", headers=headers, body=msgpack.packb(rows))
    assert (status, got["GossipKV-Token"]) == (204, "d3JpdHRlbg==")
    assert [row for _, part in node.calls for row in part] == rows
    assert max(len(part) for _, part in node.calls) == PART_RECORDS
    node = TableNode(failure=Unavailable("no replica was reached"), after=1)
    status, _, body = await get("/carts/_mput", node, method="POST", headers=headers, body=msgpack.packb(rows))
    assert (status, body) == (502, b"the first 300 records were written; the next one failed: no replica was reached\n")


@pytest.mark.parametrize("body", [
    b'"a"', b'{"key":"a"}', b'{"key":"a","value":null}', b'{"key":"a","value":"1","ttl":1}', b"[]",
    b'{"key":1,"value":"v"}',
])  # fmt: skip
async def test_lines_that_are_no_records(body):
    """400 names the line."""
    node = TableNode()
    status, _, line = await get("/carts/_mput", node, method="POST", body=LINES + body)
    assert (status, b"line 4 of the body" in line, node.calls) == (400, True, [])


@pytest.mark.parametrize("body", [[b"a"], [[b"a"]], [[b"a", b"b", b"c"]], [[b"a", None]], [[[b"a"], b"b"]], 7, {}])
async def test_arrays_that_are_no_records(body):
    """400 names the record."""
    node, headers = TableNode(), {"Content-Type": "application/msgpack"}
    status, _, line = await get("/carts/_mput", node, method="POST", headers=headers, body=msgpack.packb(body))
    assert (status, b"the body" in line, node.calls) == (400, True, [])


async def test_a_delete_with_a_body_is_refused():
    """Nobody says what that would mean."""
    node = TableNode()
    assert (await get("/carts/ana", node, method="DELETE", body=b"x"))[0] == 400
    assert node.calls == []
