"""What the node serves at this moment, for Python and for the serving loop alike.

One `Published` is one moment: made from the library whenever that changes, never changed afterwards.  The loop reads
the same from its `PublishedTable`, so a request is judged alike on both sides.  The rule that chooses a version stands
here, where the errors are, and in `_published.pxd`, where there are none; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

from gossipkv.errors import NotReady, NotServed, UnknownVersion
from gossipkv.keyspace import partitioner
from gossipkv.node._published import PublishedTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.errors import Detail
    from gossipkv.storage.sorted_file import SortedFile


class HeldVersion(Protocol):
    """A built version, as the library holds it."""

    files: list[SortedFile | None]

    @property
    def database(self) -> str:
        """The name of its database."""
        ...

    @property
    def name(self) -> str:
        """The name of the version."""
        ...

    @property
    def function(self) -> str:
        """The name of its partition function."""
        ...


@final
@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """One version; `files[p]` is partition p, or None when it is not here."""

    database: str
    name: str
    function: str
    files: tuple[SortedFile | None, ...]

    def file(self, partition: int) -> SortedFile:
        """The file of a partition.

        Raises:
            NotServed: this node does not hold it.
        """
        found = self.files[partition]
        if found is None:
            raise NotServed(
                f"partition {partition} of {self.database} {self.name} is not on this node",
                {"database": self.database, "version": self.name, "partition": partition},
            )
        return found

    def file_of(self, key: bytes) -> SortedFile | None:
        """The file that may hold the key; None when no file can, since the partition function refuses the key."""
        try:
            partition = partitioner.partition(self.function, key, len(self.files))
        except ValueError:
            return None
        return self.file(partition)


@final
@dataclass(frozen=True, slots=True)
class PublishedDatabase:
    """One database; its versions in ascending order."""

    name: str
    active: PublishedVersion | None
    versions: tuple[PublishedVersion, ...]

    def choose(self, version: str | None, min_version: str | None) -> PublishedVersion:
        """The version that answers a request with these options.

        Raises:
            UnknownVersion: exactly that one was asked for and is not held.
            NotReady: there is none yet, or none as new as asked.
        """
        if version is not None:
            found = next((held for held in self.versions if held.name == version), None)
            if found is None:
                raise UnknownVersion(f"{self.name} has no version {version} here", self._details(version=version))
            if min_version is not None and _older(version, min_version):
                raise UnknownVersion(
                    f"version {version} is older than min_version {min_version}",
                    self._details(version=version, min_version=min_version),
                )
            return found
        if min_version is None:
            if self.active is None:
                raise NotReady(f"{self.name} has no version ready yet", self._details())
            return self.active
        candidates = self.versions if self.active is None else (self.active, *self.versions)
        for held in candidates:
            if not _older(held.name, min_version):
                return held
        raise NotReady(
            f"{self.name} has no version as new as {min_version} here yet", self._details(min_version=min_version)
        )

    def _details(self, **asked: str) -> dict[str, Detail]:
        held: list[Detail] = [version.name for version in self.versions]
        return {"database": self.name, **asked, "held": held, "active": self.active.name if self.active else None}


def _older(version: str, other: str) -> bool:
    """Versions are ordered as strings, by their bytes."""
    return version.encode() < other.encode()


@final
@dataclass(frozen=True, slots=True)
class Published:
    """All databases that have a version here."""

    databases: Mapping[str, PublishedDatabase] = field(default_factory=dict)

    def table(self) -> PublishedTable:
        """The same for the serving loop; it pins the files."""
        return PublishedTable(
            (
                name,
                None if database.active is None else database.active.name,
                [(held.name, partitioner.code(held.function), held.files) for held in database.versions],
            )
            for name, database in self.databases.items()
        )


def publish(held: Iterable[tuple[HeldVersion, bool]]) -> Published:
    """What is published when these versions are held; the flag marks the active one of its database."""
    versions: dict[str, list[PublishedVersion]] = {}
    active: dict[str, PublishedVersion] = {}
    for dataset, is_active in held:
        version = PublishedVersion(dataset.database, dataset.name, dataset.function, tuple(dataset.files))
        versions.setdefault(dataset.database, []).append(version)
        if is_active:
            active[dataset.database] = version
    return Published(
        {
            name: PublishedDatabase(
                name, active.get(name), tuple(sorted(found, key=lambda version: version.name.encode()))
            )
            for name, found in versions.items()
        }
    )
