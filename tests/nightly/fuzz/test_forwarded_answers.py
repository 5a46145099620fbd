"""FUZZ_FRAMES mutated answers of a peer: relayed byte for byte, or the next owner is asked, or its connection ends."""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.nightly.fuzz.frames import FRAMES, encode, mutate, numbers, odd, replay
from tests.oracle.relay import judge
from tests.unit.serving.asker import AWAY, HERE, PARTITIONS, RECORDS, Asker, Link
from tests.unit.serving.driven import make_version

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(7200)

MAX_FRAME = 4096  # For clients.
LIMITS = {"max_size": 17 << 20, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS}  # For other nodes.
RESULTS: list[list[object]] = [[b"value", "v1"], [None, "v1"], [b"", "v1"], [b"x" * 300, "v1"], [b"value", "v2"]]
KEYS = 3
MANY: list[list[object]] = [
    [[b"value", None, b"x" * 300], "v1"],
    [[b"", b"", b""], "v1"],
    [[None, None, None], "v1"],
    [[b"value", b"value"], "v1"],
    [[b"value", b"value", b"value"], "v2"],
]
ERRORS: list[object] = [
    ["NOT_READY", "why", {"progress": 0.5}],
    ["TOO_LARGE", "big", {"limit": 1}],
    ["?", "text"],
    "text",
]


def answer(draw: random.Random, msgid: int, results: list[list[object]]) -> bytes:
    """Return an answer that is valid, or changed in its content or its bytes."""
    message: list[object] = [1, msgid, None, copy.deepcopy(draw.choice(results))]
    if draw.random() < 0.3:
        message[2:] = [draw.choice(ERRORS), None]
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        at = draw.randrange(len(message))
        inner = message[at]
        match draw.randrange(5):
            case 0:
                message[at] = odd(draw)
            case 1:
                message.insert(at, odd(draw))
            case 2 if isinstance(inner, list) and inner:
                message[at] = [*inner[:-1], odd(draw)] if draw.random() < 0.5 else [odd(draw), *inner[1:]]
            case 3 if isinstance(inner, list):
                message[at] = [*inner, odd(draw)]
            case 4 if isinstance(inner, list) and inner and isinstance(inner[0], list) and draw.random() < 0.8:
                inner[0] = [*inner[0][: draw.randrange(3)], odd(draw), *inner[0][draw.randrange(3) + 1 :]]
            case _ if len(message) > 1:
                del message[at]
    frame = encode(draw, message)
    return mutate(draw, frame) if draw.random() < 0.4 else frame


def test_mutated_answers_are_judged_as_by_the_oracle(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    """The client's answer, the next owner and the end of the connection match the oracle; all kinds occur."""
    files = make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files
    kinds: Counter[str] = Counter()
    asker = Asker(Path(), 2, files=files, max_frame=MAX_FRAME)
    head = msgpack.packb([1, 1, None, None])[:3]
    for number in numbers(FRAMES // 5):
        draw = random.Random(number)
        explain = number % 3 == 0
        asker.get(AWAY[number % len(AWAY)], explain=explain)
        first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
        asked = first.asked()
        stream = answer(draw, asked, RESULTS)
        expected, result = judge(stream, asked, "v1", LIMITS)
        kinds[expected] += 1
        assert first.say(stream) == [], replay(number, stream)
        assert first.ends is (expected == "ends"), replay(number, stream)
        asker.client.take()
        if result:
            told = explained(result, f"peer{first.column}:1") if explain else result
            assert asker.client.received == head + told, replay(number, stream)
            asker.client.received = b""
        else:
            assert asker.client.received == b"", replay(number, stream)
        renew(asker, first)
        if not result:
            second.answer(second.asked(), b"other")
            who = [{"node": f"peer{second.column}:1"}] if explain else []
            assert asker.answers() == [[1, 1, None, [b"other", "v1", *who]]], replay(number, stream)
        assert asker.count("in_flight") == 0
    record_property("kinds", str(dict(kinds)))
    assert FRAMES < 1000 or min(kinds[kind] for kind in ("waits", "ends", "refuses", "answers")) > FRAMES // 1000


def test_mutated_answers_to_parts_are_judged_as_by_the_oracle(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    """An answer to a part of a batch gives all its values or none, as the oracle says."""
    files = make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files
    kinds: Counter[str] = Counter()
    asker = Asker(Path(), 2, files=files, max_frame=MAX_FRAME)
    for number in numbers(FRAMES // 5):
        draw = random.Random(number)
        keys = [AWAY[(number + at) % len(AWAY)] for at in range(KEYS)]
        assert asker.client.send(rpc.request(1, "get_many", ["db", [HERE[0], *keys]])) == []
        first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
        asked = first.asked(b"get_many")
        stream = answer(draw, asked, MANY)
        expected, result = judge(stream, asked, "v1", LIMITS, KEYS)
        kinds[expected] += 1
        assert first.say(stream) == [], replay(number, stream)
        assert first.ends is (expected == "ends"), replay(number, stream)
        renew(asker, first)
        if not result:
            assert asker.answers() == [], replay(number, stream)
            second.say(rpc.response(second.asked(b"get_many"), [[b"other"] * KEYS, "v1"]))
            values: object = [RECORDS[HERE[0]], *[b"other"] * KEYS]
            assert asker.answers() == [[1, 1, None, [values, "v1"]]], replay(number, stream)
        else:
            error, told = read(result)
            if error is None:
                assert isinstance(told, list)
                told = [[RECORDS[HERE[0]], *told[0]], "v1"]
            asker.client.take()
            assert read(asker.client.received[3:]) == (error, told), replay(number, stream)
            asker.client.received = b""
        assert (asker.count("in_flight"), asker.count("held_bytes")) == (0, 0)
    record_property("kinds", str(dict(kinds)))
    assert FRAMES < 1000 or min(kinds[kind] for kind in ("waits", "ends", "refuses", "answers")) > FRAMES // 1000


def explained(body: bytes, node: str) -> bytes:
    """Return the answer behind its id with `explain`: an error unchanged, a value behind a new head."""
    if not body.startswith(b"\xc0"):
        return body
    heads = {0xDC: 3, 0xDD: 5}
    return b"\xc0\x93" + body[1 + heads.get(body[1], 1) :] + msgpack.packb({"node": node})


def read(body: bytes) -> tuple[object, object]:
    """Return the error and the result of an answer, which stand behind its id."""
    _, _, error, result = msgpack.unpackb(
        b"\x94\x01\x01" + body, strict_map_key=False, unicode_errors="surrogateescape", object_pairs_hook=tuple
    )
    return error, result


def renew(asker: Asker, link: Link) -> None:
    """Replace the connection to a peer, which ends the old one's requests."""
    link.close()
    asker.core.take_peer_events()
    asker.links[link.column] = asker.link(link.column)
