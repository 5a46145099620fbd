"""One build: source files in, a directory with sorted files and a manifest out.

This is a plain function over the seam, without Trio, so that it runs the same in a child process of a node
(`build_child`), in `gossipkv build`, and under the fault-injecting files of the tests.

The invariant: the manifest is written last, after every sorted file is durable.  Whatever ends the build before that,
the directory is a leftover without a manifest, and is removed by whoever begins the next one; a build is never
resumed halfway, since its input may have changed meanwhile and reading it again is the smaller part of the cost.

Duplicates: files are read in the order of their names as bytes, and the last record of a key is served.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.dataset import tab_separated
from gossipkv.dataset.identity import Identity
from gossipkv.dataset.manifest import Manifest, PartitionFile, look, partition_name, write_manifest
from gossipkv.dataset.remote import REMOTE_BYTES, RemoteRoot, files_of
from gossipkv.dataset.source import SourceFile, SourceFiles, SourceVersion
from gossipkv.dataset.source_reader import SourceReader
from gossipkv.errors import StorageError
from gossipkv.keyspace.partitioner import hash_function
from gossipkv.storage.builder import SortedFileBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.environment import Files

# A sorted file takes up to 1.1 times its text, and while it is merged the sorted runs, as large again, are still
# there; each partition adds a page or two of header, index and footer.
SPACE_FACTOR = 2.2
SPACE_PER_PARTITION_BYTES = 64 << 10

# What the reader holds beside the builder: two chunks and the lines of one, as objects.
READER_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Everything that a build needs to know."""

    database: str
    version: str
    digest: str
    files: tuple[SourceFile, ...]
    directory: str  # Exists and is empty.
    partitions: int
    function: str = "sequins"
    compression: str = "none"
    remote: RemoteRoot | None = field(default=None, repr=False)  # None: the files are this machine's.

    @property
    def source_bytes(self) -> int:
        """What there is to read."""
        return sum(file.size_bytes for file in self.files)

    @property
    def identity(self) -> Identity:
        """What the result is called."""
        return Identity(self.database, self.version, self.digest, self.partitions, self.function)

    @classmethod
    def of(
        cls,
        version: SourceVersion,
        directory: str,
        *,
        partitions: int | None = None,
        compression: str = "none",
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
        )

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> BuildJob:
        """Back from `to_json`."""
        fields = json.loads(line)
        fields["files"] = tuple(SourceFile.of(file) for file in fields["files"])
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
        """From 0 to 1; writing counts for a third (measured: 0.3 to 0.4 of the time)."""
        read = self.read_bytes / self.source_bytes if self.source_bytes else 1.0
        written = self.written_records / self.read_records if self.read_records else 0.0
        return (2 * read + min(1.0, written)) / 3


def space_needed_bytes(job: BuildJob) -> int:
    """An upper estimate of what the build takes on the disk at its peak."""
    return int(job.source_bytes * SPACE_FACTOR) + job.partitions * SPACE_PER_PARTITION_BYTES


def reader_bytes(job: BuildJob, max_value_bytes: int) -> int:
    """What reading holds beside the builder: grows with the longest line, which no file exceeds."""
    longest = min(max_value_bytes, max((file.size_bytes for file in job.files), default=0))
    return READER_BYTES + 2 * longest + (REMOTE_BYTES if job.remote is not None else 0)


def perform(
    job: BuildJob,
    files: Files,
    *,
    origin: SourceFiles | None = None,
    memory_bytes: int,
    max_value_bytes: int = tab_separated.MAX_VALUE_BYTES,
    on_progress: Callable[[Progress], None] = lambda _: None,
    pace: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Builds; returns when the result is durable in `job.directory`.

    The source is read with `origin`; `memory_bytes` is the builder's; `pace` gets each chunk's size, and may sleep.

    Raises:
        SourceError: a line of a file is no record.
        SourceChanged: a file is not what it was when it was listed.
        StorageError: not enough space, or the system refused.
    """
    _check_space(job, files)
    read_bytes = read_records = 0
    origin = origin or files_of(job.remote, files)

    def counted(file: SourceFile) -> Iterator[bytes]:
        nonlocal read_bytes
        with SourceReader(origin, file, pace=pace) as reader:
            for chunk in reader.chunks():
                read_bytes += len(chunk)
                yield chunk
                on_progress(Progress(read_bytes, job.source_bytes, read_records, 0))

    def written(done: int, total: int) -> None:
        on_progress(Progress(read_bytes, job.source_bytes, total, done))

    names = [partition_name(partition) for partition in range(job.partitions)]
    hash_of, count = hash_function(job.function), job.partitions
    try:
        with SortedFileBuilder(
            Path(job.directory),
            names,
            files=files,
            memory_bytes=memory_bytes,
            compression=job.compression,
            metadata=json.dumps(asdict(job.identity), sort_keys=True).encode(),
            on_progress=written,
        ) as builder:
            add = builder.add
            for file in job.files:
                for key, value in tab_separated.records(counted(file), file.path, max_value_bytes=max_value_bytes):
                    add(key, value, (hash_of(key) & 0x7FFFFFFF) % count)
                    read_records += 1
            reports = builder.finish()
        written(read_records, read_records)
        manifest = Manifest(
            job.identity,
            len(job.files),
            job.source_bytes,
            job.compression,
            tuple(
                PartitionFile(name, report.records, report.duplicates, *look(files, Path(job.directory) / name))
                for name, report in zip(names, reports, strict=True)
            ),
        )
        write_manifest(files, Path(job.directory), manifest)
    except OSError as error:
        raise StorageError(
            f"{error.filename or job.directory}: cannot build {job.database}/{job.version}: {error.strerror}",
            {"file": str(error.filename or job.directory), "errno": error.errno},
        ) from error
    return manifest


def _check_space(job: BuildJob, files: Files) -> None:
    needed = space_needed_bytes(job)
    try:
        free = files.free_bytes(job.directory)
    except OSError as error:
        raise StorageError(f"{job.directory}: {error.strerror}", {"file": job.directory}) from error
    if free < needed:
        raise StorageError(
            f"{job.directory}: not enough space to build {job.database}/{job.version}: about {needed:,} bytes are "
            f"needed while it is built, {free:,} are free",
            {"file": job.directory, "needed_bytes": needed, "free_bytes": free},
        )
