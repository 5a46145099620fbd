"""What the rows about registers write: a tally of up to eight writers, which shows whether anything was lost or twice.

Each writer numbers its changes from 1 on.  The payload has the last number of each, and how many there were in all; it
is a head of a map that is ended, since nodes accept heads alone, and want no pages for one of those.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, final

from gossipkv.register.changes import READING, Applied, Change, Refused
from gossipkv.register.metadata.head import Head, decode_head
from tests.bench.measurement import WrongAnswerError

if TYPE_CHECKING:
    from gossipkv.register.changes import Functions

WRITERS = 8
NUMBERS = struct.Struct(f">{WRITERS}I")
ARGUMENT = struct.Struct(">BI")
POSITION = struct.Struct(">Q")  # A result: the how manieth change it was; nothing: it was found done.
EMPTY = Head(0, bytes(16), bytes(NUMBERS.size), ended=True).encode()


def change(writer: int, number: int) -> Change:
    """The change of that number."""
    return Change("tally", 1, ARGUMENT.pack(writer, number))


def tally(payload: bytes, argument: bytes, generation: int) -> Applied | Refused:
    """Count one more of a writer, once."""
    del generation
    writer, number = ARGUMENT.unpack(argument)
    head = decode_head(payload)
    numbers = [*NUMBERS.unpack(head.root)]
    if number <= numbers[writer]:
        return Applied(payload)
    if number > numbers[writer] + 1:
        return Refused("CONFLICT", f"change {numbers[writer] + 1} of writer {writer} is missing")
    numbers[writer] = number
    id_ = argument.rjust(len(head.transaction), b"\0")
    after = head.followed_by(head.config + 1, id_, NUMBERS.pack(*numbers))
    return Applied(after._replace(last=after.last[:1], ended=True).encode(), POSITION.pack(after.config))


FUNCTIONS: Functions = READING | {("tally", 1): tally}


@final
class Told:
    """What writers were told of one register."""

    def __init__(self) -> None:
        self.last = [0] * WRITERS
        self._position = [0] * WRITERS
        self._taken: set[int] = set()

    @property
    def count(self) -> int:
        """How many were done."""
        return sum(self.last)

    def done(self, writer: int, number: int, result: bytes) -> None:
        """Take in that a change is done.  Raises WrongAnswerError: its place is another's, or not behind the last."""
        if result:
            (position,) = POSITION.unpack(result)
            if position in self._taken or position <= self._position[writer]:
                raise WrongAnswerError(f"change {number} of writer {writer} is at {position}, where another was")
            self._taken.add(position)
            self._position[writer] = position
        if number != self.last[writer] + 1:
            raise WrongAnswerError(f"change {number} of writer {writer} was done after {self.last[writer]}")
        self.last[writer] = number

    def check(self, payload: bytes) -> None:
        """Raise WrongAnswerError if a payload has not just what was told to be done."""
        head = decode_head(payload)
        found = [*NUMBERS.unpack(head.root)]
        if found != self.last or head.config != sum(found):
            raise WrongAnswerError(f"writers were told {self.last}, and the register has {found}, {head.config} in all")
