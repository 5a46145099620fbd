"""How often this process is the child of a `fork`: a client remembers the number and so knows its own process.

A number is compared for each request; asking the system for the process' id would cost more than the rest of it.
"""

from __future__ import annotations

import os

generation = 0


def _count() -> None:
    global generation  # noqa: PLW0603  # The one thing that this module is.
    generation += 1


if hasattr(os, "register_at_fork"):  # Where it is missing there is no fork either.
    os.register_at_fork(after_in_child=_count)
