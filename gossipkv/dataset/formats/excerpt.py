"""What an error shows of a source's bytes."""

from __future__ import annotations

# What fits into a line of a terminal with the rest.
SHOWN_BYTES = 40


def excerpt(text: bytes) -> str:
    """The beginning of it, in quotes."""
    return repr(text[:SHOWN_BYTES])[1:] + ("…" if len(text) > SHOWN_BYTES else "")
