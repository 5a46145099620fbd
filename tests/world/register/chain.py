"""Whether what a register committed is one chain: the check for every run, in O(n log n).

Each value has a name, names its parent (the value that it was made from) and the operations that it adds.  A value of
which nobody knows whether it was committed is on the chain if a committed one descends from it; any other one of the
same parent lost, and may be anything.  What clients were told is held against the chain by places: an operation's is
its number among all on the chain, a value's that of the last one.

    a fork            two values of one parent, each with a committed one among those behind it
    a hole            a parent that nobody wrote
    twice             an operation that stands on the chain in two places
    unheard of        one on the chain that nobody asked for, or that its asker was refused
    lost              one that its asker was told is done and that is not on the chain, or not yet in the value told
    against time      an operation, or a read, in a place before one that was told before it was asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    Name = Hashable  # Of a value.

MAX_VIOLATIONS = 20


class Written(NamedTuple):
    """A value that a proposer sent to acceptors."""

    name: Name
    parent: Name | None  # None: that of creation.
    operations: tuple[int, ...] = ()


class Asked(NamedTuple):
    """What a client asked for, and the value it was told of."""

    operation: int | None  # The number of what it adds; None: a read.
    invoked_us: int
    completed_us: int = NEVER  # NEVER: what became of it is unknown.
    value: Name | None = None  # In which it is done, or that was read, or that it was refused for; None: not told.
    is_refused: bool = False


@final
class _Chain:
    """The committed values and all before them, in order."""

    def __init__(self, written: Mapping[Name, Written], committed: Iterable[Name]) -> None:
        self.violations: list[str] = []
        self._written = written
        self._on: set[Name] = set()
        self._child: dict[Name | None, Name] = {}
        for name in committed:
            self._add(name)
        self.places: dict[Name, int] = {}  # By value.
        self.operations: dict[int, int] = {}  # Their places.
        self._number()

    def _add(self, name: Name | None) -> None:
        """Add a value and those before it, up to one that is there."""
        while name is not None and name not in self._on:
            if name not in self._written:
                self.violations.append(f"a hole: nobody wrote {name!r}")
                return
            self._on.add(name)
            parent = self._written[name].parent
            child = self._child.setdefault(parent, name)
            if child != name:
                self.violations.append(f"a fork: {child!r} and {name!r} have the parent {parent!r}")
            name = parent

    def _number(self) -> None:
        """Walk from the first value to the last."""
        name, place = self._child.get(None), 0
        while name is not None:
            for operation in self._written[name].operations:
                place += 1
                if self.operations.setdefault(operation, place) != place:
                    self.violations.append(f"twice: operation {operation}, again in {name!r}")
            self.places[name] = place
            name = self._child.get(name)
        if len(self.places) < len(self._on) and not self.violations:
            self.violations.append("a hole: a circle of values, each the parent of the next")


def check_chain(written: Iterable[Written], committed: Collection[Name], asked: Collection[Asked]) -> list[str]:
    """Return what is wrong with the values of one register, and with what clients were told of them."""
    values: dict[Name, Written] = {}
    violations = [f"two values are called {one.name!r}" for one in written if values.setdefault(one.name, one) != one]
    chain = _Chain(values, committed)
    violations += chain.violations
    if not violations:  # What is no chain has no places.
        violations = [*_not_asked_for(chain, asked), *_against_time(chain, asked)]
    return violations[:MAX_VIOLATIONS]


def _not_asked_for(chain: _Chain, asked: Iterable[Asked]) -> list[str]:
    allowed = {one.operation for one in asked if not one.is_refused}
    return [f"unheard of: nobody may have done operation {one}" for one in chain.operations if one not in allowed]


def _against_time(chain: _Chain, asked: Collection[Asked]) -> list[str]:
    """Hold what was told against the chain, in the order of time."""
    violations: list[str] = []
    # At once is at the same time: completions come behind invocations.
    moments = [(one.invoked_us, False, number, one) for number, one in enumerate(asked)]
    moments += [(one.completed_us, True, number, one) for number, one in enumerate(asked) if one.completed_us != NEVER]
    told = 0  # The highest place that anybody was told of.
    least: dict[int, int] = {}  # What it was when each was asked for.
    for _, is_over, number, one in sorted(moments):
        adds = one.operation is not None and not one.is_refused
        if not is_over:
            least[number] = told
            # If it is on the chain it has a place, told or not.
            place = None if one.operation is None or one.is_refused else chain.operations.get(one.operation)
        else:
            place, latest = _places_told(chain, one, violations)
            told = max(told, latest)
        if place is not None and place < least[number] + adds:
            violations.append(f"against time: {one} has place {place}, and {least[number]} was told before")
    return violations


def _places_told(chain: _Chain, one: Asked, violations: list[str]) -> tuple[int | None, int]:
    """The place that a client was told of, and the highest that may not be taken back after that."""
    latest = chain.places.get(one.value)
    if latest is None and one.value is not None:
        violations.append(f"lost: {one} was told of a value that is not on the chain")
    if one.operation is None or one.is_refused:
        return latest, latest or 0
    own = chain.operations.get(one.operation)
    if own is None:
        violations.append(f"lost: {one} is not on the chain")
        return None, latest or 0
    if latest is not None and latest < own:
        violations.append(f"lost: {one} has place {own}, and the value that was told ends at {latest}")
    return None, max(own, latest or 0)  # Its own place was looked at when it was asked for.
