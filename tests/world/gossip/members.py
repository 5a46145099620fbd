"""Members on simulated machines: the program of each machine, and a formed cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.node.gossip import ClaimsInTree, ShardIdTimer
from gossipkv.placement.shard_claim import ShardClaim
from tests.world.gossip.history import core_of
from tests.world.gossip.rig import GossipRig, rig_of, running
from tests.world.scheduler import MS, SECOND
from tests.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.gossip.member import MemberState
    from gossipkv.gossip.packets.sealing import Sealing
    from gossipkv.gossip.profile import TimingProfile
    from gossipkv.gossip.protocols import TreePlace
    from gossipkv.node.identity import NodeRecord
    from tests.world.gossip.program import Boot, Core
    from tests.world.machine import Machine

SETTLE_MS = 3000  # Short, since a simulated run has little time.
MAX_FORMING_US = 300 * SECOND
CLUSTER = "simulated"


def program(
    profile: TimingProfile,
    cluster: str = CLUSTER,
    limits: GossipLimits | None = None,
    sealing: Callable[[Boot], Sealing] | None = None,
) -> Callable[[Machine], GossipRig]:
    """Return the program of each machine: a production member; with a `sealing`, it sends sealed packets only."""

    def start(boot: Boot) -> Core:
        me = Me(boot.name, boot.uuid, boot.epoch, boot.address, cluster, boot.cluster_id, boot.pinned)
        seals = None if sealing is None else sealing(boot)
        envelope = Envelope(cluster, boot.cluster_id, seals, Seal.REQUIRE)
        limited = limits or GossipLimits()
        return Gossip(me, profile, boot.random, limits=limited, envelope=envelope, silent=boot.silent)

    return running(start)


def claim(core: Core, kept: NodeRecord, expected: int = 0) -> TreePlace:
    """Return the claim of a place in the ring for a member."""
    assert isinstance(core, Gossip), core
    own = core.members.own
    wanted = ShardClaim(
        ClaimsInTree(core.tree),
        name=own.name,
        uuid=own.uuid,
        address=own.address,
        configured=None,
        remembered=str(kept.shard_id) if kept.shard_id else None,
        settle_ms=SETTLE_MS,
        expected=expected,
    )
    return ShardIdTimer(core, wanted, waits=False)


def formed(
    seed: int, members: int, profile: TimingProfile, *, limits: GossipLimits | None = None, settle_us: int = 10 * SECOND
) -> World:
    """Return a cluster in which every member knows all others, after a quiet time."""
    world = World(seed)
    start = program(profile, limits=limits)
    chance = world.streams["joins"]
    for number in range(members):
        machine = world.add(f"m{number}", start)
        rig_of(machine).claim = claim
        machine.joins += [other.address for other in world.machines[: min(number, 3)]]
        # The first gets its cluster id before the others come.
        world.scheduler.at(int((0.1 + 2 * chance.random()) * SECOND) * (number > 0), machine.start)
    while not all(knows(machine, members) for machine in world.machines):
        assert world.now_us < MAX_FORMING_US, f"{members} members do not come together"
        world.run(200 * MS)
    world.run(settle_us)
    return world


def knows(machine: Machine, members: int) -> bool:
    """Return True if the machine's member sees this many members alive."""
    core = core_of(machine)
    return core is not None and len(core.members.live()) == members


def gossip(machine: Machine) -> Gossip:
    """Return the member that runs on a machine; fail if the machine is down."""
    core = core_of(machine)
    assert core is not None, f"{machine.name} is down"
    return core


def state_of(machine: Machine, other: Machine) -> MemberState | None:
    found = next((each for each in gossip(machine).members.list() if each.name == other.name), None)
    return None if found is None else found.state
