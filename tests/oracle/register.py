"""An acceptor of a register in plain Python: it forgets nothing and searches all its promises for each answer.

A ballot is (generation, force id, counter, proposer). Instead of a record the acceptor keeps the list of promised
ballots and that of accepted ballots and values; each answer is derived from all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Ballot = tuple[int, int, int, int]

MAX_COUNTER = 2**62 - 1
LEAP = 2**40
GENERATIONS_LEAP = 64


class Asked(NamedTuple):
    kind: str  # read, prepare, accept, create
    ballot: Ballot | None = None
    value: object = None  # Only accept and create have one.
    stays: bool = False  # Accept: the same proposer's next ballot is promised as well.
    is_newcomer: bool = False  # Prepare: the acceptor is to join the set.
    holds: bool = True  # This acceptor has the data of the value, or of the value that a newcomer is to hold.
    names_it: bool = True  # Create: the value names this acceptor, and has one set.


@dataclass
class SlowAcceptor:
    """Everything that was promised and accepted."""

    promised: list[Ballot] = field(default_factory=list)
    accepted: list[tuple[Ballot, object]] = field(default_factory=list)
    conflicts: list[int] = field(default_factory=list)  # Generations in which two forces were seen.

    def record(self) -> tuple[Ballot, Ballot | None, object, int] | None:
        """Return the highest promise, the last accepted ballot and value, and the last generation with two forces."""
        if not self.promised:
            return None
        ballot, value = max(self.accepted, key=lambda pair: pair[0], default=(None, None))
        return max(self.promised), ballot, value, max(self.conflicts, default=0)

    def ask(self, asked: Asked) -> str:
        """Return the answer to a request, and update `record`."""
        if not self.promised:
            return self._ask_newcomer(asked)
        if asked.ballot is None:
            return "OK"
        generation = asked.ballot[0]
        if max(self.promised)[0] == generation and max(self.promised)[1] != asked.ballot[1]:
            self.conflicts.append(generation)
        if any(generation <= conflict for conflict in self.conflicts):
            return "CONFLICTING"
        if asked.kind == "prepare":
            return self._ask_promise(asked)
        if asked.kind == "accept":
            return self._ask_accept(asked)
        return "OK" if asked.kind == "read" or self._has_last(asked) else "BEHIND"

    def _ask_newcomer(self, asked: Asked) -> str:
        if asked.kind == "create" and (asked.ballot[2:] != (0, 0) or not asked.names_it):
            return "IMPLAUSIBLE"
        if asked.kind == "create" or (asked.kind == "prepare" and asked.is_newcomer):
            if asked.kind == "prepare" and self._is_made_up(asked.ballot):
                return "IMPLAUSIBLE"
            if not asked.holds:
                return "MISSING"
            self.promised.append(asked.ballot)
            if asked.kind == "create":
                self.accepted.append((asked.ballot, asked.value))
            return "OK"
        return "NO_RECORD"

    def _ask_promise(self, asked: Asked) -> str:
        if any(asked.ballot < other for other in self.promised) or self._has_reached(asked.ballot):
            return "BEHIND"
        if self._is_made_up(asked.ballot):
            return "IMPLAUSIBLE"
        if asked.is_newcomer and not asked.holds:
            return "MISSING"
        self.promised.append(asked.ballot)
        return "OK"

    def _ask_accept(self, asked: Asked) -> str:
        if self.accepted and asked.ballot == max(ballot for ballot, _ in self.accepted):
            return "OK" if self._has_last(asked) else "IMPLAUSIBLE"
        if any(asked.ballot < other for other in self.promised) or self._has_reached(asked.ballot):
            return "BEHIND"
        if self._is_made_up(asked.ballot) or asked.ballot == (0, 0, 0, 0):
            return "IMPLAUSIBLE"
        if not asked.holds:
            return "MISSING"
        generation, force, counter, proposer = asked.ballot
        self.promised.append((generation, force, counter + asked.stays, proposer))
        self.accepted.append((asked.ballot, asked.value))
        return "OK"

    def _has_last(self, asked: Asked) -> bool:
        # The acceptors are a part of the value, and every accepted value names this acceptor.
        last = max(self.accepted, key=lambda pair: pair[0], default=None)
        return asked.names_it and last == (asked.ballot, asked.value)

    def _has_reached(self, ballot: Ballot) -> bool:
        return any(ballot <= other for other, _ in self.accepted)

    def _is_made_up(self, ballot: Ballot) -> bool:
        highest = max(self.promised, default=(0, 0, 0, 0))
        before = highest[2] if highest[0] == ballot[0] else 0
        return ballot[2] > before + LEAP or ballot[2] >= MAX_COUNTER or ballot[0] > highest[0] + GENERATIONS_LEAP
