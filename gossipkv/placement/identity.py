"""The identity of a version: two copies are the same version if their identities are equal.

The identity is (database, name, digest of the sorted list of file names and sizes, number of partitions, partition
function, relied on or regrouped). Nodes that read the same source compute the same identity without communication.

Relied on: each file was taken to hold one partition by the recognised function, and files of unwanted partitions were
skipped. Regrouped: all files were read, and every record was placed by the function. With one source and function, the
two differ if a stray record is in a file that some nodes skip: nodes that met it regrouped, and others lack it.

Times of modification are left out: two copies of a source made by `cp` are the same version. Changes of a file *while
it is read* are detected by times (`SourceVersion.fingerprint`).
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
class VersionIdentity:
    """The identity of a version."""

    database: str
    version: str
    digest: str
    partitions: int
    function: str
    regrouped: bool  # True if all files were read and regrouped; False if they were relied on.

    @property
    def wire_id(self) -> bytes:
        """Sixteen bytes that stand for the identity between nodes.

        The bytes begin the SHA-256 of the fields in order. Each field is the length in bytes in decimal digits, a
        colon, the bytes, and a line feed. Text is UTF-8, a number decimal digits, `regrouped` the text `relied` or
        `regrouped`.
        """
        return _wire_id(self)


@lru_cache(maxsize=1024)  # Each page of a scan over nodes needs the id.
def _wire_id(identity: VersionIdentity) -> bytes:
    grouped = "regrouped" if identity.regrouped else "relied"
    total = hashlib.sha256()
    parts = str(identity.partitions)
    for field in (identity.database, identity.version, identity.digest, parts, identity.function, grouped):
        data = field.encode()
        total.update(b"%d:%s\n" % (len(data), data))
    return total.digest()[:WIRE_ID_BYTES]


def digest(entries: Iterable[tuple[str, int]]) -> str:
    """Return the digest of (file name, number) pairs: 64 hexadecimal digits.

    Each entry is the name's length as decimal digits, a colon, the name's bytes, the size as decimal digits, and a line
    feed. Entries are sorted by name as bytes; the digest is the SHA-256 of all.
    """
    total = hashlib.sha256()
    for name, number in sorted((os.fsencode(name), number) for name, number in entries):
        total.update(b"%d:%s%d\n" % (len(name), name, number))
    return total.hexdigest()
