"""Documents beside the versions: the active version with its owners, and refuted functions."""

import errno
from dataclasses import replace
from pathlib import PurePath
from types import SimpleNamespace

import pytest
import trio

from gossipkv.address import Address
from gossipkv.dataset.lifecycle.switching import Switching
from gossipkv.dataset.lifecycle.version_states import Life, VersionWord
from gossipkv.dataset.local.active import ActiveDocument
from gossipkv.dataset.local.store import VersionStore
from gossipkv.log import Log
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import Sealed
from tests.unit.dataset.build.test_steps import with_a_deep_stray
from tests.unit.dataset.lifecycle.test_copies import Cluster, N
from tests.unit.dataset.simulated_node import DATABASE, SimulatedNode
from tests.world.faulty_files import Action, Fault

IDENTITY = VersionIdentity(DATABASE, "v1", "d" * 64, N, "sequins", regrouped=True)


def owned(name, *partitions):
    return Ownership(Owner(name, name.encode() * 16, Address("10.0.0.1", 7070)), PartitionSet.of(N, partitions))


def on_disk(node):
    return VersionStore(PurePath("/data"), node.disk).active(DATABASE)


@pytest.fixture
def node():
    """Start a node without a source that answers v1 from other members."""
    cluster = Cluster()
    cluster.had = cluster.gates = {"v1"}
    node = SimulatedNode(cluster)
    node.start()
    node.hear(v1=IDENTITY)
    yield node
    node.close()


def test_a_restart_that_hears_nobody_knows_what_is_active_and_whom_to_ask(node):
    """The active version is no error although nothing of it is here and nothing is heard."""
    node.note_owners("v1", owned("a", 0, 1), owned("b", 2, 3))
    node.stop()
    node.start()
    for _ in range(2):
        owners = owned("a", 0, 1), owned("b", 2, 3)
        assert node.database.switching.remembered == ActiveDocument(
            "v1", "v1", IDENTITY, owners, (Sealed(IDENTITY, {}),)
        )
        assert (node.states, node.status["versions"]["v1"].get("error")) == ({"v1": VersionWord.ACTIVE}, None)
        assert [(held.identity, held.active) for held in node.library.held()] == [(IDENTITY, True)]
        node.hear()


def test_who_holds_it_is_written_at_once_and_then_once_a_second(node):
    """Many changes are written together."""
    node.note_owners("v1", owned("a", 0))
    assert on_disk(node).owners == (owned("a", 0),)
    for partition in range(1, N):
        node.note_owners("v1", owned("a", partition))
        assert on_disk(node).owners == (owned("a", 0),)
    before = len(node.files.trace)
    for _ in range(8):
        node.wait()
    assert on_disk(node).owners == (owned("a", N - 1),)
    assert sum(line.startswith("rename") for line in node.files.trace[before:]) == 1


def test_who_will_hold_the_next_version_is_written_with_the_switch(node):
    """The owners of the next version are not written before the switch."""
    node.note_owners("v1", owned("a", 0))
    v2 = VersionIdentity(DATABASE, "v2", "e" * 64, N, "sequins", regrouped=True)
    node.hear(v1=IDENTITY, v2=v2)
    node.note_owners("v2", owned("b", 1))
    for _ in range(8):
        node.wait()
    assert on_disk(node) == ActiveDocument("v1", "v1", IDENTITY, (owned("a", 0),))
    node.verdicts.had.add("v2")
    node.decide_again()
    assert on_disk(node) == ActiveDocument("v2", "v2", v2, (owned("b", 1),))


def switching_on(threads):
    """Return a switching with two versions that may be activated, which writes through these threads."""
    lives = {name: Life(name, heard=replace(IDENTITY, version=name)) for name in ("v1", "v2")}
    store = SimpleNamespace(set_active=lambda *_: None)
    shared = SimpleNamespace(
        log=Log("gossipkv.test"),
        may_write=lambda: True,
        threads=threads,
        store=store,
        on_change=lambda: None,
        requests=lambda *_: 0,
    )
    verdicts = SimpleNamespace(may_switch=lambda _: True, passed=lambda _: True, sealed=lambda: (), owners=lambda _: ())
    verdicts.records = lambda _: None
    return Switching(DATABASE, lives, verdicts, shared)


class SlowDisk:
    """A fake of worker threads that write a minute later."""

    def __init__(self):
        self.written = []

    async def run(self, _write, _database, active):
        await trio.sleep(60)
        self.written.append(active.version)


async def test_a_switch_that_waited_for_a_rewrite_is_decided_anew(autojump_clock):
    """After a slow write the answers behind the switch may be too old."""
    disk = SlowDisk()
    switching = switching_on(disk)
    assert await switching.switch("v1", None)
    switching.remembered = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(switching._rewrite)
        await trio.sleep(1)
        assert not await switching.switch("v2", None)
    assert disk.written == ["v1", "v1"]
    assert (switching.active, switching.trouble, switching.not_before_ms) == ("v1", None, 0)
    assert await switching.switch("v2", None)
    assert switching.active == "v2"


async def test_a_rewrite_that_waited_for_a_switch_does_not_undo_it(autojump_clock):
    """The rewrite takes the active version at its own turn."""
    disk = SlowDisk()
    switching = switching_on(disk)
    assert await switching.switch("v1", None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(switching.switch, "v2", None)
        await trio.sleep(1)
        await switching._rewrite()
    assert disk.written == ["v1", "v2"]


def test_a_rewrite_that_fails_is_tried_again_and_harms_nothing(node):
    """The failure is logged once, and no switch waits for the retry."""
    node.note_owners("v1", owned("a", 0))
    for _ in range(8):
        node.wait()
    node.files.faults = tuple(Fault(at, Action.FAIL, kinds={"rename"}, error=errno.EIO) for at in range(3))
    node.files._seen = [0] * 3
    node.note_owners("v1", owned("b", 1))
    assert on_disk(node).owners == (owned("a", 0),)
    for _ in range(40):
        node.wait()
    assert on_disk(node).owners == (owned("b", 1),)
    assert len(node.log("cannot_note")) == 1
    assert node.states == {"v1": VersionWord.ACTIVE}


def test_what_is_refuted_is_kept(node):
    """Refutations survive restarts; a damaged document counts as empty."""
    node.refute("d" * 64, "text", "sequins")
    node.refute("d" * 64, "spark")
    for _ in range(8):
        node.wait()
    node.stop()
    node.start()
    assert node.database.view.all_refuted() == {"d" * 64: ("sequins", "spark", "text")}
    node.stop()
    node.spoil(f"/data/refuted/{DATABASE}")
    node.start()
    assert node.database.view.all_refuted() == {}
    assert len(node.log("refuted_damaged")) == 1


def test_a_stray_that_is_met_is_noted():
    """The refutation is kept under the digest of the source, over restarts."""
    node = SimulatedNode()
    node.start()
    try:
        node.put("v1", with_a_deep_stray()[0])
        node.look()
        node.finish()
        (held,) = node.library.held()
        assert held.identity.regrouped
        refuted = node.database.view.all_refuted()
        assert set(refuted) == {held.identity.digest}
        assert refuted[held.identity.digest]
        node.stop()
        node.start()
        assert node.database.view.all_refuted() == refuted
    finally:
        node.close()
