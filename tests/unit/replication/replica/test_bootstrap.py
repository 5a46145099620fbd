"""A bootstrapping replica never claims more records than it has, and finally claims all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.bootstrap import WHOLE, Bootstrap, Span, decode_joining
from gossipkv.replication.replica.keys import JOINING
from gossipkv.storage.engine.shell import DELETE, Batch, operations

ORIGINS = (1, 2, 3)


def dots(reached):
    """Return the dots of all records up to a clock, which is a dictionary."""
    return {(origin, number) for origin, count in reached.items() for number in range(1, count + 1)}


def packed(reached):
    return clock.named(clock.of(reached.items()), ORIGINS)


@st.composite
def logs(draw):
    """Draw a log per source; an entry lies between two successive clocks of the source."""
    found = {}
    for source in (7, 8, 9):
        now, log = {origin: draw(st.integers(0, 4)) for origin in ORIGINS}, []
        for steps in draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=6)):
            before, now = now, {origin: now[origin] + step for origin, step in zip(ORIGINS, steps, strict=True)}
            log.append((before, now))
        found[source] = log
    return found


@given(logs(), st.data())
def test_a_clock_never_says_more_than_was_given(logs, data):
    """With gaps between entries and a load at any point, the clock covers only loaded and fed records."""
    joining, reached, had, ends = Bootstrap(), packed({}), set(), {}
    loaded = {origin: data.draw(st.integers(0, 8)) for origin in ORIGINS}
    fed = [(source, entry) for source, log in logs.items() for entry in log if data.draw(st.integers(0, 9))]
    at = data.draw(st.integers(0, len(fed)))
    for number in range(len(fed) + 1):
        if number == at:
            joining, reached = joining._replace(is_loaded=True).closed(packed(loaded), ORIGINS)
            had |= dots(loaded)
        assert joining.is_over or (joining.is_loaded is (number >= at))
        if joining.is_over or number == len(fed):
            break
        source, (before, after) = fed[number]
        joining, reached = joining.taken(source, packed(before), packed(after)).closed(reached, ORIGINS)
        had |= dots(after) - dots(before)
        ends[source] = packed(after)
        span = joining.span(source)
        assert joining.is_over or clock.covers(span.after, packed(after))
    assert dots(dict(clock.entries(reached))) <= had
    assert not joining.is_over or all(clock.covers(reached, end) for end in ends.values())


def test_what_is_open_and_what_is_closed():
    """A gap restarts a span; spans close when the clock reaches their start, and stay until all have closed."""
    joining = Bootstrap().taken(7, packed({1: 2}), packed({1: 3})).taken(7, packed({1: 3}), packed({1: 4}))
    assert joining.span(7) == Span(7, packed({1: 2}), packed({1: 4}))
    joining = joining.taken(7, packed({1: 5}), packed({1: 6})).taken(8, packed({2: 1}), packed({2: 2}))
    assert joining.span(7) == Span(7, packed({1: 5}), packed({1: 6}))
    # The load is not complete yet.
    assert joining.closed(packed({1: 9, 2: 9}), ORIGINS) == (joining, packed({1: 9, 2: 9}))
    joining, reached = joining._replace(is_loaded=True).closed(packed({2: 1}), ORIGINS)
    assert (joining.is_over, reached) == (False, packed({2: 2}))
    assert {span.source for span in joining.spans} == {7, 8}
    joining, reached = joining.taken(8, packed({2: 2}), packed({1: 5, 2: 3})).closed(reached, ORIGINS)
    assert (joining, reached) == (WHOLE, packed({1: 6, 2: 3}))


def test_whom_the_map_does_not_name_any_more_has_ended():
    """A removed assignment does not prevent a span from closing."""
    joining = Bootstrap(is_loaded=True).taken(7, packed({1: 2, 3: 9}), packed({1: 3, 3: 9}))
    assert joining.closed(clock.named(packed({1: 2}), (1, 2)), (1, 2)) == (WHOLE, clock.of([(1, 3), (2, 0)]))


def test_it_stands_in_the_copy_s_space():
    """The bootstrap state is stored with the replica until it is over."""
    joining = Bootstrap(is_loaded=True).taken(7, packed({1: 2}), packed({1: 3}))
    batch = Batch()
    joining.put(batch, 5)
    WHOLE.put(batch, 5)
    (_, _, key, value), gone = operations(batch.payload)
    assert (key, decode_joining(value)) == (JOINING, joining)
    assert gone[:3] == (DELETE, 5, JOINING)


@pytest.mark.parametrize(
    "value", [b"\x90", b"\x92\xc3\x91\x90", b"\x92\xc3\x91\x93\x01\xc4\x01a\xc4\x00", b"\x92\x01\x90"]
)
def test_what_is_none(value):
    with pytest.raises(ProtocolError):
        decode_joining(value)
