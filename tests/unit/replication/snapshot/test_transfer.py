"""Bulk load: a replica too old for every log gets all records; none is lost or comes back."""

from __future__ import annotations

from math import inf

import pytest

from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import RECORD, STATE, ReplicaIdentity, decode_state
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
from gossipkv.storage.engine.shell import Batch
from tests.unit.replication.memory import TABLE, Cluster

ALL = (1 << 64) - 1


@pytest.fixture(autouse=True)
def _pages_are_small(monkeypatch):
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)


def write(key, value):
    return RecordWrite(key.encode(), value)


def left_behind(cluster, node, **values):
    """Cut off a node while the others write and trim their logs."""
    cluster.cut(node)
    first = next(one for one in cluster.nodes if one is not node)
    first.write(**(values or {f"k{number}": b"new" for number in range(9)}))
    cluster.pass_s(0.5)
    for other in cluster.nodes:
        if other is not node:
            other.trim()


def test_a_copy_below_every_log_loads():
    """The loaded replica has all records in a new space, and its log begins there."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    three.write(a=b"1")
    cluster.pass_s(0.5)
    left_behind(cluster, three)
    space = three.copy.space
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)
    assert three.told == ["began", "done"]
    assert one.live == two.live == three.live
    assert len(three.live) == 10
    assert three.copy.space != space
    assert space not in three.spaces


def test_who_has_but_missed_a_part_that_the_logs_have_does_not_load():
    """The logs reach back to the missing records, so the replica is fed."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    cluster.cut(three)
    one.write(a=b"1", b=b"2")
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)
    assert not three.told


def test_one_host_that_can_feed_is_waited_for():
    """One log is too short, but the other one reaches back far enough, so nothing is loaded."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    cluster.cut(three)
    one.write(**{f"k{number}": b"v" for number in range(9)})
    cluster.pass_s(0.5)
    one.trim()
    cluster.cuts |= {(cluster.nodes[1], three)}  # The second node's records arrive late.
    three.replicas.connected(one.uuid)
    one.replicas.connected(three.uuid)
    three.replicas.connected(cluster.nodes[1].uuid)
    cluster.cuts -= {(one, three), (three, one), (three, cluster.nodes[1])}
    cluster.pass_s(2.0)
    assert three.replicas.loader.below.get(three.copy) == {one.uuid}
    assert not cluster.is_caught_up
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)
    assert not three.told


def test_what_is_written_meanwhile_comes_too():
    """Writes at every page, on source, loader and a third host, reach all replicas."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    three.write(gone=b"1", kept=b"1")
    cluster.pass_s(0.5)
    left_behind(cluster, three)
    three.write(alone=b"3", k2=b"3 later")
    written = {}

    def writes(asker, asked, method, params):
        if method == "replica_load" and len(written) < 60 and not three.copy.is_frozen:
            for number, node in enumerate(cluster.nodes):
                key = f"m{len(written)}"
                written[key.encode()] = b"%d" % number
                node.replicas.originate({node.copy: [write(key, b"%d" % number)]})

    cluster.before_answer.append(writes)
    cluster.connect(three)
    cluster.until(lambda: "done" in three.told)
    assert not three.ahead
    cluster.until(lambda: cluster.is_caught_up)
    assert len(written) > 6
    assert one.live == two.live == three.live
    assert three.live.items() >= written.items()
    assert three.live[b"alone"] == b"3"
    assert three.live[b"k2"] == b"3 later"


def test_what_is_written_here_while_the_old_space_is_merged_over():
    """A key before the merged page is read from the log of the old space."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    three.write(**{f"old{number}": b"3" for number in range(9)})
    cluster.pass_s(0.5)
    left_behind(cluster, three)
    scan, written = three.scan, []

    def scans(space, start, end, **options):
        if space == three.copy.space and start > b"\1old5" and not written:
            written.append(1)
            three.replicas.originate({three.copy: [write("a", b"3"), write("old0", b"later")]})
        return scan(space, start, end, **options)

    three.scan = scans
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up and "done" in three.told)
    assert written
    assert (three.live.get(b"a"), three.live[b"old0"]) == (b"3", b"later")
    assert one.live == three.live


def test_what_was_collected_elsewhere_does_not_come_back():
    """An old record covered by the source's clock is dropped, since its tombstone may be collected."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    one.write(a=b"1", b=b"1")
    cluster.pass_s(0.5)
    cluster.cut(three)
    one.write(a=None)
    cluster.pass_s(0.5)
    for node in (one, two):  # Pretend that the third replica was removed and assigned again.
        node.spaces[node.copy.space].pop(b"\1a")
        node.trim()
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up and "done" in three.told)
    assert one.live == three.live == {b"b": b"1"}


