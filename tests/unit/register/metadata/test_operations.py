"""Operations and their judgement: outcomes, conflicts, ends of lives, limits, and unknown functions."""

from __future__ import annotations

from itertools import chain

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gossipkv.errors import ProtocolError
from gossipkv.register.edits import digest_of
from gossipkv.register.metadata.known import config_id, generation_of, sequence_of
from gossipkv.register.metadata.operations import (
    EXPIRED,
    ID_USED,
    MAX_EDIT_BYTES,
    TOO_LARGE,
    UNSUPPORTED,
    Edits,
    MapEdit,
    Operation,
    OperationOutcome,
    ask,
    decode_operation,
)
from tests.oracle.metadata_map import KEPT, LIFE, Model, Wanted
from tests.unit.register.metadata.maps import FUNCTIONS, HeldMap, operation, wanted

ID = b"i" * 20


def test_an_operation_is_read_as_it_was_written():
    """An argument may be any MessagePack value, with arrays as tuples."""
    one = Operation(ID, (1 << 64) - 1, "say", 1, (b"key", 7, None, ("text", (1.5, True))))
    assert decode_operation(one.encode()) == one


@pytest.mark.parametrize(
    "fields",
    [
        [], [ID, 1, "say", 1], [ID, 1, "say", 1, None, None], [b"short", 1, "say", 1, None], [ID, -1, "say", 1, None],
        [ID, True, "say", 1, None], [ID, 1, b"say", 1, None], [ID, 1, "s" * 33, 1, None], [ID, 1, "say", -1, None],
        [ID, 1, "say", 1, bytes(1 << 16)], [ID, 1, "say", 1.0, None], None,
    ],
)  # fmt: skip
def test_what_is_no_operation(fields):
    """Fields that are missing, extra, of another type or out of range are refused."""
    with pytest.raises(ProtocolError):
        decode_operation(msgpack.packb(fields))


def test_an_operation_that_a_program_does_not_know_is_left_to_others():
    """Nothing of it is recorded, so a program that knows it does it later; operations next to it are done."""
    held, one = HeldMap(), Operation(ID, 0, "say", 2, ((), (), False, False))
    assert held.codes(one) == [UNSUPPORTED]
    assert (held.config, held.judged) == (0, [])
    assert held.codes(wanted(1, puts={b"a": b"1"}), one, wanted(2, puts={b"b": b"2"})) == ["DONE", UNSUPPORTED, "DONE"]
    assert ask(held.view, ID, 0) is OperationOutcome.UNKNOWN
    held.functions = {("say", 2): FUNCTIONS["say", 1]}
    assert held.codes(one) == ["DONE"]
    assert ask(held.view, ID, 0) is OperationOutcome.DONE


def test_an_operation_dies_at_its_base_and_64():
    """An operation dies after 64 sequences for good, and with its generation at once; a future base is not judged."""
    for config, code in (
        (config_id(2, 100 + LIFE), "DONE"), (config_id(2, 101 + LIFE), EXPIRED), (config_id(3, 101), EXPIRED),
        (config_id(2, 100), "UNKNOWN"), (config_id(1, 500), "UNKNOWN"),
    ):  # fmt: skip
        held = HeldMap(config=config_id(2, 89))
        held.put({b"k": b"v"})
        assert held.codes(wanted(base=config_id(2, 100), puts={b"new": b"v"}), config=config) == [code]
        assert held.keys == [b"k", *([b"new"] if code == "DONE" else [])]


def test_a_repetition_is_answered_as_long_as_outcomes_are_kept():
    """After 4,096 sequences a repetition is neither done again nor refused."""
    held, one = HeldMap(), wanted(puts={b"k": b"v"})
    assert held.codes(one) == ["DONE"]
    for config, outcome in ((KEPT, "DONE"), (1 + KEPT, "DONE"), (2 + KEPT, "UNKNOWN")):
        held.put({b"other": b"%d" % config}, config)
        assert (held.judge(one).answers[0].outcome.name, held.config) == (outcome, config)


