"""One build: source files in, a directory with sorted files and a manifest out.

This is a plain function over the seam, without Trio, so that it runs the same in a child process of a node
(`build_child`), in `gossipkv build`, and under the fault-injecting files of the tests.

The invariant: the manifest is written last, after every sorted file is durable.  Whatever ends the build before that,
the directory is a leftover without a manifest, and is removed by whoever begins the next one; a build is never
resumed halfway, since its input may have changed meanwhile and reading it again is the smaller part of the cost.

Which function the files were partitioned by is found out, not asked (`recognition`).  What was recognised is relied
upon until a key strays from it; then the next function that fits is tried, and when none is left the version is read
in full and grouped by Sequins' own.

Duplicates: files are read in the order of their names as bytes, and the last record of a key is served.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.dataset.adopt import NotAdoptable, take_over
from gossipkv.dataset.declared import Declared, read_declared
from gossipkv.dataset.formats.reading import Reading
from gossipkv.dataset.identity import Identity
from gossipkv.dataset.intake import Rule, Strayed, Taken, probes, take_in
from gossipkv.dataset.lane_intake import reading_of, taken_from
from gossipkv.dataset.lanes import LaneProgress, LaneTask, build_in_lanes, useful_lanes
from gossipkv.dataset.manifest import Manifest, PartitionFile, look, partition_name, write_manifest
from gossipkv.dataset.recognition import Recognition
from gossipkv.dataset.remote import REMOTE_BYTES, RemoteRoot, files_of
from gossipkv.dataset.source import SourceFile, SourceVersion
from gossipkv.dataset.source_reader import SourceReader
from gossipkv.dataset.survey import find_format, recognise_function
from gossipkv.errors import StorageError
from gossipkv.storage.builder import MIN_MEMORY_BYTES, SortedFileBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.dataset.source import SourceFiles
    from gossipkv.environment import Files
    from gossipkv.storage.builder import BuildReport

# The function by which we group what no function has made.
OWN_FUNCTION = "sequins"

# A sorted file takes up to 1.1 times its text, and while it is merged the sorted runs, as large again, are still
# there; each partition adds a page or two of header, index and footer.
SPACE_FACTOR = 2.2
SPACE_PER_PARTITION_BYTES = 64 << 10

# What the reader holds beside the builder: two chunks and the batch.
READER_BYTES = 10 << 20

# What is read of a file that is skipped by its first keys, at most.
SKIPPED_BYTES = 1 << 20


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
    compression: str = "none"
    format: str | None = None  # None: as the files look.
    reading: Reading = field(default_factory=Reading)
    wanted: tuple[int, ...] | None = None  # The partitions to build; None: all.
    presharded: str = "probe"  # Whether a file of an unwanted partition may be skipped: probe, declared, never.
    declaration: SourceFile | None = None  # The file in which the source's job says what each file holds,
    declared: Declared | None = None  # and what it says, once it is read.
    lanes: int = 1  # Processes that share the work, if there is enough of it (`lanes`).
    remote: RemoteRoot | None = field(default=None, repr=False)  # None: the files are this machine's.

    @property
    def source_bytes(self) -> int:
        """What there is to read."""
        return sum(file.size_bytes for file in self.files)

    def identity(self, function: str) -> Identity:
        """What the result is called."""
        return Identity(self.database, self.version, self.digest, self.partitions, function)

    def held(self) -> list[int]:
        """The partitions that are built, in order."""
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
        """For each partition the number of its sorted file among those built, or -1."""
        numbers = {partition: number for number, partition in enumerate(self.held())}
        return [numbers.get(partition, -1) for partition in range(self.partitions)]

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
            declaration=version.declaration,
        )

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> BuildJob:
        """Back from `to_json`."""
        fields = json.loads(line)
        fields["files"] = tuple(SourceFile.of(file) for file in fields["files"])
        fields["reading"] = Reading(**fields["reading"])
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
        """From 0 to 1; writing counts for a third (measured: 0.3 to 0.4 of the time)."""
        read = min(1.0, self.read_bytes / self.source_bytes) if self.source_bytes else 1.0
        written = self.written_records / self.read_records if self.read_records else 0.0
        return (2 * read + min(1.0, written)) / 3


def space_needed_bytes(job: BuildJob) -> int:
    """An upper estimate of what the build takes on the disk at its peak."""
    return int(job.source_bytes * SPACE_FACTOR) + job.partitions * SPACE_PER_PARTITION_BYTES


def reader_bytes(job: BuildJob, reading: Reading) -> int:
    """What reading holds beside the builder: a block with what it was made from, or the longest line, twice."""
    longest = max(reading.max_block_bytes, reading.max_value_bytes)
    largest = max((file.size_bytes for file in job.files), default=0)
    remote = REMOTE_BYTES if job.remote is not None else 0
    return READER_BYTES + longest + min(longest, largest) + remote


def perform(
    job: BuildJob,
    files: Files,
    *,
    origin: SourceFiles | None = None,
    memory_bytes: int,
    on_progress: Callable[[Progress], None] = lambda _: None,
    pace: Callable[[int], None] = lambda _: None,
    bytes_per_second: Callable[[], int] = lambda: 0,
) -> Manifest:
    """Builds; returns when the result is durable in `job.directory`.

    The source is read with `origin`; `memory_bytes` is the builder's, or that of all lanes' builders together.  `pace`
    gets each chunk's size, and may sleep; lanes share `bytes_per_second` instead, and use the system's own files.

    Raises:
        SourceError: a file is not of its format.
        SourceChanged: a file is not what it was when it was listed.
        StorageError: not enough space, or the system refused.
    """
    _check_space(job, files)
    origin = origin or files_of(job.remote, files)
    try:
        if job.format is None:
            job = replace(job, format=find_format(job, origin))
        job = replace(job, declared=_read_declaration(job, origin))
        attempt = _Attempt(job, files, origin, memory_bytes, on_progress, pace, bytes_per_second)
        manifest = _taken_over_or_built(job, attempt)
        write_manifest(files, Path(job.directory), manifest)
    except OSError as error:
        raise StorageError(
            f"{error.filename or job.directory}: cannot build {job.database}/{job.version}: {error.strerror}",
            {"file": str(error.filename or job.directory), "errno": error.errno},
        ) from error
    return manifest


def _taken_over_or_built(job: BuildJob, attempt: _Attempt) -> Manifest:
    """Our own sorted files need no building if they fit together; a key in a wrong one has them read after all."""
    recognition = None
    if job.format == "sorted":
        try:
            return take_over(
                job,
                attempt.files,
                attempt.origin,
                on_progress=lambda *state: attempt.on_progress(Progress(*state)),
                pace=attempt.pace,
            )
        except NotAdoptable as refusal:
            if refusal.claim is not None:
                recognition = Recognition((), nearly=refusal.claim)
    return _by_the_right_function(job, attempt, recognition or recognise_function(job, attempt.origin))


def _read_declaration(job: BuildJob, origin: SourceFiles) -> Declared | None:
    """What the source's job says of its files, if it is about as many partitions as are built."""
    if job.declaration is None:
        return None
    with SourceReader(origin, job.declaration) as reader:
        declared = read_declared(reader)
    return declared if declared.partitions == job.partitions else None


