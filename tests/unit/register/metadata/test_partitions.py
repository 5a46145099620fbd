"""A table's map keeps its invariants in its first edits and by each operation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.partition import (
    MAX_ENDS,
    MAX_FORMER,
    Assignment,
    AssignmentState,
    ForcedEnd,
    Partition,
    fault_of,
)
from gossipkv.register.metadata.packing import pack
from gossipkv.register.metadata.partitions import (
    HASH,
    INVALID,
    NOT_FOUND,
    OPERATIONS,
    RANGE,
    TableMeta,
    decode_partition,
    decode_table,
    encode_partition,
    first_edits,
    shard_key,
)
from gossipkv.settings.tables import MAX_TTL_MS
from tests.unit.placement.hosted import WHOLE, A, L, P, hosted, node
from tests.unit.register.metadata.maps import HeldMap

RANGES = TableMeta(b"r" * 16, "ranges", RANGE, 3, 0)
SHARDS = TableMeta(b"s" * 16, "shards", HASH, 3, 4)
GROUPS = ((node(1), node(2), node(3)), (node(4), node(5), node(6)))


class Map(HeldMap):
    """A table's map, driven by single operations."""

    def __init__(self, table, partitions):
        super().__init__(OPERATIONS, first_edits(table, partitions, 1), 1)

    def judge(self, *operations, config=None):
        judgement = super().judge(*operations, config=config)
        for entry in self.view.scan():
            self.table.check_entry(entry.key, entry.record)
        return judgement

    @property
    def table(self):
        return decode_table(self.view.meta)

    @property
    def partitions(self):
        return {entry.key: decode_partition(entry.record) for entry in self.view.scan()}


def test_records_are_read_as_they_were_written():
    assert decode_partition(encode_partition(WHOLE)) == WHOLE
    assert decode_partition(encode_partition(WHOLE)) is decode_partition(encode_partition(WHOLE)), "decoded once"
    assert decode_table(RANGES.encode()) == RANGES
    moved = WHOLE._replace(former=(4, 9), ends=(ForcedEnd(9, 3), ForcedEnd(4, None)))
    assert decode_partition(encode_partition(moved)) == moved
    timed = RANGES._replace(time_key=TimeKey(0, 8, "ms"))
    for table in (
        SHARDS, SHARDS._replace(partitioner="sha1"), SHARDS._replace(groups=GROUPS), timed, timed._replace(smears=True),
        SHARDS._replace(ttl_ms=1), timed._replace(ttl_ms=MAX_TTL_MS, retention_ms=MAX_TTL_MS),
    ):  # fmt: skip
        assert decode_table(table.encode()) == table


@pytest.mark.parametrize(("at", "wrong"), [
    (0, 2), (0, True), (3, "hash"), (5, 4), (6, "sha1"), (7, [b"n" * 16]), (8, None), (8, [0, 8]), (8, [0, 9, "s"]),
    (9, 1),
])  # fmt: skip
def test_tables_that_cannot_have_a_time_key(at, wrong):
    """Shards, another hash, groups, a bad time key, another format or number of fields are refused."""
    fields = [1, b"r" * 16, "ranges", RANGE, 3, 0, "murmur3", [], [0, 8, "ms"], True, 0, 0]
    assert decode_table(pack(fields)).time_key == TimeKey(0, 8, "ms")
    for broken in (
        [*fields[:at], wrong, *fields[at + 1 :]],
        fields[:-1],
        [*fields, 0],
        [*fields[:8], None, False, 0, 1],
    ):
        with pytest.raises(ProtocolError):
            decode_table(pack(broken))


@pytest.mark.parametrize("former", [(2, 1), (1,), (8, 8), tuple(range(100, 168))])
def test_former_assignments_that_are_none(former):
    """Former assignments are refused if out of order, still assigned, repeated, or too many."""
    with pytest.raises(ProtocolError, match="former"):
        RANGES.check_entry(b"", encode_partition(WHOLE._replace(former=former)))


