"""The mover's core: what it asks for, of a map at hand."""

from __future__ import annotations

import random

import trio

from gossipkv.table.moving import Moving
from tests.unit.table.moved_map import FIRST, MovedMap, node


async def _beside(do):
    return do()


def mover(world, *, alive=(1, 2, 3, 4), most=1):
    """The one of the first node, which is the first that lives."""
    return Moving(
        world,
        world,
        alive=lambda: [*map(node, alive)],
        beside=_beside,
        random=random.Random(1),
        most=most,
    )


def looks(moving, times=1):
    """It looks at all tables."""

    async def look():
        for _ in range(times):
            await moving.look()

    trio.run(look)


def remove(world, number):
    """Have a node hold nothing any more."""
    world.named[node(number)] = world.named[node(number)]._replace(weight=0)


def test_a_death_changes_nothing_that_is_wanted():
    """Who is dead keeps its place, though another one is there to take it."""
    world = MovedMap()
    looks(mover(world, alive=(1, 2, 4)), times=3)
    assert world.asked == []


def test_who_is_taken_out_is_replaced():
    """By people: one transaction assigns the slot to another node, and the next look waits for that."""
    world = MovedMap()
    remove(world, 3)
    looks(mover(world), times=2)
    ((name, (_, _, assignment, target, slot)),) = world.asked
    assert (name, target, slot) == ("assign", node(4), 2)
    assert assignment not in {1, 2, 3}


def test_an_id_is_given_once():
    """Though the same node comes to the same slot again: clocks, ends and tokens go by it."""
    world = MovedMap()
    ids = set()
    for seed in range(3):
        remove(world, 3)
        moving = mover(world)
        moving._random.seed(seed)
        looks(moving)
        (_, (_, _, assignment, _, _)) = world.asked[-1]
        assert assignment not in ids
        ids.add(assignment)
        world.have("unassign", assignment)


def test_each_step_raises_the_version_of_its_partition():
    """And of no other: by it a node finds what has changed, and a client that its own map is an old one."""
    world = MovedMap(shards=2)
    remove(world, 3)
    looks(mover(world))
    ((_, (_, partition, assignment, _, _)),) = world.asked
    assert partition == world.partitions[0].id
    config = world.config
    assert world.versions == [config, FIRST]
    for step in (("advance", assignment, 2), ("advance", assignment, 3), ("unassign", 3), ("settle", ((3, 1),))):
        world.have(*step)
        config += 1
        assert world.versions == [config, FIRST]
