"""The bytes of records against the oracle: encoding, order, and refused input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.replication._replication import wins
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.hlc import next_time
from tests.oracle import record as oracle

MOST = 2**64 - 1
numbers = st.integers(0, 2) | st.sampled_from([255, 256, 2**63]) | st.integers(0, MOST)
times = st.integers(1, 2**63)
dots = st.tuples(numbers, numbers, numbers.filter(bool))
dependencies = st.binary(max_size=40) | st.integers(100, 20_000).map(bytes)
contents = (
    st.tuples(st.just(oracle.PUT), dependencies, st.binary(), st.just(0))
    | st.tuples(st.just(oracle.DELETED), dependencies, st.just(b""), st.just(0))
    | st.tuples(st.just(oracle.EXPIRING), dependencies, st.binary(), numbers.filter(bool))
)
fields = st.tuples(dots, contents).map(lambda parts: parts[0] + parts[1])


def refused(data: bytes) -> None:
    """Check that `check`, `decode` and `value` refuse the data."""
    for function in (record.check, record.decode, record.value):
        with pytest.raises(ProtocolError, match=r"a record of .* bytes is malformed"):
            function(data)


@given(written=fields)
def test_a_record_is_the_oracle_s(written: oracle.Fields) -> None:
    data = record.encode(*written)
    assert data == oracle.encode(written)
    assert record.decode(data) == written == oracle.decode(data)
    record.check(data)
    assert clock.entries(record.dot(data)) == [written[1:3]]
    assert record.value(data) == (None if written[3] == record.DELETED else written[5])


@given(
    writes=st.lists(
        st.tuples(st.binary(), st.none() | st.binary(), dependencies, st.just(0) | times, st.integers(-(2**42), 2**48)),
        max_size=8,
    ),
    last=times,
    origin=numbers,
    counter=st.integers(0, 2**63),
    now_ms=st.integers(0, 2**47),
)
def test_new_records_have_later_times_and_the_next_counters(
    writes: list[tuple[bytes, bytes | None, bytes, int, int]], last: int, origin: int, counter: int, now_ms: int
) -> None:
    expected, greatest = [], last
    for number, (key, value, depends, accepted, expiry) in enumerate(writes, counter + 1):
        time = accepted or next_time(greatest, now_ms)
        greatest = max(greatest, time)
        expires_ms = 0 if value is None else now_ms - expiry if expiry < 0 else expiry
        kind = oracle.DELETED if value is None else oracle.EXPIRING if expires_ms else oracle.PUT
        expected.append((key, oracle.encode((time, origin, number, kind, depends, value or b"", expires_ms))))
    given_out = record.new_records([record.RecordWrite(*write) for write in writes], last, origin, counter, now_ms)
    assert given_out == (expected, greatest)


@given(written=st.lists(fields, max_size=8))
def test_the_newest_of_records(written: list[oracle.Fields]) -> None:
    """The greatest counter of each origin, and all dependencies once."""
    counters: dict[int, int] = {}
    for _, origin, counter, *_ in written:
        counters[origin] = max(counter, counters.get(origin, 0))
    bodies = {dependencies for *_, dependencies, _, _ in written if dependencies}
    assert record.newest([record.encode(*one) for one in written]) == (counters, bodies)


@given(one=fields, other=fields)
def test_the_later_record_wins(one: oracle.Fields, other: oracle.Fields) -> None:
    """The order is numeric by (time, assignment, counter) alone."""
    assert wins(record.encode(*one), record.encode(*other)) is (one[:3] > other[:3])


@given(data=st.binary(max_size=80), head=dots, kind=st.integers(0, 4), tail=st.binary(max_size=18))
def test_decode_refuses_what_the_oracle_refuses(data: bytes, head: tuple[int, ...], kind: int, tail: bytes) -> None:
    """Any bytes, and heads with any kind, size and rest, decode to the oracle's fields or to an error."""
    for tried in (data, oracle.HEAD.pack(*head, kind) + tail):
        found = oracle.decode(tried)
        if found is None:
            refused(tried)
        else:
            assert record.decode(tried) == found


@given(written=fields, place=st.integers(0, 40))
def test_a_cut_record_is_refused(written: oracle.Fields, place: int) -> None:
    """A record that ends before its value is refused; without a whole head, it has no dot or order."""
    data = record.encode(*written)
    whole = len(data) - len(written[5])
    cut = data[: place % whole]
    refused(cut)
    if len(cut) <= oracle.HEAD.size:
        for ask in (record.dot, lambda cut: wins(cut, data), lambda cut: wins(data, cut)):
            with pytest.raises(ProtocolError, match="ends within its head"):
                ask(cut)


@pytest.mark.parametrize(
    ("why", "tail"),
    [
        ("the counter at byte 16 is 0", None),
        ("the kind at byte 24", b"\x04\x00"),
        ("ends within its head", b"\x01\x80"),
        ("not encoded in the fewest bytes", b"\x01\x80\x00"),
        ("not encoded in the fewest bytes", b"\x01\x80\x80\x80\x80\x80\x01"),
        ("extend beyond the end", b"\x01\x02a"),
        ("extend beyond the end", b"\x01\xff\xff\xff\xff\x7f"),
        ("a delete has a value", b"\x02\x00v"),
        ("the expiry after the dependencies", b"\x03\x00" + bytes(7)),
        ("the expiry after the dependencies", b"\x03\x00" + bytes(8)),
    ],
)
def test_a_refusal_says_why(why: str, tail: bytes | None) -> None:
    """The error names the wrong field, and its place if it has a fixed one."""
    head = oracle.HEAD.pack(1, 2, 3, 1)[:-1]
    with pytest.raises(ProtocolError, match=why):
        record.check(oracle.HEAD.pack(1, 2, 0, 1) + b"\x00" if tail is None else head + tail)


@pytest.mark.parametrize("number", [-1, MOST + 1])
def test_numbers_that_are_none(number: int) -> None:
    """A number too large for its field is refused, not cut."""
    for wrong in ((number, 1, 1, 1), (1, number, 1, 1), (1, 1, number, 1), (1, 1, 1, number)):
        with pytest.raises(OverflowError):
            record.encode(*wrong, b"", b"")