def test_outcomes_are_deleted_when_they_are_too_old():
    """Each transaction deletes up to two that are older than 4,096 sequences, so a backlog shrinks."""
    held, sizes = HeldMap(), []
    for config in (1, 2, 3, 4, 5, 6, 7, KEPT + 1, KEPT + 6, KEPT + 7, KEPT + 8, KEPT + 9):
        held.put({b"k": b"%d" % config}, config)
        sizes.append(len(held.judged))
    assert sizes[7:] == [8, 7, 6, 5, 5]
    assert held.judged == [KEPT + 1, KEPT + 6, KEPT + 7, KEPT + 8, KEPT + 9]


def test_an_id_that_is_used_again_for_another_operation_is_refused():
    """Another operation under the id is refused in any transaction and on any base; the first is done once."""
    held = HeldMap(config=4)
    one, other = wanted(1, puts={b"a": b"1"}), wanted(1, puts={b"b": b"2"})
    assert held.codes(one, other, one) == ["DONE", ID_USED, "DONE"]
    bases = (4, 5)  # Before that transaction, and on its result.
    operations = [other, *(each._replace(base=base) for base in bases for each in (one, other))]
    assert held.codes(*operations) == [ID_USED, "DONE", ID_USED, "DONE", ID_USED]
    assert held.codes(other._replace(base=config_id(1, 5)), config=config_id(1, 6)) == [ID_USED]
    assert one.id.hex() in held.words
    assert (held.sequence, held.keys) == (5, [b"a"])


def test_no_is_said_only_when_nothing_can_happen_any_more():
    """REFUSED is final: the life is over while outcomes are known, or the operation was refused."""
    base = config_id(2, 100)
    expected = {
        config_id(2, 99): "UNKNOWN", config_id(2, 100): "UNKNOWN", config_id(2, 99 + LIFE): "UNKNOWN",
        config_id(2, 100 + LIFE): "REFUSED", config_id(3, 101): "REFUSED", config_id(2, 101 + KEPT): "REFUSED",
        config_id(2, 102 + KEPT): "UNKNOWN", config_id(1, 900): "UNKNOWN",
    }  # fmt: skip
    assert {config: ask(HeldMap(config=config).view, ID, base).name for config in expected} == expected
    held = HeldMap(config=base)
    assert held.codes(wanted(1, base, refuses=True)) == ["NO"]
    assert [ask(held.view, b"%020d" % number, base).name for number in (1, 2)] == ["REFUSED", "UNKNOWN"]


def test_each_operation_sees_those_before_it():
    """Two operations of one base conflict on one key, and both succeed on two keys."""
    operations = [wanted(1, puts={b"a": b"1"}), wanted(2, puts={b"b": b"2"}), wanted(3, puts={b"a": b"3"})]
    assert HeldMap().codes(*operations) == ["DONE", "DONE", "CONFLICT"]
    assert HeldMap().judge(operations[0], operations[0]).edits == HeldMap().judge(operations[0]).edits


def test_what_was_looked_at_is_touched():
    """A refusal due to a newer change is a conflict; one due to the state at the base is a refusal."""
    held = HeldMap(config=4)
    held.put({b"k": b"v"})
    operations = [wanted(1, 4, looks=[b"k"], refuses=True), wanted(2, 5, looks=[b"k"], refuses=True)]
    operations += [wanted(3, 4, {b"other": b"1"}, [b"k"]), wanted(4, 4, {b"other": b"1"})]
    assert held.codes(*operations) == ["CONFLICT", "NO", "CONFLICT", "DONE"]
    assert held.codes(wanted(5, 4, looks=[b"k"])) == ["DONE"], "it finds itself done, on any base"


