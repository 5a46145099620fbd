"""A node's datasets through anything, against a model of some twenty lines; and planted bugs, which it finds."""

import copy
from dataclasses import replace

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gossipkv.dataset import database, switching, version_build
from gossipkv.dataset.lifecycle import copy_states, decisions, version_states
from gossipkv.dataset.lifecycle.version_states import VersionState, Word
from gossipkv.dataset.local import store
from gossipkv.dataset.part_in_cluster import PartInCluster
from gossipkv.dataset.source import reader
from gossipkv.testing.faulty_files import Action
from tests.unit.dataset.simulated_node import RETIRE_MS, SimulatedNode

KINDS = st.sampled_from(["good", "good", "good", "bad", "empty"])
NAMES = st.sampled_from(["v1", "v2", "v3", "v4", "v5"])
CRASHES = st.sampled_from([Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
SEEDS = st.integers(0, 1000)


class Model:
    """What a node should do, without how."""

    def __init__(self):
        self.source = {}  # name -> (kind, stamp); kinds: good, bad, empty
        self.hold = self.active = self.newest = self.building = self.stamp = None
        self.kept = {}  # What is built -> when it was left or last asked for.
        self.fresh = set()  # Built, and never active yet.
        self.failed, self.mended, self.asked, self.now = set(), set(), set(), 0  # Mended: and not built yet.

    def wanted(self, name):
        """Whether it may become active."""
        return name == self.hold if self.hold else self.active is None or name > self.active

    def react(self):
        """Everything that is to be done at once."""
        complete = {name for name, (kind, _) in self.source.items() if kind != "empty"}
        here = [name for name in self.kept if self.wanted(name) and (self.hold or name in complete | self.fresh)]
        if here and max(here) != self.active:
            self.kept[self.active], self.active = self.now, max(here)
            self.newest = max(self.active, self.newest or "")
        self.kept = {
            name: self.now if name in self.asked else left
            for name, left in self.kept.items()
            if name == self.active or name in self.asked or (name and self.now - left < RETIRE_MS)
        }
        self.asked, self.fresh = set(), set()
        self.failed = {name for name in self.failed & complete if self.wanted(name) or name > (self.active or "")}
        if self.building and not self.wanted(self.building):
            self.building = None
        ready = [name for name in complete - self.kept.keys() - self.failed if self.wanted(name)]
        if self.building is None and ready:
            self.building = max(ready)
            self.stamp = self.source[self.building]

    def finish(self):
        """The build ends, well or not."""
        name, self.building = self.building, None
        if self.source.get(name) == self.stamp:
            if self.stamp[0] == "good":
                self.kept[name] = self.now
            else:
                self.failed.add(name)

    def restart(self, active, newest, built):
        """From what is on the disk."""
        self.active, self.newest, self.building = active, newest, None
        self.kept = dict.fromkeys(built, self.now)
        self.failed, self.mended, self.asked = set(), set(), set()
        self.fresh = {name for name in built if newest is None or name > newest}


class Life(RuleBasedStateMachine):
    """The steps."""

    def __init__(self):
        super().__init__()
        self.model, self.real, self.stamps = Model(), SimulatedNode(), 0
        self.crash_seed = None
        self.real.start()

    def teardown(self):
        """The end of one run."""
        self.real.close()

    def step(self, change, act):
        """The same with both, and the same outcome, unless the power goes in the middle."""
        before = copy.deepcopy(self.model)
        change()
        self.model.react()
        act()
        if self.real.down:
            self.recover(before)

    def recover(self, before=None):
        """A restart after a crash: the disk has what was before the step, or after it, of each thing."""
        before = before or self.model
        if self.crash_seed is not None:
            self.real.lose_power(self.crash_seed)
        active, newest, built = self.real.on_disk()
        assert active in {before.active, self.model.active}
        both = before.kept.keys() & self.model.kept.keys()
        assert both <= built <= before.kept.keys() | self.model.kept.keys() | {before.building}
        self.model.restart(active, newest, built)
        self.model.react()
        builds = len(self.real.builds)
        self.real.start()
        assert not set(self.real.builds[builds:]) & built

    @rule(name=NAMES, kind=KINDS)
    def publish(self, name, kind):
        """A version appears, or is replaced."""
        self.stamps += 1
        if name in self.model.kept:
            kind = "good"

        def change():
            self.model.source[name] = (kind, self.stamps)
            self.model.mended |= self.model.failed & {name}
            self.model.failed.discard(name)

        self.real.put(name, {"good": [b"name\t%s\n" % name.encode()], "bad": [b"bad\n"], "empty": []}[kind])
        self.step(change, self.real.look)

    @rule(name=NAMES)
    def upgrade(self, name):
        """A good version appears, and everything that can be built is built."""
        self.publish(name, "good")
        while self.model.building:
            self.finish()

    @rule(name=NAMES)
    def withdraw(self, name):
        """A version vanishes at the source."""
        self.real.withdraw(name)
        self.step(lambda: self.model.source.pop(name, None), self.real.look)

    @rule(name=st.none() | NAMES)
    def hold(self, name):
        """It is pinned, or none is."""

        def change():
            self.model.hold = name

        self.step(change, lambda: self.real.hold(name))

    @precondition(lambda self: self.model.building)
    @rule()
    def finish(self):
        """A build comes to its end."""
        if self.model.building:
            self.step(self.model.finish, self.real.finish)

    @precondition(lambda self: self.model.building)
    @rule(kind=KINDS)
    def replace_what_is_built(self, kind):
        """The source changes under a build, which then ends."""
        self.publish(self.model.building, kind)
        self.finish()

    @rule(steps=st.integers(1, 6), asked=st.frozensets(NAMES))
    def wait(self, steps, asked):
        """Time passes; somebody asks for some versions all the while."""

        def change():
            self.model.now += RETIRE_MS // 4
            self.model.asked |= asked & self.model.kept.keys() - {self.model.active}

        for _ in range(steps):
            self.real.requests.update(asked)
            self.step(change, self.real.wait)

    @precondition(lambda self: self.model.active and any(name < self.model.active for name in self.model.kept))
    @rule()
    def lead_back(self):
        """What a person does about a bad version: goes back, withdraws it, goes on."""
        bad = self.model.active
        self.hold(max(name for name in self.model.kept if name < bad))
        self.withdraw(bad)
        self.hold(None)

    @rule(at=st.integers(0, 20), action=CRASHES, seed=SEEDS)
    def lose_power_soon(self, at, action, seed):
        """In the middle of something."""
        self.crash_seed = seed
        self.real.crash_at(at, action)

    @rule(seed=st.none() | SEEDS)
    def restart(self, seed):
        """In good order, or after a power loss between two steps."""
        if seed is None:
            self.real.stop()
        self.crash_seed = seed
        self.recover()

    @invariant()
    def both_agree(self):
        """What is served, built and kept."""
        states = self.real.states
        assert self.real.active == self.model.active
        assert self.real.kept == set(self.model.kept)
        assert {name for name, state in states.items() if state is Word.BUILDING} == {self.model.building} - {None}
        assert {name for name, state in states.items() if state is Word.ACTIVE} == {self.model.active} - {None}
        errors = {name for name, state in states.items() if state is Word.ERROR}
        assert self.model.failed <= errors <= self.model.failed | self.model.mended
        assert self.real.on_disk()[:2] == (self.model.active, self.model.newest)
        if self.model.active is not None:
            assert self.real.value(b"name") == self.model.active.encode()

    @invariant()
    def answers_never_go_back(self):
        """But by a hold."""
        names = [name for name, _ in self.real.answers]
        for before, (after, hold) in zip(names, self.real.answers[1:], strict=False):
            assert before is None or after == hold or (after is not None and after > before)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=settings.default.max_examples * 4 // 5, stateful_step_count=30)


# Planted bugs: what breaks a promise must be found.


def goes_back_by_itself(monkeypatch):
    """Any version that is here may be switched to."""
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        self.state in {VersionState.KNOWN, VersionState.RETIRING} and self.name != active and hold in {None, self.name}
    ))  # fmt: skip


