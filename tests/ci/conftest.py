"""`.ci/run` distributes these tests among workers by file, since tests of a file share their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

SHARED_BY_NONE = (
    "tests/ci/simulation/",
    "tests/simulation/",
)  # Each of the hundreds of runs is alone in its world, so any idle worker takes the next.


class BySharing(LoadFileScheduling):
    """`--dist loadfile`, except for tests that share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(SHARED_BY_NONE) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySharing | None:
    return BySharing(config, log) if config.getoption("dist") == "loadfile" else None
