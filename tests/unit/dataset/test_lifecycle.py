"""The table of a version's life, and the decisions over a database."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossipkv.dataset import lifecycle
from gossipkv.dataset.lifecycle import NEXT, Decision, Event, Life, Shortage, State, Trouble, check, decide
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import SourceVersion

RETIRE_MS = 1000


def source(name, size=1, waiting_for=None):
    """A listed version."""
    return SourceVersion("db", name, (SourceFile("part-0", "/x", size, 1),), waiting_for)


def life(name, state=State.SEEN, **fields):
    """A life in a state; at the source unless told."""
    return Life(name, state, **({"source": source(name)} | fields))


def what(*lives, active=None, hold=None, now_ms=0):
    """The decision."""
    return decide(lives, active=active, hold=hold, now_ms=now_ms, retire_after_ms=RETIRE_MS)


def test_every_state_is_reached_and_left_and_only_gone_is_the_end():
    """The table has no islands."""
    reached = {State.SEEN} | set(NEXT.values())
    assert reached == set(State)
    assert {state for state, _ in NEXT} == set(State) - {State.GONE}
    assert {event for _, event in NEXT} == set(Event)


def test_only_what_was_built_can_become_active():
    """The paths into ACTIVE; into RETIRING, from where there is one, only what was built comes."""
    assert {state for (state, _), target in NEXT.items() if target is State.ACTIVE} == {State.AVAILABLE, State.RETIRING}
    assert {event for (_, event), target in NEXT.items() if target is State.RETIRING} == {Event.SUPERSEDE}
    for state in (State.SEEN, State.ERROR):
        assert not life("v1", state).superseded("v2", None)


def test_an_event_that_the_table_lacks_is_a_bug():
    """It is not passed over in silence."""
    with pytest.raises(KeyError):
        life("v1").take(Event.SWITCH)


def test_the_newest_complete_version_is_built():
    """And only one at a time."""
    assert what(life("v1"), life("v3"), life("v2")).build == "v3"
    waiting = life("v3", source=source("v3", waiting_for="a data file"))
    assert what(life("v1"), waiting, life("v2")).build == "v2"
    assert what(life("v1", State.BUILDING), life("v3")).build is None


def test_versions_are_ordered_as_strings():
    """As the interface says: v10 is before v2."""
    assert what(life("v10"), life("v2")).build == "v2"


def test_the_newest_available_is_switched_to_and_the_rest_is_superseded():
    """Versions between are skipped, whether built or not."""
    lives = [
        life("v1", State.ACTIVE), life("v2", State.AVAILABLE), life("v3"), life("v4", State.AVAILABLE), life("v5"),
        life("v0", State.ERROR),
    ]  # fmt: skip
    decision = what(*lives, active="v1")
    assert decision.switch == "v4"
    assert decision.supersede == ("v1", "v2")
    assert decision.skip == ("v0", "v3")
    assert decision.build == "v5"


def test_answers_never_go_back():
    """An older version is neither built nor switched to, though the active one is not served."""
    lost = life("v5", State.ERROR, source=None)
    decision = what(lost, life("v4"), life("v3", State.AVAILABLE), active="v5")
    assert decision.switch is None
    assert decision.build is None
    assert decision.supersede == ("v3",)
    assert decision.skip == ("v4",)


def test_a_damaged_active_version_is_built_again():
    """When the source has it; a newer one comes first."""
    lost = life("v5", State.ERROR)
    assert what(lost, active="v5").build == "v5"
    assert what(lost, life("v6"), active="v5").build == "v6"
    assert what(life("v5", State.AVAILABLE), active="v5").switch == "v5"


def test_what_is_damaged_again_and_again_is_built_after_a_pause_that_doubles():
    """At once for the first time; a bad disk does not keep the node building; and one day it begins anew."""
    now_ms = 10**12
    one = life("v5", State.ACTIVE)
    pauses = []
    for _ in range(15):
        one.damage(now_ms)
        assert one.waits_since_ms == now_ms
        decision = what(one, active="v5", now_ms=now_ms)
        assert (decision.build == "v5") == (decision.look_again_ms is None)
        pauses.append(0 if decision.look_again_ms is None else decision.look_again_ms - now_ms)
        now_ms += pauses[-1]
        assert what(one, active="v5", now_ms=now_ms).build == "v5"
        for event in (Event.BEGIN, Event.FINISH, Event.SWITCH):
            one.take(event)
    assert pauses == [0, *(1000 << number for number in range(12)), 3_600_000, 3_600_000]
    one.damage(now_ms + 5 * 3_600_000)
    assert what(one, active="v5", now_ms=now_ms + 5 * 3_600_000).build == "v5"


def test_a_damaged_version_whose_files_are_held_retires_as_others_do():
    """Not at once, whatever became of its build; without files it is forgotten."""
    for state in (State.ERROR, State.SEEN):
        damaged = life("v5", state, open=True)
        decision = what(damaged, life("v6", State.AVAILABLE), active="v5")
        assert (decision.switch, decision.supersede, decision.skip) == ("v6", ("v5",), ())
        assert decision.build is None
        assert what(life("v5", state), life("v6", State.AVAILABLE), active="v5").skip == ("v5",)
        assert what(life("v7", state, source=None, open=True), active="v5").skip == ()


def test_what_has_vanished_unbuilt_is_forgotten_and_what_is_built_stays():
    """The source may do what it likes."""
    assert what(life("v1", source=None)).skip == ("v1",)
    for state in (State.AVAILABLE, State.ACTIVE, State.RETIRING, State.BUILDING):
        assert what(life("v1", state, source=None), active="v1").skip == ()


def test_a_wrong_source_is_tried_again_when_it_has_changed():
    """And not before, however long it takes."""
    bad = life("v2")
    bad.begin()
    bad.fail(Trouble("no TAB"), now_ms=0)
    assert bad.state is State.ERROR
    older = life("v1")
    assert what(bad, older, now_ms=10**9).build == "v1"
    bad.source = source("v2", size=2)
    assert what(bad, older, now_ms=10**9).build == "v2"


def test_trouble_of_our_own_is_tried_again_after_a_pause_that_doubles():
    """A full disk may become empty."""
    full, now, pauses = life("v1"), 0, []
    for _ in range(9):
        full.begin()
        full.fail(Trouble("no space", lasting=False), now)
        decision = what(full, now_ms=now)
        assert decision.build is None
        pauses.append(decision.look_again_ms - now)
        now = decision.look_again_ms
        assert what(full, now_ms=now).build == "v1"
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    full.begin()
    full.finish()
    assert (full.state, full.failures, full.trouble) == (State.AVAILABLE, 0, None)


def test_an_interrupted_build_begins_again_after_a_pause():
    """The source was still being written."""
    one = life("v1")
    one.begin()
    one.interrupt(now_ms=5)
    assert one.state is State.SEEN
    assert what(one, now_ms=5).build is None
    assert what(one, now_ms=5).look_again_ms == 1005
    assert what(one, now_ms=1005).build == "v1"


def test_a_retiring_version_goes_when_nobody_has_asked_for_it():
    """`retire_after` counts from the last request."""
    old = life("v1", State.RETIRING, asked_ms=500)
    assert what(old, active="v2", now_ms=1499).remove == ()
    assert what(old, active="v2", now_ms=1499).look_again_ms == 1500
    assert what(old, active="v2", now_ms=1500).remove == ("v1",)


def test_a_hold_is_switched_to_older_or_newer():
    """From AVAILABLE and from RETIRING; the one left behind retires, and so does another that was just built."""
    newer = life("v3", State.ACTIVE)
    for state in (State.AVAILABLE, State.RETIRING):
        assert what(life("v1", state), newer, life("v4"), active="v3", hold="v1").switch == "v1"
        assert what(life("v1", State.ACTIVE), life("v3", state), active="v1", hold="v3").switch == "v3"
    assert what(life("v1", State.ACTIVE), newer, active="v1", hold="v1").supersede == ("v3",)
    assert what(life("v4", State.AVAILABLE), newer, active="v3", hold="v1").supersede == ("v4",)
    assert what(life("v4", State.AVAILABLE), hold="v1").supersede == ("v4",)
    assert what(life("v4", State.AVAILABLE), newer, active="v3", hold="v1").switch is None


def test_under_a_hold_no_other_is_built():
    """The held one is, also if it is older; the build of another is broken off."""
    lives = [life("v1"), life("v2"), life("v3", State.ACTIVE), life("v4")]
    assert what(*lives, active="v3", hold="v1").build == "v1"
    assert what(*lives, active="v3", hold="v1").skip == ("v2",)
    assert what(*lives, active="v3", hold="v3").build is None
    assert what(*lives, active="v3", hold="v0").build is None
    building = life("v5", State.BUILDING)
    assert what(*lives, building, active="v3", hold="v1").stop == "v5"
    assert what(*lives, building, active="v3", hold="v5").stop is None
    assert what(*lives, building, active="v3").stop is None
    assert what(life("v1", State.BUILDING), life("v3", State.ACTIVE), active="v3").stop == "v1"


def test_a_held_version_is_not_removed_while_the_switch_to_it_waits():
    """Nor one that is to be switched to after a hold."""
    old = life("v1", State.RETIRING)
    assert what(old, life("v2", State.ACTIVE), active="v2", hold="v1", now_ms=10**9).remove == ()
    assert what(old, life("v2", State.ACTIVE), active="v2", now_ms=10**9).remove == ("v1",)


def test_after_a_hold_only_what_the_source_shows_comes_back():
    """A bad version is withdrawn there, or its source is not complete any more."""
    active = life("v1", State.ACTIVE)
    assert what(active, life("v3", State.RETIRING), active="v1").switch == "v3"
    assert what(active, life("v3", State.RETIRING, source=None), active="v1").switch is None
    waiting = source("v3", waiting_for="a data file")
    assert what(active, life("v3", State.RETIRING, source=waiting), active="v1").switch is None
    assert what(active, life("v3", State.AVAILABLE, source=None), active="v1").switch == "v3"


def test_a_version_without_room_waits_until_there_is_some():
    """Or for ten minutes, since it is an estimate; what was refused halfway pauses, too."""
    one = life("v1")
    one.begin()
    one.wait(Shortage(100, 50), now_ms=0)
    assert (one.state, one.trouble, one.failures) == (State.SEEN, None, 0)
    assert one.waiting_for == "room on the disk: about 100 bytes are needed, 50 are free"
    assert what(one, now_ms=599_999).build is None
    assert what(one, now_ms=1).look_again_ms == 600_000
    assert what(one, now_ms=600_000).build == "v1"
    one.find_space(99, now_ms=1)
    assert one.shortage == Shortage(100, 99)
    one.find_space(100, now_ms=1)
    assert (one.shortage, one.waiting_for, what(one, now_ms=1).build) == (None, None, "v1")
    for pause_ms in (1000, 2000):
        one.begin()
        one.wait(Shortage(100, 50, "No space left on device"), now_ms=0)
        one.find_space(1000, now_ms=pause_ms - 1)
        assert one.waiting_for.endswith("1,000 are free (No space left on device)")
        one.find_space(1000, now_ms=pause_ms)
        assert what(one, now_ms=pause_ms).build == "v1"
        assert one.needed_bytes == 100
    one.begin()
    one.finish()
    assert (one.failures, one.needed_bytes, one.shortage) == (0, 0, None)


def test_an_older_one_is_built_while_the_newest_waits_for_room():
    """If it is newer than what is served."""
    big = life("v3")
    big.begin()
    big.wait(Shortage(100, 50), now_ms=0)
    assert what(life("v1", State.ACTIVE), life("v2"), big, active="v1").build == "v2"


@pytest.mark.parametrize(("lives", "active"), [
    ([life("v1", State.ACTIVE, open=True), life("v2", State.ACTIVE, open=True)], "v2"),
    ([life("v1", State.ACTIVE, open=True)], "v2"),
    ([life("v1", State.BUILDING), life("v2", State.BUILDING)], None),
    ([life("v1", State.AVAILABLE, open=True)], None),
    ([life("v1", State.RETIRING), life("v2", State.ACTIVE, open=True)], "v2"),
    ([life("v1", State.GONE)], None),
    ([life("v1", State.ERROR)], None),
])  # fmt: skip
def test_what_must_never_be_is_noticed(lives, active):
    """While the program runs."""
    with pytest.raises(AssertionError):
        check(lives, active, switching=False)


@pytest.mark.parametrize("contradiction", [
    {"skip": ("v1",), "remove": ("v1",)},
    {"supersede": ("v1",), "switch": "v1"},
    {"remove": ("v1",), "build": "v1"},
    {"build": "v1", "stop": "v2"},
])  # fmt: skip
def test_a_decision_does_not_contradict_itself(contradiction):
    """Nothing is both let go and kept."""
    with pytest.raises(AssertionError):
        Decision(**contradiction)


def test_what_may_be_is_let_pass():
    """A switch that the system refuses leaves one behind that is built; a lost active version is in ERROR."""
    one = life("v1", State.ACTIVE, open=True)
    check([one, life("v2", State.BUILDING), life("v0", State.RETIRING, open=True)], "v1", switching=False)
    check([one, life("v2", State.AVAILABLE, open=True)], "v1", switching=True)
    check([life("v1", State.ERROR, trouble=Trouble("lost"))], "v1", switching=False)


LIVES = st.lists(
    st.builds(
        Life,
        st.sampled_from(["v1", "v2", "v3", "v4"]),
        st.sampled_from([state for state in State if state is not State.GONE]),
        st.sampled_from([None, source("v", 1), source("v", 2), source("v", waiting_for="a data file")]),
        st.sampled_from([None, Trouble("x"), Trouble("y", lasting=False)]),
        open=st.booleans(),
    ),
    unique_by=lambda one: one.name,
)


@given(LIVES, st.sampled_from([None, "v0", "v2", "v4"]), st.sampled_from([None, "v1", "v3"]), st.integers(0, 3000))
def test_every_decision_is_legal(lives, active, hold, now_ms):
    """Whatever the states: the table has each step, and nothing goes back."""
    states = {one.name: one.state for one in lives}
    decision = what(*lives, active=active, hold=hold, now_ms=now_ms)
    for names, event in (
        ([decision.stop] if decision.stop else [], Event.INTERRUPT),
        (decision.skip, Event.SKIP),
        (decision.supersede, Event.SUPERSEDE),
        (decision.remove, Event.QUIET),
        ([decision.switch] if decision.switch else [], Event.SWITCH),
        ([decision.build] if decision.build else [], Event.BEGIN),
    ):
        for name in names:
            assert (states[name], event) in NEXT
    if decision.switch is not None:
        assert decision.switch == hold if hold else active is None or decision.switch >= active
    if decision.build is not None:
        assert State.BUILDING not in states.values()
        assert decision.build == hold if hold else active is None or decision.build >= active
    assert decision.switch not in decision.remove
    groups = [decision.skip, decision.supersede, decision.remove]
    assert all(not set(one) & set(two) for one, two in itertools.combinations(groups, 2))


class Upgrades(RuleBasedStateMachine):
    """A source that publishes, breaks and withdraws versions; a node that builds and fails."""

    def __init__(self):
        super().__init__()
        self.lives, self.active, self.now, self.answers = {}, None, 0, []

    def settle(self):
        """Applies decisions until there are none."""
        for _ in range(20):
            decision = what(*self.lives.values(), active=self.active, now_ms=self.now)
            for name in decision.skip:
                self.lives.pop(name).take(Event.SKIP)
            for name in decision.supersede:
                self.lives[name].take(Event.SUPERSEDE)
                self.lives[name].asked_ms = self.now
            for name in decision.remove:
                self.lives.pop(name).take(Event.QUIET)
            if decision.switch is None:
                break
            self.lives[decision.switch].take(Event.SWITCH)
            self.active = decision.switch
            self.answers.append(self.active)
        if decision.build is not None:
            self.lives[decision.build].begin()

    @rule(name=st.sampled_from("abcdefgh"), size=st.integers(1, 3))
    def appear(self, name, size):
        """A version appears, or changes."""
        if self.active is None or name > self.active:
            self.lives.setdefault(name, Life(name)).source = source(name, size)
        self.settle()

    @rule(name=st.sampled_from("abcdefgh"))
    def vanish(self, name):
        """A version goes at the source."""
        if name in self.lives:
            self.lives[name].source = None
        self.settle()

    @rule(milliseconds=st.integers(1, 5000))
    def wait(self, milliseconds):
        """Time passes."""
        self.now += milliseconds
        self.settle()

    @precondition(lambda self: any(one.state is State.BUILDING for one in self.lives.values()))
    @rule(how=st.sampled_from(["finish", "fail", "interrupt", "full"]))
    def end(self, how):
        """A build ends."""
        one = next(one for one in self.lives.values() if one.state is State.BUILDING)
        if how == "finish":
            one.finish()
        elif how == "interrupt":
            one.interrupt(self.now)
        else:
            one.fail(Trouble("x", lasting=how == "fail"), self.now)
        self.settle()

    @invariant()
    def answers_never_go_back(self):
        """And at most one is active, at most one is built."""
        assert self.answers == sorted(set(self.answers))
        states = [one.state for one in self.lives.values()]
        assert states.count(State.ACTIVE) == (self.active is not None)
        assert states.count(State.BUILDING) <= 1


TestUpgrades = Upgrades.TestCase
TestUpgrades.__doc__ = "The rules keep their invariant over any history."


def test_the_picture_shows_the_table():
    """Each event that moves a version along stands in the module's drawing."""
    for event in ("begin", "finish", "switch", "supersede", "quiet"):
        assert f"──{event}──►" in lifecycle.__doc__