def builds_the_oldest(monkeypatch):
    """Of the versions that could be built."""
    replace_decision(monkeypatch, lambda lives, told, hold: {
        "build": told.build and min(life.name for life in lives if life.buildable(10**9) and hold in {None, life.name}),
    })  # fmt: skip


def builds_what_is_held_out(monkeypatch):
    """A hold decides what is switched to, and not what is built."""
    real = decisions.decide

    def decide(lives, verdicts, *, hold, **rest):
        lives = tuple(lives)
        return replace(
            real(lives, verdicts, hold=hold, **rest), build=real(lives, verdicts, hold=None, **rest).build, stop=None
        )

    monkeypatch.setattr(database, "decide", decide)


def finishes_what_is_held_out(monkeypatch):
    """A build goes on though another version is held."""
    replace_decision(monkeypatch, lambda lives, told, hold: {"stop": None})


def builds_again_what_is_wrong(monkeypatch):
    """Though nothing has changed at the source."""
    real = copy_states.Copy.fail
    monkeypatch.setattr(copy_states.Copy, "fail", lambda self, trouble, now_ms: (
        real(self, replace(trouble, lasting=False), now_ms)
    ))  # fmt: skip


def forgets_what_was_active(monkeypatch):
    """At a restart."""
    monkeypatch.setattr(store.VersionStore, "active", lambda self, name: None)


