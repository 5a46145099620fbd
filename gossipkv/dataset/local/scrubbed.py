"""The record that a version was read back from the disk, kept in its directory over restarts.

    _SCRUBBED     kind SCRUBBED, format 1: `at_ms` (wall clock), `bypassed_cache`

The document is written after the whole version was read without damage; a rebuilt version begins without it.  The
document decides only the time of the next reading, so a damaged or missing one does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.document import read_document, whole, write_document

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

SCRUBBED: Final = "_SCRUBBED"
KIND: Final = "SCRUBBED"


@final
@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A version was read back, from its first byte to its last."""

    at_ms: int  # Wall-clock time at the end.
    bypassed_cache: bool  # All bytes came from the disk itself.
    damaged_files: int = 0  # The manifest counts as well; only a result without damage is kept.


def write_scrubbed(files: Files, directory: PurePath, scrubbed: Scrubbed) -> None:
    """Write the document beside the version.  Raises OSError."""
    assert scrubbed.damaged_files == 0, scrubbed
    body = {"at_ms": scrubbed.at_ms, "bypassed_cache": int(scrubbed.bypassed_cache)}
    write_document(files, directory / SCRUBBED, KIND, {**body})


def read_scrubbed(files: Files, directory: PurePath) -> Scrubbed | None:
    """Return the document, or None if it is missing or damaged.  Raises OSError."""
    path = directory / SCRUBBED
    try:
        body = read_document(files, path, KIND)
        return Scrubbed(whole(body, "at_ms", str(path)), whole(body, "bypassed_cache", str(path)) != 0)
    except (FileNotFoundError, Corrupt, UnsupportedFormat):
        return None
