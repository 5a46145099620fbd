"""How much memory there is for the files that this process maps, as Linux tells it (proc(5), cgroups(7)).

Several limits hold at once: what the machine has, and what each control group along the path of this process's may
take, `memory.high` and `memory.max` (of version 1: `hierarchical_memory_limit`).  Each leaves a `Room`: what it allows,
less what is there and cannot be dropped (all but the page cache), less what others have mapped, since they want it as
much, and each of several nodes on a machine is told of the same cache.  The smallest room is the one that counts.

What cannot be read, or not be understood, is not known and sets no limit: this never raises.  Where the kernel is vague
the room is rather too small than too large: memory that others share and have mapped is taken off twice.  Version 1
does not say which of the kernel's own memory could be dropped, so that is not taken off there.  A control group whose
path leads out of what is mounted is one in a container that sees only itself: the mounted one counts.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = Callable[[PurePosixPath], str]  # The text of a file.  Raises OSError.

PROC: Final = PurePosixPath("/proc")
KIB: Final = 1024

_NUMBER: Final = re.compile(r"\d{1,20}", re.ASCII)
_NUMBERS: Final = re.compile(r"^(\w+)(:?)[ \t]+(\d{1,20})\b", re.ASCII | re.MULTILINE)
# Number, number of the parent, device; root and place; options, fields that may be; kind, source, more options.
_MOUNT: Final = re.compile(r"^\S+ \S+ \S+ (/\S*) (/\S*) \S+ (?:\S+ )*?- (cgroup2?) \S+ (\S+)$", re.MULTILINE)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Room(NamedTuple):
    """What one limit leaves to the files that this process maps, those in memory among them; less than 0: too much."""

    limit: str
    size_bytes: int


@final
class RealMemory:
    """The memory of this machine, as far as this process may have it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: where the system's files are."""
        self._root = root

    def room(self) -> Room | None:
        """Return the smallest room; None: nothing is known.  It reads a dozen files of the kernel."""
        return min(rooms(self._read), key=lambda room: room.size_bytes, default=None)

    def _read(self, path: PurePosixPath) -> str:
        return (self._root / path.relative_to("/")).read_text(encoding="utf-8", errors="replace")


def rooms(read: Read) -> Iterator[Room]:
    """The rooms that all known limits leave."""
    own = numbers(text_of(read, PROC / "self/status"))
    # Linux before 4.5 does not tell: then nothing counts as mapped by others.
    mapped_bytes = own["RssFile"] + own["RssShmem"] if "RssFile" in own else 1 << 64
    machine = numbers(text_of(read, PROC / "meminfo"))
    if "MemAvailable" in machine:
        yield Room("MemAvailable", machine["MemAvailable"] - max(0, machine["Mapped"] - mapped_bytes))
    mounts = list(mounts_of("memory", text_of(read, PROC / "self/mountinfo")))
    for path, is_unified in groups_of("memory", text_of(read, PROC / "self/cgroup")):
        for mount in mounts:
            if mount.is_unified == is_unified:
                for group in mount.along(path):
                    yield from (_room if is_unified else _room_of_version_1)(read, group, mapped_bytes)


def _room(read: Read, group: PurePosixPath, mapped_bytes: int) -> Iterator[Room]:
    """The room that one control group leaves, if it has a limit."""
    told = {name: text_of(read, group / name).strip() for name in ("memory.high", "memory.max", "memory.current")}
    known = {name: int(text) for name, text in told.items() if _NUMBER.fullmatch(text)}
    if "memory.current" not in known:
        return
    held_bytes = known.pop("memory.current")
    of_kind = numbers(text_of(read, group / "memory.stat"))
    held_bytes -= of_kind["active_file"] + of_kind["inactive_file"] + of_kind["slab_reclaimable"]
    for name, limit_bytes in known.items():
        others_bytes = max(0, of_kind["file_mapped"] - mapped_bytes)
        yield Room(f"{name} of {group}", limit_bytes - max(0, held_bytes) - others_bytes)


def _room_of_version_1(read: Read, group: PurePosixPath, mapped_bytes: int) -> Iterator[Room]:
    of_kind = numbers(text_of(read, group / "memory.stat"))
    if "hierarchical_memory_limit" in of_kind:
        held_bytes = of_kind["total_rss"] + of_kind["total_shmem"]
        others_bytes = max(0, of_kind["total_mapped_file"] - mapped_bytes)
        limit_bytes = of_kind["hierarchical_memory_limit"]
        yield Room(f"hierarchical_memory_limit of {group}", limit_bytes - held_bytes - others_bytes)


def text_of(read: Read, path: PurePosixPath) -> str:
    """The text of a file; nothing, where the system refuses."""
    try:
        return read(path)
    except (OSError, ValueError):  # The latter for a path that could be none.
        return ""


def numbers(text: str) -> Counter[str]:
    """The numbers of a file with a name and a number in each line, in bytes; those with a colon are in KiB."""
    return Counter({name: int(number) * (KIB if colon else 1) for name, colon, number in _NUMBERS.findall(text)})


class Mount(NamedTuple):
    """Where control groups are mounted, from which on, and by which version."""

    place: PurePosixPath
    root: PurePosixPath
    is_unified: bool

    def along(self, path: PurePosixPath) -> Iterator[PurePosixPath]:
        """The directories of a control group and of those around it, as far as they can be seen."""
        yield self.place
        if path.is_relative_to(self.root) and ".." not in path.parts:
            beneath = path.relative_to(self.root)
            yield from (self.place / above for above in (beneath, *beneath.parents) if above.parts)


def mounts_of(controller: str, mountinfo: str) -> Iterator[Mount]:
    """The mounts of control groups that may have that controller."""
    for root, place, kind, options in _MOUNT.findall(mountinfo):
        is_unified = kind == "cgroup2"
        if is_unified or controller in options.split(","):
            yield Mount(_path(place), _path(root), is_unified)


def _path(escaped: str) -> PurePosixPath:
    return PurePosixPath(_ESCAPED.sub(_unescape, escaped))


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))


def groups_of(controller: str, text: str) -> Iterator[tuple[PurePosixPath, bool]]:
    """The control groups of this process that may have that controller, and whether they are of version 2."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_unified = number == "0" and not controllers
        if path.startswith("/") and (is_unified or controller in controllers.split(",")):
            yield PurePosixPath(path), is_unified
