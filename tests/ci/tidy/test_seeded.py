"""A seed fixes the order of tasks, in any process and after any tests; a failure prints the seed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["pytester"]

PATIENCE_S = 240  # A busy machine took more than 120 s.

CONFTEST = """
from tests.seeded import Seeded

def pytest_configure(config):
    config.pluginmanager.register(Seeded(config))
"""

DRAWING = """
import random
from pathlib import Path
import pytest, trio
from trio.testing import MockClock

@pytest.fixture
async def one():
    return random.random()

@pytest.fixture
async def other(nursery):
    return random.random()

@pytest.fixture
async def third():
    return random.random()

async def order(note):
    drawn = []
    async def task(number):
        await trio.sleep(1)
        drawn.append(number)
    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(task, number)
    note.append((drawn, random.random(), random.SystemRandom().random()))

@pytest.mark.parametrize("n", range(8))
async def test_fixture(n, autojump_clock, one, nursery, other, third):
    said = [one, other, third]
    await order(said)
    Path(f"fixture-{n}.said").write_text(repr((said, list({"a", "b", "c", "d", "e"}))))
    assert n != 5

@pytest.mark.parametrize("n", range(8))
def test_plain(n):
    said = []
    trio.run(order, said, clock=MockClock(autojump_threshold=0))
    Path(f"plain-{n}.said").write_text(repr(said))
"""


@pytest.fixture
def drawn(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Return `drawn(seed, *arguments)`, which runs the tests and returns each test's draw, and the output."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\ntrio_mode = true\n")
    pytester.makepyfile(test_it=DRAWING)

    def run(*arguments: str) -> tuple[dict[str, str], str]:
        result = pytester.runpytest_subprocess(*arguments, timeout=PATIENCE_S)
        return results(pytester.path), result.stdout.str()

    return run


def results(place: Path) -> dict[str, str]:
    found = {path.name: path.read_text() for path in place.glob("*-[0-9].said")}
    for name in found:
        (place / name).unlink()
    return found


def test_a_seed_gives_one_order(drawn) -> None:
    """The tests of one worker, of three, and one alone draw the same; those of another seed do not."""
    first, _ = drawn("--randomly-seed=7", "-n", "1")
    again, _ = drawn("--randomly-seed=7", "-n", "3")
    other, _ = drawn("--randomly-seed=8", "-n", "1")
    assert first == again
    assert len(first) == 16
    assert all(first[name] != other[name] for name in first)
    assert len(set(first.values())) == 16


def test_a_failure_prints_the_command_that_repeats_it(drawn, pytester: pytest.Pytester) -> None:
    """The printed command runs the same test in the same order."""
    first, output = drawn("-n", "2")
    (command,) = re.findall(r"^(PYTHONHASHSEED=\d+ \S+ -m pytest --randomly-seed=\d+ .*)$", output, re.MULTILINE)
    hash_seed, _, *rest = shlex.split(command)
    done = subprocess.run(["env", hash_seed, sys.executable, *rest], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert command in done.stdout
    assert results(pytester.path) == {"fixture-5.said": first["fixture-5.said"]}
