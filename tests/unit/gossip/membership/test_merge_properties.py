"""Statements in any order, doubled or lost, lead all nodes to the same beliefs."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.gossip.member import Member, MemberState, member_id
from tests.unit.gossip.membership.believing import Believer, member

ALIVE, SUSPECT, DEAD, LEFT = MemberState
NAMES = ("a", "b")

statements = st.builds(
    member,
    st.sampled_from(NAMES),
    st.sampled_from(MemberState),
    epoch=st.integers(1, 3),
    incarnation=st.integers(0, 3),
)
# A RECORD never kills, and a VERDICT never introduces a member.
heard = st.tuples(statements, st.booleans())


def hear(believer: Believer, said: list[tuple[Member, bool]]) -> None:
    for statement, is_record in said:
        (believer.record if is_record else believer.verdict)(statement)


def larger(one: Member | None, other: Member | None) -> Member | None:
    """Return the statement of the larger rank."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda said: said.rank)


@given(st.lists(statements, max_size=3), st.lists(statements, max_size=3), st.lists(statements, max_size=3))
def test_merging_is_a_join(first, second, third):
    """The larger of two ranks is commutative, associative and idempotent."""

    def fold(*groups: list[Member]) -> dict[str, Member]:
        known: dict[str, Member] = {}
        for group in groups:
            for said in group:
                known[said.name] = larger(known.get(said.name), said)
        return known

    assert fold(first, second, third) == fold(third, second, first) == fold(second, first, third, second, first)
    both = fold(first, second)
    assert fold(list(both.values()), third) == fold(first, list(fold(second, third).values()))


@given(st.lists(statements.filter(lambda said: said.state is not DEAD), max_size=10), st.randoms(use_true_random=False))
def test_records_in_any_order(said, chance):
    """Nodes that hear the same records in any order and number believe the same."""
    shuffled = [*said, *said]
    chance.shuffle(shuffled)
    one, two = Believer(), Believer()
    hear(one, [(statement, True) for statement in said])
    hear(two, [(statement, True) for statement in shuffled])
    for name in NAMES:
        assert one.known(name) == two.known(name)
        assert one.known(name) == max((s for s in said if s.name == name), key=lambda s: s.rank, default=None)


@given(st.lists(statements, max_size=10), st.randoms(use_true_random=False))
def test_verdicts_in_any_order(said, chance):
    """Nodes that hear the same verdicts about known members believe the same."""
    shuffled = [*said, *said]
    chance.shuffle(shuffled)
    known = [member(name) for name in NAMES]
    one, two = Believer(*known), Believer(*known)
    hear(one, [(statement, False) for statement in said])
    hear(two, [(statement, False) for statement in shuffled])
    assert [one.known(name) for name in NAMES] == [two.known(name) for name in NAMES]


@given(st.lists(heard, max_size=20))
def test_never_backwards(said):
    """The epoch of a member never falls, nor its incarnation within an epoch."""
    believer = Believer()
    for statement, is_record in said:
        before = believer.known(statement.name)
        hear(believer, [(statement, is_record)])
        after = believer.known(statement.name)
        if before is not None:
            assert after is not None
            assert (after.epoch, after.state is LEFT, after.incarnation) >= (
                before.epoch,
                before.state is LEFT,
                before.incarnation,
            )


@given(st.lists(heard, max_size=20))
def test_dead_never_beats_a_higher_incarnation(said):
    """A statement of a lower incarnation kills no member, and a record never kills."""
    believer = Believer()
    for statement, is_record in said:
        before = believer.known(statement.name)
        hear(believer, [(statement, is_record)])
        after = believer.known(statement.name)
        if after is None or after.state is not DEAD or (before is not None and before.state is DEAD):
            continue
        if before is None:
            assert is_record  # The record of a dead member is a memory, no verdict.
            continue
        assert (statement.epoch, statement.incarnation) >= (before.epoch, before.incarnation)
        assert not is_record or before.state is LEFT


@given(st.lists(heard, max_size=20))
def test_nobody_comes_back_from_left(said):
    believer = Believer()
    for statement, is_record in said:
        before = believer.known(statement.name)
        hear(believer, [(statement, is_record)])
        after = believer.known(statement.name)
        if before is not None and before.state is LEFT and after.state is not LEFT:
            assert after.epoch > before.epoch


@given(st.lists(heard, max_size=15), st.randoms(use_true_random=False))
def test_timers_do_no_harm(said, chance):
    """Under late, early and doubled timers, only an expired suspicion becomes a verdict."""
    believer = Believer(*(member(f"n{i}") for i in range(6)))
    for statement, is_record in said:
        hear(believer, [(statement, is_record)])
        for _ in range(chance.randrange(3)):
            believer.now_ms += chance.choice([0, 1, 700, 5000])
            before = {name: believer.known(name) for name in NAMES}
            suspicions = dict(believer.beliefs._suspicions)
            believer.timers.run(believer.now_ms)
            for name in NAMES:
                if believer.known(name) != before[name]:
                    suspicion = suspicions[member_id(name)]
                    assert before[name].state is SUSPECT
                    assert believer.known(name) == before[name]._replace(state=DEAD)
                    assert suspicion.deadline_ms <= believer.now_ms


@given(st.lists(st.tuples(statements, st.integers(1, 3)), max_size=12))
def test_the_table_and_its_shortcuts_agree(said):
    """Members are drawn from exactly those that are alive or suspect."""
    believer = Believer()
    for statement, port in said:
        believer.record(statement._replace(address=Address("10.0.0.3", port)))
        believer.verdict(statement)
    members = believer.members
    reachable = {peer.member.name for peer in members.draw(Random(0), 99)}
    assert reachable == {one.name for one in members if one.state in {ALIVE, SUSPECT} and one is not members.own}
    assert members.reachable == len(reachable) + 1
    assert {peer.member.name for peer in members.unreachable()} == {one.name for one in members if one.state >= DEAD}
    assert all(peer.alive == (peer.member.state is ALIVE) for peer in members.peers.values())
