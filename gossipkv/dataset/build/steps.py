"""The steps of a build: recognise the files, group their records by the right function, and write sorted files.

The partition function is recognised from the files (`recognition`).  Where the files leave it open, the build follows
the identity that other nodes published.  A recognised function is relied upon until a key strays.  The build then tries
the next function that fits, and finally reads everything and groups by Sequins' own function.  The identity of the
version says which happened.  The manifest lists the refuted functions, for nodes that do not read the stray's file.

One lane does everything, or several share reading and writing (`lanes`); the files are the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.dataset.build.adopt import NotAdoptable, take_over
from gossipkv.dataset.build.job import BuildProgress, space_needed_bytes
from gossipkv.dataset.build.lanes import LaneProgress, LaneTask, build_in_lanes, useful_lanes
from gossipkv.dataset.build.reading_in import Rule, Strayed, probes, take_in
from gossipkv.dataset.build.recognition import Recognition, find_format, recognise_function
from gossipkv.dataset.formats import tsv_signs
from gossipkv.dataset.local.manifest import PartitionFile, VersionManifest, partition_name, write_manifest
from gossipkv.dataset.source.declared_partitions import Declared, read_declared
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.dataset.source.remote import announced, files_of
from gossipkv.errors import SourceError, StorageError
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.label import look_at_seal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.build.reading_in import ReadingResult
    from gossipkv.dataset.formats.reading import FileReading
    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.environment.seam import Files
    from gossipkv.storage.builder import BuildReport, LaneBuilder

# Upper bound of the bytes read from a file that is skipped by its first keys.
SKIPPED_BYTES = 1 << 20

# Groups files that no known function has made.
OWN_FUNCTION = "sequins"


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads that share a build, and their memory."""

    count: int
    memory_bytes: int  # All their builders share this.
    reading: FileReading  # The limits of a lane may be below those of a build in one lane.


@dataclass(frozen=True, slots=True)
class BuildResources:
    """The memory, threads, pace and progress callback of a build."""

    memory_bytes: int  # The builder of a single lane gets this.
    lanes: Lanes | None = None
    on_progress: Callable[[BuildProgress], None] = lambda _: None
    pace: Callable[[int], None] = lambda _: None  # Gets the size of each piece before its use, and may sleep.


def perform(
    job: BuildJob, files: Files, resources: BuildResources, *, origin: SourceFiles | None = None
) -> VersionManifest:
    """Build the job; return its manifest when the result is durable in `job.directory`.

    Every lane reads the source with `origin`, by default with the files that the job names.

    Raises:
        SourceError: a file is not of its format.
        SourceChanged: a file differs from when it was listed.
        StorageError: not enough space, or the system refused.
    """
    _check_space(job, files)
    origin = origin or announced(files_of(job.remote, files), job.files)
    try:
        job = with_format(job, origin)
        job = replace(job, declared=read_declaration(job, origin))
        manifest = _adopt_or_build(job, _Attempt(job, files, origin, resources, job.source_bytes))
        manifest = replace(manifest, warnings=manifest.warnings + doubts(job, origin))
        write_manifest(files, Path(job.directory), manifest)
    except OSError as error:
        raise StorageError(
            f"{error.filename or job.directory}: {job.database}/{job.version} cannot be built: {error.strerror}",
            {"file": str(error.filename or job.directory), "errno": error.errno},
        ) from error
    return manifest


def with_format(job: BuildJob, origin: SourceFiles) -> BuildJob:
    """Return the job with the detected format, if it names none.  Raises the reader's errors."""
    return job if job.format is not None else replace(job, format=find_format(job, origin))


def doubts(job: BuildJob, origin: SourceFiles) -> tuple[str, ...]:
    """Return the doubts about the source, from its first file that has any bytes."""
    file = next((file for file in job.files if file.size_bytes), None)
    if job.format != "tsv" or file is None:
        return ()
    with SourceReader(origin, file) as reader:
        found = tsv_signs.signs(reader, job.reading)
    return (f"{file.path}: {'; '.join(found)}; {tsv_signs.ADVICE}",) if found else ()