@pytest.mark.parametrize(
    "fields",
    [
        [], None, [1, 7, []], [1, 7, [], [], []], [1, 7, [], [], [], 0, 0], [1, 7, [], [-1], [], 0],
        *([format_, 7, [], [], [], 0] for format_ in (True, 2, None)), [1, -1, [], [], [], 0], [1, 7, [], None, [], 0],
        *([1, 7, [row], [], [], 0] for row in (
            [1, node(1), 0], [1, b"short", 0, 3], [1, node(1), 0, 0], [1, node(1), 0, 5], [1, node(1), -1, 3],
            [None, node(1), 0, 3], [1, node(1), 0, True],
        )),
        [1, 7, [], [], [[1]], 0], [1, 7, [], [], [[1, -1]], 0], [1, 7, [], [], [[1, 1]] * 65, 0],
        [1, 7, None, [], [], 0], [1, 7, [], [], [], None], [1, 7, [], [], [], -1],
    ],
)  # fmt: skip
def test_what_is_no_partition(fields):
    """Fields that are missing, extra, of another type or out of range are refused; so is another format."""
    with pytest.raises(ProtocolError):
        decode_partition(pack(fields))


@pytest.mark.parametrize(
    "table",
    [
        RANGES._replace(id=b"short"), RANGES._replace(name=""), RANGES._replace(name="a b"),
        RANGES._replace(name="n" * 201),
        RANGES._replace(kind="other"), RANGES._replace(shards=4), SHARDS._replace(shards=0),
        RANGES._replace(replication=0),
        RANGES._replace(replication=10), SHARDS._replace(shards=(1 << 17) + 1), SHARDS._replace(shards=True),
        SHARDS._replace(partitioner="md5"), RANGES._replace(partitioner="sha1"), SHARDS._replace(groups=((),)),
        SHARDS._replace(groups=((b"short",),)), SHARDS._replace(groups=((node(1),), (node(2), node(1)))),
    ],
)  # fmt: skip
def test_what_is_no_table(table):
    """Bad names and numbers out of range are refused, in a record and for a first map."""
    with pytest.raises(ProtocolError):
        decode_table(table.encode())
    with pytest.raises(ProtocolError):
        first_edits(table, {b"": WHOLE}, 1)


def test_a_partition_that_breaks_an_invariant():
    """No map with such a partition is made or accepted."""
    partition = hosted(7, (1, 0, A), (2, 0, A))
    with pytest.raises(ProtocolError):
        first_edits(RANGES, {b"": partition}, 1)
    with pytest.raises(ProtocolError, match="the partition at"):
        RANGES.check_entry(b"", encode_partition(partition))


def test_a_first_edits_tiles_the_key_space():
    """A first map tiles from the lowest key on or shard by shard, and nothing moves in it."""
    other = WHOLE._replace(id=8)
    Map(RANGES, {b"": WHOLE, b"m": other})
    assert list(Map(SHARDS, {shard_key(at): WHOLE._replace(id=at) for at in range(4)}).partitions) == [
        b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\3",
    ]  # fmt: skip
    for table, partitions, words in (
        (RANGES, {}, "begins at None"), (RANGES, {b"m": WHOLE}, "begins at b'm'"), (SHARDS, {}, "0 partitions"),
        (SHARDS, {shard_key(at): WHOLE for at in range(3)}, "the map has 3 partitions, and the table has 4 shards"),
        (SHARDS, {shard_key(at): WHOLE for at in range(1, 5)}, "has no shard at"),
        (SHARDS, {b"": WHOLE}, "has no shard at"),
        (RANGES, {b"": hosted(7, (1, 0, A), (2, 0, P))}, "has a move"),
        (RANGES, {b"": WHOLE, b"m": WHOLE}, "two partitions have the same id"),
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match=words):
            first_edits(table, partitions, 1)


