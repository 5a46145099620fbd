"""Tests that cost seconds; `test_participant.py` has the others."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
import trio

from gossipkv.errors import GossipKVError, NotReady, Unknown
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.register.metadata.server import Metadata
from gossipkv.table.participant.register_poll import POLL_S
from tests.unit.table.participant.test_participant import ONE_COPY, founder_of, place_of_the_catalogue
from tests.world.nodes.machine import speaker
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

STRANGERS = [[b"s" * 16, 7]]
LIES = [
    b"\xc1", b"\x01", msgpack.packb([1, 2]), msgpack.packb(STRANGERS), msgpack.packb([]),
    msgpack.packb([[b"s" * 16, -1]]), bytes(2000),
]  # fmt: skip


@simulated(3)
async def test_nobody_founds_for_datasets_alone(cluster):
    """A cluster without tables has no store and no pin, however long it lives."""
    await begin(cluster)
    await trio.sleep(100)
    for machine in cluster.machines:
        assert (await cluster.ask(machine, "info"))["tables"]["state"] == "none"
        assert await cluster.ask(machine, "metadata_status", None) == []


@simulated(3, limit_s=600)
async def test_lies_about_servers_are_not_heeded(cluster, monkeypatch):
    """A lie changes no stored state, silences no node, and causes no read of nodes that know the catalogue."""
    looks = []
    quorum_read = Metadata.quorum_read

    async def noting(self, register, hint=None):
        looks.append((speaker(), hint))
        return await quorum_read(self, register, hint)

    monkeypatch.setattr(Metadata, "quorum_read", noting)
    await begin(cluster)
    await cluster.ask(cluster.machines[0], "create_table", "t", ONE_COPY)
    liar = cluster.machines[2]
    await trio.sleep(5)
    path = await place_of_the_catalogue(cluster)
    for lie in LIES:
        liar.gossiping.publish(path, lie)
        await trio.sleep(4)
    strangers = [
        name for name, hint in looks if hint is not None and any(one.node == b"s" * 16 for one in hint.everyone)
    ]
    assert not strangers
    made = await cluster.ask(cluster.machines[1], "create_table", "u", ONE_COPY, timeout_s=30)
    for machine in cluster.machines:
        machine.kill()
        await machine.start()
    for machine in cluster.machines[:2]:

        async def knows(machine=machine):
            """Return True if the node knows the real decisions and no invented ones."""
            told = await cluster.ask(machine, "metadata_status", None)
            assert {one["generation"] for one in told} == {0}
            assert all(one["sequence"] < 100 for one in told)
            return [one["table"] for one in told] == [None, "t", "u"]

        await cluster.until(knows, within_s=40)
        assert (await cluster.ask(machine, "partition_map", "u"))["table"] == made["table"]


@simulated(3)
async def test_a_table_whose_maker_is_gone_is_known(cluster, monkeypatch):
    """A node that hears the name of a table reads its map at once, not at the next poll."""
    decide = Catalogue._decide

    async def crash_behind(self, operation, name, deadline):
        await decide(self, operation, name, deadline)
        if name == "t":
            raise Unknown("it was named, and then the node was gone")

    monkeypatch.setattr(Catalogue, "_decide", crash_behind)
    await begin(cluster)
    one = cluster.machines[0]
    await cluster.ask(one, "create_table", "first", ONE_COPY)
    await trio.sleep(POLL_S / 2)
    with pytest.raises(Unknown):
        await cluster.ask(one, "create_table", "t", ONE_COPY)
    await trio.sleep(5)
    told = [[each["name"] for each in await cluster.ask(machine, "databases")] for machine in cluster.machines]
    assert told == 3 * [["first", "t"]]
    shown = []
    for machine in cluster.machines:
        with contextlib.suppress(NotReady):
            shown.append(len((await cluster.ask(machine, "partition_map", "t"))["partitions"]))
    assert shown == [2, 2, 2]


@pytest.mark.parametrize("said", [b"", *LIES[:4]])
@simulated(3, seed=2)
async def test_lies_do_not_hinder_founding(cluster, said):
    """False claims to found, or invalid ones, do not stop the rightful founder."""
    await begin(cluster)
    path = await place_of_the_catalogue(cluster)
    founder = await founder_of(cluster)
    liars = [machine for machine in cluster.machines if machine is not founder]
    for liar in liars:
        liar.gossiping.publish(path, said)
    await trio.sleep(0.5)
    await cluster.ask(liars[0], "create_table", "t", ONE_COPY, timeout_s=30)
    (registers, *_) = await cluster.ask(founder, "metadata_status", None)
    assert founder.name in [one["node"] for one in registers["new"]]


@simulated(2, seed=4)
async def test_a_founder_that_is_lost_with_the_catalogue(cluster):
    """The second of two nodes continues by force with its own knowledge; the returning node follows."""
    await begin(cluster)
    founder = await founder_of(cluster)
    (other,) = [machine for machine in cluster.machines if machine is not founder]
    made = await cluster.ask(founder, "create_table", "t", ONE_COPY, timeout_s=30)
    await trio.sleep(5)
    with pytest.raises(GossipKVError, match="answers, but is no survivor"):
        await cluster.ask(other, "metadata_force", None, [other.name], timeout_s=30)
    founder.kill()
    with pytest.raises(GossipKVError):
        await cluster.ask(other, "create_table", "u", ONE_COPY, timeout_s=30)
    told = await cluster.ask(other, "metadata_force", None, [other.name], timeout_s=30)
    assert ([one["node"] for one in told["new"]], told["generation"]) == ([other.name], 1)
    await cluster.ask(other, "create_table", "u", ONE_COPY, timeout_s=30)
    await founder.start()
    await trio.sleep(60)
    for machine in cluster.machines:
        assert [one["name"] for one in await cluster.ask(machine, "databases")] == ["t", "u"]
        assert (await cluster.ask(machine, "partition_map", "t"))["table"] == made["table"]
        (catalogue, *_) = await cluster.ask(machine, "metadata_status", None, timeout_s=30)
        assert (catalogue["generation"], [one["node"] for one in catalogue["new"]]) == (1, [other.name])
