"""Short memory: a separate cgroup for each contestant, version 1 or 2, which is removed afterwards.

A page in the page cache is charged to the group that read it first. So a contestant finds only as much of its file in
memory as its group may hold, even if the machine has room.
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

REMOVAL_TIMEOUT_S = 10.0  # The kernel frees a group shortly after its last process ends.
POLL_PERIOD_S = 0.05
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")  # The files of version 2 and of version 1.
NO_SWAP = ("memory.swap.max", "memory.swappiness")  # Swapped memory would be beyond the limit.
# The process enters before the program begins, so that all its reads are charged here.
ENTER = 'echo 0 > "$0" && exec "$@"'


@dataclass(frozen=True)
class MemoryGroup:
    directory: Path

    @property
    def _limit_file(self) -> Path:
        return next(path for name in LIMIT_FILES if (path := self.directory / name).exists())

    def limit(self, size_bytes: int) -> None:
        """Limit processes and their page cache to this size, from now on."""
        self._limit_file.write_text(str(size_bytes))
        for name in NO_SWAP:
            if (path := self.directory / name).exists():
                path.write_text("0")

    def command(self, *command: str) -> list[str]:
        return ["/bin/sh", "-c", ENTER, str(self.directory / "cgroup.procs"), *command]

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            (self.directory / "memory.force_empty").write_text("0")  # Only version 1 has this file.
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
    """Yield the mounts of hierarchies that may limit memory, and the process' own group in each."""
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
    """Yield possible parents of a group, the nearest first: version 2 permits none below one that has processes."""
    for mount, own in _mounts(process):
        for parent in (own, *own.parents):
            if parent.is_dir():
                yield parent
            if parent == mount:
                break


def make(name: str) -> MemoryGroup | None:
    """Return a new group without a limit; None if this process may not make one."""
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
    """Make a group for the block, at whose end its processes have ended."""
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
