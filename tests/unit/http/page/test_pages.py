"""Requests for pages, from nodes that say what nodes of a real cluster said."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
import trio

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.http.page import pages as module
from gossipkv.http.page.assets import POLICY
from gossipkv.http.page.pages import FRESH_S, LOOKED_S, wants_json
from gossipkv.wire.json_form import json_form
from tests.unit.http.page.nodes import SCENES, ToldNode, body_of, pages_of, request, told
from tests.world.logs import capture_logs

JSON = b"application/json"


@pytest.fixture
def virtual_time(monkeypatch):
    """Time that passes at once; no thread may be waited for, since a clock that jumps does not see it work."""

    async def here(work):
        await trio.lowlevel.checkpoint()
        return work()

    monkeypatch.setattr(trio.to_thread, "run_sync", here)


@pytest.mark.parametrize("scene", SCENES)
async def test_every_scene_of_a_cluster_has_its_page(scene):
    """Both pages come out, with all names, as HTML that nobody keeps and that may load nothing."""
    node = ToldNode(told(scene))
    async with pages_of(node) as pages:
        for answer in (await pages.overview(request()), await pages.database("geo", request())):
            headers = dict(answer.headers)
            assert answer.status == 200
            assert headers[b"Content-Type"] == b"text/html; charset=utf-8"
            assert headers[b"Cache-Control"] == b"no-store"
            assert headers[b"Content-Security-Policy"].decode() == POLICY
            assert headers[b"X-Content-Type-Options"] == b"nosniff"
            page = await body_of(answer)
            for name in ("n1", "n2", "n3", "n4", "geo", "2026-11-20"):
                assert name in page
            assert page.count("<main") == page.count("</main>") == 1


async def test_the_upgrade_says_what_it_waits_for():
    """Who builds and how far; who does not answer, too."""
    async with pages_of(ToldNode(told("suspected"))) as pages:
        page = await body_of(await pages.overview(request()))
    assert "waits for what n4 builds, 40 % done, 8 s left" in page
    assert "did not answer: no node could be reached: connection refused" in page
    assert '<progress max="1" value="0.281"' in page


VALUES = {
    "geo": {
        b"CH": b"Bern",
        b"<script>alert(1)</script>": b"<script>alert(2)</script>",
        b"\x00\xff": b"\x80\x81",
        b"slow": TimedOut("no owner answered <b>"),
    }
}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (b"database=geo&key=CH&as=text", "&#39;CH&#39; in geo 2026-11-20, answered by n2: 4 bytes Bern"),
        (b"database=geo&key=43%2048&as=hex", "&#39;CH&#39; in geo 2026-11-20, answered by n2: 4 bytes Bern"),
        (b"database=geo&key=00ff&as=hex", "answered by n2: 2 bytes 80 81"),
        (b"database=geo&key=CHX&as=hex", "Not read: &#39;CHX&#39; is not pairs of hexadecimal digits"),
        (b"database=geo&key=nothing", "There is no key &#39;nothing&#39; in geo 2026-11-20, answered by n2."),
        (b"database=geo&key=slow", "Not read: no owner answered &lt;b&gt;"),
        (b"database=nowhere&key=CH", "Not read: no database nowhere here or at the source"),
        (b"database=geo&key=%3Cscript%3Ealert(1)%3C/script%3E", "25 bytes &lt;script&gt;alert(2)&lt;/script&gt;"),
        (b"database=geo", ""),
        (b"key=CH", ""),
    ],
)
async def test_a_key_is_looked_up(asked, words):
    """By text or by hex, on both pages; what is under it, from which version, who answered, or why there is nothing."""
    async with pages_of(ToldNode(told("calm"), VALUES)) as pages:
        target = b"/?" + asked
        bodies = [await body_of(await pages.overview(request(target=target)))]
        if b"=geo" in asked:
            target = b"/geo/?" + asked.removeprefix(b"database=geo&")
            bodies.append(await body_of(await pages.database("geo", request(target=target))) if b"key" in asked else "")
    for body in filter(None, bodies):
        found = re.search(r'<div id="found"[^>]*>(.*?)</div>', body, re.DOTALL)[1]
        assert " ".join(re.sub(r"<[^>]+>", " ", found).split()).endswith(words)
        assert (words == "") is (found == "")
        assert "<script>alert" not in body


async def test_the_form_keeps_what_was_looked_up():
    """The database, the key and how it is meant stand there when the answer comes, and nothing of it is markup."""
    async with pages_of(ToldNode(told("calm"), VALUES)) as pages:
        page = await body_of(await pages.overview(request(target=b"/?database=words&key=%22%3E%3Cb%3E&as=hex")))
        plain = await body_of(await pages.overview(request()))
    assert "<option selected>words</option>" in page
    assert 'name="key" value="&#34;&gt;&lt;b&gt;"' in page
    assert '<option value="hex" selected>' in page
    assert "selected" not in plain


async def test_json_is_what_status_says():
    """Of one database or of all, without the whole sets that the page asks for."""
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
        (b"application/json;q=x", False), (b"application/json;q=0", False), (b"\xff\xfe;;q=,,", False),
    ],
)  # fmt: skip
def test_who_wants_json(accept, is_json):
    """Whoever would rather have it than HTML, and nobody else."""
    assert wants_json(accept) is is_json


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [(TimedOut("no answer within 3 s"), 504, b"TIMEOUT"), (Unavailable("refused <b>"), 502, b"UNAVAILABLE")],
)
async def test_a_node_that_does_not_answer_is_told(failure, status, code):
    """By a page that tries again, with the code of the wire; JSON gets a line of text."""
    node = ToldNode(told("calm"))
    node.failure = failure
    async with pages_of(node) as pages:
        answer = await pages.overview(request())
        page = await body_of(answer)
        assert (answer.status, dict(answer.headers)[b"X-GossipKV-Error"]) == (status, code)
        assert dict(answer.headers)[b"Content-Security-Policy"].decode() == POLICY
        assert "The node does not answer" in page
        assert failure.message.replace("<b>", "&lt;b&gt;") in page
        plain = await pages.overview(request(JSON))
        assert (plain.status, await body_of(plain)) == (status, f"{failure.message}\n")
        node.failure = None
        assert (await pages.overview(request())).status == 200


async def test_an_unknown_database_is_404():
    """Its name may be anything."""
    async with pages_of(ToldNode(told("calm"))) as pages:
        answer = await pages.database("<script>", request())
        assert answer.status == 404
        assert "&lt;script&gt;" in await body_of(answer)
        assert (await pages.database("nowhere", request(JSON))).status == 404


@pytest.mark.parametrize("accept", [b"text/html", JSON])
async def test_a_defect_is_one_answer_and_a_line_of_the_log(accept, monkeypatch):
    """The next page is as before, and the sampler lives."""
    node = ToldNode(told("calm"))
    async with pages_of(node) as pages:
        with monkeypatch.context() as broken, capture_logs() as logged:
            broken.setattr(module, "take_survey", broken_survey)
            broken.setattr(module, "status_of", broken_survey)
            answer = await pages.overview(request(accept))
        assert (answer.status, dict(answer.headers)[b"X-GossipKV-Error"]) == (500, b"INTERNAL")
        assert [line["event"] for line in logged] == ["page_failed"]
        assert logged[0]["id"] in await body_of(answer)
        assert (await pages.overview(request(accept))).status == 200


async def broken_survey(*_, **__):
    """A defect."""
    raise ZeroDivisionError


async def test_it_is_sampled_while_somebody_looks(autojump_clock, virtual_time):
    """Once a second, until a minute after the last look; nobody is asked while nobody looks."""
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
    """A node that is gone is a gap; a defect is a line of the log."""
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
    """A node is asked once for many viewers, and again when that has grown old."""
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
    """The one who was asking is cancelled: the next one asks."""
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


async def test_the_page_lives_with_a_node_that_says_little():
    """An older node says less of everything: what is not said is left out."""
    said = told("calm")
    said["info"], said["members"], said["verdict"] = {}, [{}], {}
    said["databases"] = [{"name": "geo"}, {"name": "empty"}]
    said["status"] = {"geo": {"versions": {"v1": {}, "v2": None}}, "empty": {}}
    async with pages_of(ToldNode(said)) as pages:
        answer = await pages.overview(request())
    assert answer.status == 200
    assert "no version yet" in await body_of(answer)
