"""100,000 mutated frames into the connection core: a typed error or a close, never a crash, and bounded memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgpack

from gossipkv.errors import UnknownMethod
from gossipkv.node._driver import Driver
from gossipkv.wire import rpc
from tests.fuzz.test_frames_mutated import SEEDS, mutate
from tests.unit.node.driven import make_core, one_database

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_010_002
FRAMES = 100_000
KEYS = {b"key%d" % number: b"value%d" % number for number in range(50)}
REQUESTS = [
    *SEEDS,
    rpc.request(9, "get", ["db", b"key7", {"version": "v1", "timeout_ms": 5}]),
    rpc.request(10, "get_many", ["db", list(KEYS)]),
    rpc.request(11, "get_many", ["db", [b"key1"], {"min_version": "v0"}]),
    rpc.request(12, "ping", []),
    rpc.request(13, "scan", ["db", {"prefix": b"k"}]),
]
PING = rpc.request(0xABCDEF, "ping", [])


def check_answers(output: bytes) -> None:
    """Every answer is `[1, id, nil or [code, message, details], result]`, and a value is never another key's."""
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
            values, version = result
            assert version == "v1"
            for value in values if isinstance(values, list) else [values]:
                assert value is None or value in KEYS.values()
    assert unpacker.tell() == len(output)


def test_mutated_frames_never_hurt_the_core(tmp_path: Path) -> None:
    """Each gets its own connection, or follows others on one; a bystander is answered all along."""
    draw = random.Random(SEED)
    core = make_core(max_frame=4096, max_held=100_000, max_queued=100_000)
    core.publish(one_database(tmp_path, KEYS, partitions=3).publish())
    driver = Driver(core)
    bystander = driver.open(1)
    assert bystander is not None
    closed = answered = 0
    handle = driver.open(1)
    for number in range(FRAMES):
        assert handle is not None
        data = mutate(draw, REQUESTS[number % len(REQUESTS)])
        cut = draw.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            if not driver.wants_input(handle):
                break
            output, hand_offs = driver.receive(handle, piece, 1)
            for at, msgid, _, _ in hand_offs:
                assert core.reply(at, msgid, rpc.error_response(msgid, UnknownMethod("no such method")))
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
    assert closed > FRAMES // 20
    assert answered > FRAMES // 20
    assert counters["connections"] == 1
    assert counters["in_flight"] == counters["held_bytes"] == 0
    assert (
        min(counters[name] for name in ("gets", "get_manys", "handed_off", "bad_requests", "notifications_ignored")) > 0
    )
    assert min(counters[f"closed_{reason}"] for reason in ("bad_frame", "bad_message", "unasked_response")) > 0
