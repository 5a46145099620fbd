"""Connections to members."""

from __future__ import annotations

import contextlib

import pytest
import trio

from gossipkv.errors import Internal, Unavailable
from gossipkv.http.page.links import KEPT_S, Links
from tests.world.logs import capture_logs


class Members:
    """Members at any address; counts who is connected."""

    def __init__(self):
        self.opened = []
        self.closed = []
        self.failure = None
        self.hangs = False

    @contextlib.asynccontextmanager
    async def reach(self, address):
        """Connect."""
        self.opened.append(address)
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        try:
            yield self
        finally:
            self.closed.append(address)

    async def call(self, method, *params, timeout_ms=None):
        """Answer, or never."""
        if self.hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return method


@contextlib.asynccontextmanager
async def links_to(members):
    """Connections that are held."""
    links = Links(members.reach)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        yield links
        nursery.cancel_scope.cancel()


async def test_a_connection_is_used_again(autojump_clock):
    """By whoever asks within a while; then it is closed, and made anew for the next."""
    members = Members()
    async with links_to(members) as links:
        for _ in range(5):
            assert await links.call("a:1", "ping", timeout_ms=1000) == "ping"
            await trio.sleep(KEPT_S / 2)
        assert (members.opened, members.closed) == (["a:1"], [])
        await trio.sleep(KEPT_S)
        assert members.closed == ["a:1"]
        await links.call("a:1", "ping", timeout_ms=1000)
    assert members.opened == members.closed == ["a:1", "a:1"]


async def test_two_who_ask_at_once_share_one():
    """Both wait until it is there."""
    members = Members()
    async with links_to(members) as links, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(lambda: links.call("a:1", "ping", timeout_ms=1000))
    assert members.opened == ["a:1"]


async def test_who_cannot_be_reached_is_tried_again_the_next_time():
    """Each who asks has the reason."""
    members = Members()
    members.failure = Unavailable("refused")
    async with links_to(members) as links:
        for _ in range(2):
            with pytest.raises(Unavailable, match="refused"):
                await links.call("a:1", "ping", timeout_ms=1000)
        members.failure = None
        assert await links.call("a:1", "ping", timeout_ms=1000) == "ping"
    assert len(members.opened) == 3


async def test_a_defect_ends_one_connection(autojump_clock):
    """It is logged, and whoever asked has an error that can be shown; the others go on."""
    members = Members()
    members.failure = ZeroDivisionError("oops")
    async with links_to(members) as links:
        with capture_logs() as logged, pytest.raises(Internal, match="a defect"):
            await links.call("a:1", "ping", timeout_ms=1000)
        assert [(line["event"], line["log_level"]) for line in logged] == [("page_failed", "error")]
        members.failure = None
        assert await links.call("b:1", "ping", timeout_ms=1000) == "ping"


async def test_silence_is_an_error(autojump_clock):
    """After the time allowed, and not later."""
    members = Members()
    members.hangs = True
    async with links_to(members) as links:
        began_s = trio.current_time()
        with pytest.raises(Unavailable, match=r"no answer within 0\.5 s"):
            await links.call("a:1", "ping", timeout_ms=500)
        assert trio.current_time() - began_s == pytest.approx(0.5)