def forgets_the_hold(monkeypatch):
    """At a restart."""
    real = database.Database.run

    async def run(self, **options):
        self.settings = replace(self.settings, hold=None)
        await real(self, **options)

    monkeypatch.setattr(database.Database, "run", run)


def forgets_what_a_hold_left_behind(monkeypatch):
    """So that one that was withdrawn comes back after a restart."""
    real = store.VersionStore.set_active
    monkeypatch.setattr(store.VersionStore, "set_active", lambda self, name, version, *_: (
        real(self, name, version)
    ))  # fmt: skip


def brings_back_what_was_withdrawn(monkeypatch):
    """When the hold goes, whatever the source shows."""
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        self.state in {VersionState.KNOWN, VersionState.RETIRING}
        and (self.name == hold if hold else active is None or self.name >= active)
    ))  # fmt: skip


def never_leads_back(monkeypatch):
    """Not even by a hold."""
    real = version_states.Life.switchable
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        real(self, active, hold) and (active is None or self.name >= active)
    ))  # fmt: skip


def removes_what_is_asked_for(monkeypatch):
    """Requests do not count."""
    monkeypatch.setattr(switching.Switching, "count_requests", lambda self: None)


def removes_nothing(monkeypatch):
    """Retired versions stay."""
    replace_decision(monkeypatch, lambda lives, told, hold: {"remove": ()})


def removes_at_once(monkeypatch):
    """Without waiting for `retire_after`."""
    real = decisions.decide
    monkeypatch.setattr(PartInCluster, "may_retire", lambda self, version: version in self._lives)
    monkeypatch.setattr(database, "decide", lambda lives, verdicts, *, retire_after_ms, **rest: (
        real(lives, verdicts, retire_after_ms=retire_after_ms - 250, **rest)
    ))  # fmt: skip


def removes_what_has_vanished(monkeypatch):
    """A version goes when the source has it no more."""
    replace_decision(monkeypatch, lambda lives, told, hold: {
        "remove": tuple(
            life.name for life in lives
            if life.state is VersionState.RETIRING and (life.source is None or life.name in told.remove)
        )
    })  # fmt: skip


def serves_before_it_is_written_down(monkeypatch):
    """A crash between the two leads back."""
    real = switching.Switching.switch

    async def switch(self, name, hold):
        self.active, before = name, self.active
        self._shared.on_change()
        await trio.lowlevel.checkpoint()
        self.active = before
        return await real(self, name, hold)

    monkeypatch.setattr(switching.Switching, "switch", switch)


def publishes_without_sync(monkeypatch):
    """A power loss undoes it."""
    monkeypatch.setattr(
        store.VersionStore, "_move", lambda self, source, target: self.files.rename(source, target)
    )  # fmt: skip


def removes_before_it_switches(monkeypatch):
    """A crash between leaves nothing to serve."""
    real = store.VersionStore.set_active

    def set_active(self, name, version, *told):
        for other in self.versions(name):
            if other != version:
                self.remove_version(name, other)
        real(self, name, version, *told)

    monkeypatch.setattr(store.VersionStore, "set_active", set_active)


def takes_what_changed_meanwhile(monkeypatch):
    """A build whose source changed is taken for whole."""
    monkeypatch.setattr(reader, "_check_unchanged", lambda files, file: None)

    async def check(self, order):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(version_build.VersionBuilder, "_check_source", check)


def builds_again_at_a_restart(monkeypatch):
    """What is built already."""
    monkeypatch.setattr(store.VersionStore, "versions", lambda self, name: [])


def replace_decision(monkeypatch, change):
    """Decides as always, with another outcome."""
    real = decisions.decide

    def decide(lives, verdicts, **rest):
        lives = tuple(lives)
        told = real(lives, verdicts, **rest)
        return replace(told, **change(lives, told, rest["hold"]))

    monkeypatch.setattr(database, "decide", decide)


PLANTED = [
    goes_back_by_itself, builds_the_oldest, builds_what_is_held_out, finishes_what_is_held_out,
    builds_again_what_is_wrong, forgets_what_was_active, forgets_the_hold, forgets_what_a_hold_left_behind,
    brings_back_what_was_withdrawn, never_leads_back, removes_what_is_asked_for, removes_nothing, removes_at_once,
    removes_what_has_vanished, serves_before_it_is_written_down, publishes_without_sync, removes_before_it_switches,
    takes_what_changed_meanwhile, builds_again_at_a_restart,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant, monkeypatch):
    """By the same machine that finds nothing in the program as it is."""
    plant(monkeypatch)
    # The search ends with the bug, so many examples cost nothing; some bugs take two hundred on average.
    chosen = settings(settings.get_profile("planted"), max_examples=10_000, stateful_step_count=40, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=chosen)
