from __future__ import annotations

import pytest
import trio

from gossipkv.errors import (
    WRITES_ARE,
    Conflict,
    Corrupt,
    Internal,
    NotReady,
    Overloaded,
    ProtocolError,
    StaleConfig,
    TimedOut,
    Unavailable,
    WriteLost,
)
from gossipkv.http.answers import HttpRequest
from gossipkv.http.read_options import ReadSession
from gossipkv.http.reads import RETRY_S, SourceTimes
from tests.oracle.token import crc32c
from tests.unit.http.asking import answer_to, ask, context_of
from tests.unit.http.fake_node import baby_names

MODIFIED = "Mon, 01 Aug 2016 11:56:27 GMT"


async def get(path, headers=None, *, node=None, alone=False, session=None, method="GET"):
    """Ask the given node, or one with the usual content."""
    context = context_of(node or baby_names(), alone=alone, session=session)
    return await ask(context, method, path, headers)


async def test_sequins_an_existing_key():
    status, headers, body = await get("/baby-names/1881/boy")
    assert (status, body) == (200, b"Johnny")
    assert headers == {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": f'"2-{crc32c(b"Johnny"):08x}"',
        "Last-Modified": MODIFIED,
        "X-Sequins-Version": "2",
    }


async def test_sequins_a_nonexistent_key():
    status, headers, body = await get("/baby-names/foo")
    assert (status, headers.get("X-Sequins-Version")) == (404, "2")
    assert "X-GossipKV-Error" not in headers
    assert body == b"baby-names 2 has no such key\n"


async def test_sequins_a_nonexistent_database():
    for path in ("/otherdb/foo", "/a.b/foo", "/%C3%BC/foo", "/../foo"):
        status, headers, _ = await get(path)
        assert (status, headers.get("X-GossipKV-Error")) == (404, "UNKNOWN_DATABASE")
        assert "X-Sequins-Version" not in headers


async def test_sequins_no_versions():
    status, headers, _ = await get("/coming/foo")
    assert (status, headers.get("X-GossipKV-Error")) == (404, "NOT_READY")
    assert "X-Sequins-Version" not in headers


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/baby-names/a/../b//c", b"dots"),
        ("/baby-names/a%2f..%2Fb//c", b"dots"),
        ("/baby-names/a+b", b"plus"),
        ("/baby-names/%00%00%00%2A", b"\0\0\0d"),
        ("/baby-names/M%C3%BCnchen", b"Isar"),
        ("/baby-names/what%3F", b"a question"),
        ("/baby-names/empty", b""),
        ("/baby-names/", b"of no key"),
        ("http://localhost:9599/baby-names/1881/boy", b"Johnny"),
    ],
)
async def test_sequins_keys_of_any_bytes(path, value):
    """The key is everything behind the slash, decoded once."""
    status, _, body = await get(path)
    assert (status, body) == (200, value)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "get"])
async def test_sequins_other_methods(method):
    """405 lists the methods, and says how records are written."""
    status, headers, body = await get("/baby-names/1881/boy", method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert body.count(b"\n") == 1
    assert WRITES_ARE.encode() in body


@pytest.mark.parametrize("path", ["/baby-names", "//x", "/", "*"])
async def test_sequins_a_path_without_a_key(path):
    node = baby_names()
    status, _, body = await get(path, node=node)
    assert (status, body.count(b"\n")) == (400, 1)
    assert node.calls == []


async def test_sequins_head():
    got, headed = [await get("/baby-names/1881/boy", method=method) for method in ("GET", "HEAD")]
    assert headed == got


async def test_sequins_proxied_to_a_peer():
    """The header names the node that had the value or the miss."""
    node = baby_names()
    status, headers, body = await get("/baby-names/away", node=node)
    assert (status, body, headers["X-Sequins-Proxied-To"]) == (200, b"from n2", "n2")
    status, headers, _ = await get("/baby-names/gone", node=node)
    assert (status, headers.get("X-Sequins-Version"), headers["X-Sequins-Proxied-To"]) == (404, "2", "n2")
    assert "X-Sequins-Proxied-To" not in (await get("/baby-names/1881/boy", node=node))[1]


@pytest.mark.parametrize("proxy", ["true", "2"])
async def test_sequins_a_proxied_request_is_not_proxied_further(proxy):
    """A key on another node is 500, and the node is told to ask no other node."""
    node = baby_names()
    status, headers, body = await get(f"/baby-names/1881/boy?proxy={proxy}", node=node)
    assert (status, body, headers.get("X-Sequins-Version")) == (200, b"Johnny", "2")
    status, headers, _ = await get(f"/baby-names/away?proxy={proxy}", node=node)
    assert (status, headers.get("X-GossipKV-Error")) == (500, "NOT_SERVED")
    assert all(options["local"] is True for _, _, options in node.asked("get"))


async def test_sequins_a_proxied_request_for_an_old_version():
    """A peer may read a retired version that clients no longer get."""
    status, headers, body = await get("/baby-names/1881/boy?proxy=1")
    assert (status, body, headers.get("X-Sequins-Version")) == (200, b"John", "1")
    assert headers["Last-Modified"] == "Sun, 09 Sep 2001 01:46:40 GMT"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/otherdb/foo?proxy=1", 501, "UNKNOWN_DATABASE"),
        ("/coming/foo?proxy=1", 500, "UNKNOWN_VERSION"),
        ("/coming/foo?proxy=true", 501, "NOT_READY"),
        ("/baby-names/foo?proxy=3", 500, "UNKNOWN_VERSION"),
    ],
)
async def test_sequins_a_proxied_request_for_what_is_not_here(path, status, code):
    """The answer is never 404: a peer would take that for a missing key."""
    told, headers, _ = await get(path)
    assert told == status
    assert headers.get("X-GossipKV-Error") == code
    assert "X-Sequins-Version" not in headers


