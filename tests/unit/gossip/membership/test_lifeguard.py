"""A suspected member has a limited time, which confirmations shorten."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.gossip.member import MemberState
from gossipkv.gossip.membership.lifeguard import NOBODY, Suspicion
from gossipkv.gossip.profile import LAN, PROFILES
from tests.unit.gossip.membership.believing import Believer, member

ALIVE, SUSPECT, DEAD, LEFT = MemberState


@pytest.mark.parametrize(
    ("members", "seconds"),
    [(4, [24, 11.3, 4]), (10, [24, 11.3, 4]), (100, [48, 22.7, 8]), (1000, [72, 34.1, 12])],
)
def test_the_published_times(members, seconds):
    """Without confirmation the time is six times the least, with one about half of that, with two the least."""
    suspicion = Suspicion(b"0", LAN, members, 0)
    times = [suspicion.deadline_ms]
    for accuser in (b"1", b"2"):
        assert suspicion.confirm(accuser)
        times.append(suspicion.deadline_ms)
    assert [time / 1000 for time in times] == pytest.approx(seconds, rel=0.03)
    assert not suspicion.confirm(b"3")


@pytest.mark.parametrize("members", [1, 2, 3])
def test_too_few_to_confirm(members):
    """Where no other member can confirm, the least time applies."""
    for accuser in (b"0", NOBODY):
        suspicion = Suspicion(accuser, LAN, members, 0)
        assert suspicion.deadline_ms == LAN.suspicion_least_ms(members) == 4000
        assert not suspicion.confirm(b"1")


def test_the_same_accuser_counts_once():
    suspicion = Suspicion(b"0", LAN, 50, 0)
    before = suspicion.deadline_ms
    assert not suspicion.confirm(b"0")
    assert suspicion.deadline_ms == before


def test_an_accuser_that_is_not_named_confirms_nothing():
    """A RECORD does not name the accuser, so the accuser named next may be the same."""
    suspicion = Suspicion(NOBODY, LAN, 50, 0)
    before = suspicion.deadline_ms
    assert suspicion.confirm(b"0")
    assert suspicion.deadline_ms == before
    assert not suspicion.confirm(NOBODY)
    assert suspicion.confirm(b"1")
    assert LAN.suspicion_least_ms(50) < suspicion.deadline_ms < before


@given(
    members=st.integers(1, 3000),
    profile=st.sampled_from(sorted(PROFILES)),
    accusers=st.lists(st.binary(min_size=8, max_size=8), max_size=12),
)
def test_a_deadline_never_moves_out(members, profile, accusers):
    """Accusations in any order only shorten the time, and never below the least."""
    constants = PROFILES[profile]
    suspicion = Suspicion(b"first---", constants, members, 1000)
    deadlines = [suspicion.deadline_ms]
    for accuser in accusers:
        suspicion.confirm(accuser)
        deadlines.append(suspicion.deadline_ms)
    assert deadlines == sorted(deadlines, reverse=True)
    assert deadlines[-1] >= 1000 + constants.suspicion_least_ms(members)
    assert deadlines[0] <= 1000 + constants.suspicion_most_ms(members)


_SAID = ("a", "b", "c", "d", "record", "dead")


@given(st.lists(st.tuples(st.sampled_from(_SAID), st.integers(0, 9000)), max_size=12))
def test_a_verdict_never_comes_later_than_was_said(events):
    """After any accusations by record or verdict, the verdict comes no later than any deadline."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    started, deadline = believer.now_ms, math.inf
    for accuser, after_ms in events:
        suspicion = believer.beliefs._suspicions.get(member("x").id)
        if suspicion is None:
            break
        assert suspicion.deadline_ms <= deadline
        deadline = max(suspicion.deadline_ms, believer.now_ms)
        believer.wait(after_ms)
        if accuser in {"record", "dead"}:
            believer.record(member("x", SUSPECT if accuser == "record" else DEAD))
        else:
            believer.verdict(member("x", SUSPECT), accuser=accuser)
    suspicion = believer.beliefs._suspicions.get(member("x").id)
    deadline = deadline if suspicion is None else max(suspicion.deadline_ms, believer.now_ms)
    believer.wait(200_000)
    assert believer.state("x") is DEAD
    assert believer.members.peers[member("x").id].since_ms <= deadline
    assert believer.members.peers[member("x").id].since_ms >= started + LAN.suspicion_least_ms(21)