def test_a_move_from_its_beginning_to_its_end():
    """Repeated steps change nothing; the source leaves only after the target is there."""
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("assign", b"", 7, 4, node(4), 2) == "DONE"
    assert table.partitions[b""] == hosted(7, (1, 0, A), (2, 1, A), (3, 2, A), (4, 2, P))
    assert table.ask("advance", b"", 7, 4, 3) == INVALID
    assert table.ask("unassign", b"", 7, 3) == INVALID
    for state in (2, 2, 3):
        assert table.ask("advance", b"", 7, 4, state) == "DONE"
    after = hosted(7, (1, 0, A), (2, 1, A), (3, 2, L), (4, 2, A))
    assert table.partitions[b""] == after
    for again in (("assign", b"", 7, 4, node(4), 2), ("advance", b"", 7, 4, 2), ("advance", b"", 7, 3, 3)):
        assert table.ask(*again) == "DONE"
        assert table.partitions[b""] == after
    for _ in range(2):
        assert table.ask("unassign", b"", 7, 3) == "DONE"
        assert table.partitions[b""] == hosted(7, (1, 0, A), (2, 1, A), (4, 2, A))._replace(former=(3,))
    assert table.ask("assign", b"", 7, 3, node(9), 2) == INVALID  # An id of before belongs to its former node.
    for _ in range(2):
        assert table.ask("settle", b"", 7, ((3, 12), (99, 1))) == "DONE"
        assert table.partitions[b""] == hosted(7, (1, 0, A), (2, 1, A), (4, 2, A))


@pytest.mark.parametrize("settled", [6, 4])
def test_one_that_is_gone_for_good(settled):
    """The slot is free at once; the ends of its assignment and of former ones come later, and settle them.

    A lower counter also settles: the node with the rest was lost for good, too.
    """
    table = Map(RANGES, {b"": WHOLE})
    force, end = partial(table.ask, "unassign", b"", 7, version=2), partial(table.ask, "end", b"", 7)
    for _ in range(2):
        assert force(3) == "DONE"
        two = hosted(7, (1, 0, A), (2, 1, A))
        assert table.partitions[b""] == two._replace(former=(3,), ends=(ForcedEnd(3, None),))
    for _ in range(2):
        assert end(((3, 5), (1, 9))) == "DONE"
        assert table.partitions[b""] == two._replace(former=(3,), ends=(ForcedEnd(3, 5),))
    assert end(((3, 6),)) == "DONE"
    assert force(2) == "DONE"
    assert table.partitions[b""] == hosted(7, (1, 0, A))._replace(
        former=(2, 3), ends=(ForcedEnd(3, 5), ForcedEnd(2, None))
    )
    assert force(1) == INVALID  # The last AVAILABLE assignment cannot be forced out.
    assert table.ask("settle", b"", 7, ((3, settled), (2, 7))) == "DONE"
    assert table.partitions[b""] == hosted(7, (1, 0, A))._replace(ends=(ForcedEnd(3, settled), ForcedEnd(2, 7)))
    assert table.ask("settle", b"", 7, ((3, 8),)) == "DONE"
    assert table.partitions[b""].ends == (ForcedEnd(3, settled), ForcedEnd(2, 7))


def test_who_was_never_there_leaves_nothing():
    """A target that is given up, even by force, has originated nothing."""
    table = Map(RANGES, {b"": WHOLE})
    table.ask("assign", b"", 7, 4, node(4), 2)
    assert table.ask("unassign", b"", 7, 4, version=2) == "DONE"
    assert table.partitions[b""] == WHOLE


