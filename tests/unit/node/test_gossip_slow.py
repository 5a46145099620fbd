"""Slow tests of a node's gossip; the fast ones are in `test_gossip.py`."""

from __future__ import annotations

import contextlib
import random
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment import small_file, trio_world
from gossipkv.errors import NotReady, TooLarge
from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.key_ring import Key, key, line_of
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.shell import key_file
from gossipkv.node.directory import DataDirectory
from gossipkv.node.gossip import Gossiping, read_key_ring
from gossipkv.node.identity import read_node
from gossipkv.settings.config import load
from gossipkv.table.ports import may_not_found

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ADDRESS = Address("10.0.0.1", 7070)
HERE = Address("127.0.0.1", 7070)
OTHER = Member(member_id("b"), "b", bytes(16), Address("10.0.0.2", 7070), 1, 0, MemberState.ALIVE)


@pytest.fixture
def core() -> Gossip:
    """Return the core of a node that is alone."""
    me = Me("a", b"u" * 16, 1, ADDRESS, "c", NO_CLUSTER, pinned=False)
    return Gossip(me, LAN, random.Random(1), limits=GossipLimits(), envelope=Envelope("c"))


@contextlib.asynccontextmanager
async def gossiping_in(path: Path, *joins: Address) -> AsyncIterator[tuple[Gossiping, DataDirectory]]:
    """Run the gossip of a node with these seeds for the block."""
    world = trio_world.real()
    with (
        DataDirectory.open(path, world.files, cluster="gossipkv", random=random.Random(1)) as directory,
        closing(world.sockets.datagrams("127.0.0.1", 0)) as datagrams,
    ):
        settings = load(flags={"join": ",".join(map(str, joins))})
        gossiping = Gossiping(settings, world, directory, datagrams=datagrams, address=HERE, sealing=None)
        async with trio.open_nursery() as own:
            await own.start(gossiping.agent.run)
            yield gossiping, directory
            own.cancel_scope.cancel()


async def has_id(directory: DataDirectory) -> None:
    """Wait until the node has a cluster id."""
    with trio.fail_after(60):
        while not directory.record.cluster_id:
            await trio.sleep(0.001)


async def test_misfits_are_listed_with_the_members(tmp_path: Path) -> None:
    """A former member keeps its row and its state; an address that was never a member gets a row of its own."""
    async with gossiping_in(tmp_path) as (gossiping, _):
        gossiping._core._beliefs.hear_record(OTHER, now_ms=0)
        stranger = Address("10.0.0.9", 7070)
        gossiping.agent.misfits |= {OTHER.address: "of b", stranger: "of a stranger"}
        rows = [row for row in gossiping.members() if isinstance(row, dict)]
        assert [(row["node"], row["state"]) for row in rows if row["misfit"]] == [
            (OTHER.name, "alive"), (str(stranger), "misfit"),
        ]  # fmt: skip
        assert gossiping.misfits() == {OTHER.name: "of b", str(stranger): "of a stranger"}


async def test_a_pin_survives_the_node(tmp_path: Path) -> None:
    """The pin is durable when the call returns, and the next start knows it with the id."""
    ids = set()
    for was_pinned in (False, True):
        async with gossiping_in(tmp_path) as (gossiping, directory):
            assert (gossiping._core.pinned, directory.record.pinned) == (was_pinned, was_pinned)
            await has_id(directory)
            ids.add(await gossiping.pin())
            assert gossiping._core.pinned
            kept = read_node(trio_world.real().files, tmp_path)
            assert kept is not None
            assert kept.pinned
            ids.add(bytes.fromhex(kept.cluster_id))
    assert len(ids) == 1


async def test_who_has_no_cluster_is_not_pinned(tmp_path: Path) -> None:
    """Tables of such a node would belong to no cluster: the call fails, and the node still takes any id."""
    async with gossiping_in(tmp_path, Address("127.0.0.1", 1)) as (gossiping, directory):
        with pytest.raises(NotReady, match="not in a cluster yet"):
            await gossiping.pin()
        assert not gossiping._core.pinned
        assert not directory.record.pinned


async def test_who_is_alone_draws_its_id(tmp_path: Path) -> None:
    """NODE records with the id that this node drew it, and later starts know that."""
    for _ in range(2):
        async with gossiping_in(tmp_path) as (_, directory):
            await has_id(directory)
            assert may_not_found(directory.record, directory.record.cluster_id) is None


