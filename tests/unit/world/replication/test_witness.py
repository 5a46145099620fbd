"""Each checker of replication reports the violation that is planted for it, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.placement.partition import ForcedEnd as Forced
from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock as packed
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import IDENTITY, LOADING, RECORD, STATE, ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica
from tests.world.replication.copies import NOTHING, Change, Joining, Model, Span
from tests.world.replication.copies import State as Stand
from tests.world.replication.eye import Eye
from tests.world.replication.witness import Witness

A, B, C, D = 1, 2, 3, 4
NODES = {A: b"a", B: b"b", C: b"c"}


def store_of(rows):
    """Return a store with one space that holds these rows."""

    def scan(space, start, end, limit):
        return [row for row in rows if start <= row[0] < end], None

    return SimpleNamespace(spaces=lambda: [7], scan=scan)


class Scene:
    """Three replicas of a partition, with a history that a test writes."""

    def __init__(self):
        self.witness = Witness(now=lambda: 0.0)
        self.positions = 0
        for assignment, node in NODES.items():
            self.witness.models[assignment] = Model(node, 0, assignment)
        self.decides(1, dict.fromkeys(NODES, AssignmentState.AVAILABLE))
        hosts = tuple(AssignedReplica(one, NODES[one], one, counts=True, available=True) for one in NODES)
        self.copy = SimpleNamespace(
            hosts=hosts,
            config=1,
            assignment=A,
            children=(),
            identity=SimpleNamespace(partition=0),
            rules=SimpleNamespace(slots=3),
        )

    def decides(self, version, states, former=(), settled=None, forced=()):
        """Decide a map with these assignments; each has its own slot, but `D` shares that of `A`."""
        hosts = [Assignment(one, NODES.get(one, b"d"), one % D, state) for one, state in states.items()]
        self.witness.moves.forced |= {*forced}
        ends = tuple(Forced(one, None) for one in forced)
        record = Partition.of(0, hosts)._replace(former=former, ends=ends)
        self.witness.moves.decided(version, record, 3, settled or {})

    def joins(self, *records, spans=(), is_loaded=True, clock=None, is_whole=False, config=2):
        """Let the target merge records, or become whole."""
        self.positions += 1
        model = self.witness.models.setdefault(D, Model(b"d", 0, D))
        clock = dict(model.clock) if clock is None else clock
        joining = None if is_whole else Joining(is_loaded, spans)
        change = Change(self.positions, D, Stand(config, clock, clock), records, joining=joining, is_joining=True)
        self.witness.applies(change)

    def leaves(self, at, how="dropped"):
        self.witness.applies(Change(9, at, NOTHING, (), left=how))

    @property
    def broken(self):
        return {violation.checker for violation in self.witness.violations}

    def applies(self, at, after, *records, before=None, config=1):
        """Let a replica sync a batch; a new `config` means that it has adopted that map."""
        self.positions += 1
        model = self.witness.models[at]
        self.witness.moves.maps[0].setdefault(config, self.witness.moves.last(0))
        state = Stand(config, after, dict(model.clock) if before is None else before)
        self.witness.applies(Change(self.positions, at, state, records))

    def writes(self, origin, count, *, key=b"k", time=None, value=b"", before=None, config=None):
        """Let an origin issue and sync a record; return the record."""
        put = self.issues(origin, count, key=key, time=time, value=value)
        clock, config = self.witness.models[origin].clock, config or self.witness.models[origin].config
        self.applies(origin, {**clock, origin: count}, put, before=before, config=config)
        return put

    def deletes(self, origin, count, *, key):
        """Let an origin issue and sync a delete; return the record."""
        data = record.encode(10 * count, origin, count, record.DELETED, b"", b"")
        self.witness.issued[origin, count] = key, data
        self.applies(origin, {**self.witness.models[origin].clock, origin: count}, (key, data))
        return key, data

    def loads(self, at, after, records, before=None):
        self.positions += 1
        state = Stand(1, after, after if before is None else before)
        self.witness.applies(Change(self.positions, at, state, (), space=9, loaded=records))

    def issues(self, origin, count, *, key=b"k", time=None, value=b""):
        data = record.encode(10 * count if time is None else time, origin, count, record.PUT, b"", value)
        self.witness.issued[origin, count] = key, data
        return key, data

    def told(self, origin, count, level="majority"):
        """Acknowledge the write to a client."""
        number = len(self.witness.asked)
        self.witness.asked[number] += 1
        self.witness.answered[number] += 1
        self.copy.assignment = origin
        self.witness.reached(number, self.copy, [(origin, count)], level)
        self.witness.told(self.copy, [(origin, count)], level)

    def ends(self, *lost):
        self.witness.check_answers()
        self.witness.check_end(set(lost))
        return self.broken


@pytest.fixture
def scene():
    """Return a scene with a record that all replicas have and a client knows."""
    scene = Scene()
    put = scene.writes(A, 1)
    for at in (B, C):
        scene.applies(at, {A: 1}, put)
    scene.told(A, 1)
    return scene


def test_what_is_right(scene):
    """Concurrent origins, losing records, batches, new configs and a lost minority break nothing."""
    older, later = scene.writes(B, 1, time=50), scene.writes(C, 1, time=60)
    scene.applies(A, {A: 1, B: 1}, older)
    scene.applies(A, {A: 1, B: 1, C: 1}, later)
    scene.applies(B, {A: 1, B: 1, C: 1}, later)
    scene.applies(C, {A: 1, B: 1, C: 1})  # A losing record changes only the clock.
    scene.applies(C, {A: 1, B: 1, C: 1}, config=2)
    scene.witness.sends(NODES[A], [later[1]])
    scene.told(C, 1, "all")
    assert scene.ends() == scene.ends(NODES[B]) == set()


def test_a_batch_that_goes_on_from_elsewhere(scene):
    """A batch must start from the clock that the disk has."""
    scene.writes(A, 2, before={})
    assert "continuity" in scene.broken


@pytest.mark.parametrize("counts", [(3,), (2, 2), (1,)])
def test_counters_with_a_gap_or_a_repeat(scene, counts):
    """An origin issues 1, 2, 3 without a gap or a repeat."""
    for number, count in enumerate(counts):
        put = scene.issues(A, count, value=b"%d" % number, time=100 + number)
        clock = scene.witness.models[A].clock
        if count <= clock[A]:  # The life began with a counter below the durable one.
            scene.witness.models[A].clock = {A: count - 1}
        scene.applies(A, {A: count}, put)
    assert "counters" in scene.broken


def test_own_and_taken_records_in_one_batch(scene):
    """Own and received records take different paths to other replicas."""
    taken, own = scene.writes(B, 1), scene.issues(A, 2)
    scene.applies(A, {A: 2, B: 1}, taken, own)
    assert "mixed" in scene.broken


def test_a_record_that_its_origin_has_not(scene):
    scene.issues(B, 1)
    scene.applies(A, {A: 1, B: 1}, (b"k", record.encode(70, B, 1, record.PUT, b"", b"another")))
    assert "made up" in scene.broken


def test_a_record_without_its_clock(scene):
    """A clock that lags causes a resend, when a later record may already be garbage-collected."""
    put = scene.writes(B, 1)
    scene.writes(C, 1)
    scene.applies(A, {A: 1, C: 1}, put)
    assert "ahead" in scene.broken


def test_a_clock_without_its_record(scene):
    """A record that a clock covers is never sent again."""
    scene.writes(B, 1)
    scene.applies(A, {A: 1, B: 1})
    assert scene.broken == {"missing", "unequal"}


def test_an_older_record_over_a_later_one(scene):
    """The record that was present at the append counts."""
    older = scene.writes(B, 1, time=50)
    scene.writes(A, 2, time=60)
    scene.applies(A, {A: 2, B: 1}, older)
    assert "older wins" in scene.broken


def test_equal_clocks_and_unequal_records(scene):
    scene.witness.models[C].records[b"k"] += b"other"
    put = scene.writes(A, 2, key=b"l")
    scene.applies(C, {A: 2}, put)
    assert scene.broken == {"unequal"}


def far(scene):
    """Bring A and B ahead of C by a later record, and by a delete with a garbage-collected tombstone."""
    at = scene.witness.models
    for put in (scene.writes(A, 2, key=b"l"), scene.writes(A, 3), scene.deletes(A, 4, key=b"l")):
        scene.applies(B, {A: at[B].clock[A] + 1}, put)
    at[C].clock = {A: 4}  # At that moment C's clock seems to cover the tombstone.
    for one in (A, B):
        scene.witness.applies(Change(9, one, Stand(1, {}, {}), (), (b"l",)))
    at[C].clock = {A: 1}
    return {b"k": at[A].records[b"k"]}


@pytest.mark.parametrize(("named", "clock"), [(False, {}), (True, {}), (True, {A: 1})])
def test_a_tombstone_that_goes_before_all_have_it(scene, named, clock):
    """All replicas of the remover's map must have the tombstone; a newcomer of a newer map has nothing older."""
    scene.applies(B, {A: 2}, scene.deletes(A, 2, key=b"k"))
    scene.witness.models[C].clock = clock
    if not named:
        scene.witness.moves.maps[0][1] = Partition.of(0, scene.witness.moves.last(0).assignments[:2])
    scene.witness.applies(Change(9, A, NOTHING, (), (b"k",)))
    assert ("collected" in scene.broken) is named


