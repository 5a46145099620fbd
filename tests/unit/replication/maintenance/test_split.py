"""Ranges that are split in place: the children's records, the older log, and reports to other nodes."""

import pytest

from gossipkv.errors import NotReady
from gossipkv.processes.pace import RateLimit
from gossipkv.replication.maintenance.range_cleanup import RangeCleanup
from gossipkv.replication.maintenance.split import ChildReplica, divide
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import (
    ABANDONED,
    DIVIDED,
    RECORD,
    TOMBSTONE,
    KeyBounds,
    ReplicaIdentity,
    suffix_of,
)
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
from gossipkv.replication.stream import peer
from gossipkv.storage.engine.shell import Batch
from tests.unit.replication.memory import TABLE, Cluster

LOW, HIGH = 8, 9  # The children of partition 7, which meet at MIDDLE.
MIDDLE = b"m"
BOUNDS = {LOW: KeyBounds(b"", MIDDLE), HIGH: KeyBounds(MIDDLE, None)}
PARENTS = (1, 2, 3)
SERVES = (True, True)  # The replica counts and is AVAILABLE.


def assignment_of(child, number):
    return 10 * child + number


class Ranges(Cluster):
    """Three nodes that hold one range of a table."""

    def __init__(self):
        super().__init__(adopts=False)
        for node in self.nodes:
            node.replicas.spaces.index_ranges(TABLE)
            node.replicas.maps[TABLE] = 1
            node.newer = []
            node.replicas.on_newer = lambda *told, node=node: node.newer.append(told[:2])
        self.adopt(1)
        self.connect()
        self.pass_s(0.3)

    def heir(self, child, number, former=PARENTS):
        """Return the child replica that a node keeps."""
        hosts = [
            AssignedReplica(assignment_of(child, one), self.nodes[one - 1].uuid, one - 1, *SERVES) for one in PARENTS
        ]
        identity = ReplicaIdentity(TABLE, child, assignment_of(child, number), BOUNDS[child])
        return ChildReplica(identity, 2, hosts, PartitionRules(3, former))

    def divide(self, *numbers, heirs=(LOW, HIGH)):
        for number in numbers or PARENTS:
            node = self.nodes[number - 1]
            parent = node.replicas.by_partition[TABLE, 7]
            aside = {ReplicaIdentity(TABLE, one, number, BOUNDS[one]): "gone on" for one in {LOW, HIGH} - {*heirs}}
            divide(node.replicas, node.append, parent, [self.heir(one, number) for one in heirs], aside)
            node.replicas.maps[TABLE] = 2
            node.config = 2
        self.run()

    def write(self, number, key, value=b"v", level=None):
        """Write at a node; return a list to which the key is added once the level is reached."""
        replicas, reached = self.nodes[number - 1].replicas, []
        copy = replicas.spaces.at(TABLE, key)
        counters = replicas.originate({copy: [RecordWrite(key, value)]})
        if level is not None:
            replicas.acks[copy].wait(level, counters[copy.assignment], lambda: reached.append(key))
        self.run()
        return reached


def child(node, number):
    return node.replicas.by_partition[TABLE, number]


def live(node, copy):
    """Return the live records within the replica's own bounds."""
    start, end = copy.bounds.records
    rows = node.spaces[copy.space].items()
    return {key[1:]: record.value(data) for key, data in rows if start <= key < end and record.value(data) is not None}


def are_equal(cluster, what=(LOW, HIGH)):
    """Check that all nodes have children of the same clock and records."""
    for number in what:
        copies = [child(node, number) for node in cluster.nodes]
        assert len({copy.synced for copy in copies}) == 1, [clock.entries(copy.synced) for copy in copies]
        assert len({tuple(sorted(live(node, child(node, number)).items())) for node in cluster.nodes}) == 1
    return True


@pytest.fixture
def cluster():
    made = Ranges()
    made.write(1, b"a")
    made.write(2, b"m")
    made.write(3, b"z")
    made.pass_s(1.0)
    return made


