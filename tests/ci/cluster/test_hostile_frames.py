"""A real node that is sent invalid frames: each gets a typed error or a close, and other clients never notice."""

from __future__ import annotations

import contextlib
import random
import socket
import string
import struct
import time
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.wire import rpc
from tests.ci.cluster.hostile_peers import (
    GET,
    GOT,
    HURRIED,
    PING,
    PONG,
    RECORDS,
    SETTINGS,
    UNHURRIED,
    Victim,
    answers,
    attacked,
    bytes_until_end,
    check_typed,
    patient,
    until_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20_261_120


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with attacked(tmp_path_factory.mktemp("frames"), *SETTINGS, *UNHURRIED) as victim:
        yield victim


ALERT = b"\x15\x03\x01\x00\x02\x02F"  # A fatal TLS alert: protocol_version.


@patient
def test_garbage_ends_the_connection(victim: Victim) -> None:
    """Only the first bytes of HTTP, RESP or TLS are answered, and each connection is counted."""
    draw = random.Random(SEED)
    garbage = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"*1\r\n$4\r\nPING\r\n",
    ]
    garbage += [b"\xc1" + draw.randbytes(draw.randint(0, 70_000)) for _ in range(100)]
    garbage += [bytes([draw.choice(range(0x90))]) + draw.randbytes(50) for _ in range(50)]
    told = dict.fromkeys(string.ascii_uppercase.encode(), b"HTTP/1.1 400 ") | {ord("*"): b"-ERR ", 0x16: ALERT}
    before = victim.counters()
    with victim.undisturbed():
        for data in garbage:
            with victim.connect() as peer, contextlib.suppress(ConnectionError):
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                answer = bytes_until_end(peer)
                assert answer.startswith(told.get(data[0], b"")), answer
                assert bool(answer) == (data[0] in told), answer
    after = victim.counters()
    closed = sum(after[name] - before[name] for name in ("closed_bad_frame", "closed_bad_message", "closed_by_peer"))
    assert closed >= len(garbage)
    assert after["closed_bad_frame"] - before["closed_bad_frame"] >= 100


VALID = [
    GET,
    PING,
    rpc.request(70_000, "get_many", ["geo", [b"key0001", "key0002", b""], {"version": "1", "timeout_ms": 5}]),
    rpc.request(9, "scan", ["geo", {"limit": 2, "prefix": b"key", "reverse": True}]),
    rpc.request(2**32 - 1, "databases", []),
    rpc.request(10, "status", [{"local": True, "database": "geo"}]),
]


def damaged() -> Iterator[bytes]:
    """Yield every prefix and every flipped bit of VALID."""
    for data in VALID:
        for at in range(len(data)):
            yield data[:at]
            for bit in range(8):
                yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@patient
def test_every_prefix_and_every_flipped_bit(victim: Victim) -> None:
    """Each stream gets at most one answer, typed, and then the node's end, since the peer has ended its side."""
    streams = list(damaged())
    answered = refused = 0
    with victim.undisturbed():
        for batch in [streams[at : at + 100] for at in range(0, len(streams), 100)]:
            with contextlib.ExitStack() as stack:
                peers = [stack.enter_context(victim.connect()) for _ in batch]
                for peer, data in zip(peers, batch, strict=True):
                    peer.sendall(data)
                    peer.shutdown(socket.SHUT_WR)
                for peer in peers:
                    found = until_end(peer)
                    check_typed(found)
                    assert len(found) <= 1
                    answered += len(found)
                    refused += any(error is not None for _, _, error, _ in found)
    assert len(streams) > 1500
    assert answered > 1000
    assert refused > 200


def head(count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count)


