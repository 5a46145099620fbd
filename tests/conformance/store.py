"""What every store does, whatever it is made of: `check_store(make)` runs on the store and on its oracle.

`make()` gives a `Place`: a store that is not there yet, which is opened, killed and loses power as often as one likes.
The witness of all of it is the oracle's `History`: after whatever happened a store shows what some number of whole
batches makes, the first of those that were appended; none that was synced is missing, and so none that was shown.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.oracle.store import DROPPED_SPACE, MAX_KEY_BYTES, NEW_SPACE, TOMBSTONE, VALUE, Entry, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.oracle.store import Operation

MARKER = b"#"  # In the first space, in every batch: how many batches there are.
FIRST = 1  # The first space.
PAGE = 7  # Records of a page, where it is scanned in pages.


class Place(Protocol):
    """Where a store is, or will be."""

    refusals: tuple[type[Exception], ...]  # What it raises when it takes nothing of a batch.
    below_floor: type[Exception]  # What it raises when its log does not reach back.
    overloaded: type[Exception]  # What it raises when it has no room, until it has done what there is to do.
    damage: type[Exception]  # What it raises when somebody has harmed its files.

    def batch(self):
        """Return an empty batch."""

    def open(self):
        """Open the store; the first time it is made."""

    def kill(self, seed: int) -> None:
        """End the process that has it open."""

    def lose_power(self, seed: int) -> None:
        """End the machine."""


class Witness:
    """One store, and what it must be."""

    def __init__(self, place: Place, *, open_now: bool = True) -> None:
        self.place = place
        self.history = History()
        self.store = None
        self.is_harmed = False  # Whether the store may say that it is damaged.
        self.seen: set[int] = set()  # Every position that was ever given.
        if open_now:
            self.open()

    def open(self) -> int:
        """Open it, and look at all that it shows; return how many batches are there that were not synced."""
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
        """Close it as one should; nothing of it is missing."""
        self.store.close()
        self.history.sync()
        self.store = None

    def crash(self, how: str, seed: int) -> None:
        """Let it be killed, or the power go; look again."""
        getattr(self.place, how)(seed)
        self.open()

    def append(self, operations: Iterable[Operation]) -> None:
        """Append a batch, with the marker in it."""
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
        """Sync, and have the store say so for those who come after it."""
        self.store.mark()
        self.history.sync()

    def write(self, *operations: Operation) -> None:
        self.append(operations)
        self.commit()

    def reserve(self) -> int:
        """Get a number for a space, which nobody had."""
        space = self.store.reserve_space()
        assert space not in self.history.used, "a space is given out again"
        self.history.next_space = max(self.history.next_space, space + 1)
        return space

    def recovered(self, store: object) -> int:
        """Look at what a store shows after it was opened: return how many un-synced batches were kept."""
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
            return 0  # There is not even the first space.

    def look(self, store: object | None = None) -> None:
        """Compare all that may be read, in both directions, and the log."""
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
        """Nothing of the log is let go of for damage in a store that nobody has harmed."""
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
        """Compare the batches that the log still has, from the first position that it answers."""
        shown = self.history.batches[: self.history.synced]
        least = next((at for at in range(len(shown) + 1) if self._log_from(store, at) is not None), None)
        if not shown and least is None:
            return  # It begins with what is written next.
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
    """Return whether anything can be read in a space."""
    try:
        return bool(scanned(store, space)) or store.get(space, MARKER) is not None
    except refusals:
        return False


def whole_log(store: object, spaces: set[int], position: int) -> list[Entry]:
    """Return what all batches above a position did to the spaces, asked for in as many answers as it takes."""
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
    """Return all records of a space, page by page."""
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
    """Return the witness of a store with the first space, and `others` more."""
    witness = Witness(place)
    assert witness.reserve() == FIRST
    witness.write((NEW_SPACE, FIRST, b"", b""))
    for space in others:
        assert witness.reserve() == space
        witness.write((NEW_SPACE, space, b"", b""))
    return witness


def rest(witness: Witness) -> None:
    """Let the store do all that it has to do."""
    for _ in range(1_000):
        if not witness.store.maintain():
            return
    pytest.fail("it never comes to rest")


def check_that_what_is_not_synced_is_not_read(place: Place) -> None:
    """Neither by key nor by range nor in the log, until it is synced."""
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
    """Within a batch, across batches, and across what is merged; the empty key is a key."""
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
    """A space is there from the batch that makes it to the batch that drops it, with all it has, and never again."""
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
    """Not even those of the latest spaces, when nothing is left of them: neither in the log nor in a run."""
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
    """Demand that the store takes nothing of them."""
    for operations in batches:
        with pytest.raises(witness.place.refusals):
            witness.store.append(filled(witness.place.batch(), operations))
    witness.look()


def check_scans(place: Place) -> None:
    """Every bound in both directions, with a limit, over a memtable and runs, and not a record of another space."""
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
    """Compare each range, of the space in the middle."""
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
    """Whole batches, of the spaces that are asked for, behind the position that is asked for."""
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
    """A size grows with what is there; a middle key has about as much on both sides; of parts of a space, too."""
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
    """What is as large as it may be is taken, what is larger is refused, and nothing of its batch is there."""
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
    """What was synced before it was closed, and what was not."""
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
    """Batches, maintenance, kills and losses of power, as they are drawn."""
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
    """Return a batch that the store must take: puts and deletes in a few keys of any space, now and then a space."""
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