def test_heirs_have_what_the_parent_had(cluster):
    """Children inherit clock, time and records by key without a copy; the key of the split goes to the right child."""
    before = cluster.nodes[0].replicas.by_partition[TABLE, 7]
    cluster.divide()
    node = cluster.nodes[0]
    low, high = child(node, LOW), child(node, HIGH)
    assert (live(node, low), live(node, high)) == ({b"a": b"v"}, {b"m": b"v", b"z": b"v"})
    assert low.space == high.space == before.space
    assert node.replicas.spaces.at(TABLE, MIDDLE) is high
    assert (TABLE, 7) not in node.replicas.by_partition
    for copy, number in ((low, LOW), (high, HIGH)):
        own = [(assignment_of(number, one), 0) for one in PARENTS]
        assert clock.entries(copy.synced) == [*clock.entries(before.synced), *own]
        assert copy.time == before.time
        assert copy.synced_config == 2
    cluster.pass_s(1.0)
    assert are_equal(cluster)
    assert [node.told for node in cluster.nodes] == [[], [], []]


def test_what_is_written_then_is_of_the_heirs(cluster):
    """Writes after the split's batch belong to the children, also for keys that were written before."""
    cluster.divide()
    cluster.pass_s(0.5)
    reached = cluster.write(1, b"a", b"w", "all") + cluster.write(2, b"z", b"w", "majority")
    cluster.pass_s(0.5)
    assert reached == []
    assert are_equal(cluster)
    assert live(cluster.nodes[2], child(cluster.nodes[2], LOW)) == {b"a": b"w"}
    assert clock.counter(child(cluster.nodes[2], LOW).synced, assignment_of(LOW, 1)) == 1
    assert clock.counter(child(cluster.nodes[2], HIGH).synced, assignment_of(HIGH, 2)) == 1


def test_what_waits_is_counted_anew(cluster):
    """Acknowledgements of the parent do not count: a majority must confirm each child under its own config."""
    cluster.cut(cluster.nodes[0])
    reached = cluster.write(1, b"b", b"w", "majority")
    cluster.divide(1)
    cluster.connect(cluster.nodes[0])
    cluster.pass_s(2.0)
    assert reached == []
    cluster.divide(2, heirs=[LOW])  # No node has confirmed the other child.
    cluster.pass_s(1.0)
    assert clock.counter(child(cluster.nodes[1], LOW).synced, 1) == 2
    assert reached == []
    cluster.divide(3)
    cluster.pass_s(1.0)
    assert reached == [b"b"]


def test_what_is_settled_waits_no_more(cluster):
    """A pending write completes once the map shows that its parent is settled."""
    node = cluster.nodes[0]
    cluster.cut(node)
    reached = cluster.write(1, b"b", b"w", "all")
    cluster.divide(1)
    assert reached == []
    for number in (LOW, HIGH):
        heir = cluster.heir(number, 1, former=())
        node.replicas.place(heir.identity, 3, heir.hosts, heir.rules)
    cluster.pass_s(1.0)
    assert reached == [b"b"]


def test_an_origin_that_has_not_heard_goes_on(cluster):
    """Nodes that have not heard of a split acknowledge to each other; the split node refuses and hints at its map."""
    cluster.divide(1)
    reached = cluster.write(2, b"c", b"w", "majority")
    cluster.pass_s(1.0)
    assert reached == [b"c"]
    told = cluster.nodes[1].replicas.peers[cluster.nodes[0].uuid].sender.statuses
    assert cluster.nodes[1].replicas.by_partition[TABLE, 7] not in told
    assert live(cluster.nodes[0], child(cluster.nodes[0], LOW)) == {b"a": b"v"}
    assert (TABLE, cluster.nodes[0].uuid) in cluster.nodes[1].newer
    assert cluster.nodes[0].newer == []
    reached = cluster.write(2, b"d", b"w", "all")
    cluster.divide(2)
    cluster.divide(3)
    cluster.pass_s(1.0)
    assert reached == [b"d"]
    assert are_equal(cluster)
    assert live(cluster.nodes[0], child(cluster.nodes[0], LOW)) == {b"a": b"v", b"c": b"w", b"d": b"w"}


@pytest.mark.parametrize("has_synced", [True, False])
def test_a_log_from_before_is_read_as_each_heirs(cluster, has_synced):
    """A log entry of the parent counts for both children, even if a child has none of its records."""
    cluster.cut(cluster.nodes[0])
    node = cluster.nodes[0]
    node.syncs = has_synced
    cluster.write(1, b"b")
    cluster.write(1, b"y")
    cluster.divide(1)
    assert child(node, LOW).is_pending(b"b") is not has_synced
    assert child(node, LOW).synced_config == (2 if has_synced else 1)
    node.sync()
    node.syncs = True
    cluster.write(1, b"b", b"w")
    cluster.divide(2, 3)
    cluster.connect(node)
    cluster.pass_s(2.0)
    assert are_equal(cluster)
    other = cluster.nodes[1]
    assert live(other, child(other, LOW)) == {b"a": b"v", b"b": b"w"}
    assert live(other, child(other, HIGH)) == {b"m": b"v", b"y": b"v", b"z": b"v"}
    assert [one.told for one in cluster.nodes] == [[], [], []]  # No node has loaded.


