"""What are these files?  Their format, and the partition functions that may have made them, from the first of each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gossipkv.dataset.build.recognition import SAMPLE_KEYS, Recognition, recognise
from gossipkv.dataset.formats.detect import batches, detect_file
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import SourceError

if TYPE_CHECKING:
    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.dataset.source.listing import SourceFile, SourceFiles


def find_format(job: BuildJob, files: SourceFiles) -> str:
    """The one format of all files; a file that says nothing, as an empty one does, is of any.

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
                f"{file.path}: looks like {found}, and {first[1]} like {first[0]}: the files of a version have one "
                "format; if these have, name it in the settings of the database",
                {"file": file.path, "expected": first[0], "got": found},
            )
    return "tsv" if first is None else first[0]


def recognise_function(job: BuildJob, files: SourceFiles) -> Recognition:
    """Which functions the first keys of every file fit.  Raises what reading raises."""
    if job.function is not None or job.partitions != len(job.files):
        return Recognition(())
    samples = [_first_keys(job, file, files) for file in job.files]
    return recognise(samples, job.partitions, prefer=None if job.declared is None else job.declared.function)


def _first_keys(job: BuildJob, file: SourceFile, files: SourceFiles) -> list[bytes]:
    keys: list[bytes] = []
    assert job.format is not None
    with SourceReader(files, file) as reader, contextlib.closing(batches(job.format, reader, job.reading)) as found:
        for batch in found:
            keys += batch.keys(SAMPLE_KEYS - len(keys))
            if len(keys) == SAMPLE_KEYS:
                break
    return keys
