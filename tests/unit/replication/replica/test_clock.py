"""Packed clocks against dictionaries: each function, at any size, and refused input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica import clock
from tests.oracle import vector_clock as oracle

MOST = 2**64 - 1
# Few assignments make clocks overlap; some numbers sort differently by bytes and by words.
assignments = st.integers(0, 12) | st.sampled_from([255, 256, 2**32, 2**63, MOST])
counters = st.integers(0, 3) | st.sampled_from([255, 256, 2**63 - 1, 2**63, MOST])
clocks = st.dictionaries(assignments, counters)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[oracle.Clock, oracle.Clock]:
    """Draw two unrelated clocks, or a clock and a slightly changed version."""
    one = draw(clocks | st.integers(0, 40).map(lambda count: dict.fromkeys(range(100, 100 + count), 7)))
    if draw(st.booleans()):
        return one, draw(clocks)
    changed = one | draw(st.dictionaries(st.sampled_from([*one, 3, 110]), counters, max_size=3))
    for assignment in draw(st.sets(st.sampled_from([*changed, 3]), max_size=2)):
        changed.pop(assignment, None)
    return draw(st.permutations([one, changed]))


@given(pair=pairs())
def test_two_clocks_are_the_oracle_s(pair: tuple[oracle.Clock, oracle.Clock]) -> None:
    """Order, cover, merge and minimum of two clocks match the oracle."""
    one, other = pair
    packed, packed_other = oracle.pack(one), oracle.pack(other)
    assert clock.compare(packed, packed_other) == oracle.compare(one, other)
    assert clock.covers(packed, packed_other) is oracle.covers(one, other)
    assert oracle.unpack(clock.merge(packed, packed_other)) == oracle.merge(one, other)
    assert oracle.unpack(clock.least(packed, packed_other)) == oracle.least(one, other)
    assert clock.ahead(packed, packed_other) == oracle.ahead(one, other)
    clock.check(clock.merge(packed, packed_other))
    clock.check(clock.least(packed, packed_other))


def test_orders_have_their_numbers() -> None:
    """All four orders occur, and a zero counter equals an absent one."""
    none, zero, left, right = b"", clock.of([(1, 0)]), clock.of([(1, 1)]), clock.of([(2, 1)])
    found = [clock.compare(*pair) for pair in ((none, zero), (zero, left), (left, none), (left, right))]
    assert found == [clock.EQUAL, oracle.BEFORE, oracle.AFTER, oracle.CONCURRENT] == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [127, 128, 129, 5_000])
def test_large_clocks(count: int) -> None:
    """The sizes lie around the limit for merging on the stack and far beyond it, with shifted keys."""
    one = {3 * number: number + 1 for number in range(count)}
    other = {3 * number + (number % 50 == 0): count - number for number in range(count)}
    packed, packed_other = clock.of(one.items()), clock.of(other.items())
    assert clock.merge(packed, packed_other) == oracle.pack(oracle.merge(one, other))
    assert clock.least(packed, packed_other) == oracle.pack(oracle.least(one, other))
    assert clock.compare(packed, packed_other) == oracle.CONCURRENT
    assert clock.covers(clock.merge(packed, packed_other), packed_other)
    assert clock.entries(packed) == sorted(one.items())


@given(one=clocks, assignment=assignments, more=counters, names=st.lists(assignments, unique=True))
def test_one_clock_is_the_oracle_s(one: oracle.Clock, assignment: int, more: int, names: list[int]) -> None:
    """Reading, raising and naming counters, and packing entries, match the oracle."""
    packed = oracle.pack(one)
    before = one.get(assignment, 0)
    assert clock.counter(packed, assignment) == before
    counter = min(before + more, MOST)
    assert clock.raised(packed, assignment, counter) == oracle.pack(one | {assignment: counter})
    assert clock.named(packed, names) == oracle.pack({name: one.get(name, 0) for name in names})
    assert clock.of(one.items()) == packed
    assert clock.entries(packed) == sorted(one.items())


@given(entries=st.lists(st.tuples(assignments, counters)), cut=st.integers(0, 15), ordered=st.booleans())
def test_check_refuses_what_the_oracle_refuses(entries: list[tuple[int, int]], cut: int, *, ordered: bool) -> None:
    """Repeated, descending or cut entries are refused, with the byte of the first fault."""
    if ordered:
        entries = sorted(dict(entries).items())
    data = b"".join(oracle.ENTRY.pack(*entry) for entry in entries)
    data = data[: len(data) - cut] if data else bytes(cut)
    at = oracle.fault(data)
    if at is None:
        clock.check(data)
        assert clock.of(clock.entries(data)) == data
    else:
        with pytest.raises(ProtocolError, match=re.escape(f"at byte {at} of {len(data)}")):
            clock.check(data)


@pytest.mark.parametrize("number", [-1, MOST + 1])
def test_numbers_that_are_none(number: int) -> None:
    """A number beyond 64 bits is refused in every argument."""
    for entry in ((number, 1), (1, number)):
        with pytest.raises(OverflowError):
            clock.of([entry])
        with pytest.raises(OverflowError):
            clock.raised(b"", *entry)
    with pytest.raises(OverflowError):
        clock.counter(b"", number)
    with pytest.raises(OverflowError):
        clock.named(b"", [number])
