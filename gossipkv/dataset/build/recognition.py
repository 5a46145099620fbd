"""Recognition of source files: their format, and the partition function that made them, from the first keys of each.

A function fits if all keys of a file are in one partition, no two files share one, and there are as many files as
partitions.  Every key read later is verified against each fitting function: `string` and `spark` differ in few keys.
Functions are tried in the order of `FUNCTIONS` (`docs/users/keyspace.md`), and the first that fits is taken.
A later one is preferred if only it puts every file at the place of its partition, as Hadoop jobs do.  `cascading`
(`sequins` moved on by 31) is never preferred for places, since Sequins reads such files by its own function.  A stray
refutes a function, and the choice ignores refuted functions.  The node that found the stray and the nodes that were
told of it therefore choose alike.  A node whose source declares less follows an identity published by others.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.detect import batches, detect_file
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import SourceError
from gossipkv.keyspace.partitioner import FUNCTIONS, partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.placement.identity import VersionIdentity

SAMPLE_KEYS = 64

# A function under which this share of the samples agrees was the writer's, and the rest has strayed.  By chance 64 keys
# of two partitions come to 0.75 about once in 10,000 files.
NEARLY = 0.9


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a function made the files: the partition of each file, None for a file without keys."""

    function: str
    partitions: tuple[int | None, ...]

    @property
    def in_place(self) -> bool:
        """True if every file stands at the place of its partition."""
        return all(held in {None, place} for place, held in enumerate(self.partitions))


@dataclass(frozen=True, slots=True)
class Recognition:
    """The claims that the samples fit, best first; if none fits, the claim that they nearly fit."""

    claims: tuple[Claim, ...]
    nearly: Claim | None = None
    prefer: str | None = None  # The function that was declared, or that others rely on.

    def without(self, refuted: Collection[str]) -> Recognition:
        """Remove the refuted functions; if none is left, the former best claim becomes `nearly`."""
        left = [claim for claim in self.claims if claim.function not in refuted]
        if len(left) == len(self.claims):
            return self
        return Recognition(_best_first(left, self.prefer), None if left else self.claims[0], self.prefer)

    def towards(self, followed: VersionIdentity) -> Recognition:
        """Prefer the identity that others gave these files, as far as the samples allow."""
        fitting = [claim.function for claim in self.claims]
        if followed.regrouped:
            return self.without(fitting)
        if followed.function not in fitting:
            return self
        return Recognition(_best_first(self.claims, followed.function), prefer=followed.function)


def recognise(samples: Sequence[Sequence[bytes]], count: int, *, prefer: str | None = None) -> Recognition:
    """Score each function on the first keys of every file; `count` is the number of partitions.

    `prefer` is the declared function: it becomes the first claim if it fits.
    """
    if len(samples) != count:
        return Recognition(())
    scored = [_score(function, samples, count) for function in FUNCTIONS]
    fitting = [claim for claim, score in scored if claim is not None and score == 1]
    if not fitting:
        near, score = max(scored, key=lambda scored_claim: scored_claim[1])
        return Recognition((), near if score >= NEARLY else None)
    return Recognition(_best_first(fitting, prefer), prefer=prefer)


def _best_first(fitting: Iterable[Claim], prefer: str | None) -> tuple[Claim, ...]:
    """Return the claim to rely on, then the others in the order of `FUNCTIONS`."""
    tried = sorted(fitting, key=lambda claim: FUNCTIONS.index(claim.function))
    first = next((claim for claim in tried if claim.function == prefer), None)
    if first is None:
        placed = (claim for claim in tried if claim.in_place and claim.function != "cascading")
        first = next(placed, tried[0] if tried else None)
    return tuple(tried) if first is None else (first, *(claim for claim in tried if claim is not first))


def _score(function: str, samples: Sequence[Sequence[bytes]], count: int) -> tuple[Claim | None, float]:
    """Return each file's partition by majority, and the share of keys that agree; no claim if two files clash."""
    winners: list[int | None] = []
    agreeing = 0
    for sample in samples:
        votes = Counter(_partition(function, key, count) for key in sample)
        top = votes.most_common(1)
        winner = top[0][0] if top else None
        winners.append(winner)
        if winner is not None:
            agreeing += top[0][1]
    voted = [winner for winner in winners if winner is not None]
    total = sum(map(len, samples))
    if len(set(voted)) < len(voted) or len(voted) < sum(1 for sample in samples if sample):
        return None, 0.0
    return Claim(function, tuple(winners)), agreeing / total if total else 1.0


def _partition(function: str, key: bytes, count: int) -> int | None:
    try:
        return partition(function, key, count)
    except ValueError:  # The function needs text, and the key is none.
        return None


def find_format(job: BuildJob, files: SourceFiles) -> str:
    """Return the one format of all files; a file without evidence, such as an empty one, matches any.

    Raises:
        SourceError: two files are of different formats.
        SourceChanged, StorageError: a file cannot be read.
    """
    first: tuple[str, str] | None = None
    for file in job.files:
        with SourceReader(files, file) as reader:
            found = detect_file(reader, job.reading)
        if found is None:
            continue
        if first is None:
            first = (found, file.path)
        elif found != first[0]:
            raise SourceError(
                f"{file.path}: the format seems to be {found}, but {first[1]} seems to be {first[0]}; all files of a "
                "version need one format; if these files have one, set `format` in the settings of the database",
                {"file": file.path, "expected": first[0], "got": found},
            )
    return "tsv" if first is None else first[0]


def recognise_function(job: BuildJob, files: SourceFiles) -> Recognition:
    """Recognise the functions that fit the first keys of every file.  Raises the reader's errors."""
    if job.function is not None or job.partitions != len(job.files):
        return Recognition(())
    samples = [_first_keys(job, file, files) for file in job.files]
    return recognise(samples, job.partitions, prefer=None if job.declared is None else job.declared.function)


def _first_keys(job: BuildJob, file: SourceFile, files: SourceFiles) -> list[bytes]:
    keys: list[bytes] = []
    assert job.format is not None
    with (
        SourceReader(files, file) as reader,
        contextlib.closing(batches(job.format, reader, job.reading_of(file, files))) as found,
    ):
        for batch in found:
            keys += batch.keys(SAMPLE_KEYS - len(keys))
            if len(keys) == SAMPLE_KEYS:
                break
    return keys
