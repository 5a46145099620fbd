"""A node asks hosts before it advances a move or drops a replica, with in-memory replicas."""

from __future__ import annotations

import random
from copy import copy as copied
from types import SimpleNamespace

import msgpack
import pytest
import trio

from gossipkv.errors import NotReady
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.bootstrap import Bootstrap
from gossipkv.replication.replica_set import ASK_OWN_S
from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers.migrator import RETRY_S, STEP_S, Migrator
from tests.unit.replication.memory import Cluster
from tests.unit.replication.moved import AVAILABLE, LOADING, PROPOSED, adopt
from tests.unit.table.local_tables import local_tables
from tests.unit.table.moved_map import FORCED, PARTITION, TABLE, MovedMap, node

STALL_S = 60
OLD, TARGET = 3, 4  # Numbers of nodes and assignments: the target replaces the old one.


class Scene:
    """Three hosts and a target in memory, the map of the register, and the locally known map."""

    def __init__(self, me):
        self.register = MovedMap(nodes=5)
        self.register.have("assign", TARGET, node(TARGET), OLD - 1)
        self.cluster = Cluster(5, adopts=False)
        self.says = {}  # By node: config, clock and completeness.
        self.while_asked = []  # Called before each answer.
        self.has_majority = True
        self.is_deaf = False  # If set, requests have no effect.
        self.replication = SimpleNamespace(
            replicas=self.cluster.nodes[me - 1].replicas, departed={}, maps={}, now=lambda: self.cluster.now
        )
        self.dropped = []
        self.look()
        tables = local_tables(
            metadata=self, catalogue=self.register, replication=self.replication, ask=self._ask,
            random=random.Random(1), settings=TableSettings(move_stall=int(STALL_S * 1000)),
        )  # fmt: skip
        self.stepping = Migrator(tables, SimpleNamespace(drop=self.dropped.append))

    # The methods of `Metadata`.

    @property
    def known(self):
        return self._known.known

    def view(self, table):
        return self._known.view(table)

    def look(self):
        self._known = copied(self.register)

    async def quorum_read(self, table):
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

    def moves(self, state, config=None):
        """Adopt on all nodes the map in which the target has this state."""
        adopt(self.cluster, config or self.register.config, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=state)
        self.cluster.connect()
        self.cluster.pass_s(ASK_OWN_S)

    def say(self, *nodes, config=None, counters=(), is_whole=True):
        """Set the reports of these nodes."""
        config = self.register.config if config is None else config
        self.says |= dict.fromkeys(nodes, (config, dict(counters), is_whole))

    def steps(self, *, after_s=RETRY_S):
        """Run one round after an idle time; return its requests."""
        self.register.asked.clear()
        self.cluster.now += after_s
        before = copied(self.register)
        trio.run(self.stepping._round)
        if self.is_deaf:
            self.register.__dict__.update(before.__dict__)
        return [(name, argument[2:]) for name, argument in self.register.asked]

    def drops(self):
        """Check the departed replicas; return True if one is dropped."""
        trio.run(self.stepping._drop_departed)
        return bool(self.dropped)


@pytest.fixture
def target():
    """Return the target's node, which has adopted that it is PROPOSED."""
    scene = Scene(TARGET)
    scene.moves(PROPOSED)
    return scene


def test_a_target_loads_when_hosts_that_are_asked_have_adopted(target):
    """Earlier statuses do not count, because they may be late or belong to another life."""
    replicas = target.replication.replicas
    (copy,) = replicas.by_partition.values()
    assert [one.config for _, one in replicas.host_statuses(copy)] == [copy.config] * 3
    assert target.steps() == []
    target.say(1)
    assert target.steps() == []
    target.say(2)
    assert target.steps() == [("advance", (TARGET, 2))]


@pytest.fixture
def loaded(target):
    """Return a target that is INITIALIZING and has loaded an empty range."""
    target.register.have("advance", TARGET, 2)
    target.look()
    target.moves(LOADING)
    target.say(1, 2)
    return target


def test_a_report_without_a_clock_is_none(loaded):
    """A peer may send anything; the other hosts are still asked."""
    loaded.say(OLD)
    ask = loaded.stepping._ask

    async def lie(node, *question):
        rows = msgpack.unpackb(await ask(node, *question))
        return msgpack.packb([[*row[:3], b"no clock", True] for row in rows])

    loaded.stepping._ask = lie
    assert loaded.steps() == []
    loaded.stepping._ask = ask
    assert loaded.steps() == [("advance", (TARGET, 3))]


