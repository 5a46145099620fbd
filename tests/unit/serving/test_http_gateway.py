"""The plain HTTP requests that the pump answers, by an oracle: the gateway's answers are byte-identical."""

from __future__ import annotations

import msgpack
import pytest
import trio

from gossipkv.http.order import HIDING
from tests.oracle.http import HIDDEN
from tests.unit.serving import http_world as world
from tests.unit.serving.http_driven import make_http_core
from tests.unit.serving.http_judging import judge_all
from tests.world._world import Driver

KINDS = (
    "200",
    "206",
    "304",
    "404",
    "416",
    "429",
    "500",
    "502",
    "503",
    "504",
    "strange",
    "partial",
    "unread",
    "nothing",
)


class Answering(world.Asker):
    """A node with one answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def call(self, method, *params, timeout_ms=None):
        return self.answer


def test_the_gateway_answers_what_is_plain_as_the_oracle_does():
    """Answers and end agree for every plain request up to the first other one."""
    seen = judge_all(range(1_000))
    assert all(seen[kind] > 5 for kind in KINDS), seen


def test_what_the_gateway_hides_is_not_plain():
    assert {name.encode() for name in HIDING} == HIDDEN


@pytest.mark.parametrize(("expires_ms", "lifetime_s"), [
    (world.DATE_S * 1000 + 61_999, 61), (world.DATE_S * 1000 + 1, 1), (world.DATE_S * 1000 - 5000, 1), (None, None),
])  # fmt: skip
def test_a_record_that_expires_has_its_lifetime(tmp_path, expires_ms, lifetime_s):
    """The loop and the gateway tell whole seconds, at least one: the node knows best that the record lives."""
    explained = {"node": "n9"} | ({} if expires_ms is None else {"expires_at": expires_ms, "more": [1]})
    driver = Driver(make_http_core(tmp_path))
    handle = driver.open(world.DATE_S * 1000, listener=2)
    request = b"GET /%s/k HTTP/1.1\r\nHost: h\r\n\r\n" % world.TABLE.encode()
    ((_, msgid, _, _),) = driver.feed(handle, request, world.DATE_S * 1000)
    answer = [b"v", b"token", explained]
    assert driver.reply(handle, msgid, msgpack.packb([1, msgid, None, answer]))
    told = driver.take_output(handle, 1 << 30, world.DATE_S * 1000)
    line = b"" if lifetime_s is None else b"GossipKV-TTL: %d\r\n" % lifetime_s
    assert b"X-Sequins-Proxied-To: n9\r\n" + line + b"Content-Length: 1\r\n" in told
    assert trio.run(world.Gateway(Answering(answer)).answers, request) == [told]


def test_a_body_in_pieces_has_its_head_parsed_once(tmp_path):
    """No more work is done until the whole of it is here."""
    driver = Driver(make_http_core(tmp_path))
    handle = driver.open(1, listener=2)
    for _ in range(2):
        head = b"PUT /%s/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" % world.TABLE.encode()
        assert driver.feed(handle, head[:40], 1) == driver.feed(handle, head[40:], 1) == []
        before = driver.work
        for _ in range(999):
            assert driver.feed(handle, b"v", 1) == []
        assert driver.work == before
        ((_, msgid, method, params),) = driver.feed(handle, b"v", 1)
        assert (method, msgpack.unpackb(params)[2]) == (b"put", b"v" * 1000)
        assert driver.reply(handle, msgid, msgpack.packb([1, msgid, None, b""]))


GET, HEAD = (b"%s /%s/%%s HTTP/1.1\r\nHost: h\r\n\r\n" % (method, world.TABLE.encode()) for method in (b"GET", b"HEAD"))
PUT = b"PUT /%s/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nv" % world.TABLE.encode()
DELETE = b"DELETE /%s/k HTTP/1.1\r\nHost: h\r\n\r\n" % world.TABLE.encode()


@pytest.mark.parametrize(("sent", "together"), [
    ([PUT, GET % b"k"], ["put", "get"]),
    ([DELETE, HEAD % b"k"], ["delete", "get"]),
    ([GET % b"k", GET % b"l", PUT, DELETE, GET % b"k", GET % b"l"], ["get get", "put", "delete", "get get"]),
])  # fmt: skip
def test_requests_wait_for_unsafe_ones_before_them_and_unsafe_ones_for_all(tmp_path, sent, together):
    """RFC 9112, 9.3.2: only safe methods may be processed in parallel."""
    driver = Driver(make_http_core(tmp_path))
    handle = driver.open(1, listener=2)
    asked, seen = driver.feed(handle, b"".join(sent), 1), []
    while asked:
        seen.append(" ".join(method.decode() for _, _, method, _ in asked))
        for _, msgid, method, _ in asked:
            assert not driver.run(1)
            answer = [b"v", b"token", {}] if method == b"get" else b"token"
            assert driver.reply(handle, msgid, msgpack.packb([1, msgid, None, answer]))
        asked = driver.run(1)
    assert seen == together
