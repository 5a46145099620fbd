"""A patch of the code: what it replaces, and what must notice it."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """One line of a module, and what stands there instead."""

    place: str  # "module:Class.method", or a function or a table of the module.
    line: str  # Stands in that place exactly once.
    instead: str

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]


class Mutant(NamedTuple):
    """Edits of one module, and the aims at which they must be seen."""

    name: str
    edits: tuple[Edit, ...]
    aims: tuple[str, ...]  # Scenarios by name, seeds by number, tests of properties by path.  One is enough.
    by: str  # The checker that is expected to speak; "assertion of <function>" where it is to be one of the code's own.


def planted(name: str, place: str, line: str, instead: str, *aims: str, by: str = "property") -> Mutant:
    return Mutant(name, (Edit(place, line, instead),), aims, by)