async def test_sequins_an_empty_proxy_is_none():
    for path in ("/baby-names/away?proxy=", "/baby-names/away?proxy", "/baby-names/away?"):
        assert (await get(path))[0] == 200


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Unavailable("no owner could be reached"), 502, "UNAVAILABLE"),
        (TimedOut("no owner answered in time"), 504, "TIMEOUT"),
        (Overloaded("too much"), 429, "OVERLOADED"),
        (Conflict("another change came first"), 409, "CONFLICT"),
        (StaleConfig("too old a map"), 409, "STALE_CONFIG"),
        (WriteLost("gone for good"), 410, "WRITE_LOST"),
        (Corrupt("data/x", 7, "checksum"), 500, "CORRUPT"),
        (Internal("a defect"), 500, "INTERNAL"),
        (ProtocolError("garbage"), 502, "UNAVAILABLE"),
        (NotReady("coming", {"database": "baby-names"}), 404, "NOT_READY"),
    ],
)
async def test_sequins_peers_that_fail(failure, status, code):
    """502 means that no node was reached, 504 that none answered in time."""
    node = baby_names()
    node.failure = failure
    told, headers, body = await get("/baby-names/1881/boy", node=node)
    assert (told, headers.get("X-GossipKV-Error")) == (status, code)
    assert body == f"{failure.message}\n".encode()
    assert ("Retry-After" in headers) is (status == 429)


async def test_a_version_is_pinned():
    """An unknown version is 404 without a version header."""
    status, headers, body = await get("/baby-names/1881/boy", {"X-Sequins-Version": "1"})
    assert (status, body, headers.get("X-Sequins-Version")) == (200, b"John", "1")
    status, headers, _ = await get("/baby-names/1881/boy", {"X-Sequins-Version": "9"})
    assert (status, headers.get("X-GossipKV-Error")) == (404, "UNKNOWN_VERSION")
    assert "X-Sequins-Version" not in headers


async def test_a_session_does_not_step_back():
    """A version that is not ready yet is 503 with Retry-After, also where none is ready."""
    assert (await get("/baby-names/1881/boy", {"X-GossipKV-Min-Version": "1"}))[2] == b"Johnny"
    for path in ("/baby-names/1881/boy", "/coming/x"):
        status, headers, _ = await get(path, {"X-GossipKV-Min-Version": "3"})
        assert (status, headers.get("X-GossipKV-Error"), headers["Retry-After"]) == (503, "NOT_READY", "1")
    assert (await get("/baby-names/1881/boy", {"X-GossipKV-Min-Version": ""}))[0] == 200


async def test_the_time_allowed_is_passed_on():
    """The node receives the time limit."""
    node = baby_names()
    assert (await get("/baby-names/1881/boy", {"X-GossipKV-Timeout-Ms": "250"}, node=node))[0] == 200
    ((_, _, options),) = node.asked("get")
    assert options == {"timeout_ms": 250, "explain": True}


