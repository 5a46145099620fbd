"""A simulated disk that can be copied before, within and after each change.

A copy is the whole machine at that moment: it can be killed (written bytes stay) or lose its power (unsynced bytes may
be lost), and the store is opened on the copy while the original goes on. So one run of a script shows the result of a
crash at each of its moments, for the cost of a recovery each.
"""

from __future__ import annotations

import copy
import os
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.store import FIRST, Witness, drawn
from tests.oracle.store import NEW_SPACE, VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.world.simulated_files import SimulatedFiles

    Fork = Callable[[], SimulatedFiles]

BEFORE, WITHIN, AFTER = "before", "within", "after"


class Moment(NamedTuple):
    """A change: the operation, the role of its path, and how far the operation is done."""

    kind: str
    role: str  # The path below the store, without its numbers.
    when: str


class Watched:
    """Wraps `inner` and calls `visit(moment, fork)` for every change; `fork()` copies the disk at that moment."""

    def __init__(self, inner: SimulatedFiles, visit: Callable[[Moment, Fork], None]) -> None:
        self.inner = inner
        self.trace: list[tuple[str, str]] = []
        self._visit = visit
        self._names: dict[int, str] = {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def _change(self, kind, path, operation, half=None):
        role = role_of(path)
        self.trace.append((kind, role))
        self._visit(Moment(kind, role, BEFORE), lambda: copy.deepcopy(self.inner))
        if half is not None:
            self._visit(Moment(kind, role, WITHIN), lambda: half_done(self.inner, half))
        result = operation(self.inner)
        self._visit(Moment(kind, role, AFTER), lambda: copy.deepcopy(self.inner))
        return result

    def open(self, path, flags=os.O_RDONLY, mode=0o644):
        if flags & os.O_CREAT:
            descriptor = self._change("create", path, lambda disk: disk.open(path, flags, mode))
        else:
            descriptor = self.inner.open(path, flags, mode)
        self._names[descriptor] = os.fspath(path)
        return descriptor

    def pwrite(self, descriptor, data, offset):
        data = bytes(data)
        self._change(
            "pwrite",
            self._names[descriptor],
            lambda disk: disk.pwrite(descriptor, data, offset),
            lambda disk: disk.pwrite(descriptor, data[: len(data) // 2], offset),
        )

    def allocate(self, descriptor, offset, size_bytes):
        self._change(
            "allocate",
            self._names[descriptor],
            lambda disk: disk.allocate(descriptor, offset, size_bytes),
            lambda disk: disk.allocate(descriptor, offset, size_bytes // 2),
        )

    def copy_range(self, source, target, offset, size_bytes):
        return self._change(
            "copy_range",
            self._names[target],
            lambda disk: disk.copy_range(source, target, offset, size_bytes),
            lambda disk: disk.copy_range(source, target, offset, size_bytes // 2),
        )

    def sync(self, descriptor):
        self._change("sync", self._names[descriptor], lambda disk: disk.sync(descriptor))

    def sync_directory(self, path):
        self._change("sync_directory", path, lambda disk: disk.sync_directory(path))

    def rename(self, source, target):
        self._change("rename", target, lambda disk: disk.rename(source, target))

    def link(self, source, target):
        self._change("link", target, lambda disk: disk.link(source, target))

    def unlink(self, path):
        self._change("unlink", path, lambda disk: disk.unlink(path))

    def make_directory(self, path):
        self._change("make_directory", path, lambda disk: disk.make_directory(path))

    def remove_directory(self, path):
        self._change("remove_directory", path, lambda disk: disk.remove_directory(path))


def half_done(disk, half):
    """Return a copy of the disk on which an operation was cut short."""
    there = copy.deepcopy(disk)
    half(there)
    return there


def role_of(path):
    """Return a path without its numbers."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "N", os.fspath(path))


class Crashes:
    """Judges crashes at the moments of a store's life: the first of each kind, and every `stride`-th."""

    def __init__(self, judge: Callable[[Crashes, Fork], None], stride: int, first: int = 0) -> None:
        self.judge = judge
        self.stride = stride
        self.number = first  # The present moment's number, which also seeds its random draws.
        self.witness: Witness | None = None  # The witness of the watched store.
        self.seen: Counter[Moment] = Counter()
        self.tried: Counter[Moment] = Counter()

    def __call__(self, moment: Moment, fork: Fork) -> None:
        self.number += 1
        self.seen[moment] += 1
        if self.seen[moment] == 1 or self.number % self.stride == 0:
            self.tried[moment] += 1
            self.judge(self, fork)

    def survivor(self, disk: SimulatedFiles) -> Witness:
        """Return a witness of the watched store on the survivor of its disk."""
        return survivor(self.witness, disk, 1_000_000 + 1_000 * self.number)

    def watch(self, witness: Witness) -> None:
        """Observe every change by the store of this witness from now on."""
        self.witness = witness
        witness.place.files = Watched(witness.place.files, self)


def survivor(witness: Witness, disk: SimulatedFiles, draws: int) -> Witness:
    """Return an independent witness of the same store on another disk, with nothing open."""
    other = Witness(witness.place.elsewhere(disk, draws), open_now=False)
    other.seen = set(witness.seen)
    other.history = witness.history.copied()
    return other


def live(witness: Witness, seed: int, batches: int, most_bytes: int = 1_000) -> None:
    """Run a store through batches, merges, closes, and kills with unsynced batches."""
    chance = random.Random(seed)
    witness.open()
    witness.reserve()
    witness.write((NEW_SPACE, FIRST, b"", b""))
    for number in range(batches):
        witness.append(drawn(witness, chance, most_bytes))
        if number % 3:
            witness.commit()
        if number % 4 == 0:
            witness.store.maintain()
        if number % 7 == 0:
            witness.mark()
        if number % 40 == 37:
            witness.append(drawn(witness, chance, most_bytes))
            witness.place.files.close_all()
            witness.open()
        if number == batches // 2:
            witness.close()
            witness.open()
    witness.close()


def after_a_kill(crashes: Crashes, fork: Fork) -> None:
    disk = fork()
    disk.close_all()
    goes_on(crashes.survivor(disk), crashes.number)


def after_a_power_loss(crashes: Crashes, fork: Fork) -> None:
    goes_on(crashes.survivor(fork().power_loss(crashes.number)), crashes.number)


def after_both(crashes: Crashes, fork: Fork) -> None:
    """The process is killed, the next one opens the store, and then the power fails."""
    disk = fork()
    disk.close_all()
    witness = crashes.survivor(disk)
    witness.open()
    witness.crash("lose_power", crashes.number)
    goes_on(witness, crashes.number)


def goes_on(witness: Witness, seed: int) -> None:
    """Check the store after a crash, write, lose the power, and check again."""
    if witness.store is None:
        witness.open()
    if FIRST not in witness.history.shown:
        assert witness.reserve() == FIRST
        witness.write((NEW_SPACE, FIRST, b"", b""))
    witness.write((VALUE, FIRST, b"on", b"and on"))
    witness.append([(VALUE, FIRST, b"on", b"and on and on")])
    witness.crash("lose_power", seed)
    witness.close()


JUDGES = (after_a_kill, after_a_power_loss, after_both)
