"""The map of a register on one node; `tests/simulation/test_edits.py` tries it under every order of events."""

from __future__ import annotations

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register import state
from gossipkv.register.ballot import Ballot
from gossipkv.register.edits import MapValue
from gossipkv.register.state import Base, RegisterMap, read_map


def decided(map_, *transactions):
    """Decide transactions, each in a value of its own; return the last value."""
    value = MapValue() if map_.base is None else MapValue(map_.base.sequence, map_.base.digest, map_.base.sequence)
    for edits in transactions:
        value = map_.next_value(value, map_.state_of(value), edits)
        assert map_.decide(value, 0, value.sequence)
    return value


def stored(*batches):
    disk = {key: record for batch in batches for key, record in batch.items()}
    return {key: record for key, record in disk.items() if record is not None}


A1, A2, B1, NO_A = (b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a", None)


def test_a_replacement_deletes_also_what_was_deleted_and_not_written():
    """Otherwise the record would belong to the next base in the same slot."""
    map_, other = RegisterMap(), RegisterMap()
    decided(map_, [A1, B1])
    batches = [map_.records()]
    decided(map_, [NO_A])
    decided(other, [B1], [B1], [B1])
    for _ in range(2):
        written, gone = map_.replace(other.base)
        batches += [*written, map_.records(), *gone]
        found, strange = read_map(sorted(stored(*batches).items()))
        assert found.check()
        assert ([*found.base.entries.scan()], strange) == ([B1], [])


def test_the_history_has_as_many_transactions_as_fit(monkeypatch):
    monkeypatch.setattr(state, "MAX_HISTORY", 3)
    monkeypatch.setattr(state, "MAX_HISTORY_BYTES", 8)
    map_ = RegisterMap()
    decided(map_, *[[A1]] * 5)
    assert [map_.since(0, sequence) is not None for sequence in range(6)] == [False, False, True, True, True, True]
    decided(map_, [(b"a", b"7 bytes")])
    assert [step.sequence for step in map_.since(0, 5)] == [6]
    assert map_.since(0, 4) is None


@pytest.mark.parametrize("but_end", [True, False])
def test_a_forgotten_map_leaves_no_record_but_its_end(but_end):
    map_ = RegisterMap()
    value = decided(map_, [A1, B1])
    batches = [map_.records()]
    decided(map_, [NO_A])
    assert map_.decide(value._replace(sequence=7, ended=b"id"), 0, 7)
    assert map_.since(0, 1) is None  # The transactions up to the end are not here.
    assert map_.holds(MapValue(9, ended=b"id"))
    disk = stored(*batches, *map_.gone(but_end=but_end))
    found, strange = read_map(sorted(disk.items()))
    assert (len(disk), strange) == (int(but_end), [])
    assert (found.base is not None) == but_end
    assert found.check()
    assert not but_end or (found.base.place, found.base.ended) == ((0, 7), True)


def test_records_without_a_header_are_named():
    """A crash in the first replacement leaves them."""
    found, strange = read_map([(b"\1", b""), (b"\1a", b"1")])
    assert (found.base, strange) == (None, [b"\1", b"\1a"])


def test_a_force_goes_on_with_a_decided_map_not_with_a_longer_value_beside_it():
    """A value that was never decided may have more transactions than the decided map that replaced it."""
    survivor, other = RegisterMap(), RegisterMap()
    found = MapValue()
    for edits in ([A1], [B1]):  # Only the survivor accepts these two.
        found = survivor.next_value(found, survivor.state_of(found), edits)
    assert survivor.holds(found)
    decided(other, [A2])
    assert survivor.follow(0, other.since(0, 0))
    goes_on = survivor.highest(Ballot(0, 0, 2, 1), found)
    assert (goes_on.sequence, goes_on.digest) == (1, other.base.digest)
    assert survivor.highest(Ballot(1, 7, 2, 1), found) == found  # A force has gone on with that value.


def test_a_base_of_a_lost_generation_does_not_enter_the_next():
    """Its sequence has another transaction there, which alone tells the difference."""
    lost, forced = RegisterMap(), RegisterMap()
    decided(lost, [A1], [A1])
    value = decided(forced, [A1], [A2], [B1])
    before = lost.base
    for upto in (2, 3):
        assert not lost.decide(value, 1, upto)
        assert not lost.decide(value._replace(decided=2, tail=value.tail[-1:]), 1, upto)
    for start in (0, 1, 2):
        assert not lost.follow(1, forced.since(0, start))
    for count in (1, 2):  # News of before the force, or of after it.
        assert not lost.follow(1, forced.since(0, 0)[:count])
    assert lost.base is before


def test_a_read_of_the_lost_majority_does_not_move_a_base_below_an_accepted_force():
    """Nobody could make the forced map again, if no other node had stayed there."""
    map_, lost = RegisterMap(), RegisterMap()
    forced = decided(map_, [A1])
    map_.decide(forced, 1, 0)
    map_.decide(decided(lost, [A1], [A2], [B1])._replace(decided=1, tail=tuple(lost.since(0, 1))), 0, 3)
    assert map_.base.place == (0, 1)
    assert map_.holds(forced)


def test_a_force_goes_on_with_the_end_of_a_map_that_is_not_here():
    map_ = RegisterMap()
    decided(map_, [A1])
    ended = MapValue(3, b"d" * 32, 1, ended=b"id")
    assert map_.highest(Ballot(0, 0, 3, 1), ended) == ended


def test_edits_are_compared_with_the_digest_though_the_map_is_known():
    """A node must be able to make the map again from its base and the accepted value."""
    map_, other = RegisterMap(), RegisterMap()
    value = other.next_value(MapValue(), Base(), [A1])
    assert map_.holds(value)
    assert not map_.holds(value._replace(tail=(value.tail[0]._replace(edits=(A2,)),)))
    decided(map_, [A1])
    value = decided(other, [A1], [], [])  # Now three maps have one digest.
    assert map_.holds(value)
    assert not map_.holds(value._replace(tail=value.tail[-1:]))


def test_a_flipped_bit_is_found_and_a_damaged_base_is_the_base_of_nothing():
    map_ = RegisterMap()
    value = decided(map_, [A1, B1])
    disk = map_.records()
    for key in disk.keys() - {b""}:
        for bit in range(8 * len(disk[key])):
            flipped = (int.from_bytes(disk[key], "big") ^ 1 << bit).to_bytes(len(disk[key]), "big")
            assert not read_map(sorted({**disk, key: flipped}.items()))[0].check()
        assert not read_map(sorted((disk.items() - {(key, disk[key])}) | {(key[:1] + b"c", disk[key])}))[0].check()
    found, _ = read_map(sorted(disk.items()))
    assert found.check()
    assert found.holds(value)
    found.is_damaged = True
    assert not found.holds(value)
    assert found.since(0, 1) is None
    assert not found.decide(value, 0, 1)
    assert found.highest(Ballot(0, 0, 1, 1), MapValue()) == MapValue()
    found.replace(map_.base)
    assert found.holds(value)


@pytest.mark.parametrize("header", [b"", b"\xc1", b"\x93\1\2\3", b"\1" * 9])
def test_a_header_of_another_form_is_refused(header):
    with pytest.raises(ProtocolError, match="header of a map"):
        read_map([(b"", header)])