def _by_the_right_function(job: BuildJob, attempt: _Attempt, recognition: Recognition) -> Manifest:
    """Relies on what was recognised while it holds; else groups by the job's function, or by ours."""
    claims, strayed_from = recognition.claims, recognition.nearly
    while claims:
        try:
            return attempt(Rule(claims[0].function, claims, relies=True))
        except Strayed as error:
            strayed_from = claims[0]
            claims = tuple(claim for claim in claims if claim.function in error.possible)
    rule = Rule(job.function or OWN_FUNCTION, () if strayed_from is None else (strayed_from,))
    return attempt(rule)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Reads everything and writes the sorted files, by one rule."""

    job: BuildJob
    files: Files
    origin: SourceFiles
    memory_bytes: int
    on_progress: Callable[[Progress], None]
    pace: Callable[[int], None]
    bytes_per_second: Callable[[], int]

    def __call__(self, rule: Rule) -> Manifest:
        """What was built, durable but for its manifest.  Raises as `perform`, and Strayed."""
        job = self.job
        sizes = [self._bytes_to_read(place, rule) for place in range(len(job.files))]
        lanes = min(useful_lanes(sizes, job.lanes), self.memory_bytes // MIN_MEMORY_BYTES)
        taken, reports = self._in_lanes(rule, sizes, lanes) if lanes > 1 else self._alone(rule)
        self._tell_written(taken.records, taken.records)
        return _manifest(job, rule, taken, dict(zip(job.held(), reports, strict=True)), self.files)

    def _alone(self, rule: Rule) -> tuple[Taken, list[BuildReport]]:
        job = self.job
        read_bytes = read_records = 0

        def count_bytes(size_bytes: int) -> None:
            nonlocal read_bytes
            self.pace(size_bytes)
            read_bytes += size_bytes
            self.on_progress(Progress(read_bytes, job.source_bytes, read_records, 0))

        def count_records(records: int) -> None:
            nonlocal read_records
            read_records = records

        with SortedFileBuilder(
            Path(job.directory),
            [partition_name(partition) for partition in job.held()],
            files=self.files,
            memory_bytes=self.memory_bytes,
            compression=job.compression,
            metadata=[text.encode() for text in self._metadata(rule)],
            on_progress=self._tell_written,
        ) as builder:
            taken = take_in(
                job, range(len(job.files)), rule, builder, self.origin, pace=count_bytes, on_records=count_records
            )
            return taken, builder.finish()

    def _in_lanes(self, rule: Rule, sizes: list[int], lanes: int) -> tuple[Taken, list[BuildReport]]:
        job = self.job
        task = LaneTask(
            reading_of(job, rule),
            job.directory,
            tuple(partition_name(partition) for partition in job.held()),
            self.memory_bytes,
            job.compression,
            tuple(self._metadata(rule)),
        )

        def tell(state: LaneProgress) -> None:
            self.on_progress(Progress(state.read_bytes, job.source_bytes, state.read_records, state.written_records))

        result = build_in_lanes(
            task, sizes, lanes, self.files, on_progress=tell, bytes_per_second=self.bytes_per_second
        )
        taken = Taken()
        for counters in result.counters:
            taken += taken_from(counters)
        return taken, result.reports

    def _metadata(self, rule: Rule) -> list[str]:
        """What each sorted file says of itself."""
        identity = asdict(self.job.identity(rule.function))
        return [json.dumps(identity | {"partition": partition}, sort_keys=True) for partition in self.job.held()]

    def _bytes_to_read(self, place: int, rule: Rule) -> int:
        """About how much of a file is read."""
        job, size_bytes = self.job, self.job.files[place].size_bytes
        skipped = job.may_skip(place, rule.function) or probes(job, rule, place)
        return min(size_bytes, SKIPPED_BYTES) if skipped else size_bytes

    def _tell_written(self, done: int, total: int) -> None:
        self.on_progress(Progress(self.job.source_bytes, self.job.source_bytes, total, done))


def _manifest(job: BuildJob, rule: Rule, taken: Taken, reports: Mapping[int, BuildReport], files: Files) -> Manifest:
    built: list[PartitionFile | None] = [None] * job.partitions
    for partition, report in reports.items():
        name = partition_name(partition)
        size_bytes, seal = look(files, Path(job.directory) / name)
        built[partition] = PartitionFile(name, report.records, report.duplicates, size_bytes, seal)
    alike: tuple[str, ...] = (rule.function,)
    if rule.relies:
        alike = tuple(claim.function for claim, strays in zip(rule.claims, taken.strays, strict=True) if not strays)
    voided = rule.claims[0].function if rule.claims and not rule.relies else None
    return Manifest(
        job.identity(rule.function),
        len(job.files),
        job.source_bytes,
        job.compression,
        tuple(built),
        format=job.format or "tsv",
        alike=alike,
        voided=voided,
        strays=0 if voided is None else taken.strays[0],
        first_stray=taken.first_stray,
    )


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
