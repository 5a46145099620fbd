"""Backups of real replicas in memory: consistent at a clock of a majority, and nothing is left after a failure."""

import errno

import msgpack
import pytest
import trio

from gossipkv.backup.partition import PartitionReader
from gossipkv.errors import BadRequest, Corrupt, GossipKVError, NotServed, StorageError, Unavailable, UnknownDatabase
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.settings.tables import MIN_EXPIRES_MS
from tests.unit.backup.made_up import PLACE, archive, names, tidy
from tests.unit.backup.made_up_cluster import MadeUpCluster, once
from tests.unit.replication import memory
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


@pytest.fixture(autouse=True)
def _pages_are_small(monkeypatch):
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)


@pytest.fixture
def cluster():
    cluster = MadeUpCluster()
    cluster.one, cluster.two, cluster.three = cluster.make("t").nodes
    cluster.one.write(**{f"k{number}": b"%d" % number for number in range(6)})
    cluster.ranges[0].pass_s(0.5)
    return cluster


def at_pages(cluster, act):
    """Call `act` with the page's number before each page."""
    pages = []

    def look(number, method, params):
        if method == "replica_load":
            pages.append(number)
            act(len(pages))

    cluster.before.append(look)
    return pages


def first(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def fails(cluster, kind, match, **options):
    """Return the one error of a backup, which leaves nothing."""
    before = archive(cluster.disk)._root.names()
    with pytest.raises((kind, ExceptionGroup)) as caught:
        await cluster.back_up(9, **options)
    assert isinstance(first(caught.value), kind)
    assert match in first(caught.value).message
    assert archive(cluster.disk)._root.names() == before


async def test_a_backup_has_all_records_and_the_clock(cluster, autojump_clock):
    manifest = await cluster.back_up()
    assert cluster.saved(manifest) == cluster.one.live
    (partition,) = manifest.tables[0].partitions
    assert partition.clock == cluster.one.copy.synced
    assert (manifest.node, manifest.datasets) == ("n1", {"geo": {"active": "7", "hold": "7"}})


async def test_writes_during_the_pages_come_by_the_log(cluster, autojump_clock):
    """The log wins over pages: keys before and after the page are put, changed and deleted meanwhile."""

    def act(page):
        if page < 4:
            for node in (cluster.one, cluster.two):
                node.write(**{f"a{page}": b"new", "k0": b"later %d" % page, "k5": None if page == 2 else b"again"})

    at_pages(cluster, act)
    manifest = await cluster.back_up()
    assert cluster.saved(manifest) == cluster.one.live
    assert cluster.saved(manifest)[b"k0"] == b"later 3"


async def test_too_few_hosts_answer(cluster, autojump_clock):
    cluster.silent = {2, 3}
    await fails(
        cluster, Unavailable, "a backup needs 2 of the 3 replicas of partition 0000000000000000 of t, and 1 answer"
    )


@pytest.mark.parametrize(("field", "value"), [(1, 0), (3, False)])
async def test_hosts_of_an_older_map_or_incomplete_ones_do_not_count(
    cluster, monkeypatch, field, value, autojump_clock
):
    async def ask(node, method, params, timeout_s):
        answer = await cluster.ask(node, method, params, timeout_s)
        if method == "replica_report" and node[0] > 1:
            ((number, *report),) = msgpack.unpackb(answer)
            report[field] = value
            return msgpack.packb([[number, *report]])
        return answer

    monkeypatch.setattr(cluster.calls, "ask", ask)
    await fails(cluster, Unavailable, "and 1 answer")


async def test_a_source_that_lags_is_waited_for(cluster, autojump_clock):
    """All hosts lag behind one whose clock counts, too: the copy ends when its source has those writes."""
    replicas = cluster.ranges[0]
    replicas.cut(cluster.three)
    cluster.one.write(late=b"1")
    cluster.silent = {1}
    cluster.two.write(other=b"2")
    replicas.cut(cluster.one)
    cluster.three.write(alone=b"3")
    at_pages(cluster, lambda page: replicas.connect() if page == 20 else None)
    manifest = await cluster.back_up()
    assert cluster.saved(manifest).items() >= {b"other": b"2", b"alone": b"3", b"late": b"1"}.items()


async def test_the_clock_of_one_host_would_not_be_enough(cluster, monkeypatch, autojump_clock):
    """Planted: then an acknowledged write is missing."""
    cluster.ranges[0].cut(cluster.three)
    cluster.one.write(late=b"1")
    clocks = PartitionReader.clocks

    async def least(reader):
        found = await clocks(reader)
        return {cluster.three.uuid: found[cluster.three.uuid]}

    monkeypatch.setattr(PartitionReader, "clocks", least)
    assert b"late" not in cluster.saved(await cluster.back_up())
    monkeypatch.undo()
    assert cluster.saved(await cluster.back_up(2)) == cluster.one.live


async def test_a_source_that_lags_for_ever_is_given_up(cluster, autojump_clock):
    replicas = cluster.ranges[0]
    for node in replicas.nodes:
        replicas.cut(node)
        node.write(alone=b"%d" % node.number)
    await fails(cluster, Unavailable, "the table t cannot be backed up now: the replica lags behind the other replicas")


@pytest.mark.parametrize("page", range(1, 5))
async def test_a_source_is_lost_in_the_middle(cluster, page, autojump_clock):
    """The partition is copied anew from another host."""
    asked = at_pages(cluster, lambda number: cluster.silent.add(asked[0]) if number == page else None)
    manifest = await cluster.back_up()
    assert cluster.saved(manifest) == cluster.two.live
    assert len(manifest.files) == 1
    assert len({*asked}) == 2


async def test_a_source_that_changes_its_space_is_asked_anew(cluster, autojump_clock):
    cluster.before.append(once("replica_load", NotServed("the space has changed"), after=2))
    assert cluster.saved(await cluster.back_up()) == cluster.one.live


async def test_a_range_is_split_in_the_middle(cluster, autojump_clock):
    """The children are copied instead; no record is missing or twice."""
    child = memory.Cluster()

    def act(page):
        if page == 2:
            cluster.ranges[1], cluster.ranges[2] = memory.Cluster(), child
            for node, part in ((cluster.ranges[1].nodes[0], "012"), (child.nodes[1], "345")):
                node.write(**{f"k{number}": b"child %s" % number.encode() for number in part})
            del cluster.ranges[0]
            cluster.routes["t"].partitions = {b"": 1, b"k3": 2}

    at_pages(cluster, act)
    manifest = await cluster.back_up()
    assert [partition.first for partition in manifest.tables[0].partitions] == [b"", b"k3"]
    assert cluster.saved(manifest) == {b"k%d" % number: b"child %d" % number for number in range(6)}


async def test_a_table_is_dropped_in_the_middle(cluster, autojump_clock):
    at_pages(cluster, lambda page: cluster.routes.pop("t", None) and cluster.ranges.clear())
    await fails(cluster, UnknownDatabase, "there is no table t")


async def test_a_table_is_made_anew_in_the_middle(cluster, autojump_clock):
    def act(_):
        cluster.ranges.clear()
        cluster.make("other")
        cluster.make("t")

    at_pages(cluster, act)
    await fails(cluster, UnknownDatabase, "the table t was dropped during its backup")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
async def test_the_destination_refuses(error, autojump_clock):
    """One error names the file, and nothing is left; also if the destination refuses from some step on."""
    for step in range(99):
        cluster = MadeUpCluster(SimulatedFiles())
        cluster.make("t").nodes[0].write(a=b"1")
        faulty = FaultyFiles(
            cluster.disk,
            Fault(step, Action.FAIL, kinds=CHANGING - {"unlink", "remove_directory"}, error=error, lasting=True),
        )
        cluster.archive, cluster.environment.files = archive(faulty), faulty
        try:
            await cluster.back_up()
            break
        except (StorageError, ExceptionGroup) as caught:
            refused = first(caught)
        assert isinstance(refused, StorageError), refused
        assert (
            "cannot keep backups: " in refused.message or "out of space" in refused.message or PLACE in refused.message
        )
        assert step < 2 or names(archive(cluster.disk)) == []
        tidy(archive(cluster.disk))
        assert step < 2 or archive(cluster.disk)._root.names() == []
    assert step > 9


async def test_a_cancelled_backup_leaves_nothing(cluster, autojump_clock):
    with trio.CancelScope() as scope:
        at_pages(cluster, lambda page: scope.cancel() if page == 3 else None)
        await cluster.back_up()
    assert scope.cancelled_caught
    assert archive(cluster.disk)._root.names() == []


async def test_there_is_no_such_table_or_base(cluster, autojump_clock):
    with pytest.raises(UnknownDatabase, match="there is no table x"):
        await cluster.back_up(1, "t", "x")
    with pytest.raises(BadRequest, match="no complete backup 'x'"):
        await cluster.back_up(since="x")
    assert archive(cluster.disk)._root.names() == []


async def test_only_some_tables(cluster, autojump_clock):
    cluster.make("u")
    manifest = await cluster.back_up(1, "u")
    assert [(table.name, [*table.files]) for table in manifest.tables] == [("u", [])]


async def test_records_keep_their_expiry_through_a_backup(cluster, autojump_clock):
    cluster.one.replicas.originate(
        {cluster.one.copy: [RecordWrite(b"k1", b"new", expiry=MIN_EXPIRES_MS), RecordWrite(b"k2", b"soon", expiry=-9)]}
    )
    cluster.ranges[0].pass_s(0.5)
    await cluster.restore(await cluster.back_up(), "t", new_name="new")
    rows = {row[0]: row[1:] for _, method, params in cluster.asked if method == "put_many" for row in params[1]}
    assert {len(row) for key, row in rows.items() if key not in {b"k1", b"k2"}} == {1}
    assert rows[b"k1"] == [b"new", MIN_EXPIRES_MS]
    assert rows[b"k2"] == [b"soon", record.expires_ms(cluster.one.spaces[cluster.one.copy.space][RECORD + b"k2"])]


# -- partial -----------------------------------------------------------------------------------------------------------

MIDDLE = {"t": [{"start": b"k3", "end": b"m"}]}


@pytest.fixture
def three(cluster):
    """Return the cluster with three ranges, of which the middle one is lost."""
    cluster.ranges |= {1: memory.Cluster(), 2: memory.Cluster()}
    cluster.ranges[2].nodes[0].write(x=b"1")
    cluster.routes["t"].partitions = {b"": 0, b"k3": 1, b"m": 2}
    del cluster.ranges[1]
    return cluster


async def test_a_lost_partition_is_left_out_of_a_partial_backup(three, autojump_clock):
    """Without `partial`, the error names the option. A backup since the partial one copies the partition whole."""
    await fails(three, Unavailable, "--partial leaves out what cannot be copied")
    manifest = await three.back_up(is_partial=True)
    assert manifest.missing == manifest.summary()["missing"] == MIDDLE
    assert three.archive.manifest(manifest.name) == manifest
    assert three.saved(manifest) == three.one.live | {b"x": b"1"}
    three.ranges[1] = memory.Cluster()
    three.ranges[1].nodes[0].write(k3=b"found")
    three.ranges[1].pass_s(0.5)
    later = await three.back_up(2, since=manifest.name)
    assert (later.missing, three.saved(later)[b"k3"]) == ({}, b"found")


async def test_a_partition_of_dead_hosts_is_left_out_at_once(three, autojump_clock):
    """A minute for each would be hours for a table; a partition of which too few hosts answer has that minute."""
    began = trio.current_time()
    await three.back_up(1, is_partial=True)
    assert trio.current_time() - began > 60
    three.live_nodes = three.live_nodes[:1]
    began = trio.current_time()
    await fails(three, Unavailable, "a backup needs 2 of the 3 replicas")
    manifest = await three.back_up(2, is_partial=True)
    assert trio.current_time() - began < 1
    assert [one.missing for one in manifest.tables] == [(0, 1, 2)]


async def test_a_partial_backup_is_restored_with_its_gap(three, autojump_clock):
    manifest = await three.back_up(is_partial=True)
    told = await three.restore(manifest, "t", new_name="new")
    assert told["missing"] == {"new": MIDDLE["t"]}
    assert three.rows[three.restored["new"]] == three.one.live | {b"x": b"1"}
    (options,) = [params[1] for _, method, params in three.asked if method == "create_table"]
    assert options["bounds"] == [b"k3", b"m"]


# -- since -------------------------------------------------------------------------------------------------------------


async def test_since_an_equal_backup_nothing_is_copied(cluster, autojump_clock):
    base = await cluster.back_up()
    del cluster.asked[:]
    manifest = await cluster.back_up(2, since=base.name)
    assert manifest.files == base.files
    assert not [method for _, method, _ in cluster.asked if method == "replica_load"]


async def test_since_a_backup_only_changed_values_come(cluster, autojump_clock):
    """Deleted keys are found with their tombstones and without; re-put ones and new ones come."""
    base = await cluster.back_up()
    cluster.one.write(k1=None, k2=None, k3=None, k4=b"new", x=b"new")
    cluster.two.write(k3=b"again")
    cluster.ranges[0].pass_s(0.5)
    for node in cluster.ranges[0].nodes:  # Pretend that the tombstone was collected.
        del node.spaces[node.copy.space][RECORD + b"k1"]
        node.trim()
    manifest = await cluster.back_up(2, since=base.name)
    assert cluster.saved(manifest) == cluster.one.live
    (file,) = (file for file in manifest.files.values() if file.path.startswith(manifest.name))
    assert file.records == 5  # k1, k2, k3, k4 and x.
    again = await cluster.back_up(3, since=manifest.name)
    assert cluster.saved(again) == cluster.one.live


async def test_since_a_backup_during_writes(cluster, autojump_clock):
    """A key is deleted before and put again after its page, and the other way round."""
    base = await cluster.back_up()
    cluster.one.write(k0=None, k4=None)
    cluster.ranges[0].pass_s(0.5)

    def act(page):
        if page == 4:
            cluster.one.write(k0=b"again", k1=None, k4=b"again", k5=None)

    at_pages(cluster, act)
    manifest = await cluster.back_up(2, since=base.name)
    assert cluster.saved(manifest) == cluster.one.live


async def test_since_a_backup_with_a_record_that_no_majority_has(cluster, autojump_clock):
    """The lost record goes, and the older one of its key comes back."""
    replicas = cluster.ranges[0]
    replicas.cut(cluster.one)
    cluster.one.write(k1=b"alone", k2=None)
    cluster.silent = {3}
    base = await cluster.back_up()
    assert cluster.saved(base)[b"k1"] == b"alone"
    cluster.silent = {1}
    manifest = await cluster.back_up(2, since=base.name)
    assert cluster.saved(manifest) == cluster.two.live


async def test_since_a_backup_split_ranges_are_copied_whole(cluster, autojump_clock):
    base = await cluster.back_up()
    cluster.ranges = {1: memory.Cluster(), 2: memory.Cluster()}
    cluster.ranges[1].nodes[0].write(k0=b"child")
    cluster.ranges[2].nodes[0].write(k5=b"child")
    cluster.routes["t"].partitions = {b"": 1, b"k3": 2}
    manifest = await cluster.back_up(2, since=base.name)
    assert cluster.saved(manifest) == {b"k0": b"child", b"k5": b"child"}
    assert {path.partition("/")[0] for path in manifest.files} == {manifest.name}


async def test_a_damaged_base_is_an_error(cluster, autojump_clock):
    base = await cluster.back_up()
    cluster.one.write(k0=b"new")
    (path,) = base.files
    cluster.disk.unlink(f"{PLACE}/{path}")
    await fails(cluster, Corrupt, "a file of the backup is missing", since=base.name)


async def test_a_base_that_expires_meanwhile_is_an_error(cluster, monkeypatch, autojump_clock):
    """The base is looked at once more when OWNER is written."""
    base = await cluster.back_up()
    begin = cluster.archive.begin

    def begins(name, owner):
        archive(cluster.disk).expire([base.name])
        begin(name, owner)

    monkeypatch.setattr(cluster.archive, "begin", begins)
    with pytest.raises(GossipKVError, match="no complete backup"):
        await cluster.back_up(9, since=base.name)
    assert archive(cluster.disk)._root.names() == []
