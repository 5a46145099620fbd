"""The value of a map: its codec refuses all that is malformed, and its digest follows the edits."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError, UnsupportedFormat
from gossipkv.register.edits import (
    DIGEST_BYTES,
    EMPTY,
    FORMAT,
    MAX_EDITS_BYTES,
    MAX_SEQUENCE,
    MapValue,
    Transaction,
    decode_value,
    digest_after,
    digest_of,
    divided,
    transactions_of,
)

DIGESTS = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
RECORDS = st.one_of(st.none(), st.binary(max_size=6))
EDITS = st.dictionaries(st.binary(max_size=4), RECORDS, max_size=5).map(lambda edits: tuple(sorted(edits.items())))


@st.composite
def values(draw):
    """Draw a value whose tail has all transactions above `decided`, and maybe some below."""
    sequence = draw(st.one_of(st.integers(0, 6), st.integers(0, MAX_SEQUENCE)))
    count = draw(st.integers(0, min(sequence, 4)))
    tail = tuple(
        Transaction(number, draw(EDITS), draw(DIGESTS)) for number in range(sequence - count + 1, sequence + 1)
    )
    digest = tail[-1].digest if tail else draw(DIGESTS)
    return MapValue(sequence, digest, draw(st.integers(sequence - count, sequence)), tail, draw(st.binary(max_size=2)))


@settings(max_examples=30)
@given(value=values())
@example(value=MapValue())
def test_a_value_is_read_as_it_was_written(value):
    assert decode_value(value.encode()) == value
    assert decode_value(value.encode()).encode() == value.encode()


A, B = b"a" * DIGEST_BYTES, b"b" * DIGEST_BYTES
PUT = [[b"k", b"1"]]
ROWS = [[3, [], A], [4, PUT, B]]
RIGHT = [FORMAT, 4, B, 2, ROWS, b""]
WRONG_NUMBERS = [-1, True, None, 1.0, b"1", "1", MAX_SEQUENCE + 1, (1 << 64) - 1, [1]]
HOLE = "must have all its transactions from"
FORM = "the value of a map must be"
ROW = "a transaction must be"
EDIT = "an edit must be"


def changed(at, part):
    return [*RIGHT[:at], part, *RIGHT[at + 1 :]]


MALFORMED = [
    *[(changed(1, number), FORM) for number in WRONG_NUMBERS],
    *[(changed(2, digest), FORM) for digest in (None, "b" * DIGEST_BYTES, B[1:], B + b"b", 7)],
    *[(changed(3, number), FORM) for number in WRONG_NUMBERS],
    *[(changed(4, tail), FORM) for tail in (None, b"", {}, 1)],
    *[(changed(5, ended), FORM) for ended in (None, 0, True, "")],
    *[(whole, FORM) for whole in ([], {}, None, 7, [FORMAT], RIGHT[:-1], [*RIGHT, 1], [None, *RIGHT[1:]])],
    ([True, *RIGHT[1:]], FORM),
    (changed(3, 5), FORM),  # The decided sequence is beyond the value's.
    (changed(3, 1), HOLE),  # The tail begins after the first undecided transaction.
    (changed(4, []), HOLE),
    (changed(4, ROWS[:1]), HOLE),  # The tail ends before the value.
    (changed(4, [*ROWS, [5, [], B]]), HOLE),
    (changed(4, [ROWS[0], [4, PUT, A]]), HOLE),  # The last transaction has another digest than the value.
    (changed(4, [ROWS[0], [5, PUT, B]]), "a transaction between 3 and 5 is missing"),
    (changed(4, [ROWS[1], ROWS[0]]), "a transaction between 4 and 3 is missing"),
    (changed(4, [ROWS[1], ROWS[1]]), "a transaction between 4 and 4 is missing"),
    *[(changed(4, [[number, [], A], ROWS[1]]), ROW) for number in (*WRONG_NUMBERS, 0)],
    *[(changed(4, [[3, [], digest], ROWS[1]]), ROW) for digest in (None, "a", b"", A[1:], A + b"a", 7)],
    *[(changed(4, [[3, edits, A], ROWS[1]]), ROW) for edits in (None, b"", {}, 1)],
    *[(changed(4, [row, ROWS[1]]), ROW) for row in (None, 3, [], [3, []], [3, [], A, 1])],
    *[(changed(4, [ROWS[0], [4, [edit], B]]), EDIT) for edit in (None, 1, [], [b"k"], [b"k", b"1", 1])],
    *[(changed(4, [ROWS[0], [4, [[key, b"1"]], B]]), EDIT) for key in (None, 1, True, "k", [b"k"])],
    *[(changed(4, [ROWS[0], [4, [[b"k", record]], B]]), EDIT) for record in (1, False, "1", [])],
    *[
        (changed(4, [ROWS[0], [4, [[b"k", b"1"], [key, None]], B]]), "keys of a transaction's edits must ascend")
        for key in (b"k", b"j", b"")
    ],
]


@pytest.mark.parametrize(("rows", "words"), MALFORMED)
def test_a_malformed_value_is_refused_with_the_reason(rows, words):
    assert decode_value(msgpack.packb(RIGHT)).sequence == 4
    with pytest.raises(ProtocolError, match=words) as caught:
        decode_value(msgpack.packb(rows))
    assert caught.value.details
    assert all(len(str(detail)) <= 80 for detail in caught.value.details.values())
    with pytest.raises(ProtocolError, match="transactions must be a list"):
        transactions_of({"rows": rows})


@pytest.mark.parametrize("row", [[2], [2, "another form"], [0, *RIGHT[1:]], [-1], [1 << 63]])
def test_another_format_is_named(row):
    with pytest.raises(UnsupportedFormat, match="the value of a map has format"):
        decode_value(msgpack.packb(row))


PAYLOADS = st.one_of(
    st.binary(max_size=60),
    values().map(MapValue.encode),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-1, 5), st.binary(max_size=3), st.just(A)),
        lambda inner: st.lists(inner, max_size=6),
        max_leaves=12,
    ).map(lambda row: msgpack.packb([FORMAT, *row] if isinstance(row, list) else row)),
)


@settings(max_examples=150)
@given(payload=PAYLOADS, at=st.integers(0, 200), byte=st.integers(0, 255), end=st.integers(0, 200))
@example(payload=b"", at=0, byte=0, end=0)
@example(payload=b"\x91" * 5000, at=0, byte=0x91, end=5000)  # Nested deeper than MessagePack allows.
@example(payload=b"\xdd\xff\xff\xff\xff", at=9, byte=0, end=9)  # An array that claims four billion elements.
@example(payload=b"\x96\xd6\xff\0\0\0\0" + msgpack.packb(4), at=99, byte=0, end=99)  # A timestamp.
def test_any_bytes_are_a_value_or_are_refused(payload, at, byte, end):
    """Also values with a changed byte, or cut off, raise nothing else; and a value has one encoding."""
    for data in (payload, payload[:at] + bytes([byte]) + payload[at + 1 :], payload[:end]):
        try:
            value = decode_value(data)
        except (ProtocolError, UnsupportedFormat):
            continue
        assert decode_value(value.encode()) == value
        numbers = (value.sequence, value.decided, *(each.sequence for each in value.tail))
        assert {type(number) for number in numbers} == {int}
        assert {len(digest) for digest in (value.digest, *(each.digest for each in value.tail))} == {DIGEST_BYTES}


@settings(max_examples=30)
@given(
    begun=st.dictionaries(st.binary(max_size=2), st.binary(max_size=3), max_size=5),
    edits=st.lists(EDITS, max_size=4),
    random=st.randoms(use_true_random=False),
)
def test_the_digest_follows_the_edits_in_any_order(begun, edits, random):
    """The digest tells the map alone: neither the order of entries nor the way to them."""
    plain, digest = {**begun}, digest_of(begun.items())
    for transaction in edits:
        before = {key: plain.get(key) for key, _ in transaction}
        digest = digest_after(digest, random.sample(transaction, len(transaction)), before)
        for key, record in transaction:
            plain.pop(key, None)
            if record is not None:
                plain[key] = record
        assert digest == digest_of(plain.items())
    assert digest == digest_of(random.sample([*plain.items()], len(plain)))
    removed = digest_after(digest, [(key, None) for key in plain], plain)
    assert removed == EMPTY


def test_the_digest_separates_keys_from_records_and_counts_entries():
    """Neither a moved boundary, nor an exchange of records, nor a repeated entry gives the same digest."""
    boundaries = [[(b"abc"[:at], b"abc"[at:])] for at in range(4)]
    others = [[], boundaries[0] * 2, [(b"a", b"1"), (b"b", b"2")], [(b"a", b"2"), (b"b", b"1")]]
    assert len(set(map(digest_of, boundaries + others))) == 8


def test_edits_are_divided_into_transactions():
    edits = [(b"%d" % number, bytes(size)) for number, size in enumerate([9, MAX_EDITS_BYTES, 9, 200_000, 200_000, 1])]
    assert [[len(record) for _, record in part] for part in divided(edits)] == [
        [9], [MAX_EDITS_BYTES], [9, 200_000], [200_000, 1]
    ]  # fmt: skip
    assert divided([]) == [[]]


def test_an_ended_map_stays_as_it_is():
    ended = decode_value(MapValue().ended_by(b"id").encode())
    assert (ended.sequence, ended.digest, ended.decided, ended.ended) == (1, EMPTY, 0, b"id")
    assert ended.ended_by(b"another") is ended
