"""What every test run shares: where the properties' inputs come from, and two guards.

* Extensions older than their source stop the run: a test of yesterday's compiled code proves nothing.
* Every skipped test is printed with its reason, and one that `tests/skips.txt` does not list fails the run.
"""

from __future__ import annotations

import signal
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.skips import SkipReport, read_skips

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

ROOT = Path(__file__).parent.parent

# With `-n 2`: what starts many processes, or looks at how long they take, stays in one worker and so never runs beside
# its like; and so does what remembers its runs.
TOGETHER = {
    "tests/cluster/": "processes",
    "tests/crashes/": "processes",
    "tests/soak/": "processes",
    "tests/bench/": "processes",
    "tests/simulation/test_seeds.py": "seeds",
}

# What takes long comes before what is soon done: begun last, it would keep one worker busy while the other has nothing.
LONG = ("tests/simulation/", "tests/mutants/", "tests/fuzz/")

# The same inputs on every run, so that a red run means changed code; `make fuzz` looks for new ones.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("brief", settings.get_profile("fixed"), max_examples=20)  # Of a further Python.
settings.register_profile("explore", settings.get_profile("fixed"), derandomize=False, max_examples=1000)
settings.register_profile(  # Of code with a defect: that it is found is enough, how little shows it is of no use.
    "planted", settings.get_profile("fixed"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
settings.load_profile("fixed")


def stale_extensions(root: Path) -> list[str]:
    """The extensions of a source tree that are not built, or are older than what they are built from."""
    headers = [*(root / "src_ext").rglob("*.h"), root / "setup.py"]
    stale = []
    for source in sorted((root / "src_ext").rglob("_*.pyx")):
        place = root / source.relative_to(root / "src_ext").with_suffix("")
        built = place.with_name(place.name + EXTENSION_SUFFIXES[0])
        made_from = [path for path in (source, source.with_suffix(".pxd"), *headers) if path.exists()]
        changed = max(path.stat().st_mtime for path in made_from)
        if not built.exists() or built.stat().st_mtime < changed:
            stale.append(str(place.relative_to(root)))
    return stale


def pytest_configure(config: pytest.Config) -> None:
    """Refuse stale extensions; take up the report of skips; hear Ctrl-C again.

    A shell that starts a job in the background makes it ignore SIGINT, and all that it starts: then processes under
    test could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (ROOT / "gossipkv").is_dir() and (stale := stale_extensions(ROOT)):
        names = ", ".join(stale)
        message = f"not built, or older than their source: {names}.\nRun `make build` (or `pip install -e .`) first."
        raise pytest.UsageError(message)
    end_with_a_crashed_worker(config)
    config.pluginmanager.register(SkipReport(read_skips(ROOT / "tests" / "skips.txt")), "gossipkv-skips")


def end_with_a_crashed_worker(config: pytest.Config) -> None:
    """With `-n 2`: end the run, with the test's name, where a worker crashes.

    Else the scheduler gives the same test to a worker in its place, and may then wait for ever.
    """
    if getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what `LONG` says; within that and the rest the order stays as it was drawn."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Keep together what `TOGETHER` says (`--dist loadgroup` groups nothing under pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # Whoever runs tests in one process needs none.

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((group for path, group in TOGETHER.items() if nodeid.startswith(path)), nodeid)

    return Groups(config, log)
