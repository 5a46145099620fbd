"""The number of forks between the first process and this one: a client compares it to notice a forked child.

The comparison happens for each request; asking the system for the process id would cost more than the rest of it.
"""

from __future__ import annotations

import os

generation = 0


def _count() -> None:
    global generation  # noqa: PLW0603  # The counter is the state of this module.
    generation += 1


if hasattr(os, "register_at_fork"):  # Systems without it have no fork.
    os.register_at_fork(after_in_child=_count)