def test_the_clock_and_the_time_move_at_the_end():
    """Clock and time stay unchanged until the last batch; then the time is at least the source's."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    one.skew_s = 30
    left_behind(cluster, three)
    clocks = []
    cluster.before_answer.append(
        lambda asker, asked, method, params: method == "replica_load" and clocks.append(three.copy.synced)
    )
    before = three.copy.synced
    cluster.connect(three)
    cluster.until(lambda: "done" in three.told)
    assert len(clocks) > 4
    assert set(clocks) == {before}
    assert three.copy.time >= one.copy.time > 0
    three.write(k1=b"z")
    cluster.pass_s(0.5)
    assert one.live[b"k1"] == b"z"


def test_nothing_is_taken_while_it_ends():
    """While the last page is unsynced, entries are kept for later and the replica accepts no writes."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    cluster.cut(two)
    left_behind(cluster, three)
    cluster.connect(three)
    one.replicas.disconnected(two.uuid)
    two.replicas.disconnected(one.uuid)
    cluster.cuts |= {(one, two), (two, one)}  # The third node can now merge the writes of the second, which also lags.
    three.keeps_spaces = True
    for number in range(99):
        if not three.copy.is_frozen:
            two.write(late=b"%d" % number)
            cluster.pass_s(0.01)
    taken = three.copy.appended
    cluster.until(lambda: not three.syncs)
    assert three.copy.is_frozen
    assert not three.replicas.may_originate(three.copy)
    cluster.pass_s(1.0)
    assert three.copy.appended == taken
    three.syncs, three.keeps_spaces = True, False
    three.sync()
    cluster.connect()
    cluster.until(lambda: cluster.is_caught_up)
    assert two.live == three.live == one.live
    assert three.live[b"late"] == b"%d" % (clock.counter(two.copy.synced, 2) - 1)


@pytest.mark.parametrize("crashes", [False, True])
def test_its_log_begins_there(crashes):
    """A lagging replica must load from a loaded one, whose log begins at the load, even after a restart."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    left_behind(cluster, three)
    cluster.cut(two)
    two_clock = two.copy.synced
    one.write(after=b"1")
    cluster.pass_s(0.5)
    one.trim()
    cluster.connect(three)
    cluster.cut(two)
    cluster.until(lambda: three.copy.synced == one.copy.synced)
    cluster.cut(one)
    assert two.copy.synced == two_clock
    one.is_up = False
    if crashes:
        cluster.crash(three)
    cluster.connect(two)
    cluster.until(lambda: two.copy.synced == three.copy.synced)
    assert two.told == ["began", "done"]
    assert two.live == three.live


def test_a_log_that_is_cut_under_a_feed():
    """A log that is trimmed before its feed has read it makes the target load."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    one.write(a=b"1")
    one.trim()
    cluster.until(lambda: cluster.is_caught_up)
    assert two.live == three.live == {b"a": b"1"}
    assert two.told == three.told == ["began", "done"]


def test_two_that_load_from_each_other():
    """Two replicas that lack each other's trimmed writes both load, and the loads end with all records."""
    cluster = Cluster(2)
    one, two = cluster.nodes
    cluster.cut(two)
    one.write(a=b"1", c=b"1")
    two.write(b=b"2", c=b"2")
    cluster.pass_s(0.5)
    one.trim()
    two.trim()
    cluster.connect()
    cluster.until(lambda: cluster.is_caught_up)
    assert one.live == two.live
    assert one.live.keys() == {b"a", b"b", b"c"}
    cluster.pass_s(2.0)
    assert not one.replicas.loader.loads
    assert not two.replicas.loader.loads


def test_a_log_that_is_too_small_is_told():
    """If the logs were trimmed during a load, the replica loads again and reports the small log."""
    cluster = Cluster()
    three = cluster.nodes[2]
    left_behind(cluster, three)
    cluster.connect(three)
    cluster.until(lambda: "done" in three.told)
    left_behind(cluster, three, again=b"1")
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up and three.told.count("done") == 2)
    assert three.copy in three.replicas.loader.log_too_small
    assert three.told == ["began", "done", "too small", "began", "done"]


