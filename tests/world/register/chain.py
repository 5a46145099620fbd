"""The check that a register's committed values are one chain: for every run, in O(n log n).

Each value has a name, and names its parent (the value that it was made from) and its new operations.  A value whose
commit is unknown is on the chain if a committed value descends from it; any other value of the same parent lost, and is
not checked.  Outcomes that clients were told are compared with the chain by place: an operation's place is its number
among all operations on the chain, a value's place that of its last operation.

a fork: two values of one parent, each with a committed value among its descendants
a hole: a parent that was never written
twice: an operation at two places of the chain
unheard of: an operation on the chain that no client asked for, or whose client was refused
lost: an operation reported as done that is not on the chain, or comes after the value reported with it
against time: an operation, or a read, at a place before one that was reported before it was asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    Name = Hashable  # The name of a value.

MAX_VIOLATIONS = 20


class Written(NamedTuple):
    name: Name
    parent: Name | None  # None: the value of creation.
    operations: tuple[int, ...] = ()


class Asked(NamedTuple):
    """A client's request, and the value reported to it."""

    operation: int | None  # The number of the added operation; None: a read.
    invoked_us: int
    completed_us: int = NEVER  # NEVER: the outcome is unknown.
    # The value with the operation, or that was read, or that caused a refusal; None: not reported.
    value: Name | None = None
    is_refused: bool = False


@final
class _Chain:
    """The committed values and all their ancestors, in order."""

    def __init__(self, written: Mapping[Name, Written], committed: Iterable[Name]) -> None:
        self.violations: list[str] = []
        self._written = written
        self._on: set[Name] = set()
        self._child: dict[Name | None, Name] = {}
        for name in committed:
            self._add(name)
        self.places: dict[Name, int] = {}  # By value.
        self.operations: dict[int, int] = {}  # The place of each operation.
        self._number()

    def _add(self, name: Name | None) -> None:
        """Add a value and its ancestors, up to a known one."""
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
        """Number the operations from the first value to the last."""
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
    """Return the violations in one register's values, and in the outcomes reported to its clients."""
    values: dict[Name, Written] = {}
    violations = [f"two values are called {one.name!r}" for one in written if values.setdefault(one.name, one) != one]
    chain = _Chain(values, committed)
    violations += chain.violations
    if not violations:  # Places exist only on a chain.
        violations = [*_not_asked_for(chain, asked), *_against_time(chain, asked)]
    return violations[:MAX_VIOLATIONS]


def _not_asked_for(chain: _Chain, asked: Iterable[Asked]) -> list[str]:
    allowed = {one.operation for one in asked if not one.is_refused}
    return [f"unheard of: nobody may have done operation {one}" for one in chain.operations if one not in allowed]


def _against_time(chain: _Chain, asked: Collection[Asked]) -> list[str]:
    """Compare reported outcomes with the chain, in the order of time."""
    violations: list[str] = []
    # At one moment, completions come after invocations.
    moments = [(one.invoked_us, False, number, one) for number, one in enumerate(asked)]
    moments += [(one.completed_us, True, number, one) for number, one in enumerate(asked) if one.completed_us != NEVER]
    told = 0  # The highest place reported so far.
    least: dict[int, int] = {}  # The highest reported place when each request began.
    for _, is_over, number, one in sorted(moments):
        adds = one.operation is not None and not one.is_refused
        if not is_over:
            least[number] = told
            # An operation on the chain has a place, reported or not.
            place = None if one.operation is None or one.is_refused else chain.operations.get(one.operation)
        else:
            place, latest = _places_told(chain, one, violations)
            told = max(told, latest)
        if place is not None and place < least[number] + adds:
            violations.append(f"against time: {one} has place {place}, and {least[number]} was told before")
    return violations


def _places_told(chain: _Chain, one: Asked, violations: list[str]) -> tuple[int | None, int]:
    """Return the reported place, and the highest place that must not be taken back afterwards."""
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
    return None, max(own, latest or 0)  # Its own place was checked at its invocation.
