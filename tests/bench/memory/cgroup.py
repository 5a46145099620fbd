"""Memory that is short: a cgroup of its own for each contestant, version 1 or 2, which is removed afterwards.

What is read into the page cache is charged to the group of whoever reads it first, so a contestant finds only as much
of its file in memory as its group may hold, while the machine has room.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REMOVAL_TIMEOUT_S = 10.0  # The kernel lets a group go a moment after its last process.
POLL_PERIOD_S = 0.05
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")  # Of version 2, of version 1.
NO_SWAP = ("memory.swap.max", "memory.swappiness")  # What is swapped out would be beyond the limit.
ENTER = 'echo 0 > "$0" && exec "$@"'  # Before the program begins, so that all that it reads is charged here.


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup that limits memory."""

    directory: Path

    @property
    def _limit_file(self) -> Path:
        return next(path for name in LIMIT_FILES if (path := self.directory / name).exists())

    def limit(self, size_bytes: int) -> None:
        """Hold processes and their page cache to so much, from now on."""
        self._limit_file.write_text(str(size_bytes))
        for name in NO_SWAP:
            if (path := self.directory / name).exists():
                path.write_text("0")

    def command(self, *command: str) -> list[str]:
        return ["/bin/sh", "-c", ENTER, str(self.directory / "cgroup.procs"), *command]

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            (self.directory / "memory.force_empty").write_text("0")  # Version 1 alone has it.
        deadline = monotonic() + REMOVAL_TIMEOUT_S
        while True:
            try:
                self.directory.rmdir()
            except OSError:
                if monotonic() > deadline:
                    raise
                sleep(POLL_PERIOD_S)
            else:
                return


def _mounts(process: Path) -> Iterator[tuple[Path, Path]]:
    """Where hierarchies that may limit memory are mounted, and the process' own group there."""
    own: dict[str, str] = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    for line in (process / "mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        controller = {"cgroup": "memory", "cgroup2": ""}.get(kind)
        if controller in own and (kind == "cgroup2" or "memory" in options.split(",")):
            yield Path(mount), Path(mount, own[controller])


def parents(process: Path) -> Iterator[Path]:
    """Where a group may be made, the nearest first: version 2 gives none below one that has processes."""
    for mount, own in _mounts(process):
        for parent in (own, *own.parents):
            if parent.is_dir():
                yield parent
            if parent == mount:
                break


def make(name: str) -> MemoryGroup | None:
    """A new group without a limit; None where this process may not have one."""
    for parent in parents(Path("/proc/self")):
        group = MemoryGroup(parent / f"gossipkv-bench-{os.getpid()}-{name}")
        try:
            group.directory.mkdir()
        except OSError:
            continue
        if any(os.access(group.directory / file, os.W_OK) for file in LIMIT_FILES):
            return group
        group.directory.rmdir()
    return None


@contextlib.contextmanager
def made(name: str) -> Iterator[MemoryGroup]:
    """A group for the length of a block, at whose end its processes have ended."""
    group = make(name)
    if group is None:
        raise RuntimeError("no memory cgroup can be made here")
    try:
        yield group
    finally:
        group.remove()


def missing() -> str | None:
    group = make("probe")
    if group is None:
        return "a cgroup with a memory limit, which this process may not make"
    group.remove()
    return None
