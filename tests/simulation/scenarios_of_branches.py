"""Scenarios with an aim at what members publish: large branches, full ones, keys that are withdrawn."""

from __future__ import annotations

from gossipkv.errors import TooLarge
from gossipkv.gossip.core import GossipLimits
from gossipkv.gossip.tree.limits import TreeLimits
from tests.simulation.scene import Scene
from tests.world.gossip.members import gossip
from tests.world.scheduler import MS, SECOND

TINY = TreeLimits(max_branch_bytes=6144, protocol_branch_bytes=8192)  # Of a few dozen keys.


def large_branches():
    """Branches of many packets over bad links: only states that their owners had, and in the end all."""
    scene = Scene(5)
    usual = scene.world.network.usual
    usual.loss, usual.reorder, usual.duplicate = 0.2, 0.3, 0.1
    scene.world.network.changed()
    for turn in range(8):
        for machine in scene.machines:
            for key in range(25):
                if (key + turn) % 5 == 0:
                    scene.history.withdraw(machine, f"deep/er/{key}")
                else:
                    value = b"%d:%d" % (turn, scene.world.now_us)
                    scene.history.publish(machine, f"deep/er/{key}", value + bytes(150))
        scene.look_for(2 * SECOND, every_us=50 * MS)
        away = scene.chance.choice(scene.machines)
        scene.world.network.partition([away], [machine for machine in scene.machines if machine is not away])
        scene.look_for(4 * SECOND)
        scene.world.network.join(scene.machines)
        scene.look_for(3 * SECOND, every_us=50 * MS)
    scene.world.network.heal()
    scene.must_heal(20 * SECOND)
    return scene.result()


def full_branches(seed=1):
    """Ten publish at once more than they may: each is refused itself, and all show the same of everybody.

    Some may publish less than others, which is nobody's business but their own.
    """
    scene = Scene(10, limits=GossipLimits(tree=TINY), seed=seed)
    modest = TreeLimits(max_branch_bytes=2048, protocol_branch_bytes=TINY.protocol_branch_bytes)
    for machine in scene.machines[::3]:
        gossip(machine).tree.limits = modest
    for turn in range(4):
        refused = dict.fromkeys((machine.name for machine in scene.machines), 0)
        for number in range(40):
            for machine in scene.machines:
                try:
                    scene.history.publish(machine, f"keys/{turn}.{number}", b"%d" % number)
                except TooLarge:
                    refused[machine.name] += 1
        if not all(refused.values()):
            scene.broken("owners_are_refused", f"in turn {turn} {refused}")
        scene.must_heal(20 * SECOND)
        for machine in scene.machines:  # What replaces these has no room beside their tombstones.
            for path in list(scene.history.published(machine))[turn:]:
                scene.history.withdraw(machine, path)
    if any(gossip(machine).tree.counters["branch_refused"] for machine in scene.machines):
        scene.broken("nobody_else_refuses", "what an owner may publish")
    scene.must_heal(20 * SECOND)
    return scene.result()


def withdrawn():
    """Keys are withdrawn while somebody is away: their tombstones may be gone when it is back, the keys stay gone."""
    scene = Scene(4)
    scene.publish_all(keys=12)
    scene.look_for(2 * SECOND)
    for turn in range(6):
        away = scene.machines[turn % 4]
        scene.world.network.partition([away], [machine for machine in scene.machines if machine is not away])
        scene.look_for(12 * SECOND)
        for machine in scene.machines:
            for key in range(0, 12, 2):
                scene.history.withdraw(machine, f"keys/{key}")
        scene.look_for(12 * SECOND)
        scene.world.network.heal()
        scene.publish_all(keys=1, place="deep/er")  # A change that is told behind those that were missed.
        scene.must_heal(15 * SECOND)
        scene.publish_all(keys=12)
        scene.must_heal(10 * SECOND)
    return scene.result()
