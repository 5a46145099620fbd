"""The report has the runs, measurements and failures; a leg that fails does not stop the next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.nightly import __main__ as nightly
from tests.nightly import budgets
from tests.nightly.__main__ import Leg
from tests.nightly.line.test_line import run_line

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
def test_right(record_property):
    record_property("measured", "7 flips")
def test_wrong():
    assert False
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nightly, "SCRATCH", tmp_path / "scratch")
    place = tmp_path / "test_two.py"
    place.write_text(TESTS)
    return place


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def test_the_report(tests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report covers a failed leg, a successful one, and one whose build fails before its tests."""
    monkeypatch.setenv("FUZZ_FLIPS", "11")
    mark = tmp_path / "mended"
    legs = [
        Leg("half wrong", tests=("-c", "/dev/null", str(tests)), after=[python(f"open({str(mark)!r}, 'w')")]),
        Leg("right", tests=("-c", "/dev/null", str(tests), "-k", "right"), environ={"FUZZ_FRAMES": "3"}),
        Leg("not built", before=[python("raise SystemExit(1)"), python("raise SystemExit(0)")], tests=(str(tests),)),
    ]
    assert nightly.report(tmp_path / "report.txt", legs) == 1
    told = (tmp_path / "report.txt").read_text()
    lines = [" ".join(line.split()) for line in told.splitlines() if line]
    for expected in ("FUZZ_FLIPS=11", "SOAK_SECONDS=as for a change"):
        assert expected in lines[3]
    assert [line.split()[0] for line in lines if " s " in line] == ["FAILED", "ok", "FAILED"]
    assert "2 tests, 1 failure, 0 error, 0 skipped" in lines
    assert lines.count("test_right: 7 flips") == 2
    assert "1 tests, 0 failure, 0 error, 0 skipped" in lines
    assert sum(line.startswith("failure: ") and line.endswith("::test_wrong") for line in lines) == 1
    assert any(line.endswith("right FUZZ_FRAMES=3") for line in lines)
    assert lines[-1].endswith("NOT all is well")
    assert mark.exists()


def test_a_line_that_fails_is_listed(tests: Path) -> None:
    """A line beside a busy loop returns its status and its failed tests."""
    status, failed, _ = run_line(7, 1, "-c", "/dev/null", f"--rootdir={tests.parent}", str(tests))
    assert status == pytest.ExitCode.TESTS_FAILED
    assert [test.rpartition("/")[2] for test in failed] == ["test_two.py::test_wrong"]


SLOW = """
import time
def test_right(): ...
def test_endless():
    time.sleep(600)
"""


def test_a_leg_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results until the cut are reported, and a cut is no failure."""
    monkeypatch.setattr(nightly, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(nightly, "LEG_MINUTES", 0.1)
    (tmp_path / "test_two.py").write_text(SLOW)
    chosen = ("-c", "/dev/null", "-p", "no:randomly", str(tmp_path / "test_two.py"))
    assert nightly.report(tmp_path / "report.txt", [Leg("slow", tests=chosen)]) == 0
    told = (tmp_path / "report.txt").read_text()
    assert "slow (cut after 0.1 minutes)" in told
    assert "all is well" in told


COSTLY = """
def test_costly():
    sum(range(20_000_000))
"""


def test_who_is_over_its_budget_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder over its budget fails the leg; reports are appended to each other."""
    monkeypatch.setattr(nightly, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setenv("PYTHONPATH", str(nightly.ROOT))
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_one.py").write_text(COSTLY)
    leg = Leg(
        "budgets", tests=("-c", "/dev/null", f"--rootdir={tmp_path}", "-p", "tests.nightly.budgets", str(tmp_path))
    )
    for budget_s, expected in ((60, "within"), (0.001, "failure")):
        monkeypatch.setitem(budgets.BUDGETS, "tests/unit", budget_s)
        assert nightly.report(tmp_path / "report.txt", [leg]) == (expected == "failure")
        assert f"{expected}: tests/unit took " in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "report.txt").read_text().count("begun ") == 2


def test_every_number_is_used() -> None:
    """A test reads each number of the report, and the Makefile sets each twice."""
    sources = [path.read_text() for path in (nightly.ROOT / "tests").rglob("test_*.py")]
    sources += [
        (nightly.ROOT / "tests" / "nightly" / name).read_text()
        for name in ("fuzz/frames.py", "mutants/generated.py", "__main__.py")
    ]
    makefile = (nightly.ROOT / "Makefile").read_text()
    for name in nightly.NUMBERS:
        assert any(f'os.environ.get("{name}"' in source for source in sources), name
        assert makefile.count(f"{name}=") == 2, name


def test_what_is_left_out_is_there() -> None:
    """Each test that the sanitizers leave out exists; a wrong name would leave out nothing."""
    for place in nightly.OF_MEMORY:
        file, _, name = place.partition("::")
        assert f"def {name}" in (nightly.ROOT / file).read_text(), place


def test_legs_are_named() -> None:
    """An unknown leg is refused with the names of the known ones."""
    with pytest.raises(
        SystemExit,
        match="no such leg: nosuch; there are seeds, datasets, registers, metadata, replication, ",
    ):
        nightly.main("report.txt", "nosuch")
