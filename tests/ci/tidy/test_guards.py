"""The guards around every test run: unexpected skips, stale extensions, tiers, crashed workers, judged series."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.conftest import ROOT, stale_extensions
from tests.skips import read_skips
from tests.tiers import tier_of

pytest_plugins = ["pytester"]

GUARDED = """
import pytest
from pathlib import Path
from tests.skips import SkipReport, read_skips

def pytest_configure(config):
    config.pluginmanager.register(SkipReport(read_skips(Path(__file__).with_name("skips.txt"))))
"""

SKIPPING = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.skip(reason="no tmpfs here")
def test_disk(n): ...

@pytest.mark.xfail(strict=True)
def test_known(): assert False

def test_fine(): ...
"""

CRASHING = """
import os
import pytest

@pytest.mark.parametrize("n", range(30))
def test_number(n):
    if n == 7:
        os.abort()
"""


def run(pytester: pytest.Pytester, skips: str, tests: str = SKIPPING) -> pytest.RunResult:
    pytester.makeconftest(GUARDED)
    pytester.makefile(".txt", skips=skips)
    pytester.makepyfile(test_it=tests)
    # The plugin's end would remove every fault handler of this process, including the one for lost maps.
    return pytester.runpytest("-p", "no:randomly", "-p", "no:faulthandler")


def test_a_listed_skip_passes_and_is_printed(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_it.py::test_disk[*]\tno tmpfs")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*skipped: 2, not listed in tests/skips.txt: 0*", "listed  *test_disk[[]1]  no tmpfs*"]
    )


@pytest.mark.parametrize("skips", ["", "# only words", "test_it.py::test_other\tno tmpfs", "*\tno root", "*[1]\ttmpfs"])
def test_an_unlisted_skip_fails_the_run(pytester: pytest.Pytester, skips: str) -> None:
    result = run(pytester, skips)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["NOT LISTED  *test_disk*  no tmpfs*"])


def test_a_skipped_module_counts(pytester: pytest.Pytester) -> None:
    """A module that is skipped as a whole needs a line like any test."""
    module = "import pytest\npytest.importorskip('no_such_module_anywhere')\ndef test_x(): ...\n"
    assert run(pytester, "", module + "\n").ret != pytest.ExitCode.OK
    result = run(pytester, "*test_it.py\tcould not import", module)
    result.stdout.fnmatch_lines(["*not listed in tests/skips.txt: 0*"])


@pytest.mark.parametrize("line", ["tests/unit/x no tab", "\tno id", "id\t", "id\t(unclosed"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    listed = tmp_path / "skips.txt"
    listed.write_text(f"# words\n{line}\n", encoding="utf-8")
    with pytest.raises(pytest.UsageError, match=r"skips\.txt:2: "):
        read_skips(listed)


def test_no_test_of_the_line_is_listed() -> None:
    files = [skip.test.partition("::")[0] for skip in read_skips(ROOT / "tests" / "skips.txt")]
    assert [file for file in files if tier_of(ROOT / file) == "line"] == []


PURE = """
import subprocess, sys, time
def test_pure(): ...
def test_process():
    subprocess.run([sys.executable, "-c", ""])
    time.sleep(0.01)
"""


def test_a_deed_in_the_real_world_fails_a_test_of_the_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the deeds and the right file; a file of another tier may do them."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "from tests.real_world import RealWorld\n"
        "def pytest_configure(config): config.pluginmanager.register(RealWorld())\n"
    )
    pytester.makepyfile(test_it=PURE, test_it_slow=PURE)
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["this test sleeps and starts a process: move it to test_it_slow.py"])


TIERS = {"test_x": "LINE", "test_x_slow": "SLOW", "test_x_night": "NIGHT"}


@pytest.mark.parametrize(("arguments", "found"), [
    ((), ["LINE"]),
    (("-m", "slow"), ["SLOW"]),
    (("-m", "not night"), ["LINE", "SLOW"]),
    (("test_x_night.py",), ["NIGHT"]),
])  # fmt: skip
def test_the_name_of_a_file_tells_its_tier(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], found: list[str]
) -> None:
    """A file of another tier is not imported, unless the command names it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "from tests import tiers\ndef pytest_configure(config): config.pluginmanager.register(tiers)\n"
    )
    pytester.makeini("[pytest]\nmarkers = line\n slow\n night\n")
    pytester.makepyfile(**{name: f"print('{word} is imported')\ndef test_it(): ..." for name, word in TIERS.items()})
    result = pytester.runpytest_subprocess("-s", *arguments)
    result.assert_outcomes(passed=len(found))
    assert [word for word in TIERS.values() if f"{word} is imported" in result.stdout.str()] == found


def test_a_crashed_worker_ends_the_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends, fails and names the test of the crashed worker."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest("from tests.conftest import end_with_a_crashed_worker as pytest_configure")
    pytester.makepyfile(test_it=CRASHING)
    result = pytester.runpytest_subprocess("-n", "2", "-ra", timeout=120)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_number[[]7] - worker 'gw?' crashed*"])


SERIES = """
import pytest
from judging import judge

@pytest.mark.parametrize("n", range(20))
def test_number(n, note):
    note(judge, {"n": n})
"""

JUDGES = """
def judge(records):
    assert sum(record["n"] for record in records) == %d, len(records)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize(("total", "ends"), [(190, pytest.ExitCode.OK), (191, pytest.ExitCode.TESTS_FAILED)])
def test_a_series_is_judged_as_a_whole(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...], total: int, ends: int
) -> None:
    """The judge sees all records of the series once, from all workers, and its complaint fails the run."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(pytester.path)]))
    pytester.makeconftest("from tests.conftest import note\nfrom tests.tally import begin as pytest_configure")
    pytester.makepyfile(judging=JUDGES % total, test_it=SERIES)
    result = pytester.runpytest_subprocess(*workers)
    assert result.ret == ends
    assert ("FAILED judging:judge, of 20 runs: 20" in result.stdout.str()) == (ends != pytest.ExitCode.OK)


def test_no_clock_dumps_stacks(pytestconfig: pytest.Config) -> None:
    """No watchdog thread reads the stacks of a busy test, since that can crash the interpreter."""
    assert float(pytestconfig.getini("faulthandler_timeout")) == 0


def test_stale_extensions_are_seen(tmp_path: Path) -> None:
    """An extension is stale if it is missing or older than one of its sources."""
    source = tmp_path / "src_ext" / "gossipkv" / "wire" / "_frames.pyx"
    built = tmp_path / "gossipkv" / "wire" / f"_frames{EXTENSION_SUFFIXES[0]}"
    part = source.with_name("frames.pxd")
    header = tmp_path / "src_ext" / "bits.h"
    for path in (source, part, built, header, tmp_path / "setup.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000, 1000))
    source.write_text('include "frames.pxd"\n')
    os.utime(source, (1000, 1000))
    assert stale_extensions(tmp_path) == []
    for newer in (source, part, header, tmp_path / "setup.py"):
        os.utime(newer, (2000, 2000))
        assert stale_extensions(tmp_path) == [str(Path("gossipkv", "wire", "_frames"))]
        os.utime(newer, (1000, 1000))
    built.rename(built.with_name("_frames.cpython-305-other.so"))
    assert stale_extensions(tmp_path) == [str(Path("gossipkv", "wire", "_frames"))]
