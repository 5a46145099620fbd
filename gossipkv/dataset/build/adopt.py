"""Adoption: take over a version that consists of our own sorted files instead of building it again.

`write_partition` and `gossipkv build` label each sorted file with its partition, the number of partitions and the
function.  If the files fit together (one function, one number, each partition once), a node copies and checks them.

Invariant: an adopted file is as good as one built here.  Every page's checksum holds, keys ascend, and every key
belongs to its partition.  Checksums alone do not show that the writer was right.  The check costs some 30 ns a record.
Unfit files raise NotAdoptable and are read in full.  A missing partition, or builds that disagree about a stray, raise
SourceError.  `copy_range` shares blocks where the file system can.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.build import recognition
from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.formats.sorted_files import PIECE_BYTES, Placement, walk
from gossipkv.dataset.local.manifest import PartitionFile, Stray, VersionManifest, partition_name
from gossipkv.dataset.local.partition import PartitionClaim, claim_of, refuse_strayed
from gossipkv.dataset.source.reader import READ_SOURCE, SourceReader
from gossipkv.environment.seam import READ, WRITE_NEW
from gossipkv.errors import Corrupt, LocalError, SourceError
from gossipkv.keyspace import partitioner
from gossipkv.storage.label import CheckedBody, OpenFile, read_label
from gossipkv.storage.sorted_file import SortedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.environment.seam import Files
    from gossipkv.storage.batch import RecordBatch
    from gossipkv.storage.label import Label, RandomAccess

    Opener = Callable[[SourceFile], AbstractContextManager[RandomAccess]]

# Copy this much at once: long enough to share blocks well, short enough to be paced and reported.
RANGE_BYTES: Final = 16 << 20

# `copy_range` fails with these where it is not supported: other file systems, old kernels.
_CANNOT_COPY: Final = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})

_MAX_NAMED: Final = 5


class NotAdoptable(LocalError):
    """The files are sound but do not make a version as they are; they must be read in full."""

    def __init__(self, reason: str, stray: Stray | None = None, claim: recognition.Claim | None = None) -> None:
        super().__init__(reason)
        self.stray = stray
        self.claim = claim  # The labels' claim, set if a key strays from it.


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """Files that fit together: `files[i]` holds partition i."""

    function: str
    compression: str  # The value is "mixed" if the files differ.
    files: tuple[tuple[SourceFile, Label], ...]

    @property
    def partitions(self) -> int:
        return len(self.files)

    def claim(self, listed: Sequence[SourceFile]) -> recognition.Claim:
        """Return the claim that the labels make, with partitions in the order of `listed`."""
        held = {file.path: partition for partition, (file, _) in enumerate(self.files)}
        return recognition.Claim(self.function, tuple(held[file.path] for file in listed))


def take_over(
    job: BuildJob,
    files: Files,
    origin: SourceFiles,
    *,
    on_progress: Callable[[int, int, int, int], None] = lambda *_: None,
    pace: Callable[[int], None] = lambda _: None,
) -> VersionManifest:
    """Adopt the job's sorted files and return their manifest; everything is durable but the manifest.

    Raises:
        NotAdoptable: the files must be read in full; after a stray, `claim` is the claim that the key strays from.
        SourceError, SourceChanged, Corrupt, UnsupportedFormat, StorageError, OSError: as `plan_adoption` and `adopt`.
    """
    open_reader = partial(SourceReader, origin, pace=pace)
    plan = plan_adoption(job.files, open_reader)
    if plan.partitions != job.partitions or job.function not in {None, plan.function}:
        requested = f"{job.partitions} partitions by {job.function or plan.function!r}"
        raise NotAdoptable(
            f"the files have {plan.partitions} partitions by {plan.function!r}; this build needs {requested}"
        )
    if plan.function in job.refuted:
        raise NotAdoptable(
            f"some keys are not in the partition that {plan.function!r} gives them", claim=plan.claim(job.files)
        )
    try:
        adopted = adopt(
            plan, open_reader, files, PurePath(job.directory), wanted=job.wanted, on_progress=on_progress, pace=pace
        )
    except NotAdoptable as refusal:
        refusal.claim = plan.claim(job.files)
        raise
    return VersionManifest(
        job.identity(plan.function, regrouped=False),
        len(job.files),
        job.source_bytes,
        plan.compression,
        adopted,
        format="sorted",
        alike=(plan.function,),
        source_ms=job.source_ms,
        refuted=tuple(sorted(job.refuted)),
    )


def plan_adoption(listed: Sequence[SourceFile], open_reader: Opener) -> AdoptionPlan:
    """Plan how the files fit together, by their labels alone; this takes a few small reads per file.

    Raises:
        NotAdoptable: the files must be read in full.
        SourceError: a partition is missing, or some builds met a stray and others relied on there being none.
        Corrupt, UnsupportedFormat: a file is no whole sorted file.
    """
    found: dict[tuple[str, int], dict[int, list[tuple[SourceFile, Label]]]] = {}
    claims: dict[str, PartitionClaim] = {}
    unclaimed = None
    for file in listed:
        with open_reader(file) as reader:
            label = read_label(reader)
        claim = claim_of(label)
        if claim is None:
            unclaimed = label.name
            continue
        claims[label.name] = claim
        found.setdefault((claim.function, claim.partitions), {}).setdefault(claim.partition, []).append((file, label))
    refuse_strayed(claims)
    for (function, partitions), held in found.items():
        _refuse_missing(function, partitions, held)
    if unclaimed is not None:
        raise NotAdoptable(f"{unclaimed}: the file does not name its partition")
    if len(found) > 1:
        schemes = " and ".join(f"{partitions} partitions by {function!r}" for function, partitions in found)
        raise NotAdoptable(f"the {len(listed)} files are partitioned in different ways: {schemes}")
    for (function, _), held in found.items():
        for partition, files in held.items():
            if len(files) > 1:
                names = " and ".join(label.name for _, label in files[:_MAX_NAMED])
                raise NotAdoptable(f"{names} hold the same partition {partition}")
        ordered = tuple(held[partition][0] for partition in range(len(held)))
        compressions = {label.compression for _, label in ordered}
        return AdoptionPlan(function, compressions.pop() if len(compressions) == 1 else "mixed", ordered)
    raise NotAdoptable("the version has no files")


def _refuse_missing(function: str, partitions: int, held: dict[int, list[tuple[SourceFile, Label]]]) -> None:
    missing = [partition for partition in range(partitions) if partition not in held]
    if not missing:
        return
    shown = ", ".join(map(str, missing[:_MAX_NAMED])) + (
        f" and {len(missing) - _MAX_NAMED:,} more" * (len(missing) > _MAX_NAMED)
    )
    example = next(iter(held.values()))[0][1].name
    reason = (
        f"this file is one of {partitions} partitions by {function!r}; "
        f"{'partitions' if len(missing) > 1 else 'partition'} {shown} "
        f"{'are' if len(missing) > 1 else 'is'} missing beside it; check that every task of the job has ended"
    )
    raise SourceError(f"{example}: {reason}", {"file": example, "reason": reason})


def adopt(
    plan: AdoptionPlan,
    open_reader: Opener,
    files: Files,
    directory: PurePath,
    *,
    wanted: Collection[int] | None = None,
    on_progress: Callable[[int, int, int, int], None] = lambda *_: None,
    pace: Callable[[int], None] = lambda _: None,
) -> tuple[PartitionFile | None, ...]:
    """Copy the files of the wanted partitions into a build's directory and check them; return when they are durable.

    The index of a returned file is its partition; None stands for one that was not wanted.  If the function raises, the
    directory is as it was before.  The caller writes the manifest.

    Args:
        plan: from `plan_adoption`.
        open_reader: opens a file of the source; leaving its context raises if the file changed.
        files: the file operations to use.
        directory: the build's directory.
        wanted: the partitions to take over; None: all.
        on_progress: called with (bytes copied, bytes to copy, records in total, records checked).
        pace: called with the size of each copy before it starts, and may sleep; a reader paces its own reads.

    Raises:
        NotAdoptable: a key is in a partition that is not its own.
        Corrupt: a file is damaged; the error names it as the source does.
        SourceChanged: a file changed meanwhile.
        OSError: the system refused.
    """
    chosen = range(plan.partitions) if wanted is None else sorted(set(wanted))
    labels = [plan.files[partition][1] for partition in chosen]
    progress = _CopyProgress(
        on_progress, sum(label.size_bytes for label in labels), sum(label.records for label in labels)
    )
    copier = _Copier(plan, open_reader, files, directory, progress, pace)
    copied: list[PartitionFile | None] = [None] * plan.partitions
    try:
        for partition in chosen:
            copied[partition] = copier.copy(partition)
        files.sync_directory(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            for partition in chosen:
                with contextlib.suppress(FileNotFoundError):
                    files.unlink(directory / partition_name(partition))
        raise
    return tuple(copied)


@dataclass(slots=True)
class _Copier:
    plan: AdoptionPlan
    open_reader: Opener
    files: Files
    directory: PurePath
    progress: _CopyProgress
    pace: Callable[[int], None]

    def copy(self, partition: int) -> PartitionFile:
        files = self.files
        file, expected = self.plan.files[partition]
        path = self.directory / partition_name(partition)
        target = files.open(path, WRITE_NEW)
        try:
            with self.open_reader(file) as reader:
                copy_bytes(files, file, reader, target, on_copy=self.progress.copy, pace=self.pace)
                source_name = reader.name
            files.sync(target)
        finally:
            files.close(target)
        descriptor = files.open(path, READ)
        try:
            copy = OpenFile(files, descriptor, source_name)
            label = read_label(copy)
            if label.seal != expected.seal:
                raise Corrupt(source_name, label.size_bytes, "the footer changed while the file was copied")
            claim = PartitionClaim(self.plan.function, self.plan.partitions, partition)
            check_records(copy, label, claim, self.progress.check)
            # Opening the file checks the regions that its footer names; it touches no page.
            SortedFile(files.map(descriptor, label.size_bytes), name=source_name).close()
        finally:
            files.close(descriptor)
        return PartitionFile(path.name, label.records, label.duplicates, label.size_bytes, label.seal)


def copy_bytes(
    files: Files,
    file: SourceFile,
    reader: RandomAccess,
    target: int,
    *,
    on_copy: Callable[[int], None] = lambda _: None,
    pace: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy a listed file into an open one, without syncing it; the system copies by itself where it can.

    `reader` is that of the file, and paces its own reads; leaving its context raises if the file changed.
    """
    if "://" not in file.path and _copy_ranges(files, file, target, on_copy, pace):
        return
    for offset in range(0, reader.size_bytes, PIECE_BYTES):
        data = reader.read_at(offset, min(PIECE_BYTES, reader.size_bytes - offset))
        files.pwrite(target, data, offset)
        files.start_writeback(target, offset, len(data))
        on_copy(len(data))


