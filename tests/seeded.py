"""A seed replays a test: pytest-randomly's seed also orders Trio's tasks and, in workers, hashes strings.

pytest-randomly prints the seed of a run (`--randomly-seed=N`; pyproject.toml has the usual one) in the head of the
output and seeds `random` with it before each test. This plugin does the same for Trio's scheduler
(`tests/world/nodes/scheduling.py`). Both add the test's id to the seed, so neither the order of the tests nor the
number of workers matters. Workers of `-n` get the seed as `PYTHONHASHSEED`, which orders sets of strings, unless the
environment has one. The system's random numbers, which nodes draw, come from `random` here.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from pytest_trio.plugin import TrioFixture

from tests.world.nodes.scheduling import seeded, uncollected

if TYPE_CHECKING:
    from collections.abc import Generator

HASH_SEED = "PYTHONHASHSEED"
VIRTUAL_CLOCKS = {"autojump_clock", "mock_clock"}  # The fixtures that give a test a clock of its own.


def replay_command(seed: int, test: str) -> str:
    """Return the command that runs one test again as it ran in this process."""
    hash_seed = os.environ.get(HASH_SEED, "random")
    prefix = "" if hash_seed == "random" else f"{HASH_SEED}={hash_seed} "
    return f"{prefix}{os.path.basename(sys.executable)} -m pytest --randomly-seed={seed} '{test}'"


def hash_by_name(fixture: TrioFixture) -> int:
    """Return a hash that orders the fixtures of a test for pytest-trio; otherwise their addresses would."""
    return crc32(fixture.name.encode())


class SystemRandom(random.Random):
    """Replaces Python's class of this name, and draws from the seed of the test."""

    def __init__(self) -> None:
        super().__init__(random.getrandbits(64))


class Seeded:
    """A pytest plugin: the seed orders each test's tasks, and a failure prints its replay."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        TrioFixture.__hash__ = hash_by_name
        random.SystemRandom = SystemRandom

    @property
    def _seed(self) -> int:
        return self._config.getoption("randomly_seed", default=0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        with seeded(f"{self._seed} {item.nodeid} setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Seed the scheduler for the test alone: the fixtures set up before depend on the tests before."""
        with seeded(f"{self._seed} {item.nodeid}"):
            if VIRTUAL_CLOCKS.isdisjoint(getattr(item, "fixturenames", ())):
                return (yield)
            with uncollected():
                return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.append(("Replay", replay_command(self._seed, item.nodeid)))
        return report

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self) -> None:
        """Set the environment of workers, before the first one starts."""
        os.environ.setdefault(HASH_SEED, str(self._seed % 2**32))