async def test_a_key_ring_that_blocks_keeps_no_node_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading task, on a hanging file system, is abandoned."""
    world, goes_on, ended = trio_world.real(), threading.Event(), threading.Event()
    ring = tmp_path / "ring"
    small_file.write_text(ring, line_of(key(bytes(32))))
    config = load(environ={"GOSSIPKV_KEY_RING": str(ring)})
    sealing = read_key_ring(config, world)

    def hang(_path: Path) -> tuple[Key, ...]:
        goes_on.wait(60)
        ended.set()
        return ()

    with (
        DataDirectory.open(tmp_path / "data", world.files, cluster="c", random=random.Random(1)) as directory,
        closing(world.sockets.datagrams("127.0.0.1", 0)) as datagrams,
    ):
        gossiping = Gossiping(config, world, directory, datagrams=datagrams, address=ADDRESS, sealing=sealing)
        monkeypatch.setattr(key_file, "read", hang)
        with trio.move_on_after(0.01):
            await gossiping.read_keys(world)
    assert not ended.is_set()
    goes_on.set()


async def test_what_is_refused_is_seen_and_leaves_the_rest(tmp_path: Path) -> None:
    """The settings limit this node's keys; published keys stay, and the error reports missing ones."""
    world = trio_world.real()
    config = load(environ={"GOSSIPKV_MAX_BRANCH": "16KiB", "GOSSIPKV_MAX_ENTRY": "1KiB"})
    with (
        DataDirectory.open(tmp_path / "data", world.files, cluster="c", random=random.Random(1)) as directory,
        closing(world.sockets.datagrams("127.0.0.1", 0)) as datagrams,
    ):
        gossiping = Gossiping(config, world, directory, datagrams=datagrams, address=ADDRESS, sealing=None)
        with pytest.raises(TooLarge, match="max_entry is 1024"):
            gossiping.publish("k", bytes(1024))
        gossiping.withdraw("k")
        assert gossiping.publish_error() is None
        for number in range(15):
            gossiping.publish(f"k/{number}", bytes(800))
        with pytest.raises(TooLarge, match="max_branch is 16384"):
            gossiping.publish("k/15", bytes(800))
        assert gossiping.publish_error() is not None
        assert gossiping.keys("k", everything=True)
        assert gossiping.withdraw("k/0")
        gossiping.publish("k/15", bytes(800))
        assert gossiping.publish_error() is None


async def test_members_are_counted_by_state(tmp_path: Path) -> None:
    """Each state has its number, even zero; a node that may not speak counts as `silent`."""
    world = trio_world.real()
    with (
        DataDirectory.open(tmp_path / "data", world.files, cluster="c", random=random.Random(1)) as directory,
        closing(world.sockets.datagrams("127.0.0.1", 0)) as datagrams,
    ):
        gossiping = Gossiping(load(), world, directory, datagrams=datagrams, address=ADDRESS, sealing=None)
        assert gossiping.members_by_state() == {"alive": 1, "suspect": 0, "dead": 0, "left": 0}
        words = [member["state"] for member in gossiping.members() if isinstance(member, dict)]
        assert words == ["alive"]
        gossiping._core._outbox.silent = True
        assert gossiping.members_by_state() == {"alive": 0, "suspect": 0, "dead": 0, "left": 0, "silent": 1}


async def test_a_slow_reading_of_the_key_ring_does_not_undo_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of the second SIGHUP stay, even if its read ends first."""
    world, goes_on = trio_world.real(), threading.Event()
    ring = tmp_path / "ring"
    old, new = key(bytes(32)), key(b"n" * 32)
    small_file.write_text(ring, line_of(old))
    config = load(environ={"GOSSIPKV_KEY_RING": str(ring)})
    sealing = read_key_ring(config, world)
    assert sealing is not None
    began = threading.Event()

    def slow_at_first(_path: Path) -> tuple[Key, ...]:
        if began.is_set():
            return (new,)
        began.set()
        goes_on.wait(60)
        return (old,)

    with (
        DataDirectory.open(tmp_path / "data", world.files, cluster="c", random=random.Random(1)) as directory,
        closing(world.sockets.datagrams("127.0.0.1", 0)) as datagrams,
    ):
        gossiping = Gossiping(config, world, directory, datagrams=datagrams, address=ADDRESS, sealing=sealing)
        monkeypatch.setattr(key_file, "read", slow_at_first)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gossiping.read_keys, world)
            while not began.is_set():
                await trio.sleep(0.001)
            await gossiping.read_keys(world)
            goes_on.set()
    assert sealing.keys == (new,)
