"""When a version was last read back from the disk, so that a restart does not begin anew: a document in its directory.

    _SCRUBBED     kind SCRUBBED, format 1: `at_ms` (wall clock), `bypassed_cache`

Written when all of a version was read and nothing was found; so it goes with the version, and one that is built again
begins without.  It decides nothing but when the next reading is: one that is damaged or missing does no harm.
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

    at_ms: int  # By the wall clock, at the end.
    bypassed_cache: bool  # All of it came from the disk itself.
    damaged_files: int = 0  # The manifest among them; only what was found whole is kept.


def write_scrubbed(files: Files, directory: PurePath, scrubbed: Scrubbed) -> None:
    """Keep it beside the version.  Raises OSError."""
    assert scrubbed.damaged_files == 0, scrubbed
    body = {"at_ms": scrubbed.at_ms, "bypassed_cache": int(scrubbed.bypassed_cache)}
    write_document(files, directory / SCRUBBED, KIND, {**body})


def read_scrubbed(files: Files, directory: PurePath) -> Scrubbed | None:
    """What was kept; nothing, if that is damaged.  Raises OSError."""
    path = directory / SCRUBBED
    try:
        body = read_document(files, path, KIND)
        return Scrubbed(whole(body, "at_ms", str(path)), whole(body, "bypassed_cache", str(path)) != 0)
    except (FileNotFoundError, Corrupt, UnsupportedFormat):
        return None
