"""A node's datasets through any events, against a model of some twenty lines that finds planted bugs."""

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossipkv.dataset.lifecycle.version_states import VersionWord
from tests.unit.dataset.simulated_node import RETIRE_MS, SimulatedNode
from tests.world.faulty_files import Action

KINDS = st.sampled_from(["good", "good", "good", "bad", "empty"])
NAMES = st.sampled_from(["v1", "v2", "v3", "v4", "v5"])
CRASHES = st.sampled_from([Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
SEEDS = st.integers(0, 1000)


class Model:
    """The required behaviour of a node, without its implementation."""

    def __init__(self):
        self.source = {}  # name -> (kind, stamp); kinds: good, bad, empty
        self.hold = self.active = self.newest = self.building = self.stamp = None
        self.kept = {}  # Built versions, with the time when they were left or last requested.
        self.fresh = set()  # Built, but never active yet.
        self.failed, self.mended, self.asked, self.now = set(), set(), set(), 0  # Mended versions are not built yet.

    def wanted(self, name):
        return name == self.hold if self.hold else self.active is None or name > self.active

    def react(self):
        """Do everything that is due at once."""
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
        name, self.building = self.building, None
        if self.source.get(name) == self.stamp:
            if self.stamp[0] == "good":
                self.kept[name] = self.now
            else:
                self.failed.add(name)

    def restart(self, active, newest, built):
        self.active, self.newest, self.building = active, newest, None
        self.kept = dict.fromkeys(built, self.now)
        self.failed, self.mended, self.asked = set(), set(), set()
        self.fresh = {name for name in built if newest is None or name > newest}


class Life(RuleBasedStateMachine):
    """The steps that node and model take."""

    def __init__(self):
        super().__init__()
        self.model, self.real, self.stamps = Model(), SimulatedNode(), 0
        self.crash_seed = None
        self.real.start()

    def teardown(self):
        self.real.close()

    def step(self, change, act):
        """Take the step with both and compare, unless the power fails in between."""
        before = copy.deepcopy(self.model)
        change()
        self.model.react()
        act()
        if self.real.down:
            self.recover(before)

    def recover(self, before=None):
        """Restart after a crash: each thing on the disk is in its state before or after the step."""
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
        """Publish a good version and finish all builds."""
        self.publish(name, "good")
        while self.model.building:
            self.finish()

    @rule(name=NAMES)
    def withdraw(self, name):
        self.real.withdraw(name)
        self.step(lambda: self.model.source.pop(name, None), self.real.look)

    @rule(name=st.none() | NAMES)
    def hold(self, name):
        def change():
            self.model.hold = name

        self.step(change, lambda: self.real.hold(name))

    @precondition(lambda self: self.model.building)
    @rule()
    def finish(self):
        if self.model.building:
            self.step(self.model.finish, self.real.finish)

    @precondition(lambda self: self.model.building)
    @rule(kind=KINDS)
    def replace_what_is_built(self, kind):
        """Change the source during a build, which then ends."""
        self.publish(self.model.building, kind)
        self.finish()

    @rule(steps=st.integers(1, 6), asked=st.frozensets(NAMES))
    def wait(self, steps, asked):
        """Let time pass while some versions are requested."""

        def change():
            self.model.now += RETIRE_MS // 4
            self.model.asked |= asked & self.model.kept.keys() - {self.model.active}

        for _ in range(steps):
            self.real.requests.update(asked)
            self.step(change, self.real.wait)

    @precondition(lambda self: self.model.active and any(name < self.model.active for name in self.model.kept))
    @rule()
    def lead_back(self):
        """Act as an operator with a bad version: go back, withdraw it, continue."""
        bad = self.model.active
        self.hold(max(name for name in self.model.kept if name < bad))
        self.withdraw(bad)
        self.hold(None)

    @rule(at=st.integers(0, 20), action=CRASHES, seed=SEEDS)
    def lose_power_soon(self, at, action, seed):
        self.crash_seed = seed
        self.real.crash_at(at, action)

    @rule(seed=st.none() | SEEDS)
    def restart(self, seed):
        """Restart regularly, or after a power loss between two steps."""
        if seed is None:
            self.real.stop()
        self.crash_seed = seed
        self.recover()

    @invariant()
    def both_agree(self):
        states = self.real.states
        assert self.real.active == self.model.active
        assert self.real.kept == set(self.model.kept)
        assert {name for name, state in states.items() if state is VersionWord.BUILDING} == {self.model.building} - {
            None
        }
        assert {name for name, state in states.items() if state is VersionWord.ACTIVE} == {self.model.active} - {None}
        errors = {name for name, state in states.items() if state is VersionWord.ERROR}
        assert self.model.failed <= errors <= self.model.failed | self.model.mended
        assert self.real.on_disk()[:2] == (self.model.active, self.model.newest)
        if self.model.active is not None:
            assert self.real.value(b"name") == self.model.active.encode()

    @invariant()
    def answers_never_go_back(self):
        names = [name for name, _ in self.real.answers]
        for before, (after, hold) in zip(names, self.real.answers[1:], strict=False):
            assert before is None or after == hold or (after is not None and after > before)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=settings.default.max_examples * 4 // 5, stateful_step_count=30)


# Planted bugs: the machine must find each broken promise.
