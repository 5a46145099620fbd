"""The processor time of the tests of each folder, against its budget.

The module is a plugin of pytest, `-p tests.nightly.budgets`: each test notes its time, including child processes that
it waited for. The leg of this name adds up the times in the run's report.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

NOTED = "cpu_s"

# The unit is seconds of one core of the measuring machine, with a third to spare. A test counts for the longest name
# that fits.
BUDGETS: dict[str, float] = {
    "tests/unit": 18,
    "tests/unit/cli": 12,
    "tests/unit/client": 5,
    "tests/unit/dataset": 85,
    "tests/unit/gossip": 25,
    "tests/unit/http": 5,
    "tests/unit/loadtest": 30,
    "tests/unit/node": 6,
    "tests/unit/register": 12,
    "tests/unit/serving": 45,
    "tests/unit/storage": 75,
    "tests/unit/table": 105,
    "tests/unit/world": 27,
    "tests/simulation": 190,
    "tests/smoke": 22,
    "tests/ci/cluster": 620,
    "tests/ci/deploy": 4,
    "tests/ci/leaving": 60,
    "tests/ci/matrix": 60,
    "tests/ci/simulation": 105,
    "tests/ci/tidy": 50,
}


def folder(path: str) -> str:
    """Return the line of the table to which a test belongs."""
    return max((name for name in BUDGETS if path.startswith(f"{name}/")), key=len, default="elsewhere")


def spent(cases: list[Element]) -> Counter[str]:
    """Return the time of the tests of a report by folder; empty if no test noted it."""
    seconds: Counter[str] = Counter()
    for case in cases:
        for said in case.iter("property"):
            if said.get("name") == NOTED:
                seconds[folder(case.get("classname", "").replace(".", "/"))] += float(said.get("value", "0"))
    return seconds


def told(cases: list[Element]) -> list[str]:
    """Return a line for each folder; folders over their budget are failures."""
    return [
        f"{'failure' if seconds > BUDGETS.get(name, 0) else 'within'}: "
        f"{name} took {seconds:.0f} s of the processor, budget {BUDGETS.get(name, 0):.0f} s"
        for name, seconds in sorted(spent(cases).items())
    ]


def used_s() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = used_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note the test's time after its teardown."""
    if call.when == "teardown":
        item.user_properties.append((NOTED, f"{used_s() - item.stash[BEGAN]:.3f}"))
    return (yield)


BEGAN: pytest.StashKey[float] = pytest.StashKey()
