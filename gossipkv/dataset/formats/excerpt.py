"""Excerpts of a source's bytes in errors."""

from __future__ import annotations

# An excerpt of this size fits into a line of a terminal with the rest.
SHOWN_BYTES = 40


def excerpt(text: bytes) -> str:
    """Return the beginning of the text, in quotes."""
    return repr(text[:SHOWN_BYTES])[1:] + ("…" if len(text) > SHOWN_BYTES else "")
