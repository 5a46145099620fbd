"""Linearizability of a register's reported outcomes, by Wing, Gong and Lowe's search.

The register holds a tuple of numbers; clients read it, append to it, or swap it for another.  An operation happened at
one moment between its invocation and its completion; one with an unknown outcome at any moment after its invocation, or
never.  The search tries orders, operation by operation, and never twice the same operations with the same state (Lowe's
memo), nor more operations of unknown outcome with that state.  Three rules keep the search small, and lose no order:

- A possible operation that must happen and changes nothing happens at once.
- An operation of unknown outcome happens only if an operation that must see it can follow: its resulting state must be
    a prefix of a state that another operation needs.
- Reads of unknown outcome and refusals without a reported state are left out: they say nothing.

A search is bounded by steps; beyond them the verdict is INCONCLUSIVE, which must be rare in a long run.  A violation is
explained by few contradictory statements: were any other outcome unknown, there would still be no order.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

State = tuple[int, ...]

MAX_STEPS = 20_000


class Read(NamedTuple):
    """Read the state of the register."""


class Append(NamedTuple):
    item: int


class Swap(NamedTuple):
    """Replace the expected state by another, or be refused."""

    expected: State
    wanted: State


class Done(NamedTuple):
    """The operation happened."""

    state: State | None  # The resulting or read state; None: not reported.


class Refused(NamedTuple):
    """The operation changed nothing."""

    found: State | None  # The state that did not match; None: the operation was not even tried.


Call = Read | Append | Swap
Outcome = Done | Refused | None  # None: unknown.


class Operation(NamedTuple):
    """A client's operation, its times, and its reported outcome."""

    call: Call
    invoked_us: int
    completed_us: int = NEVER  # Also used when the outcome is unknown.
    outcome: Outcome = None

    def __str__(self) -> str:
        ended = "..." if self.outcome is None else str(self.completed_us)
        return f"[{self.invoked_us} {ended}] {self.call} -> {self.outcome or 'unknown'}"


class Kind(Enum):
    LINEARIZABLE = "linearizable"
    VIOLATION = "violation"
    INCONCLUSIVE = "inconclusive"


class Verdict(NamedTuple):
    """A verdict, with the operations that no order explains if it is a violation."""

    kind: Kind
    steps: int
    contradiction: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind.value} after {self.steps} steps", *map(str, self.contradiction)])


def check(history: Iterable[Operation], most_steps: int = MAX_STEPS) -> Verdict:
    """Return whether the history of one register, which begins with (), is linearizable.

    Raises:
        ValueError: an operation completed before it was invoked.
    """
    operations = [_whole(one) for one in history if _says_something(one)]
    search = _Search(operations, most_steps)
    kind = search.run()
    contradiction = tuple(_contradiction(operations, most_steps)) if kind is Kind.VIOLATION else ()
    return Verdict(kind, search.steps, contradiction)


def _says_something(one: Operation) -> bool:
    match one:
        case Operation(outcome=Refused(None)) | Operation(call=Read(), outcome=None | Done(None)):
            return False
        case _:
            return True


def _whole(one: Operation) -> Operation:
    if one.outcome is None:
        return one._replace(completed_us=NEVER)
    if one.completed_us < one.invoked_us:
        raise ValueError(f"completed before it was invoked: {one}")
    return one


def _contradiction(operations: Sequence[Operation], most_steps: int) -> list[Operation]:
    """Return fewer operations that still contradict each other; within the step limit, a minimal set.

    To make an outcome unknown removes one statement and nothing else, so a remaining violation follows from the rest.
    The latest operations are removed first: the last outcome is seldom the first wrong one.
    """
    kept = sorted(operations, key=lambda one: one.completed_us)
    for place in reversed(range(len(kept))):
        if kept[place].outcome is None:
            continue
        fewer = kept.copy()
        fewer[place] = kept[place]._replace(completed_us=NEVER, outcome=None)
        search = _Search([one for one in fewer if _says_something(one)], most_steps)
        if search.run() is Kind.VIOLATION:
            kept = fewer
        most_steps -= search.steps
    return sorted((one for one in kept if one.outcome is not None), key=lambda one: one.invoked_us)


