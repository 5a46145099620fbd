"""Reports of a library about a database, alone and among other members."""

from __future__ import annotations

import os
from dataclasses import replace

import trio

from gossipkv.address import Address
from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatasetCluster
from gossipkv.dataset.cluster.members import DatasetMember, Membership
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.dataset.local.manifest import read_manifest, write_manifest
from gossipkv.environment.real_files import RealFiles
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import DatabaseStatement, Named, Statement
from gossipkv.settings.databases import DatabaseSettings
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import active, state, until

N = 4
TERMS = Terms(2, 1, 60_000, 600_000, 1_000, 0)
LOCAL = {"kind", "active", "hold", "held_by", "error", "versions"}


def member(name: str, shard_id: str) -> DatasetMember:
    """Return a living member with a place in the ring."""
    return DatasetMember(name, name.encode() * 16, 1, Address("127.0.0.1", 0), shard_id=shard_id, is_firm=True)


def among(*others: DatasetMember, settle_ms: int = 0, replication: int = 1):
    now_ms = int(trio.current_time() * 1000)
    membership = Membership(member("a", "1"), expects_others=True, retire_max_ms=3_600_000, now_ms=now_ms)
    for other in others:
        membership.tell(other, now_ms=now_ms)
    terms = TERMS._replace(replication=replication)
    convergence = Convergence(membership, settle_ms=settle_ms, now_ms=now_ms)
    return DatasetCluster(membership, convergence, terms, lambda _core, _effects: None)


def say(library, ready, identity, source_ms=0):
    """Let node `b` publish these partitions and this active version."""
    some, none = PartitionSet.of(N, ready), PartitionSet.empty(N)
    said = Statement(identity, source_ms, 100, some, none, b"b" * 16)
    database = DatabaseStatement(Named(identity.version, identity.wire_id), is_complete=True)
    library.core("db").hear("b", b"b" * 16, 1, {identity.version: said}, database, wall_ms=0)
    library.wake("db")


def files(value):
    """Return files that fit no partition function."""
    return [lines(**{f"key{at}{more}": value for more in range(20)}) for at in range(N)]


async def test_what_is_here_is_told_alike_with_and_without_others(world):
    """The report about other members adds fields and changes none of the `local` ones."""
    world.put("v1", *files("v1"))
    async with world.node() as library:
        await active(library, "v1")
        local, shared = library.status()["db"], library.status(local=False)["db"]
        assert local.keys() == LOCAL
        mine, ours = local["versions"].pop("v1"), shared["versions"].pop("v1")
        assert local.items() <= shared.items()
        assert {**ours, **mine} == ours
        assert ours.keys() - mine.keys() == {
            "owners", "owners_not_named", "missing", "under_replicated", "single_owner", "partition_count", "regrouped",
            "refuted",
        }  # fmt: skip
        all_of_it = {"count": N, "runs": "0-3"}
        nothing = {"count": 0, "runs": ""}
        assert ours["owners"] == [{"node": "alone", "state": "alive", "ready": all_of_it, "building": nothing}]
        assert (ours["missing"], ours["under_replicated"]) == (nothing, nothing)
        assert (ours["regrouped"], ours["refuted"]) == (True, [])
        assert shared["nodes"] == [{"node": "alone", "state": "alive", "active": "v1"}]
        told = only(library.databases())
        assert (told["name"], told["kind"], told["version"], told["partitions"]) == ("db", "dataset", "v1", N)
        whole = library.status(local=False, bitmaps=True)["db"]["versions"]["v1"]
        assert whole["partitions"] == whole["owners"][0]["ready"] == {"count": N, "bitmap": b"\x0f"}
        assert library.status(bitmaps=True)["db"]["versions"]["v1"]["partitions"] == whole["partitions"]


async def test_a_version_says_what_its_gate_waits_for(world):
    """The version waits for owners, then for their answers; clients wait with that reason."""
    world.put("v1", *files("v1"))
    async with world.node(among(member("b", "2"))) as library:
        wanted = "every partition has an owner: 2 of 4 partitions have none (1, 3)"
        await until(lambda: library.known("db") and library.unready("db") == f"version v1 waits until {wanted}")
        assert state(library, "v1") == "AVAILABLE"
        assert library.coming("db")
        told = library.status(local=False)["db"]["versions"]["v1"]
        assert (told["waits_until"], told["missing"]) == (wanted, {"count": 2, "runs": "1,3"})
        assert "waiting_for" not in told
        say(library, [1, 3], library.version("db", "v1").identity)
        answers = "the owners of every partition have confirmed that they serve the version"
        await until(lambda: library.unready("db") == f"version v1 waits until {answers}")
        assert library.coming("db")
        assert library.databases()[0]["version"] is None


