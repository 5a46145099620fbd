"""Aimed scenarios of published keys: large branches, full branches and withdrawn keys."""

from __future__ import annotations

from gossipkv.errors import TooLarge
from gossipkv.gossip.core import GossipLimits
from gossipkv.gossip.tree.limits import TreeLimits
from tests.simulation.scene import Scene
from tests.world.gossip.members import gossip
from tests.world.scheduler import MS, SECOND

TINY = TreeLimits(max_branch_bytes=6144, protocol_branch_bytes=8192)  # Room for a few dozen keys.


def large_branches():
    """Branches of many packets over bad links show only states that their owners had, and finally all of them."""
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
    """Ten members publish too much at once: each owner is refused, and all show the same branches.

    Some members have a lower limit of their own, which no other member enforces.
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
        for machine in scene.machines:  # Withdraw keys, because replacements have no room beside the tombstones.
            for path in list(scene.history.published(machine))[turn:]:
                scene.history.withdraw(machine, path)
    if any(gossip(machine).tree.counters["branch_refused"] for machine in scene.machines):
        scene.broken("nobody_else_refuses", "what an owner may publish")
    scene.must_heal(20 * SECOND)
    return scene.result()


def withdrawn():
    """Withdrawn keys stay gone at a member that was away, even if their tombstones are gone when it is back."""
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
        scene.publish_all(keys=1, place="deep/er")  # This change is told after the ones that were missed.
        scene.must_heal(15 * SECOND)
        scene.publish_all(keys=12)
        scene.must_heal(10 * SECOND)
    return scene.result()
