"""The contents of versions, and the view that each machine has of its source over time.

A record belongs to the partition that the function maps its key to, and lies in the file of that number.  A stray lies
in another file; only a reader of that whole file finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import SourceVersion
from gossipkv.keyspace.partitioner import FUNCTIONS, partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.identity import VersionIdentity

DATABASE: Final = "d"
FUNCTION: Final = FUNCTIONS[0]
KEYS: Final = 60
ALIKE: Final = 1000
KEY_NAMES: Final = tuple(b"key%d" % number for number in range(KEYS))


@final
@dataclass(frozen=True, slots=True)
class Content:
    version: str
    partitions: int
    # Tells contents of one name apart; batches of 1,000 and more look at the source like the one 1,000 less.
    batch: int = 0
    stray: bytes | None = None  # A key that lies in the file after its own.
    file_ms: int = 500  # The time to read one file.

    def partition(self, key: bytes) -> int:
        return partition(FUNCTION, key, self.partitions)

    def file_of(self, key: bytes) -> int:
        """Return the number of the file with a key."""
        return (self.partition(key) + (key == self.stray)) % self.partitions

    def value(self, key: bytes) -> bytes | None:
        """Return a key's value, or None if the version lacks the key.  A different third is missing in each version."""
        number = KEY_NAMES.index(key)
        if (number + int(self.version)) % 3 == 0 and key != self.stray:
            return None
        return b"%s of %s, batch %d" % (key, self.version.encode(), self.batch)

    def has_stray(self, file: int) -> bool:
        """Return True if a whole read of this file finds a stray."""
        return self.stray is not None and self.file_of(self.stray) == file

    def seal(self, part: int) -> int:
        """Return the seal of a partition's file; equal bytes have equal seals."""
        return 1000 * self.batch + part

    @property
    def source(self) -> SourceVersion:
        size_bytes = 1000 * int(self.version) + self.batch % ALIKE
        files = tuple(
            SourceFile(f"part-{number:05}", f"/source/{number}", size_bytes, 1) for number in range(self.partitions)
        )
        return SourceVersion(DATABASE, self.version, files)


class Named(Protocol):
    @property
    def name(self) -> str: ...


@final
class Sources:
    """The versions at the sources; a machine may have its own source."""

    def __init__(self) -> None:
        self._shared: dict[str, Content] = {}
        self._own: dict[str, dict[str, Content] | None] = {}
        self._of: dict[str, set[Content]] = {}  # By digest.

    def add(self, content: Content) -> None:
        """Show a version to all machines that share the common source."""
        self._shared[content.version] = content
        self._note(content)

    def give(self, machine: Named, seen: Mapping[str, Content] | None) -> None:
        """Show a machine these versions instead; None: the machine has no source."""
        self._own[machine.name] = None if seen is None else dict(seen)
        for content in (seen or {}).values():
            self._note(content)

    def share(self, machine: Named) -> None:
        self._own.pop(machine.name, None)

    def seen(self, machine: Named) -> Mapping[str, Content]:
        own = self._own.get(machine.name, self._shared)
        return {} if own is None else own

    def has(self, machine: Named) -> bool:
        return self._own.get(machine.name, self._shared) is not None

    def _note(self, content: Content) -> None:
        self._of.setdefault(content.source.digest, set()).add(content)

    def of(self, identity: VersionIdentity) -> set[Content]:
        """Return the contents that a version of this identity may have been built from."""
        return self._of[identity.digest]

    def called(self, version: str) -> set[Content]:
        """Return all contents that ever had this name."""
        return {content for contents in self._of.values() for content in contents if content.version == version}
