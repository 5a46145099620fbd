"""Error of a read that no other node has answered: what became of asking each, and what a client is to make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import Overloaded, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.errors import Detail, ServiceError

# As `forward_report.pyx` has them, too; everything else is a code, or says why nothing was sent.
ASKED = "asked"
SILENT = "silent"


def unanswered(place: str, told: Sequence[tuple[str, str]], details: dict[str, Detail]) -> ServiceError:
    """Return the error for what lies at `place`; `told`: who was asked, and what became of it."""
    who = ", ".join(f"{name} ({outcome})" for name, outcome in told) or "nobody is known to hold it"
    text = f"nobody has answered for {place}: {who}"
    details = {**details, "asked": [[name, outcome] for name, outcome in told]}
    outcomes = {outcome for _, outcome in told}
    if outcomes & {ASKED, SILENT}:
        return TimedOut(text, details)
    if outcomes and outcomes <= {"OVERLOADED", "queue full"}:
        return Overloaded(text, details)
    return Unavailable(text, details)
