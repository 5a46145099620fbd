"""Changes of tables by HTTP, as server-sent events."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
import trio

from gossipkv.errors import TimedOut, TooOld, Unavailable
from gossipkv.http import target
from gossipkv.http.answers import HttpRequest
from gossipkv.http.changes import changes, wants_changes
from gossipkv.http.order import GatewayPeer
from gossipkv.http.reads import EventStreams
from tests.unit.http.asking import context_of, whole

ACCEPT = {b"accept": b"text/html, text/event-stream;q=0.9"}


class Feed:
    """A node with pages of changes; the token is the number of the next page.  Behind the last one a poll waits."""

    is_silent = False

    def __init__(self, *pages):
        self.pages, self.asked = pages, []

    async def call(self, method, *params, timeout_ms=None):
        self.asked.append((method, *params))
        options = params[1]
        number = int(options.get("token", b"0"))
        if number == len(self.pages):
            await trio.sleep((timeout_ms if self.is_silent else options["wait_ms"]) / 1000)
            if self.is_silent:
                raise TimedOut("no answer")
            return [[], options["token"]]
        page = self.pages[number]
        if isinstance(page, Exception):
            raise page
        return [page, b"%d" % (int(options.get("token", b"0")) + 1)]


async def answer(node, path="/t/", headers=None, *, context=None, address="10.0.0.1"):
    peer = GatewayPeer(address, "anonymous")
    request = HttpRequest(b"GET", path.encode(), {**ACCEPT, **(headers or {})}, peer=peer)
    found = target.parse(request.target)
    assert wants_changes(request, found)
    return await changes(context or context_of(node), request, found)


async def events(node, path="/t/", headers=None):
    told = await answer(node, path, headers)
    found = []
    for event in (await whole(told)).decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n") if line != ":")
        found.append((fields.get("event"), fields.get("id"), json.loads(fields["data"]) if "data" in fields else None))
    return told, found


def token(number):
    return b64encode(b"%d" % number).decode()


async def test_each_page_ends_with_the_token_that_a_browser_sends_back():
    node = Feed([[b"a", b"1", None], [b"\xff", None, 7]], [], [[b"b", b"", 9]], Unavailable("all nodes are down"))
    told, found = await events(node, "/t/?start=snapshot&prefix=p")
    assert (told.status, dict(told.headers)[b"Content-Type"]) == (200, b"text/event-stream")
    assert found == [
        (None, None, {"key": "a", "value": "1", "expires_at": None}),
        (None, token(1), {"key": {"base64": "/w=="}, "value": None, "expires_at": 7}),
        (None, token(2), None),
        (None, token(3), {"key": "b", "value": "", "expires_at": 9}),
        ("error", None, {"error": "UNAVAILABLE", "message": "all nodes are down"}),
    ]
    assert node.asked[0] == ("changes", "t", {"start": "snapshot", "prefix": "p", "wait_ms": 0})
    node.asked.clear()
    _, found = await events(node, "/t/?start=snapshot", {b"last-event-id": token(2).encode()})
    assert found[0][1] == token(3)
    assert node.asked[0] == ("changes", "t", {"token": b"2", "wait_ms": 0})


@pytest.mark.parametrize(
    ("path", "status"), [("/t/?since=1", 400), ("/t/?token=*", 400), ("/t%21/", 404), (f"/t/?token={token(1)}", 410)]
)
async def test_a_feed_that_cannot_begin_is_refused(path, status):
    assert (await answer(Feed([], TooOld("begin anew")), path)).status == status


async def test_nothing_is_polled_before_the_client_takes_the_page_before():
    node = Feed(*([[b"%d" % number, b"", None]] for number in range(9)))
    told = await answer(node)
    for polls in range(1, 6):
        await anext(told.body)
        assert len(node.asked) == polls
    await told.body.aclose()


@pytest.mark.parametrize("is_silent", [False, True])
async def test_something_is_sent_each_15_s(is_silent, autojump_clock):
    """A comment if nothing changes, an error if the node does not answer."""
    node = Feed([])
    told = await answer(node)
    pieces = [await anext(told.body)]
    node.is_silent = is_silent
    for _ in range(1 if is_silent else 3):
        began = trio.current_time()
        pieces.append(await anext(told.body))
        assert trio.current_time() - began < 15
    await told.body.aclose()
    ends = [b'event: error\ndata: {"error":"TIMEOUT","message":"no answer"}\n\n']
    assert pieces[1:] == (ends if is_silent else [b":\nid: %b\n\n" % token(1).encode()] * 3)


@pytest.mark.parametrize("when", ["while it waits", "while the client reads"])
async def test_a_stream_that_drains_ends_with_the_last_id(when, autojump_clock, nursery):
    node = Feed([[b"a", b"1", None]])
    context = context_of(node)
    told = await answer(node, context=context)
    pieces = [await anext(told.body)]
    if when == "while it waits":
        nursery.start_soon(drain_when_blocked, context.streams)
    else:
        context.streams.end()
    pieces += [piece async for piece in told.body]
    assert pieces[-1] == b":\nid: %b\n\n" % token(1).encode()


async def drain_when_blocked(streams):
    await trio.testing.wait_all_tasks_blocked()
    streams.end()


async def test_no_address_has_all_streams():
    """A stream counts as long as it is read; an IPv6 network counts as one address."""
    node = Feed([])
    context = context_of(node)
    context.streams = EventStreams(2)

    async def begin(address):
        told = await answer(node, context=context, address=address)
        if told.status == 200:
            await anext(told.body)
        return told

    streams = [await begin(address) for address in ("10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::2")]
    for address in ("10.0.0.1", "2001:db8::3"):
        refused = await begin(address)
        assert (refused.status, b"as many as one address may have" in refused.body) == (429, True)
    streams.append(await begin("10.0.0.2"))
    await streams.pop(0).body.aclose()
    streams.append(await begin("10.0.0.1"))
    for told in streams:
        assert told.status == 200
        await told.body.aclose()


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        (b"GET", b"/t/key", b"text/event-stream"),
        (b"GET", b"/t/", b"text/html"),
        (b"HEAD", b"/t/", b"text/event-stream"),
    ],
)
def test_only_a_get_of_a_table_for_events_is_for_changes(method, path, accept):
    assert not wants_changes(HttpRequest(method, path, {b"accept": accept}), target.parse(path))
