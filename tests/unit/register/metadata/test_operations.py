"""Operations and the state machine at its limits: full maps, unknown names, ends of lives."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.operations import (
    EXPIRED,
    ID_USED,
    TOO_LARGE,
    UNKNOWN_OPERATION,
    Edits,
    Operation,
    ask,
    decode_operation,
    judge,
)
from gossipkv.register.metadata.pages import OperationOutcome, config_id
from gossipkv.register.metadata.tree import KEPT, LIFE, MapTree
from tests.oracle.metadata_tree import Wanted
from tests.unit.register.metadata.maps import FUNCTIONS, new_store, operation, put_all

ID = b"i" * 20


def wanted(number=1, base=0, puts=None, looks=(), *, touches_all=False, refuses=False):
    return operation(Wanted(b"%020d" % number, base, puts or {}, list(looks), touches_all=touches_all, refuses=refuses))


def outcomes(judgement):
    return [answer.outcome.name for answer in judgement.answers]


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


def test_what_nobody_knows_is_refused_by_name():
    """The refusal stands even if the operation becomes known later."""
    store = new_store()
    one = Operation(ID, 0, "say", 2, None)
    judgement = judge(store.open(None), [one], 1, FUNCTIONS)
    assert [(answer.outcome, answer.code) for answer in judgement.answers] == [
        (OperationOutcome.REFUSED, UNKNOWN_OPERATION)
    ]
    root = store.take(judgement.changed)
    later = judge(store.open(root), [one], 2, {("say", 2): FUNCTIONS["say", 1]})
    assert (outcomes(later), later.changed) == (["REFUSED"], None)


def test_an_operation_dies_at_its_base_and_64():
    """An operation dies after 64 sequences for good, and with its generation at once; a future base is not judged."""
    store, base = new_store(), config_id(2, 100)
    root = store.take(put_all(MapTree.empty("any"), config_id(2, 90), {b"k": b"v"}))
    for config, outcome, code in (
        (config_id(2, 100 + LIFE), OperationOutcome.DONE, ""),
        (config_id(2, 101 + LIFE), OperationOutcome.REFUSED, EXPIRED),
        (config_id(3, 101), OperationOutcome.REFUSED, EXPIRED),
        (config_id(2, 100), OperationOutcome.UNKNOWN, ""),
        (config_id(1, 500), OperationOutcome.UNKNOWN, ""),
    ):
        judgement = judge(store.open(root), [wanted(base=base, puts={b"new": b"v"})], config, FUNCTIONS)
        assert [(answer.outcome, answer.code) for answer in judgement.answers] == [(outcome, code)]
        # After a force there is a root of its generation though nothing was judged: later bases are of that generation.
        assert (judgement.changed is not None) == (outcome is OperationOutcome.DONE or config == config_id(3, 101))


def test_one_that_comes_again_when_its_outcome_is_forgotten():
    """A repetition after 4,096 sequences is neither done again nor refused."""
    store, one = new_store(), wanted(puts={b"k": b"v"})
    root = store.take(judge(MapTree.empty("any"), [one], 1, FUNCTIONS).changed)
    for config, outcome in ((1 + KEPT, "DONE"), (2 + KEPT, "UNKNOWN")):
        root = store.take(put_all(store.open(root), config, {}))
        again = judge(store.open(root), [one], config + 1, FUNCTIONS)
        assert (outcomes(again), again.changed) == ([outcome], None)


def test_an_id_that_is_used_again_for_another_operation_is_refused():
    """Another operation under the id is refused in any transaction and on any base; the first is done once."""
    store = new_store()
    one, other = wanted(1, puts={b"a": b"1"}), wanted(1, puts={b"b": b"2"})
    judgement = judge(MapTree.empty("any"), [one, other, one], 5, FUNCTIONS)
    assert [(answer.outcome, answer.code) for answer in judgement.answers] == [
        (OperationOutcome.DONE, ""), (OperationOutcome.REFUSED, ID_USED), (OperationOutcome.DONE, "")
    ]  # fmt: skip
    tree = store.open(store.take(judgement.changed))
    bases = (4, 5)  # Before that transaction, and on its result.
    operations = [other, *(each._replace(base=base) for base in bases for each in (one, other))]
    again = judge(tree, operations, 6, FUNCTIONS)
    assert [answer.code for answer in again.answers] == [ID_USED, "", ID_USED, "", ID_USED]
    forced = judge(tree, [other._replace(base=config_id(1, 5))], config_id(1, 6), FUNCTIONS)
    assert [answer.code for answer in forced.answers] == [ID_USED]
    assert one.id.hex() in again.answers[0].message
    assert (again.changed, [entry.key for entry in tree.scan()]) == (None, [b"a"])


def test_no_is_said_only_when_nothing_can_happen_any_more():
    """REFUSED is final: the life is over while outcomes are known, or it was refused by name."""
    store, base = new_store(), config_id(2, 100)
    root = store.take(put_all(MapTree.empty("any"), config_id(2, 90), {b"k": b"v"}))
    heads = {
        config_id(2, 99): "UNKNOWN", config_id(2, 100): "UNKNOWN", config_id(2, 99 + LIFE): "UNKNOWN",
        config_id(2, 100 + LIFE): "REFUSED", config_id(3, 101): "REFUSED", config_id(2, 101 + KEPT): "REFUSED",
        config_id(2, 102 + KEPT): "UNKNOWN", config_id(1, 900): "UNKNOWN",
    }  # fmt: skip
    assert {head: ask(store.open(root), ID, base, head).name for head in heads} == heads
    judged = put_all(store.open(root), config_id(2, 101), {}, [(ID, OperationOutcome.REFUSED)])
    told = store.open(store.take(judged))
    assert ask(told, ID, base, config_id(2, 101)) is OperationOutcome.REFUSED
    assert ask(told, b"j" * 20, base, config_id(2, 101)) is OperationOutcome.UNKNOWN


def test_what_one_does_the_next_one_sees():
    """Two operations of one base conflict on one key, and both succeed on two keys."""
    operations = [wanted(1, puts={b"a": b"1"}), wanted(2, puts={b"b": b"2"}), wanted(3, puts={b"a": b"3"})]
    judgement = judge(MapTree.empty("any"), operations, 1, FUNCTIONS)
    assert outcomes(judgement) == ["DONE", "DONE", "CONFLICT"]
    twice = judge(MapTree.empty("any"), [operations[0], operations[0]], 1, FUNCTIONS)
    assert outcomes(twice) == ["DONE", "DONE"]
    assert twice.changed == judge(MapTree.empty("any"), [operations[0]], 1, FUNCTIONS).changed


def test_what_was_looked_at_is_touched():
    """A refusal due to a newer change is a conflict; one due to the state at the base is a refusal."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 5, {b"k": b"v"}))
    operations = [wanted(1, 4, looks=[b"k"], refuses=True), wanted(2, 5, looks=[b"k"], refuses=True)]
    operations += [wanted(3, 4, {b"other": b"1"}, [b"k"]), wanted(4, 4, {b"other": b"1"})]
    assert outcomes(judge(store.open(root), operations, 6, FUNCTIONS)) == ["CONFLICT", "REFUSED", "CONFLICT", "DONE"]