def test_a_copy_that_has_loaded(scene):
    """The loaded replica has all that its clock covers but collected records, keeps its own record, and goes on."""
    source, own = far(scene), scene.writes(C, 1, key=b"m")
    scene.loads(C, {A: 4, C: 1}, {**source, b"m": own[1]})
    scene.applies(B, {A: 4, C: 1}, own)
    for at in (B, C):
        scene.applies(at, {A: 5, C: 1}, scene.writes(A, 5) if at == B else (b"k", scene.witness.durable[A, 5]))
    scene.applies(A, {A: 5, C: 1}, own)
    assert scene.ends() == set()
    assert scene.witness.counts["loads"] == 1


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ({"loaded"}, lambda _, source: ({A: 4}, {})),  # The clock has moved, and records are missing.
        ({"loaded"}, lambda scene, source: ({A: 4}, {b"k": scene.issued[A, 1]})),  # An older record beats a later one.
        ({"loaded"}, lambda scene, source: ({A: 4}, {**source, b"l": scene.issued[A, 2]})),  # A deleted record is back.
        ({"loaded"}, lambda scene, source: ({A: 2}, source)),  # A record is ahead of the clock.
        ({"continuity"}, lambda scene, source: ({}, {})),
        ({"fed"}, lambda scene, source: ({A: 4, B: 1}, source)),
        ({"floor"}, lambda scene, source: ({A: 4}, source, {A: 1})),
    ],
)
def test_a_load_that_is_wrong(scene, broken, what):
    """A load with missing, old, deleted, too new or unknown records, or a wrong floor, is reported."""
    source = far(scene)
    issued = {dot: data for dot, (_, data) in scene.witness.issued.items()}
    scene.loads(C, *what(SimpleNamespace(issued=issued), source))
    assert broken <= scene.broken <= broken | {"loaded"}