@pytest.mark.parametrize(
    ("path", "headers", "said"),
    [
        ("/baby-names/x", {"X-Sequins-Version": ""}, b"empty"),
        ("/baby-names/x?proxy=1", {"X-Sequins-Version": "2"}, b"different versions"),
        ("/baby-names/x?proxy=true&y=1", {}, b"unknown query parameter 'y'"),
        ("/baby-names/what?ever", {}, b"%3F"),
        ("/baby-names/x", {"X-GossipKV-Timeout-Ms": "0"}, b"from 1 to 60000"),
        ("/baby-names/x", {"X-GossipKV-Timeout-Ms": "60001"}, b"from 1 to 60000"),
        ("/baby-names/x", {"X-GossipKV-Timeout-Ms": "9" * 5000}, b"from 1 to 60000"),
        ("/baby-names/x", {"X-GossipKV-Timeout-Ms": "-1"}, b"from 1 to 60000"),
        ("/baby-names/%", {}, b"%25"),
    ],
)
async def test_what_a_request_may_not_say(path, headers, said):
    """The answer is 400 with a line, and the node is not asked."""
    node = baby_names()
    status, _, body = await get(path, headers, node=node)
    assert status == 400
    assert said in body
    assert node.calls == []


async def test_a_header_that_is_not_text():
    """400 names the header."""
    context = context_of(baby_names())
    assert (await ask(context, "GET", "/baby-names/x", {"X-Sequins-Version": "ü"}))[0] == 404
    answer = await answer_to(context, HttpRequest(b"GET", b"/baby-names/x", {b"x-sequins-version": b"\xff"}))
    assert (answer.status, b"not UTF-8" in answer.body) == (400, True)


