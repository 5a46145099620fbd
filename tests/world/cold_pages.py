"""Cold pages of sorted files: files opened meanwhile behave as if they were larger than memory."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gossipkv.storage.sorted_file import pretend

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def pages_come_and_go(seed: int) -> Iterator[None]:
    """Make readers of files opened within the block wait for pages, drawn from the seed.

    A process simulates one such set at a time: an inner block ends the outer one.
    """
    pretend(itertools.count(seed << 32))
    try:
        yield
    finally:
        pretend(None)