def test_what_is_left_of_a_load(scene):
    """A space with a leftover bulk load is reported."""
    for rows, broken in (([], set()), ([(LOADING, b"copy")], {"litter"})):
        scene.witness.check_litter(store_of(rows))
        assert scene.broken == broken


@pytest.mark.parametrize(("clock", "records"), [({A: 2}, {}), ({A: 1}, {b"k": b"r"}), ({A: 2}, {b"k": b"other"})])
def test_a_disk_that_has_something_else(clock, records):
    """Synced records must be there in the next life."""
    witness = Witness(now=lambda: 0.0)
    witness.models[A] = Model(b"a", 0, A, clock={A: 2}, records={b"k": b"r"})
    state = encode_state(0, 1, packed.of(clock.items()), packed.of([(A, 0)]))
    rows = [(IDENTITY, ReplicaIdentity(b"table", 0, A).encode()), (STATE, state)]
    rows += [(RECORD + key, data) for key, data in records.items()]
    witness.opened(Eye(witness, b"a"), store_of(rows))
    assert {violation.checker for violation in witness.violations} == {"disk"}


def test_what_is_not_durable_is_sent_or_taken(scene):
    """The origin may lose power and give the counter to another record."""
    put = scene.issues(A, 2)
    scene.witness.sends(NODES[A], [put[1]])
    assert scene.broken == {"fed"}
    scene.applies(B, {A: 2}, put)
    assert scene.broken == {"fed", "made up"}


