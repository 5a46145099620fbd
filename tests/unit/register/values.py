"""Strategies for the parts of register messages."""

from __future__ import annotations

from hypothesis import strategies as st

from gossipkv.register.ballot import MAX_COUNTER, MAX_GENERATION, Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors, Forced, Value
from gossipkv.register.messages import MAX_NUMBER, AcceptorRecord, AcceptorVerdict, RegisterRequest, Reply, RequestKind

IDS = st.integers(1, (1 << 64) - 1)
ACCEPTORS = st.builds(AcceptorId, st.integers(0, 255).map(lambda byte: bytes([byte]) * 16), IDS)
MEMBERS = st.sets(ACCEPTORS, min_size=1, max_size=4)
REGISTERS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, MAX_NUMBER)


@st.composite
def ballots(draw):
    generation = draw(st.one_of(st.just(0), st.integers(1, MAX_GENERATION)))
    force = draw(IDS) if generation else 0
    return Ballot(generation, force, draw(st.integers(0, MAX_COUNTER)), draw(st.integers(0, (1 << 64) - 1)))


@st.composite
def acceptors(draw):
    one = Acceptors.of(draw(MEMBERS))
    other = draw(MEMBERS)
    return one.joint_with(other, draw(IDS)) if draw(st.booleans()) and tuple(sorted(other)) != one.new else one


FORCES = st.builds(
    Forced,
    st.integers(1, MAX_GENERATION),
    IDS,
    st.sets(ACCEPTORS, max_size=3).map(lambda left_out: tuple(sorted(left_out))),
)
VALUES = st.builds(Value, acceptors(), st.binary(max_size=40), st.lists(FORCES, max_size=3).map(tuple))


@st.composite
def records(draw, *, whole=True):
    """Draw a stored record, or one of a reply, perhaps without the value."""
    conflict = draw(st.integers(0, MAX_GENERATION))
    first, second = sorted((draw(ballots()), draw(ballots())))
    if draw(st.booleans()):
        return AcceptorRecord(second, conflict=conflict)
    return AcceptorRecord(second, first, draw(VALUES) if whole or draw(st.booleans()) else None, conflict)


@st.composite
def requests(draw):
    kind = draw(st.sampled_from(RequestKind))
    ballot = draw(st.one_of(st.none(), ballots()) if kind is RequestKind.READ else ballots())
    return RegisterRequest(
        kind,
        draw(REGISTERS),
        draw(ACCEPTORS),
        draw(NUMBERS),
        ballot,
        draw(VALUES) if kind in {RequestKind.ACCEPT, RequestKind.CREATE} else None,
        kind is RequestKind.ACCEPT and draw(st.booleans()),
        draw(st.one_of(st.none(), VALUES)) if kind is RequestKind.PREPARE else None,
    )


REPLIES = st.builds(
    Reply,
    st.sampled_from(AcceptorVerdict),
    REGISTERS,
    ACCEPTORS,
    NUMBERS,
    st.one_of(st.none(), ballots()),
    st.one_of(st.none(), records(whole=False)),
)
