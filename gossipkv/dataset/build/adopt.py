"""A version that consists of our own sorted files: taken over instead of built again.

`write_partition` and `gossipkv build` make sorted files of which each says which partition of how many it is, by which
function.  When the files of a version fit together (one function, one number, each partition once), a node copies and
checks them and sorts nothing.

Invariant: what is taken over is as good as what this node would have built: every page's checksum holds, keys ascend,
and every key belongs to its partition.  A file may be whole and wrong: its checksums say that its bytes are as they
were written, and not that its writer was right.

    fit together                               taken over
    a key in a partition that is not its       `NotAdoptable`, with the stray: read in full, partitioned anew
    two files of one partition, no claim       `NotAdoptable`: read in full, partitioned anew
    a function that is refuted already         `NotAdoptable`, with the claim: likewise
    some built by who met a stray, some not    SourceError: what strayed may be in none of them
    a partition that no file holds             SourceError: the job is not finished, or lost a file
    damaged, or of a newer format              Corrupt, UnsupportedFormat

Files are copied.  Rejected: hard links, since somebody who writes into the source's file would change it under the
node's map, or cut it short, which ends the node (SIGBUS); a file system that can share the blocks of a copy does
(`copy_range`), and then it costs neither time nor space.  Rejected: serving a file whose writer vouches for it (every
node would answer wrongly for one bug in a job); the check costs some 30 ns a record.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.build import recognition
from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.formats.sorted_files import PIECE_BYTES, Placement, walk
from gossipkv.dataset.local.manifest import Manifest, PartitionFile, Stray, partition_name
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
    from gossipkv.storage.batch import Batch
    from gossipkv.storage.label import Label, RandomAccess

    Opener = Callable[[SourceFile], AbstractContextManager[RandomAccess]]

# A range that is copied at once: long enough to share blocks well, short enough to be paced and reported.
RANGE_BYTES: Final = 16 << 20

# What `copy_range` says where it cannot: other file systems, old kernels.
_CANNOT_COPY: Final = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})

_NAMED: Final = 5


class NotAdoptable(LocalError):
    """The files are sound, and do not make a version as they are: they are to be read in full."""

    def __init__(self, reason: str, stray: Stray | None = None, claim: recognition.Claim | None = None) -> None:
        super().__init__(reason)
        self.stray = stray
        self.claim = claim  # What the files say, where a key strays from it.


@dataclass(frozen=True, slots=True)
class Plan:
    """Files that fit together: `files[i]` holds partition i."""

    function: str
    compression: str  # "mixed" when they differ.
    files: tuple[tuple[SourceFile, Label], ...]

    @property
    def partitions(self) -> int:
        """N."""
        return len(self.files)

    def claim(self, listed: Sequence[SourceFile]) -> recognition.Claim:
        """What the files say of themselves, in the order in which they are listed."""
        held = {file.path: partition for partition, (file, _) in enumerate(self.files)}
        return recognition.Claim(self.function, tuple(held[file.path] for file in listed))


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was taken over; `files[i]` is partition i, or None where it was not wanted."""

    function: str
    partitions: int
    compression: str
    files: tuple[PartitionFile | None, ...]


