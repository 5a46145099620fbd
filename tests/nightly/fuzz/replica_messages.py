"""Mutated messages between nodes that hold replicas: each is accepted or refused with one error, and the node goes on.

`FUZZ_NUMBER=4711 python -m pytest tests/nightly/fuzz/test_replica_messages.py` repeats one node's messages.
"""

from __future__ import annotations

import os
import random

import msgpack

from gossipkv.errors import GossipKVError
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.hlc import COUNT_BITS
from gossipkv.replication.replica.keys import IDENTITY, RECORD, STATE, TOMBSTONE, decode_state
from tests.unit.replication.talker import LINK, MINE, THIRD, YOURS, Talker, made

EXTREMES = (0, 1, 2, 255, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -(1 << 63))
STRANGERS = (None, True, b"", b"\xff" * 9, [], [0], [b"", None], {}, 1.5, "text")
PACKED = {
    "replica_tell": 3,
    "replica_feed": 2,
    "table_write": 3,
    "table_accepted": 2,
    "table_get": 2,
}  # Packed parameters.
MESSAGES = 25  # The number of messages to one node.


def right(random, talker, counter):
    """Return a message that is valid, or was a moment ago."""
    peer, table = talker.peer.uuid, talker.table
    partition = bytes(8)
    row = [0, table, 0, YOURS, talker.copy.config, [MINE, YOURS, THIRD], [0, counter, 0], True, False]
    now = [0, counter, 1]
    soon = talker.node.now_ms() + 10 << COUNT_BITS
    put = made(counter, b"value", key=b"k%d" % random.randrange(3))
    return random.choice(
        [
            ("replica_tell", [peer, LINK, 1, [row]]),
            ("replica_tell", [peer, LINK, 0, [[0, talker.copy.config, [0, counter, 0], True, False]]]),
            ("replica_feed", [peer, LINK, [[0, [0, counter - 1, 0], None, put]]]),
            ("replica_feed", [peer, LINK, [[0, [0, counter - 1, 0], now, put], [0, None, [0, counter, 2], []]]]),
            ("table_write", [table, 0, "one", [b"k", b"v", b"l", None], soon]),
            ("table_accepted", [table, 0, [b"k", b"v", 1 << 20, b"l", b"w", 1 << 60], soon]),
            ("table_get", [table, 2 * partition, [b"k", b"l"]]),
            ("table_scan", [table, partition, b"", None, 0, 10]),
        ]
    )  # fmt: skip


def mutated(random, value):
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        changed = [*value]
        match random.randrange(8):
            case 0:
                del changed[at]
            case 1:
                changed.insert(at, random.choice((value[at], *STRANGERS)))
            case _:
                changed[at] = mutated(random, value[at])
        return changed
    if isinstance(value, bytes) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return random.choice(
            (value[:at], value + value[:at], value[:at] + random.randbytes(1) + value[at + 1 :],
             value[:at] + b"\xff" * 8 + value[at + 8 :])
        )  # fmt: skip
    if isinstance(value, int) and random.random() < 0.8:
        return random.choice((value + 1, value - 1, value + 2, *EXTREMES))
    return random.choice((*STRANGERS, *EXTREMES))


def packed(method, params):
    at = PACKED.get(method)
    if at is not None and at < len(params) and isinstance(params[at], list):
        params = [*params[:at], msgpack.packb(params[at]), *params[at + 1 :]]
    return params


def send(number):
    """Send one node `MESSAGES` mutated messages; return how many were accepted."""
    chance, talker, taken = random.Random(number), Talker(), 0
    node, answers = talker.node, []
    node.look = lambda *_: None
    for count in range(MESSAGES):
        method, params = right(chance, talker, count // 2 + 1)
        for _ in range(chance.choice((0, 1, 1, 2))):
            params = mutated(chance, params)
        if not isinstance(params, list):
            continue
        try:
            params = packed(method, params)
            msgpack.packb(params)
        except (OverflowError, ValueError):
            continue
        answers.clear()
        node.answer(method, params, answers.append)
        talker.records.run()
        talker.records.pass_s(0.02)
        assert len(answers) == 1, (number, method, params, answers)
        taken += not isinstance(answers[0], Exception)
        is_clear = isinstance(answers[0], GossipKVError) or not isinstance(answers[0], Exception)
        assert is_clear, f"FUZZ_NUMBER={number}: {method} {params}: {answers[0]!r}"
        check(talker, number)
    lives_on(talker, number)
    return taken


def check(talker, number):
    """Check that the replica in memory equals the one on disk, and that its clock covers all its records."""
    copy, values = talker.copy, talker.node.spaces[talker.copy.space]
    time, config, after, before = decode_state(values[STATE])
    assert (config, after) == (copy.config, copy.synced) == (copy.synced_config, copy.appended), number
    assert [one for one, _ in clock.entries(after)] == [MINE, YOURS, THIRD] == [*copy.named], number
    assert clock.covers(after, before), number
    for key, data in values.items():
        if key[:1] == RECORD:
            record.check(data)
            assert clock.covers(after, clock.named(record.dot(data), copy.named)), number
            assert int.from_bytes(data[:8], "big") <= time, number
        else:
            assert key in {IDENTITY, STATE} or key[:1] == TOMBSTONE, number
    assert not copy.unsynced, number


def lives_on(talker, number):
    """Check that the node accepts the next record, answers reads and writes, and exchanges clocks with its peer."""
    counters = [count for _, count in clock.entries(talker.copy.synced)]
    talker.begin(counters)
    if counters[1] + 1 < 1 << 64 and talker.copy.time < (1 << 64) - 1:
        data = record.encode(talker.copy.time + 1, YOURS, counters[1] + 1, record.PUT, b"", b"last")
        talker.feed([0, counters, None, [b"k", data]])
        ((told, _),) = talker.node.begin("table_get", talker.table, bytes(8), msgpack.packb([b"k"]))
        assert told == [data], number
    answers = talker.node.begin("table_write", talker.table, 0, "one", msgpack.packb([b"k", b"v"]), 1 << 62)
    talker.records.run()
    (told,) = answers
    assert isinstance(told, GossipKVError if talker.copy.barred or isinstance(told, Exception) else bytes), number


def numbers(messages):
    """Return the numbers of the nodes for so many messages, or only the number to repeat."""
    one = os.environ.get("FUZZ_NUMBER")
    return range(int(one), int(one) + 1) if one else range(messages // MESSAGES)
