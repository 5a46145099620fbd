"""The routing of paths to the gateway's own functions and to databases."""

from __future__ import annotations

import pytest

from gossipkv.http.answers import HttpAnswer, HttpRequest, text
from gossipkv.http.site import Site
from tests.unit.http.asking import context_of, whole
from tests.unit.http.fake_node import FakeDatabase, FakeNode


class FakePages:
    """Fake pages that name themselves."""

    async def overview(self, _request):
        return text(200, "overview")

    async def database(self, name, _request):
        return text(200, f"database {name}")

    def asset(self, name, _request):
        return text(200, "an asset") if name == "page.css" else None


async def looking(_request, found):
    return text(200, f"own {found.path.decode()} {found.options}")


def a_site():
    """Return a site whose databases are called like its own paths."""
    records = {b"vars": b"hidden", b"page.css": b"hidden", b"other": b"seen", b"_mget": b"a key"}
    names = ("metrics", "debug", "static", "db")
    node = FakeNode({name: FakeDatabase({"1": records}, "1") for name in names})
    own = dict.fromkeys([b"/metrics", b"/debug/vars", b"/readyz"], looking)
    return Site(context_of(node), own, FakePages())


@pytest.mark.parametrize(("path", "status", "body"), [
    (b"/metrics", 200, b"own /metrics {}\n"),
    (b"/metrics?x=1", 200, b"own /metrics {'x': '1'}\n"),
    (b"http://h/metrics", 200, b"own /metrics {}\n"),
    (b"/%6detrics/", 200, b"database metrics\n"),
    (b"/metrics/", 200, b"database metrics\n"),
    (b"/metrics/other", 200, b"seen"),
    (b"/debug/vars", 200, b"own /debug/vars {}\n"),
    (b"/debug/var%73", 200, b"hidden"),
    (b"/debug/other", 200, b"seen"),
    (b"/static/page.css", 200, b"an asset\n"),
    (b"/static/other", 200, b"seen"),
    (b"/db/page.css", 200, b"hidden"),
    (b"/db/", 200, b"database db\n"),
    (b"/db", 400, None),
    (b"/db/_mget", 200, b"a key"),
    (b"/", 200, b"overview\n"),
    (b"/db/%", 400, None),
    (b"//other", 400, None),
])  # fmt: skip
async def test_who_answers(path, status, body):
    """Only exact paths of the gateway are its own; all others belong to databases."""
    answer = await a_site().answer(HttpRequest(b"GET", path))
    assert answer.status == status
    assert body is None or await whole(answer) == body


async def test_own_paths_are_only_looked_at():
    """Other methods than GET and HEAD are refused with the allowed ones."""
    site = a_site()
    refused = await site.answer(HttpRequest(b"DELETE", b"/metrics"))
    assert (refused.status, dict(refused.headers)[b"Allow"]) == (405, b"GET, HEAD, OPTIONS")
    told = await site.answer(HttpRequest(b"OPTIONS", b"/metrics"))
    assert (told.status, dict(told.headers)[b"Allow"]) == (204, b"GET, HEAD, OPTIONS")
    assert (await site.answer(HttpRequest(b"HEAD", b"/metrics"))).status == 200


async def test_many_keys_are_posted():
    """The same path is a key for GET."""
    headers = {b"content-type": b"application/x-ndjson"}
    answer = await a_site().answer(HttpRequest(b"POST", b"/db/_mget", headers, b'"other"\n'))
    assert (answer.status, await whole(answer)) == (200, b'{"key":"other","value":"seen"}\n')


async def test_who_is_about_to_end_is_not_ready():
    """`/readyz` fails while the gateway drains; other paths are answered."""
    site = a_site()
    assert (await site.answer(HttpRequest(b"GET", b"/readyz"))).status == 200
    site.is_draining = True
    assert (await site.answer(HttpRequest(b"GET", b"/readyz"))).status == 503
    assert (await site.answer(HttpRequest(b"GET", b"/db/other"))).status == 200


@pytest.mark.parametrize("method", [b"PUT", b"DELETE", b"PATCH"])
@pytest.mark.parametrize("path", [b"/", b"/db", b"/db/", b"/db/other", b"/db/_mget", b"/static/no.css", b"/metrics"])
async def test_a_method_that_nobody_does(method, path):
    """405 lists the allowed methods."""
    answer = await a_site().answer(HttpRequest(method, path))
    assert isinstance(answer, HttpAnswer)
    allowed = b"GET, HEAD, POST, OPTIONS" if path.endswith(b"_mget") else b"GET, HEAD, OPTIONS"
    assert (answer.status, dict(answer.headers)[b"Allow"]) == (405, allowed)
