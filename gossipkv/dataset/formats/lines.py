"""Formats of lines: from chunks of text to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.dataset.formats._formats import Lines


def batches(lines: Lines, chunks: Iterable[bytes]) -> Iterator[RecordBatch]:
    """Yield the records of the chunks in order, reusing one batch.

    A batch ends with its chunk, so that it holds only that chunk and at most one line begun before it.

    Raises:
        SourceError: a line is no record.
    """
    batch = RecordBatch()
    for chunk in chunks:
        lines.feed(chunk)
        yield from _filled(lines.fill, batch)
    yield from _filled(lines.finish, batch)


def _filled(fill: Callable[[RecordBatch], bool], batch: RecordBatch) -> Iterator[RecordBatch]:
    done = False
    while not done:
        done = fill(batch)
        if batch:
            yield batch
        batch.clear()  # Release the chunks that the batch holds, even without records.