@given(
    members=st.sampled_from([3, 20, 60]),
    first=st.booleans(),
    pauses=st.lists(st.integers(0, 4000), min_size=1, max_size=40),
)
def test_who_is_dead_to_others_is_dead_in_time(members, first, pauses):
    """Repeated reports of a death count once: the least time remains from the first report."""
    believer = Believer(*(member(f"n{i}") for i in range(members - 2)), member("x"))
    least_ms = LAN.suspicion_least_ms(members)
    if first:  # The member was suspected here before.
        believer.unanswered("x")
    believer.record(member("x", DEAD))
    told_ms = believer.now_ms
    for pause_ms in pauses:
        believer.wait(pause_ms)
        believer.record(member("x", DEAD))
        assert believer.state("x") is (SUSPECT if believer.now_ms < told_ms + least_ms else DEAD)
    believer.wait(told_ms + least_ms - believer.now_ms)
    assert believer.state("x") is DEAD
    changes = [(before, state) for name, before, state in believer.changes if name == "x"]
    assert changes == [(None, ALIVE), (ALIVE, SUSPECT), (SUSPECT, DEAD)]


@pytest.mark.parametrize("suspected_ms", [0, 1, 1000, 10_000])
def test_who_is_dead_to_others_has_the_least_time(suspected_ms):
    """A record that calls a locally suspected member dead leaves it the least time from then on."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    believer.wait(suspected_ms)
    believer.record(member("x", DEAD))
    least_ms = LAN.suspicion_least_ms(22)
    assert suspected_ms + least_ms < LAN.suspicion_most_ms(22)
    believer.wait(least_ms - 1)
    assert believer.state("x") is SUSPECT
    believer.wait(1)
    assert believer.state("x") is DEAD


def test_without_lifeguard_nobody_is_waited_for():
    """Plain SWIM gives the least time from the start."""
    suspicion = Suspicion(b"0", replace(LAN, lifeguard=False), 100, 0)
    assert suspicion.deadline_ms == LAN.suspicion_least_ms(100)


def test_a_record_confirms_nothing():
    """A repeated suspicion without an accuser is neither a confirmation nor a new suspicion."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    suspicion = believer.beliefs._suspicions[member("x").id]
    before = suspicion.deadline_ms
    for _ in range(5):
        believer.wait(1000)
        believer.record(member("x", SUSPECT))
    assert believer.beliefs._suspicions[member("x").id].deadline_ms == before
    assert believer.state("x") is SUSPECT


def test_a_new_confirmation_is_told_on():
    """Each accuser that shortened the time is passed on, so that other members' times shorten too."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    for accuser, is_news in (("a", True), ("a", False), ("b", True), ("c", False)):
        believer.rumours.remove(member("x").id)
        believer.verdict(member("x", SUSPECT), accuser=accuser)
        assert (member("x").id in believer.rumours) is is_news


def test_grace_after_a_stall():
    """A suspicion that expired while this node stood still waits until pending packets have been read."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    believer.now_ms += 200_000
    believer.beliefs.suspend_verdicts(believer.now_ms + 1000)
    believer.timers.run(believer.now_ms)
    assert believer.state("x") is SUSPECT
    believer.verdict(member("x", ALIVE, incarnation=1), accuser="x")
    believer.wait(10_000)
    assert believer.state("x") is ALIVE


def test_an_old_timer_kills_nobody():
    """The timer of a refuted suspicion does not affect the next suspicion of the same member."""
    believer = Believer(*(member(f"n{i}") for i in range(20)), member("x"))
    believer.unanswered("x")
    deadline = believer.beliefs._suspicions[member("x").id].deadline_ms
    believer.verdict(member("x", ALIVE, incarnation=1), accuser="x")
    believer.wait(deadline - believer.now_ms - 10)
    believer.unanswered("x")
    believer.wait(1000)
    assert believer.state("x") is SUSPECT
