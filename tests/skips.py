"""Skipped tests are printed, and each must be expected: `tests/skips.txt` lists permitted skips with reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Skip:
    test: str
    reason: re.Pattern[str]

    def covers(self, test: str, reason: str) -> bool:
        """True if this line allows `test` to be skipped for `reason`."""
        # `[` opens a set in a pattern, and occurs in the id of every parametrised test.
        return fnmatchcase(test, self.test.replace("[", "[[]")) and self.reason.search(reason) is not None


def read_skips(path: Path) -> list[Skip]:
    """Read the list.

    Raises:
        pytest.UsageError: A line is not `pattern TAB regular expression`; the error names it.
    """
    skips = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        test, tab, reason = line.partition("\t")
        if not (test.strip() and tab and reason.strip()):
            message = f"{path}:{number}: a pattern of test ids, a TAB and a regular expression are needed"
            raise pytest.UsageError(message)
        try:
            skips.append(Skip(test.strip(), re.compile(reason.strip())))
        except re.error as error:
            message = f"{path}:{number}: {reason.strip()!r} is no regular expression: {error}"
            raise pytest.UsageError(message) from error
    return skips


@dataclass(eq=False)
class SkipReport:
    """A pytest plugin: prints skips, and fails the run if the list does not cover one."""

    allowed: list[Skip]
    seen: list[tuple[str, str]] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report.nodeid, report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report.nodeid, report.longrepr)

    def _note(self, test: str, evidence: object) -> None:
        reason = evidence[2] if isinstance(evidence, tuple) else str(evidence)
        self.seen.append((test, reason.removeprefix("Skipped: ")))

    def unexpected(self) -> list[tuple[str, str]]:
        return [skip for skip in self.seen if not any(line.covers(*skip) for line in self.allowed)]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn a run with an unexpected skip into a failed one."""
        if self.unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seen:
            return
        unexpected = self.unexpected()
        terminalreporter.section(f"skipped: {len(self.seen)}, not listed in tests/skips.txt: {len(unexpected)}")
        for skip in self.seen:
            mark = "NOT LISTED" if skip in unexpected else "listed"
            terminalreporter.line(f"{mark}  {skip[0]}  {skip[1]}")