OVERSIZED = {
    "empty arrays": (b"\x90" * 10_000_000, None),
    "arrays in arrays": (b"\x91" * 10_000_000, None),
    "maps in maps": (b"\x81" * 10_000_000, None),
    "deep": (b"\x94\x00\x07\xa3get" + b"\x91" * 10_000_000, "BAD_REQUEST"),
    "long": (b"\x94\x00\x07\xa3get" + head(10_000_000) + b"\x90" * 10_000_000, "BAD_REQUEST"),
    "long map": (b"\x94\x00\x07\xa3get\x92\xa3geo\xdf\x00\x98\x96\x80" + b"\xc0" * 10_000_000, "BAD_REQUEST"),
    "large": (rpc.request(7, "get", ["geo", b"x" * 20_000_000]), "TOO_LARGE"),
    "lying bin": (b"\x94\x00\x07\xa3get\x92\xa3geo\xc6\xff\xff\xff\xff" + b"x" * 1_000_000, "TOO_LARGE"),
    "lying str": (b"\xdb\xff\xff\xff\xff" + b"x" * 1_000_000, None),
}


@patient
def test_oversized_and_nested_frames_cost_nothing(victim: Victim) -> None:
    """Five copies of each are refused at the decisive head, with an error if an id was sent."""
    answered = dict.fromkeys(OVERSIZED, 0)
    with victim.undisturbed(most_mib=2):
        for name, (data, code) in OVERSIZED.items():
            with contextlib.ExitStack() as stack:
                peers = [stack.enter_context(victim.connect()) for _ in range(5)]
                for peer in peers:
                    with contextlib.suppress(ConnectionError):  # The node reads later bytes for a second, then resets.
                        peer.sendall(data)
                for peer in peers:
                    found = [(msgid, error[0]) for _, msgid, error, _ in until_end(peer)]
                    assert found in ([], [] if code is None else [(7, code)])
                    answered[name] += len(found)
            assert victim.counters()["held_bytes"] == 0
    # A reset may destroy an answer under way, since the peer goes on sending, but not all answers.
    assert {name for name, count in answered.items() if count} == {
        name for name, (_, code) in OVERSIZED.items() if code
    }


@patient
def test_lengths_that_lie(tmp_path: Path) -> None:
    """The node waits `frame_timeout` for a length that a frame may have, and refuses other lengths."""
    heads = {1: [0xC4, 0xD9], 2: [0xC5, 0xDA, 0xDC, 0xDE], 4: [0xC6, 0xDB, 0xDD, 0xDF]}
    with (
        attacked(tmp_path, *SETTINGS, *HURRIED) as victim,
        victim.undisturbed(),
        contextlib.ExitStack() as stack,
    ):
        before = victim.counters()["closed_frame_timeout"]
        waiting = []
        for width, first in [(width, first) for width, firsts in heads.items() for first in firsts]:
            peer = stack.enter_context(victim.connect())
            lie = bytes([first, 0x0F]) + b"\xff" * (width - 1)
            peer.sendall(b"\x94\x00\x07\xa3get\x92\xa3geo" + lie + b"abc")
            if width < 4:
                waiting.append(peer)
            else:
                ((_, msgid, error, _),) = until_end(peer)
                assert (msgid, error[0]) == (7, "TOO_LARGE" if first < 0xDC else "BAD_REQUEST")
        assert [until_end(peer) for peer in waiting] == [[]] * 6
        assert victim.counters()["closed_frame_timeout"] == before + 6


ODD = [
    None, True, 0, -1, 1.5, float("nan"), float("-inf"), 2**63, 2**64 - 1, -(2**63), "", "geo", b"geo", b"\xff\xfe",
    "a\0b", "../../etc", "x" * 1000, b"y" * 65_535, b"y" * 65_536, [], ["k"], [None], [[]], [b"k"] * 1000, {},
    {"version": "1"}, {"version": b"\xff"}, {"versio": 1}, {"version": None, "timeout_ms": 2**63},
    {"timeout_ms": float("nan")}, {"timeout_ms": -1}, {"limit": 0}, {"limit": 2**63}, {"limit": -(2**63)},
    {"limit": True}, {"cursor": b"abc"}, {"cursor": b"\0" * 70_000}, {"cursor": "1"}, {"start": [], "end": b""},
    {"prefix": b"\xff" * 65_535},
    {"prefix": b"\xff" * 65_536}, {"reverse": 1}, {"database": "a\0b"}, {"database": "nowhere", "local": True},
    {"": ""}, {"min_version": "\U0010ffff"}, {"min_version": ""}, {"version": "2"}, {"x" * 100_000: 1},
    {"version": "y" * 100_000},
]  # fmt: skip
METHODS = ["get", "get_many", "scan", "ping", "info", "databases", "status", "refresh", "", "nope", "GET", "get\0"]