def test_a_report_from_before_it_was_whole_is_none(loaded):
    """The reporting host may have acknowledged more since, while the target had loaded before."""
    (copy,) = loaded.replication.replicas.by_partition.values()
    copy.joining = copy.synced_joining = Bootstrap()  # Pretend that the target is still loading.
    loaded.say(OLD)

    def is_whole():
        copy.joining = copy.synced_joining = None

    loaded.while_asked.append(is_whole)
    assert loaded.steps() == []
    assert loaded.steps() == [("advance", (TARGET, 3))]


def test_a_target_waits_for_its_source_for_a_while(loaded):
    """If the source is silent for the stall time, the other hosts are enough."""
    assert loaded.steps(after_s=0) == loaded.steps(after_s=STALL_S - 1) == []
    assert loaded.steps(after_s=2) == [("advance", (TARGET, 3))]


def test_a_target_waits_from_when_it_is_whole(loaded):
    """The silence of the source before the target is complete does not count."""
    (copy,) = loaded.replication.replicas.by_partition.values()
    copy.joining = copy.synced_joining = Bootstrap()
    assert loaded.steps(after_s=0) == loaded.steps(after_s=STALL_S + 1) == []
    copy.joining = copy.synced_joining = None
    assert loaded.steps(after_s=0) == loaded.steps(after_s=STALL_S - 1) == []
    assert loaded.steps(after_s=2) == [("advance", (TARGET, 3))]


def test_a_target_waits_for_a_source_that_answers(loaded):
    """Such a source may acknowledge writes that other hosts lack, until it adopts the map."""
    loaded.say(OLD, config=loaded.register.config - 1)
    assert loaded.steps(after_s=0) == loaded.steps(after_s=STALL_S + 1) == []
    loaded.say(OLD)
    assert loaded.steps(after_s=0) == [("advance", (TARGET, 3))]


def test_a_step_is_not_asked_for_again_at_once(target):
    """The result may be on its way until the local map has changed."""
    target.say(1, 2)
    target.is_deaf = True
    assert target.steps() == [("advance", (TARGET, 2))]
    assert target.steps(after_s=RETRY_S / 2) == []
    assert target.steps(after_s=RETRY_S) == [("advance", (TARGET, 2))]
    target.moves(PROPOSED, config=target.register.config + 1)
    target.say(1, 2, config=target.register.config + 1)
    assert target.steps(after_s=0) == [("advance", (TARGET, 2))]


def test_what_is_to_be_done_on_a_table_that_has_ended(target):
    """No step is taken."""
    target.say(1, 2)
    target.known[TABLE].ended = True
    assert target.steps() == []


@pytest.fixture
def host():
    """Return the first host's node, with a PROPOSED target."""
    scene = Scene(1)
    scene.moves(PROPOSED)
    return scene


def test_a_host_asks_about_a_target_on_its_way_once_a_second(host):
    asked = []
    host.while_asked.append(lambda: asked.append(host.cluster.now))
    for _ in range(6):
        host.steps(after_s=STEP_S / 4)
    assert len(asked) == 2 * 3  # Two rounds, three other nodes.


def test_a_target_that_is_silent_is_given_up(host):
    """A target must be silent for the stall time without a break; AVAILABLE hosts are not given up."""
    host.say(2)
    assert host.steps(after_s=0) == host.steps(after_s=STALL_S - 1) == []
    host.say(TARGET, is_whole=False)
    assert host.steps(after_s=1) == []
    del host.says[TARGET]
    assert host.steps(after_s=1) == host.steps(after_s=STALL_S - 1) == []
    assert host.steps(after_s=2) == [("unassign", (TARGET,))]


@pytest.mark.parametrize("syncs", [True, False])
def test_a_target_that_confirms_nothing_is_given_up(host, syncs):
    """A target that answers but confirms no writes is given up; without writes it stays."""
    host.say(2, OLD, TARGET, is_whole=False)
    assert host.steps(after_s=STALL_S + 1) == []
    host.cluster.nodes[TARGET - 1].syncs = syncs
    host.cluster.nodes[0].write(k=b"v")
    host.cluster.pass_s(1.0)
    assert host.steps(after_s=STALL_S - 2) == []
    assert host.steps(after_s=2) == ([] if syncs else [("unassign", (TARGET,))])


