"""Linearizability by trying every order, for histories of a handful of operations; imports nothing from the package.

An operation is (name, argument, invoked, completed, outcome). Names and arguments: ("read", None), ("append", number),
("swap", (expected, wanted)). Outcomes: ("done", state or None), ("refused", state or None), None for unknown; a state
is a tuple of numbers, and the first one is ().
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

State = tuple[int, ...]
Argument = int | tuple[State, State] | None
Outcome = tuple[str, State | None]
Operation = tuple[str, Argument, int, int, Outcome | None]

UNTRIED = ("refused", None)


def perform(name: str, argument: Argument, state: State) -> tuple[str, State]:
    """Return a register's answer to an operation, and the state after it."""
    if name == "append":
        return "done", (*state, argument)
    if name == "swap":
        expected, wanted = argument
        return ("done", wanted) if state == expected else ("refused", state)
    return "done", state


def has_order(left: Sequence[Operation], state: State = ()) -> bool:
    """Return True if some order of these explains the outcomes; operations of unknown outcome may be left out."""
    if all(outcome is None for *_, outcome in left):
        return True
    for at, (name, argument, invoked, _, outcome) in enumerate(left):
        rest = [*left[:at], *left[at + 1 :]]
        if any(other[4] is not None and other[3] < invoked for other in rest):
            continue  # Another operation completed before this one began.
        told, after = perform(name, argument, state)
        if outcome is not None and (outcome[0] != told or outcome[1] not in {None, after}):
            continue
        if has_order(rest, after):
            return True
    return False


def is_linearizable(history: Sequence[Operation]) -> bool:
    """Return True if some order of the operations explains all outcomes."""
    return has_order([one for one in history if one[4] != UNTRIED])