@patient
def test_wrong_types_arities_and_options(victim: Victim) -> None:
    """Every method with every pair of a collection of oddities, and some triples, is answered under its id."""
    draw = random.Random(SEED)
    lists = [[], *([one] for one in ODD), *(["geo", one] for one in ODD), *(["geo", b"k", one] for one in ODD)]
    lists += [[draw.choice(ODD) for _ in range(draw.randint(2, 5))] for _ in range(150)]
    frames = []
    for msgid, (method, params) in enumerate((method, params) for method in METHODS for params in lists):
        frames.append(msgpack.packb([0, msgid, method, params]))
    codes = set()
    before = victim.counters()
    with victim.undisturbed(most_mib=24), victim.connect() as peer:
        for at in range(0, len(frames), 20):
            peer.sendall(b"".join(frames[at : at + 20]))
            found = answers(peer, len(frames[at : at + 20]))
            check_typed(found)
            assert sorted(msgid for _, msgid, _, _ in found) == list(range(at, at + len(found)))
            codes |= {error and error[0] for _, _, error, _ in found}
        peer.sendall(PING)
        assert peer.recv(100) == PONG
    assert codes == {None, "BAD_REQUEST", "UNKNOWN_METHOD", "UNKNOWN_DATABASE", "UNKNOWN_VERSION", "NOT_READY"}
    assert len(frames) > 3000
    assert victim.counters().get("errors_internal", 0) == before.get("errors_internal", 0) == 0


LONG = "x" * 2_000_000
LONG_NAMES = [
    rpc.request(7, LONG, []),
    msgpack.packb([0, 7, b"\xff" * 2_000_000, []]),
    rpc.request(7, "get", [LONG, b"k"]),
    rpc.request(7, "get", ["geo", LONG]),
    rpc.request(7, "get", ["geo", b"k", {"version": LONG}]),
    rpc.request(7, "get", ["geo", b"k", {"min_version": LONG}]),
    rpc.request(7, "get", ["geo", b"k", {"version" * 300_000: 1}]),
    rpc.request(7, "refresh", [LONG]),
    rpc.request(7, "status", [{"database": LONG}]),
    rpc.request(7, "scan", ["geo", {"cursor": LONG}]),
    b"\x94\x00\x07\xa3get\x93\xa3geo\xa1k" + b"\x81\xa1v" * 29 + b"\xc0",
    b"\x94\x00\x07\xa3get\x93\xa3geo\xa1k\x81\x90\xc0",
    b"\x94\x00\x07\xa3get\x93\xa3geo\xa1k\x81\xc0\xc0",
]


@patient
def test_long_names_are_refused_in_few_words(victim: Victim) -> None:
    """A name of megabytes is neither searched for, nor compared with others, nor sent back."""
    with victim.undisturbed(most_mib=24), victim.connect() as peer:
        for frame in LONG_NAMES:
            peer.sendall(frame)
            found = answers(peer, 1)
            check_typed(found)
            assert (found[0][1], found[0][3]) == (7, None)
            time.sleep(0.05)


@patient
def test_options_given_many_times(victim: Victim) -> None:
    """The last value of an option counts; 8,000 options, of equal or different names, do not delay other clients."""
    pairs = b"\xa7version\xa12" * 7_999 + b"\xa7version\xa11"
    many = b"".join(msgpack.packb(f"option {number}") + b"\xc0" for number in range(8_000))
    with victim.undisturbed(most_mib=24), victim.connect() as peer:
        for options, expected in ((pairs, None), (many, "BAD_REQUEST")):
            peer.sendall(b"\x94\x00\x07\xa3get\x93\xa3geo\xa7key0001\xdf\x00\x00\x1f\x40" + options)
            ((_, _, error, result),) = answers(peer, 1)
            assert (error and error[0]) == expected
            assert result == (None if error else [RECORDS[b"key0001"], "1"])