@pytest.mark.parametrize(("level", "has", "config"), [("majority", (A,), 1), ("all", (A, B), 1), ("one", (), 1),
                                                     ("majority", (A, B), 2)])  # fmt: skip
def test_acknowledged_and_short_of_its_level(scene, level, has, config):
    """Too few replicas have the record durably, or they have it not under the origin's config."""
    put = scene.issues(A, 2)
    for at in has:
        scene.applies(at, {A: 2}, put, config=1 if at == A else config)
    scene.told(A, 2, level)
    assert {"acknowledged"} <= scene.broken <= {"acknowledged", "thin"}


def test_acknowledged_and_missing_after_a_minority_is_lost(scene):
    """The remaining replicas must have the record; at `one` it may be lost with its origin."""
    put = scene.writes(A, 2)
    scene.told(A, 2, "one")
    assert scene.ends(NODES[A]) == set()
    scene.applies(B, {A: 2}, put)
    scene.told(A, 2)
    assert scene.ends(NODES[A], NODES[B]) == {"lost"}


def test_copies_that_do_not_become_equal(scene):
    scene.applies(B, {A: 2}, scene.writes(A, 2))
    assert scene.ends() == {"level"}


@pytest.mark.parametrize(("asked", "answered"), [(1, 0), (1, 2)])
def test_a_put_that_is_answered_never_or_twice(scene, asked, answered):
    scene.witness.asked[9], scene.witness.answered[9] = asked, answered
    if not answered:
        del scene.witness.answered[9]
    assert scene.ends() == {"answers"}


def test_how_often_a_record_travels():
    """A record may travel about twice among three replicas."""
    scene = Scene()
    scene.witness.counts.update({"records": 100, "records sent": 204})
    scene.witness.check_travel()
    assert scene.broken == set()
    scene.witness.counts["records sent"] = 220
    scene.witness.check_travel()
    assert scene.broken == {"travel"}


def test_how_slow_a_write_is_while_a_link_is_cut():
    """At the 99th percentile: one write in a hundred may be slow, but not as many as come a relay time late."""
    scene = Scene()
    for slow, broken in ((0, set()), (2, {"slow"})):
        times = [(0.0, 0.01)] * 100 + [(1.0, 0.9)] * 9 + [(2.0, 0.015)] * (100 - slow) + [(2.0, 0.2)] * slow
        scene.witness.latencies = [(0, b"a", began, took) for began, took in times]
        scene.witness.check_latency(1.0, 1.7)
        assert scene.broken == broken


def test_what_is_never_quiet():
    """Feeds, acknowledgements or appends that never stop are reported."""
    for now in ((5, 5, 6), (5, 6, 5), (6, 5, 5)):
        scene = Scene()
        scene.witness.check_quiet((5, 5, 5), (5, 5, 5))
        assert scene.broken == set()
        scene.witness.check_quiet((5, 5, 5), now)
        assert scene.broken == {"quiet"}


def test_who_never_rests():
    """Three nodes may ask each other for the time once; any further turn is a busy loop."""
    for turns, times, broken in ((18, 1, set()), (19, 1, {"rest"}), (6, 2, {"rest"})):
        scene = Scene()
        scene.witness.check_rest(3, turns, times)
        assert scene.broken == broken


def test_who_leaves_a_place_for_the_next_look():
    for places, broken in (((7, 7), set()), ((7, 8), {"rest"})):
        scene, left = Scene(), iter(places)
        node = SimpleNamespace(peers={}, kept_places=lambda left=left: next(left), pump=lambda: None)
        scene.witness.check_turn(node)
        assert scene.broken == broken


# Moves.

