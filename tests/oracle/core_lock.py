"""The turns of a core lock, checked in the log of entries and exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def faults(log: Iterable[tuple[str, object]]) -> list[str]:
    """Return the faults of a log of `("enter" or "leave", who)`: two at once, or an exit without an entry."""
    inside: list[object] = []
    found = []
    for what, who in log:
        if what == "enter":
            if inside and inside[-1] != who:
                found.append(f"{who} entered while {inside[-1]} was in")
            inside.append(who)
        elif inside and inside[-1] == who:
            inside.pop()
        else:
            found.append(f"{who} left and was not in")
    return [*found, *(f"{who} never left" for who in inside)]