@patient
def test_ids_at_the_edges(victim: Victim) -> None:
    """2^32-1 is an id in any integer form; 2^32, negative numbers, floats, text and nil are not."""
    for form in (b"\xce\xff\xff\xff\xff", b"\xcf\0\0\0\0\xff\xff\xff\xff", b"\xd3\0\0\0\0\xff\xff\xff\xff"):
        with victim.connect() as peer:
            peer.sendall(b"\x94\x00" + form + b"\xa4ping\x90")
            assert answers(peer, 1) == [[1, 2**32 - 1, None, "pong"]]
    floats = [
        b"\xca" + struct.pack(">f", 1.0),
        b"\xcb" + struct.pack(">d", 1.0),
        b"\xcb" + struct.pack(">d", float("nan")),
    ]
    for form in (b"\xcf\0\0\0\1\0\0\0\0", b"\xff", b"\xd3" + b"\xff" * 8, b"\xc0", b"\xc3", b"\xa11", b"\x90", *floats):
        with victim.connect() as peer:
            peer.sendall(b"\x94\x00" + form + b"\xa4ping\x90")
            assert until_end(peer) == []


@patient
def test_unknown_methods_and_text_that_is_no_text(victim: Victim) -> None:
    """Names that are not UTF-8 are refused wherever text is expected, and the connection goes on."""
    bad = b"\xc3\x28"
    requests = [
        [bad, []], ["get", [bad, b"k"]], ["get", ["geo", b"k", {bad: 1}]], ["get", ["geo", b"k", {"version": bad}]],
        ["get", ["geo", b"k", {"min_version": bad}]], ["get_many", [bad, [b"k"]]], ["scan", [bad]],
        ["scan", ["geo", {"version": bad}]], ["status", [{"database": bad}]], ["refresh", [bad]],
    ]  # fmt: skip
    with victim.undisturbed(), victim.connect() as peer:
        for as_text in (False, True):
            for msgid, (method, params) in enumerate(requests):
                frame = msgpack.packb([0, msgid, method, params])
                if as_text:  # The frame has a `str` of the same two bytes.
                    frame = frame.replace(b"\xc4\x02" + bad, b"\xa2" + bad)
                peer.sendall(frame)
                ((_, answered, error, _),) = found = answers(peer, 1)
                check_typed(found)
                assert (answered, error[0]) == (msgid, "BAD_REQUEST" if msgid else "UNKNOWN_METHOD")
        peer.sendall(GET)
        assert peer.recv(100) == GOT


@patient
def test_ids_in_flight_twice(victim: Victim) -> None:
    """Each repetition of an id is BAD_REQUEST, and the first request is answered."""
    before = victim.counters()["duplicate_ids"]
    with victim.undisturbed(), victim.connect() as peer:
        peer.sendall(rpc.request(5, "refresh", []) + rpc.request(5, "ping", []) * 100 + rpc.request(5, "refresh", []))
        found = answers(peer, 102)
        assert [(msgid, error and error[0]) for _, msgid, error, _ in found[:101]] == [(5, "BAD_REQUEST")] * 101
        assert found[101] == [1, 5, None, {"geo": ["1"]}]
    assert victim.counters()["duplicate_ids"] == before + 101


@patient
def test_responses_and_notifications_to_a_server(victim: Victim) -> None:
    """Any notification is ignored and counted; a response ends the connection."""
    before = victim.counters()
    notes = [
        rpc.notification("get", ["geo", b"k"]),
        rpc.notification("", []),
        b"\x91\x02",
        b"\x92\x02\xc0",
        b"\x94\x02\1\2\3",
    ]
    with victim.undisturbed():
        with victim.connect() as peer:
            peer.sendall(b"".join(notes) * 1000 + PING)
            assert peer.recv(100) == PONG
        for response in (rpc.response(7, None), rpc.response(2**32 - 1, "pong"), b"\x91\x01"):
            with victim.connect() as peer:
                peer.sendall(PING + response + PING)
                assert until_end(peer) == [[1, 1, None, "pong"]]
    after = victim.counters()
    assert after["notifications_ignored"] == before["notifications_ignored"] + 5000
    assert after["closed_unasked_response"] == before["closed_unasked_response"] + 3