MOVES = {
    A: AssignmentState.AVAILABLE,
    B: AssignmentState.AVAILABLE,
    C: AssignmentState.AVAILABLE,
    D: AssignmentState.INITIALIZING,
}
MOVED = {**MOVES, A: AssignmentState.LEAVING, D: AssignmentState.AVAILABLE}
LEFT = {B: AssignmentState.AVAILABLE, C: AssignmentState.AVAILABLE, D: AssignmentState.AVAILABLE}


@pytest.fixture
def moving(scene):
    """Return a scene in which a target has merged the new writes, and hosts use the target's map."""
    scene.decides(2, MOVES)
    for at in NODES:
        scene.applies(at, {A: 1}, config=2)
    scene.put = scene.writes(A, 2, key=b"l", config=2)
    scene.span = Span(A, {A: 1}, {A: 2})
    scene.joins(scene.put, spans=(scene.span,), is_loaded=False)
    scene.copy.config = 2
    scene.copy.hosts = (*scene.copy.hosts, AssignedReplica(D, b"d", A, counts=True, available=False))
    return scene


def all_moved(scene):
    """Make the target whole and AVAILABLE, with every acknowledged record at all hosts."""
    for at in (B, C):
        scene.applies(at, {A: 2}, scene.put, config=2)
    scene.told(A, 2, "all")
    scene.joins((b"k", scene.witness.durable[A, 1]), clock={A: 2}, is_whole=True)
    scene.decides(3, MOVED)
    for at in (A, B, C, D):
        scene.applies(at, {A: 2}, config=3)


def test_a_move_that_is_right(moving):
    """The source leaves, is settled and dropped; then clocks omit the source."""
    all_moved(moving)
    moving.decides(4, LEFT, former=(A,))
    for at in (B, C, D):
        moving.applies(at, {A: 2}, config=4)
    moving.leaves(A)
    moving.decides(5, LEFT, settled={A: 2})
    for at in (B, C, D):
        moving.applies(at, {}, before={}, config=5)
    later = moving.writes(B, 1, key=b"m", config=5)
    for at in (C, D):
        moving.applies(at, {B: 1}, later, config=5)
    assert moving.ends() == set()


def test_a_span_that_lacks_what_it_says(moving):
    """A span with a gap is reported; a record that lost to one its source had before is not missing."""
    moving.writes(C, 1, key=b"k", time=50)
    moving.writes(B, 1, key=b"k", time=15)
    had = {A: 1, C: 1}
    moving.joins(spans=(moving.span, Span(C, had, {**had, B: 1})), is_loaded=False)
    assert moving.broken == set()
    moving.writes(B, 2, key=b"m")
    moving.joins(spans=(moving.span, Span(C, had, {**had, B: 2})), is_loaded=False)
    assert moving.broken == {"missing"}


def test_who_is_whole_and_lacks_something(moving):
    """A whole replica must have loaded the records that its clock covers."""
    moving.joins(clock={A: 2}, is_whole=True)
    assert moving.broken == {"loaded"}


def test_who_is_not_whole_and_feeds(moving):
    """A replica that is not whole may neither send records nor log them for others."""
    moving.witness.sends(b"d", [moving.put[1]])
    assert moving.broken == {"feeds", "fed"}
    moving.witness.violations.clear()
    moving.witness.applies(
        Change(9, D, Stand(2, {A: 2}, {}), (), joining=Joining(is_loaded=False, spans=()), is_joining=True)
    )
    assert moving.broken == {"feeds"}


def test_a_target_confirms_what_it_has_merged(moving):
    """A target confirms a record that lies in its span; without the target, its slot has confirmed nothing."""
    moving.applies(B, {A: 2}, moving.put, config=2)
    moving.told(A, 2)
    assert moving.broken == set()
    put = moving.writes(A, 3, key=b"m", config=2)
    moving.applies(B, {A: 3}, put, config=2)
    moving.told(A, 3)
    assert moving.broken == {"acknowledged"}


def test_a_slot_that_has_only_a_target(moving):
    """A slot with only a target confirms nothing: one lost replica could lose the record."""
    moving.copy.hosts = moving.copy.hosts[1:]
    put = moving.writes(B, 1, key=b"m", config=2)
    moving.joins(moving.put, put, spans=(Span(B, {A: 1}, {A: 1, B: 1}),), is_loaded=False)
    moving.told(B, 1)
    assert "acknowledged" in moving.broken


