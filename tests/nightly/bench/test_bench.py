"""The benchmark itself is tested, so that it does not rot between the days on which its figures are read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench import builds, data, figures, goals, meters, report, verification
from tests.bench.measurement import Measurement, WrongAnswerError
from tests.bench.parts import PARTS
from tests.bench.peers.python_dict import PythonDict
from tests.bench.register import etcd
from tests.nightly.bench import kept

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> str:
    """Return the tables that a separate process prints."""
    command = [sys.executable, "-m", "tests.bench", "--quick", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=280).stdout


@pytest.mark.parametrize("part", PARTS)
def test_quick_run_of_a_part(part: str, tmp_path: Path) -> None:
    """Each part has its rows with the installed peers, all values are right, and its file has the rows."""
    if (missing := PARTS[part].missing()) is not None:
        pytest.skip(f"needs {missing}")
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path), "--figures", str(tmp_path))
    rows = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    optional = set() if shutil.which("redis-server") else {*goals.LOAD_COSTS}
    assert {*PARTS[part].rows} - optional == rows.keys() - optional
    for name, row in rows.items():
        if name not in MAY_BE_NOTHING:
            assert all(figure > 0 for samples in row["samples"].values() for figure in samples)
    for package, peer in (("rocksdict", "RocksDB"), ("lmdb", "LMDB")):
        for row in PARTS[part].rows:
            assert peer not in row.limits or (peer in rows[row]["samples"]) == (find_spec(package) is not None)
    assert {row["what"] for row in figures.read(tmp_path / f"{part}.json")["rows"]} == {*rows}


@pytest.mark.timeout(3600)
def test_goals_of_parquet_stay_met(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("measured", kept.check("parquet", tmp_path))


# The growth of a process, and the difference of two processes, may be zero or negative.
MAY_BE_NOTHING = {goals.NETWORK_MEMORY, goals.COPIES_IDLE, goals.COPIES_START, goals.COPIES_MEMORY, goals.RANGES_MEMORY}


def test_a_build_is_compared_with_itself(tmp_path: Path) -> None:
    """Both sides of a row have times, and instruction counts if this machine can count."""
    command = [sys.executable, "-m", "tests.bench.builds", str(builds.ROOT)]
    command += ["--quick", "--rounds", "1", "--only", "lookup"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280).stdout
    time, *counted = report.lines_of(printed)
    assert time[0] == goals.GET_HIT_SMALL
    assert float(time[4]) > 0
    assert len(counted) == (builds.instructions(tmp_path) is not None)
    assert all(float(line[4]) == pytest.approx(1, abs=0.02) for line in counted)


def test_a_build_that_answers_wrongly_has_no_figure(tmp_path: Path) -> None:
    """A process that ends early and a run that differs stop their row; a tree without a build stops all."""
    side = builds.Side("here", builds.ROOT, tmp_path, meters.ProcessorTime(), builds.Cores.of_this_machine())
    work = builds.working(side, 1, work="no such work")
    with pytest.raises(WrongAnswerError, match="ended early"), work:
        pass
    assert builds.traces('{"trace": "a-1-2"}\n{"trace": "b-3-4"}') == [("a", "2"), ("b", "4")]
    with pytest.raises(SystemExit, match="no checkout that is built"):
        builds.check_package(replace(side, tree=tmp_path))


def test_what_was_not_counted_is_no_count(tmp_path: Path) -> None:
    """A counter without a count raises an error."""
    (tmp_path / "perf").write_text("<not supported>,,instructions:u,0,100.00,,\n")
    with pytest.raises(RuntimeError, match="does not count"):
        meters.Perf(tmp_path).take()
    (tmp_path / "perf").write_text("# started on\n\n4711,,instructions:u,100,100.00,,\n")
    assert meters.Perf(tmp_path).take() == 4711
    with pytest.raises(RuntimeError, match="counted nothing"):
        meters.Callgrind(tmp_path).take("1.*")


@pytest.mark.parametrize("said", ["50% in 0.0011 secs.", "50% in 1.1 ms."])
def test_etcd_is_measured_by_its_own_tool(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median is read in the units of either version; no server is needed."""
    tool = tmp_path / "benchmark"
    tool.write_text(f"#!/bin/sh\necho '  25% in 0.5 secs.'\necho '  {said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    took_ms, used_us = etcd.Etcd("127.0.0.1:1", [os.getpid()]).transact(10)
    assert took_ms == pytest.approx(1.1)
    assert used_us > 0


def test_wrong_answers_stop_the_run() -> None:
    """An engine with a wrong value, or an answer for an absent key, is not timed."""
    records = data.make(1000, data.SMALL_VALUE_BYTES)
    good = PythonDict(records.records)
    verification.check(good, records)
    for key, value in ((records.records[500][0], b"wrong"), (records.absent[3], b"")):
        bad = PythonDict([*records.records, (key, value)])
        with pytest.raises(WrongAnswerError, match="dict: get"):
            verification.check(bad, records)


def test_values_are_distinct_and_sized() -> None:
    """No value can pass for another; the same arguments give the same records."""
    for size_bytes in (data.SMALL_VALUE_BYTES, data.LARGE_VALUE_BYTES):
        records = data.make(5000, size_bytes)
        assert {len(value) for _, value in records.records} == {size_bytes}
        assert len({value for _, value in records.records}) == len({key for key, _ in records.records}) == 5000
        assert records == data.make(5000, size_bytes)
        assert records.in_order[0][0] == min(key for key, _ in records.records)


def test_ratio_is_taken_within_rounds() -> None:
    """A round in which everything was slow does not move the ratio."""
    measurement = Measurement(goals.GET_HIT_SMALL, {"GossipKV": [1, 40, 1], "LMDB": [2, 80, 4]})
    ratio = measurement.ratio("LMDB")
    assert (ratio.median, ratio.least, ratio.greatest) == (0.5, 0.25, 0.5)


@pytest.mark.parametrize(("ours", "verdict"), [(44.0, "met"), (46.0, "missed")])
def test_verdicts(ours: float, verdict: str) -> None:
    """The table says of each goal if it was met."""
    line = report.table([Measurement(goals.GET_HIT_SMALL, {"GossipKV": [ours], "LMDB": [100.0]})])
    assert verdict in line.splitlines()[-1]
    assert "≤ 0.45" in line