def test_a_next_life_reads_it_so_too(cluster):
    """A restart recovers the children and reads the parent's log for both."""
    cluster.cut(cluster.nodes[0])
    cluster.write(1, b"b")
    last = cluster.nodes[0].replicas.by_partition[TABLE, 7].time
    cluster.divide(1)
    cluster.write(1, b"z", b"w")
    node = cluster.nodes[0]
    node.begin()
    low, high = child(node, LOW), child(node, HIGH)
    assert (low.bounds, high.bounds) == (BOUNDS[LOW], BOUNDS[HIGH])
    assert low.named == (*PARENTS, *(assignment_of(LOW, one) for one in PARENTS))
    assert low.time == last
    node.replicas.spaces.index_ranges(TABLE)
    node.replicas.maps[TABLE] = 2
    for number in (LOW, HIGH):
        heir = cluster.heir(number, 1)
        node.replicas.place(heir.identity, heir.config, heir.hosts, heir.rules)
    cluster.divide(2, 3)
    cluster.connect(node)
    cluster.pass_s(2.0)
    assert are_equal(cluster)
    assert live(cluster.nodes[1], child(cluster.nodes[1], HIGH))[b"z"] == b"w"
    assert [one.told for one in cluster.nodes] == [[], [], []]


def test_a_part_without_an_heir_is_set_aside(cluster):
    """A part without a local child is quarantined with its records, and its pending write is not confirmed."""
    node = cluster.nodes[0]
    cluster.cut(node)
    reached = cluster.write(1, b"b", b"w", "majority")
    cluster.divide(1, heirs=[LOW])
    (aside,) = node.replicas.spaces.all_quarantined()
    assert (aside.identity.partition, aside.identity.assignment, aside.why) == (HIGH, 1, "gone on")
    assert node.replicas.spaces.at(TABLE, b"z") is None
    cluster.divide(2, 3)
    cluster.connect(node)
    cluster.pass_s(2.0)
    assert reached == []
    assert are_equal(cluster, [LOW])
    space = child(node, LOW).space
    assert {RECORD + b"m", RECORD + b"z"} <= node.spaces[space].keys()
    node.begin()
    assert [one.identity for one in node.replicas.spaces.all_quarantined()] == [aside.identity]


def test_one_that_loads_leaves_its_sibling_alone(cluster):
    """A loading child gets its own space; only its own old records are deleted, page by page."""
    cluster.divide()
    cluster.pass_s(0.5)
    node = cluster.nodes[2]
    cluster.write(3, b"b", None)
    cluster.pass_s(0.5)
    cluster.cut(node)
    cluster.write(1, b"c")
    cluster.pass_s(0.5)
    for other in cluster.nodes[:2]:
        other.trim()
    cluster.connect(node)
    cluster.pass_s(3.0)
    low, high = child(node, LOW), child(node, HIGH)
    assert node.told.count("done") == 1
    assert low.space != high.space
    assert low.suffix == b""
    assert node.get(high.space, ABANDONED + suffix_of(LOW)) is not None
    assert node.get(high.space, RECORD + b"a") is not None
    clearing = RangeCleanup(node.replicas.spaces, node, RateLimit())
    while node.replicas.spaces.abandoned:
        clearing.look()
        cluster.run()
    rest = {key for key in node.spaces[high.space] if key[:1] in {RECORD, TOMBSTONE}}
    assert rest == {RECORD + b"m", RECORD + b"z"}
    assert node.get(high.space, ABANDONED + suffix_of(LOW)) is None
    cluster.pass_s(1.0)
    assert are_equal(cluster)
    assert live(node, low) == {b"a": b"v", b"c": b"v"}


