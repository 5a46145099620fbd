"""Ballots: the order of writes to a register.

A ballot is (generation, force id, counter, proposer), and carries at most one value. Only an operator's force raises
the *generation*; it draws the *force id* at random, which is 0 in generation 0. Two forces of one generation are
*conflicting recoveries*: each may have gone on without the other, so their ballots have no order (`are_conflicting`). A
proposer raises the *counter*. The *proposer* is an id that a process draws at its start, so no two ballots are equal.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gossipkv.errors import ProtocolError

MAX_GENERATION: Final = (1 << 16) - 1  # A config id has room for this.
MAX_COUNTER: Final = (1 << 62) - 1

# Bounds the distance of a counter or a generation from an acceptor's promise. At 2,000 rounds a second a counter takes
# 17 years for it, and a single forged number does not use up the numbers.
MAX_LEAP: Final = 1 << 40
MAX_GENERATION_LEAP: Final = 64


class BallotRandom(Protocol):
    """The methods of `random.Random` that registers use; cores must not import it."""

    def random(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits."""


class Ballot(NamedTuple):
    """A ballot; ballots of one register are ordered as tuples, unless they conflict."""

    generation: int
    force: int
    counter: int
    proposer: int

    def next(self) -> Ballot:
        """Return the next ballot of the same proposer."""
        return self._replace(counter=self.counter + 1)

    def is_plausible_after(self, promise: Ballot) -> bool:
        """True if the ballot is so near above `promise` that it is hardly forged."""
        before = promise.counter if promise.generation == self.generation else 0
        most = min(before + MAX_LEAP, MAX_COUNTER - 1)  # A next counter must exist.
        return self.counter <= most and self.generation <= promise.generation + MAX_GENERATION_LEAP


ZERO: Final = Ballot(0, 0, 0, 0)  # The ballot of a value that was written at creation.
BELOW: Final = Ballot(0, 0, -1, 0)  # Lower than all ballots.


def are_conflicting(ballot: Ballot, other: Ballot) -> bool:
    """True if the two ballots belong to different forces of one generation: conflicting recoveries."""
    return ballot.generation == other.generation and ballot.force != other.force


def draw_id(random: BallotRandom) -> int:
    """Draw an id of 64 bits that is not 0."""
    return random.getrandbits(64) or 1


def ballot_of(value: object) -> Ballot:
    """Read a ballot from decoded MessagePack.

    Raises:
        ProtocolError: the value does not have the form of a ballot.
    """
    match value:
        case [int(generation), int(force), int(counter), int(proposer)] if (
            0 <= generation <= MAX_GENERATION
            and 0 <= force < 1 << 64
            and 0 <= counter <= MAX_COUNTER
            and 0 <= proposer < 1 << 64
            and bool(generation) == bool(force)
        ):
            return Ballot(generation, force, counter, proposer)
    raise ProtocolError(
        "a ballot must be [generation, force id, counter, proposer], with a force id from the second generation on",
        {"got": repr(value)[:80]},
    )
