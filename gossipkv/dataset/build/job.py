"""One build: source files in, a directory with sorted files and a manifest out.

It is performed by a plain function over the seam, without Trio (`steps.perform`), so that it runs the same in a
child process of a node (`child`), in `gossipkv build`, and under the fault-injecting files of the tests.

The invariant: the manifest is written last, after every sorted file is durable.  Whatever ends the build before that,
the directory is a leftover without a manifest, and is removed by whoever begins the next one; a build is never
resumed halfway, since its input may have changed meanwhile and reading it again is the smaller part of the cost.

Duplicates: files are read in the order of their names as bytes, and the last record of a key is served.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.reading import Reading
from gossipkv.dataset.source.declared_partitions import Declared
from gossipkv.dataset.source.files import SourceFile, newest_ms
from gossipkv.dataset.source.remote import RemoteRoot
from gossipkv.placement.identity import Identity
from gossipkv.settings.datasets import DatasetSettings
from gossipkv.storage.sorted_file import SUFFIX

if TYPE_CHECKING:
    from gossipkv.dataset.source.listing import SourceVersion

# A sorted file takes up to 1.1 times its text, and while it is merged the sorted runs, as large again, are still
# there; each partition adds a page or two of header, index and footer.
SPACE_FACTOR = 2.2
SPACE_PER_PARTITION_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Everything that a build needs to know."""

    database: str
    version: str
    digest: str
    files: tuple[SourceFile, ...]
    directory: str  # Exists and is empty.
    partitions: int
    function: str | None = None  # None: the one that made the files, if that can be told.
    refuted: tuple[str, ...] = ()  # Functions that a stray has refuted for this digest: none of them is relied on.
    follow: Identity | None = None  # What other nodes have made of these files, or what is here of them already.
    compression: str = DatasetSettings.compression
    format: str | None = None  # None: as the files look.
    reading: Reading = field(default_factory=Reading)
    wanted: tuple[int, ...] | None = None  # The partitions to build; None: all.
    # Whether a file of an unwanted partition may be skipped: probe, declared, never.
    presharded: str = DatasetSettings.presharded
    declaration: SourceFile | None = None  # The file in which the source's job says what each file holds,
    declared: Declared | None = None  # and what it says, once it is read.
    remote: RemoteRoot | None = field(default=None, repr=False)  # None: the files are this machine's.

    @property
    def source_bytes(self) -> int:
        """What there is to read."""
        return sum(file.size_bytes for file in self.files)

    @property
    def source_ms(self) -> int:
        """When the last of the files was touched."""
        return newest_ms(self.files)

    def identity(self, function: str, *, regrouped: bool) -> Identity:
        """What the result is called."""
        return Identity(self.database, self.version, self.digest, self.partitions, function, regrouped)

    def to_build(self) -> list[int]:
        """Return the partitions that are to be built, in order."""
        return list(range(self.partitions)) if self.wanted is None else sorted(self.wanted)

    def wants(self, partition: int | None) -> bool:
        """Whether a partition is built; a file without keys is always wanted."""
        return partition is None or self.wanted is None or partition in self.wanted

    def may_skip(self, place: int, function: str) -> bool:
        """Whether the source's job says that this file holds nothing wanted under the function, and is trusted."""
        if self.presharded != "declared" or self.declared is None or self.declared.function != function:
            return False
        held = self.declared.of(self.files[place].name)
        return held is not None and not any(map(self.wants, held))

    def groups(self) -> list[int]:
        """Return for each partition the number of its sorted file among those built, or -1."""
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
        """The job that builds a listed version; as many partitions as it has files unless told."""
        return cls(
            version.database,
            version.name,
            version.digest,
            version.files,
            directory,
            partitions or len(version.files),
            compression=compression,
            remote=remote,
            declaration=version.declaration,
        )

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> BuildJob:
        """Return what `to_json` was called on."""
        fields = json.loads(line)
        fields["files"] = tuple(SourceFile.of(file) for file in fields["files"])
        fields["reading"] = Reading(**fields["reading"])
        fields["refuted"] = tuple(fields["refuted"])
        if fields["follow"] is not None:
            fields["follow"] = Identity(**fields["follow"])
        if fields["wanted"] is not None:
            fields["wanted"] = tuple(fields["wanted"])
        if fields["declaration"] is not None:
            fields["declaration"] = SourceFile.of(fields["declaration"])
        if fields["declared"] is not None:
            fields["declared"] = Declared.of_fields(fields["declared"])
        remote = fields["remote"]
        fields["remote"] = None if remote is None else RemoteRoot(**remote)
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.  It reads everything, then writes everything."""

    read_bytes: int
    source_bytes: int
    read_records: int
    written_records: int

    @property
    def done(self) -> float:
        """Return how far it is, from 0 to 1; writing counts for a third (measured: 0.3 to 0.4 of the time)."""
        read = min(1.0, self.read_bytes / self.source_bytes) if self.source_bytes else 1.0
        written = self.written_records / self.read_records if self.read_records else 0.0
        return (2 * read + min(1.0, written)) / 3


def space_needed_bytes(job: BuildJob) -> int:
    """An estimate of what the build takes on the disk at its peak: an upper one, unless text is compressed.

    It is that part of the source that the built partitions are, as if all were of one size: whatever else is read
    leaves nothing on the disk.  Sorted files are copied.  Names mean nothing, but that many that end as ours do are
    hardly anything else.
    """
    told = {job.format} if job.format is not None else {PurePath(file.name).suffix for file in job.files}
    factor = 1 if told in ({"sorted"}, {SUFFIX}) else SPACE_FACTOR
    built = len(job.to_build())
    return int(job.source_bytes * factor * built / job.partitions) + built * SPACE_PER_PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class Order:
    """What the node tells its child."""

    job: BuildJob
    memory_bytes: int  # for the whole process
    bytes_per_second: int  # 0: as fast as it goes
    leash: int  # The descriptor of the program's.
    most_lanes: int = 1

    def to_line(self) -> bytes:
        """One line of JSON."""
        order = [self.job.to_json(), self.memory_bytes, self.bytes_per_second, self.leash, self.most_lanes]
        return json.dumps(order).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Return what `to_line` was called on."""
        job, *means = json.loads(line)
        return cls(BuildJob.from_json(job), *means)
