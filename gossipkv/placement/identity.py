"""What makes two copies of a version the same version.

The identity of a version is (database, name, digest of the sorted list of file names and sizes, number of
partitions, partition function).  Nodes that read the same source compute the same identity without speaking to each
other, and data of another identity under the same name is never mistaken for it.

Times of modification are left out: two copies of a source made by `cp` are the same version.  Whether a file changed
*while it was read* is another question, and there times count (`SourceVersion.fingerprint`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a version."""

    database: str
    version: str
    digest: str
    partitions: int
    function: str


def digest(entries: Iterable[tuple[str, int]]) -> str:
    """The digest of (file name, numbers...) pairs: 64 hexadecimal digits.

    Each entry is the name's length as decimal digits, a colon, the name's bytes, the size as decimal digits, a line
    feed; entries are sorted by name as bytes; SHA-256 of all.
    """
    total = hashlib.sha256()
    for name, number in sorted((os.fsencode(name), number) for name, number in entries):
        total.update(b"%d:%s%d\n" % (len(name), name, number))
    return total.hexdigest()