async def test_a_version_says_that_its_share_is_not_known_yet(world):
    """While the list of members changes or is empty nothing is built, and clients may wait."""
    world.put("v1", *files("v1"))
    for others, words in (
        ([member("b", "2")], "the list of members has not changed for time_to_converge"),
        ([], "this node has heard from another node"),
    ):
        async with world.node(among(*others, settle_ms=3_600_000)) as library:
            await until(lambda library=library: state(library, "v1") == "SEEN")
            assert library.unready("db") == f"version v1 waits until {words} (it has waited 0 s)"
            assert library.coming("db")
            assert library.status(local=False)["db"]["versions"]["v1"]["waits_until"] == f"{words} (it has waited 0 s)"


async def test_a_version_that_others_bring_is_coming_though_it_is_in_error_here(world):
    """The gate does not need this node's share."""
    world.put("v1", *files("v1"))
    async with world.node(among(member("b", "2"))) as library:
        await until(lambda: state(library, "v1") == "AVAILABLE")
        identity = library.version("db", "v1").identity
    (world.root / "data").rename(world.root / "before")
    (world.source / "db/v1/part-0").write_bytes(b"no record\n")
    async with world.node(among(member("b", "2"))) as library:
        await until(lambda: state(library, "v1") == "ERROR")
        assert not library.coming("db")
        say(library, range(N), identity)
        await until(lambda: library.coming("db"))
        assert "is in error" in library.unready("db")


async def test_what_others_serve_is_coming_before_it_is_known_what_they_hold(world):
    """The active version elsewhere is known before its owners are, so a client waits."""
    world.put("v1", *files("v1"))
    async with world.node() as library:
        await active(library, "v1")
        identity = library.version("db", "v1").identity
    (world.root / "data").rename(world.root / "before")
    async with world.node(among(member("b", "2")), source=None) as library:
        library.hear_of(["db"])
        await until(lambda: library.core("db") is not None)
        said = DatabaseStatement(Named("v1", identity.wire_id), is_complete=False)
        library.core("db").hear("b", b"b" * 16, 1, {}, said, wall_ms=0)
        library.wake("db")
        await until(lambda: library.known("db") and library.coming("db"))
        assert library.unready("db") == "other nodes serve it, and this node does not know their partitions yet"
        say(library, range(N), identity)
        await until(
            lambda: library.unready("db") != "other nodes serve it, and this node does not know their partitions yet"
        )


async def test_a_node_that_has_nothing_tells_what_others_have(world):
    """The report has the number of partitions and the function."""
    world.put("v1", *files("v1"))
    async with world.node() as library:
        await active(library, "v1")
        identity = library.version("db", "v1").identity
    (world.root / "data").rename(world.root / "before")
    async with world.node(among(member("b", "2")), source=None) as library:
        library.hear_of(["db"])
        await until(lambda: library.core("db") is not None)
        say(library, [0, 1, 2], identity)
        await until(lambda: library.known("db") and state(library, "v1") == "SEEN")
        wanted = "every partition has an owner: 1 of 4 partitions has none (3)"
        await until(lambda: library.unready("db") == f"version v1 waits until {wanted}")
        assert library.coming("db")
        told = library.status(local=False)["db"]["versions"]["v1"]
        assert (told["partition_count"], told["function"]) == (N, identity.function)
        assert "partitions" not in told


def touch(world, version, *times_ms):
    for at, time_ms in enumerate(times_ms):
        path = sorted((world.source / "db" / version).iterdir())[at]
        os.utime(path, ns=(0, time_ms * 1_000_000))


def only(listed):
    (told,) = listed
    return told


async def test_what_the_list_tells_of_each_database(world):
    """Readable versions have the newest time of their files; versions here have the words of `status`."""
    world.put("v1", *files("v1"))
    touch(world, "v1", 5000, 7000, 6000, 1)
    async with world.node() as library:
        await active(library, "v1")
        told = only(library.databases())
        assert (told["version"], told["partitions"], told["time"]) == ("v1", N, 7000)
        assert (told["times"], told["states"]) == ({"v1": 7000}, {"v1": "ACTIVE"})
        world.put("v2", *files("v2"))
        touch(world, "v2", 9000, 9000, 9000, 9000)
        await library.rescan()
        await active(library, "v2")
        await until(lambda: state(library, "v1") == "RETIRING")
        told = only(library.databases())
        assert (told["time"], told["times"]) == (9000, {"v1": 7000, "v2": 9000})
        assert told["states"] == {"v1": "RETIRING", "v2": "ACTIVE"}
        assert library.status()["db"]["versions"].keys() == told["states"].keys()