def test_who_is_gone_for_good_is_taken_by_force(host):
    """Force needs an operator's word: an excluded, dead or silent node stays."""
    for weight in (1, 0):
        host.register.named[node(OLD)] = host.register.named[node(OLD)]._replace(weight=weight)
        assert host.steps(after_s=STALL_S - 1) == []
        host.say(TARGET, is_whole=False)
    host.register.named[node(OLD)] = host.register.named[node(OLD)]._replace(weight=None)
    assert host.steps() == [(FORCED, (OLD,))]


def test_a_partition_at_rest_with_one_that_is_gone_for_good(host):
    """The catalogue reveals the lost host, since the partition has nothing else to do."""
    host.register.have("unassign", TARGET)
    host.look()
    adopt(host.cluster, host.register.config, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE)
    host.cluster.pass_s(1.0)
    assert not host.replication.replicas.dirty.unsettled
    host.register.named[node(OLD)] = host.register.named[node(OLD)]._replace(weight=None)
    assert host.steps() == [(FORCED, (OLD,))]


@pytest.fixture
def left():
    """Return the replaced node: its replica has departed, and all AVAILABLE hosts have adopted the map."""
    scene = Scene(OLD)
    scene.moves(PROPOSED)
    for step in (("advance", TARGET, 2), ("advance", TARGET, 3), ("unassign", OLD)):
        scene.register.have(*step)
    scene.look()
    (copy,) = scene.replication.replicas.by_partition.values()
    scene.replication.departed[copy] = None
    scene.say(1, 2, TARGET)
    return scene


def test_what_has_departed_is_dropped(left):
    """Both the register and all AVAILABLE hosts confirm the departure."""
    assert left.drops()


def test_who_has_departed_asks_for_no_step():
    """The requests of an unassigned target would be refused again and again."""
    scene = Scene(TARGET)
    scene.moves(PROPOSED)
    scene.say(1, 2, OLD)
    (copy,) = scene.replication.replicas.by_partition.values()
    scene.replication.departed[copy] = None
    assert scene.steps() == []
    del scene.replication.departed[copy]
    assert scene.steps() == [("advance", (TARGET, 2))]


@pytest.mark.parametrize("late", [1, 2, TARGET])
def test_what_has_departed_stays_until_all_have_adopted_that(left, late):
    """A host with the old map may still send reads here for a partition that seems to have no other host."""
    del left.says[late]
    assert not left.drops()
    left.say(late, config=left.register.config - 1)
    assert not left.drops()
    left.say(late)
    assert left.drops()


def test_who_is_not_available_is_not_waited_for(left):
    """A replica that is not AVAILABLE serves no reads."""
    left.register.have("assign", 5, node(5), 1)
    left.say(1, 2, TARGET)
    assert left.drops()


def test_who_has_departed_does_not_wait_for_itself(left):
    """The node may host some of these keys again and reports nothing while the old replica exists."""
    for step in (("assign", 5, node(OLD), 1), ("advance", 5, 2), ("advance", 5, 3)):
        left.register.have(*step)
    left.say(1, 2, TARGET)
    assert left.drops()


def test_what_the_register_names_stays(left):
    """The register outweighs the local map."""
    left.register = MovedMap()
    for step in (("assign", TARGET, node(TARGET), OLD - 1), ("advance", TARGET, 2), ("advance", TARGET, 3)):
        left.register.have(*step)
    left.say(1, 2, TARGET)
    assert not left.drops()  # The replica is LEAVING.
    left.register.have("unassign", OLD)
    left.say(1, 2, TARGET)
    assert left.drops()


def test_what_has_departed_stays_without_a_full_round(left):
    """The local map may be old."""
    left.has_majority = False
    assert not left.drops()
    left.has_majority = True
    assert left.drops()


def test_what_has_departed_goes_by_what_a_full_round_shows(left):
    """The AVAILABLE hosts of the register's map must have adopted it, not those of the local map."""
    for step in (("assign", 5, node(5), 1), ("advance", 5, 2), ("advance", 5, 3), ("unassign", 2)):
        left.register.have(*step)
    assert not left.drops()
    left.say(1, 5, TARGET)
    assert left.drops()


def test_what_was_let_go_of_while_others_were_asked_is_not_dropped(left):
    """The replica may have been quarantined by a forced map in between."""
    left.while_asked.append(left.replication.departed.clear)
    assert not left.drops()