def _copy_ranges(
    files: Files, file: SourceFile, target: int, on_copy: Callable[[int], None], pace: Callable[[int], None]
) -> bool:
    """Return True if the system copied the file by itself; if not, nothing was written."""
    source = files.open(file.path, READ_SOURCE)
    try:
        done = 0
        while done < file.size_bytes:
            size_bytes = min(RANGE_BYTES, file.size_bytes - done)
            pace(size_bytes)
            try:
                copied = files.copy_range(source, target, done, size_bytes)
            except OSError as error:
                if done == 0 and error.errno in _CANNOT_COPY:
                    return False
                raise
            if copied == 0:
                break  # The file is shorter than it was: the reader raises when its context is left.
            files.start_writeback(target, done, copied)
            done += copied
            on_copy(copied)
        return True
    finally:
        files.close(source)


class _CopyProgress:
    def __init__(self, on_progress: Callable[[int, int, int, int], None], total_bytes: int, records: int) -> None:
        self._on_progress = on_progress
        self._copied_bytes = 0
        self._total_bytes = total_bytes
        self._records = records
        self._checked = 0

    def copy(self, size_bytes: int) -> None:
        self._copied_bytes += size_bytes
        self._report()

    def check(self, records: int) -> None:
        self._checked += records
        self._report()

    def _report(self) -> None:
        self._on_progress(self._copied_bytes, self._total_bytes, self._records, self._checked)


