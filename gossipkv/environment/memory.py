"""The memory available for mapped files of this process, according to Linux (proc(5), cgroups(7)).

Several limits hold at once: the machine's memory, and `memory.high` and `memory.max` of each control group along this
process's path (in version 1: `hierarchical_memory_limit`). Each leaves a `Room`: the limit, less memory that cannot be
dropped (all but the page cache), less files mapped by other processes. These need their pages as much, and several
nodes on one machine see the same cache. The smallest room counts.

Unreadable or unintelligible values are unknown and set no limit: nothing here raises. If the kernel is vague the room
is rather too small: memory that others share and have mapped is subtracted twice. Version 1 does not tell which kernel
memory could be dropped, so none is subtracted there. If a control group's path leads out of the mount, this process is
in a container that sees only itself, and the mounted group counts.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = Callable[[PurePosixPath], str]  # Returns the text of a file. Raises OSError.

PROC: Final = PurePosixPath("/proc")
KIB: Final = 1024

_NUMBER: Final = re.compile(r"\d{1,20}", re.ASCII)
# Ids of the mount and its parent, device; root and place; options, optional fields; kind, source, more options.
_MOUNT: Final = re.compile(r"^\S+ \S+ \S+ (/\S*) (/\S*) \S+ (?:\S+ )*?- (cgroup2?) \S+ (\S+)$", re.MULTILINE)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Room(NamedTuple):
    """The room that a limit leaves for files mapped by this process, including resident ones; below 0: exceeded."""

    limit: str
    size_bytes: int


@final
class RealMemory:
    """The memory of this machine, as far as this process may use it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read the system's files below `root`."""
        self._read = reader_below(root)

    def room(self) -> Room | None:
        """Return the smallest room; None: unknown. Reads a dozen files of the kernel."""
        return min(rooms(self._read), key=lambda room: room.size_bytes, default=None)


def reader_below(root: Path) -> Read:
    """Return a reader of the system's files, which are below `root`."""
    prefix = str(root).removesuffix("/")

    def read(path: PurePosixPath) -> str:
        with open(f"{prefix}{path}", "rb", buffering=0) as file:  # noqa: PTH123  # `Path` takes longer than the kernel.
            return file.read().decode(errors="replace")

    return read


def rooms(read: Read) -> Iterator[Room]:
    """Yield the rooms of all known limits."""
    own = numbers(text_of(read, PROC / "self/status"), "RssFile", "RssShmem")
    # Linux before 4.5 does not tell; then no page counts as mapped by others.
    mapped_bytes = own["RssFile"] + own["RssShmem"] if "RssFile" in own else 1 << 64
    machine = numbers(text_of(read, PROC / "meminfo"), "MemAvailable", "Mapped")
    if "MemAvailable" in machine:
        yield Room("MemAvailable", machine["MemAvailable"] - max(0, machine["Mapped"] - mapped_bytes))
    texts = text_of(read, PROC / "self/mountinfo"), text_of(read, PROC / "self/cgroup")
    for group, is_unified in _visible_groups(*texts):
        yield from (_room if is_unified else _room_of_version_1)(read, group, mapped_bytes)


@lru_cache(maxsize=1)  # The texts hardly ever change, and take longer to parse than to read.
def _visible_groups(mountinfo: str, cgroup: str) -> list[tuple[PurePosixPath, bool]]:
    """Return the directories of this process's control groups, with True for version 2."""
    mounts = list(mounts_of("memory", mountinfo))
    groups = groups_of("memory", cgroup)
    return [
        (group, is_unified)
        for path, is_unified in groups
        for mount in mounts
        if mount.is_unified == is_unified
        for group in mount.along(path)
    ]


def _room(read: Read, group: PurePosixPath, mapped_bytes: int) -> Iterator[Room]:
    """Yield the room that one control group leaves, if it has a limit."""
    texts = {name: text_of(read, group / name).strip() for name in ("memory.high", "memory.max", "memory.current")}
    values = {name: int(text) for name, text in texts.items() if _NUMBER.fullmatch(text)}
    if "memory.current" not in values:
        return
    held_bytes = values.pop("memory.current")
    dropped = "active_file", "inactive_file", "slab_reclaimable"
    of_kind = numbers(text_of(read, group / "memory.stat"), *dropped, "file_mapped")
    held_bytes -= sum(of_kind[name] for name in dropped)
    for name, limit_bytes in values.items():
        others_bytes = max(0, of_kind["file_mapped"] - mapped_bytes)
        yield Room(f"{name} of {group}", limit_bytes - max(0, held_bytes) - others_bytes)


def _room_of_version_1(read: Read, group: PurePosixPath, mapped_bytes: int) -> Iterator[Room]:
    names = "hierarchical_memory_limit", "total_rss", "total_shmem", "total_mapped_file"
    of_kind = numbers(text_of(read, group / "memory.stat"), *names)
    if "hierarchical_memory_limit" in of_kind:
        held_bytes = of_kind["total_rss"] + of_kind["total_shmem"]
        others_bytes = max(0, of_kind["total_mapped_file"] - mapped_bytes)
        limit_bytes = of_kind["hierarchical_memory_limit"]
        yield Room(f"hierarchical_memory_limit of {group}", limit_bytes - held_bytes - others_bytes)


def text_of(read: Read, path: PurePosixPath) -> str:
    """Return the text of a file; empty if the system refuses."""
    try:
        return read(path)
    except (OSError, ValueError):  # ValueError: the path is invalid.
        return ""


def numbers(text: str, *names: str) -> Counter[str]:
    """Return some numbers of a file with a name and a number per line, in bytes; those with a colon are in KiB."""
    found = re.findall(rf"^({'|'.join(names)})(:?)[ \t]+(\d{{1,20}})\b", text, re.ASCII | re.MULTILINE)
    return Counter({name: int(number) * (KIB if colon else 1) for name, colon, number in found})


class Mount(NamedTuple):
    """A mount of control groups: its place, its root group, and its version."""

    place: PurePosixPath
    root: PurePosixPath
    is_unified: bool

    def along(self, path: PurePosixPath) -> Iterator[PurePosixPath]:
        """Yield the directories of a control group and of those around it, as far as they are visible."""
        yield self.place
        if path.is_relative_to(self.root) and ".." not in path.parts:
            beneath = path.relative_to(self.root)
            yield from (self.place / above for above in (beneath, *beneath.parents) if above.parts)


def mounts_of(controller: str, mountinfo: str) -> Iterator[Mount]:
    """Yield the mounts of control groups that may have that controller."""
    for root, place, kind, options in _MOUNT.findall(mountinfo):
        is_unified = kind == "cgroup2"
        if is_unified or controller in options.split(","):
            yield Mount(_path(place), _path(root), is_unified)


def _path(escaped: str) -> PurePosixPath:
    return PurePosixPath(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), escaped))


def groups_of(controller: str, text: str) -> Iterator[tuple[PurePosixPath, bool]]:
    """Yield the control groups of this process that may have that controller; True: of version 2."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_unified = number == "0" and not controllers
        if path.startswith("/") and (is_unified or controller in controllers.split(",")):
            yield PurePosixPath(path), is_unified
