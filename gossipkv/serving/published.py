"""The data that the node serves at this moment, for Python and for the serving loop.

One `Published` is one moment: made from the library at each change, and immutable. The loop reads the same data from
its `PublishedTable`, so a request is judged alike on both sides. The rule that chooses a version stands here with its
errors, and without them in `published/table.pxd`; a test holds both together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.errors import NotReady, NotServed, UnknownVersion
from gossipkv.keyspace import partitioner
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving._serving import PublishedTable
from gossipkv.wire import http_date

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gossipkv.errors import Detail
    from gossipkv.replication.replica.calm import CalmTable
    from gossipkv.serving._serving import CoreLock
    from gossipkv.storage.sorted_file import SortedFile


LATEST_MS: Final = 253_402_300_799_999  # This is the end of the year 9999, the last one in an HTTP date.


class HeldVersion(Protocol):
    """A built version, as the library holds it; the fields are those of `PublishedVersion`."""

    @property
    def files(self) -> Sequence[SortedFile | None]: ...
    @property
    def database(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def wire_id(self) -> bytes | None: ...
    @property
    def passed(self) -> bool: ...
    @property
    def source_ms(self) -> int: ...
    @property
    def active_elsewhere(self) -> bool: ...


@final
@dataclass(frozen=True)
class PublishedVersion:
    """A version; `files[p]` is partition p, or None if the partition is not here.

    `wire_id` names it between nodes; with None no other node is asked. Clients may read it once it has `passed`.
    """

    database: str
    name: str
    function: str
    files: tuple[SortedFile | None, ...]
    wire_id: bytes | None = None
    passed: bool = True
    source_ms: int = 0  # When the source was last modified, in ms since 1970; 0 if unknown.
    # The version is active on a live member: clients that ask for one at least as new may read it, passed here or not.
    active_elsewhere: bool = False

    @property
    def standing(self) -> int:
        """The version's readers, as the serving loop numbers them: 0 none, 1 all, 2 those that ask for one as new."""
        return 1 if self.passed else 2 if self.active_elsewhere else 0

    @property
    def modified(self) -> bytes:
        """The HTTP line with the time of modification; empty if the time is unknown or beyond HTTP's dates."""
        if not 0 < self.source_ms <= LATEST_MS:
            return b""
        return b"Last-Modified: %b\r\n" % http_date.write(self.source_ms // 1000)

    def files_for(self, lock: CoreLock | None) -> Sequence[SortedFile | None]:
        """Return the files for the serving loop with core lock `lock`; None for the first loop."""
        return self.files if lock is None else [file and file.twin_for(lock) for file in self.files]

    @cached_property
    def here(self) -> PartitionSet:
        """The partitions that are here."""
        return PartitionSet.of(len(self.files), (p for p, file in enumerate(self.files) if file is not None))

    def file(self, partition: int) -> SortedFile:
        """Return the file of a partition.

        Raises:
            NotServed: this node does not hold the partition.
        """
        found = self.files[partition]
        if found is None:
            raise NotServed(
                f"partition {partition} of {self.database} {self.name} is not on this node",
                {"database": self.database, "version": self.name, "partition": partition},
            )
        return found

    def file_of(self, key: bytes) -> SortedFile | None:
        """Return the file that may hold the key; None if the partition function refuses the key."""
        try:
            partition = partitioner.partition(self.function, key, len(self.files))
        except ValueError:
            return None
        return self.file(partition)


@final
@dataclass(frozen=True, slots=True)
class PublishedDatabase:
    """A database; its versions are in ascending order."""

    name: str
    active: PublishedVersion | None
    versions: tuple[PublishedVersion, ...]

    def of_identity(self, identity: bytes) -> PublishedVersion:
        """Return the version of that identity for a forwarding node, even if clients may not read the version.

        Raises:
            NotServed: the version is not on this node.
        """
        found = next((held for held in self.versions if held.wire_id == identity), None)
        if found is None:
            raise NotServed(f"this node has no version of {self.name} with the requested identity", self._details())
        return found

    def choose(self, version: str | None, min_version: str | None) -> PublishedVersion:
        """Return the version that answers a request with these options.

        Raises:
            UnknownVersion: the request named a version that is not held.
            NotReady: there is no version yet, or none as new as asked, or clients may not read the version yet.
        """
        if version is not None:
            found = self._named(version)
            if min_version is not None and _older(version, min_version):
                raise UnknownVersion(
                    f"version {version} is older than min_version {min_version}",
                    self._details(version=version, min_version=min_version),
                )
            if not found.passed:
                raise self._not_ready(f"{version} is not ready for clients yet", version=version)
            return found
        if min_version is None:
            if self.active is None:
                raise NotReady(f"{self.name} has no version ready yet", self._details())
            return self.active
        candidates = self.versions if self.active is None else (self.active, *self.versions)
        for held in candidates:
            if held.standing and not _older(held.name, min_version):
                return held
        raise self._not_ready(f"has no version at or after {min_version} on this node yet", min_version=min_version)

    def _not_ready(self, words: str, **asked: str) -> NotReady:
        """Make the error for a version that clients have seen at another node, and that should arrive here soon."""
        return NotReady(f"{self.name} {words}", {**self._details(**asked), "coming": True})

    def go_on(self, version: str) -> PublishedVersion:
        """Return the version that a cursor pins: clients have read it here, or at a member that has it active.

        Raises:
            UnknownVersion: the version is not held.
            NotReady: clients may not read the version yet.
        """
        found = self._named(version)
        if not found.standing:
            raise NotReady(f"{self.name} {version} is not ready for clients yet", self._details(version=version))
        return found

    def _named(self, version: str) -> PublishedVersion:
        found = next((held for held in self.versions if held.name == version), None)
        if found is None:
            raise UnknownVersion(f"{self.name} has no version {version} on this node", self._details(version=version))
        return found

    def _details(self, **asked: str) -> dict[str, Detail]:
        held: list[Detail] = [version.name for version in self.versions]
        return {"database": self.name, **asked, "held": held, "active": self.active.name if self.active else None}


def _older(version: str, other: str) -> bool:
    return version.encode() < other.encode()


@final
@dataclass(frozen=True, slots=True)
class Published:
    """All databases that have a version here."""

    databases: Mapping[str, PublishedDatabase] = field(default_factory=dict)

    def table(self, lock: CoreLock | None = None, tables: Iterable[CalmTable] = ()) -> PublishedTable:
        """Make the table for the serving loop with core lock `lock` (None for the first), which pins the files.

        `tables`: the tables whose calm replicas the loop reads.
        """
        databases = (
            (
                name,
                None if database.active is None else database.active.name,
                [
                    (
                        held.name,
                        partitioner.code(held.function),
                        held.files_for(lock),
                        held.wire_id,
                        held.standing,
                        held.modified,
                    )
                    for held in database.versions
                ],
            )
            for name, database in self.databases.items()
        )
        return PublishedTable(databases, tables)


def publish(held: Iterable[tuple[HeldVersion, bool]]) -> Published:
    """Make the published data of these held versions; the flag marks the active version of its database."""
    versions: dict[str, list[PublishedVersion]] = {}
    active: dict[str, PublishedVersion] = {}
    for dataset, is_active in held:
        version = PublishedVersion(
            dataset.database,
            dataset.name,
            dataset.function,
            tuple(dataset.files),
            dataset.wire_id,
            passed=dataset.passed,
            source_ms=dataset.source_ms,
            active_elsewhere=dataset.active_elsewhere,
        )
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