def check_records(
    source: RandomAccess, label: Label, claim: PartitionClaim, on_progress: Callable[[int], None]
) -> None:
    """Check every page, the order of the keys, and the partition of each key.

    Raises:
        NotAdoptable: a key belongs to another partition.
        Corrupt: something else is wrong.
    """
    body = CheckedBody(source, label.body_bytes)
    placement = Placement(partitioner.code(claim.function), claim.partition, claim.partitions)
    records = 0
    for batch in walk(body, label):
        number = placement.first_wrong(batch)
        if number < len(batch):
            _refuse_place(batch, number, source.name, claim)
        records += len(batch)
        on_progress(len(batch))
    if records != label.records:
        reason = "the number of records does not match the footer"
        raise Corrupt(source.name, label.records_end, reason, expected=label.records, got=records)
    for offset in range(label.records_end, label.body_bytes, PIECE_BYTES):
        body.read(offset, min(PIECE_BYTES, label.body_bytes - offset))


def _refuse_place(batch: RecordBatch, number: int, name: str, claim: PartitionClaim) -> None:
    key, offset = batch.keys(number + 1)[number], batch.offsets()[number]
    try:
        partition = partitioner.partition(claim.function, key, claim.partitions)
        belongs = f"belongs to partition {partition} of {claim.partitions} by {claim.function!r}"
    except ValueError:
        partition, belongs = -1, f"has no partition by {claim.function!r}, which hashes only UTF-8 text"
    if partition == claim.partition:
        raise Corrupt(name, offset, f"keys do not ascend: {excerpt(key)} is not above the key before it")
    raise NotAdoptable(
        f"{name}: byte {offset:,}: the key {excerpt(key)} {belongs}, but the file holds partition {claim.partition}",
        Stray(key, name, offset),
    )
