"""What the node serves at this moment, for Python and for the serving loop alike.

One `Published` is one moment: made from the library whenever that changes, never changed afterwards.  The loop reads
the same from its `PublishedTable`, so a request is judged alike on both sides.  The rule that chooses a version stands
here, where the errors are, and in `published.pxd`, where there are none; a test holds the two together.
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
    from gossipkv.serving._serving import Turn
    from gossipkv.storage.sorted_file import SortedFile


LATEST_MS: Final = 253_402_300_799_999  # The end of the year 9999, the last one that HTTP can say.


class HeldVersion(Protocol):
    """A built version, as the library holds it."""

    @property
    def files(self) -> Sequence[SortedFile | None]:
        """Its sorted files; None for a partition that is not here."""
        ...

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

    @property
    def wire_id(self) -> bytes | None:
        """What other nodes call it; None: no other has it."""
        ...

    @property
    def passed(self) -> bool:
        """Whether clients may have it."""
        ...

    @property
    def source_ms(self) -> int:
        """When the files were last touched that it was made from, since 1970; 0: nobody tells."""
        ...

    @property
    def active_elsewhere(self) -> bool:
        """Whether a member that lives has it active: then those clients may have it who ask for one as new."""
        ...


@final
@dataclass(frozen=True)
class PublishedVersion:
    """One version; `files[p]` is partition p, or None when it is not here.

    `wire_id` names it between nodes (None: no other node is asked); clients may have it once it has `passed`.
    """

    database: str
    name: str
    function: str
    files: tuple[SortedFile | None, ...]
    wire_id: bytes | None = None
    passed: bool = True
    source_ms: int = 0  # When it was last modified at its source, since 1970; 0: nobody knows.
    active_elsewhere: bool = False  # Who asks for one at least as new may have it, though it has not passed here.

    @property
    def standing(self) -> int:
        """Who may have it, in the serving loop's numbers."""
        return 1 if self.passed else 2 if self.active_elsewhere else 0

    @property
    def modified(self) -> bytes:
        """The line of HTTP that says when it was; empty where nobody knows, or HTTP cannot say it."""
        if not 0 < self.source_ms <= LATEST_MS:
            return b""
        return b"Last-Modified: %b\r\n" % http_date.write(self.source_ms // 1000)

    def files_for(self, turn: Turn | None) -> Sequence[SortedFile | None]:
        """The files as a pump reads them."""
        return self.files if turn is None else [file and file.twin_for(turn) for file in self.files]

    @cached_property
    def here(self) -> PartitionSet:
        """The partitions that are here."""
        return PartitionSet.of(len(self.files), (p for p, file in enumerate(self.files) if file is not None))

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

    def of_identity(self, identity: bytes) -> PublishedVersion:
        """The version of that identity, for a node that forwards: whether clients may have it does not matter here.

        Raises:
            NotServed: it is not on this node.
        """
        found = next((held for held in self.versions if held.wire_id == identity), None)
        if found is None:
            raise NotServed(f"no version of {self.name} here has that identity", self._details())
        return found

    def choose(self, version: str | None, min_version: str | None) -> PublishedVersion:
        """The version that answers a request with these options.

        Raises:
            UnknownVersion: exactly that one was asked for and is not held.
            NotReady: there is none yet, or none as new as asked, or clients may not have it yet.
        """
        if version is not None:
            found = self._named(version)
            if min_version is not None and _older(version, min_version):
                raise UnknownVersion(
                    f"version {version} is older than min_version {min_version}",
                    self._details(version=version, min_version=min_version),
                )
            if not found.passed:
                raise self._not_ready(f"{version} is not there for clients yet", version=version)
            return found
        if min_version is None:
            if self.active is None:
                raise NotReady(f"{self.name} has no version ready yet", self._details())
            return self.active
        candidates = self.versions if self.active is None else (self.active, *self.versions)
        for held in candidates:
            if held.standing and not _older(held.name, min_version):
                return held
        raise self._not_ready(f"has no version as new as {min_version} here yet", min_version=min_version)

    def _not_ready(self, words: str, **asked: str) -> NotReady:
        """What clients may have soon: they have seen it at another node, and this one has not heard of it yet."""
        return NotReady(f"{self.name} {words}", {**self._details(**asked), "coming": True})

    def go_on(self, version: str) -> PublishedVersion:
        """The version that a cursor is of: clients have had it, from this node or from a member that has it active.

        Raises:
            UnknownVersion: it is not held.
            NotReady: clients may not have it yet.
        """
        found = self._named(version)
        if not found.standing:
            raise NotReady(f"{self.name} {version} is not there for clients yet", self._details(version=version))
        return found

    def _named(self, version: str) -> PublishedVersion:
        found = next((held for held in self.versions if held.name == version), None)
        if found is None:
            raise UnknownVersion(f"{self.name} has no version {version} here", self._details(version=version))
        return found

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

    def table(self, turn: Turn | None = None) -> PublishedTable:
        """The same for the serving loop; it pins the files.  `turn`: for the pump whose that is."""
        return PublishedTable(
            (
                name,
                None if database.active is None else database.active.name,
                [
                    (
                        held.name,
                        partitioner.code(held.function),
                        held.files_for(turn),
                        held.wire_id,
                        held.standing,
                        held.modified,
                    )
                    for held in database.versions
                ],
            )
            for name, database in self.databases.items()
        )


def publish(held: Iterable[tuple[HeldVersion, bool]]) -> Published:
    """What is published when these versions are held; the flag marks the active one of its database."""
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
