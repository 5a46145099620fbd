"""A guard: a test of README's line starts no process, sleeps no real time and uses no network.

Each of those deeds would make the verdict depend on the machine. Tests of `tests/smoke` may do all of them.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
import trio

from tests.tiers import TESTS, tier_of

if TYPE_CHECKING:
    from collections.abc import Generator

DEEDS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "socket.bind": "uses the network",
    "socket.connect": "uses the network",
}


class RealWorld:
    """A pytest plugin that notes such deeds while a test of the line runs, and fails the test."""

    def __init__(self) -> None:
        self._deeds: set[str] = set()
        self._sleeps = time.sleep, trio.sleep
        time.sleep, trio.sleep = self._note_sleep, self._note_sleep_in_trio
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        # A thread of an earlier test must not blame this one.
        if threading.current_thread() is not threading.main_thread():
            return
        if event in DEEDS and (not event.startswith("socket.") or isinstance(arguments[1], tuple)):
            self._deeds.add(DEEDS[event])

    def _note_sleep(self, seconds: float) -> None:
        self._deeds.add("sleeps")
        self._sleeps[0](seconds)

    async def _note_sleep_in_trio(self, seconds: float) -> None:
        if seconds > 0 and not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock):
            self._deeds.add("sleeps")
        await self._sleeps[1](seconds)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._deeds.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Fail the test after its end, so that no code under test can hide the failure."""
        yield
        if self._deeds and tier_of(item.path) == "line" and not item.path.is_relative_to(TESTS / "smoke"):
            name = f"{item.path.stem}_slow.py"
            pytest.fail(f"this test {' and '.join(sorted(self._deeds))}: move it to {name}", pytrace=False)
