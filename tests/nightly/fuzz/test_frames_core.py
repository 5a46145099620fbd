"""FUZZ_FRAMES mutated frames into the connection core: a typed error or a close, no crash, and bounded memory."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.errors import UnknownMethod
from gossipkv.serving.published import publish
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.nightly.fuzz.frames import FRAMES, SEEDS, mutate, numbers, replay, restructure
from tests.oracle import connection, scan
from tests.unit.serving.driven import NODE, Peer, make_core, make_version, one_database
from tests.unit.wire.answers import error_response
from tests.world._world import Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Record = Callable[[str, str], None]

pytestmark = pytest.mark.timeout(7200)

SEED = 20_010_002
KEYS = {b"key%d" % number: b"value%d" % number for number in range(50)}
REQUESTS = [
    *SEEDS,
    rpc.request(9, "get", ["db", b"key7", {"version": "v1", "timeout_ms": 5}]),
    rpc.request(10, "get_many", ["db", list(KEYS)]),
    rpc.request(11, "get_many", ["db", [b"key1"], {"min_version": "v0"}]),
    rpc.request(12, "ping", []),
    rpc.request(14, "get", ["db", b"key1", {"min_version": "v2"}]),
    rpc.request(15, "get", [b"db", "only", {"version": "v2"}]),
    rpc.request(16, "get", ["db", b"key1", {"explain": True}]),
    rpc.request(20, "get", [b"db", "only", {"version": "v2", b"explain": False}]),
    rpc.request(13, "scan", ["db", {"prefix": b"k"}]),
    rpc.request(17, "scan", ["db", {"start": b"key2", "end": b"key4", "reverse": True, "limit": 5}]),
    rpc.request(18, "scan", ["db", {"cursor": scan.cursor("v1", b"key30"), "version": "v1", "limit": None}]),
    rpc.request(19, "scan", [b"db", {b"min_version": "v2", "timeout_ms": 5}]),
]
FOREIGN = [b"GET /db/key1 HTTP/1.1\r\nHost: db\r\n\r\n", b"*2\r\n$3\r\nGET\r\n$4\r\nkey1\r\n"]
TURNED_AWAY = {  # Exactly one such answer is sent.
    "HTTP": re.compile(rb"HTTP/1.1 400 [ -~]*\r\n([A-Z][ -~]*\r\n)+\r\n[ -~]+\r\n"),
    "RESP": re.compile(rb"-ERR [ -~]+\r\n"),
}
PING = rpc.request(0xABCDEF, "ping", [])


LIMITS = {"max_size": 4096, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS}


def test_mutated_streams_are_answered_as_by_the_oracle(tmp_path: Path, record_property: Record) -> None:
    """Answers, hand-offs and the end of each connection equal those of the plain-Python node; all kinds occur."""
    core = make_core(max_frame=4096)
    old, new = KEYS | {b"only": b"old"}, {b"key1": b"newer"}
    core.publish(
        publish(
            [(make_version(tmp_path, "db", "v1", old, 3), True), (make_version(tmp_path, "db", "v2", new), False)]
        ).table()
    )
    databases: connection.Databases = {b"db": (b"v1", {b"v1": old, b"v2": new})}
    seen: Counter[str | None] = Counter()
    for number in numbers(FRAMES // 2):
        draw = random.Random(SEED + number)
        stream = b"".join(spoil(draw, draw.choice(REQUESTS + FOREIGN)) for _ in range(draw.randint(1, 3)))
        expected = connection.Conversation(databases, LIMITS)
        expected.hear(stream)
        peer = Peer(core)
        cut = draw.randrange(len(stream) + 1)
        hand_offs = peer.send(stream[:cut])
        if peer.driver.wants_input(peer.handle):
            hand_offs += peer.send(stream[cut:])
        unpacker = msgpack.Unpacker(raw=True)
        if expected.protocol is None:
            unpacker.feed(peer.received)
        else:
            assert TURNED_AWAY[expected.protocol].fullmatch(peer.received), replay(number, stream)
        answers = [(msgid, error and error[0].decode(), result) for _, msgid, error, result in unpacker]
        assert repr(answers) == repr(expected.answers), replay(number, stream)
        assert [hand_off[1:] for hand_off in hand_offs] == expected.hand_offs, replay(number, stream)
        assert peer.driver.wants_input(peer.handle) is (expected.ended is None), replay(number, stream)
        peer.driver.close(peer.handle)
        seen[expected.protocol or expected.ended or "goes on"] += 1
        seen.update(code for _, code, _ in answers)
        seen["handed off"] += len(hand_offs)
    record_property("measured", f"{FRAMES // 2:,} streams: {dict(seen)}")
    if seen["goes on"] > 1:
        ends = ("goes on", "bad_frame", "bad_message", "unasked_response", "handed off", *TURNED_AWAY)
        assert min(seen[kind] for kind in (*ends, None, "BAD_REQUEST", "TOO_LARGE")) > 100, seen


def spoil(draw: random.Random, data: bytes) -> bytes:
    """Mutate the bytes or the structure, or nothing."""
    chosen = draw.randrange(8)
    if chosen == 0:
        return data
    return mutate(draw, data) if chosen < 4 or data in FOREIGN else restructure(draw, data)


def check_answers(output: bytes) -> None:
    """Check that every answer is `[1, id, nil or [code, message, details], result]`, with the value of its key.

    A peer that seems to speak another protocol gets one line instead.
    """
    if any(form.fullmatch(output) for form in TURNED_AWAY.values()):
        return
    unpacker = msgpack.Unpacker()
    unpacker.feed(output)
    for answer in unpacker:
        kind, msgid, error, result = answer
        assert kind == 1
        assert 0 <= msgid <= rpc.MAX_MESSAGE_ID
        if error is not None:
            code, message, details = error
            assert code in {"BAD_REQUEST", "TOO_LARGE", "UNKNOWN_METHOD"}
            assert isinstance(message, str)
            assert isinstance(details, dict)
            assert result is None
        elif result != "pong":
            if isinstance(result[-1], dict):
                assert result.pop() == {"node": NODE}
            values, version = result[0], result[-1]
            assert version == "v1"
            if len(result) == 3:
                assert all(KEYS[key] == value for key, value in values)
                continue
            for value in values if isinstance(values, list) else [values]:
                assert value is None or value in KEYS.values()
    assert unpacker.tell() == len(output)


def test_mutated_frames_never_hurt_the_core(tmp_path: Path, record_property: Record) -> None:
    """Mutated frames come on new connections or one after the other; a bystander is always answered."""
    core = make_core(max_frame=4096, max_held=100_000, max_queued=100_000)
    core.publish(one_database(tmp_path, KEYS, partitions=3).table())
    driver = Driver(core)
    bystander = driver.open(1)
    assert bystander is not None
    closed = answered = 0
    handle = driver.open(1)
    for number in range(FRAMES):
        assert handle is not None
        draw = random.Random(SEED + number)
        data = (restructure if draw.random() < 0.5 else mutate)(draw, REQUESTS[number % len(REQUESTS)])
        cut = draw.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            if not driver.wants_input(handle):
                break
            output, hand_offs = driver.receive(handle, piece, 1)
            for at, msgid, _, _ in hand_offs:
                assert driver.reply(at, msgid, error_response(msgid, UnknownMethod("no such method")))
            output += driver.take_output(handle, 1 << 20, 1)
            check_answers(output)
            answered += bool(output)
        if driver.should_close(handle) or draw.random() < 0.2:
            closed += driver.should_close(handle)
            driver.close(handle)
            handle = driver.open(1)
        if number % 1000 == 0:
            assert driver.receive(bystander, PING, 1) == (rpc.response(0xABCDEF, "pong"), [])
            assert core.counters()["held_bytes"] <= 4096 + 800
    assert handle is not None
    driver.close(handle)
    counters = core.counters()
    record_property("measured", f"{FRAMES:,} frames: {closed:,} connections closed, {answered:,} pieces answered")
    assert closed > FRAMES // 20
    assert answered > FRAMES // 20
    assert counters["connections"] == 1
    assert counters["in_flight"] == counters["held_bytes"] == 0
    answered_by = ("gets", "get_manys", "scans", "handed_off")
    assert min(counters[name] for name in (*answered_by, "bad_requests", "notifications_ignored")) > 0
    assert min(counters[f"closed_{reason}"] for reason in ("bad_frame", "bad_message", "unasked_response")) > 0