def _adopt_or_build(job: BuildJob, attempt: _Attempt) -> VersionManifest:
    """Adopt our own sorted files if they fit together; otherwise read everything."""
    recognition, refuted = None, set(job.refuted)
    if job.format == "sorted":
        try:
            return take_over(
                job,
                attempt.files,
                attempt.origin,
                on_progress=lambda *state: attempt.resources.on_progress(BuildProgress(*state)),
                pace=attempt.resources.pace,
            )
        except NotAdoptable as refusal:
            if refusal.claim is not None:
                recognition = Recognition((), nearly=refusal.claim)
                refuted.add(refusal.claim.function)
    return _build_by_function(job, attempt, recognition or recognise_function(job, attempt.origin), refuted)


def read_declaration(job: BuildJob, origin: SourceFiles) -> Declared | None:
    """Return the declaration of the source's job, if it names as many partitions as the build."""
    if job.declaration is None:
        return None
    with SourceReader(origin, job.declaration) as reader:
        declared = read_declared(reader)
    return declared if declared.partitions == job.partitions else None


def _build_by_function(
    job: BuildJob, attempt: _Attempt, recognition: Recognition, refuted: set[str]
) -> VersionManifest:
    """Rely on the recognised function while it holds; otherwise group by the job's function, or by ours."""
    if job.follow is not None and job.follow.partitions == job.partitions:
        recognition = recognition.towards(job.follow)
    recognition = recognition.without(refuted)
    while claims := recognition.claims:
        fitting = {claim.function for claim in claims}
        try:
            manifest = attempt(Rule(claims[0].function, claims, relies=True))
        except Strayed as error:
            refuted |= fitting - set(error.possible)
            recognition = recognition.without(refuted)
            assert len(recognition.claims) < len(claims), refuted
        else:
            return replace(manifest, refuted=tuple(sorted(refuted | (fitting - set(manifest.alike)))))
    strayed_from = recognition.nearly
    rule = Rule(job.function or OWN_FUNCTION, () if strayed_from is None else (strayed_from,))
    return replace(attempt(rule), refuted=tuple(sorted(refuted)))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Reads everything and writes the sorted files, by one rule."""

    job: BuildJob
    files: Files
    origin: SourceFiles
    resources: BuildResources
    source_bytes: int  # Kept here, since summing over the job at each step would be quadratic in the number of files.

    def __call__(self, rule: Rule) -> VersionManifest:
        """Build by the rule; all but the manifest is durable.  Raises as `perform`, and Strayed."""
        result, reports = self._in_lanes(rule) or self._in_one_lane(rule)
        self._report_written(result.records, result.records)
        return _manifest(self.job, rule, result, dict(zip(self.job.to_build(), reports, strict=True)), self.files)

    def _in_lanes(self, rule: Rule) -> tuple[ReadingResult, list[BuildReport]] | None:
        """Build in several lanes; None if there is little to do, or a lane's memory is too small."""
        lanes, job = self.resources.lanes, self.job
        sizes = [self._bytes_to_read(place, rule) for place in range(len(job.files))]
        count = 1 if lanes is None else useful_lanes(sizes, lanes.count)
        if lanes is None or count == 1:
            return None
        labels = [label.encode() for label in self._labels(rule)]
        task = LaneTask(job.directory, self._names(), lanes.memory_bytes, job.compression, labels)
        shorter = replace(job, reading=lanes.reading)

        def read(
            places: range, builder: LaneBuilder, pace: Callable[[int], None], on_records: Callable[[int], None]
        ) -> ReadingResult:
            origin = announced(files_of(job.remote, self.files), [job.files[place] for place in places])
            return take_in(shorter, places, rule, builder, origin, pace=pace, on_records=on_records)

        def tell(state: LaneProgress) -> None:
            self.resources.on_progress(
                BuildProgress(state.read_bytes, self.source_bytes, state.read_records, state.written_records)
            )

        try:
            result = build_in_lanes(task, read, sizes, count, self.files, on_progress=tell, pace=self.resources.pace)
        except SourceError:
            if lanes.reading == job.reading:
                raise
            # A value was perhaps too long for a lane's memory; if not, the same error comes again in one lane.
            return None
        return reduce(add, result.counted), result.reports

    def _in_one_lane(self, rule: Rule) -> tuple[ReadingResult, list[BuildReport]]:
        job, resources = self.job, self.resources
        read_bytes = read_records = 0

        def count_bytes(size_bytes: int) -> None:
            nonlocal read_bytes
            resources.pace(size_bytes)
            read_bytes += size_bytes
            resources.on_progress(BuildProgress(read_bytes, self.source_bytes, read_records, 0))

        def count_records(records: int) -> None:
            nonlocal read_records
            read_records = records

        with SortedFileBuilder(
            job.directory,
            self._names(),
            files=self.files,
            memory_bytes=resources.memory_bytes,
            compression=job.compression,
            metadata=[label.encode() for label in self._labels(rule)],
            on_progress=self._report_written,
        ) as builder:
            every = range(len(job.files))
            result = take_in(job, every, rule, builder, self.origin, pace=count_bytes, on_records=count_records)
            return result, builder.finish()

    def _names(self) -> list[str]:
        return [partition_name(partition) for partition in self.job.to_build()]

    def _labels(self, rule: Rule) -> list[str]:
        identity = asdict(self.job.identity(rule.function, regrouped=not rule.relies))
        return [json.dumps(identity | {"partition": partition}, sort_keys=True) for partition in self.job.to_build()]

    def _bytes_to_read(self, place: int, rule: Rule) -> int:
        job, size_bytes = self.job, self.job.files[place].size_bytes
        skipped = job.may_skip(place, rule.function) or probes(job, rule, place)
        return min(size_bytes, SKIPPED_BYTES) if skipped else size_bytes

    def _report_written(self, done: int, total: int) -> None:
        self.resources.on_progress(BuildProgress(self.source_bytes, self.source_bytes, total, done))


