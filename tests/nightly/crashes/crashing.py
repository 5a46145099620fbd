"""Processes that are killed before their Nth call that changes a directory, with a trace of their calls.

`crash.c` counts, records and kills; this module compiles it, configures it, and judges its trace.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from tests.preload import preload

SHIM = Path(__file__).with_name("crash.c")


class Call(NamedTuple):
    """A call that changes a directory; a call that was struck is in `path`, with its own path in `target`."""

    what: str  # One of: create, write, sync, rename, link, remove, crash.
    path: str
    target: str = ""


@dataclass(frozen=True)
class Watch:
    """Watches the changes below a directory of all processes with its environment; kills before call `at`."""

    library: Path
    below: Path
    notes: Path  # A separate directory elsewhere.
    at: int = 0  # 0 means never.

    def environment(self) -> dict[str, str]:
        """Return the environment for watched processes and their children."""
        self.notes.mkdir()
        (self.notes / "calls").write_bytes(bytes(8))
        told = {"CRASH_BELOW": str(self.below), "CRASH_NOTES": str(self.notes), "CRASH_AT": str(self.at)}
        return {**told, "LD_PRELOAD": str(self.library)}

    @property
    def count(self) -> int:
        return struct.unpack("=Q", (self.notes / "calls").read_bytes())[0]

    @property
    def trace(self) -> list[Call]:
        place = self.notes / "trace"
        return [Call(*line.split("\t")) for line in place.read_text().splitlines()] if place.exists() else []

    @property
    def struck(self) -> Call | None:
        """The call that was not made; None if there were fewer."""
        return next((call for call in self.trace if call.what == "crash"), None)


def compile_shim(place: Path) -> Path:
    """Compile the library that is loaded before libc; return its path."""
    return preload(SHIM, place, "-fvisibility=hidden")


class Order:
    """The contents and names that a power loss could still take: no sync covers them."""

    def __init__(self) -> None:
        self.contents: set[str] = set()  # Files that were written since their last sync.
        self.names: set[str] = set()  # Names that were created or renamed since the last sync of their directory.
        self.wrong: list[str] = []

    def feed(self, call: Call) -> None:
        match call.what:
            case "create":
                self.names.add(call.path)
            case "write":
                self.contents.add(call.path)
            case "sync":
                self.contents.discard(call.path)
                self.names = {name for name in self.names if os.path.dirname(name) != call.path}
            case "remove":
                self._forget(call.path)
            case "rename" | "link":
                self._rename(call.path, call.target)

    def _rename(self, path: str, target: str) -> None:
        lost = sorted(one for one in (self.contents | self.names - {path}) if _is_within(one, path))
        if lost and not is_passing(target):
            self.wrong.append(f"{target} got its name before {', '.join(lost)} was synced")
        self._forget(path)
        self.names.add(target)

    def _forget(self, path: str) -> None:
        self.contents = {one for one in self.contents if not _is_within(one, path)}
        self.names = {one for one in self.names if not _is_within(one, path)}


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def is_passing(path: str) -> bool:
    """True if a path may be lost: the lock, and files that an opening of the data directory removes anyway."""
    parts = PurePath(path).parts
    return parts[-1] == "LOCK" or not {"building", "removing"}.isdisjoint(parts)


def careless(trace: list[Call]) -> list[str]:
    """Return the contents and names that a power loss could have taken after they were relied on.

    A file or directory may get its name only when its content is synced; at the end every name and content must be
    synced.
    """
    order = Order()
    for call in trace:
        order.feed(call)
    ended = sorted(path for path in order.contents | order.names if not is_passing(path) and os.path.exists(path))
    return order.wrong + [f"{path} was not synced in the end" for path in ended]
