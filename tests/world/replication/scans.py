"""A checker of scans against the keys that existed meanwhile; it knows nothing of cursors and ranges.

A key that existed from before the request of the first page until after the last page is shown once.  A key that was
missing all that time is not shown.  Any other key may be shown, or not.  All keys are in the requested order, and
between the bounds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Asked(NamedTuple):
    """The keys that a scan must show."""

    start: bytes = b""
    end: bytes | None = None  # Exclusive; None: the scan ends with the last key.
    reverse: bool = False

    def has(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)


def faults_of(
    found: Sequence[bytes], asked: Asked, there: Collection[bytes], gone: Collection[bytes] = ()
) -> list[str]:
    """Return the faults of all pages' keys, concatenated; `there` and `gone` hold throughout the scan."""
    faults = []
    upwards = found[::-1] if asked.reverse else found
    if astray := [after for before, after in pairwise(upwards) if after <= before]:
        faults.append(f"{len(astray)} again or not in order, such as {min(astray)!r}")
    for what, keys in (
        ("left out", {key for key in there if asked.has(key)} - {*found}),
        ("not there", {*gone} & {*found}),
        ("outside", {key for key in found if not asked.has(key)}),
    ):
        if keys:
            faults.append(f"{len(keys)} {what}, such as {min(keys)!r}")
    return [f"{asked}: {fault}" for fault in faults]
