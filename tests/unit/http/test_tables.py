"""Reads of tables by HTTP are like those of datasets, but without any version."""

from __future__ import annotations

import json

import msgpack
import pytest

from gossipkv.errors import BadRequest, NotReady
from tests.unit.http.asking import ask, context_of

RECORDS = {b"ana": b"two pears", b"bob": b"", b"caf\xc3\xa9": b"\x00\xff"}


class TableNode:
    """A node with one table `carts` that returns a given token."""

    def __init__(self, token=b"", failure=None):
        self.token = token
        self.failure = failure

    async def call(self, method, name, *params, timeout_ms=None):
        """Answer as a node does for a table."""
        assert name == "carts"
        if self.failure is not None:
            raise self.failure
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
    """A value is not cached and has neither a version nor a validator; a missing key is 404."""
    status, headers, body = await get("/carts/ana")
    assert (status, body) == (200, b"two pears")
    assert headers == {
        "Content-Type": "application/octet-stream",
        "Cache-Control": "no-store",
        "X-Sequins-Proxied-To": "n2",
    }
    status, headers, body = await get("/carts/zoe")
    assert (status, body) == (404, b"carts has no such key\n")
    assert "X-GossipKV-Error" not in headers


async def test_a_token_is_passed_on():
    """The header has the token as Base64."""
    _, headers, _ = await get("/carts/ana", TableNode(token=b"\x00\xfftoken"))
    assert headers["X-GossipKV-Token"] == "AP90b2tlbg=="


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
    (NotReady("what is decided of the table carts is not known here yet", {"table": "carts", "coming": True}), 503),
    (NotReady("no replica that was asked is ready", {"waits_for": "records"}), 503),
    (NotReady("this node is about to open its tables"), 503),
    (BadRequest("get: a table has no versions"), 400),
])  # fmt: skip
async def test_what_is_refused(failure, status):
    """A table that is not ready yet is no 404, which a client would believe."""
    got, headers, _ = await get("/carts/ana", TableNode(failure=failure))
    assert (got, headers["X-GossipKV-Error"]) == (status, failure.code)
