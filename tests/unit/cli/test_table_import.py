"""The position of an import, from which it goes on after an interruption."""

from __future__ import annotations

from gossipkv.cli.table_import import Chunk, ImportPosition, ImportProgress


def test_the_position_is_behind_no_part_that_is_under_way():
    progress = ImportProgress(ImportPosition())
    chunks = [Chunk(ImportPosition(0, at), ImportPosition(0, at + 10), []) for at in (0, 10, 20)]
    for chunk in chunks:
        progress.begin(chunk, 2)
    for at, position in ((1, 0), (0, 0), (1, 0), (0, 20), (2, 20), (2, 30)):
        progress.done(chunks[at], 5)
        assert progress.position == (0, position)
    assert progress.records == 30
