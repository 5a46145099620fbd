"""The map of a register on one node, where a force has left another line of transactions behind."""

from __future__ import annotations

from gossipkv.register.ballot import Ballot
from gossipkv.register.edits import MapValue, Transaction
from gossipkv.register.state import Base, RegisterMap, read_map

LOST = Ballot(0, 0, 3, 1)


def transactions(*keys: bytes) -> list[Transaction]:
    """Return a line of transactions, each of which writes one key."""
    base, line = Base(), []
    for key in keys:
        base = base.after([(key, b"record")])
        line.append(Transaction(base.sequence, ((key, b"record"),), base.digest))
    return line


def value_of(line: list[Transaction], decided: int = 0) -> MapValue:
    return MapValue(line[-1].sequence, line[-1].digest, decided, tuple(line[decided:]))


def map_of(line: list[Transaction], generation: int = 0) -> RegisterMap:
    register_map = RegisterMap()
    assert register_map.follow(generation, line)
    return register_map


def test_transactions_of_a_newer_generation_do_not_rename_a_lost_base():
    """News may be older than the base when they arrive, and of another line."""
    lost, kept = transactions(b"a", b"b", b"c"), transactions(b"a", b"b", b"d")
    for news in (kept, kept[:2]):
        register_map = map_of(lost)
        assert not register_map.follow(1, news)
        assert register_map.base.place == (0, 3)


def test_transactions_that_a_base_has_are_confirmed_by_a_newer_generation():
    line = transactions(b"a", b"b")
    register_map = map_of(line)
    assert register_map.follow(1, line)
    assert register_map.base.place == (1, 2)
    assert register_map.follow(1, line[:1]), "older news of the same generation change nothing"
    assert register_map.base.place == (1, 2)


def test_a_decision_of_a_newer_generation_does_not_rename_a_lost_base():
    lost, kept = transactions(b"a", b"b"), transactions(b"a", b"c", b"d")
    register_map = map_of(lost)
    assert not register_map.decide(value_of(kept), 1, 2)
    assert register_map.base.place == (0, 2)


def test_a_read_of_the_lost_majority_does_not_move_a_base_below_an_accepted_force():
    """Nobody could make the forced map again, if no other node had stayed there."""
    line = transactions(b"a", b"b", b"c")
    register_map = map_of(line[:1])
    register_map.decide(value_of(line[:1]), 1, 0)
    register_map.decide(value_of(line, 1), 0, 3)
    assert register_map.base.place == (0, 1)
    assert register_map.holds(value_of(line[:1]))


def test_a_force_goes_on_with_a_base_that_the_accepted_value_does_not_continue():
    """A survivor has accepted more transactions than were decided, of another line."""
    decided, other = transactions(b"a", b"b"), transactions(b"a", b"c", b"d")
    for accepted in (value_of(other, 1), value_of(other), value_of(other[:2], 1), value_of(other[:1])):
        found = map_of(decided).highest(LOST, accepted)
        assert (found.sequence, found.digest, found.decided) == (2, decided[-1].digest, 2), accepted


def test_a_force_goes_on_with_an_accepted_value_that_continues_the_base():
    line = transactions(b"a", b"b", b"c")
    assert map_of(line[:2]).highest(LOST, value_of(line, 1)) == value_of(line, 1)
    assert map_of(line[:1]).highest(LOST, value_of(line, 2)) == value_of(line, 2), "the base lags"


def test_a_force_goes_on_with_the_end_of_a_map_that_is_not_here():
    ended = value_of(transactions(b"a", b"b", b"c"), 1)._replace(ended=True)
    assert map_of(transactions(b"a")).highest(LOST, ended) == ended


def test_a_force_goes_on_with_the_newer_generation():
    lost, kept = transactions(b"a", b"b", b"c"), transactions(b"a", b"d")
    assert map_of(lost).highest(LOST._replace(generation=1, force=1), value_of(kept)) == value_of(kept)
    assert map_of(kept, 1).highest(LOST, value_of(lost)).digest == kept[-1].digest


def test_a_map_that_was_replaced_twice_has_no_entry_of_the_first_base():
    """A deletion that was not written yet is written with the replacement."""
    first = map_of(transactions(b"a", b"b"))
    disk = first.records()
    deleted = first.base.after([(b"a", None)])
    assert first.follow(0, [Transaction(3, ((b"a", None),), deleted.digest)])
    for _ in range(2):
        written, gone = first.replace(first.base)
        for batch in (*written, first.records(), *gone):
            disk |= batch
    kept = sorted((key, record) for key, record in disk.items() if record is not None)
    read, strange = read_map(kept)
    assert read.check()
    assert not strange