def test_a_page_in_which_nothing_is_left_goes_on(cluster, monkeypatch):
    """The scan skips many deleted records, so a page is empty and names the start of the next page."""
    cluster.divide(1)
    node = cluster.nodes[0]
    low = child(node, LOW)
    batch = Batch()
    node.replicas.spaces.leaves(low, batch)
    node.append(batch, lambda: None)
    cluster.run()
    node.replicas.spaces.remove(low, low.space, low.suffix)
    scan, starts = node.scan, []

    def scanned(space, start, end, **options):
        starts.append(start)
        return ([], RECORD + b"0") if len(starts) == 1 else scan(space, start, end, **options)

    monkeypatch.setattr(node, "scan", scanned)
    clearing = RangeCleanup(node.replicas.spaces, node, RateLimit())
    while node.replicas.spaces.abandoned:
        clearing.look()
        cluster.run()
    assert starts[:2] == [RECORD, RECORD + b"0"]
    assert {key for key in node.spaces[low.space] if key[:1] in {RECORD, TOMBSTONE}} == {RECORD + b"m", RECORD + b"z"}


@pytest.mark.parametrize("at_once", [False, True])
def test_with_the_last_the_space_goes(cluster, at_once):
    """The space is dropped with its last replica, also if both replicas leave at once."""
    cluster.divide(1)
    node = cluster.nodes[0]
    low, high = child(node, LOW), child(node, HIGH)
    batches = [Batch(), Batch()]
    for copy, batch in zip((low, high), batches, strict=True):
        node.replicas.spaces.leaves(copy, batch)
        node.append(batch, lambda: None)
        if not at_once:
            cluster.run()
            node.replicas.spaces.remove(copy, copy.space, copy.suffix)
    cluster.run()
    for copy in (low, high) if at_once else ():
        node.replicas.spaces.remove(copy, copy.space, copy.suffix)
    assert low.space in node.spaces
    RangeCleanup(node.replicas.spaces, node, RateLimit()).look()
    cluster.run()
    assert low.space not in node.spaces
    assert not node.replicas.spaces.abandoned


def test_one_that_is_about_to_move_is_divided_later(cluster):
    """The batch that switches the replica to another space is already appended."""
    node = cluster.nodes[0]
    copy = node.replicas.by_partition[TABLE, 7]
    node.replicas.loader.loads[copy] = type("Load", (), {"is_switching": True})()
    with pytest.raises(NotReady):
        cluster.divide(1)
    assert node.replicas.by_partition[TABLE, 7] is copy


def test_what_the_log_names_no_more_is_forgotten(cluster):
    """The bounds of a split parent are kept until the log begins behind the split."""
    cluster.divide(1)
    node = cluster.nodes[0]
    space = child(node, LOW).space
    clearing = RangeCleanup(node.replicas.spaces, node, RateLimit())
    clearing.forget_divided(node.floor)
    cluster.run()
    assert node.get(space, DIVIDED) is not None
    node.trim()
    clearing.forget_divided(node.floor)
    cluster.run()
    assert node.get(space, DIVIDED) is None
    assert not node.replicas.spaces.divided


def test_tombstones_of_siblings(cluster):
    """Each replica collects only its own tombstones in the shared space."""
    cluster.divide()
    cluster.pass_s(0.5)
    cluster.write(1, b"a", None)
    cluster.write(1, b"z", None)
    cluster.pass_s(1.0)
    node = cluster.nodes[0]
    node.collector._collect(child(node, LOW))
    cluster.run()
    keys = node.spaces[child(node, LOW).space]
    assert (RECORD + b"a" in keys, RECORD + b"z" in keys) == (False, True)
    assert {key[9:] for key in keys if key[:1] == TOMBSTONE} == {b"z"}
    node.collector._collect(child(node, HIGH))
    cluster.run()
    assert RECORD + b"z" not in node.spaces[child(node, LOW).space]


def test_tombstones_of_a_sibling_that_has_departed(cluster):
    """Key lookups do not find a departed replica, but its tombstones stay its own until it is dropped."""
    cluster.divide()
    cluster.pass_s(0.5)
    cluster.write(1, b"z", None)
    cluster.pass_s(1.0)
    node = cluster.nodes[0]
    low, high = child(node, LOW), child(node, HIGH)
    high.departs()
    node.replicas.spaces.hides(high)
    node.collector._collect(low)
    cluster.run()
    assert RECORD + b"z" in node.spaces[high.space]