@final
class _Search:
    """One search: a node is a set of operations that happened, as bits, and the resulting state."""

    def __init__(self, operations: Sequence[Operation], most_steps: int) -> None:
        ordered = sorted(operations, key=lambda one: one.invoked_us)
        known = [one for one in ordered if one.outcome is not None]
        self._known = [(1 << at, one) for at, one in enumerate(known)]
        self._all_known = (1 << len(known)) - 1
        self._unknown = [
            (1 << at, one) for at, one in enumerate((one for one in ordered if one.outcome is None), len(known))
        ]
        self._most_steps = most_steps
        self.steps = 0

    def run(self) -> Kind:
        if not self._all_known:
            return Kind.LINEARIZABLE
        # By the known operations that happened, and the state: the sets of all that happened.
        seen: dict[tuple[int, State], list[int]] = {}
        ways = [self._ways(0, ())]
        while ways:
            node = next(ways[-1], None)
            if node is None:
                ways.pop()
                continue
            happened, state = node
            known = happened & self._all_known
            if known == self._all_known:
                return Kind.LINEARIZABLE
            before = seen.setdefault((known, state), [])
            if any(fewer & happened == fewer for fewer in before):
                continue
            if self.steps >= self._most_steps:
                return Kind.INCONCLUSIVE
            self.steps += 1
            before.append(happened)
            ways.append(self._ways(*node))
        return Kind.VIOLATION

    def _ways(self, happened: int, state: State) -> Iterator[tuple[int, State]]:
        """Yield the possible next nodes: each operation that began before any remaining one was over."""
        over_us = NEVER
        possible: list[tuple[int, Operation]] = []
        # All operations below the lowest unset bit have happened.
        first = (~happened & (happened + 1)).bit_length() - 1
        for bit, one in self._known[first:]:
            if not happened & bit:
                if one.invoked_us > over_us:
                    break
                possible.append((bit, one))
                over_us = min(over_us, one.completed_us)
        possible = [(bit, one) for bit, one in possible if one.invoked_us <= over_us]
        following: list[tuple[int, State]] = []
        for bit, one in possible:
            after = _after(one, state)
            if after == state:
                yield happened | bit, state
                return
            if after is not None:
                following.append((happened | bit, after))
        yield from following
        yield from self._ways_unknown(happened, state, over_us, [_needed(one) for _, one in possible])

    def _ways_unknown(
        self, happened: int, state: State, over_us: int, needed: list[State | None]
    ) -> Iterator[tuple[int, State]]:
        left = [(bit, one) for bit, one in self._unknown if not happened & bit and one.invoked_us <= over_us]
        needed += [one.call.expected for _, one in left if isinstance(one.call, Swap)]
        for bit, one in left:
            after = _after(one, state)
            if after is None or after == state:
                continue
            if any(goal is None or goal[: len(after)] == after for goal in needed):
                yield happened | bit, after


def _after(one: Operation, state: State) -> State | None:
    """Return the state after an operation; None if the reported outcome is impossible in this state."""
    after: State | None = None
    match one.call, one.outcome:
        case Read(), Done():
            after = state
        case Append(item), None | Done():
            after = (*state, item)
        case Swap(expected, wanted), None | Done() if state == expected:
            after = wanted
        case Swap(expected, _), Refused(found) if state == found != expected:
            after = state
    told = one.outcome.state if isinstance(one.outcome, Done) else None
    return after if told in {None, after} else None


def _needed(one: Operation) -> State | None:
    """Return the state that an operation reportedly found; None: not reported."""
    match one.call, one.outcome:
        case Read(), Done(state):
            return state
        case Append(), Done(state):
            return None if state is None else state[:-1]
        case Swap(expected, _), Done():
            return expected
        case _, Refused(found):
            return found
        case _:
            return None