async def test_conditions_and_ranges_of_a_value():
    """Tag and time of an earlier answer give 304, and ranges give parts of the value."""
    path = "/baby-names/ten"
    _, headers, _ = await get(path)
    tag = headers["ETag"]
    assert (await get(path, {"If-None-Match": tag}))[0] == 304
    assert (await get(path, {"If-Modified-Since": MODIFIED}))[0] == 304
    status, told, body = await get(path, {"Range": "bytes=2-4", "If-Range": tag})
    assert (status, body, told["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert (await get(path, {"Range": "bytes=2-4", "If-Range": tag, "X-Sequins-Version": "1"}))[0] == 404
    status, told, _ = await get(path, {"Range": "bytes=10-"})
    assert (status, told["Content-Range"]) == (416, "bytes */10")
    assert (await get(path, {"Range": "bytes=2-4"}, method="HEAD"))[0] == 200
    assert (await get(path, {"If-Match": '"other"'}))[0] == 412


async def test_a_miss_has_no_conditions():
    """The answer is 404, whatever the client knows."""
    assert (await get("/baby-names/foo", {"If-None-Match": "*", "Range": "bytes=0-1"}))[0] == 404


async def test_a_gateway_alone():
    """A gateway without a node refuses `proxy`, and always names the answering node."""
    node = baby_names()
    status, _, body = await get("/baby-names/1881/boy?proxy=true", node=node, alone=True)
    assert (status, b"has no data of its own" in body, node.calls) == (400, True, [])
    assert (await get("/baby-names/1881/boy", node=node, alone=True))[1]["X-Sequins-Proxied-To"] == "n1"


async def test_a_gateway_alone_keeps_a_session():
    """The version of the last answer is the minimum for this database until the session is reset."""
    node = baby_names()
    context = context_of(node, alone=True, session=ReadSession())
    for _ in range(2):
        await ask(context, "GET", "/baby-names/1881/boy")
    assert [options.get("min_version") for _, _, options in node.asked("get")] == [None, "2"]
    node.databases["baby-names"].active = "1"
    assert (await ask(context, "GET", "/baby-names/1881/boy"))[2] == b"Johnny"
    del node.databases["baby-names"].versions["2"]
    assert (await ask(context, "GET", "/baby-names/1881/boy"))[0] == 503
    assert (await ask(context, "GET", "/baby-names/1881/boy", {"X-Sequins-Version": "1"}))[2] == b"John"
    assert (await ask(context, "GET", "/baby-names/1881/boy", {"X-GossipKV-Min-Version": "1"}))[0] == 503
    context.session = ReadSession()  # SIGHUP replaces the session like this.
    assert (await ask(context, "GET", "/baby-names/1881/boy"))[2] == b"John"


@pytest.mark.parametrize(
    "answer",
    [None, [b"x"], [b"x", None], ["text", "2"], [b"x", "a\r\nb"], [b"x", ""], [b"x", 2], {"a": 1}],
)
async def test_a_node_that_answers_something_else(answer):
    """The answer is 502, and no header contains the wrong data."""
    node = baby_names()
    node._get = lambda *params: answer
    status, headers, _ = await get("/baby-names/x", node=node)
    assert (status, headers.get("X-GossipKV-Error")) == (502, "UNAVAILABLE")


async def test_a_node_with_a_name_that_no_header_has():
    node = baby_names()
    node._get = lambda *params: [b"x", "2", {"node": "n2\r\nSet-Cookie: x"}]
    status, headers, _ = await get("/baby-names/x", node=node)
    assert (status, "X-Sequins-Proxied-To" in headers) == (200, False)


async def test_options_of_a_resource():
    with_post = "GET, HEAD, POST, OPTIONS"
    for path, allowed in (
        ("*", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
        ("/geo/_mget", with_post),
        ("/geo/_scan", with_post),
        ("/geo/_mput", "GET, HEAD, OPTIONS"),
        ("/geo/x", "GET, HEAD, OPTIONS"),
        ("/geo/", "GET, HEAD, OPTIONS"),
    ):
        status, headers, body = await get(path, method="OPTIONS")
        assert (status, headers, body) == (204, {"Allow": allowed}, b"")


async def test_the_content_type_is_the_databases():
    """The gateway's configuration sets the type."""
    context = context_of(baby_names())
    context.content_type_of = {"baby-names": b"text/plain"}.__getitem__
    assert (await ask(context, "GET", "/baby-names/ten"))[1]["Content-Type"] == "text/plain"


async def test_a_version_is_asked_for_once():
    """One question returns the times of all versions, in whole seconds."""
    node = baby_names()
    times = SourceTimes(node)
    assert [await times.of("baby-names", version) for version in ("2", "1", "2")] == [
        1_470_052_587,
        1_000_000_000,
        1_470_052_587,
    ]
    assert len(node.calls) == 1


async def test_many_wait_for_one_question(autojump_clock):
    """A thousand reads of a new version send one question."""
    node = baby_names()
    inner = node.call

    async def slow(method, *params, timeout_ms=None):
        await trio.sleep(0.1)
        return await inner(method, *params)

    node.call = slow
    times = SourceTimes(node)
    found = []

    async def look():
        found.append(await times.of("baby-names", "2"))

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(look)
    assert (set(found), len(node.calls)) == ({1_470_052_587}, 1)


async def test_a_time_does_not_change(autojump_clock):
    """The first known time stays, though later owners report another."""
    node = baby_names()
    times = SourceTimes(node)
    await times.of("baby-names", "2")
    node.databases["baby-names"].times["2"] = 1
    node.databases["baby-names"].times["3"] = 3000
    assert await times.of("baby-names", "3") == 3
    assert await times.of("baby-names", "2") == 1_470_052_587


async def test_what_is_not_told_is_asked_for_again_later(autojump_clock):
    """An unknown time is asked for again after a pause; other versions need not wait."""
    node = baby_names()
    times = SourceTimes(node)
    for _ in range(5):
        assert await times.of("baby-names", "3") is None
    assert len(node.calls) == 1
    assert await times.of("coming", "3") is None
    assert len(node.calls) == 2
    node.databases["baby-names"].times["3"] = 3000
    await trio.sleep(RETRY_S)
    assert await times.of("baby-names", "3") == 3


async def test_a_node_that_fails(autojump_clock):
    """The read goes on without a time."""
    node = baby_names()
    node.failure = Unavailable("gone")
    times = SourceTimes(node)
    assert await times.of("baby-names", "2") is None
    node.failure = None
    await trio.sleep(RETRY_S)
    assert await times.of("baby-names", "2") == 1_470_052_587


@pytest.mark.parametrize(
    "answer",
    [None, {}, [None], [{"name": "baby-names"}], [{"name": "baby-names", "times": [1]}], [{"times": {"2": 1000}}]],
)
async def test_an_answer_that_is_none(answer):
    node = baby_names()
    node._databases = lambda: answer
    assert await SourceTimes(node).of("baby-names", "2") is None


@pytest.mark.parametrize("time_ms", [-1, 10**15, None, "1", 1.5])
async def test_a_time_that_is_none(time_ms):
    """A time that HTTP cannot express is left out."""
    node = baby_names()
    node.databases["baby-names"].times["2"] = time_ms
    times = SourceTimes(node)
    assert await times.of("baby-names", "2") is None
    assert await times.of("baby-names", "1") == 1_000_000_000
