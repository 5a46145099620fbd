"""Pages of sorted files that come and go: files opened meanwhile pretend to be larger than memory."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gossipkv.storage.sorted_file import pretend

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def pages_come_and_go(seed: int) -> Iterator[None]:
    """Have whoever serves from a file opened within the block wait for its pages, drawn from the seed.

    One pretence at a time in a process: an inner one ends the outer.
    """
    pretend(itertools.count(seed << 32))
    try:
        yield
    finally:
        pretend(None)
