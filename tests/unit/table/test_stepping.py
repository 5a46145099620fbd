"""What a node asks before it steps, and before it drops a copy: of a map at hand, and copies in memory."""

from __future__ import annotations

import random
from copy import copy as copied
from types import SimpleNamespace

import msgpack
import pytest
import trio

from gossipkv.errors import NotReady
from gossipkv.replication import clock
from gossipkv.replication.replicas import ASK_OWN_S
from gossipkv.table.stepping import Stepping
from tests.unit.replication.memory import Cluster
from tests.unit.replication.moved import AVAILABLE, LOADING, PROPOSED, adopt
from tests.unit.table.moved_map import PARTITION, TABLE, MovedMap, node

OLD, TARGET = 3, 4  # Nodes, and assignments: the one in whose place the other comes.


class Scene:
    """Three hosts and a target in memory, the map that the register has, and the one that is known here."""

    def __init__(self, me):
        self.register = MovedMap(nodes=5)
        self.register.have("assign", TARGET, node(TARGET), OLD - 1)
        self.cluster = Cluster(5, adopts=False)
        self.says = {}  # By node: config, clock, whether it is whole.
        self.while_asked = []  # Called when a node is.
        self.has_majority = True
        self.replication = SimpleNamespace(
            replicas=self.cluster.nodes[me - 1].replicas, departed={}, maps={}, now=lambda: self.cluster.now
        )
        self.dropped = []
        self.look()
        self.stepping = Stepping(
            self,
            self.register,
            self.replication,
            SimpleNamespace(drop=self.dropped.append),
            ask=self._ask,
            random=random.Random(1),
            stall_s=60.0,
            look_at=lambda _: None,
        )

    # As `Metadata`

    @property
    def known(self):
        """Of the map that is known here."""
        return self._known.known

    def tree(self, table):
        """Likewise."""
        return self._known.tree(table)

    def look(self):
        """Know here what the register has."""
        self._known = copied(self.register)

    async def quorum_read(self, table):
        """A full round."""
        assert table == TABLE
        if not self.has_majority:
            raise NotReady("no majority answers")
        self.look()

    async def _ask(self, asked, method, params, timeout_s):
        assert (method, params[1]) == ("replica_report", TABLE)
        for do in self.while_asked:
            do()
        number = asked[0]
        if number not in self.says:
            raise NotReady("it does not answer")
        config, counters, is_whole = self.says[number]
        return msgpack.packb([[PARTITION, number, config, clock.of(counters.items()), is_whole]])

    def moves(self, state):
        """All have adopted the map by which the target has that state."""
        adopt(self.cluster, self.register.config, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=state)
        self.cluster.connect()
        self.cluster.pass_s(ASK_OWN_S)

    def say(self, *nodes, config=None, counters=(), is_whole=True):
        """These have adopted that, and have so much."""
        config = self.register.config if config is None else config
        self.says |= dict.fromkeys(nodes, (config, dict(counters), is_whole))

    def steps(self):
        """One round; what is asked for in it."""
        self.register.asked.clear()
        self.cluster.now += 10
        trio.run(self.stepping._round)
        self.look()
        return [(name, argument[2:]) for name, argument in self.register.asked]

    def drops(self):
        """Look at what has departed; whether it is dropped."""
        trio.run(self.stepping._drop_departed)
        return bool(self.dropped)


@pytest.fixture
def target():
    """The target's node, which has adopted that it is PROPOSED."""
    scene = Scene(TARGET)
    scene.moves(PROPOSED)
    return scene


def test_a_target_loads_when_hosts_that_are_asked_have_adopted(target):
    """Not by what they have told otherwise: that may come late, and be of another life."""
    replicas = target.replication.replicas
    (copy,) = replicas.copies.values()
    assert [one.config for _, one in replicas.hosts_told(copy)] == [copy.config] * 3
    assert target.steps() == []
    target.say(1)
    assert target.steps() == []
    target.say(2)
    assert target.steps() == [("advance", (TARGET, 2))]


def test_a_report_from_before_it_was_whole_is_none(target):
    """Who has reported may have acknowledged something since, and the target has loaded before that."""
    target.register.have("advance", TARGET, 2)
    target.look()
    (copy,) = target.replication.replicas.copies.values()
    joining = copy.joining
    target.moves(LOADING)
    copy.joining = copy.synced_joining = joining  # As if it was loading still.
    target.say(1, 2, OLD)

    def is_whole():
        copy.joining = copy.synced_joining = None

    target.while_asked.append(is_whole)
    assert target.steps() == []
    assert target.steps() == [("advance", (TARGET, 3))]


@pytest.fixture
def left():
    """The node whose place the target has: its copy has departed, and all that are AVAILABLE have adopted that."""
    scene = Scene(OLD)
    scene.moves(PROPOSED)
    for step in (("advance", TARGET, 2), ("advance", TARGET, 3), ("unassign", OLD)):
        scene.register.have(*step)
    scene.look()
    (copy,) = scene.replication.replicas.copies.values()
    scene.replication.departed[copy] = None
    scene.say(1, 2, TARGET)
    return scene


def test_what_has_departed_is_dropped(left):
    """When the register shows that, and all AVAILABLE hosts have said that they have adopted it."""
    assert left.drops()


@pytest.mark.parametrize("late", [1, 2, TARGET])
def test_what_has_departed_stays_until_all_have_adopted_that(left, late):
    """Who has not may send a read here; it is of a partition that nobody else serves so far, as it knows."""
    del left.says[late]
    assert not left.drops()
    left.say(late, config=left.register.config - 1)
    assert not left.drops()
    left.say(late)
    assert left.drops()


def test_what_has_departed_stays_without_a_full_round(left):
    """What is known here may be old."""
    left.has_majority = False
    assert not left.drops()
    left.has_majority = True
    assert left.drops()


def test_what_has_departed_goes_by_what_a_full_round_shows(left):
    """Who is AVAILABLE since is to have adopted it, and not who was."""
    for step in (("assign", 5, node(5), 1), ("advance", 5, 2), ("advance", 5, 3), ("unassign", 2)):
        left.register.have(*step)
    assert not left.drops()
    left.say(1, 5, TARGET)
    assert left.drops()
