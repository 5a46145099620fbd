"""One deadline for all steps of a request, so that an error names the step that took the time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, final

import trio

from gossipkv.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class Deadline:
    """The time by which a request must be done."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._at_s = trio.current_time() + timeout_s

    def left_s(self, most_s: float | None = None) -> float:
        """Return the time that is left, but at most `most_s`."""
        left_s = max(0.0, self._at_s - trio.current_time())
        return left_s if most_s is None else min(left_s, most_s)

    @contextlib.contextmanager
    def step(self, work: str) -> Iterator[None]:
        """Run a step that has not changed anything for other nodes yet.

        Raises:
            Unavailable: the step was not done by the deadline.
        """
        with trio.move_on_at(self._at_s) as scope:
            yield
        if scope.cancelled_caught:
            raise Unavailable(f"nothing was changed: {work} took more than the {self._timeout_s:g} s allowed")

    @contextlib.contextmanager
    def half(self) -> Iterator[None]:
        """Run a step that is dropped after half of the time that is left."""
        with trio.move_on_after(self.left_s() / 2):
            yield

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Run a step that is dropped at the deadline."""
        with trio.move_on_at(self._at_s):
            yield
