"""What versions consist of, and what each machine sees of them at its source, and when.

A record belongs to the partition that the function puts its key into, and lies in the file of that number; but for a
stray, which lies elsewhere and is found only by whoever reads that file to its end.
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
    """One content that goes by a version's name."""

    version: str
    partitions: int
    batch: int = 0  # Of two contents by one name, which; 1,000 and more look at the source like the one 1,000 less.
    stray: bytes | None = None  # A key that lies in the file after its own.
    file_ms: int = 500  # What reading one file takes.

    def partition(self, key: bytes) -> int:
        return partition(FUNCTION, key, self.partitions)

    def file_of(self, key: bytes) -> int:
        """Return the file that a key lies in."""
        return (self.partition(key) + (key == self.stray)) % self.partitions

    def value(self, key: bytes) -> bytes | None:
        """Return a key's value; None: there is no such key.  A third of them changes place from version to version."""
        number = KEY_NAMES.index(key)
        if (number + int(self.version)) % 3 == 0 and key != self.stray:
            return None
        return b"%s of %s, batch %d" % (key, self.version.encode(), self.batch)

    def has_stray(self, file: int) -> bool:
        """Whether whoever reads this file to its end finds a key that is not its."""
        return self.stray is not None and self.file_of(self.stray) == file

    def seal(self, part: int) -> int:
        """Return the seal of a partition's file: equal bytes, equal seals."""
        return 1000 * self.batch + part

    @property
    def source(self) -> SourceVersion:
        size_bytes = 1000 * int(self.version) + self.batch % ALIKE
        files = tuple(
            SourceFile(f"part-{number:05}", f"/source/{number}", size_bytes, 1) for number in range(self.partitions)
        )
        return SourceVersion(DATABASE, self.version, files)


class Named(Protocol):
    """A machine of any world."""

    @property
    def name(self) -> str: ...


@final
class Sources:
    """The versions that lie at the sources; each machine may have its own."""

    def __init__(self) -> None:
        self._shared: dict[str, Content] = {}
        self._own: dict[str, dict[str, Content] | None] = {}
        self._of: dict[str, set[Content]] = {}  # By digest.

    def add(self, content: Content) -> None:
        """Have all machines that share a source see a version from now on."""
        self._shared[content.version] = content
        self._note(content)

    def give(self, machine: Named, seen: Mapping[str, Content] | None) -> None:
        """Have a machine see this from now on instead; None: it has no source."""
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
        """Return what a version of this identity may have been made from."""
        return self._of[identity.digest]

    def called(self, version: str) -> set[Content]:
        """Return all contents that were ever seen by this name."""
        return {content for contents in self._of.values() for content in contents if content.version == version}
