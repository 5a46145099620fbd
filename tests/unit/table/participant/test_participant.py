"""The start of a metadata participant, the founder of the catalogue, and its statement to other nodes."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from gossipkv.errors import Conflict, GossipKVError, Unavailable
from gossipkv.node.gossip import Gossiping
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.table.participant.map_watcher import MapWatcher
from gossipkv.table.participant.participant import MetadataParticipant
from gossipkv.table.store import TableStore
from tests.world.nodes.machine import speaker
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

ONE_COPY = {"kind": "hash", "partitions": 2, "replication": 1}


async def place_of_the_catalogue(cluster):
    """Return the path of the catalogue in the tree."""

    async def holds():
        """Return True once a node claims the right to found the catalogue."""
        return bool(await cluster.ask(cluster.machines[0], "children", "tables"))

    await cluster.until(holds, within_s=20)
    (register,) = await cluster.ask(cluster.machines[0], "children", "tables")
    return f"tables/{register}"


async def founder_of(cluster):
    """Return the machine whose node may found the catalogue."""
    await place_of_the_catalogue(cluster)
    ((owner,),) = [[one["owner"] for one in await cluster.ask(cluster.machines[0], "entries", "tables")]]
    return next(machine for machine in cluster.machines if machine.name == owner)


@simulated(3, seed=3)
async def test_pinned_first_then_a_store_then_founded(cluster, monkeypatch):
    """One node alone checks its right to found after the pin and the store, and founds once."""
    done = []

    def noting(part, name):
        before = getattr(part, name)

        async def call(self, *arguments, **more):
            told = await before(self, *arguments, **more)
            done.append((speaker(), name))
            return told

        monkeypatch.setattr(part, name, call)

    noting(Gossiping, "pin")
    noting(TableStore, "create")
    noting(Catalogue, "found")
    may_not_found = MetadataParticipant.may_not_found

    def ask(self):
        done.append((speaker(), "asked"))
        return may_not_found(self)

    monkeypatch.setattr(MetadataParticipant, "may_not_found", ask)
    await begin(cluster)
    founder = await founder_of(cluster)
    async with trio.open_nursery() as nursery:
        for number, machine in enumerate(cluster.machines):
            nursery.start_soon(cluster.ask, machine, "create_table", f"t{number}", ONE_COPY)
    assert {name for name, what in done if what == "found"} == {founder.name}
    mine = [what for name, what in done if name == founder.name]
    assert "pin" in mine, "it founds what it is not bound to"
    begun = mine[mine.index("pin") : mine.index("found")]
    assert begun.index("pin") < begun.index("create") < len(begun) - begun[::-1].index("asked")
    assert begun[begun.index("create") :].count("asked") >= 1
    for other in cluster.machines:
        theirs = [what for name, what in done if name == other.name and what in {"pin", "create"}]
        assert theirs[0] == "pin", other.name


@simulated(3, seed=4)
async def test_a_founder_that_begins_again_is_awaited(cluster):
    """A new table waits for a founder that restarts, within the time of the request."""
    await begin(cluster)
    founder = await founder_of(cluster)
    other = next(machine for machine in cluster.machines if machine is not founder)
    founder.kill()
    await trio.sleep(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(cluster.ask, other, "create_table", "t", {**ONE_COPY, "timeout_ms": 25_000}, timeout_s=30)
        )
        await trio.sleep(4.5)
        await founder.start()
    for machine in cluster.machines:
        assert [one["name"] for one in await cluster.ask(machine, "databases")] == ["t"]


@simulated(3, seed=4)
async def test_a_founder_that_seems_dead_once_it_was_found_is_asked(cluster, monkeypatch):
    """On a busy machine a founder is suspected now and then: that fails no new table."""
    await begin(cluster)
    founder = await founder_of(cluster)
    other = next(machine for machine in cluster.machines if machine is not founder)
    others_know = MetadataParticipant.others_know

    async def suspected_meanwhile(self):
        is_known = await others_know(self)
        monkeypatch.setattr(MapWatcher, "founder", lambda _: None)
        return is_known

    monkeypatch.setattr(MetadataParticipant, "others_know", suspected_meanwhile)
    await cluster.ask(other, "create_table", "t", ONE_COPY)
    assert [one["name"] for one in await cluster.ask(founder, "databases")] == ["t"]


@simulated(3, seed=4)
async def test_a_force_where_nothing_was_founded(cluster):
    """A force names one node, which founds; a second force is refused because this node has a catalogue."""
    await begin(cluster)
    founder = await founder_of(cluster)
    others = [machine for machine in cluster.machines if machine is not founder]
    founder.kill()
    founder.lose_disk()
    with pytest.raises(GossipKVError, match="one node"):
        await cluster.ask(others[0], "metadata_force", None, [each.name for each in others], timeout_s=30)
    told = await cluster.ask(others[0], "metadata_force", None, [others[1].name], timeout_s=30)
    assert [one["node"] for one in told["new"]] == [others[1].name]
    assert "founder" in told["lost"]
    again = others[0]
    with pytest.raises((Conflict, Unavailable)):
        await cluster.ask(again, "metadata_force", None, [others[1].name], timeout_s=30)
    await cluster.ask(again, "create_table", "t", ONE_COPY, timeout_s=30)
