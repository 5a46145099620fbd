"""The methods about backups: their arguments, and backups from the request to the answer."""

import msgpack
import pytest

from gossipkv.backup.archive import BackupOwner
from gossipkv.backup.methods import BackupMethods
from gossipkv.backup.places import BackupPlaces
from gossipkv.errors import BadRequest, Conflict, Unavailable
from gossipkv.settings.stores import Stores
from gossipkv.wire.arguments import Arguments
from tests.unit.backup import made_up
from tests.unit.backup.made_up import PLACE, archive, write
from tests.unit.backup.made_up_cluster import MadeUpCluster
from tests.world.faulty_files import Action, Fault, FaultyFiles

PLACES = BackupPlaces((), Stores({}), own=("/data",), is_open=True)


class Node:
    """The methods of a node over a made-up cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        cluster.own, cluster.starts = lambda: (made_up.UUID, 7), lambda: [(made_up.UUID, 7), ("cd" * 16, 1)]
        self.backups = BackupMethods(cluster.environment, places=PLACES, cluster=cluster)

    async def ask(self, method, *params):
        name = method.encode()
        return await self.backups.methods[name](Arguments(name, msgpack.packb(params))).result()


@pytest.fixture
async def node(nursery, autojump_clock):
    cluster = MadeUpCluster()
    cluster.make("t").nodes[0].write(a=b"1", b=b"2")
    node = Node(cluster)
    await nursery.start(node.backups.jobs.run)
    return node


async def test_a_backup_from_the_request_to_the_list(node, autojump_clock):
    told = await node.ask("backup", PLACE, {})
    assert (told["state"], told["records"], told["tables"], told["since"]) == ("done", 2, ["t"], None)
    since = await node.ask("backup", f"{PLACE}/", {"since": told["backup"], "tables": ["t"]})
    assert (since["records"], since["new_bytes"], since["bytes"]) == (0, 0, told["bytes"])
    listed = await node.ask("backup_list", PLACE)
    assert sorted((one["backup"], one["since"]) for one in listed) == sorted([
        (told["backup"], None), (since["backup"], told["backup"])
    ])  # fmt: skip
    for place in (PLACE, f"{PLACE}/{told['backup']}"):
        assert (await node.ask("backup_verify", place, {}))["files"] == 1
    node.cluster.routes.clear()
    restored = await node.ask("restore", f"{PLACE}/{since['backup']}", {"as": "u", "tables": ["t"]})
    assert restored["tables"] == {"u": "t"}
    assert node.cluster.rows[node.cluster.restored["u"]] == {b"a": b"1", b"b": b"2"}
    expired = await node.ask("backup_expire", PLACE, {"backups": [told["backup"]]})
    assert expired == {"expired": [told["backup"]], "bytes": 0}
    assert (await node.ask("backup_expire", PLACE, {"keep": 1}))["expired"] == []


async def test_a_backup_without_patience(node, autojump_clock):
    """The same operation is asked for until it is done; another one with `cancel` ends it."""
    asked = {"operation": b"1" * 20, "wait_ms": 0}
    assert (await node.ask("backup", PLACE, asked))["state"] == "running"
    while (told := await node.ask("backup", PLACE, {**asked, "wait_ms": 5}))["state"] == "running":
        pass
    assert told["records"] == 2
    other = {"operation": b"2" * 20, "wait_ms": 0}
    await node.ask("backup", PLACE, other)
    assert await node.ask("backup", PLACE, {**other, "cancel": True}) == {"state": "cancelled"}
    assert len(await node.ask("backup_list", PLACE)) == 1
    assert len(archive(node.cluster.disk)._root.names()) == 1


async def test_unfinished_backups_are_removed_by_the_next_one(node, autojump_clock):
    """Those of this start that it does not write, and of earlier starts; another node's may be under way."""
    kept = archive(node.cluster.disk)
    for number, owner in enumerate([(made_up.UUID, 7), (made_up.UUID, 6), ("cd" * 16, 0), ("cd" * 16, 1)]):
        kept.begin(made_up.name_of(number), BackupOwner(*owner, None))
    told = await node.ask("backup", PLACE, {})
    assert sorted(kept._root.names()) == sorted([made_up.name_of(3), told["backup"]])


@pytest.mark.parametrize("method", ["backup", "restore", "backup_list", "backup_verify", "backup_expire"])
@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("relative", "absolute path"),
        ("simplecache::file:///backups", "absolute path"),
        ("/data", "leads into /data"),
        ("file:///data/b", "leads into /data"),
        (7, "destination"),
    ],
)
async def test_refused_places(node, autojump_clock, method, place, match):
    with pytest.raises(BadRequest, match=match):
        await node.ask(method, place, *([] if method == "backup_list" else [{"keep": 1} if "expire" in method else {}]))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("backup", {"tables": "t"}),
        ("backup", {"tables": [7]}),
        ("backup", {"as": "u"}),
        ("backup", {"wait_ms": -1}),
        ("backup", {"operation": 7}),
        ("restore", {"since": "x"}),
        ("restore", {"as": 7}),
        ("backup_verify", {"tables": []}),
        ("backup_expire", {}),
        ("backup_expire", {"keep": 0}),
        ("backup_expire", {"keep": 1, "backups": ["x"]}),
    ],
)
async def test_refused_options(node, autojump_clock, method, options):
    with pytest.raises(BadRequest):
        await node.ask(method, PLACE, options)
    assert not node.cluster.asked


async def test_nothing_is_there(node, autojump_clock):
    assert await node.ask("backup_list", PLACE) == []
    for method in ("restore", "backup_verify"):
        with pytest.raises(BadRequest, match="no complete backup is here"):
            await node.ask(method, PLACE, {})
    with pytest.raises(BadRequest, match="no complete backup 'x'"):
        await node.ask("backup_expire", PLACE, {"backups": ["x"]})


async def test_a_refusal_of_the_destination_is_no_defect(node, autojump_clock, caplog):
    """Its error reaches the client, and those of the cluster do, too."""
    made = write(archive(node.cluster.disk), 1, {b"a": b"1"})
    with pytest.raises(Conflict, match="the table t exists"):
        await node.ask("restore", PLACE, {})
    node.cluster.environment.files = FaultyFiles(
        node.cluster.disk, Fault(0, Action.FAIL, kinds={"make_directory"}, lasting=True)
    )
    with pytest.raises(Unavailable, match=f"{PLACE}.*cannot keep backups"):
        await node.ask("backup", PLACE, {})
    assert (await node.ask("backup_list", PLACE))[0]["backup"] == made.name
    assert "job_failed" not in caplog.text
