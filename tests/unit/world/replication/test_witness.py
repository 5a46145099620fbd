"""The checkers of replication: each sees the violation that is planted for it, and none where there is none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipkv.replication import clock as packed
from gossipkv.replication import record
from gossipkv.replication.copy import IDENTITY, RECORD, STATE, Host, Identity, encode_state
from tests.world.replication.witness import Change, Eye, Model, State, Witness

A, B, C = 1, 2, 3
NODES = {A: b"a", B: b"b", C: b"c"}


class Scene:
    """Three copies of a partition, and a history of theirs that a test makes."""

    def __init__(self):
        self.witness = Witness(now=lambda: 0.0)
        self.positions = 0
        for assignment, node in NODES.items():
            self.witness.models[assignment] = Model(node, 0, assignment)
        hosts = tuple(Host(one, NODES[one], one, counts=True, available=True) for one in NODES)
        self.copy = SimpleNamespace(hosts=hosts, config=1, identity=SimpleNamespace(partition=0))

    @property
    def broken(self):
        """The checkers that have spoken."""
        return {violation.checker for violation in self.witness.violations}

    def applies(self, at, after, *records, before=None, config=1):
        """A copy syncs a batch."""
        self.positions += 1
        model = self.witness.models[at]
        state = State(config, after, dict(model.clock) if before is None else before)
        self.witness.applies(Change(self.positions, at, state, records))

    def writes(self, origin, count, *, key=b"k", time=None, value=b"", before=None):
        """An origin gives a record out, and syncs it; the record."""
        put = self.issues(origin, count, key=key, time=time, value=value)
        self.applies(origin, {**self.witness.models[origin].clock, origin: count}, put, before=before)
        return put

    def deletes(self, origin, count, *, key):
        """An origin gives a delete out, and syncs it; the record."""
        data = record.encode(10 * count, origin, count, record.DELETED, b"", b"")
        self.witness.issued[origin, count] = key, data
        self.applies(origin, {**self.witness.models[origin].clock, origin: count}, (key, data))
        return key, data

    def loads(self, at, after, records, before=None):
        """A copy goes on in another space."""
        self.positions += 1
        state = State(1, after, after if before is None else before)
        self.witness.applies(Change(self.positions, at, state, (), space=9, loaded=records))

    def issues(self, origin, count, *, key=b"k", time=None, value=b""):
        """An origin appends a record."""
        data = record.encode(10 * count if time is None else time, origin, count, record.PUT, b"", value)
        self.witness.issued[origin, count] = key, data
        return key, data

    def told(self, origin, count, level="majority"):
        """A client is told that it is written."""
        number = len(self.witness.asked)
        self.witness.asked[number] += 1
        self.witness.answered[number] += 1
        self.witness.told(number, self.copy, [(origin, count)], level)

    def ends(self, *lost):
        """All is over; some disks are lost."""
        self.witness.check_answers()
        self.witness.check_end(set(lost))
        return self.broken


@pytest.fixture
def scene():
    """One that a test goes on from: a record that all have, and a client knows of."""
    scene = Scene()
    put = scene.writes(A, 1)
    for at in (B, C):
        scene.applies(at, {A: 1}, put)
    scene.told(A, 1)
    return scene


def test_what_is_right(scene):
    """Origins that write at once, records that lose, batches of several, configs, a minority that is lost."""
    older, later = scene.writes(B, 1, time=50), scene.writes(C, 1, time=60)
    scene.applies(A, {A: 1, B: 1}, older)
    scene.applies(A, {A: 1, B: 1, C: 1}, later)
    scene.applies(B, {A: 1, B: 1, C: 1}, later)
    scene.applies(C, {A: 1, B: 1, C: 1})  # What loses leaves nothing but the clock.
    scene.applies(C, {A: 1, B: 1, C: 1}, config=2)
    scene.witness.sends(NODES[A], [later[1]])
    scene.told(C, 1, "all")
    assert scene.ends() == scene.ends(NODES[B]) == set()


def test_a_batch_that_goes_on_from_elsewhere(scene):
    """The clock before is what the disk has."""
    scene.writes(A, 2, before={})
    assert "continuity" in scene.broken


@pytest.mark.parametrize("counts", [(3,), (2, 2), (1,)])
def test_counters_with_a_gap_or_a_repeat(scene, counts):
    """An origin gives out 1, 2, 3: none is left out, none is given out twice."""
    for number, count in enumerate(counts):
        put = scene.issues(A, count, value=b"%d" % number, time=100 + number)
        clock = scene.witness.models[A].clock
        if count <= clock[A]:  # A life that began with less than was durable.
            scene.witness.models[A].clock = {A: count - 1}
        scene.applies(A, {A: count}, put)
    assert "counters" in scene.broken


def test_own_and_taken_records_in_one_batch(scene):
    """They go to others by different ways."""
    taken, own = scene.writes(B, 1), scene.issues(A, 2)
    scene.applies(A, {A: 2, B: 1}, taken, own)
    assert "mixed" in scene.broken


def test_a_record_that_its_origin_has_not(scene):
    """Nor has anybody else, then."""
    scene.issues(B, 1)
    scene.applies(A, {A: 1, B: 1}, (b"k", record.encode(70, B, 1, record.PUT, b"", b"another")))
    assert "made up" in scene.broken


def test_a_record_without_its_clock(scene):
    """A clock that lags has the record come again, when a later one may be collected."""
    put = scene.writes(B, 1)
    scene.writes(C, 1)
    scene.applies(A, {A: 1, C: 1}, put)
    assert "ahead" in scene.broken


def test_a_clock_without_its_record(scene):
    """Nobody sends that record again."""
    scene.writes(B, 1)
    scene.applies(A, {A: 1, B: 1})
    assert scene.broken == {"missing", "unequal"}


def test_an_older_record_over_a_later_one(scene):
    """What was there when it was appended counts."""
    older = scene.writes(B, 1, time=50)
    scene.writes(A, 2, time=60)
    scene.applies(A, {A: 2, B: 1}, older)
    assert "older wins" in scene.broken


def test_equal_clocks_and_unequal_records(scene):
    """Two copies that took the same in."""
    scene.witness.models[C].records[b"k"] += b"other"
    put = scene.writes(A, 2, key=b"l")
    scene.applies(C, {A: 2}, put)
    assert scene.broken == {"unequal"}


def far(scene):
    """Two have gone on: a later record, and a delete whose tombstone they have collected; the third has not."""
    at = scene.witness.models
    for put in (scene.writes(A, 2, key=b"l"), scene.writes(A, 3), scene.deletes(A, 4, key=b"l")):
        scene.applies(B, {A: at[B].clock[A] + 1}, put)
    at[C].clock = {A: 4}  # As for a moment it seemed.
    for one in (A, B):
        scene.witness.applies(Change(9, one, State(1, {}, {}), (), (b"l",)))
    at[C].clock = {A: 1}
    return {b"k": at[A].records[b"k"]}


@pytest.mark.parametrize("clock", [{}, {A: 1}])
def test_a_tombstone_that_goes_before_a_newcomer_has_it(scene, clock):
    """One with nothing has nothing older; with something it counts, whatever map the collector goes by."""
    newcomer = scene.witness.models[C]
    newcomer.config, newcomer.clock = 2, clock
    scene.applies(B, {A: 2}, scene.deletes(A, 2, key=b"k"))
    scene.witness.applies(Change(9, A, State(1, {}, {}), (), (b"k",)))
    assert ("collected" in scene.broken) is bool(clock)


def test_a_copy_that_has_loaded(scene):
    """All that its clock covers but for what was collected; what it had, and the source had not; then it goes on."""
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
        ({"loaded"}, lambda _, source: ({A: 4}, {})),  # The clock has moved, and records have not come.
        ({"loaded"}, lambda scene, source: ({A: 4}, {b"k": scene.issued[A, 1]})),  # An older one beats a later one.
        ({"loaded"}, lambda scene, source: ({A: 4}, {**source, b"l": scene.issued[A, 2]})),  # What was deleted is back.
        ({"loaded"}, lambda scene, source: ({A: 2}, source)),  # It is ahead of its clock.
        ({"continuity"}, lambda scene, source: ({}, {})),
        ({"fed"}, lambda scene, source: ({A: 4, B: 1}, source)),
        ({"floor"}, lambda scene, source: ({A: 4}, source, {A: 1})),
    ],
)
def test_a_load_that_is_wrong(scene, broken, what):
    """Something is missing, old, back, too new or from nowhere, or its log seems to begin where it was before."""
    source = far(scene)
    issued = {dot: data for dot, (_, data) in scene.witness.issued.items()}
    scene.loads(C, *what(SimpleNamespace(issued=issued), source))
    assert broken <= scene.broken <= broken | {"loaded"}


def test_what_is_left_of_a_load(scene):
    """A space that has no identity yet, and nobody who goes on with it."""
    for value, broken in ((None, set()), (b"copy", {"litter"})):
        scene.witness.check_litter(SimpleNamespace(spaces=lambda: [7], get=lambda space, key, value=value: value))
        assert scene.broken == broken


@pytest.mark.parametrize(("clock", "records"), [({A: 2}, {}), ({A: 1}, {b"k": b"r"}), ({A: 2}, {b"k": b"other"})])
def test_a_disk_that_has_something_else(clock, records):
    """What was synced is there in the next life."""
    witness = Witness(now=lambda: 0.0)
    witness.models[A] = Model(b"a", 0, A, clock={A: 2}, records={b"k": b"r"})
    state = encode_state(0, 1, packed.of(clock.items()), packed.of([(A, 0)]))
    values = {IDENTITY: Identity(b"table", 0, A).encode(), STATE: state}
    store = SimpleNamespace(
        spaces=lambda: [7],
        get=lambda space, key: values.get(key),
        scan=lambda *_, limit: ([(RECORD + key, data) for key, data in records.items()], None),
    )
    witness.opened(Eye(witness, b"a", {A: 0}), store)
    assert {violation.checker for violation in witness.violations} == {"disk"}


def test_what_is_not_durable_is_sent_or_taken(scene):
    """The origin may lose its power, and give the counter to another record."""
    put = scene.issues(A, 2)
    scene.witness.sends(NODES[A], [put[1]])
    assert scene.broken == {"fed"}
    scene.applies(B, {A: 2}, put)
    assert scene.broken == {"fed", "made up"}


@pytest.mark.parametrize(("level", "has", "config"), [("majority", (A,), 1), ("all", (A, B), 1), ("one", (), 1),
                                                     ("majority", (A, B), 2)])  # fmt: skip
def test_acknowledged_and_short_of_its_level(scene, level, has, config):
    """Too few have it durably, or not under the origin's config."""
    put = scene.issues(A, 2)
    for at in has:
        scene.applies(at, {A: 2}, put, config=1 if at == A else config)
    scene.told(A, 2, level)
    assert scene.broken == {"acknowledged"}


