"""The datasets of a node that hears of other nodes, with real child processes and a real data directory."""

import json
import shutil
from functools import partial

import trio

from gossipkv.address import Address
from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatasetCluster
from gossipkv.dataset.cluster.effects import AskMember, Withdraw
from gossipkv.dataset.cluster.members import DatasetMember, alone
from gossipkv.dataset.cluster.question import MemberAnswer
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import DatabaseStatement, Named, Statement
from tests.unit.dataset.build.test_steps import partitioned
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import World, active, until

OTHER = DatasetMember("other", b"o" * 16, 1, Address("other", 7070), shard_id="2", is_firm=True)


def is_here(library, version):
    return version in [held.name for held in library.held() if held.here]


async def test_two_nodes_whose_sources_say_different_things_of_the_same_files(tmp_path):
    """A node that sees a published identity follows it; otherwise the two would hold different versions."""
    contents = partitioned("spark", 8, [b"%d" % n for n in range(1000)])
    worlds = []
    for name in ("declared", "silent"):
        (tmp_path / name).mkdir()
        worlds.append(World(tmp_path / name))
        worlds[-1].put("v1", *contents)
    declared, silent = worlds
    declaration = {"function": "spark", "partitions": 8, "files": {f"part-{place}": place for place in range(8)}}
    (declared.source / "db/v1/_PARTITIONS.json").write_text(json.dumps(declaration))
    async with declared.node() as library:
        await active(library, "v1")
        published = library.active("db").identity
    async with silent.node() as library:
        await active(library, "v1")
        own = library.active("db").identity
    assert (published.function, own.function) == ("spark", "sequins")
    shutil.rmtree(silent.root / "data")
    shutil.move(silent.source / "db/v1", silent.root / "v1")
    silent.put("v0", database="db")
    async with silent.node() as library:
        await active(library, "v0")
        library._shared.cluster.membership.tell(OTHER, now_ms=0)
        nothing = PartitionSet.empty(8)
        said = Statement(published, 0, 50, nothing, PartitionSet.of(8, [0, 3]), OTHER.uuid)
        library.core("db").hear("other", OTHER.uuid, 1, {"v1": said}, None, wall_ms=0)
        shutil.move(silent.root / "v1", silent.source / "db/v1")
        library.refresh()
        await until(partial(is_here, library, "v1"))
        assert [held.identity for held in library.held() if held.name == "v1"] == [published]


async def test_a_version_that_was_never_switched_to_is_withdrawn_before_its_files_go(world):
    """The gate of the next version passes first, because another node's share of this one is missing."""
    membership, files_at_withdrawal = alone(), {}

    def place(version):
        return world.root / "data/datasets/db" / version

    def perform(core, effects):
        for effect in effects:
            match effect:
                case Withdraw(version):
                    files_at_withdrawal[version] = sorted(path.name for path in place(version).glob("*.gkv"))
                case AskMember(name, identity):
                    answer = MemberAnswer(PartitionSet.of(2, [1]), {}, dropping=False)
                    core.answered(name, 1, identity.wire_id, answer if identity.version == "v3" else None)

    terms = Terms(1, 1, 60_000, retire_after_ms=200, probe_interval_ms=1_000, grace_ms=200)
    cluster = DatasetCluster(membership, Convergence(membership, settle_ms=0, now_ms=0), terms, perform)
    world.put("v1")
    async with world.node(cluster, retire_after=200) as library:
        await active(library, "v1")
        membership.tell(OTHER, now_ms=int(trio.current_time() * 1000))
        for version in ("v2", "v3"):
            world.put(version, lines(a=1, b=2), lines(a=3))
            library.refresh()
            await until(partial(is_here, library, version))
        found = {held.name: held.identity for held in library.held()}
        said = {"v3": Statement(found["v3"], 0, 100, PartitionSet.of(2, [1]), PartitionSet.empty(2), OTHER.uuid)}
        library.core("db").hear(
            "other", OTHER.uuid, 1, said, DatabaseStatement(Named("v3", found["v3"].wire_id)), wall_ms=0
        )
        library.wake("db")
        await until(lambda: not place("v1").exists() and not place("v2").exists())
        assert library.status("db")["db"]["active"] == "v3"
    assert files_at_withdrawal == {"v1": ["part-00000.gkv"], "v2": ["part-00000.gkv"]}
