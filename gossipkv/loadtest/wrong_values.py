"""The first wrong value as a sentence."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gossipkv.loadtest._ledger import Tally

Wrong: TypeAlias = "tuple[bytes | None, bytes | EllipsisType | None, bytes | None, int]"

SHOWN_BYTES: Final = 64


def wrong_in_words(wrong: Wrong | None) -> str | None:
    """What was wrong, out of what a tally has kept of it."""
    if wrong is None:
        return None
    key, expected, got, size = wrong
    if key is None and got is None:
        return "an answer has more values than were asked for, or something else than a value"
    if key is None:
        return f"a scan has what should not be there: {got!r}"
    shown = "no value" if got is None else f"{got!r} of {size} bytes"
    return f"{key!r}: expected {_short(expected)}, got {shown}"


def first_wrong(tally: Tally) -> str | None:
    """The first wrong value of a tally, and of which version."""
    told = wrong_in_words(tally.first_wrong())
    return f"{told} (version {tally.wrong_version})" if told and tally.wrong_version else told


def _short(value: bytes | EllipsisType | None) -> str:
    if value is None:
        return "no value"
    if isinstance(value, EllipsisType):
        return "anything"
    return f"{value[:SHOWN_BYTES]!r} of {len(value)} bytes"