def test_who_was_not_heard_of_the_parent_is_asked_first(cluster):
    """The disk may be an older copy, so a child asks the other replicas for its own counter first."""
    node = cluster.nodes[0]
    cluster.cut(node)
    node.begin()
    node.replicas.spaces.index_ranges(TABLE)
    cluster.adopt(1, node)
    cluster.pass_s(2.0)
    cluster.divide(1)
    assert not node.replicas.may_originate(child(node, LOW))
    cluster.divide(2, 3)
    cluster.connect(node)
    cluster.pass_s(0.1)
    assert node.replicas.may_originate(child(node, LOW))


def test_a_feed_goes_on_where_it_was(cluster):
    """The log is not read again from the beginning, even for a node that had refused the parent."""
    read = []
    for node in cluster.nodes:
        node.look = lambda peer, look, node=node: (read.append(look.position), type(node).look(node, peer, look))
    covered = cluster.nodes[0].synced()
    cluster.divide(1)
    cluster.write(2, b"c")
    cluster.pass_s(1.0)
    assert cluster.nodes[1].newer
    cluster.divide(2)
    cluster.pass_s(0.1)
    cluster.divide(3)
    cluster.pass_s(1.0)
    assert are_equal(cluster)
    assert read
    assert min(read) >= covered


def test_a_link_does_not_grow_with_divisions(cluster, monkeypatch):
    """A link restarts once all is level, and thereby drops the numbers of former replicas."""
    monkeypatch.setattr(peer, "FEW_ROWS", 0)
    cluster.divide()
    cluster.pass_s(1.0)
    one, two = cluster.nodes[:2]
    for number in (LOW, HIGH):  # Settle the parents, so that clocks have fewer entries.
        for node in cluster.nodes:
            heir = cluster.heir(number, node.number, former=())
            node.replicas.place(heir.identity, 3, heir.hosts, heir.rules)
    cluster.pass_s(1.0)
    assert len(one.replicas.peers[two.uuid].numbered) == len(two.replicas.peers[one.uuid].rows) <= 4  # Not 5.
    cluster.write(1, b"a", b"w")
    cluster.pass_s(1.0)
    assert are_equal(cluster)


def test_who_is_told_of_a_child_hears_of_the_map(cluster):
    """The hint needs no write after the split."""
    cluster.divide(1)
    cluster.pass_s(1.0)
    assert [node.newer[:1] for node in cluster.nodes] == [[], *[[(TABLE, cluster.nodes[0].uuid)]] * 2]


def test_what_was_written_here_before_goes_at_once(cluster):
    """Writes of a former local assignment are sent at once and do not wait for a relay."""
    node = cluster.nodes[0]
    node.syncs = False
    cluster.write(1, b"b")
    cluster.divide(1)
    cluster.divide(2, 3)
    node.sync()
    node.syncs = True
    cluster.run()
    cluster.pass_s(0.15)
    assert live(cluster.nodes[1], child(cluster.nodes[1], LOW)) == {b"a": b"v", b"b": b"v"}


def test_a_write_under_way_reaches_its_level_although_a_new_host_of_a_child_was_never_met(cluster):
    """The map that divides the range also moves a child to a node to which there was no connection yet."""
    node = cluster.nodes[0]
    node.syncs = False
    reached = cluster.write(1, b"b", level="one")
    new = AssignedReplica(assignment_of(LOW, 4), bytes([9]) * 16, 2, counts=True, available=False)
    low, high = cluster.heir(LOW, 1), cluster.heir(HIGH, 1)
    parent = node.replicas.by_partition[TABLE, 7]
    divide(node.replicas, node.append, parent, [low._replace(hosts=[*low.hosts, new]), high], {})
    node.syncs = True
    node.sync()
    assert reached == [b"b"]


def test_who_leaves_a_space_with_others_leaves_that_alone(cluster):
    cluster.divide(1)
    batch = Batch()
    cluster.nodes[0].replicas.spaces.leaves(child(cluster.nodes[0], LOW), batch)
    assert (batch.count > 0, [*batch.dropped]) == (True, [])


def test_a_digest_is_of_its_own_keys(cluster):
    cluster.divide()
    cluster.pass_s(0.5)
    node = cluster.nodes[0]
    for _ in range(20):
        node.digests.look()
    assert {number: child(node, number).digest.records for number in (LOW, HIGH)} == {LOW: 1, HIGH: 2}


