"""The two state tables of a version, and the decisions over a database."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossipkv.dataset.build.disk_space import Shortage
from gossipkv.dataset.build.trouble import Trouble
from gossipkv.dataset.lifecycle import copy_states, version_states
from gossipkv.dataset.lifecycle.copy_states import CopyEvent, CopyState, VersionCopy
from gossipkv.dataset.lifecycle.decisions import Decision
from gossipkv.dataset.lifecycle.version_states import Life, VersionEvent, VersionState, VersionWord
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.dataset.lives import (
    ScriptedVerdicts,
    begin,
    by_name,
    checked,
    finish,
    life,
    source,
    what,
)


@pytest.mark.parametrize(("table", "first", "states", "events"), [
    (copy_states.NEXT, CopyState.WANTED, CopyState, CopyEvent),
    (version_states.NEXT, VersionState.KNOWN, VersionState, VersionEvent),
])  # fmt: skip
def test_every_state_is_reached_and_left_and_only_gone_is_the_end(table, first, states, events):
    """The tables have no islands."""
    assert {first} | set(table.values()) == set(states)
    assert {state for state, _ in table} == set(states) - {states.GONE}
    assert {event for _, event in table} == set(events)


def test_only_what_was_built_can_become_active():
    """On a node alone, only built versions come into RETIRING, from which a version may become ACTIVE again."""
    into = {state: {before for (before, _), to in version_states.NEXT.items() if to is state} for state in VersionState}
    assert into[VersionState.ACTIVE] == {VersionState.KNOWN, VersionState.RETIRING}
    assert {event for (_, event), to in version_states.NEXT.items() if to is VersionState.RETIRING} == {
        VersionEvent.SUPERSEDE
    }
    for word in (VersionWord.SEEN, VersionWord.BUILDING, VersionWord.ERROR):
        for is_open in (False, True):
            assert what(life("v1", word, open=is_open)).switch is None
        assert what(life("v1", word), active="v2").supersede == ()


def test_an_event_that_the_table_lacks_is_a_bug():
    with pytest.raises(KeyError):
        life("v1").take(VersionEvent.QUIET)
    with pytest.raises(KeyError):
        life("v1").copy.take(CopyEvent.FINISH)


def test_the_newest_complete_version_is_built():
    """Only one version is built at a time."""
    assert what(life("v1"), life("v3"), life("v2")).build == "v3"
    waiting = life("v3", source=source("v3", waiting_for="a data file"))
    assert what(life("v1"), waiting, life("v2")).build == "v2"
    assert what(life("v1", VersionWord.BUILDING), life("v3")).build is None


def test_versions_are_ordered_as_strings():
    """The interface defines it so: v10 is before v2."""
    assert what(life("v10"), life("v2")).build == "v2"


def test_the_newest_available_is_switched_to_and_the_rest_is_superseded():
    """Versions in between are skipped, whether built or not."""
    lives = [
        life("v1", VersionWord.ACTIVE), life("v2", VersionWord.AVAILABLE), life("v3"),
        life("v4", VersionWord.AVAILABLE), life("v5"), life("v0", VersionWord.ERROR),
    ]  # fmt: skip
    decision = what(*lives, active="v1")
    assert decision.switch == "v4"
    assert decision.supersede == ("v1", "v2")
    assert decision.skip == ("v0", "v3")
    assert decision.build == "v5"


def test_answers_never_go_back():
    """Older versions are neither built nor activated, even if the active one cannot serve."""
    lost = life("v5", VersionWord.ERROR, source=None)
    decision = what(lost, life("v4"), life("v3", VersionWord.AVAILABLE), active="v5")
    assert decision.switch is None
    assert decision.build is None
    assert decision.supersede == ("v3",)
    assert decision.skip == ("v4",)


def test_a_damaged_active_version_is_built_again():
    """The source must have it; a newer version is built first."""
    lost = life("v5", VersionWord.ERROR)
    assert what(lost, active="v5").build == "v5"
    assert what(lost, life("v6"), active="v5").build == "v6"
    assert what(life("v5", VersionWord.AVAILABLE), active="v5").switch == "v5"


def test_what_is_damaged_again_and_again_is_built_after_a_pause_that_doubles():
    """The first rebuild is immediate; later pauses keep a bad disk from causing endless builds, and reset in time."""
    now_ms = 10**12
    one = life("v5", VersionWord.ACTIVE)
    pauses = []
    for _ in range(15):
        one.copy.damage(Trouble("damaged"), now_ms)
        assert one.copy.waits_since_ms == now_ms
        decision = what(one, active="v5", now_ms=now_ms)
        assert (decision.build == "v5") == (decision.look_again_ms is None)
        pauses.append(0 if decision.look_again_ms is None else decision.look_again_ms - now_ms)
        now_ms += pauses[-1]
        assert what(one, active="v5", now_ms=now_ms).build == "v5"
        one.copy.take(CopyEvent.BEGIN)
        finish(one)
    assert pauses == [0, *(1000 << number for number in range(12)), 3_600_000, 3_600_000]
    one.copy.damage(Trouble("damaged"), now_ms + 5 * 3_600_000)
    assert what(one, active="v5", now_ms=now_ms + 5 * 3_600_000).build == "v5"


def test_a_damaged_version_whose_files_are_held_retires_as_others_do():
    """The files retire normally, whatever became of the build; without files the version is forgotten."""
    for state in (VersionWord.ERROR, VersionWord.SEEN):
        damaged = life("v5", state, open=True)
        decision = what(damaged, life("v6", VersionWord.AVAILABLE), active="v5")
        assert (decision.switch, decision.supersede, decision.skip) == ("v6", ("v5",), ())
        assert decision.build is None
        assert what(life("v5", state), life("v6", VersionWord.AVAILABLE), active="v5").skip == ("v5",)
        assert what(life("v7", state, source=None, open=True), active="v5").skip == ()


def test_what_has_vanished_unbuilt_is_forgotten_and_what_is_built_stays():
    """Built versions stay whatever the source shows."""
    assert what(life("v1", source=None)).skip == ("v1",)
    for state in (VersionWord.AVAILABLE, VersionWord.ACTIVE, VersionWord.RETIRING, VersionWord.BUILDING):
        assert what(life("v1", state, source=None), active="v1").skip == ()


def test_a_wrong_source_is_tried_again_when_it_has_changed():
    """Time alone causes no new attempt."""
    bad = life("v2")
    begin(bad)
    bad.copy.fail(Trouble("no TAB"), now_ms=0)
    assert bad.word is VersionWord.ERROR
    older = life("v1")
    assert what(bad, older, now_ms=10**9).build == "v1"
    bad.source = source("v2", size=2)
    assert what(bad, older, now_ms=10**9).build == "v2"


def test_trouble_of_our_own_is_tried_again_after_a_pause_that_doubles():
    """A full disk may become empty."""
    full, now, pauses = life("v1"), 0, []
    for _ in range(9):
        begin(full)
        full.copy.fail(Trouble("no space", lasting=False), now)
        decision = what(full, now_ms=now)
        assert decision.build is None
        pauses.append(decision.look_again_ms - now)
        now = decision.look_again_ms
        assert what(full, now_ms=now).build == "v1"
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    begin(full)
    finish(full)
    assert (full.word, full.copy.failures, full.copy.trouble) == (VersionWord.AVAILABLE, 0, None)


def test_an_interrupted_build_begins_again_after_a_pause():
    """The pause gives the writer of the source time to finish."""
    one = life("v1")
    begin(one)
    one.copy.interrupt(now_ms=5)
    assert one.word is VersionWord.SEEN
    assert what(one, now_ms=5).build is None
    assert what(one, now_ms=5).look_again_ms == 1005
    assert what(one, now_ms=1005).build == "v1"


def test_a_retiring_version_goes_when_nobody_has_asked_for_it():
    """`retire_after` counts from the last request."""
    old = life("v1", VersionWord.RETIRING, asked_ms=500)
    assert what(old, active="v2", now_ms=1499).remove == ()
    assert what(old, active="v2", now_ms=1499).look_again_ms == 1500
    assert what(old, active="v2", now_ms=1500).remove == ("v1",)


def test_a_hold_is_switched_to_older_or_newer():
    """The held version may be AVAILABLE or RETIRING; the one left behind retires, and so does another built one."""
    newer = life("v3", VersionWord.ACTIVE)
    for state in (VersionWord.AVAILABLE, VersionWord.RETIRING):
        assert what(life("v1", state), newer, life("v4"), active="v3", hold="v1").switch == "v1"
        assert what(life("v1", VersionWord.ACTIVE), life("v3", state), active="v1", hold="v3").switch == "v3"
    assert what(life("v1", VersionWord.ACTIVE), newer, active="v1", hold="v1").supersede == ("v3",)
    assert what(life("v4", VersionWord.AVAILABLE), newer, active="v3", hold="v1").supersede == ("v4",)
    assert what(life("v4", VersionWord.AVAILABLE), hold="v1").supersede == ("v4",)
    assert what(life("v4", VersionWord.AVAILABLE), newer, active="v3", hold="v1").switch is None


def test_under_a_hold_no_other_is_built():
    """The held version is built even if it is older, and another build is stopped."""
    lives = [life("v1"), life("v2"), life("v3", VersionWord.ACTIVE), life("v4")]
    assert what(*lives, active="v3", hold="v1").build == "v1"
    assert what(*lives, active="v3", hold="v1").skip == ("v2",)
    assert what(*lives, active="v3", hold="v3").build is None
    assert what(*lives, active="v3", hold="v0").build is None
    building = life("v5", VersionWord.BUILDING)
    assert what(*lives, building, active="v3", hold="v1").stop == "v5"
    assert what(*lives, building, active="v3", hold="v5").stop is None
    assert what(*lives, building, active="v3").stop is None
    assert what(life("v1", VersionWord.BUILDING), life("v3", VersionWord.ACTIVE), active="v3").stop == "v1"


def test_a_held_version_is_not_removed_while_the_switch_to_it_waits():
    """A version due after a hold is kept, too."""
    old = life("v1", VersionWord.RETIRING)
    assert what(old, life("v2", VersionWord.ACTIVE), active="v2", hold="v1", now_ms=10**9).remove == ()
    assert what(old, life("v2", VersionWord.ACTIVE), active="v2", now_ms=10**9).remove == ("v1",)


def test_after_a_hold_only_what_the_source_shows_comes_back():
    """A version that was withdrawn at the source, or is incomplete there, does not come back."""
    active = life("v1", VersionWord.ACTIVE)
    assert what(active, life("v3", VersionWord.RETIRING), active="v1").switch == "v3"
    assert what(active, life("v3", VersionWord.RETIRING, source=None), active="v1").switch is None
    waiting = source("v3", waiting_for="a data file")
    assert what(active, life("v3", VersionWord.RETIRING, source=waiting), active="v1").switch is None
    assert what(active, life("v3", VersionWord.AVAILABLE, source=None), active="v1").switch == "v3"


def test_a_version_without_room_waits_until_there_is_some():
    """The wait ends after ten minutes, since the need is an estimate; a refusal halfway pauses too."""
    one = life("v1")
    begin(one)
    one.copy.wait(Shortage(100, 50), now_ms=0)
    assert (one.word, one.copy.trouble, one.copy.failures) == (VersionWord.SEEN, None, 0)
    assert one.waiting_for == "disk space: about 100 bytes are needed, 50 bytes are free"
    assert what(one, now_ms=599_999).build is None
    assert what(one, now_ms=1).look_again_ms == 600_000
    assert what(one, now_ms=600_000).build == "v1"
    one.copy.find_space(99, now_ms=1)
    assert one.copy.shortage == Shortage(100, 99)
    one.copy.find_space(100, now_ms=1)
    assert (one.copy.shortage, one.waiting_for, what(one, now_ms=1).build) == (None, None, "v1")
    for pause_ms in (1000, 2000):
        begin(one)
        one.copy.wait(Shortage(100, 50, "No space left on device"), now_ms=0)
        one.copy.find_space(1000, now_ms=pause_ms - 1)
        assert one.waiting_for.endswith("1,000 bytes are free (No space left on device)")
        one.copy.find_space(1000, now_ms=pause_ms)
        assert what(one, now_ms=pause_ms).build == "v1"
        assert one.copy.needed_bytes == 100
    begin(one)
    finish(one)
    assert (one.copy.failures, one.copy.needed_bytes, one.copy.shortage) == (0, 0, None)


def test_an_older_one_is_built_while_the_newest_waits_for_room():
    """The older version must be newer than the active one."""
    big = life("v3")
    begin(big)
    big.copy.wait(Shortage(100, 50), now_ms=0)
    assert what(life("v1", VersionWord.ACTIVE), life("v2"), big, active="v1").build == "v2"


@pytest.mark.parametrize(("lives", "active"), [
    ([life("v1", VersionWord.ACTIVE, open=True), life("v2", VersionWord.ACTIVE, open=True)], "v2"),
    ([life("v1", VersionWord.ACTIVE, open=True)], "v2"),
    ([], "v2"),
    ([life("v1", VersionWord.ACTIVE, open=True)], None),
    ([life("v1", VersionWord.BUILDING), life("v2", VersionWord.BUILDING)], None),
    ([life("v1", VersionWord.AVAILABLE, open=True)], None),
    ([life("v1", VersionWord.RETIRING, open=False), life("v2", VersionWord.ACTIVE, open=True)], "v2"),
    ([life("v1", VersionWord.ACTIVE, open=False)], "v1"),
    ([Life("v1", VersionState.GONE)], None),
    ([Life("v1", copy=VersionCopy(CopyState.GONE))], None),
    ([life("v1", VersionWord.ERROR)], None),
])  # fmt: skip
def test_what_must_never_be_is_noticed(lives, active):
    """The running program asserts its invariants."""
    with pytest.raises(AssertionError):
        checked(lives, active)


@pytest.mark.parametrize("contradiction", [
    {"skip": ("v1",), "remove": ("v1",)},
    {"supersede": ("v1",), "switch": "v1"},
    {"remove": ("v1",), "build": "v1"},
    {"build": "v1", "stop": "v2"},
])  # fmt: skip
def test_a_decision_does_not_contradict_itself(contradiction):
    with pytest.raises(AssertionError):
        Decision(**contradiction)


def test_what_may_be_is_let_pass():
    """A refused switch leaves a built version behind; a lost active version is in ERROR."""
    one = life("v1", VersionWord.ACTIVE, open=True)
    checked([one, life("v2", VersionWord.BUILDING), life("v0", VersionWord.RETIRING, open=True)], "v1")
    checked([one, life("v2", VersionWord.AVAILABLE, open=True)], "v1", switching=True)
    lost = Life("v1", VersionState.ACTIVE, VersionCopy(CopyState.ERROR, Trouble("lost")))
    checked([lost], "v1")


SOME = st.none() | st.builds(PartitionSet.of, st.just(2), st.sets(st.integers(0, 1)))
COPY = st.none() | st.builds(
    VersionCopy,
    st.sampled_from([state for state in CopyState if state is not CopyState.GONE]),
    st.sampled_from([None, Trouble("x"), Trouble("y", lasting=False)]),
    share=SOME,
    here=SOME,
    damaged=st.booleans(),
)
LIVES = st.lists(
    st.builds(
        Life,
        st.sampled_from(["v1", "v2", "v3", "v4"]),
        st.sampled_from([state for state in VersionState if state is not VersionState.GONE]),
        COPY,
        st.sampled_from([None, source("v", 1), source("v", 2, files=2), source("v", waiting_for="a data file")]),
        st.sampled_from([None, "an identity"]),
    ),
    unique_by=lambda one: one.name,
)


NAMES = st.frozensets(st.sampled_from(["v1", "v2", "v3", "v4"]))


@given(
    LIVES,
    st.none() | st.builds(ScriptedVerdicts, NAMES, NAMES, NAMES, SOME),
    st.sampled_from([None, "v0", "v2", "v4"]),
    st.sampled_from([None, "v1", "v3"]),
    st.integers(0, 3000),
)
def test_every_decision_is_legal(lives, verdicts, active, hold, now_ms):
    """The tables allow each step, and no answer goes back."""
    decision = what(*lives, verdicts=verdicts, active=active, hold=hold, now_ms=now_ms)
    known = by_name(lives)
    for names, event in (
        (decision.skip, VersionEvent.SKIP),
        (decision.supersede, VersionEvent.SUPERSEDE),
        (decision.remove, VersionEvent.QUIET),
        ([decision.switch] if decision.switch else [], VersionEvent.SWITCH),
    ):
        for name in names:
            assert (known[name].state, event) in version_states.NEXT
    for names, event in (
        ([decision.stop] if decision.stop else [], CopyEvent.INTERRUPT),
        ([decision.build] if decision.build else [], CopyEvent.BEGIN),
        ([name for name in decision.skip + decision.remove if known[name].copy], CopyEvent.DROP),
    ):
        for name in names:
            assert (known[name].copy.state, event) in copy_states.NEXT
    if decision.switch is not None:
        assert decision.switch == hold if hold else active is None or decision.switch >= active
        assert verdicts is None or verdicts.may_switch(decision.switch)
    if decision.build is not None:
        assert not any(one.is_building for one in lives)
        assert decision.build == hold if hold else active is None or decision.build >= active
    if verdicts is not None:
        had = [name for name in decision.remove if known[name].open or verdicts.passed(name)]
        assert all(map(verdicts.may_retire, had))
    assert decision.switch not in decision.remove
    groups = [decision.skip, decision.supersede, decision.remove]
    assert all(not set(one) & set(two) for one, two in itertools.combinations(groups, 2))


class Upgrades(RuleBasedStateMachine):
    """A source that publishes, breaks and withdraws versions, and a node that builds and fails."""

    def __init__(self):
        super().__init__()
        self.lives, self.active, self.now, self.answers = {}, None, 0, []

    def settle(self):
        for _ in range(20):
            decision = what(*self.lives.values(), active=self.active, now_ms=self.now)
            for name, share in decision.want:
                self.lives[name].copy.want(share)
            for name in decision.skip:
                self.lives.pop(name).take(VersionEvent.SKIP)
            for name in decision.supersede:
                self.lives[name].take(VersionEvent.SUPERSEDE)
                self.lives[name].asked_ms = self.now
            for name in decision.remove:
                self.lives.pop(name).take(VersionEvent.QUIET)
            if decision.switch is None and not decision.want:
                break
            if decision.switch is None:
                continue
            self.lives[decision.switch].take(VersionEvent.SWITCH)
            self.active = decision.switch
            self.answers.append(self.active)
        if decision.build is not None:
            begin(self.lives[decision.build])

    @rule(name=st.sampled_from("abcdefgh"), size=st.integers(1, 3))
    def appear(self, name, size):
        if self.active is None or name > self.active:
            self.lives.setdefault(name, Life(name, copy=VersionCopy())).source = source(name, size)
        self.settle()

    @rule(name=st.sampled_from("abcdefgh"))
    def vanish(self, name):
        if name in self.lives:
            self.lives[name].source = None
        self.settle()

    @rule(milliseconds=st.integers(1, 5000))
    def wait(self, milliseconds):
        self.now += milliseconds
        self.settle()

    @precondition(lambda self: any(one.is_building for one in self.lives.values()))
    @rule(how=st.sampled_from(["finish", "fail", "interrupt", "full"]))
    def end(self, how):
        one = next(one for one in self.lives.values() if one.is_building)
        if how == "finish":
            finish(one)
        elif how == "interrupt":
            one.copy.interrupt(self.now)
        else:
            one.copy.fail(Trouble("x", lasting=how == "fail"), self.now)
        self.settle()

    @invariant()
    def answers_never_go_back(self):
        """At most one version is active, and at most one is built."""
        assert self.answers == sorted(set(self.answers))
        words = [one.word for one in self.lives.values()]
        assert words.count(VersionWord.ACTIVE) == (self.active is not None)
        assert words.count(VersionWord.BUILDING) <= 1


TestUpgrades = Upgrades.TestCase
TestUpgrades.__doc__ = "The rules keep their invariant over any history."
