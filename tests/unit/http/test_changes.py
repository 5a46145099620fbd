"""Changes of tables by HTTP, as server-sent events."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from gossipkv.errors import TooOld, Unavailable
from gossipkv.http import target
from gossipkv.http.answers import HttpRequest
from gossipkv.http.changes import changes, wants_changes
from tests.unit.http.asking import context_of, whole

ACCEPT = {b"accept": b"text/html, text/event-stream;q=0.9"}


class Feed:
    """A node with pages of changes; the token is the number of the next page."""

    def __init__(self, *pages):
        self.pages, self.asked = pages, []

    async def call(self, method, *params, timeout_ms=None):
        self.asked.append((method, *params))
        options = params[1]
        page = self.pages[int(options.get("token", b"0"))]
        if isinstance(page, Exception):
            raise page
        return [page, b"%d" % (int(options.get("token", b"0")) + 1)]


async def answer(node, path="/t/", headers=None):
    request = HttpRequest(b"GET", path.encode(), {**ACCEPT, **(headers or {})})
    found = target.parse(request.target)
    assert wants_changes(request, found)
    return await changes(context_of(node), request, found)


async def events(node, path="/t/", headers=None):
    told = await answer(node, path, headers)
    found = []
    for event in (await whole(told)).decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n") if line)
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
