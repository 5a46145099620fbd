"""Preview of a version: what a node would make of its files, found by the reader of builds, without a build.

Every record is read and assigned to its partition, and nothing is sorted or written.  So errors and stray keys are
those that a build would meet; only records with equal keys are not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.build.adopt import NotAdoptable, plan_adoption
from gossipkv.dataset.build.reading_in import Rule, Strayed, take_in
from gossipkv.dataset.build.recognition import Recognition, recognise_function
from gossipkv.dataset.build.steps import OWN_FUNCTION, doubts, read_declaration, with_format
from gossipkv.dataset.source.reader import SourceReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.storage.batch import RecordBatch

FIRST_RECORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """The version that a node would make."""

    format: str
    files: int
    source_bytes: int
    records: int  # Those read: of equal keys a node serves the last one.
    function: str  # The partition function.
    relies: bool  # True: that function made the files; false: a node partitions the records anew.
    first: tuple[tuple[bytes, bytes], ...]  # The first records.
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _RecordCounter:
    """Stands where a build has its sorter."""

    records: int = 0
    first: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add_batch(self, batch: RecordBatch) -> None:
        self.records += len(batch)
        if len(self.first) < FIRST_RECORDS:
            self.first += islice(batch, FIRST_RECORDS - len(self.first))


def preview(job: BuildJob, origin: SourceFiles, *, on_bytes: Callable[[int], None] = lambda _: None) -> Preview:
    """Read the job's files as a build would; `on_bytes` gets the size of each piece before it is read.

    Raises:
        SourceError, SourceChanged, Corrupt, StorageError: as a build.
    """
    job = with_format(job, origin)
    job = replace(job, declared=read_declaration(job, origin))
    warnings = [*doubts(job, origin)]
    recognition = _recognised(job, origin, warnings)
    while True:
        claims = recognition.claims
        rule = Rule(claims[0].function if claims else OWN_FUNCTION, claims, relies=bool(claims))
        counter = _RecordCounter()
        try:
            result = take_in(job, range(len(job.files)), rule, counter, origin, pace=on_bytes)
        except Strayed as stray:
            warnings.append(stray.message)
            recognition = recognition.without({claim.function for claim in claims} - set(stray.possible))
        else:
            break
    assert job.format is not None
    return Preview(
        job.format,
        len(job.files),
        job.source_bytes,
        counter.records,
        rule.function,
        rule.relies,
        tuple(counter.first),
        (*warnings, *result.doubts),
    )


def _recognised(job: BuildJob, origin: SourceFiles, warnings: list[str]) -> Recognition:
    """Return the functions that the files fit; for sorted files, the one that they name."""
    if job.format == "sorted":
        try:
            plan = plan_adoption(job.files, partial(SourceReader, origin))
        except NotAdoptable as refusal:
            warnings.append(f"a node sorts these files again: {refusal.message}")
        else:
            return Recognition((plan.claim(job.files),))
    return recognise_function(job, origin)
