"""The methods about backups: their arguments, and backups from the request to the answer."""

import msgpack
import pytest
import trio

from gossipkv.backup.archive import MANIFEST, BackupOwner
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
        self.made = []  # The tables of each complete backup, and its time.
        cluster.own = lambda: (made_up.UUID, 7)
        self.backups = BackupMethods(
            cluster.environment,
            places=PLACES,
            abandon_s=3600,
            cluster=cluster,
            on_backup=lambda *backup: self.made.append(backup),
        )

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
    assert node.made == [(["t"], node.cluster.environment.clock.wall_ms())]
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
    assert expired == {"expired": [told["backup"]], "bytes": 0, "damaged": []}
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


async def test_unfinished_backups_go_when_their_owner_says_that_it_stopped(node, autojump_clock):
    """A node that does not answer may go on later: its backup stays while it changes, and an hour longer."""
    kept, names = archive(node.cluster.disk), [made_up.name_of(number) for number in range(5)]
    owners = ["cd", "c"], ["cd", "c"], [made_up.UUID[:2], "c"], ["ef", "c"], ["cd", "another"]
    for name, (digits, cluster) in zip(names, owners, strict=True):
        kept.begin(name, BackupOwner(digits * 16, 6, None, cluster))
    node.cluster.writing[b"\xcd" * 16] = {names[1]}
    take_over = {"take_over": True}
    await node.ask("backup_expire", PLACE, {"keep": 1, **take_over})
    assert kept._root.names() == [names[1], *names[3:]]
    await trio.sleep(1800)
    kept.own(names[3], BackupOwner("ef" * 16, 6, None, "c", beat=1))
    for stays in ([names[1], *names[3:]], [names[1], names[3]], [names[1]]):
        await node.ask("backup_expire", PLACE, {"keep": 1, **take_over})
        assert kept._root.names() == stays
        await trio.sleep(1801)


async def test_a_destination_is_one_cluster_s(node, autojump_clock):
    kept = archive(node.cluster.disk)
    kept.begin(made_up.name_of(-1), BackupOwner("cd" * 16, 1, None, "another"))
    for method, options in (("backup", {}), ("backup_expire", {"keep": 1})):
        with pytest.raises(Conflict, match=r"is of another cluster \(another\).*--take-over"):
            await node.ask(method, PLACE, options)
    assert await node.ask("backup_list", PLACE) == []
    told = await node.ask("backup", PLACE, {"take_over": True})
    assert sorted(kept._root.names()) == [made_up.name_of(-1), told["backup"]]
    await node.ask("backup", PLACE, {})


async def test_each_backup_is_judged_alone(node, autojump_clock):
    """A damaged one is named, and neither hides the others nor loses what it may need."""
    kept = archive(node.cluster.disk)
    made = [write(kept, number, {b"a": b"%d" % number}) for number in range(1, 5)]
    hurt, whole = made[1].name, [one.name for one in made if one is not made[1]]
    kept._at(hurt).put(MANIFEST, b"")
    listed = await node.ask("backup_list", PLACE)
    assert [one["backup"] for one in listed] == [one.name for one in made]
    assert ["damaged" in one for one in listed] == [False, True, False, False]
    told = await node.ask("backup_verify", PLACE, {})
    assert (told["backups"], [*told["damaged"]], told["files"]) == (whole, [hurt], 3)
    kept._at(made[2].name).remove("0.gkv")
    told = await node.ask("backup_verify", PLACE, {})
    assert sorted(told["damaged"]) == [hurt, made[2].name]
    assert (await node.ask("backup_verify", PLACE, {"newest": True}))["backups"] == [made[3].name]
    told = await node.ask("backup_expire", PLACE, {"keep": 1})
    assert (told["expired"], told["damaged"]) == ([made[0].name, made[2].name], [hurt])
    assert kept._root.names() == [made[0].name, hurt, made[3].name]
    assert kept._at(made[0].name).names() == ["0.gkv"]
    assert (await node.ask("backup_expire", PLACE, {"backups": [hurt]}))["expired"] == [hurt]
    assert kept._root.names() == [made[3].name]


async def test_a_restore_that_nobody_heard_of_is_told_when_it_is_repeated(node, autojump_clock):
    """Its client was killed: the same command goes on with the work that runs, or learns its end."""
    told = await node.ask("backup", PLACE, {})
    node.cluster.routes.clear()
    for waited_s in (0, 5):
        first = await node.ask("restore", PLACE, {"wait_ms": 0, "as": f"u{waited_s}"})
        assert first["state"] == "running"
        await trio.sleep(waited_s)
        again = await node.ask("restore", PLACE, {"as": f"u{waited_s}"})
        assert (again["state"], again["tables"]) == ("done", {f"u{waited_s}": "t"})
        with pytest.raises(Conflict, match="exists"):
            await node.ask("restore", PLACE, {"as": f"u{waited_s}"})
    assert told["backup"] == again["backup"]


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
