"""Files on which a chosen operation fails, is cut short, or is the last thing the process does.

Wrap any `Files`; every operation is counted by kind, so that a test can first run a workload unharmed, read
`counts`, and then run it again "for every N", asserting that each fault was `struck`:

    calm = FaultyFiles(RealFiles())
    workload(calm)
    for n in range(calm.counts["sync"]):
        faulty = FaultyFiles(RealFiles(), Fault(n, Action.CRASH_BEFORE, kinds={"sync"}))
        with pytest.raises(Crash):
            workload(faulty)
        assert faulty.struck

A crash is the end of the process and not of the machine: what was written stays (`SimulatedFiles` forgets).  After
it the object is dead: every further operation raises `Crash` again and reaches nothing, so that clean-up code, which
a killed process would not have run either, does not run.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gossipkv.environment.seam import READ

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from _typeshed import ReadableBuffer as Buffer

    from gossipkv.environment.seam import FileEntry, Files, Path

_Result = TypeVar("_Result")

CHANGING = frozenset({
    "pwrite", "allocate", "copy_range", "sync", "sync_directory", "rename", "link", "unlink", "make_directory",
    "remove_directory", "create",
})  # fmt: skip
"""The kinds of operation that change a disk or promise that it has changed; `open` of a new file is `create`."""


class Crash(BaseException):
    """The process ended here.  Not an `Exception`: nothing may catch it as one."""


class Action(enum.Enum):
    FAIL = "fail"
    FAIL_HALFWAY = "fail halfway"  # Does half of a write or an allocation, then fails; other operations simply fail.
    CRASH_BEFORE = "crash before"
    # Does half of a write or an allocation, then crashes; other operations crash before.
    CRASH_HALFWAY = "crash halfway"
    CRASH_AFTER = "crash after"


@dataclass(frozen=True)
class Fault:
    """Strike the `at`-th operation (from 0) of the given kinds (None: of every kind)."""

    at: int
    action: Action
    kinds: Collection[str] | None = None
    error: int = errno.EIO
    lasting: bool = False  # Every later operation of these kinds fails too: a full disk stays full.

    def hits(self, number: int) -> bool:
        """Return True if the `number`-th operation of these kinds is struck."""
        return number == self.at or (self.lasting and number > self.at)


def raise_crash() -> None:
    """End the process as far as a test in the same process can."""
    raise Crash


class FaultyFiles:
    """`inner` with faults.

    `struck` lists each operation that a fault met, `trace` each that changes the disk, both as "kind detail".
    """

    def __init__(self, inner: Files, *faults: Fault, die: Callable[[], None] = raise_crash) -> None:
        self.inner = inner
        self.faults = faults
        self.die = die
        self.counts: Counter[str] = Counter()
        self.struck: list[str] = []
        self.trace: list[str] = []
        self.dead = False
        self._seen = [0] * len(faults)

    def strike(self, *faults: Fault) -> None:
        """Replace the faults; operations are counted from here."""
        self.faults = faults
        self._seen = [0] * len(faults)

    def _perform(
        self,
        kind: str,
        detail: str,
        operation: Callable[[], _Result],
        half: Callable[[], object] | None = None,
        *,
        path: Path | None = None,  # The path that the system's error would name; None for operations on a descriptor.
    ) -> _Result:
        if self.dead:
            raise Crash
        self.counts[kind] += 1
        if kind in CHANGING:
            self.trace.append(f"{kind} {detail}")
        fault = self._fault(kind)
        if fault is None:
            return operation()
        self.struck.append(f"{kind} {detail}")
        match fault.action:
            case Action.FAIL | Action.FAIL_HALFWAY:
                if half is not None and fault.action is Action.FAIL_HALFWAY:
                    half()
                raise OSError(fault.error, os.strerror(fault.error), *([path] if path else []))
            case Action.CRASH_HALFWAY if half is not None:
                half()
            case Action.CRASH_AFTER:
                with contextlib.suppress(OSError):  # The operation may fail; the crash follows anyway.
                    operation()
            case _:
                pass
        self.dead = True
        self.die()
        raise Crash

    def _fault(self, kind: str) -> Fault | None:
        found = None
        for index, fault in enumerate(self.faults):
            if fault.kinds is None or kind in fault.kinds:
                if fault.hits(self._seen[index]):
                    found = fault
                self._seen[index] += 1
        return found

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        kind = "create" if flags & os.O_CREAT else "open"
        return self._perform(kind, os.fspath(path), lambda: self.inner.open(path, flags, mode), path=path)

    def close(self, descriptor: int) -> None:
        if self.dead:  # The system closes a dead process's descriptors.
            self.inner.close(descriptor)
            return
        self._perform("close", str(descriptor), lambda: self.inner.close(descriptor))

    def size(self, descriptor: int) -> int:
        return self._perform("size", str(descriptor), lambda: self.inner.size(descriptor))

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        return self._perform(
            "pread", f"{size_bytes} at {offset}", lambda: self.inner.pread(descriptor, size_bytes, offset)
        )

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        copy = bytes(data)
        self._perform(
            "pwrite",
            f"{len(copy)} at {offset}",
            lambda: self.inner.pwrite(descriptor, copy, offset),
            lambda: self.inner.pwrite(descriptor, copy[: len(copy) // 2], offset),
        )

    def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
        half = size_bytes // 2
        self._perform(
            "allocate",
            f"{size_bytes} at {offset}",
            lambda: self.inner.allocate(descriptor, offset, size_bytes),
            # Systems refuse to allocate zero bytes.
            (lambda: self.inner.allocate(descriptor, offset, half)) if half > 0 else None,
        )

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        return self._perform(
            "copy_range",
            f"{size_bytes} at {offset}",
            lambda: self.inner.copy_range(source, target, offset, size_bytes),
            lambda: self.inner.copy_range(source, target, offset, size_bytes // 2),
        )

    def sync(self, descriptor: int) -> None:
        self._perform("sync", str(descriptor), lambda: self.inner.sync(descriptor))

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        self._perform(
            "start_writeback",
            f"{size_bytes} at {offset}",
            lambda: self.inner.start_writeback(descriptor, offset, size_bytes),
        )

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        return self._perform("map", str(size_bytes), lambda: self.inner.map(descriptor, size_bytes))

    def sync_directory(self, path: Path) -> None:
        self._perform("sync_directory", os.fspath(path), lambda: self.inner.sync_directory(path), path=path)

    def rename(self, source: Path, target: Path) -> None:
        self._perform(
            "rename",
            f"{os.fspath(source)} to {os.fspath(target)}",
            lambda: self.inner.rename(source, target),
            path=source,
        )

    def link(self, source: Path, target: Path) -> None:
        self._perform(
            "link", f"{os.fspath(source)} to {os.fspath(target)}", lambda: self.inner.link(source, target), path=source
        )

    def unlink(self, path: Path) -> None:
        self._perform("unlink", os.fspath(path), lambda: self.inner.unlink(path), path=path)

    def make_directory(self, path: Path) -> None:
        self._perform("make_directory", os.fspath(path), lambda: self.inner.make_directory(path), path=path)

    def remove_directory(self, path: Path) -> None:
        self._perform("remove_directory", os.fspath(path), lambda: self.inner.remove_directory(path), path=path)

    def list_directory(self, path: Path) -> list[FileEntry]:
        return self._perform("list_directory", os.fspath(path), lambda: self.inner.list_directory(path), path=path)

    def stat(self, path: Path) -> FileEntry:
        return self._perform("stat", os.fspath(path), lambda: self.inner.stat(path), path=path)

    def resolve(self, path: Path) -> str:
        return self._perform("resolve", os.fspath(path), lambda: self.inner.resolve(path), path=path)

    def free_bytes(self, path: Path) -> int:
        return self._perform("free_bytes", os.fspath(path), lambda: self.inner.free_bytes(path), path=path)

    def size_bytes(self, path: Path) -> int:
        return self.inner.size_bytes(path)

    def lock(self, descriptor: int) -> None:
        self._perform("lock", str(descriptor), lambda: self.inner.lock(descriptor))
