"""Restores: tables appear when they are whole; after a failure, nothing of them is left."""

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, Corrupt, GossipKVError, Unavailable, Unknown
from gossipkv.settings.databases import HIDDEN
from tests.unit.backup.made_up import PLACE
from tests.unit.backup.made_up_cluster import MadeUpCluster, once


@pytest.fixture
async def saved(autojump_clock):
    """Return a cluster without tables, and a backup of two."""
    cluster = MadeUpCluster()
    cluster.make("t", b"", b"m").nodes[0].write(a=b"1", b=b"")
    cluster.make("u").nodes[0].write(c=b"3")
    manifest = await cluster.back_up()
    cluster.routes.clear()
    cluster.asked.clear()
    return cluster, manifest


ROWS = {"t": {b"a": b"1", b"b": b""}, "u": {b"c": b"3"}}


def shown(cluster):
    return {name: cluster.rows[id_] for name, id_ in cluster.restored.items()}


async def fails(cluster, restore, kind, match):
    """Check that a restore fails, and that nothing is left of it."""
    before = shown(cluster)
    with pytest.raises((kind, ExceptionGroup)) as caught:
        await restore
    error = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, kind)
    assert match in error.message
    assert (shown(cluster), cluster.published) == (before, set())


async def test_all_tables_come_back(saved, autojump_clock):
    cluster, manifest = saved
    told = await cluster.restore(manifest)
    assert shown(cluster) == ROWS
    assert (told["records"], told["tables"], told["holds"]) == (3, {"t": "t", "u": "u"}, {"geo": None})
    assert cluster.held == {"geo": "7"}
    created = [params for _, method, params in cluster.asked if method == "create_table"]
    assert [(name, options["replication"], options.get("bounds")) for name, options in created] == [
        (".t", 3, [b"m"]), (".u", 3, None)
    ]  # fmt: skip
    assert cluster.published == set()


async def test_one_table_under_another_name(saved, autojump_clock):
    cluster, manifest = saved
    cluster.make("t")
    await cluster.restore(manifest, "t", new_name="new")
    assert shown(cluster) == {"new": ROWS["t"]}
    assert cluster.held == {}


@pytest.mark.parametrize(
    ("named", "error", "match"),
    [
        ((["x"], None), BadRequest, "has no table x; it has: t, u"),
        (([], "new"), BadRequest, "another name needs exactly one table"),
        ((["t", "u"], "new"), BadRequest, "another name needs exactly one table"),
        ((["t"], ".new"), BadRequest, "'.new' cannot be a table's name"),
        ((["t"], "taken"), Conflict, "the table taken exists; drop it, or restore the table under another name"),
        ((["t"], "geo"), Conflict, "this node serves the dataset geo"),
    ],
)
async def test_refused_names(saved, autojump_clock, named, error, match):
    cluster, manifest = saved
    cluster.make("taken")
    tables, new_name = named
    await fails(cluster, cluster.restore(manifest, *tables, new_name=new_name), error, match)
    assert cluster.asked == []


async def test_a_table_that_another_node_restores(saved, autojump_clock):
    cluster, manifest = saved
    cluster.restored[HIDDEN + "u"], cluster.rows[b"other"] = b"other", {}
    cluster.board.restored = lambda: {b"other"}
    await fails(cluster, cluster.restore(manifest), Conflict, "a node already restores the table u")


async def test_what_an_interrupted_restore_left_is_dropped_first(saved, autojump_clock):
    cluster, manifest = saved
    cluster.restored[HIDDEN + "t"], cluster.rows[bytes(16)[1:] + b"\7"] = bytes(16)[1:] + b"\7", {b"old": b"1"}
    await cluster.restore(manifest)
    assert shown(cluster) == ROWS


async def test_hidden_tables_are_put_with_retries(saved, autojump_clock):
    """The rows of a put with an unknown outcome are put twice."""
    cluster, manifest = saved
    cluster.before += [once("put_many", Unavailable("not now")), once("stored", Unknown("perhaps"))]
    told = await cluster.restore(manifest)
    assert (shown(cluster), told["records"]) == (ROWS, 3)


async def test_a_cluster_that_takes_no_records(saved, autojump_clock):
    cluster, manifest = saved

    def refuse(_, method, __):
        if method == "put_many":
            raise Unavailable("not now")

    cluster.before.append(refuse)
    await fails(cluster, cluster.restore(manifest), Unavailable, "the cluster takes no records now: not now")


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("method", ["create_table", "put_many"])
async def test_a_failure_in_the_middle_drops_all(saved, autojump_clock, method, after):
    cluster, manifest = saved
    cluster.before.append(once(method, BadRequest("refused"), after=after))
    await fails(cluster, cluster.restore(manifest), BadRequest, "refused")


async def test_names_are_given_with_retries(saved, autojump_clock):
    """All tables are whole by then, so a failure that may pass must not leave some of them hidden."""
    cluster, manifest = saved
    cluster.before += [once("show", Unknown("perhaps")), once("show", Unavailable("not now"), after=2)]
    await cluster.restore(manifest)
    assert shown(cluster) == ROWS


async def test_a_damaged_backup_restores_nothing(saved, autojump_clock):
    cluster, manifest = saved
    cluster.disk.unlink(f"{PLACE}/{[*manifest.files][-1]}")
    await fails(cluster, cluster.restore(manifest), Corrupt, "a file of the backup is missing")


async def test_a_cancelled_restore_leaves_nothing(saved, autojump_clock):
    cluster, manifest = saved
    with trio.CancelScope() as scope:
        cluster.before.append(
            lambda _, method, params: scope.cancel() if method == "put_many" and params[0] == ".u" else None
        )
        await cluster.restore(manifest)
    assert scope.cancelled_caught
    assert (shown(cluster), cluster.published) == ({}, set())


async def test_tables_are_hidden_until_all_are_whole(saved, autojump_clock):
    cluster, manifest = saved
    seen = []
    cluster.before.append(
        lambda _, method, __: seen.append((method, {name for name in shown(cluster) if name[0] != HIDDEN}))
    )
    await cluster.restore(manifest)
    assert {method for method, names in seen if names} == {"show"}
    assert [method for method, _ in seen][-2:] == ["show", "show"]


async def test_a_hold_that_is_impossible_is_told(saved, autojump_clock, monkeypatch):
    cluster, manifest = saved

    async def refuse(name, version):
        raise GossipKVError(f"{name} has no {version}")

    monkeypatch.setattr(cluster, "hold", refuse)
    told = await cluster.restore(manifest)
    assert told["holds"] == {"geo": "7 could not be held: geo has no 7"}
    assert shown(cluster) == ROWS
