"""The benchmark itself: it must not rot between the days on which somebody looks at its figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import msgpack
import pytest

from tests.bench import builds, data, goals, meters, report, verification
from tests.bench.datasets import load_client
from tests.bench.measurement import Measurement, Row, WrongAnswerError
from tests.bench.parts import PARTS
from tests.bench.peers.python_dict import PythonDict
from tests.bench.register import etcd

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> str:
    """The table, from a process of its own."""
    command = [sys.executable, "-m", "tests.bench", "--quick", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=280).stdout


def test_quick_run_without_optional_peers() -> None:
    """With a dict as the only peer every row about sorted files is there, and names nobody else."""
    printed = run("--peers", "dict", "--only", "small", "--only", "large", "--only", "memory")
    assert all(row in printed for part in ("small", "large", "memory") for row in PARTS[part].rows)
    assert "dict" in printed
    assert "RocksDB" not in printed


@pytest.mark.parametrize("part", [name for name, part in PARTS.items() if part.rows])
def test_quick_run_of_a_part(part: str, tmp_path: Path) -> None:
    """Each part has its rows with the peers that are here, every value was right, and nothing failed."""
    if (missing := PARTS[part].missing()) is not None:
        pytest.skip(f"needs {missing}")
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    rows = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    optional = {goals.ROUND_TRIP, *goals.LOAD_COSTS} if shutil.which("redis-server") is None else set()
    assert PARTS[part].rows - optional == rows.keys() - optional
    for name, row in rows.items():
        if row["goal"] == 0:
            assert {*row["samples"][row["ours"]]} == {0}
            assert not row["unit"].endswith(" 0"), "nothing was asked"
        elif name not in MAY_BE_NOTHING:
            assert all(figure > 0 for samples in row["samples"].values() for figure in samples)
    for package, peer in (("rocksdict", "RocksDB"), ("lmdb", "LMDB")):
        for row in PARTS[part].rows:
            assert peer not in row.limits or (peer in rows[row]["samples"]) == (find_spec(package) is not None)
    if goals.REGISTER_P50 in rows:
        assert (goals.ETCD in rows[goals.REGISTER_P50]["samples"]) == (etcd.missing() is None)


# By how much a percentile moved, and by how much a process grew, is nothing or less as often as not.
MAY_BE_NOTHING = {goals.HTTP_METRICS_BESIDE, goals.NETWORK_MEMORY, goals.STORE_FOLLOWER_MEMORY}
SIMULATED = goals.SIMULATED.form.partition(",")[0]  # Of the real processor.


def test_quick_run_of_gossip(tmp_path: Path) -> None:
    """Every part has rows, and figures of virtual time are the same in a second run."""
    path = tmp_path / "figures.json"
    figures = []
    for _ in range(2):
        run("--only", "gossip", "--json", str(path))
        rows = json.loads(path.read_text())["rows"]
        figures.append({row["row"]: row["samples"] for row in rows if not row["row"].startswith(SIMULATED)})
    assert figures[0] == figures[1]
    for family in (goals.FIRST_DEAD, goals.CHANGE):
        assert family.of(8, share="p99") in figures[0]
    assert {goals.LEFT, goals.WRONG_DAY, goals.SENT_ALL.of(8), goals.HEALED.of(5)} <= figures[0].keys()


def test_a_build_is_compared_with_itself() -> None:
    """Both sides of a row have figures, and instructions where they can be counted here."""
    command = [sys.executable, "-m", "tests.bench.builds", str(builds.ROOT)]
    command += ["--quick", "--rounds", "1", "--only", "lookup"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280).stdout
    head, _, found = ([cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[-3:])
    assert (head[:4], found[0]) == (list(builds.HEAD[:4]), goals.GET_HIT_SMALL)
    assert float(found[3]) > 0
    if shutil.which("valgrind") is not None:
        assert float(found[6]) == pytest.approx(1, abs=0.02)


def test_a_build_that_answers_wrongly_has_no_figure(tmp_path: Path) -> None:
    """A process that ends early, and a run that is not the same, stop their row; a tree without a build stops all."""
    side = builds.Side("here", builds.ROOT, tmp_path, meters.ProcessorTime(), builds.Cores.of_this_machine())
    work = builds.working(side, 1, work="no such work")
    with pytest.raises(WrongAnswerError, match="ended early"), work:
        pass
    assert builds.traces('{"trace": "a-1-2"}\n{"trace": "b-3-4"}') == [("a", "2"), ("b", "4")]
    with pytest.raises(SystemExit, match="no checkout that is built"):
        builds.check_package(replace(side, tree=tmp_path))


def test_what_was_not_counted_is_no_count(tmp_path: Path) -> None:
    """Neither counter takes silence for a figure."""
    (tmp_path / "perf").write_text("<not supported>,,instructions:u,0,100.00,,\n")
    with pytest.raises(RuntimeError, match="does not count"):
        meters.Perf(tmp_path).take()
    (tmp_path / "perf").write_text("# started on\n\n4711,,instructions:u,100,100.00,,\n")
    assert meters.Perf(tmp_path).take() == 4711
    with pytest.raises(RuntimeError, match="counted nothing"):
        meters.Callgrind(tmp_path).take("1.*")


def test_a_client_counts_what_is_wrong() -> None:
    """A value of another version than the node says, an error and a step back are counted; a right value is not."""
    counts = load_client.Counts()
    asker = load_client.Check("db", 50, counts, load_client.Seen(), min_version=False)
    key = data.key_of(3)
    right = {version: load_client.value_of("db", version, key, 50) for version in ("1", "2")}
    for version in ("1", "2"):
        assert msgpack.unpackb(asker.request(key)) == [0, 1, "get", ["db", key]]
        asker.look(key, [1, 1, None, [right[version], version]])
    assert (counts.reads, counts.failed, counts.back) == (2, 0, 0)
    asker.request(key)
    asker.look(key, [1, 1, None, [right["1"], "1"]])
    assert (counts.failed, counts.back) == (0, 1)
    for answer in ([1, 1, None, [right["1"], "2"]], [1, 1, None, [None, "2"]], [1, 1, ["NOT_READY", "", {}], None]):
        failed = counts.failed
        asker.look(key, answer)
        assert counts.failed == failed + 1
    assert counts.reads == 6


def test_a_client_counts_steps_back_across_nodes() -> None:
    """Older than an answer that another node gave before the get was sent; who says what it saw may be told to wait."""
    counts, seen, key = load_client.Counts(), load_client.Seen(), data.key_of(3)
    one, other = (load_client.Check("db", 50, counts, seen, min_version=True) for _ in range(2))
    answers = {version: [1, 1, None, [load_client.value_of("db", version, key, 50), version]] for version in ("1", "2")}
    one.request(key)
    other.request(key)
    one.look(key, answers["2"])
    other.look(key, answers["1"])
    assert (counts.reads, counts.failed, counts.back) == (2, 0, 0), "it was sent before the other was answered"
    assert msgpack.unpackb(other.request(key)) == [0, 1, "get", ["db", key, {"min_version": "2"}]]
    other.look(key, [1, 1, ["NOT_READY", "", {}], None])
    assert (counts.reads, counts.failed, counts.not_ready) == (2, 0, 1)
    other.request(key)
    other.look(key, answers["1"])
    assert (counts.reads, counts.failed, counts.back) == (3, 0, 1)


def test_wrong_answers_stop_the_run() -> None:
    """An engine with one wrong value, or an answer for an absent key, is not timed."""
    records = data.make(1000, data.SMALL_VALUE_BYTES)
    good = PythonDict(records.records)
    verification.check(good, records)
    for key, value in ((records.records[500][0], b"wrong"), (records.absent[3], b"")):
        bad = PythonDict([*records.records, (key, value)])
        with pytest.raises(WrongAnswerError, match="dict: get"):
            verification.check(bad, records)


def test_values_are_distinct_and_sized() -> None:
    """A wrong value cannot pass for the right one; the same arguments give the same records."""
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
    """The table says of each goal whether it was met."""
    line = report.table([Measurement(goals.GET_HIT_SMALL, {"GossipKV": [ours], "LMDB": [100.0]})])
    assert verdict in line.splitlines()[-1]
    assert "≤ 0.45" in line


def test_document_is_replaced_between_its_marks(tmp_path: Path) -> None:
    """New figures take the old ones' place, and nothing else moves; a file without marks is refused."""
    path = tmp_path / "performance.md"
    path.write_text("a\n<!-- one -->\nold\n<!-- /one -->\nb\n<!-- two -->\nc\n<!-- /two -->\n")
    for text in ("new", "newer"):
        report.write_into(path, text, "one")
        assert path.read_text() == f"a\n<!-- one -->\n{text}\n<!-- /one -->\nb\n<!-- two -->\nc\n<!-- /two -->\n"
    path.write_text("a\n<!-- one -->\n")
    with pytest.raises(ValueError, match="expected a line"):
        report.write_into(path, "new", "one")


def test_every_row_is_measured_by_a_part() -> None:
    """Of every row but those of gossip, some part has the figures."""
    values = [value for value in vars(goals).values() if isinstance(value, Row | tuple | list)]
    rows = {
        each
        for value in values
        for each in (value if isinstance(value, tuple | list) else [value])
        if isinstance(each, Row)
    }
    measured = [row for part in PARTS.values() for row in part.rows]
    apart = {goals.LEFT, goals.WRONG_DAY, goals.SIMULATED_RUNS}
    assert rows - apart <= {*measured}
