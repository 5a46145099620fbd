"""Slow tests of requests for pages; the fast ones are in `test_pages.py`."""

from __future__ import annotations

import re

import pytest

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.http.page import pages as module
from gossipkv.http.page.rendering import POLICY
from tests.unit.http.page.nodes import SCENES, ToldNode, body_of, pages_of, request, told
from tests.world.logs import capture_logs

JSON = b"application/json"


@pytest.mark.parametrize("scene", SCENES)
async def test_every_scene_of_a_cluster_has_its_page(scene):
    """Both pages are rendered with all names, are not cached, and have the content policy."""
    node = ToldNode(told(scene))
    async with pages_of(node) as pages:
        for answer in (await pages.overview(request()), await pages.database("geo", request())):
            headers = dict(answer.headers)
            assert answer.status == 200
            assert headers[b"Content-Type"] == b"text/html; charset=utf-8"
            assert headers[b"Cache-Control"] == b"no-store"
            assert headers[b"Content-Security-Policy"].decode() == POLICY
            page = await body_of(answer)
            for name in ("n1", "n2", "n3", "n4", "geo", "2026-11-20"):
                assert name in page
            assert page.count("<main") == page.count("</main>") == 1


async def test_the_upgrade_says_what_it_waits_for():
    """The page names the building node with its progress, and the node that does not answer."""
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
        (b"database=geo&key=00ff&as=hex", "0x00ff in geo 2026-11-20, answered by n2: 2 bytes 80 81"),
        (b"database=geo&key=0x00ff&as=hex", "0x00ff in geo 2026-11-20, answered by n2: 2 bytes 80 81"),
        (b"database=geo&key=CHX&as=hex", "Not read: &#39;CHX&#39; does not consist of pairs of hexadecimal digits"),
        (b"database=geo&key=nothing", "geo 2026-11-20 has no key &#39;nothing&#39;, answered by n2."),
        (b"database=geo&key=slow", "Not read: no owner answered &lt;b&gt;"),
        (b"database=nowhere&key=CH", "Not read: no database nowhere here or at the source"),
        (b"database=geo&key=%3Cscript%3Ealert(1)%3C/script%3E", "25 bytes &lt;script&gt;alert(2)&lt;/script&gt;"),
        (b"database=geo", ""),
        (b"key=CH", ""),
    ],
)
async def test_a_key_is_looked_up(asked, words):
    """A key is found as text or hex on both pages, with its value, version and node, or the reason why not."""
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
    """The form repeats the database, the key and its notation, escaped."""
    async with pages_of(ToldNode(told("calm"), VALUES)) as pages:
        page = await body_of(await pages.overview(request(target=b"/?database=words&key=%22%3E%3Cb%3E&as=hex")))
        plain = await body_of(await pages.overview(request()))
    assert "<option selected>words</option>" in page
    assert 'name="key" value="&#34;&gt;&lt;b&gt;"' in page
    assert '<option value="hex" selected>' in page
    assert "selected" not in plain


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [(TimedOut("no answer within 3 s"), 504, b"TIMEOUT"), (Unavailable("refused <b>"), 502, b"UNAVAILABLE")],
)
async def test_a_node_that_does_not_answer_is_told(failure, status, code):
    """The page tries again and has the error code of the wire; JSON clients get a line of text."""
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
    async with pages_of(ToldNode(told("calm"))) as pages:
        answer = await pages.database("<script>", request())
        assert answer.status == 404
        assert "&lt;script&gt;" in await body_of(answer)
        assert (await pages.database("nowhere", request(JSON))).status == 404


@pytest.mark.parametrize("accept", [b"text/html", JSON])
async def test_a_defect_is_one_answer_and_a_line_of_the_log(accept, monkeypatch):
    """The error is logged with an id, and the next page succeeds."""
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
    raise ZeroDivisionError


async def test_the_page_lives_with_a_node_that_says_little():
    """Missing fields are left out of the page."""
    said = told("calm")
    said["info"], said["members"], said["verdict"] = {}, [{}], {}
    said["databases"] = [{"name": "geo"}, {"name": "empty"}]
    said["status"] = {"geo": {"versions": {"v1": {}, "v2": None}}, "empty": {}}
    async with pages_of(ToldNode(said)) as pages:
        answer = await pages.overview(request())
    assert answer.status == 200
    assert "no version yet" in await body_of(answer)
