"""An acceptor promises, accepts and stores correctly, and answers only after the sync."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.register.acceptor import Acceptor, AcceptorAnswer, Keep, judge
from gossipkv.register.ballot import MAX_COUNTER, ZERO, Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors, Value
from gossipkv.register.messages import (
    AcceptorRecord,
    AcceptorVerdict,
    RegisterRequest,
    RequestKind,
    decode_record,
)
from tests.oracle.register import LEAP, Asked, SlowAcceptor

REGISTER = bytes(16)
ME = AcceptorId(b"m" * 16, 1)
OTHER = AcceptorId(b"o" * 16, 1)
ONE = Acceptors.of([ME, OTHER])
HELD = Value(ONE, b"held")
STRANGE = {"another": Acceptors.of([OTHER]), "a joint configuration": ONE.joint_with([ME], 5)}

COUNTERS = st.one_of(
    st.integers(0, 4), st.sampled_from((LEAP, LEAP + 1, LEAP + 2, 2 * LEAP + 3, MAX_COUNTER - 1, MAX_COUNTER))
)


@st.composite
def ballots(draw):
    """Draw few ballots, so that they meet; some are implausible."""
    generation = draw(st.sampled_from((0, 0, 0, 1, 2, 65, 66, 200)))
    return Ballot(
        generation, draw(st.sampled_from((7, 9))) if generation else 0, draw(COUNTERS), draw(st.integers(0, 2))
    )


@st.composite
def asked(draw):
    kind = draw(st.sampled_from(("read", "prepare", "prepare", "accept", "accept", "create")))
    ballot = draw(st.none() if kind == "read" and draw(st.booleans()) else ballots())
    if kind == "create" and draw(st.booleans()):
        ballot = ZERO
    return Asked(
        kind,
        ballot,
        draw(st.sampled_from((b"x", b"y"))) if kind in {"accept", "create"} else None,
        stays=kind == "accept" and draw(st.booleans()),
        is_newcomer=kind == "prepare" and draw(st.booleans()),
        holds=draw(st.sampled_from((True, True, True, False))),
        names_it=kind != "create" or draw(st.sampled_from((True, True, False))),
    )


def request_of(one, strange="another"):
    acceptors = ONE if one.names_it else STRANGE[strange]
    value = Value(acceptors, one.value) if one.value is not None else None
    return RegisterRequest(
        RequestKind[one.kind.upper()],
        REGISTER,
        ME,
        3,
        one.ballot,
        value,
        one.stays,
        HELD if one.is_newcomer else None,
    )


@example([Asked("create", ZERO, b"x"), Asked("create", ZERO, b"x", names_it=False)], "another")
@given(st.lists(asked(), max_size=14), st.sampled_from(sorted(STRANGE)))
def test_it_judges_as_who_forgets_nothing(sequence, strange):
    """Verdict and record match those of an oracle that searches its whole history."""
    slow, record = SlowAcceptor(), None
    for one in sequence:
        verdict, record = judge(record, request_of(one, strange), lambda payload, one=one: one.holds)
        assert verdict.name == slow.ask(one)
        has = None if record is None else (*record[:2], record.value and record.value.payload, record.conflict)
        assert has == slow.record()


def start(disk):
    return Acceptor(ME, disk.get, lambda register, payload: True)


PREPARE = Asked("prepare", Ballot(0, 0, 1, 1))


@given(st.lists(st.one_of(asked(), st.integers(1, 3)), max_size=20), st.booleans())
def test_it_answers_in_order_of_the_appends_once_they_are_synced(sequence, is_founded):
    """Each answer comes once, in order, and only after its record is on the disk."""
    disk, slow = {}, SlowAcceptor()
    acceptor = start(disk)
    unsynced, expected, token = [], {}, 0
    if is_founded:
        sequence = [Asked("create", ZERO, b"x"), *sequence]
    # The test above covers missing bodies.
    sequence = [step._replace(holds=True) if isinstance(step, Asked) else step for step in sequence]
    for step in [*sequence, 100]:
        if isinstance(step, Asked):
            token += 1
            acceptor.receive(token, request_of(step))
            expected[token] = slow.ask(step), slow.record()
        else:
            for keep in unsynced[:step]:
                disk[keep.register] = keep.record
            if unsynced:
                acceptor.synced(unsynced[:step][-1].serial)
            del unsynced[:step]
        for effect in acceptor.take():
            match effect:
                case Keep():
                    unsynced.append(effect)
                case AcceptorAnswer(of, reply):
                    verdict, record = expected.pop(of)
                    assert reply.verdict.name == verdict
                    assert (reply.record is None) == (record is None)
                    if record is not None:
                        synced = decode_record(disk[REGISTER])
                        assert reply.record[:2] == record[:2]
                        assert (synced.promise, synced.conflict) >= (record[0], record[3])
                        assert (synced.accepted or ZERO) >= (record[1] or ZERO)
    assert not expected
    assert not unsynced


def test_what_it_accepted_is_told_without_the_value_to_who_has_it():
    """Replies to an accept and a creation are short; replies to other requests show the value."""
    disk = {}
    acceptor = start(disk)
    for token, one in enumerate((Asked("create", ZERO, b"x"), Asked("read"), PREPARE)):
        acceptor.receive(token, request_of(one))
    keeps = [effect for effect in acceptor.take() if isinstance(effect, Keep)]
    acceptor.synced(keeps[-1].serial)
    created, read, prepared = (effect.reply.record for effect in acceptor.take())
    assert (created.accepted, created.value) == (ZERO, None)
    assert read.value == prepared.value == Value(ONE, b"x")


def test_who_says_that_he_holds_something_says_it_behind_a_sync():
    """A repeated promise needs a sync too, since the body may have come since."""
    disk = {}
    acceptor = start(disk)
    for token, one in enumerate((Asked("create", ZERO, b"x"), PREPARE)):
        acceptor.receive(token, request_of(one))
    (*_, last) = [effect for effect in acceptor.take() if isinstance(effect, Keep)]
    disk[REGISTER] = last.record
    acceptor.synced(last.serial)
    acceptor.take()
    acceptor.receive(7, request_of(PREPARE._replace(is_newcomer=True)))
    (keep,) = acceptor.take()
    acceptor.synced(keep.serial)
    assert [effect.token for effect in acceptor.take()] == [7]


def test_another_store_answers_nothing():
    """A lost or restored disk makes another acceptor."""
    acceptor = start({})
    request = request_of(PREPARE)._replace(to=ME._replace(store=2))
    with pytest.raises(ProtocolError, match="lost, restored or replaced"):
        acceptor.receive(1, request)
    assert acceptor.take() == []


def test_a_counter_without_a_next_one_is_not_accepted():
    """Every stored ballot can be read again, even with the next ballot promised."""
    last = Ballot(0, 0, MAX_COUNTER, 1)
    near = AcceptorRecord(last._replace(counter=MAX_COUNTER - 1), ZERO, Value(ONE, b"x"))
    stays = request_of(Asked("accept", last, b"y", stays=True))
    assert judge(near, stays, lambda payload: True) == (AcceptorVerdict.IMPLAUSIBLE, near)