def test_a_child_is_divided(cluster):
    """The grandchildren stay in the same space and read the log of both ancestors, also after a restart."""
    first = cluster.nodes[0]
    cluster.cut(first)
    cluster.write(1, b"b")
    cluster.divide(1)
    cluster.write(1, b"c")
    parent = child(first, LOW)
    bounds = {10: KeyBounds(b"", b"c"), 11: KeyBounds(b"c", MIDDLE)}
    heirs = []
    for number, part in bounds.items():
        hosts = [
            AssignedReplica(assignment_of(number, one), cluster.nodes[one - 1].uuid, one - 1, *SERVES)
            for one in PARENTS
        ]
        heirs.append(
            ChildReplica(
                ReplicaIdentity(TABLE, number, hosts[0].assignment, part), 3, hosts, PartitionRules(3, parent.named)
            )
        )
    divide(first.replicas, first.append, parent, heirs, {})
    cluster.run()
    low, high = (child(first, number) for number in bounds)
    assert (live(first, low), live(first, high)) == ({b"a": b"v", b"b": b"v"}, {b"c": b"v"})
    assert low.space == high.space == child(first, HIGH).space
    first.begin()
    assert first.replicas.by_partition.keys() == {(TABLE, number) for number in (HIGH, *bounds)}
    entries = first.replicas.spaces.read(first.log[-4:], lambda *_: True)
    shown = [(entry.replica.identity.partition, [key for key, _ in entry.records]) for entry in entries]
    assert sorted(shown[:3]) == [(HIGH, []), (10, [b"b"]), (11, [])]
    assert sorted(shown[3:]) == [(10, []), (11, [b"c"])]


def test_a_page_of_the_log_has_one_entry_of_each_child(cluster):
    """The entry has all records of the child and the position of the first batch; unwanted entries are left out."""
    node = cluster.nodes[0]
    begins = node.replicas.by_partition[TABLE, 7].synced
    for key in (b"b", b"y", b"c", b"b"):
        cluster.write(1, key)
    ends = node.replicas.by_partition[TABLE, 7].synced
    page = node.log[-4:]
    cluster.divide(1)
    entries = node.replicas.spaces.read(page, lambda *_: True)
    shown = {entry.replica.partition[1]: [key for key, _ in entry.records] for entry in entries}
    assert shown == {LOW: [b"b", b"c", b"b"], HIGH: [b"y"]}
    assert {(entry.position, entry.before, entry.after) for entry in entries} == {(page[0][0], begins, ends)}
    wanted = node.replicas.spaces.read(page, lambda copy, after: after == ends and copy is child(node, HIGH))
    assert [entry.replica for entry in wanted] == [child(node, HIGH)]


def test_what_many_divisions_have_left_in_the_log_is_read_once(cluster, monkeypatch):
    """After a restart, a node feeds all children from one scan of the log."""
    node = cluster.nodes[0]
    keys = [b"%02d" % number for number in range(40)]
    cluster.cut(node)
    for key in keys * 3:
        cluster.write(1, key)
    monkeypatch.setitem(BOUNDS, LOW, KeyBounds(b"", keys[1]))
    for number, key in enumerate(keys[1:], 100):
        monkeypatch.setitem(BOUNDS, number, KeyBounds(key, keys[number - 98] if number < 138 else None))
    children = [LOW, *range(100, 139)]
    cluster.divide(1, heirs=children)
    node.begin()
    node.replicas.spaces.index_ranges(TABLE)
    node.replicas.maps[TABLE] = 2
    for heir in (cluster.heir(number, 1) for number in children):
        node.replicas.place(heir.identity, heir.config, heir.hosts, heir.rules)
    looks, entries = [], []
    look, read = node.look, node.replicas.spaces.read

    def reads(batches, lacks):
        entries.append(read(batches, lacks))
        return entries[-1]

    node.look = lambda *asked: (looks.append(asked), look(*asked))
    node.replicas.spaces.read = reads
    cluster.connect(node)
    cluster.pass_s(0.5)
    cluster.divide(2, 3, heirs=children)  # These nodes hear of the split only now.
    cluster.pass_s(2.0)
    assert are_equal(cluster, children)
    assert live(cluster.nodes[1], child(cluster.nodes[1], 138)) == dict.fromkeys((b"39", b"a", b"m", b"z"), b"v")
    assert len(looks) <= 2 * 4
    assert sum(map(len, entries)) <= 2 * 2 * len(children)
    assert [one.told for one in cluster.nodes] == [[], [], []]