def _manifest(
    job: BuildJob, rule: Rule, result: ReadingResult, reports: Mapping[int, BuildReport], files: Files
) -> VersionManifest:
    built: list[PartitionFile | None] = [None] * job.partitions
    for partition, report in reports.items():
        name = partition_name(partition)
        size_bytes, seal = look_at_seal(files, Path(job.directory) / name)
        built[partition] = PartitionFile(name, report.records, report.duplicates, size_bytes, seal)
    alike: tuple[str, ...] = (rule.function,)
    if rule.relies:
        alike = tuple(claim.function for claim, strays in zip(rule.claims, result.strays, strict=True) if not strays)
    voided = rule.claims[0].function if rule.claims and not rule.relies else None
    return VersionManifest(
        job.identity(rule.function, regrouped=not rule.relies),
        len(job.files),
        job.source_bytes,
        job.compression,
        tuple(built),
        format=job.format or "tsv",
        alike=alike,
        voided=voided,
        strays=0 if voided is None else result.strays[0],
        first_stray=result.first_stray,
        source_ms=job.source_ms,
        warnings=result.doubts,
    )


def _check_space(job: BuildJob, files: Files) -> None:
    needed = space_needed_bytes(job)
    try:
        free = files.free_bytes(job.directory)
    except OSError as error:
        raise StorageError(
            f"{job.directory}: the free space cannot be read: {error.strerror}", {"file": job.directory}
        ) from error
    if free < needed:
        raise StorageError(
            f"{job.directory}: the disk has too little space to build {job.database}/{job.version}: about {needed:,} "
            f"bytes are needed, {free:,} bytes are free",
            {"file": job.directory, "needed_bytes": needed, "free_bytes": free},
        )