def take_over(
    job: BuildJob,
    files: Files,
    origin: SourceFiles,
    *,
    on_progress: Callable[[int, int, int, int], None] = lambda *_: None,
    pace: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """What a job of sorted files makes if they can be taken over; all is durable but the manifest.

    Raises:
        NotAdoptable: the files are to be read in full; if because of a stray, with the claim that it strays from.
        SourceError, SourceChanged, Corrupt, UnsupportedFormat, StorageError, OSError: as `plan_adoption` and `adopt`.
    """

    def opened(file: SourceFile) -> SourceReader:
        return SourceReader(origin, file, pace=pace)

    plan = plan_adoption(job.files, opened)
    if plan.partitions != job.partitions or job.function not in {None, plan.function}:
        asked = f"{job.partitions} partitions by {job.function or plan.function!r}"
        raise NotAdoptable(
            f"the files are {plan.partitions} partitions by {plan.function!r}, and {asked} are asked for"
        )
    if plan.function in job.refuted:
        raise NotAdoptable(f"keys stray from {plan.function!r}", claim=plan.claim(job.files))
    try:
        adopted = adopt(
            plan, opened, files, PurePath(job.directory), wanted=job.wanted, on_progress=on_progress, pace=pace
        )
    except NotAdoptable as refusal:
        refusal.claim = plan.claim(job.files)
        raise
    return Manifest(
        job.identity(plan.function, regrouped=False),
        len(job.files),
        job.source_bytes,
        adopted.compression,
        adopted.files,
        format="sorted",
        alike=(plan.function,),
        source_ms=job.source_ms,
        refuted=tuple(sorted(job.refuted)),
    )


def plan_adoption(listed: Sequence[SourceFile], open_reader: Opener) -> Plan:
    """How the files fit together, by their labels alone: some small reads a file.

    Raises:
        NotAdoptable: they are to be read in full.
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
        raise NotAdoptable(f"{unclaimed}: does not say which partition it is")
    if len(found) > 1:
        ways = " and ".join(f"{partitions} by {function!r}" for function, partitions in found)
        raise NotAdoptable(f"{len(listed)} files are of several ways to partition: {ways}")
    for (function, _), held in found.items():
        for partition, files in held.items():
            if len(files) > 1:
                names = " and ".join(label.name for _, label in files[:_NAMED])
                raise NotAdoptable(f"{names} hold the same partition, {partition}")
        ordered = tuple(held[partition][0] for partition in range(len(held)))
        compressions = {label.compression for _, label in ordered}
        return Plan(function, compressions.pop() if len(compressions) == 1 else "mixed", ordered)
    raise NotAdoptable("there are no files")


def _refuse_missing(function: str, partitions: int, held: dict[int, list[tuple[SourceFile, Label]]]) -> None:
    missing = [partition for partition in range(partitions) if partition not in held]
    if not missing:
        return
    some = ", ".join(map(str, missing[:_NAMED])) + (f" and {len(missing) - _NAMED:,} more" * (len(missing) > _NAMED))
    example = next(iter(held.values()))[0][1].name
    reason = (
        f"is one of {partitions} partitions by {function!r}, of which {some} "
        f"{'are' if len(missing) > 1 else 'is'} missing beside it: did every task of the job end?"
    )
    raise SourceError(f"{example}: {reason}", {"file": example, "reason": reason})


def adopt(
    plan: Plan,
    open_reader: Opener,
    files: Files,
    directory: PurePath,
    *,
    wanted: Collection[int] | None = None,
    on_progress: Callable[[int, int, int, int], None] = lambda *_: None,
    pace: Callable[[int], None] = lambda _: None,
) -> Adopted:
    """Copy the files of the wanted partitions into a build's directory and check them; returns when they are durable.

    If it raises, the directory is as it was before.  The manifest is the caller's to write.

    Args:
        plan: from `plan_adoption`.
        open_reader: opens a file of the source; leaving it tells a file that changed.
        files: the file operations to use.
        directory: of the build.
        wanted: the partitions to take over; None: all.
        on_progress: called with (bytes copied, bytes to copy, records there, records checked).
        pace: called with the size of what is copied next, and may sleep; where a reader is read, it does that itself.

    Raises:
        NotAdoptable: a key is in a partition that is not its own.
        Corrupt: a file is damaged; named as it is called at the source.
        SourceChanged: a file changed meanwhile.
        OSError: the system refused.
    """
    chosen = range(plan.partitions) if wanted is None else sorted(set(wanted))
    labels = [plan.files[partition][1] for partition in chosen]
    progress = _CopyProgress(
        on_progress, sum(label.size_bytes for label in labels), sum(label.records for label in labels)
    )
    taking = _Taking(plan, open_reader, files, directory, progress, pace)
    taken: list[PartitionFile | None] = [None] * plan.partitions
    try:
        for partition in chosen:
            taken[partition] = taking.take(partition)
        files.sync_directory(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            for partition in chosen:
                with contextlib.suppress(FileNotFoundError):
                    files.unlink(directory / partition_name(partition))
        raise
    return Adopted(plan.function, plan.partitions, plan.compression, tuple(taken))


@dataclass(slots=True)
class _Taking:
    """One adoption under way."""

    plan: Plan
    open_reader: Opener
    files: Files
    directory: PurePath
    progress: _CopyProgress
    pace: Callable[[int], None]

    def take(self, partition: int) -> PartitionFile:
        """One file: copied, synced, checked."""
        files = self.files
        file, expected = self.plan.files[partition]
        path = self.directory / partition_name(partition)
        target = files.open(path, WRITE_NEW)
        try:
            with self.open_reader(file) as reader:
                if "://" in file.path or not self._copy_ranges(file, target):
                    self._copy_through(reader, target)
                source_name = reader.name
            files.sync(target)
        finally:
            files.close(target)
        descriptor = files.open(path, READ)
        try:
            copy = OpenFile(files, descriptor, source_name)
            label = read_label(copy)
            if label.seal != expected.seal:
                raise Corrupt(source_name, label.size_bytes, "another footer than a moment before")
            claim = PartitionClaim(self.plan.function, self.plan.partitions, partition)
            check_records(copy, label, claim, self.progress.check)
            # The regions that its footer names; no page is touched.
            SortedFile(files.map(descriptor, label.size_bytes), name=source_name).close()
        finally:
            files.close(descriptor)
        return PartitionFile(path.name, label.records, label.duplicates, label.size_bytes, label.seal)

    def _copy_ranges(self, file: SourceFile, target: int) -> bool:
        """Whether the system copied the file by itself; if not, nothing has happened."""
        source = self.files.open(file.path, READ_SOURCE)
        try:
            done = 0
            while done < file.size_bytes:
                size_bytes = min(RANGE_BYTES, file.size_bytes - done)
                self.pace(size_bytes)
                try:
                    copied = self.files.copy_range(source, target, done, size_bytes)
                except OSError as error:
                    if done == 0 and error.errno in _CANNOT_COPY:
                        return False
                    raise
                if copied == 0:
                    break  # It is shorter than it was: the reader says so when it is left.
                self.files.start_writeback(target, done, copied)
                done += copied
                self.progress.copy(copied)
            return True
        finally:
            self.files.close(source)

    def _copy_through(self, reader: RandomAccess, target: int) -> None:
        for offset in range(0, reader.size_bytes, PIECE_BYTES):
            data = reader.read_at(offset, min(PIECE_BYTES, reader.size_bytes - offset))
            self.files.pwrite(target, data, offset)
            self.files.start_writeback(target, offset, len(data))
            self.progress.copy(len(data))


class _CopyProgress:
    def __init__(self, tell: Callable[[int, int, int, int], None], total_bytes: int, records: int) -> None:
        self._tell = tell
        self._copied_bytes = 0
        self._total_bytes = total_bytes
        self._records = records
        self._checked = 0

    def copy(self, size_bytes: int) -> None:
        self._copied_bytes += size_bytes
        self._say()

    def check(self, records: int) -> None:
        self._checked += records
        self._say()

    def _say(self) -> None:
        self._tell(self._copied_bytes, self._total_bytes, self._records, self._checked)


def check_records(
    source: RandomAccess, label: Label, claim: PartitionClaim, on_progress: Callable[[int], None]
) -> None:
    """Every page, the order of the keys, and the partition of each.

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
        reason = "another number of records than the footer says"
        raise Corrupt(source.name, label.records_end, reason, expected=label.records, got=records)
    for offset in range(label.records_end, label.body_bytes, PIECE_BYTES):
        body.read(offset, min(PIECE_BYTES, label.body_bytes - offset))


def _refuse_place(batch: Batch, number: int, name: str, claim: PartitionClaim) -> None:
    key, offset = batch.keys(number + 1)[number], batch.offsets()[number]
    try:
        partition = partitioner.partition(claim.function, key, claim.partitions)
        belongs = f"belongs to partition {partition} of {claim.partitions} by {claim.function!r}"
    except ValueError:
        partition, belongs = -1, f"has no partition by {claim.function!r}, which hashes UTF-8 text"
    if partition == claim.partition:
        raise Corrupt(name, offset, f"keys do not ascend: {excerpt(key)} is not above the key before it")
    raise NotAdoptable(
        f"{name}: byte {offset:,}: the key {excerpt(key)} {belongs}, and the file says that it is {claim.partition}",
        Stray(key, name, offset),
    )
