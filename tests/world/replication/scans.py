"""What a scan has shown, held against what was there meanwhile: a checker that knows nothing of cursors and ranges.

A key that was there from before the first page was asked for until after the last one came is in it once.  One that
was not there in all that time is not in it.  Any other may be in it, or not.  All are in the order that was asked for,
and between the bounds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Asked(NamedTuple):
    """The keys that a scan was to show."""

    start: bytes = b""
    end: bytes | None = None  # Before which it ends; None: with the last key.
    reverse: bool = False

    def has(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)


def faults_of(
    found: Sequence[bytes], asked: Asked, there: Collection[bytes], gone: Collection[bytes] = ()
) -> list[str]:
    """What is wrong with the keys of all pages, one behind the other; `there`, `gone`: throughout."""
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
