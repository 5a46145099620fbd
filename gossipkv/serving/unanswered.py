"""Errors of reads that no other node has answered: the outcome of asking each node, and the code for the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import Overloaded, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.errors import Detail, ServiceError

# `forward/report.pyx` has these outcomes, too; any other is a code, or the reason why no request was sent.
ASKED = "asked"
SILENT = "silent"


def unanswered(place: str, asked: Sequence[tuple[str, str]], details: dict[str, Detail]) -> ServiceError:
    """Return the error for data at `place`; `asked` has the asked nodes and the outcomes."""
    listing = ", ".join(f"{name} ({outcome})" for name, outcome in asked) or "no node is known to have the data"
    text = f"no node has answered for {place}: {listing}"
    details = {**details, "asked": [[name, outcome] for name, outcome in asked]}
    outcomes = {outcome for _, outcome in asked}
    if outcomes & {ASKED, SILENT}:
        return TimedOut(text, details)
    if outcomes and outcomes <= {"OVERLOADED", "queue full"}:
        return Overloaded(text, details)
    return Unavailable(text, details)