def test_former_assignments_that_are_dropped_too_early(moving):
    all_moved(moving)
    moving.decides(4, LEFT, former=(A,))
    moving.applies(B, {}, before={}, config=4)
    assert moving.broken == {"ended"}


@pytest.mark.parametrize("settled", [{A: 1}, {}])
def test_what_is_settled_and_not_so(moving, settled):
    """The settled clock must cover all that replicas have of the former assignment."""
    all_moved(moving)
    moving.decides(4, LEFT, former=(A,))
    moving.decides(5, LEFT, settled=settled)
    assert moving.broken >= {"settled"}


def test_a_record_of_who_has_ended(moving):
    """A push from an ended assignment, beyond its settled clock, is reported."""
    all_moved(moving)
    moving.decides(4, LEFT, former=(A,))
    moving.decides(5, LEFT, settled={A: 2})
    moving.applies(B, {}, before={}, config=5)
    late = moving.writes(A, 3, key=b"z", config=3)
    moving.applies(B, {A: 3}, late, before={}, config=5)
    assert moving.broken == {"ended"}


def test_fewer_hosts_that_are_available(scene):
    """Only a force may reduce the number of available hosts."""
    scene.decides(2, {A: AssignmentState.AVAILABLE, B: AssignmentState.AVAILABLE}, former=(C,), forced=(C,))
    assert scene.broken == set()
    scene.decides(3, {A: AssignmentState.AVAILABLE}, former=(B, C))
    assert "hosts" in scene.broken


def test_a_target_that_is_available_too_early(moving):
    """The target replaces a host that had an acknowledged record, and lacks the record."""
    moving.applies(B, {A: 2}, moving.put, config=2)
    moving.told(A, 2)
    moving.witness.models[D].joining = None
    moving.decides(3, MOVED)
    assert moving.broken == {"thin"}


@pytest.mark.parametrize("how", ["dropped", "aside"])
def test_a_copy_that_is_let_go_of_too_early(moving, how):
    """The replica is still assigned or receives reads, or is quarantined without a force."""
    all_moved(moving)
    moving.leaves(A, how)
    assert moving.broken == {"dropped"}
    moving.witness.violations.clear()
    moving.decides(4, LEFT, former=(A,))
    moving.witness.models[A].left = ""
    moving.leaves(A, how)
    assert moving.broken == {"dropped"}


def test_what_is_set_aside_takes_and_sends_nothing(scene):
    """A quarantined replica is never merged back."""
    scene.decides(2, {A: AssignmentState.AVAILABLE, B: AssignmentState.AVAILABLE}, former=(C,), forced=(C,))
    scene.leaves(C, "aside")
    assert scene.broken == set()
    scene.witness.sends(NODES[C], [scene.witness.durable[A, 1]])
    assert scene.broken == {"feeds"}
    scene.applies(C, {A: 1})
    assert scene.broken == {"feeds", "left"}


def test_what_is_called_lost_and_was_acknowledged(scene):
    """A record may be called lost only beyond the counter that is kept of a forced origin."""
    for kept, broken in ((1, set()), (0, {"called lost"})):
        scene.witness.moves.called_lost({"partition": 0, "assignment": f"{A:016x}", "kept": kept})
        assert scene.broken == broken


def test_a_partition_in_no_place_or_in_two(moving):
    """In the end a partition is exactly where the map says, unless a lost node prevents that."""
    all_moved(moving)
    moving.decides(4, LEFT, former=(A,))
    nodes = {*NODES.values(), b"d"}
    moving.witness.moves.check_end(nodes, is_placed=False)
    assert moving.broken == set()
    moving.witness.moves.check_end(nodes, is_placed=True)
    assert moving.broken == {"places"}
    moving.witness.violations.clear()
    moving.witness.models[D].left = "dropped"
    moving.witness.moves.check_end(nodes, is_placed=False)
    assert moving.broken == {"places"}


def test_a_table_that_was_dropped(scene):
    scene.witness.moves.dropped.add(0)
    scene.witness.moves.check_end({*NODES.values()}, is_placed=True)
    assert scene.broken == {"places"}
