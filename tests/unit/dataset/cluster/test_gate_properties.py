"""The gate against a model, under any order of events at three other owners."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.cluster.effects import AskMember
from gossipkv.dataset.cluster.members import MemberStanding
from tests.unit.dataset.cluster.scene import TERMS, Node, answer, identity, member, statement

NAMES = ("b", "c", "d")
PARTITIONS = frozenset(range(4))
SOME = st.frozensets(st.integers(0, 3))
WHO = st.sampled_from(NAMES)
EVENTS = st.one_of(
    st.tuples(
        st.just("state"), WHO, st.sampled_from([MemberStanding.ALIVE, MemberStanding.SUSPECT, MemberStanding.DEAD])
    ),
    st.tuples(st.just("leaving"), WHO, st.none()),
    st.tuples(st.just("restart"), WHO, st.none()),
    st.tuples(st.just("publish"), WHO, SOME),
    st.tuples(st.just("publish"), WHO, st.just(PARTITIONS)),
    st.tuples(st.just("answer"), WHO, SOME),
    st.tuples(st.just("answer"), WHO, st.just(PARTITIONS)),
    st.tuples(st.just("dropping"), WHO, st.just(PARTITIONS)),
    st.tuples(st.just("silence"), WHO, st.none()),
    st.tuples(st.just("lost"), WHO, st.none()),
    st.tuples(st.just("wait"), st.just("b"), st.sampled_from([1, 400, 600, 1_001])),
    st.tuples(st.just("have"), st.just("a"), SOME),
)


class Model:
    """The rule of the gate, written out."""

    def __init__(self):
        self.states = dict.fromkeys(NAMES, MemberStanding.ALIVE)
        self.leaving = set()  # In the present epoch.
        self.epochs = dict.fromkeys(NAMES, 1)
        self.published = dict.fromkeys(NAMES, frozenset())  # In the present epoch.
        self.counts = {}  # The answers on the present connection, and the times of their questions.
        self.mine = frozenset()

    def owners(self, partition, now_ms):
        """Count the owners of a partition that count now."""
        return (partition in self.mine) + sum(
            self.states[name] is MemberStanding.ALIVE
            and name not in self.leaving
            and partition in self.published[name]
            and partition in served
            and now_ms - asked_ms <= TERMS.probe_interval_ms
            for name, (served, asked_ms) in self.counts.items()
        )

    def holds(self, least, now_ms):
        return all(self.owners(partition, now_ms) >= least for partition in PARTITIONS)


class Play:
    """The core and the model, given the same events."""

    def __init__(self, least):
        self.least = least
        self.node = Node(*NAMES, terms=TERMS._replace(replication=3, min_replication=least))
        self.model = Model()
        self.pending = {}  # The times at which questions were sent.
        self.node.settle()
        self.note()

    def note(self):
        node, model = self.node, self.model
        for effect in node.effects:
            if isinstance(effect, AskMember):
                self.pending[effect.member] = node.now_ms
        node.effects.clear()
        may_switch = node.passes()
        if may_switch:
            assert model.holds(self.least, node.now_ms)
        # Publications must cover all partitions before any question; an answer counts only after a question.
        elif model.holds(self.least, node.now_ms):
            assert node.core.identity("1") is None

    def play(self, event, name, what):
        node, model = self.node, self.model
        if event == "state":
            model.states[name] = what
            self.tell(name)
        elif event == "leaving":
            model.leaving.add(name)
            self.tell(name)
        elif event == "restart":
            model.epochs[name] += 1
            model.states[name], model.published[name] = MemberStanding.ALIVE, frozenset()
            model.leaving.discard(name)
            model.counts.pop(name, None)
            self.pending.pop(name, None)
            self.tell(name)
            node.core.lost(name)
        elif event == "publish":
            if model.published[name] - what:
                model.counts.pop(name, None)
                self.pending.pop(name, None)
            model.published[name] = what
            said = [statement(name, what)] if what else []
            said = {each.identity.version: each for each in said}
            node.core.hear(name, member(name).uuid, model.epochs[name], said, None, wall_ms=0)
        elif event in {"answer", "dropping", "silence"}:
            self.answer(event, name, what)
        elif event == "lost":
            model.counts.pop(name, None)
            self.pending.pop(name, None)
            node.core.lost(name)
        elif event == "have":
            model.mine = what
            node.has(*what)
        node.step(what if event == "wait" else 0)
        self.note()

    def tell(self, name):
        model = self.model
        told = member(name, state=model.states[name], epoch=model.epochs[name])
        self.node.tell(told._replace(is_leaving=name in model.leaving))

    def answer(self, event, name, what):
        node, model = self.node, self.model
        asked_ms = self.pending.pop(name, None)
        if asked_ms is not None:
            model.counts.pop(name, None)
            if event == "answer":
                model.counts[name] = what, asked_ms
        told = None if event == "silence" else answer(*what, dropping=event == "dropping")
        node.core.answered(name, model.epochs[name], identity().wire_id, told)


@given(st.integers(1, 2), st.lists(EVENTS, max_size=40))
def test_the_gate_is_the_rule(least, events):
    """The gate holds exactly if each partition has enough owners that count."""
    play = Play(least)
    for event, name, what in events:
        play.play(event, name, what)


@given(st.integers(1, 2), st.lists(EVENTS, max_size=30))
def test_it_passes_when_nothing_keeps_it(least, events):
    """After any events: all members are alive, publish everything and answer."""
    play = Play(least)
    for event, name, what in events:
        play.play(event, name, what)
    for name in NAMES:
        play.play("restart", name, None)
        play.play("publish", name, PARTITIONS)
    play.play("wait", "b", 1_001)
    for name in NAMES:
        play.play("answer", name, PARTITIONS)
    assert play.node.passes()