def test_a_log_that_is_too_small_is_told_until_the_copy_has_kept_up(monkeypatch):
    """The report lasts as long as another load would repeat it; afterwards a load starts without the report."""
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.TOO_SMALL_S", 3.0)
    cluster = Cluster()
    three = cluster.nodes[2]
    for number in range(3):
        left_behind(cluster, three, **{f"k{number}": b"1"})
        cluster.connect(three)
        cluster.until(lambda number=number: three.told.count("done") == number + 1)
    cluster.pass_s(2.5)
    assert three.copy in three.replicas.loader.log_too_small
    cluster.pass_s(1.0)
    assert three.copy not in three.replicas.loader.log_too_small
    left_behind(cluster, three, k3=b"1")
    cluster.connect(three)
    cluster.until(lambda: three.told.count("done") == 4)
    assert three.copy not in three.replicas.loader.log_too_small
    assert three.told.count("too small") == 1


def test_a_load_that_is_outrun_by_the_log_here_says_so_until_it_has_kept_up(monkeypatch):
    """The local log of writes during the load was trimmed before its merge."""
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.TOO_SMALL_S", 3.0)
    cluster = Cluster()
    one, _, three = cluster.nodes
    left_behind(cluster, three)
    load = three.replicas.loader
    read_log = three.read_log
    three.read_log = lambda spaces, position, on_log: on_log(None, position)
    three.write(alone=b"3")
    scan = three.scan
    three.scan = lambda space, *bounds, **how: three.write(later=b"3") or scan(space, *bounds, **how)
    cluster.connect(three)
    cluster.until(lambda: "too small" in three.told)
    three.read_log, three.scan = read_log, scan
    cluster.until(lambda: cluster.is_caught_up)
    cluster.pass_s(2.5)
    assert three.copy in load.log_too_small
    cluster.pass_s(1.0)
    assert three.copy not in load.log_too_small
    assert one.live == three.live


def test_who_cannot_load_yet_is_looked_at_now_and_then():
    """If no source has the config, or the replica is not below, no retry is due at once."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    left_behind(cluster, three)
    cluster.adopt(2, one, two)
    cluster.connect(three)
    for _ in range(100):
        cluster.pass_s(0.01)
        assert three.replicas.loader.due > cluster.now
    assert not three.told
    for node in (one, two):
        three.replicas.loader.hears(node.uuid, three.copy, below=False)
    assert three.replicas.loader.due == inf
    cluster.adopt(2, three)
    cluster.connect(three)
    cluster.until(lambda: three.replicas.loader.loads)
    for node in (one, two):
        three.replicas.loader.hears(node.uuid, three.copy, below=False)
    three.replicas.loader._abort(three.replicas.loader.loads[three.copy], "as asked")
    assert three.replicas.loader.due == inf
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)


def test_a_config_that_comes_while_it_ends_is_adopted_afterwards():
    """After the batch that drops the old space, no other batch may write to it."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    left_behind(cluster, three)
    cluster.connect(three)
    three.keeps_spaces = True
    cluster.until(lambda: not three.syncs)
    cluster.adopt(2)
    assert three.copy.config == 1
    three.syncs, three.keeps_spaces = True, False
    three.sync()
    cluster.until(lambda: cluster.is_caught_up and three.copy.config == three.copy.synced_config == 2)
    assert three.live == one.live


def test_what_was_loaded_by_a_newer_map_is_read_by_that_map():
    """Records from a newer map need that map, since an older one may not know all their origins."""
    cluster = Cluster()
    three = cluster.nodes[2]
    left_behind(cluster, three)
    cluster.adopt(2)
    assert three.copy.taken_config == 1
    cluster.connect(three)
    cluster.until(lambda: "done" in three.told)
    assert three.copy.taken_config == 2


def test_a_copy_that_is_dropped_takes_its_load_along():
    """The replica may be dropped at any page, or while the last batch is pending."""
    for page in range(9):
        cluster = Cluster()
        three = cluster.nodes[2]
        left_behind(cluster, three)
        cluster.connect(three)
        cluster.until(lambda three=three: three.replicas.loader.loads)
        three.keeps_spaces = page == 8
        cluster.pass_s(min(page, 7) / 100 if page < 8 else 0.5)
        assert three.replicas.loader.loads
        batch = Batch()
        three.replicas.drop(three.copy, batch)
        three.append(batch, lambda: None)
        three.sync()
        three.syncs = True
        cluster.pass_s(1.0)
        assert not three.spaces


