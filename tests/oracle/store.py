"""The log-structured store in plain Python: the effect of batches, the synced ones, and the state after a crash.

A `History` outlives a process: batches in the order of their appends, the state after each, and the number of synced
batches. A crash keeps the synced batches and any first few of the rest, each as a whole. A `Store` is opened on a
history. The interface is that of the store; `maintain` has nothing to do here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

VALUE, TOMBSTONE, NEW_SPACE, DROPPED_SPACE = 1, 2, 3, 4
MAX_KEY_BYTES = 65_531
MAX_VALUE_BYTES = 16 << 20

Operation = tuple[int, int, bytes, bytes]  # Kind, space, key, value: as `read_log` returns them.
State = dict[int, dict[bytes, bytes]]  # The contents of each space.


class Refused(Exception):
    """The store took nothing of the batch."""


class BelowFloor(Exception):
    """The log does not reach back that far."""


class Batch:
    """Operations that happen together."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def put(self, space: int, key: bytes, value: bytes) -> None:
        if len(key) > MAX_KEY_BYTES or len(value) > MAX_VALUE_BYTES:
            raise Refused(len(key), len(value))
        self.operations.append((VALUE, space, key, value))

    def delete(self, space: int, key: bytes) -> None:
        if len(key) > MAX_KEY_BYTES:
            raise Refused(len(key))
        self.operations.append((TOMBSTONE, space, key, b""))

    def new_space(self, space: int) -> None:
        self.operations.append((NEW_SPACE, space, b"", b""))

    def drop_space(self, space: int) -> None:
        """End a space and remove its contents."""
        self.operations.append((DROPPED_SPACE, space, b"", b""))


def after(state: State, operations: list[Operation]) -> State:
    """Return the state after a batch; `state` is not changed. Raises Refused: one of its spaces does not exist."""
    made = dict(state)
    fresh: set[int] = set()
    for kind, space, key, value in operations:
        if kind == NEW_SPACE:
            if space in made:
                raise Refused(f"space {space} is there")
            made[space] = {}
            fresh.add(space)
            continue
        if space not in made:
            raise Refused(f"there is no space {space}")
        if kind == DROPPED_SPACE:
            del made[space]
            continue
        if space not in fresh:
            made[space] = dict(made[space])
            fresh.add(space)
        if kind == VALUE:
            made[space][key] = value
        else:
            made[space].pop(key, None)
    return made


class Entry(NamedTuple):
    position: int
    operations: list[Operation]


@dataclass
class History:
    """Every batch that counts, and every state that the batches led to."""

    batches: list[Entry] = field(default_factory=list)
    states: list[State] = field(default_factory=lambda: [{}])  # After none of the batches, after the first, and so on.
    synced: int = 0  # Number of synced batches.
    last_position: int = 0  # The highest position that was ever given, lost batches included.
    next_space: int = 1
    used: set[int] = field(default_factory=set)  # Spaces that a synced batch made; they are never given again.

    def append(self, position: int, operations: list[Operation]) -> None:
        """Add a batch that is not synced yet."""
        self.states.append(after(self.states[-1], operations))
        self.batches.append(Entry(position, operations))
        self.last_position = max(self.last_position, position)

    def sync(self, number: int | None = None) -> None:
        """Sync the first `number` batches (default: all), so that no crash loses them."""
        number = len(self.batches) if number is None else number
        for _, operations in self.batches[self.synced : number]:
            self.used.update(space for kind, space, _, _ in operations if kind == NEW_SPACE)
        self.synced = number

    def crash(self, kept: int) -> None:
        """End the process: so many unsynced batches were found again, and are synced then."""
        number = self.synced + kept
        assert number <= len(self.batches)
        del self.batches[number:], self.states[number + 1 :]
        self.sync()

    def copied(self) -> History:
        """Return an independent copy; shared parts are never changed."""
        return replace(self, batches=list(self.batches), states=list(self.states), used=set(self.used))

    @property
    def shown(self) -> State:
        return self.states[self.synced]


class Store:
    def __init__(self, history: History) -> None:
        self.history = history

    def close(self) -> None:
        self.commit()

    def reserve_space(self) -> int:
        self.history.next_space += 1
        return self.history.next_space - 1

    def append(self, batch: Batch) -> int:
        """Append a batch as a whole, or raise Refused; return its position."""
        for kind, space, _, _ in batch.operations:
            if kind == NEW_SPACE and not 0 < space < self.history.next_space:
                raise Refused(f"space {space} was never given out")
            if kind == NEW_SPACE and space in self.history.used:
                raise Refused(f"space {space} was there before")
        position = self.history.last_position + 1
        self.history.append(position, list(batch.operations))
        return position

    def commit(self) -> None:
        """Sync all appended batches; only then they can be read."""
        self.history.sync()

    def write(self, batch: Batch) -> int:
        position = self.append(batch)
        self.commit()
        return position

    def _held(self, space: int) -> dict[bytes, bytes]:
        if space not in self.history.shown:
            raise Refused(f"there is no space {space}")
        return self.history.shown[space]

    def get(self, space: int, key: bytes) -> bytes | None:
        return self._held(space).get(key)

    def get_many(self, space: int, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(space, key) for key in keys]

    def scan(
        self,
        space: int,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return records from `start` up to before `end`, or backwards, and the bound of the next page."""
        found = [
            (key, value)
            for key, value in sorted(self._held(space).items())
            if (start is None or start <= key) and (end is None or key < end)
        ]
        page = (found[::-1] if reverse else found)[:limit]
        if len(page) == len(found):
            return page, None
        return page, page[-1][0] if reverse else page[-1][0] + b"\0"

    def read_log(self, spaces: set[int], position: int) -> tuple[list[tuple[int, list[Operation]]], int]:
        """Return synced batches above a position, with their operations in the spaces, and the next position."""
        found = [
            (entry.position, [one for one in entry.operations if one[1] in spaces])
            for entry in self.history.batches[: self.history.synced]
            if entry.position > position
        ]
        return [one for one in found if one[1]], max([position, *(at for at, _ in found)])

    def _within(self, space: int, start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        return [one for one in sorted(self._held(space).items()) if start <= one[0] and (end is None or one[0] < end)]

    def size_bytes(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        return sum(len(key) + len(value) for key, value in self._within(space, start, end))

    def rows(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        return len(self._within(space, start, end))

    def middle_key(self, space: int, start: bytes = b"", end: bytes | None = None) -> bytes | None:
        """Return a key with about as many records below as above, and some on both sides."""
        records = self._within(space, start, end)
        return records[len(records) // 2][0] if len(records) > 1 else None

    def maintain(self) -> bool:
        return False

    def mark(self) -> None:
        """Sync all waiting batches, and record the sync."""
        self.commit()
