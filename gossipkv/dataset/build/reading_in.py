"""Reading of source files into a builder: each record is decoded, assigned to its partition, and verified.

Every key is verified against every claim about the files (`recognition`).  A key that strays from the claim by which
records are grouped ends the reading (`Strayed`): the version must be read again with another function.  Strays from a
claim that failed earlier are counted, and the first is kept for people to inspect.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from gossipkv.dataset.build._assigner import Assigner
from gossipkv.dataset.formats.detect import batches
from gossipkv.dataset.local.manifest import Stray
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import LocalError, SourceError
from gossipkv.keyspace.partitioner import code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.build.recognition import Claim
    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.storage.batch import RecordBatch

__all__ = ["Assigner", "ReadingResult", "RecordSink", "Rule", "Strayed", "probes", "take_in"]

# A file is skipped if this many first keys are all of one unwanted partition, as Sequins does.
PROBE_KEYS = 5_000


class RecordSink(Protocol):
    """Takes the records that were read: a builder, or an object that counts them."""

    def add_batch(self, batch: RecordBatch) -> None: ...


class Strayed(LocalError):
    """A key is not where the recognised function puts it; `possible` are the functions that still fit."""

    def __init__(self, stray: Stray, function: str, possible: tuple[str, ...]) -> None:
        super().__init__(
            f"{stray.file}: byte {stray.offset:,}: the key {stray.key[:40]!r} belongs to another file by {function!r}",
            {"key": stray.key.hex(), "file": stray.file, "offset": stray.offset, "function": function,
             "possible": " ".join(possible)},
        )  # fmt: skip
        self.possible = possible


@dataclass(frozen=True, slots=True)
class Rule:
    """The function by which records are grouped, and the claims about the files to verify.

    If `relies`, the first claim is about that function, and a key that strays from it ends the reading.  Otherwise the
    one claim has failed, and its strays are counted.
    """

    function: str
    claims: tuple[Claim, ...] = ()
    relies: bool = False


@dataclass(frozen=True, slots=True)
class ReadingResult:
    """The counts of a reading; the results of several lanes add up."""

    records: int = 0  # Only kept records count.
    strays: tuple[int, ...] = ()  # One count for each claim of the rule.
    first_stray: Stray | None = None  # The first stray from a claim that the rule does not rely on.
    doubts: tuple[str, ...] = ()  # The first doubt of a reader about its file, if any.

    def __add__(self, later: ReadingResult) -> ReadingResult:
        """Add `later`, the result for files after these."""
        strays = tuple(map(sum, zip_longest(self.strays, later.strays, fillvalue=0)))
        first_stray, doubts = self.first_stray or later.first_stray, self.doubts or later.doubts
        return ReadingResult(self.records + later.records, strays, first_stray, doubts)


def take_in(
    job: BuildJob,
    places: Iterable[int],
    rule: Rule,
    builder: RecordSink,
    files: SourceFiles,
    *,
    pace: Callable[[int], None] = lambda _: None,
    on_records: Callable[[int], None] = lambda _: None,
) -> ReadingResult:
    """Read the files at these places of the job's list, in order.

    `pace` gets the size of each piece before its use, and may sleep; `on_records` gets the number of records kept so
    far.

    Raises:
        Strayed: a key strays from the function that the rule relies on.
        SourceError: a file is not of its format.
        SourceChanged: a file differs from when it was listed.
        StorageError: the system refused.
    """
    intake = _Intake(job, rule, builder, files, on_records)
    for place in places:
        if not (rule.relies and job.may_skip(place, rule.function)):
            with SourceReader(files, job.files[place], pace=pace) as reader:
                intake.take(place, reader)
    return intake.result()


def probes(job: BuildJob, rule: Rule, place: int) -> bool:
    """True if a file is skipped once its first keys are in their expected partition."""
    return job.presharded == "probe" and rule.relies and not job.wants(rule.claims[0].partitions[place])


class _Intake:
    def __init__(
        self, job: BuildJob, rule: Rule, builder: RecordSink, files: SourceFiles, on_records: Callable[[int], None]
    ) -> None:
        self._job = job
        self._files = files
        self._rule = rule
        self._builder = builder
        self._on_records = on_records
        self._assigner = Assigner(code(rule.function), job.groups(), [code(claim.function) for claim in rule.claims])
        self._records = 0
        self._first_stray: Stray | None = None
        self._doubts: list[str] = []

    def result(self) -> ReadingResult:
        return ReadingResult(self._records, tuple(self._assigner.strays()), self._first_stray, tuple(self._doubts[:1]))

    def take(self, place: int, reader: SourceReader) -> None:
        """Read the file at this place, or only its first keys if it may be skipped."""
        job, rule, file = self._job, self._rule, self._job.files[place]
        assert job.format is not None
        reading = job.reading_of(file, self._files)
        reading = replace(reading, warn=lambda doubt: self._doubts.append(f"{file.path}: {doubt}"))
        probing = probes(job, rule, place)
        seen = 0
        self._assigner.begin_file([claim.partitions[place] for claim in rule.claims])
        with contextlib.closing(batches(job.format, reader, reading)) as found:
            for batch in found:
                seen += len(batch)
                self._take_batch(batch, reader.name)
                if probing and seen >= PROBE_KEYS:
                    return

    def _take_batch(self, batch: RecordBatch, name: str) -> None:
        strayed = self._assigner.assign(batch)
        if self._assigner.homeless >= 0 and not self._rule.relies:
            raise _no_partition(batch, self._assigner.homeless, name, self._rule.function)
        if strayed and strayed[0] >= 0 and self._first_stray is None:
            stray = Stray(batch.keys(strayed[0] + 1)[-1], name, batch.offsets()[strayed[0]])
            if self._rule.relies:
                raise Strayed(stray, self._rule.function, _possible(self._rule, self._assigner.strays()))
            self._first_stray = stray
        if self._job.wanted is not None:
            self._assigner.drop_unwanted(batch)
        self._builder.add_batch(batch)
        self._records += len(batch)
        self._on_records(self._records)


def _possible(rule: Rule, strays: Sequence[int]) -> tuple[str, ...]:
    return tuple(claim.function for claim, count in zip(rule.claims, strays, strict=True) if not count)


def _no_partition(batch: RecordBatch, number: int, name: str, function: str) -> SourceError:
    key, offset = batch.keys(number + 1)[-1], batch.offsets()[number]
    return SourceError(
        f"{name}: byte {offset:,}: the key {key[:40]!r} is not UTF-8, so it has no partition by {function!r}; "
        "the functions sequins and text hash any bytes",
        {"file": name, "offset": offset},
    )
