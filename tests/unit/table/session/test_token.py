"""The bytes of session tokens: against an oracle, merged, and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, ProtocolError
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.token_keys import token_keys
from gossipkv.table.session.token import (
    MAX_MET,
    EndedTables,
    TableSeen,
    decode,
    decode_body,
    encode,
    encode_body,
    merged,
    only,
    seen_in,
)
from tests.oracle import token as oracle

CLUSTER = b"cluster." * 2
KEYS = token_keys(CLUSTER, oracle.RING)
U64 = st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))
TABLES = st.sampled_from([bytes([number]) * 16 for number in range(4)])
TOKENS = st.dictionaries(TABLES, st.tuples(U64, st.dictionaries(U64, U64, max_size=5)), min_size=1, max_size=3)
T = bytes(16)


def packed(plain):
    """Convert an oracle's token to the code's form."""
    return {table: TableSeen(config, clock.of(counters.items())) for table, (config, counters) in plain.items()}


@given(one=TOKENS, other=TOKENS)
def test_a_token_is_what_the_oracle_says(one, other):
    """The bytes equal the oracle's; merging is idempotent and commutative, also for two concatenated tokens."""
    data = encode(packed(one), KEYS)
    assert data == oracle.encoded(one, CLUSTER)
    assert decode(data, KEYS) == packed(one)
    both = packed(oracle.merged(one, other))
    assert decode(data + encode(packed(other), KEYS), KEYS) == both
    assert merged(packed(one), packed(other)) == merged(packed(other), packed(one), packed(other)) == both
    assert decode_body(encode_body(both)) == both


@given(token=TOKENS, data=st.data())
def test_a_damaged_token_is_refused(token, data):
    """A cut, a flipped bit, another cluster's token and trailing bytes yield one clear error."""
    whole = encode(packed(token), KEYS)
    cut = data.draw(st.integers(1, len(whole) - 1))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    foreign = token_keys(CLUSTER[::-1], oracle.RING)
    for wrong, keys in (
        (whole[:cut], KEYS), (bytes(flipped), KEYS), (whole, foreign), (whole + b"\1", KEYS), (b"\1" + whole[1:], KEYS),
    ):  # fmt: skip
        with pytest.raises(BadRequest, match="not given by this cluster"):
            decode(wrong, keys)


@given(body=st.binary(max_size=80))
def test_a_body_is_one_or_none(body):
    """Foreign bytes are refused unless they equal the encoding of their content."""
    try:
        token = decode_body(body)
    except ProtocolError:
        return
    assert encode_body(token) == body


def test_a_body_in_another_order_is_none():
    """Tables and assignments ascend without repetition; two forms of a token would be two dependencies."""
    one = encode_body({T: TableSeen(1, b"")})
    for wrong in (one + one, encode_body({b"\1" * 16: TableSeen(1, b"")}) + one):
        with pytest.raises(ProtocolError):
            decode_body(wrong)
    with pytest.raises(ProtocolError):
        decode_body(T + bytes(8) + (2).to_bytes(4, "big") + clock.of([(2, 1)]) + clock.of([(1, 1)]))


def test_what_records_show():
    """A read shows each origin's newest dot, even of tombstones, all dependencies, and the replica's config."""
    other = {b"\1" * 16: TableSeen(9, clock.of([(70, 7)]))}
    records = [
        record.encode(5, 1, 4, record.PUT, b"", b"value"),
        record.encode(6, 1, 3, record.PUT, encode_body(other), b"value"),
        record.encode(7, 2, 8, record.DELETED, encode_body({T: TableSeen(6, clock.of([(3, 1)]))}), b""),
    ]
    assert seen_in(T, 5, records) == {T: TableSeen(6, clock.of([(1, 4), (2, 8), (3, 1)])), **other}
    assert seen_in(T, 5, []) == {T: TableSeen(5, b"")}


def test_what_is_left_out_keeps_its_config():
    """An entry is omitted because all replicas of the map have it, so the config of that map stays."""
    token = {T: TableSeen(6, clock.of([(1, 4), (2, 8)]))}
    assert only(token, lambda table, origin, count: (table, origin, count) == (T, 2, 8)) == {
        T: TableSeen(6, clock.of([(2, 8)]))
    }
    assert only(token, lambda *_: False) == {T: TableSeen(6, b"")}


TABLE = b"t" * 16


def after(events):
    """Return True if the table has ended after these events: b(egin) a read, e(nd) it, m(eet) the table."""
    ended = EndedTables()
    for event in events:
        {"b": ended.begin_read, "e": ended.end_read, "m": lambda: ended.has(TABLE)}[event]()
    return ended.has(TABLE)


@pytest.mark.parametrize(
    ("events", "has"),
    [
        ("", False),
        ("m", False),
        ("be", False),  # The table is first met now, so the read may be older than the table.
        ("bem", False),
        ("bme", False),  # The read was begun before.
        ("mb", False),
        ("mbe", True),
        ("bmebe", True),
        ("bmb", False),  # The first read has failed.
        ("bmbe", True),
        ("mbbe", True),
    ],
)
def test_a_read_that_was_begun_after(events, has):
    """Only such a read tells a dropped table from a new one."""
    assert after(events) == has


def test_made_up_ids():
    """The number of kept ids is limited, and a forgotten id counts as new."""
    ended = EndedTables()
    ended.has(TABLE)
    ended.begin_read()
    ended.end_read()
    for number in range(MAX_MET):
        assert not ended.has(number.to_bytes(16, "big"))
    assert len(ended._met) == MAX_MET
    assert not ended.has(TABLE)