def test_acknowledged_and_missing_after_a_minority_is_lost(scene):
    """Whoever is left has it in the end; at `one` it may be lost with its origin alone."""
    put = scene.writes(A, 2)
    scene.told(A, 2, "one")
    assert scene.ends(NODES[A]) == set()
    scene.applies(B, {A: 2}, put)
    scene.told(A, 2)
    assert scene.ends(NODES[A], NODES[B]) == {"lost"}


def test_copies_that_do_not_become_equal(scene):
    """A record that one never gets."""
    scene.applies(B, {A: 2}, scene.writes(A, 2))
    assert scene.ends() == {"level"}


@pytest.mark.parametrize(("asked", "answered"), [(1, 0), (1, 2)])
def test_a_put_that_is_answered_never_or_twice(scene, asked, answered):
    """Once is right."""
    scene.witness.asked[9], scene.witness.answered[9] = asked, answered
    if not answered:
        del scene.witness.answered[9]
    assert scene.ends() == {"answers"}


def test_how_often_a_record_travels():
    """Twice, of three copies; more often is too much."""
    scene = Scene()
    scene.witness.counts.update({"records": 100, "records sent": 204})
    scene.witness.check_travel()
    assert scene.broken == set()
    scene.witness.counts["records sent"] = 220
    scene.witness.check_travel()
    assert scene.broken == {"travel"}


def test_how_slow_a_write_is_while_a_link_is_cut():
    """At the 99th percentile: one in a hundred may be, and not as many as come a relay time late."""
    scene = Scene()
    for slow, broken in ((0, set()), (2, {"slow"})):
        times = [(0.0, 0.01)] * 100 + [(1.0, 0.9)] * 9 + [(2.0, 0.015)] * (100 - slow) + [(2.0, 0.2)] * slow
        scene.witness.latencies = [(0, b"a", began, took) for began, took in times]
        scene.witness.check_latency(1.0, 1.7)
        assert scene.broken == broken


def test_what_is_never_quiet():
    """Feeds, tells or appends that go on."""
    for now in ((5, 5, 6), (5, 6, 5), (6, 5, 5)):
        scene = Scene()
        scene.witness.check_quiet((5, 5, 5), (5, 5, 5))
        assert scene.broken == set()
        scene.witness.check_quiet((5, 5, 5), now)
        assert scene.broken == {"quiet"}