def test_what_is_former_and_forced_has_bounds():
    """Moves without end must wait for former assignments to settle, and the oldest ends are dropped."""
    table = Map(RANGES, {b"": WHOLE})

    def moved_by_force(id_):
        if table.ask("assign", b"", 7, id_, node(id_), 2) != "DONE":
            return False
        at = next(one.id for one in table.partitions[b""].assignments if one.slot == 2)
        for state in (2, 3):
            assert table.ask("advance", b"", 7, id_, state) == "DONE"
        assert table.ask("unassign", b"", 7, at, version=2) == "DONE"
        return True

    assert not all(map(moved_by_force, range(10, 200)))
    former = table.partitions[b""].former
    assert MAX_FORMER - 9 <= len(former) <= MAX_FORMER
    assert table.ask("settle", b"", 7, tuple((one, 2) for one in former)) == "DONE"
    assert all(map(moved_by_force, range(300, 320)))
    ends = table.partitions[b""].ends
    assert len(ends) == MAX_ENDS
    assert ForcedEnd(318, None) in ends
    assert ForcedEnd(former[0], 2) not in ends


def test_groups_of_nodes():
    """Groups are stored in the meta for shards only, each with enough nodes; an empty list removes them."""
    table = Map(SHARDS, {shard_key(at): WHOLE._replace(id=at) for at in range(4)})
    packed = tuple(b"".join(group) for group in GROUPS)
    for groups, told in ((GROUPS, packed), ((), ())):
        for _ in range(2):
            assert table.ask("set_groups", *told) == "DONE"
            assert table.table == SHARDS._replace(groups=groups)
    for wrong in ((b"",), (packed[0], packed[0]), (packed[0][:32], packed[1]), (b"short",), (1,)):
        assert table.ask("set_groups", *wrong) == INVALID
    assert Map(RANGES, {b"": WHOLE}).ask("set_groups", *packed) == INVALID


def test_a_move_is_cancelled():
    table = Map(RANGES, {b"": WHOLE})
    table.ask("assign", b"", 7, 4, node(4), 2)
    table.ask("advance", b"", 7, 4, 2)
    assert table.ask("unassign", b"", 7, 4) == "DONE"
    assert table.partitions[b""] == WHOLE


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (NOT_FOUND, ("assign", b"m", 7, 4, node(4), 2)), (NOT_FOUND, ("assign", b"", 8, 4, node(4), 2)),
        (INVALID, ("assign", b"", 7, 4, node(1), 2)), (INVALID, ("assign", b"", 7, 4, node(4), 3)),
        (INVALID, ("assign", b"", 7, 4, b"short", 2)), (INVALID, ("assign", b"", 7, -4, node(4), 2)),
        (INVALID, ("assign", b"", 7, 4, node(4), -1)), (INVALID, ("assign", b"", 7, 1, node(4), 2)),
        (INVALID, ("assign", b"", 7, 4, node(4))), (INVALID, ("assign", "", 7, 4, node(4), 2)),
        (NOT_FOUND, ("advance", b"", 7, 4, 2)), (NOT_FOUND, ("advance", b"", 8, 1, 2)),
        (INVALID, ("advance", b"", 7, 1, 4)),
        (INVALID, ("advance", b"", 7, 1, 1)), (INVALID, ("advance", b"", 7, 1, 2.5)), (INVALID, ("advance", b"", 7, 1)),
        (NOT_FOUND, ("advance", b"", 7, None, 2)), (NOT_FOUND, ("unassign", b"", 8, 4)),
        (INVALID, ("unassign", b"", 7)), (INVALID, ("end", b"", 7, ((3, -1),))), (INVALID, ("end", b"", 7, ())),
        (INVALID, ("settle", b"", 7, ((3, 5), (3, 6)))),
        (INVALID, ("unassign", b"", 7, 1)),
    ],
)  # fmt: skip
def test_what_is_refused(code, told):
    """Unknown partitions and assignments, malformed arguments and broken invariants are refused."""
    whole = {b"": WHOLE, b"x": hosted(17, (11, 0, A))}
    table = Map(RANGES, whole)
    assert table.ask(*told) == code
    assert table.partitions == whole


