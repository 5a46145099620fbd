"""The store agrees with the oracle through any sequence of steps that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conformance.store import FIRST, Witness
from tests.oracle.store import DROPPED_SPACE, NEW_SPACE, TOMBSTONE, VALUE
from tests.unit.storage.engine.places import OraclePlace, SimulatedPlace

KEYS = st.one_of(st.sampled_from([b"", b"\0", b"a", b"b", b"\xff\xff"]), st.integers(0, 99).map(b"%d".__mod__))
SIZES = st.sampled_from([0, 1, 8, 100, 700, 2_500])
SEEDS = st.integers(0, 1_000)
SPACES = st.integers(0, 5)  # Indices into the present spaces, modulo their number.
BOUNDS = st.one_of(st.none(), KEYS)


class Machine(RuleBasedStateMachine):
    make = SimulatedPlace

    def __init__(self):
        super().__init__()
        self.witness = None
        self.stamp = 0
        self.cursors = []  # Scans that go on across other steps: space, start, end, reverse.

    @initialize()
    def begin(self):
        self.witness = Witness(self.make())
        assert self.witness.reserve() == FIRST
        self.witness.write((NEW_SPACE, FIRST, b"", b""))

    def spaces(self):
        """Return the spaces that a batch may use now; the first has the markers."""
        return sorted(self.witness.history.states[-1])

    def value(self, size):
        self.stamp += 1
        return (b"%d " % self.stamp * (size // 2))[:size] if size else b""

    @rule(
        changes=st.lists(st.tuples(SPACES, KEYS, st.one_of(st.none(), SIZES)), min_size=1, max_size=8),
        made=st.booleans(),
        dropped=st.one_of(st.none(), st.none(), SPACES),
        waits=st.booleans(),
    )
    def append(self, changes, made, dropped, waits):
        """Append puts and deletes, and perhaps make or drop a space; commit or leave the batch waiting."""
        spaces, operations = self.spaces(), []
        if made and len(spaces) < 5:
            spaces.append(self.witness.reserve())
            operations.append((NEW_SPACE, spaces[-1], b"", b""))
        for at, key, size in changes:
            space = spaces[at % len(spaces)]
            put = (VALUE, space, key, self.value(size or 0))
            operations.append((TOMBSTONE, space, key, b"") if size is None else put)
        if dropped is not None and (gone := spaces[dropped % len(spaces)]) != FIRST:
            operations.append((DROPPED_SPACE, gone, b"", b""))
        self.witness.append(operations)
        if not waits:
            self.witness.commit()

    @rule(number=st.integers(5, 25), size=SIZES)
    def append_many(self, number, size):
        space = self.spaces()[-1]
        for at in range(number):
            self.witness.append([(VALUE, space, b"%d" % (at * 7 % 100), self.value(size))])
        self.witness.commit()

    @rule()
    def commit(self):
        self.witness.commit()

    @rule(number=st.integers(1, 6))
    def maintain(self, number):
        for _ in range(number):
            self.witness.store.maintain()

    @rule()
    def mark(self):
        self.witness.mark()

    @rule(space=SPACES, start=BOUNDS, end=BOUNDS, reverse=st.booleans())
    def begin_scan(self, space, start, end, reverse):
        """Begin a scan whose pages are read one by one, between other steps."""
        spaces = self.spaces()
        self.cursors.append((spaces[space % len(spaces)], start, end, reverse))

    @precondition(lambda self: self.cursors)
    @rule(limit=st.integers(1, 9))
    def turn_page(self, limit):
        """Read a page, which must have the records of this moment."""
        space, start, end, reverse = self.cursors.pop(0)
        if space not in self.witness.history.shown:
            return
        page, cursor = self.witness.store.scan(space, start, end, reverse=reverse, limit=limit)
        held = sorted(self.witness.history.shown[space].items())
        wanted = [(key, value) for key, value in held if (start is None or key >= start) and (end is None or key < end)]
        assert page == (wanted[::-1] if reverse else wanted)[:limit]
        if cursor is not None:
            self.cursors.append((space, start, cursor, True) if reverse else (space, cursor, end, False))

    @rule(seed=SEEDS)
    def kill(self, seed):
        self.witness.crash("kill", seed)

    @rule(seed=SEEDS)
    def lose_power(self, seed):
        """Lose the power; unsynced batches may be gone."""
        self.witness.crash("lose_power", seed)

    @rule()
    def reopen(self):
        self.witness.close()
        self.witness.open()

    @rule()
    def look(self):
        self.witness.look()

    @invariant()
    def shows_the_marker(self):
        """Check that exactly the synced records are shown."""
        if self.witness is not None:
            assert self.witness.store.get(FIRST, b"#") == self.witness.history.shown[FIRST][b"#"]

    def teardown(self):
        """Check all records once more, after a last loss of power."""
        if self.witness is not None:
            self.witness.crash("lose_power", 0)
            self.witness.close()


@pytest.mark.parametrize("place", [OraclePlace, SimulatedPlace])
def test_a_store_through_anything(place):
    machine = type("StoreMachine", (Machine,), {"make": place})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=40))
