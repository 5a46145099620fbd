"""Configuration of every test run: the inputs of properties, sums over many tests, and two guards.

* Extensions older than their source stop the run: a test of yesterday's compiled code proves nothing.
* Every skipped test is printed with its reason, and a skip that `tests/skips.txt` does not list fails the run.

`tests/tiers.py` selects the tests of a run.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import tally as tallies
from tests import tiers
from tests.real_world import RealWorld
from tests.seeded import Seeded
from tests.skips import SkipReport, read_skips

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

pytest.register_assert_rewrite("tests.simulation.judges")  # The rewrite makes a judge show the compared values.

ROOT = Path(__file__).parent.parent

# The tests start a thousand interpreters, so bytecode that is unwanted in the source tree is kept elsewhere.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Long tests come first: a long test at the end would keep one worker busy while the other is idle.
LONG = tuple(
    f"tests/{folder}/" for folder in ("smoke", "simulation", "nightly", "ci/cluster", "ci/matrix", "ci/leaving")
)

# Each run has the same inputs, so that a red run means changed code; `make fuzz` looks for new ones. Hypothesis also
# draws from the constants of all loaded modules, so no test may rely on a particular draw.
settings.register_profile(
    "fixed",
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "brief", settings.get_profile("fixed"), max_examples=5
)  # This is for a further Python and the debug build.
settings.register_profile("explore", settings.get_profile("fixed"), derandomize=False, max_examples=1000)
# This is for code with a defect: finding the defect is enough, and a minimal example is of no use.
settings.register_profile(
    "planted",
    settings.get_profile("fixed"),
    max_examples=100,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
settings.load_profile("fixed")

INCLUDED = re.compile(r'^include "(.+)"$', re.MULTILINE)


def stale_extensions(root: Path) -> list[str]:
    """Return the extensions of a source tree that are not built, or are older than their sources."""
    headers = [*(root / "src_ext").rglob("*.h"), root / "setup.py"]
    stale = []
    for source in sorted((root / "src_ext").rglob("_*.pyx")):
        place = root / source.relative_to(root / "src_ext").with_suffix("")
        built = place.with_name(place.name + EXTENSION_SUFFIXES[0])
        of_it = [path for path in (source, source.with_suffix(".pxd")) if path.exists()]
        parts = [path.parent / name for path in of_it for name in INCLUDED.findall(path.read_text(encoding="utf-8"))]
        changed = max(path.stat().st_mtime for path in (*of_it, *parts, *headers))
        if not built.exists() or built.stat().st_mtime < changed:
            stale.append(str(place.relative_to(root)))
    return stale


def pytest_configure(config: pytest.Config) -> None:
    """Refuse stale extensions, register the plugins, and restore Ctrl-C.

    A shell that starts a job in the background makes the job and its children ignore SIGINT: then processes under test
    could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (ROOT / "gossipkv").is_dir() and (stale := stale_extensions(ROOT)):
        names = ", ".join(stale)
        message = f"not built, or older than their source: {names}.\nRun `make build` (or `pip install -e .`) first."
        raise pytest.UsageError(message)
    end_with_a_crashed_worker(config)
    config.pluginmanager.register(Seeded(config), "gossipkv-seeded")
    config.pluginmanager.register(tiers, "gossipkv-tiers")
    config.pluginmanager.register(RealWorld(), "gossipkv-real-world")
    config.pluginmanager.register(SkipReport(read_skips(ROOT / "tests" / "skips.txt")), "gossipkv-skips")
    tallies.begin(config)
    # No test cuts the power: simulated disks judge the syncs, and real syncs take a third of the line's time.
    os.fsync = os.fdatasync = lambda _descriptor: None


def end_with_a_crashed_worker(config: pytest.Config) -> None:
    """With `-n 2`: end the run, with the test's name, if a worker crashes.

    Otherwise the scheduler gives the same test to a replacement worker, and may then wait for ever.
    """
    if getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--one-of-each`, for repeated runs of the same code on another Python or in a debug build."""
    parser.addoption(
        "--one-of-each", action="store_true", help="run each test function with the first of its parameters alone"
    )


def pytest_collection_finish() -> None:
    """Exclude a million collected objects from garbage collections, which saves a twentieth of the run's time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests of `LONG` first; within both groups the order stays as drawn."""
    if config.getoption("--one-of-each"):
        ordered = sorted(items, key=lambda item: item.nodeid, reverse=True)
        first = {item.nodeid.partition("[")[0]: item for item in ordered}
        items[:] = first.values()
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture
def autojump_clock(request: pytest.FixtureRequest, autojump_clock: MockClock) -> MockClock:
    """pytest-trio's fixture, which has silently no effect if only another fixture requests it."""
    assert "autojump_clock" in signature(request.function).parameters, "the test itself must ask for it"
    return autojump_clock


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Return `note(judge, record)`, which adds a record to the test's series (`tests/tally.py`)."""
    tally = pytestconfig.pluginmanager.get_plugin("gossipkv-tally")
    assert isinstance(tally, tallies.Tally)
    return tally.note