KEYS = st.sampled_from([b"", b"b", b"c", b"m", b"x"])
IDS = st.integers(0, 12)
SLOTS = st.integers(0, 3)
CHILDREN = st.tuples(KEYS, IDS, st.lists(IDS, min_size=1, max_size=3).map(tuple))
ASKED = st.one_of(
    st.tuples(st.just("assign"), KEYS, IDS, IDS, IDS.map(node), SLOTS),
    st.tuples(st.just("advance"), KEYS, IDS, IDS, st.integers(1, 4)),
    st.tuples(st.just("unassign"), KEYS, IDS, IDS),
    st.tuples(st.sampled_from(["end", "settle"]), KEYS, IDS, st.lists(st.tuples(IDS, IDS), max_size=2).map(tuple)),
    st.tuples(
        st.just("divide"), KEYS, IDS,
        st.lists(CHILDREN, min_size=2, max_size=3).map(tuple),
    ),
)  # fmt: skip


@given(st.lists(ASKED, max_size=20))
def test_no_operation_breaks_an_invariant(asked):
    """After any operations every key has a partition that keeps its invariants."""
    table = Map(RANGES, {b"": hosted(1, (1, 0, A), (2, 1, A)), b"m": hosted(2, (1, 0, A), (2, 1, A))})
    for told in asked:
        before = table.partitions
        answer = table.ask(*told)
        after = table.partitions
        assert answer in {"DONE", INVALID, NOT_FOUND}
        assert answer == "DONE" or before == after
        assert min(after) == b""
        assert all(not fault_of(one, 3) for one in after.values())
        assert before.keys() <= after.keys()


ASSIGN = ("assign", b"", 7, 9, node(9), 0)
COMES = [
    ASSIGN,
    ("advance", b"", 7, 9, AssignmentState.INITIALIZING),
    ("advance", b"", 7, 9, AssignmentState.AVAILABLE),
]
REPLACED = [("assign", b"", 7, 10, node(10), 0), ("advance", b"", 7, 10, 2), ("advance", b"", 7, 10, 3)]
STATES = {"nobody": [], "PROPOSED": COMES[:1], "INITIALIZING": COMES[:2], "AVAILABLE": COMES}
STATES["LEAVING"] = [*COMES, ("unassign", b"", 7, 1), *REPLACED]
STEPS = {
    "assign": ASSIGN,
    "advance": COMES[1:],
    "advance of another in its slot to AVAILABLE": REPLACED,
    "unassign": ("unassign", b"", 7, 9),
    "unassign by force": ("unassign", b"", 7, 9),
    "unassign of another in its slot by force": ("unassign", b"", 7, 10),
}


def steps_from(state):
    """Yield the next state for each operation that changes an assignment in this state."""
    for name, steps in STEPS.items():
        table = Map(RANGES, {b"": Partition.of(7, [Assignment(one, node(one), one - 1, A) for one in (1, 2, 3)])})
        for step in STATES[state]:
            assert table.ask(*step) == "DONE"
        if name.endswith("AVAILABLE") and state == "AVAILABLE":
            table.ask("unassign", b"", 7, 1)
        before = table.partitions[b""].assignment(9)
        for step in steps if isinstance(steps, list) else [steps]:
            told = table.ask(*step, version=1 + name.endswith("force"))
            after = table.partitions[b""].assignment(9)
            if told == "DONE" and before != after:
                yield state, name, "nobody" if after is None else after.state.name
                break


def test_a_page_draws_the_states_as_they_are():
    """`docs/development/metadata.md` has exactly one row for each step."""
    page = (Path(__file__).parents[4] / "docs" / "development" / "metadata.md").read_text(encoding="utf-8")
    rows = page.split("| before | by | after |\n|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    drawn = set()
    for row in rows:
        befores, by, after = [cell.strip().replace("`", "") for cell in row.strip("|").split("|")]
        drawn |= {(before, by, after) for before in befores.split(", ")}
    assert drawn == {step for state in STATES for step in steps_from(state)}