def test_one_that_finds_itself_done_is_done_on_any_base():
    """The keys that the operation looked at may have changed since."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 5, {b"k": b"v"}))
    assert outcomes(judge(store.open(root), [wanted(1, 4, looks=[b"k"])], 6, FUNCTIONS)) == ["DONE"]


def test_one_that_touches_all_stands_alone():
    """The operation conflicts with any change after its base, also in its own transaction, and vice versa."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 5, {b"k": b"v"}))

    def judged(*operations):
        return outcomes(judge(store.open(root), operations, 6, FUNCTIONS))

    every, other = wanted(1, 5, touches_all=True), wanted(2, 5, {b"other": b"1"})
    assert judged(wanted(3, 4, touches_all=True)) == ["CONFLICT"]
    assert judged(every, other) == ["DONE", "CONFLICT"]
    assert judged(other, every) == ["DONE", "CONFLICT"]
    assert judged(wanted(4, 5, refuses=True), every) == ["REFUSED", "DONE"]


def test_a_meta_is_changed_with_all():
    """A function returns the new meta; too large a meta is refused."""
    functions = {("name", 1): lambda view, argument: Edits(meta=view.meta + argument)}
    operations = [Operation(b"%020d" % at, 0, "name", 1, meta) for at, meta in enumerate((b"m", b"n"))]
    judgement = judge(MapTree.empty("any"), operations, 1, functions)
    store = new_store()
    tree = store.open(store.take(judgement.changed))
    assert (tree.root.meta, tree.root.version, outcomes(judgement)) == (b"m", 1, ["DONE", "CONFLICT"])
    large = judge(tree, [Operation(ID, 1, "name", 1, bytes(4096))], 2, functions)
    assert [(answer.outcome, answer.code) for answer in large.answers] == [(OperationOutcome.REFUSED, TOO_LARGE)]


def test_an_entry_that_is_too_large_is_refused_whole():
    """Nothing of the operation is done; other operations are."""
    puts = {b"a": b"1", b"b": bytes(8193)}
    judgement = judge(MapTree.empty("any"), [wanted(1, puts=puts), wanted(2, puts={b"c": b""})], 1, FUNCTIONS)
    assert [answer.code for answer in judgement.answers] == [TOO_LARGE, ""]
    store = new_store()
    assert [entry.key for entry in store.open(store.take(judgement.changed)).scan()] == [b"c"]


def test_a_transaction_has_at_most_48():
    """More are the caller's error."""
    with pytest.raises(AssertionError):
        judge(MapTree.empty("any"), [wanted(at) for at in range(49)], 1, FUNCTIONS)
