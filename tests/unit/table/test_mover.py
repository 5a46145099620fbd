"""The core of the rebalancer: its requests for a given map."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from gossipkv.errors import NotReady
from gossipkv.placement.measures import MeasureLimits
from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers.plan import RangeHosts
from gossipkv.table.controllers.rebalancer import FAILURES, PASSED_OVER_S, Rebalancer
from tests.unit.table.local_tables import local_tables
from tests.unit.table.moved_map import FIRST, TABLE, MovedMap, node

STALL_S = 60.0


class Mover:
    """The rebalancer of the first node, which is the first live one."""

    def __init__(self, world, *, alive=(1, 2, 3, 4), most=1):
        self.world = world
        self.alive = alive
        self.planned = 0  # The number of computed placements.
        tables = local_tables(
            metadata=world, catalogue=world, alive=lambda: [*map(node, self.alive)], beside=self._beside,
            random=world.random, settings=TableSettings(max_moves=most, move_stall=int(STALL_S * 1000)),
        )  # fmt: skip
        hosts = RangeHosts(None, None, MeasureLimits(0, 0), is_on=True)  # Only range tables use these.
        self.moving = Rebalancer(tables, hosts)

    async def _beside(self, do):
        self.planned += 1
        return do()

    async def looks(self, times=1):
        """Look at all tables; return the requests."""
        self.world.asked.clear()
        for _ in range(times):
            await self.moving.look()
        return [(name, *argument[2:]) for name, argument in self.world.asked]


def looks(mover, times=1):
    return trio.run(mover.looks, times)


def assigned(asked):
    """Return the assignment, node and slot of the only begun move."""
    ((name, *what),) = asked
    assert name == "assign", asked
    return what


def remove(world, number):
    world.named[node(number)] = world.named[node(number)]._replace(weight=0)


def test_a_death_changes_nothing_that_is_wanted():
    assert looks(Mover(MovedMap(), alive=(1, 2, 4)), times=3) == []


def test_who_is_taken_out_is_replaced():
    """One transaction assigns the slot of the removed node to another node, and no other request follows."""
    world = MovedMap()
    remove(world, 3)
    assignment, *to = assigned(looks(Mover(world), times=3))
    assert (to, assignment in {1, 2, 3}) == ([node(4), 2], False)


def test_the_first_server_that_lives_acts():
    """The first live server acts by convention, and an ended table has no moves."""
    world = MovedMap(servers=(1, 2))
    remove(world, 3)
    mover = Mover(world)
    world.me.node = node(2)
    assert looks(mover) == []
    world.me.node = node(3)
    mover.alive = (3, 4)
    assert looks(mover) == []  # No server lives.
    world.me.node = node(2)
    mover.alive = (2, 3, 4)
    world.known[TABLE].ended = True
    assert looks(mover) == []
    world.known[TABLE].ended = False
    assert len(looks(mover)) == 1


def test_while_the_catalogue_names_nobody_nothing_moves():
    """Without known nodes no move is begun or taken back."""
    world = MovedMap()
    remove(world, 3)
    assert len(looks(Mover(world))) == 1
    world.named = {}
    assert looks(Mover(world)) == []


def test_a_target_that_is_dead_is_not_begun():
    """The move would be given up again."""
    world = MovedMap()
    remove(world, 3)
    assert looks(Mover(world, alive=(1, 2, 3))) == []


def test_a_target_that_was_dead_is_begun():
    """The move begins once the target lives again, although map and nodes are unchanged."""
    world = MovedMap()
    remove(world, 3)
    mover = Mover(world, alive=(1, 2, 3))
    assert looks(mover) == []
    mover.alive = (1, 2, 3, 4)
    assert len(looks(mover)) == 1


def test_what_could_not_be_begun_is_begun_the_next_time():
    """The first transaction has no majority."""
    world = MovedMap()
    remove(world, 3)
    mover, transact = Mover(world), world.transact

    async def refuses(table, operations, timeout_s):
        raise NotReady("no majority answers")

    world.transact = refuses
    assert looks(mover) == []
    world.transact = transact
    assert len(looks(mover)) == 1


def test_an_id_is_given_once():
    """Clocks, ends and tokens use the id, so even the same node and slot get a new one."""
    world = MovedMap()
    remove(world, 3)
    ids = set()
    for _ in range(3):
        assignment, *to = assigned(looks(Mover(world)))
        assert (to, assignment in ids) == ([node(4), 2], False)
        ids.add(assignment)
        world.have("unassign", assignment)


async def fails(mover, *, loads=True):
    """Begin a move and give its target up, after the load began if `loads`; then let some time pass."""
    assignment, *_ = assigned(await mover.looks(2))
    if loads:
        mover.world.have("advance", assignment, 2)
        assert await mover.looks() == []
    mover.world.have("unassign", assignment)
    await trio.sleep(STALL_S)


async def test_who_fails_twice_is_passed_over(autojump_clock):
    """The partition stays with its old host."""
    world = MovedMap()
    remove(world, 3)
    mover = Mover(world)
    for number in range(FAILURES):
        assert mover.moving.passed_over == {}
        await fails(mover, loads=number > 0)
    assert await mover.looks(2) == []
    assert mover.moving.passed_over == {node(4): trio.current_time() + PASSED_OVER_S}


async def test_who_was_passed_over_is_a_target_again(autojump_clock):
    """After an hour the node is a target again and may fail twice, although map and nodes are unchanged."""
    world = MovedMap()
    remove(world, 3)
    mover = Mover(world)
    for _ in range(FAILURES):
        await fails(mover)
    assert await mover.looks() == []
    await trio.sleep(PASSED_OVER_S - 1)
    assert await mover.looks() == []
    await trio.sleep(1)
    await fails(mover)
    assert len(await mover.looks()) == 1


async def test_who_has_come_once_has_not_failed(autojump_clock):
    """Only failures in a row count, and only if the target was given up."""
    world = MovedMap()
    mover = Mover(world)
    for _ in range(FAILURES + 1):
        remove(world, 3)
        await fails(mover)
        assignment, *_ = assigned(await mover.looks(2))
        world.have("advance", assignment, 2)
        assert await mover.looks() == []
        world.have("advance", assignment, 3)
        assert await mover.looks() == []
        world.have("unassign", next(one.id for one in world.partitions[0].assignments if one.node == node(3)))
        assert await mover.looks() == []
        world.named[node(3)] = world.named[node(3)]._replace(weight=1)
        remove(world, 4)
        back, *_ = assigned(await mover.looks(2))
        for state in (2, 3):
            world.have("advance", back, state)
        world.have("unassign", assignment)
        world.have("settle", tuple((one, 0) for one in world.partitions[0].former))
        world.named[node(4)] = world.named[node(4)]._replace(weight=1)
    assert mover.moving.passed_over == {}


async def test_what_is_not_wanted_any_more_is_taken_back():
    """A move that is taken back is no failure of its target."""
    world = MovedMap()
    mover = Mover(world)
    for _ in range(FAILURES + 1):
        remove(world, 3)
        assignment, *_ = assigned(await mover.looks(2))
        world.named[node(3)] = world.named[node(3)]._replace(weight=1)
        remove(world, 4)
        assert await mover.looks(2) == [("unassign", assignment)]
        world.named[node(4)] = world.named[node(4)]._replace(weight=1)
    assert mover.moving.passed_over == {}


def test_what_is_wanted_is_computed_when_nodes_change():
    """A move alone does not cause a new computation."""
    world = MovedMap()
    mover = Mover(world)
    looks(mover, times=3)
    assert mover.planned == 1
    remove(world, 3)
    assignment, *_ = assigned(looks(mover, times=2))
    for state in (2, 3):
        world.have("advance", assignment, state)
        looks(mover)
    assert mover.planned == 2


def test_a_newcomer_is_put_into_a_group_first():
    """The newcomer becomes a target afterwards."""
    world = MovedMap(nodes=3, groups=((1, 2, 3),))
    assert looks(Mover(world)) == []
    world.name(4)
    mover = Mover(world)
    ((name, *_),) = looks(mover)
    assert name == "set_groups"
    remove(world, 3)
    asked = [name for name, *_ in looks(mover, times=2)]
    assert asked == ["set_groups", "assign"]


def test_each_step_raises_the_version_of_its_partition():
    """By the version, nodes find changed partitions and clients detect an old map."""
    world = MovedMap(shards=2)
    remove(world, 3)
    assignment, *_ = assigned(looks(Mover(world)))
    config = world.config
    assert world.versions == [config, FIRST]
    for step in (("advance", assignment, 2), ("advance", assignment, 3), ("unassign", 3), ("settle", ((3, 1),))):
        world.have(*step)
        config += 1
        assert world.versions == [config, FIRST]


def test_targets_that_fail_together_have_failed_once():
    """If all partitions give up an absent node, that is a single outage."""
    world = MovedMap()
    remove(world, 3)
    mover = Mover(world)

    async def scenario():
        for _ in range(FAILURES):
            assignment, *_ = assigned(await mover.looks(2))
            mover.world.have("unassign", assignment)
        assert len(await mover.looks(2)) == 1
        assert mover.moving.passed_over == {}

    trio.run(scenario, clock=MockClock())