async def test_the_time_is_kept_over_a_restart(world):
    """The source is gone: the manifest has the time, and a manifest without it yields none."""
    world.put("v1")
    touch(world, "v1", 1234)
    async with world.node() as library:
        await active(library, "v1")
    async with world.node(source=None) as library:
        assert only(library.databases())["time"] == 1234
    directory = world.root / "data/datasets/db/v1"
    write_manifest(RealFiles(), directory, replace(read_manifest(RealFiles(), directory), source_ms=0))
    async with world.node(source=None) as library:
        told = only(library.databases())
        assert (told["version"], told["time"], told["times"]) == ("v1", None, {})


async def test_of_the_times_that_owners_tell_the_smallest_counts(world):
    """Sources may be copies; members without a time or without ready partitions do not count."""
    world.put("v1", *files("v1"))
    touch(world, "v1", 7000, 7000, 7000, 7000)
    async with world.node(cluster=among(member("b", "2"), replication=2)) as library:
        await active(library, "v1")
        identity = library.version("db", "v1").identity
        for ready, source_ms, expected in [
            ([0, 1], 6000, 6000), ([0, 1], 8000, 7000), ([0, 1], 0, 7000), ([], 3, 7000), ([2], 6999, 6999),
        ]:  # fmt: skip
            say(library, ready, identity, source_ms)
            await until(lambda wanted=expected: only(library.databases())["time"] == wanted)
            assert library.by_database()["db"]["time"] == expected


async def test_what_info_tells_of_each_database(world):
    """The report has the active version and counts versions by state; a named database has none."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        time_ms = only(library.databases())["time"]
        told = {"version": "v1", "time": time_ms, "versions": {"ACTIVE": 1}}
        whole = {"missing_partitions": 0, "under_replicated_partitions": 0}
        assert library.by_database() == {"db": told | whole}
        assert library.serves_any
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
        await until(lambda: state(library, "v1") == "RETIRING")
        assert library.by_database()["db"]["versions"] == {"ACTIVE": 1, "RETIRING": 1}


async def test_info_counts_the_partitions_that_too_few_have(world):
    """The active version counts, and the counts follow other members' statements."""
    world.put("v1", *files("v1"))
    async with world.node(among(member("b", "2"), replication=2)) as library:
        await active(library, "v1")

        def gaps():
            told = library.by_database()["db"]
            return told["missing_partitions"], told["under_replicated_partitions"]

        await until(lambda: gaps() == (0, N))
        say(library, [0, 3], library.version("db", "v1").identity)
        await until(lambda: gaps() == (0, N - 2))


async def test_what_info_tells_where_nothing_is_served(world):
    """An incomplete version is SEEN, and none is active."""
    (world.source / "db" / "v1").mkdir(parents=True)
    async with world.node() as library:
        await library.rescan()
        assert library.by_database() == {"db": {"version": None, "time": None, "versions": {"SEEN": 1}}}
        assert not library.serves_any


async def test_the_newest_complete_one_is_to_serve_but_for_a_hold(world):
    """A version that waits for its source is not complete; a hold names another."""
    world.put("v1", *files("v1"))
    async with world.node(among(member("b", "2"))) as library:
        wanted = "every partition has an owner: 2 of 4 partitions have none (1, 3)"
        await until(lambda: library.known("db") and library.unready("db") == f"version v1 waits until {wanted}")
        told = library.conditions()["db"]
        assert (told["awaits"], told["versions"]["v1"]["waits_until"]) == ("v1", wanted)
    (world.root / "data").rename(world.root / "before")  # The node has half of the version, and alone it needs all.
    async with world.node() as library:
        await active(library, "v1")
        (world.source / "db/v2").mkdir()
        await library.rescan()
        await until(lambda: state(library, "v2") == "SEEN")
        assert library.status()["db"]["versions"]["v2"]["waiting_for"] is not None
        assert "awaits" not in library.conditions()["db"]
        library.reconfigure({"db": DatabaseSettings(hold="v1")})
        assert {**library.conditions()["db"], "versions": None} == {
            "kind": "dataset", "active": "v1", "hold": "v1", "held_by": "settings", "versions": None,
        }  # fmt: skip
        library.reconfigure({"db": DatabaseSettings(hold="v9")})
        told = library.conditions()["db"]
        assert (told["awaits"], told["versions"]["v9"]) == ("v9", {"nowhere": True})
        assert (
            told["error"] == "the held version v9 is neither on this node nor at the source; version v1 is still served"
        )
