"""FUZZ_FRAMES mutated answers into the client core: an answer, `ProtocolError`, or nothing; never a crash."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.client._client import Request, Session, call_request, get_many_request, get_request, page_request
from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.nightly.fuzz.frames import FRAMES, mutate
from tests.oracle import session as oracle
from tests.unit.client.columns import values_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(7200)

SEED = 20_010_004
MAX_FRAME = 4096
LIMITS = {"max_size": MAX_FRAME, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS}
KEYS = [b"a", b"bc", b"def"]
ASKED: list[tuple[str, list[object]]] = [
    ("get", ["geo", b"key"]),
    ("get_many", ["geo", KEYS]),
    ("ping", []),
    ("get", ["geo", b"key"]),
    ("scan", ["geo"]),
    ("columns", ["geo", KEYS]),
    ("page", ["geo"]),
]
COLUMNS: list[object] = [[[b"1", None, b"333"], "v1"], [[None] * 3, "v1"], [[b"x" * 200, b"", b"y"], "v2"]]
PAGES: list[object] = [[[[b"k", b"v"], [b"l", b""]], b"cursor", "v1"], [[], None, "v1"]]
RESULTS: dict[str, list[object]] = {
    "get": [[b"value", "v1"], [None, "v1"], [b"", "2024-05-01"], [b"x" * 300, "v1"], [b"v" * 40, "é"]],
    "get_many": COLUMNS,
    "ping": ["pong"],
    "scan": PAGES,
    "columns": COLUMNS,
    "page": PAGES,
}
ERRORS = [["NOT_READY", "why", {"progress": 0.5}], ["CORRUPT", "x", {"file": "f", "offset": 1}], ["?", "text"], "text"]


def request_of(method: str, params: list[object]) -> Request:
    match method, params:
        case "get", [_, key]:
            return get_request(msgpack.packb("geo"), key)
        case "get_many", [_, keys]:
            return get_many_request(msgpack.packb("geo"), keys)
        case "columns", [_, keys]:
            return get_many_request(msgpack.packb("geo"), keys, columns=True)
        case "page", _:
            return page_request(params)
    return call_request(method, params)


def outcome_of(request: Request) -> tuple[str, object]:
    """Return the outcome of a request, in the oracle's words."""
    if request.error is None:
        result = request.take()
        return "result", [values_of(result[0]), *result[1:]] if isinstance(result, tuple) else result
    assert isinstance(request.error, GossipKVError)
    return ("odd" if isinstance(request.error, ProtocolError) else "error"), None


def test_mutated_answers_are_taken_as_by_the_oracle(record_property: Callable[[str, str], None]) -> None:
    """Answers, their order and the end of each session equal those of the plain-Python client; all kinds occur."""
    draw = random.Random(SEED)
    ends: Counter[str | None] = Counter()
    kinds: Counter[str] = Counter()
    frames = 0
    tracemalloc.start()
    try:
        while frames < FRAMES:
            session = Session(MAX_FRAME)
            requests = [request_of(*asked) for asked in ASKED]
            for request in requests:
                session.send(request)
            slow = oracle.Conversation(dict(enumerate(ASKED)), limits=LIMITS)
            if draw.random() < 0.2:
                abandoned = draw.randrange(len(ASKED))
                requests[abandoned].fail(None)
                slow.abandoned.add(abandoned)
            pieces = []
            for message_id in draw.sample(range(len(ASKED)), draw.randint(1, len(ASKED))):
                result = draw.choice(RESULTS[ASKED[message_id][0]])
                is_error = draw.random() < 0.2
                frame = msgpack.packb([1, message_id, draw.choice(ERRORS) if is_error else None, result])
                pieces.append(mutate(draw, frame) if draw.random() < 0.5 else frame)
                frames += 1
            stream = b"".join(pieces)
            slow.hear(stream)
            cuts = sorted(draw.randrange(len(stream) + 1) for _ in range(draw.randint(0, 4)))
            done = []
            for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                done += session.receive(stream[begin:end])
            found = [(requests.index(request), *outcome_of(request)) for request in done]
            wanted = [(number, kind, result if kind == "result" else None) for number, kind, result in slow.answers]
            assert found == wanted, stream
            assert (session.failure is None) == (slow.failure is None), (stream, session.failure, slow.failure)
            assert session.failure is None or isinstance(session.failure, ProtocolError)
            ends[slow.failure] += 1
            kinds.update(kind for _, kind, _ in wanted)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    record_property("measured", f"{frames:,} frames: {dict(ends)}, {dict(kinds)}, {peak_bytes:,} bytes at most")
    expected = (None, "unasked", "no answer", "undecodable", "size", "extension", "reserved")
    assert min(ends[end] for end in expected) > 100, ends
    assert min(kinds[kind] for kind in ("result", "error", "odd")) > 1000, kinds
    assert peak_bytes < 8 << 20  # This includes all memory of the test, which does not grow with the number of frames.


def test_lying_lengths_cost_nothing() -> None:
    """Heads that promise gigabytes or endless nesting are refused or awaited without memory for them."""
    promises = [
        b"\x94\x01\x00\xc0\xc6\xff\xff\xff\xff",
        b"\x94\x01\x00\xc0\x92\xdd\xff\xff\xff\xff",
        b"\x94\x01\x00\xc0\xdf\xff\xff\xff\xff",
        b"\x94\x01\x00\xc0\x92\xc6\x01\xf0\x00\x00",  # 31 MiB would be allowed, but nothing is allocated yet.
        b"\x90" * 10_000_000,
        b"\x91" * 10_000_000,
    ]
    for promise in promises:
        session = Session()
        session.send(get_request(b"\xa3geo", b"key"))
        tracemalloc.start()
        try:
            assert session.receive(promise) == []
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < 100_000, promise[:12]
