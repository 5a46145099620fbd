"""The conformance suite of stores: `check_store(make)` runs on the store and on its oracle.

`make()` returns a `Place` for a new store, which may be opened, killed and lose power any number of times. The oracle's
`History` is the witness: after any event a store shows the result of some number of whole batches, the first of those
that were appended. No synced batch is missing, and so none that was ever shown.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.oracle.store import DROPPED_SPACE, MAX_KEY_BYTES, NEW_SPACE, TOMBSTONE, VALUE, Entry, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.oracle.store import Operation

MARKER = b"#"  # Every batch writes the number of batches to this key of the first space.
FIRST = 1  # The first space.
PAGE = 7  # Records of a page, for scans in pages.


class Place(Protocol):
    """The place of an existing or future store."""

    refusals: tuple[type[Exception], ...]  # Raised when a batch is refused as a whole.
    below_floor: type[Exception]  # Raised when the log does not reach back so far.
    overloaded: type[Exception]  # Raised when the store needs maintenance before more writes.
    damage: type[Exception]  # Raised when the files were damaged.

    def batch(self):
        """Return an empty batch."""

    def open(self):
        """Open the store, which is made the first time."""

    def kill(self, seed: int) -> None:
        """End the process that has the store open."""

    def lose_power(self, seed: int) -> None:
        """End the machine."""


class Witness:
    """A store and its expected content."""

    def __init__(self, place: Place, *, open_now: bool = True) -> None:
        self.place = place
        self.history = History()
        self.store = None
        self.is_harmed = False  # True if the store may report damage.
        self.seen: set[int] = set()  # All positions that were ever given.
        if open_now:
            self.open()

    def open(self) -> int:
        """Open the store and check all its content; return how many unsynced batches it has kept."""
        try:
            self.store = self.place.open()
        except self.place.damage as error:
            if self.is_harmed:
                raise
            told = str(error)
        else:
            self._look_for_lost_log(self.store)
            return self.recovered(self.store)
        raise AssertionError(f"what a crash has left is called damaged: {told}")

    def close(self) -> None:
        """Close the store cleanly, so that nothing may be lost."""
        self.store.close()
        self.history.sync()
        self.store = None

    def crash(self, how: str, seed: int) -> None:
        """Kill the store or cut its power; open and check it again."""
        getattr(self.place, how)(seed)
        self.open()

    def append(self, operations: Iterable[Operation]) -> None:
        """Append a batch that includes the marker."""
        operations = [*operations, (VALUE, FIRST, MARKER, b"%d" % (len(self.history.batches) + 1))]
        batch = filled(self.place.batch(), operations)
        try:
            position = self.store.append(batch)
        except self.place.overloaded:
            self.commit()
            self.store.maintain()
            position = self.store.append(batch)
        assert position not in self.seen, "a position was given twice"
        assert position > self.history.last_position
        self.seen.add(position)
        self.history.append(position, operations)

    def commit(self) -> None:
        self.store.commit()
        self.history.sync()
        assert self._marker(self.store) == self.history.synced, "what is acknowledged is not shown"

    def mark(self) -> None:
        """Sync, and mark the synced position for later openings."""
        self.store.mark()
        self.history.sync()

    def write(self, *operations: Operation) -> None:
        self.append(operations)
        self.commit()

    def reserve(self) -> int:
        """Reserve a number for a space, which must be new."""
        space = self.store.reserve_space()
        assert space not in self.history.used, "a space is given out again"
        self.history.next_space = max(self.history.next_space, space + 1)
        return space

    def recovered(self, store: object) -> int:
        """Check the content of a reopened store; return how many unsynced batches it has kept."""
        number = self._marker(store)
        assert number >= self.history.synced, "a synced batch is missing"
        assert number <= len(self.history.batches), "a batch is there that nobody appended"
        kept = number - self.history.synced
        self.history.crash(kept)
        self.look(store)
        return kept

    def _marker(self, store: object) -> int:
        try:
            return int(store.get(FIRST, MARKER) or b"0")
        except self.place.refusals:
            return 0  # The first space does not exist yet.

    def look(self, store: object | None = None) -> None:
        """Compare all readable content, in both directions, and the log."""
        try:
            self._look(store or self.store)
        except self.place.damage as error:
            if self.is_harmed:
                raise
            told = str(error)
        else:
            self._look_for_lost_log(store or self.store)
            return
        raise AssertionError(f"a store that nobody has harmed is called damaged: {told}")

    def _look_for_lost_log(self, store: object) -> None:
        """Check that an undamaged store has dropped no log as damaged."""
        assert self.is_harmed or getattr(store, "log_damage", None) is None, store.log_damage

    def _look(self, store: object) -> None:
        shown = self.history.shown
        for space, held in shown.items():
            records = sorted(held.items())
            assert scanned(store, space) == records
            assert scanned(store, space, reverse=True) == records[::-1]
            keys = [key for key, _ in records[:: max(1, len(records) // 8)]]
            assert store.get_many(space, [*keys, b"nobody"]) == [*(held[key] for key in keys), None]
        for space in self.history.used - shown.keys():
            assert not is_there(store, space, self.place.refusals), f"the dropped space {space} is read"
        self.look_at_log(store)

    def look_at_log(self, store: object) -> None:
        """Compare the batches that the log still has, from the first readable position."""
        shown = self.history.batches[: self.history.synced]
        least = next((at for at in range(len(shown) + 1) if self._log_from(store, at) is not None), None)
        if not shown and least is None:
            return  # The log begins with the next write.
        assert least is not None, "not even what comes next can be read"
        for at in {least, (least + len(shown)) // 2, len(shown)}:
            assert self._log_from(store, at) == shown[at:]

    def _log_from(self, store: object, number: int) -> list[Entry] | None:
        position = self.history.batches[number - 1].position if number else 0
        try:
            return whole_log(store, set(range(self.history.next_space)), position)
        except self.place.below_floor:
            return None


def is_there(store: object, space: int, refusals: tuple[type[Exception], ...]) -> bool:
    """Return True if any record of a space can be read."""
    try:
        return bool(scanned(store, space)) or store.get(space, MARKER) is not None
    except refusals:
        return False


def whole_log(store: object, spaces: set[int], position: int) -> list[Entry]:
    """Return the operations of all batches above a position on the spaces, over as many answers as needed."""
    found: list[Entry] = []
    while True:
        answer, behind = store.read_log(spaces, position)
        found += [Entry(at, [tuple(operation) for operation in operations]) for at, operations in answer]
        assert [entry.position for entry in found] == sorted({entry.position for entry in found})
        assert behind >= max([position, *(at for at, _ in answer)])
        if behind == position:
            return found
        position = behind


def filled(batch: object, operations: Iterable[Operation]) -> object:
    for kind, space, key, value in operations:
        if kind == VALUE:
            batch.put(space, key, value)
        elif kind == TOMBSTONE:
            batch.delete(space, key)
        elif kind == NEW_SPACE:
            batch.new_space(space)
        else:
            assert kind == DROPPED_SPACE
            batch.drop_space(space)
    return batch


def scanned(store: object, space: int, *, reverse: bool = False, limit: int = PAGE) -> list[tuple[bytes, bytes]]:
    found, bounds = [], (None, None)
    while True:
        page, cursor = store.scan(space, *bounds, reverse=reverse, limit=limit)
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found
        assert page, "a page that is empty leads nowhere"
        bounds = (None, cursor) if reverse else (cursor, None)


def check_store(make: Callable[[], Place]) -> None:
    for check in CHECKS:
        check(make())


def begun(place: Place, *others: int) -> Witness:
    """Return the witness of a store with the first space, and the spaces `others`."""
    witness = Witness(place)
    assert witness.reserve() == FIRST
    witness.write((NEW_SPACE, FIRST, b"", b""))
    for space in others:
        assert witness.reserve() == space
        witness.write((NEW_SPACE, space, b"", b""))
    return witness


def rest(witness: Witness) -> None:
    for _ in range(1_000):
        if not witness.store.maintain():
            return
    pytest.fail("it never comes to rest")


def check_that_what_is_not_synced_is_not_read(place: Place) -> None:
    """An unsynced batch is not visible by key, by range or in the log."""
    witness = begun(place)
    witness.append([(VALUE, FIRST, b"a", b"1")])
    assert witness.store.get(FIRST, b"a") is None
    witness.look()
    witness.append([(VALUE, FIRST, b"a", b"2"), (VALUE, FIRST, b"b", b"")])
    witness.look()
    witness.commit()
    assert witness.store.get(FIRST, b"a") == b"2"
    assert witness.store.get(FIRST, b"b") == b""
    witness.look()
    witness.close()


def check_that_the_last_of_a_key_counts(place: Place) -> None:
    """The last write of a key counts within a batch, across batches and across merges; the empty key is a key."""
    witness = begun(place)
    witness.write(*((VALUE, FIRST, b"k", b"%d" % number) for number in range(5)))
    witness.write((VALUE, FIRST, b"k", b"x"), (TOMBSTONE, FIRST, b"k", b""), (VALUE, FIRST, b"", b"empty"))
    assert witness.store.get_many(FIRST, [b"k", b""]) == [None, b"empty"]
    rest(witness)
    witness.write((TOMBSTONE, FIRST, b"", b""), (TOMBSTONE, FIRST, b"never", b""), (VALUE, FIRST, b"k", b"again"))
    rest(witness)
    witness.look()
    witness.close()


def check_spaces(place: Place) -> None:
    """A space exists, with all its records, exactly from the batch that makes it to the batch that drops it."""
    witness = begun(place)
    space = witness.reserve()
    refuse(witness, [(VALUE, space, b"a", b"1")])
    witness.write((NEW_SPACE, space, b"", b""), (VALUE, space, b"a", b"1"), (VALUE, FIRST, b"a", b"2"))
    refuse(witness, [(NEW_SPACE, space, b"", b"")])
    rest(witness)
    witness.look()
    witness.append([(DROPPED_SPACE, space, b"", b"")])
    assert witness.store.get(space, b"a") == b"1", "a drop that is not synced is no drop"
    witness.commit()
    refuse(witness, [(VALUE, space, b"a", b"3")], [(NEW_SPACE, space, b"", b"")], [(DROPPED_SPACE, space, b"", b"")])
    witness.look()
    for how in ("kill", "lose_power"):
        witness.crash(how, 1)
        refuse(witness, [(VALUE, space, b"a", b"3")], [(NEW_SPACE, space, b"", b"")])
        other = witness.reserve()
        assert other > space
        witness.write((NEW_SPACE, other, b"", b""), (VALUE, other, b"a", b"4"))
        rest(witness)
        witness.look()
    witness.close()


def check_that_numbers_are_given_once(place: Place) -> None:
    """The number of a dropped space is not reused, even if neither the log nor a run mentions the space."""
    witness, given = begun(place), set()
    for _ in range(3):
        space = witness.reserve()
        assert space not in given, "a space is given out again"
        given.add(space)
        witness.write((NEW_SPACE, space, b"", b""), (VALUE, space, b"a", bytes(900)))
        witness.write((DROPPED_SPACE, space, b"", b""))
        for number in range(40):
            witness.write((VALUE, FIRST, b"%d" % number, bytes(2_000)))
            rest(witness)
        witness.close()
        witness.open()
    witness.close()


def refuse(witness: Witness, *batches: Iterable[Operation]) -> None:
    """Check that the store refuses each batch as a whole."""
    for operations in batches:
        with pytest.raises(witness.place.refusals):
            witness.store.append(filled(witness.place.batch(), operations))
    witness.look()


def check_scans(place: Place) -> None:
    """Every bound in both directions, with a limit, over a memtable and runs, returns records of its space alone."""
    witness = begun(place, 2, 3)
    keys = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff"]
    for turn in range(3):
        for space in (1, 2, 3):
            witness.write(*((VALUE, space, key, b"%d %d" % (space, turn)) for key in keys[turn::2]))
        look_at_ranges(witness, keys)
        rest(witness)
        look_at_ranges(witness, keys)
    witness.close()


def look_at_ranges(witness: Witness, keys: list[bytes]) -> None:
    """Compare each range of the middle space."""
    held = sorted(witness.history.shown[2].items())
    for start in (None, *keys):
        for end in (None, *keys):
            found = [
                (key, value) for key, value in held if (start is None or start <= key) and (end is None or key < end)
            ]
            for limit in (1, 3, 100):
                for reverse, wanted in ((False, found), (True, found[::-1])):
                    page, cursor = witness.store.scan(2, start, end, reverse=reverse, limit=limit)
                    assert page == wanted[:limit]
                    assert len(page) == len(wanted) or cursor is not None


def check_the_log(place: Place) -> None:
    """The log gives whole batches, of the requested spaces, behind the requested position."""
    witness = begun(place, 2, 3)
    witness.write((VALUE, 2, b"a", b"1"))
    witness.write((VALUE, 3, b"a", b"1"), (VALUE, 2, b"b", b"1"))
    witness.write((VALUE, 3, b"b", b"1"))
    witness.append([(VALUE, 2, b"c", b"1")])
    entries = witness.history.batches[: witness.history.synced]
    for wanted in ({2}, {3}, {2, 3}):
        found = [(at, [one for one in operations if one[1] in wanted]) for at, operations in entries]
        assert whole_log(witness.store, wanted, 0) == [one for one in found if one[1]]
    assert whole_log(witness.store, {1, 2, 3}, entries[-1].position) == []
    witness.close()


def check_estimates(place: Place) -> None:
    """The size grows with the content, and a middle key halves a space or a part of it."""
    witness = begun(place, 2)
    assert witness.store.middle_key(2) is None
    empty = witness.store.size_bytes(2)
    for turn in range(8):
        witness.write(*((VALUE, 2, b"%03d" % key, bytes(100)) for key in range(turn, 128, 8)))
    sizes = []
    for _ in range(2):
        sizes.append(witness.store.size_bytes(2))
        assert b"020" < witness.store.middle_key(2) < b"108"
        parts = [
            witness.store.size_bytes(2, start, end) for start, end in ((b"", b"032"), (b"032", b"096"), (b"096", None))
        ]
        assert sum(parts) == sizes[-1]
        assert all(sizes[-1] / 8 < part < sizes[-1] * 3 / 4 for part in parts), parts
        assert b"040" < witness.store.middle_key(2, b"032", b"096") < b"088"
        assert witness.store.middle_key(2, b"032", b"033") is None
        assert witness.store.rows(2, b"032", b"096") in range(64, 73)
        assert witness.store.rows(2, b"128") == witness.store.size_bytes(2, b"128") == 0
        rest(witness)
    assert all(12_800 / 2 < size < 12_800 * 4 for size in sizes), sizes
    assert empty < min(sizes) / 4
    with pytest.raises(place.refusals):
        witness.store.rows(3)
    witness.close()


def check_limits(place: Place) -> None:
    """A key or value of maximum size is accepted; a larger one is refused with its whole batch."""
    witness = begun(place)
    witness.write((VALUE, FIRST, bytes(MAX_KEY_BYTES - 60_000), b""))
    with pytest.raises(witness.place.refusals):
        witness.place.batch().put(FIRST, bytes(MAX_KEY_BYTES + 1), b"")
    with pytest.raises(witness.place.refusals):
        witness.place.batch().delete(FIRST, bytes(MAX_KEY_BYTES + 1))
    with pytest.raises(witness.place.refusals):
        witness.place.batch().put(FIRST, b"", bytes((16 << 20) + 1))
    witness.place.batch().put(FIRST, bytes(MAX_KEY_BYTES), b"")
    witness.look()
    witness.close()


def check_that_a_closed_store_is_whole(place: Place) -> None:
    """Closing keeps all batches, synced or not."""
    witness = begun(place)
    for number in range(40):
        witness.append([(VALUE, FIRST, b"%d" % (number % 9), bytes(number * 20))])
        if number % 3:
            witness.commit()
        if number % 10 == 9:
            witness.close()
            witness.open()
            assert witness.history.synced == number + 2, "what was closed is not synced"
            rest(witness)
            witness.look()
    witness.close()


def check_through_anything(place: Place) -> None:
    """The store survives random batches, maintenance, kills and losses of power."""
    chance = random.Random(5)
    witness = begun(place)
    for number in range(200):
        step = chance.random()
        if step < 0.8:
            witness.append(drawn(witness, chance))
        elif step < 0.9:
            witness.store.maintain()
        elif step < 0.93:
            witness.mark()
        elif step < 0.97:
            witness.crash(chance.choice(("kill", "lose_power")), number)
        else:
            witness.look()
        if chance.random() < 0.4:
            witness.commit()
    witness.commit()
    rest(witness)
    witness.look()
    witness.close()


def drawn(witness: Witness, chance: random.Random, most_bytes: int = 1_500) -> list[Operation]:
    """Return a valid batch: puts and deletes of a few keys in any space, sometimes a new or dropped space."""
    spaces = [space for space in witness.history.states[-1] if space != FIRST]
    operations: list[Operation] = []
    if chance.random() < 0.1 or not spaces:
        space = witness.reserve()
        operations.append((NEW_SPACE, space, b"", b""))
        spaces.append(space)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        key = b"%x" % chance.randrange(64)
        if chance.random() < 0.75:
            size = chance.choice((0, 10, 50, most_bytes // 5, most_bytes))
            operations.append((VALUE, chance.choice(spaces), key, chance.randbytes(size // 20 + 1) * 20))
        else:
            operations.append((TOMBSTONE, chance.choice(spaces), key, b""))
    if chance.random() < 0.06:
        gone = chance.choice(spaces)
        operations.append((DROPPED_SPACE, gone, b"", b""))
    return operations


CHECKS = (
    check_that_what_is_not_synced_is_not_read,
    check_that_the_last_of_a_key_counts,
    check_spaces,
    check_that_numbers_are_given_once,
    check_scans,
    check_the_log,
    check_estimates,
    check_limits,
    check_that_a_closed_store_is_whole,
    check_through_anything,
)