def test_what_has_ended_is_not_merged_over():
    """The source may have collected the tombstone of a put by a removed origin."""
    cluster = Cluster(4)
    gone, one, two, three = cluster.nodes
    gone.write(a=b"1")
    cluster.pass_s(0.5)
    cluster.cut(gone)
    hosts = [host for host in one.copy.hosts if host.node != gone.uuid]
    for node in (one, two, three):
        node.replicas.place(node.copy.identity, 2, hosts)
    cluster.run()
    for node in (one, two):
        del node.spaces[node.copy.space][RECORD + b"a"]  # Simulate a delete whose tombstone is collected.
    cluster.nodes.remove(gone)
    left_behind(cluster, three)
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)
    assert three.told == ["began", "done"]
    assert three.live == one.live


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (lambda origin, count, _: (origin + 10, count), "another partition"),
        (lambda origin, count, own: (origin, ALL if origin == own else count), "later records of this replica"),
    ],
)
def test_a_source_that_lies(lie, why):
    """A source whose clock names other assignments, or exceeds the loader's own counter, is refused."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    left_behind(cluster, three)
    for node in (one, two):
        state = node.spaces[node.copy.space][STATE]
        told = clock.of(lie(*had, three.copy.assignment) for had in clock.entries(node.copy.synced))
        node.spaces[node.copy.space][STATE] = encode_state(1, decode_state(state)[1], told, told)
    before = three.copy.space
    cluster.connect(three)
    cluster.until(lambda: any(why in str(told) for told in three.told))
    assert three.copy.space == before
    assert three.live == {}


def test_who_lacks_what_a_copy_has_that_is_whole_by_an_entry_loads():
    """A record merged ahead is only in the log of its lost origin, so lagging replicas must load."""
    cluster = Cluster(4, adopts=False)
    one, gone, target, last = cluster.nodes
    hosts = [
        AssignedReplica(node.number, node.uuid, at, counts=True, available=True)
        for at, node in enumerate((one, gone, last))
    ]

    def adopt(config, hosts, *nodes):
        for node in nodes:
            rules = PartitionRules(slots=3, loads=True)
            node.replicas.place(ReplicaIdentity(TABLE, 7, node.number), config, hosts, rules)
        cluster.run()

    adopt(1, hosts, one, gone, last)
    cluster.connect(gone, last)
    cluster.cut(one)
    cluster.pass_s(1.2)
    gone.write(a=b"1")
    cluster.pass_s(0.5)
    cluster.cut(last)
    joined = [*hosts, AssignedReplica(target.number, target.uuid, 0, counts=True, available=False)]
    adopt(2, joined, *cluster.nodes)
    for node in (gone, one):
        cluster.cuts -= {(node, target), (target, node)}
        node.replicas.connected(target.uuid)
        target.replicas.connected(node.uuid)
    gone.write(b=b"2")
    cluster.until(lambda: "done" in target.told)
    assert target.copy.joining is not None  # The target has the second record of the lost origin, and not the first.
    cluster.cut(gone)
    cluster.nodes.remove(gone)
    cluster.connect()
    cluster.until(lambda: target.copy.joining is None)
    adopt(3, [host._replace(available=True) for host in joined if host.node != one.uuid], target, last)
    cluster.until(lambda: last.live == target.live == {b"a": b"1", b"b": b"2"})


def test_what_has_ended_is_nothing_that_others_have_more():
    """Otherwise two replicas with equal records would load from each other for ever."""
    cluster = Cluster(4)
    gone, one, two, three = cluster.nodes
    gone.write(a=b"1")
    cluster.pass_s(0.5)
    cluster.cut(gone)
    hosts = [host for host in one.copy.hosts if host.node != gone.uuid]
    for node in (one, two, three):
        node.replicas.place(node.copy.identity, 2, hosts)
    cluster.run()
    cluster.nodes.remove(gone)
    cluster.cut(three)
    one.write(b=b"1")
    three.write(c=b"3")
    cluster.pass_s(0.5)
    for node in (one, two, three):
        node.trim()
    cluster.connect(three)
    cluster.until(lambda: cluster.is_caught_up)
    cluster.pass_s(2.0)
    assert one.live == two.live == three.live
    assert [node.told.count("began") <= 2 for node in (one, two, three)] == [True] * 3
    assert not any(node.replicas.loader.loads for node in (one, two, three))
