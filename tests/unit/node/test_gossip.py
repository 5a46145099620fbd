"""A node's place in the ring: its timer and its results."""

from __future__ import annotations

import random

import pytest

from gossipkv.address import Address
from gossipkv.environment import trio_world
from gossipkv.errors import ConfigError
from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.membership.timers import NEVER
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import BranchChange, Delta
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from gossipkv.node.gossip import LOOK_MS, ClaimsInTree, ShardIdTimer, read_key_ring, refuse_strangers
from gossipkv.placement.shard_claim import ShardClaim
from gossipkv.settings.config import load

SETTLE_MS = 10_000
ADDRESS = Address("10.0.0.1", 7070)
OTHER = Member(member_id("b"), "b", bytes(16), Address("10.0.0.2", 7070), 1, 0, MemberState.ALIVE)


@pytest.fixture
def core() -> Gossip:
    """Return the core of a node that is alone."""
    me = Me("a", b"u" * 16, 1, ADDRESS, "c", NO_CLUSTER, pinned=False)
    return Gossip(me, LAN, random.Random(1), limits=GossipLimits(), envelope=Envelope("c"))


def timer_of(
    core: Gossip, *, configured: str | None = None, remembered: str | None = None, waits: bool
) -> ShardIdTimer:
    claim = ShardClaim(
        ClaimsInTree(core.tree),
        name="a",
        uuid=b"u" * 16,
        address=ADDRESS,
        configured=configured,
        remembered=remembered,
        settle_ms=SETTLE_MS,
    )
    return ShardIdTimer(core, claim, waits=waits)


def test_who_is_alone_claims_at_once_and_is_confirmed_in_time(core: Gossip) -> None:
    """The id 1 is free, and is passed on for storing after the convergence time."""
    place = timer_of(core, waits=False)
    assert place.wakes_at_ms == NEVER
    place.start(now_ms=1000)
    assert place.wakes_at_ms == 1000
    assert place.step(now_ms=1000) is None
    assert place.shard_id == "1"
    assert place.step(now_ms=1001) is None  # The node's own publication is a change, too.
    assert place.wakes_at_ms == 1000 + SETTLE_MS
    assert place.step(now_ms=1000 + SETTLE_MS) == 1
    place.step(now_ms=1000 + SETTLE_MS)
    assert place.wakes_at_ms == NEVER


def test_a_silent_node_claims_nothing() -> None:
    """No member could object, so the claim and its time begin when the node speaks."""
    me = Me("a", b"u" * 16, 1, ADDRESS, "c", NO_CLUSTER, pinned=False)
    core = Gossip(me, LAN, random.Random(1), limits=GossipLimits(), envelope=Envelope("c"), silent=True)
    place = timer_of(core, waits=False)
    place.start(now_ms=0)
    assert place.wakes_at_ms == NEVER
    core.speak(now_ms=60_000)
    place.start(now_ms=60_000)
    assert place.wakes_at_ms == 60_000
    place.step(now_ms=60_000)
    place.step(now_ms=60_001)
    assert (place.shard_id, place.wakes_at_ms) == ("1", 60_000 + SETTLE_MS)


def test_who_joins_looks_around_first(core: Gossip) -> None:
    """A newcomer waits until it knows another member's place, and a second at most."""
    place = timer_of(core, waits=True)
    place.start(now_ms=0)
    assert place.wakes_at_ms == LOOK_MS
    core.tree.on_member(OTHER)
    core.tree.apply(
        Delta(OTHER.id, 1, 0, 0, 1, 1, reset=False, changes=(BranchChange(1, f"nodes/1@{OTHER.address}", b"?"),))
    )
    assert place.wakes_at_ms == 0
    place.step(now_ms=0)
    assert place.shard_id == "2"


def test_a_claim_of_another_is_looked_at_at_once(core: Gossip) -> None:
    place = timer_of(core, waits=False)
    place.start(now_ms=0)
    for now_ms in (0, 1):
        place.step(now_ms=now_ms)
    core.tree.on_member(OTHER)
    core.tree.apply(
        Delta(OTHER.id, 1, 0, 0, 1, 1, reset=False, changes=(BranchChange(1, f"nodes/9@{OTHER.address}", b"?"),))
    )
    assert place.wakes_at_ms == 0
    place.step(now_ms=2)
    assert place.wakes_at_ms == SETTLE_MS


