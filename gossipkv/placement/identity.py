"""What makes two copies of a version the same version.

The identity of a version is (database, name, digest of the sorted list of file names and sizes, number of
partitions, partition function, relied on or regrouped).  Nodes that read the same source compute the same identity
without speaking to each other, and data of another identity under the same name is never mistaken for it.

Relied on: each file was taken to hold one partition, as the function that was recognised puts it, and files of unwanted
partitions were skipped.  Regrouped: all files were read and every record put where the function puts it.  The two
differ, with one function and one source, where a stray record stands in a file that some nodes skip: those that have
met it have regrouped, and what the others hold lacks it.

Times of modification are left out: two copies of a source made by `cp` are the same version.  Whether a file changed
*while it was read* is another question, and there times count (`SourceVersion.fingerprint`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WIRE_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a version."""

    database: str
    version: str
    digest: str
    partitions: int
    function: str
    regrouped: bool  # All files were read and grouped anew; else they were relied on.

    @property
    def wire_id(self) -> bytes:
        """Sixteen bytes that stand for it between nodes.

        The first of the SHA-256 of its fields in their order, each as the length in bytes in decimal digits, a colon,
        the bytes (text as UTF-8, the number in decimal digits, `regrouped` as `relied` or `regrouped`), a line feed.
        """
        return _wire_id(self)


@lru_cache(maxsize=1024)  # Each page of a scan over nodes asks.
def _wire_id(identity: Identity) -> bytes:
    grouped = "regrouped" if identity.regrouped else "relied"
    total = hashlib.sha256()
    parts = str(identity.partitions)
    for field in (identity.database, identity.version, identity.digest, parts, identity.function, grouped):
        data = field.encode()
        total.update(b"%d:%s\n" % (len(data), data))
    return total.digest()[:WIRE_ID_BYTES]


def digest(entries: Iterable[tuple[str, int]]) -> str:
    """The digest of (file name, numbers...) pairs: 64 hexadecimal digits.

    Each entry is the name's length as decimal digits, a colon, the name's bytes, the size as decimal digits, a line
    feed; entries are sorted by name as bytes; SHA-256 of all.
    """
    total = hashlib.sha256()
    for name, number in sorted((os.fsencode(name), number) for name, number in entries):
        total.update(b"%d:%s%d\n" % (len(name), name, number))
    return total.hexdigest()
