"""The map of a register on one node equals plain dictionaries, through lags, forks, forces and crashes."""

from __future__ import annotations

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register import state
from gossipkv.register.ballot import Ballot
from gossipkv.register.edits import MapValue
from gossipkv.register.state import Base, RegisterMap, read_map
from tests.unit.register.map_world import World


@pytest.fixture
def small(monkeypatch):
    """Reach all bounds within a few transactions."""
    bounds = {"MAX_HISTORY": 6, "MAX_HISTORY_BYTES": 130, "MAX_TAIL_BYTES": 70, "BATCH_BYTES": 30}
    for name, bound in bounds.items():
        monkeypatch.setattr(state, name, bound)


@pytest.mark.parametrize("seed", range(16))
def test_a_map_equals_plain_dictionaries_after_each_step(small, seed):
    World(seed).run()


def undecided_enter(decide):
    return lambda self, value, generation, upto, *shown: decide(self, value, generation, value.sequence, *shown)


def base_falls(decide):
    def fall(self, value, generation, upto, *shown):
        if self.base is not None and 0 < upto < self.base.sequence:
            self._set(self.base._replace(sequence=upto))
        return decide(self, value, generation, upto, *shown)

    return fall


def in_place(replace):
    def write(self, base):
        self._slot = 1 - self._slot
        return replace(self, base)

    return write


def short_tail(next_value):
    def write(self, found, base, edits):
        value = next_value(self, found, base, edits)
        return value._replace(decided=value.sequence - 1, tail=value.tail[-1:])

    return write


PLANTED = [  # With the first seed that finds the defect.
    ("decide", undecided_enter, 0),
    ("decide", base_falls, 0),
    ("replace", in_place, 1),
    ("next_value", short_tail, 0),
    ("holds", lambda _: lambda self, value: True, 0),
    ("highest", lambda _: lambda self, _, value: value, 13),
    ("_after", lambda _: lambda _, base, step: base.after(step.edits)._replace(digest=step.digest), 27),
    ("_decided", lambda _: lambda _, found: found.sequence, 0),
    ("since", lambda since: lambda self, *place: (since(self, *place) or [])[1:], 0),
]


@pytest.mark.parametrize(("method", "plant", "first"), PLANTED)
def test_a_planted_defect_is_found(small, monkeypatch, method, plant, first):
    """The same histories fail if one rule is broken."""
    monkeypatch.setattr(RegisterMap, method, plant(getattr(RegisterMap, method)))
    for seed in range(first, first + 100):
        try:
            World(seed).run()
        except AssertionError:
            return
    pytest.fail("the defect was not found")


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
    assert not lost.follow(1, forced.since(0, 0)[:2])
    assert lost.base is before


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
