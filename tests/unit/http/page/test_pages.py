"""Requests for pages, from nodes that repeat recorded answers of a real cluster."""

from __future__ import annotations

import contextlib
import json

import pytest
import trio

from gossipkv.errors import TimedOut
from gossipkv.http.page.pages import FRESH_S, LOOKED_S, wants_json
from gossipkv.wire.json_form import json_form
from tests.unit.http.page.nodes import ToldNode, body_of, pages_of, request, told
from tests.world.logs import capture_logs

JSON = b"application/json"


@pytest.fixture
def virtual_time(monkeypatch):
    """Run thread work inline: an autojump clock would not wait for a thread."""

    async def here(work):
        await trio.lowlevel.checkpoint()
        return work()

    monkeypatch.setattr(trio.to_thread, "run_sync", here)


async def test_json_is_what_status_says():
    """JSON of one database or all omits the bitmaps that the page requests."""
    node = ToldNode(told("upgrade"))
    async with pages_of(node) as pages:
        answer = await pages.overview(request(JSON))
        assert json.loads(await body_of(answer)) == json_form(node.said["status"])
        assert dict(answer.headers)[b"Content-Type"] == JSON
        answer = await pages.database("geo", request(JSON))
        assert json.loads(await body_of(answer)).keys() == {"geo"}
    assert not any("bitmaps" in options for method, options in node.asked if method == "status")


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        (b"", False), (b"*/*", False), (b"application/json", True), (b"Application/JSON; q=0.5", True),
        (b"text/html,application/json;q=0.9", False), (b"text/html;q=0.1, application/json;q=0.2", True),
        (b"application/json;q=x", True), (b"application/json;q=0", False), (b"\xff\xfe;;q=,,", False),
    ],
)  # fmt: skip
def test_who_wants_json(accept, is_json):
    """JSON is chosen only when it is preferred to HTML."""
    assert wants_json(accept) is is_json


async def test_it_is_sampled_while_somebody_looks(autojump_clock, virtual_time):
    """The node is sampled once a second until a minute after the last view, and never without a viewer."""
    node = ToldNode(told("calm"))
    async with pages_of(node) as pages:
        await trio.sleep(1000)
        assert node.asked == []
        await pages.overview(request())
        await trio.sleep(LOOKED_S + 10)
        asked = [method for method, _ in node.asked].count("info")
        assert LOOKED_S <= asked <= LOOKED_S + 3
        await trio.sleep(1000)
        assert [method for method, _ in node.asked].count("info") == asked
        page = await body_of(await pages.overview(request()))
        assert "Requests a second" in page
        await pages.overview(request(JSON))
        await trio.sleep(1)
        assert [method for method, _ in node.asked].count("info") > asked


async def test_the_sampler_outlives_whatever_it_meets(autojump_clock, virtual_time):
    """A node that does not answer leaves a gap; a defect is logged."""
    node = ToldNode(told("calm"))
    async with pages_of(node) as pages:
        await pages.overview(request())
        with capture_logs() as logged:
            node.failure = TimedOut("gone")
            await trio.sleep(10)
            assert logged == []
            node.failure = ZeroDivisionError()
            await trio.sleep(3)
            assert {line["event"] for line in logged} == {"page_failed"}
        node.failure = None
        before = len(node.asked)
        await trio.sleep(5)
        assert len(node.asked) > before


async def test_all_who_look_share_what_is_asked(autojump_clock, virtual_time):
    """Viewers share one survey until it is out of date."""
    node = ToldNode(told("calm"))
    async with pages_of(node) as pages:
        async with trio.open_nursery() as viewers:
            for _ in range(20):
                viewers.start_soon(pages.overview, request())
        assert [method for method, _ in node.asked].count("members") == 1
        await trio.sleep(2 * FRESH_S)
        await pages.overview(request())
        assert [method for method, _ in node.asked].count("members") == 2


async def test_a_viewer_who_goes_takes_nobody_along(autojump_clock, virtual_time):
    """The next viewer takes over when the one that asks is cancelled."""
    node = ToldNode(told("calm"))
    call = node.call
    slow = trio.Event()

    async def hanging(method, *params, timeout_ms=None):
        await slow.wait()
        return await call(method, *params)

    node.call = hanging
    async with pages_of(node) as pages, trio.open_nursery() as viewers:
        first = trio.CancelScope()
        answers = []

        async def look(scope):
            with scope:
                answers.append(await pages.overview(request()))

        viewers.start_soon(look, first)
        await trio.testing.wait_all_tasks_blocked()
        viewers.start_soon(look, contextlib.nullcontext())
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        slow.set()
    assert [answer.status for answer in answers] == [200]