DOCUMENT = Path(__file__).parents[3] / "docs" / "operators" / "life-of-a-version.md"


def test_the_documentation_has_the_table():
    """Row by row, and no other row."""
    rows = re.findall(r"^\| (\w+) \| (\w+): [^|]+ \| (\w+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(rows) == len(NEXT)
    assert {(source, event): target for source, event, target in rows} == {
        (source.value, event.value): target.value for (source, event), target in NEXT.items()
    }


def test_the_documentation_draws_the_table():
    """Arrow by arrow; the drawing begins and ends where lives do."""
    text = DOCUMENT.read_text()
    drawing = text[text.index("stateDiagram") : text.index("```\n\n|")]
    arrows = re.findall(r"^    (\w+) --> (\w+): (\w+)$", drawing, re.MULTILINE)
    assert len(arrows) == len(NEXT)
    assert {(source, event): target for source, target, event in arrows} == {
        (source.value, event.value): target.value for (source, event), target in NEXT.items()
    }
    assert drawing.count("-->") == len(NEXT) + 2
    assert re.findall(r"\[\*\] --> (\w+)", drawing) == [Life("v1").state.value]


def test_the_documentation_explains_each_state():
    """One row each."""
    rows = re.findall(r"^\| ([A-Z]+) \| [^|:]+ \| [^|]+ \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(state.value for state in State)
