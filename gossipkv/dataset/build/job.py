"""One build job: source files in, a directory with sorted files and a manifest out.

The plain function `steps.perform` executes the job without Trio.  The job runs the same in a node's child process
(`build_child`), in `gossipkv build`, and under the fault-injecting files of the tests.

Invariant: the manifest is written last, after every sorted file is durable.  A build that ends earlier leaves a
directory without a manifest, and the next build removes it.  Builds are never resumed: their input may have changed,
and reading it again is the smaller part of the cost.

Duplicates: files are read in the order of their names as bytes, and the last record of a key is served.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.source.files import SourceFile, newest_ms, partition_columns
from gossipkv.placement.identity import VersionIdentity
from gossipkv.settings.datasets import DatasetSettings
from gossipkv.storage.sorted_file import SUFFIX

if TYPE_CHECKING:
    from gossipkv.dataset.source.declared_partitions import Declared
    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.dataset.source.remote import RemoteRoot

# A sorted file takes up to 1.1 times its text.  While it is merged, the equally large sorted runs still exist.  Each
# partition adds a page or two of header, index and footer.
SPACE_FACTOR = 2.2
SPACE_PER_PARTITION_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class BuildJob:
    """The parameters of a build."""

    database: str
    version: str
    digest: str
    files: tuple[SourceFile, ...]
    directory: str  # The directory exists and is empty.
    partitions: int
    function: str | None = None  # None: the function that made the files, if it can be recognised.
    refuted: tuple[str, ...] = ()  # A stray refuted these functions for this digest; the build relies on none of them.
    follow: VersionIdentity | None = None  # The identity that other nodes, or earlier builds here, gave these files.
    compression: str = DatasetSettings.compression
    format: str | None = None  # None: detect the format from the files.
    reading: FileReading = field(default_factory=FileReading)
    wanted: tuple[int, ...] | None = None  # The partitions to build; None: all.
    # The rule for skipping a file of an unwanted partition is probe, declared or never.
    presharded: str = DatasetSettings.presharded
    declaration: SourceFile | None = None  # The file in which the source's job declares the partitions of each file.
    declared: Declared | None = None  # The content of the declaration, once read.
    remote: RemoteRoot | None = field(default=None, repr=False)  # None: the files are this machine's.

    @property
    def source_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def source_ms(self) -> int:
        """Return when the last of the files was modified."""
        return newest_ms(self.files)

    def identity(self, function: str, *, regrouped: bool) -> VersionIdentity:
        return VersionIdentity(self.database, self.version, self.digest, self.partitions, function, regrouped)

    def to_build(self) -> list[int]:
        return list(range(self.partitions)) if self.wanted is None else sorted(self.wanted)

    def wants(self, partition: int | None) -> bool:
        """True if the partition is built; a file without keys (None) is always wanted."""
        return partition is None or self.wanted is None or partition in self.wanted

    def may_skip(self, place: int, function: str) -> bool:
        """True if a trusted declaration says that this file holds nothing wanted under the function."""
        if self.presharded != "declared" or self.declared is None or self.declared.function != function:
            return False
        partitions = self.declared.of(self.files[place].name)
        return partitions is not None and not any(map(self.wants, partitions))

    def reading_of(self, file: SourceFile, files: SourceFiles) -> FileReading:
        """Return the options for reading a file, with the columns that its directories or its table name.

        Raises:
            SourceError, StorageError: the positions of its deleted rows cannot be read.
        """
        if file.table is not None:
            reading = replace(self.reading, partition=file.table.values)
            if not file.table.deleted:
                return reading
            from gossipkv.dataset.snapshots.deleted_rows import deleted_rows  # noqa: PLC0415  # It needs extras.

            return replace(reading, deleted=deleted_rows(files, file.table.deleted))
        return replace(self.reading, partition=partition_columns(file.name)) if "/" in file.name else self.reading

    def groups(self) -> list[int]:
        """Return the number of each partition's sorted file among those built, or -1."""
        numbers = {partition: number for number, partition in enumerate(self.to_build())}
        return [numbers.get(partition, -1) for partition in range(self.partitions)]

    @classmethod
    def of(
        cls,
        version: SourceVersion,
        directory: str,
        *,
        partitions: int | None = None,
        compression: str = DatasetSettings.compression,
        remote: RemoteRoot | None = None,
    ) -> BuildJob:
        """Make the job for a listed version, with its number of partitions unless `partitions` is given."""
        return cls(
            version.database,
            version.name,
            version.digest,
            version.files,
            directory,
            partitions or version.partitions,
            compression=compression,
            remote=remote,
            declaration=version.declaration,
        )


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Progress of a build, which reads everything and then writes everything."""

    read_bytes: int
    source_bytes: int
    read_records: int
    written_records: int

    @property
    def done(self) -> float:
        """Return the fraction done, from 0 to 1; writing counts for a third (measured: 0.3 to 0.4 of the time)."""
        read = min(1.0, self.read_bytes / self.source_bytes) if self.source_bytes else 1.0
        written = self.written_records / self.read_records if self.read_records else 0.0
        return (2 * read + min(1.0, written)) / 3


def space_needed_bytes(job: BuildJob) -> int:
    """Estimate the peak disk use of the build: an upper bound, unless text is compressed.

    The estimate is the built partitions' part of the source, as if all partitions were equally large; other records
    leave nothing on the disk.  Sorted files are copied.  Without a format, files that all end in our suffix count as
    sorted.
    """
    formats = {job.format} if job.format is not None else {PurePath(file.name).suffix for file in job.files}
    factor = 1 if formats in ({"sorted"}, {SUFFIX}) else SPACE_FACTOR
    built = len(job.to_build())
    return int(job.source_bytes * factor * built / job.partitions) + built * SPACE_PER_PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The order that the node sends to its child."""

    job: BuildJob
    memory_bytes: int  # The limit covers the whole process.
    bytes_per_second: int  # The value 0 means no limit.
    leash: int  # The program's descriptor of the leash.
    most_lanes: int = 1
