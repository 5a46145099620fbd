"""FUZZ_FRAMES mutated HTTP requests through an exchange and the reads: answers or a close, never a wrong body.

Seeds, numbers and replays work as in `frames.py`. h11's client parses the answers, and so judges the framing.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.http.answers import text
from gossipkv.http.exchange import CONTINUE, HttpExchange, HttpRefusal, NoRequest, RequestLimits
from tests.nightly.fuzz.frames import FRAMES, mutate, numbers, replay
from tests.oracle import request_target
from tests.unit.http.asking import context_of, converse, read_answers
from tests.unit.http.fake_node import FakeDatabase, FakeNode

if TYPE_CHECKING:
    from collections.abc import Callable

    Record = Callable[[str, str], None]

pytestmark = pytest.mark.timeout(7200)

SEED = 20_010_003
COUNT = min(FRAMES, 5_000_000)  # A request takes some 0.3 ms, and a release has other legs as well.
SCANNED = {b"key%d" % number: b"" for number in range(20)}
TAG = b'"2-00000000"'
SEEDS = [
    b"GET /db/key7 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /db/a%2Fb//%00%ff+?proxy=true HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
    b"GET /db/away?proxy=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /db/none HTTP/1.1\r\nHost: h\r\nX-Sequins-Version: 1\r\n\r\n",
    b"GET /db/long HTTP/1.1\r\nHost: h\r\nRange: bytes=1-3, 5-\r\nIf-Range: " + TAG + b"\r\n\r\n",
    b"GET /db/long HTTP/1.1\r\nHost: h\r\nRange: bytes=1-3,5-6\r\nIf-Match: *\r\n\r\n",
    b"GET /db/x HTTP/1.1\r\nHost: h\r\nIf-None-Match: W/" + TAG + b"\r\nRange: bytes=-2\r\n\r\n",
    b"GET /db/x HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
    b"GET http://h/db/x HTTP/1.0\r\nX-GossipKV-Min-Version: 2\r\nX-GossipKV-Timeout-Ms: 100\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b'POST /db/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: 27\r\n\r\n"a"\n{"base64":"/w=="}\n"none"',
    b"POST /db/_mget HTTP/1.1\r\nHost: h\r\nContent-Type: application/msgpack\r\nContent-Length: 8\r\n\r\n"
    + msgpack.packb([b"a", "none"]),
    b'POST /db/_mget HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n"a"\r\n0\r\nT: x\r\n\r\n',
    b'POST /db/_scan HTTP/1.1\r\nHost: h\r\nContent-Length: 27\r\n\r\n{"prefix":"key1","limit":3}',
    b"POST /db/_scan HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
]
FIELDS = [
    b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Host: i", b"Expect: 100-continue",
    b"Connection: close", b"Upgrade: h2c", b"Range: bytes=0-0", b"Range: bytes=900-",
    b"Range: bytes=" + b",".join([b"0-0"] * 40),
    b"If-None-Match: *", b"If-Match: " + TAG, b"Accept: application/msgpack", b"Content-Type: application/json",
    b"X-Sequins-Version: 1", b"X-Sequins-Version: 9", b"X-GossipKV-Min-Version: 9", b"X: a\r\n b", b": x", b"X\0: y",
]  # fmt: skip
IN_TARGETS = [b"%", b"%2", b"%00", b"%2F", b"/", b"..", b"?", b"&x=1", b"proxy=1", b"#", b"+", b" ", b"\xc3\xbc", b"*"]


class Derived(dict):
    """Records for any key, whose values contain version and key, so that a wrong one shows."""

    def __init__(self, version):
        super().__init__(SCANNED)
        self.version = version

    def get(self, key):
        """Return the value, or None if the key says so."""
        return None if b"none" in key else derived(self.version, key)

    def __getitem__(self, key):
        return derived(self.version, key)


def derived(version, key):
    return b"%b of %b, and more" % (key, version.encode())


def a_node():
    """Return a node with two versions, and a key that another node has."""
    versions = {"1": Derived("1"), "2": Derived("2")}
    database = FakeDatabase(versions, "2", {"1": 784_111_777_000, "2": 1_470_052_587_000}, {b"away": "n2"})
    return FakeNode({"db": database}, page=4)


async def test_mutated_requests_are_answered_rightly_or_refused(record_property: Record) -> None:
    """Every answer is complete, with the body of its key and version; nothing is raised, and memory is bounded."""
    context = context_of(a_node())
    seen: Counter[str] = Counter()
    for number in numbers(COUNT):
        draw = random.Random(SEED + number)
        stream = b"".join(spoil(draw, draw.choice(SEEDS)) for _ in range(draw.randint(1, 2)))
        cut = draw.randrange(len(stream) + 1)
        pieces = [piece for piece in (stream[:cut], stream[cut:]) if piece]
        try:
            asked, sent, closing = await converse(context, stream, pieces=pieces)
            methods = [b"GET" if isinstance(each, HttpRefusal) else each.method for each in asked]
            answers = read_answers(sent.removesuffix(CONTINUE), methods)
            for each, answer in zip(asked, answers, strict=True):
                if isinstance(each, HttpRefusal):
                    assert (each is asked[-1], closing) == (True, True)
                    seen["refused"] += 1
                else:
                    seen[check(each, *answer)] += 1
            context.ask.calls.clear()
        except Exception as error:
            raise AssertionError(replay(number, stream)) from error
    record_property("measured", f"{COUNT:,} streams: {dict(seen)}")
    if sum(seen.values()) > 1000:
        for kind in ("refused", "200", "204", "206", "304", "400", "404", "412", "416", "500", "503", "many", "scan"):
            assert seen[kind] > 20, (kind, seen)


def spoil(draw, data):
    """Mutate the bytes, a header or the target, or nothing."""
    for _ in range(draw.randint(0, 2)):
        match draw.randrange(4):
            case 0:
                data = mutate(draw, data)
            case 1:
                line, end, rest = data.partition(b"\r\n")
                data = line + end + draw.choice(FIELDS) + b"\r\n" + rest
            case 2:
                line, end, rest = data.partition(b"\r\n")
                at = draw.randrange(len(line) + 1)
                data = line[:at] + draw.choice(IN_TARGETS) + line[at:] + end + rest
            case _:
                method = draw.choice([b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"CONNECT", b"PRI"])
                data = method + b" " + data.partition(b" ")[2]
    return data


def check(request, status, headers, body):
    """Check an answer against an oracle of targets; return its kind."""
    assert status < 500 or status in {500, 501, 503, 505}
    version = headers.get(b"x-sequins-version")
    if status not in {200, 206} or request.method == b"HEAD":
        assert status != 404 or (version is None) is (b"x-gossipkv-error" in headers)
        return str(status)
    assert version is not None, (request, body)
    if request.method == b"POST":
        return check_lines(request, version.decode(), headers, body)
    at = request.target.find(b"/", (request.target.lower().startswith(b"http://") and 7) or 0)
    database, key, _ = request_target.read(request.target[at:])
    assert database == b"db", request
    value = derived(version.decode(), key)
    if status == 200:
        assert body == value, request
    elif b"content-range" in headers:
        first, _, last = headers[b"content-range"].removeprefix(b"bytes ").partition(b"/")[0].partition(b"-")
        assert body == value[int(first) : int(last) + 1], request
    else:
        assert headers[b"content-type"].startswith(b"multipart/byteranges"), request
    return str(status)


def check_lines(request, version, headers, body):
    """Check that each of many values belongs to its key."""
    if headers[b"content-type"] == b"application/msgpack":
        assert isinstance(msgpack.unpackb(body), list)
        return "many"
    lines = [json.loads(line) for line in body.splitlines()]
    for line in lines:
        if "key" in line and isinstance(line["key"], str):
            key = line["key"].encode()
            asked = b"_mget" in request.target
            assert line["value"] == (None if asked and b"none" in key else derived(version, key).decode()), line
    if b"_scan" in request.target:
        assert ("cursor" in lines[-1]) != ("error" in lines[-1])
        return "scan"
    return "many"


ENDLESS = {
    "a target": (b"GET /", b"x"),
    "headers": (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
    "one header": (b"GET / HTTP/1.1\r\nX: ", b"y"),
    "empty lines": (b"", b"\r\n"),
    "a body": (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n", b"x"),
    "chunks": (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n"),
    "small chunks": (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a chunk's extension": (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;", b"x"),
    "trailers": (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    "zeros": (b"", b"\0"),
    "requests": (b"", SEEDS[0]),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_never_ends_takes_bounded_memory(what: str) -> None:
    """Endless input in receives of 64 KiB takes little more memory than the longest request."""
    begin, more = ENDLESS[what]
    piece = more * (64 * 1024 // len(more))
    exchange = HttpExchange(RequestLimits())
    tracemalloc.start()
    try:
        for each in [begin, *[piece] * (128 if what != "requests" else 8)]:
            if each:
                exchange.receive(each)
            while not isinstance(found := exchange.next_request(), NoRequest):
                exchange.whole(None if isinstance(found, HttpRefusal) else found, text(200, "x"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * (RequestLimits().max_body + 4 * 64 * 1024), peak