def test_an_operation_that_touches_all_stands_alone():
    """The operation conflicts with any change after its base, also in its own transaction, and vice versa."""

    def judged(*operations):
        held = HeldMap(config=4)
        held.put({b"k": b"v"})
        return held.codes(*operations)

    every, other = wanted(1, 5, touches_all=True), wanted(2, 5, {b"other": b"1"})
    assert judged(wanted(3, 4, touches_all=True)) == ["CONFLICT"]
    assert judged(every, other) == ["DONE", "CONFLICT"]
    assert judged(other, every) == ["DONE", "CONFLICT"]
    assert judged(wanted(4, 5, refuses=True), every) == ["NO", "DONE"]


def test_a_meta_is_changed_with_all():
    """A function returns the new meta; too large a meta is refused."""
    held = HeldMap({("name", 1): lambda view, argument: Edits(meta=view.meta + argument[0])})
    operations = [held.operation("name", meta) for meta in (b"m", b"n")]
    assert held.codes(*operations) == ["DONE", "CONFLICT"]
    assert (held.view.meta, held.view.version) == (b"m", 1)
    assert held.ask("name", bytes(4096)) == TOO_LARGE


@pytest.mark.parametrize("puts", [
    {b"a": b"1", b"b": bytes(8193)}, {b"a": b"1", b"b" * 256: b""},
    {b"%02d" % number: bytes(8000) for number in range(MAX_EDIT_BYTES // 8000 + 1)},
], ids=["a record", "a key", "all together"])  # fmt: skip
def test_an_operation_that_is_too_large_is_refused_whole(puts):
    """Nothing of it is done; operations next to it are."""
    held = HeldMap()
    assert held.codes(wanted(1, puts=puts), wanted(2, puts={b"c": b""})) == [TOO_LARGE, "DONE"]
    assert held.keys == [b"c"]


def test_the_rest_of_a_group_waits_if_its_edits_become_too_large():
    """The first operations up to 256 KiB of edits are answered; the others have to be judged again."""
    operations = [wanted(number, puts={b"%d" % number: bytes(8000)}) for number in range(60)]
    held = HeldMap()
    first = len(held.codes(*operations))
    assert (first, held.codes(*operations[first:])) == (33, ["DONE"] * (60 - first))


def test_a_full_map_takes_all_but_growth(monkeypatch):
    """An operation that grows the map is refused alone; after a deletion there is room again."""
    monkeypatch.setattr("gossipkv.register.metadata.operations.MAX_MAP_BYTES", 96_700)
    held = HeldMap()
    while held.codes(wanted(held.config, held.config, {b"%03d" % held.config: bytes(8000)})) == ["DONE"]:
        pass
    assert (len(held.keys), held.words) == (12, "the map is full")
    now, first = held.config, held.keys[0]
    grows, shrinks = wanted(101, now, {b"new": bytes(8000)}), wanted(102, now, {first: None})
    same, larger = wanted(103, now, {held.keys[1]: bytes(8000)}), wanted(104, now, {held.keys[2]: bytes(8100)})
    assert held.codes(larger, grows, same, shrinks) == [TOO_LARGE, TOO_LARGE, "DONE", "DONE"]
    assert held.codes(wanted(105, held.config, {b"new": bytes(7000)})) == ["DONE"]


# -- any operations, compared with a model -----------------------------------------------------------------------------

KEYS = st.one_of(st.sampled_from([b"", b"\0", b"\xff" * 255]), st.integers(0, 60).map(b"%02d".__mod__))
AGES = st.one_of(st.integers(-1, 3), st.sampled_from([10, 62, 63, 64, 65, 200]))
JUMPS = st.one_of(st.just(1), st.sampled_from([2, 30, 63, 64, 1_000, KEPT - 1, KEPT, KEPT + 1]))
OPERATIONS = st.tuples(
    st.integers(0, 400), AGES, st.dictionaries(KEYS, st.none() | st.just(b""), max_size=12),
    st.lists(KEYS, max_size=2), st.sampled_from([False] * 9 + [True]), st.sampled_from([False] * 5 + [True]),
    st.booleans(),
)  # fmt: skip


def key_of(entry):
    return None if entry is None else entry.key


class Machine(RuleBasedStateMachine):
    """One map, judged by the program and by the model."""

    def __init__(self):
        super().__init__()
        self.held, self.model = HeldMap(), Model()
        self.bases = {}  # By the number of an operation.
        self.first = {}  # The first operation of each number.
        self.stamp = 0

    def wanted(self, told):
        """Return an operation: a number fixes id and base, but may stand for another operation."""
        number, age, puts, looks, touches_all, refuses, is_again = told
        base = self.bases.setdefault(number, max(0, self.held.config - age))
        self.stamp += 1
        made = {key: None if record is None else b"%d" % self.stamp for key, record in puts.items()}
        one = Wanted(b"%020d" % number, base, made, looks, touches_all=touches_all, refuses=refuses)
        return self.first.setdefault(number, one) if is_again else one

    @rule(told=st.lists(OPERATIONS, min_size=1, max_size=10), jump=JUMPS, forced=st.sampled_from([0] * 19 + [1]))
    def transact(self, told, jump, forced):
        """Judge a few operations."""
        asked = [self.wanted(one) for one in told]
        config = config_id(generation_of(self.held.config) + forced, self.held.sequence + jump)
        judged = self.held.judge(*map(operation, asked), config=config)
        for answer, allowed in zip(judged.answers, self.model.judge(asked, config), strict=True):
            assert answer.outcome.name in allowed

    @rule(number=st.integers(0, 400))
    def ask(self, number):
        base, id_ = self.bases.get(number, max(0, self.held.config - number)), b"%020d" % number
        assert ask(self.held.view, id_, base).name in self.model.ask(id_, base, self.held.config)

    @rule(key=KEYS, end=st.none() | KEYS)
    def read(self, key, end):
        """Find neighbours of a key, and scan."""
        view, keys = self.held.view, sorted(self.model.entries)
        after = min((one for one in keys if one > key), default=None)
        assert view.next_key(key) == MapEdit(view, 0, self.held.config + 1).next_key(key) == after
        assert key_of(view.floor(key)) == max((one for one in keys if one <= key), default=None)
        assert key_of(view.before(key)) == max((one for one in keys if one < key), default=None)
        assert key_of(view.get(key)) == (key if key in keys else None)
        within = [one for one in keys if one >= key and (end is None or one < end)]
        assert [one.key for one in view.scan(key, end)] == within
        in_leaves = [[one.key for one in view.leaf(number)] for number in range(len(view.leaves))]
        assert [*chain(*in_leaves)] == keys
        assert key not in keys or key in in_leaves[view.leaf_of(key)]

    @invariant()
    def is_as_the_model(self):
        """Check entries, versions, digest and size."""
        view, base = self.held.view, self.held.base
        assert {one.key: (one.version, one.record) for one in view.scan()} == self.model.entries
        assert (view.version, view.config, len(view)) == (self.model.version, self.model.config, len(self.held.keys))
        rows = [*base.entries.scan()]
        assert base.digest == digest_of(rows)
        assert base.size_bytes == sum(len(key) + len(record) for key, record in rows)
        assert all(sequence_of(self.held.config) >= sequence for sequence in self.held.judged)


def test_judgements_are_the_model_s():
    """Random transactions of repeated, late, conflicting and refused operations, with jumps and forces."""
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=25))


def test_the_model_meets_each_outcome():
    one, two = Wanted(b"1" * 20, 0, {b"k": b"v"}, []), Wanted(b"2" * 20, 0, {b"k": b"w"}, [])
    three, four = Wanted(b"3" * 20, 0, {}, [], refuses=True), Wanted(b"4" * 20, 1, {}, [])
    other = Wanted(b"1" * 20, 0, {b"l": b"v"}, [])
    told = Model().judge([one, two, three, four, one, other], 1)
    assert told == [{"DONE"}, {"CONFLICT"}, {"REFUSED"}, {"UNKNOWN"}, {"DONE"}, {"REFUSED"}]
