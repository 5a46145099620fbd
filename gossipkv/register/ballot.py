"""Ballots: who may write, in which order.

A ballot is (generation, force id, counter, proposer), and carries one value, ever.  The *generation* is raised only by
an operator's force; the *force id* is that force's, drawn at random, 0 in generation 0.  Two forces of one generation
are *conflicting recoveries*: each may have gone on without the other, so their ballots have no order
(`are_conflicting`).  The *counter* is raised by whoever proposes, and the *proposer* is an id that a process draws when
it starts, so that no two ballots are alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gossipkv.errors import ProtocolError

MOST_GENERATION: Final = (1 << 16) - 1  # A config id has so much room for it.
MOST_COUNTER: Final = (1 << 62) - 1

# How far above what an acceptor has promised a counter or a generation may be.  At 2,000 rounds a second it takes 17
# years to get so far, and a single number that somebody made up does not use up all that there are.
MOST_LEAP: Final = 1 << 40
MOST_GENERATION_LEAP: Final = 64


class Random(Protocol):
    """A `random.Random`, seeded in tests."""

    def random(self) -> float:
        """Return a number from 0 up to, and not including, 1."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits."""
        ...


class Ballot(NamedTuple):
    """A ballot; ballots of one register are ordered as tuples, unless they conflict."""

    generation: int
    force: int
    counter: int
    proposer: int

    def next(self) -> Ballot:
        """The ballot that the same proposer takes next."""
        return self._replace(counter=self.counter + 1)

    def is_plausible_after(self, promise: Ballot) -> bool:
        """Whether it is so near above `promise` that nobody made it up."""
        before = promise.counter if promise.generation == self.generation else 0
        most = min(before + MOST_LEAP, MOST_COUNTER - 1)  # There is a next one.
        return self.counter <= most and self.generation <= promise.generation + MOST_GENERATION_LEAP


ZERO: Final = Ballot(0, 0, 0, 0)  # Of a value that its creation wrote.
BELOW: Final = Ballot(0, 0, -1, 0)  # Below all.


def are_conflicting(one: Ballot, other: Ballot) -> bool:
    """Whether these are of two forces of one generation: conflicting recoveries."""
    return one.generation == other.generation and one.force != other.force


def draw_id(random: Random) -> int:
    """Draw an id of 64 bits that is not 0."""
    return random.getrandbits(64) or 1


def ballot_of(value: object) -> Ballot:
    """Read a ballot from decoded MessagePack.

    Raises:
        ProtocolError: it does not have the form of a ballot.
    """
    match value:
        case [int(generation), int(force), int(counter), int(proposer)] if (
            0 <= generation <= MOST_GENERATION
            and 0 <= force < 1 << 64
            and 0 <= counter <= MOST_COUNTER
            and 0 <= proposer < 1 << 64
            and bool(generation) == bool(force)
        ):
            return Ballot(generation, force, counter, proposer)
    raise ProtocolError(
        "a ballot is [generation, force id, counter, proposer], with a force id in all generations but the first",
        {"got": repr(value)[:80]},
    )