def test_a_configured_place_is_taken_as_it_is(core: Gossip) -> None:
    """A configured place is never contested."""
    place = timer_of(core, configured="7", waits=False)
    place.start(now_ms=0)
    assert place.step(now_ms=0) == 7
    place.step(now_ms=1)
    assert place.wakes_at_ms == NEVER
    assert core.tree.children("nodes") == [f"7@{ADDRESS}"]


def test_a_claim_stands_only_before_others(core: Gossip, monkeypatch: pytest.MonkeyPatch) -> None:
    """An isolated node checks every second, and the time counts from the end of the isolation."""
    alone = True
    monkeypatch.setattr(Gossip, "isolated", lambda _self, *, now_ms: alone and now_ms > 0)
    place = timer_of(core, waits=False)
    place.start(now_ms=0)
    place.step(now_ms=0)
    now_ms = 5000
    for _ in range(20):
        assert place.step(now_ms=now_ms) is None
        assert place.wakes_at_ms == now_ms + LOOK_MS
        now_ms += LOOK_MS
    alone = False
    assert place.step(now_ms=now_ms) is None
    assert place.wakes_at_ms == now_ms + SETTLE_MS
    assert place.step(now_ms=now_ms + SETTLE_MS) == 1


def test_entries_in_portions(core: Gossip) -> None:
    """Entries are ordered by name and owner; withdrawn keys vanish, and those of dead owners are marked."""
    core.tree.publish("p/b", b"mine")
    core.tree.on_member(OTHER)
    changes = tuple(BranchChange(at, f"p/{name}", b"?") for at, name in enumerate("abc", 1))
    core.tree.apply(Delta(OTHER.id, 1, 0, 0, 3, 3, reset=False, changes=changes))
    keys = core.tree.keys("p")
    whole = core.tree.entries("p", now_ms=0)
    assert [(entry.name, entry.owner) for entry in whole] == [("a", "b"), ("b", ""), ("b", "b"), ("c", "b")]
    assert [core.tree.entry("p", *key, now_ms=0) for key in keys] == whole
    core.tree.withdraw("p/b")
    core.tree.on_member(OTHER._replace(state=MemberState.DEAD))
    told = [core.tree.entry("p", *key, now_ms=0) for key in keys]
    assert [entry and (entry.name, entry.state) for entry in told] == [
        ("a", MemberState.DEAD), None, ("b", MemberState.DEAD), ("c", MemberState.DEAD),
    ]  # fmt: skip
    assert core.tree.entries("p", now_ms=0) == []
    assert [entry.name for entry in core.tree.entries("p", now_ms=0, all=True)] == ["a", "b", "c"]


def test_seals_without_keys_are_refused() -> None:
    """A node that asks for seals without a key ring must not run unencrypted."""
    world = trio_world.real()
    assert read_key_ring(load(), world) is None
    with pytest.raises(ConfigError, match="GOSSIPKV_SEAL: seal = 'require' needs a key ring"):
        read_key_ring(load(environ={"GOSSIPKV_SEAL": "require"}), world)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "fd00::1"])
def test_strangers_can_speak_only_where_that_is_said(host: str) -> None:
    """Beyond loopback a node needs keys, or an explicit setting."""
    bound = Address(host, 7)
    environ = {"GOSSIPKV_LISTEN": str(bound)}
    with pytest.raises(
        ConfigError, match=r"GOSSIPKV_LISTEN: listen = .*: without keys, .*; make keys .*insecure_gossip"
    ):
        refuse_strangers(load(environ=environ), bound)
    refuse_strangers(load(environ={**environ, "GOSSIPKV_INSECURE_GOSSIP": "true"}), bound)
    for here in ("127.0.0.1", "127.9.9.9", "::1"):
        refuse_strangers(load(), Address(here, 7))
