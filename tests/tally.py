"""Sums over a series of tests: each seed is a test, in any process, and a judge checks all that were run.

A test notes its record with the name of a judge, a function that takes the records of a run and asserts joint
properties ("every fault has struck"); the number of records limits its demands. The process that began the run calls
the judges, and a complaint fails the run.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdist.workermanage import WorkerController

    Judge = Callable[[list[dict[str, object]]], None]


class Tally:
    """A pytest plugin: keeps the records of all workers below one directory, and calls the judges at the end."""

    def __init__(self, given: str | None) -> None:
        """Join the run whose directory is `given`, or begin one."""
        self._own = None if given else tempfile.TemporaryDirectory(prefix="tally-")
        self.directory = Path(self._own.name if self._own else str(given))
        self.complaints: list[str] = []

    def note(self, judge: Judge, record: dict[str, object]) -> None:
        """Keep a record, in JSON, for a judge defined at the top of a module."""
        place = self.directory / f"{judge.__module__}:{judge.__name__}"
        place.mkdir(exist_ok=True)
        (place / uuid4().hex).write_text(json.dumps(record), encoding="utf-8")

    def judge(self) -> list[str]:
        complaints = []
        for place in sorted(self.directory.iterdir()):
            module, _, name = place.name.partition(":")
            records = [json.loads(path.read_text(encoding="utf-8")) for path in place.iterdir()]
            try:
                getattr(import_module(module), name)(records)
            except AssertionError as error:
                complaints.append(f"{place.name}, of {len(records)} runs: {error}")
        return complaints

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput["tally"] = str(self.directory)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Call the judges in the process that began the run; a complaint fails the run."""
        if self._own is None:
            return
        self.complaints = self.judge()
        self._own.cleanup()
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.complaints:
            terminalreporter.section("series that are not what they should be")
            for complaint in self.complaints:
                terminalreporter.line(f"FAILED {complaint}", red=True)


def sums(records: list[dict[str, dict[str, int]]], name: str) -> defaultdict[str, int]:
    """Return the sum of the counts of that name over all records."""
    added: defaultdict[str, int] = defaultdict(int)
    for record in records:
        for key, count in record[name].items():
            added[key] += count
    return added


def begin(config: pytest.Config) -> Tally:
    tally = Tally(getattr(config, "workerinput", {}).get("tally"))
    config.pluginmanager.register(tally, "gossipkv-tally")
    return tally
