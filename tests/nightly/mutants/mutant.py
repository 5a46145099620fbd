"""A patch of the code, and the tests that must notice it."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """A line of a module, and its replacement."""

    place: str  # "module:Class.method", or a function or a table of the module.
    line: str  # It occurs in that place exactly once.
    instead: str

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]


class Mutant(NamedTuple):
    """Edits of one module, and the aims that must notice them."""

    name: str
    edits: tuple[Edit, ...]
    aims: tuple[str, ...]  # Scenarios by name, seeds by number, tests of properties by path; one failure suffices.
    by: str  # The checker that is expected to report; "assertion of <function>" for an assertion of the code itself.


def planted(name: str, place: str, line: str, instead: str, *aims: str, by: str = "property") -> Mutant:
    return Mutant(name, (Edit(place, line, instead),), aims, by)
