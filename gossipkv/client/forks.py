"""Lets clients notice that they are in a forked child: by the number of forks, or by a call in the child.

Comparing the number is for each request; asking the system for the process id would cost more than the rest of it.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Heir(Protocol):
    """An object that a child inherits, and must not use as it is."""

    def renew(self) -> None: ...


generation = 0
heirs: Final[WeakSet[Heir]] = WeakSet()  # Each is renewed at once in a child, before its other code runs.


def _begin() -> None:
    global generation  # noqa: PLW0603  # The counter is the state of this module.
    generation += 1
    for heir in [*heirs]:
        heir.renew()


if hasattr(os, "register_at_fork"):  # Systems without it have no fork.
    os.register_at_fork(after_in_child=_begin)
