"""The benchmark itself: it must not rot between the days on which somebody looks at its figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import msgpack
import pytest

from tests.bench import builds, data, goals, meters, report, verification
from tests.bench.clients import parts as clients
from tests.bench.datasets import load_client, records
from tests.bench.measurement import Measurement
from tests.bench.memory import cgroup
from tests.bench.network.rows import WrongAnswerError
from tests.bench.peers.python_dict import PythonDict
from tests.bench.register import etcd

ROOT = Path(__file__).parents[3]


METADATA = (goals.METADATA_P50, goals.METADATA_WRITTEN, goals.METADATA_BURST, goals.METADATA_BURST_TIME)


def run(*arguments: str) -> str:
    """The table, from a process of its own."""
    command = [sys.executable, "-m", "tests.bench", "--quick", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=280).stdout


def test_quick_run_without_optional_peers(tmp_path: Path) -> None:
    """Everything but the node runs with a dict as the only peer, and each of our own goals gets a verdict."""
    path = tmp_path / "figures.json"
    printed = run("--peers", "dict", "--only", "small", "--only", "large", "--only", "memory", "--json", str(path))
    rows = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    network = {value for name, value in vars(goals).items() if name.startswith("NETWORK_") and isinstance(value, str)}
    client_rows = {value for name, value in vars(goals).items() if name.startswith("CLIENT_")}
    apart = {goals.SERVING, goals.SERVING_SMALL, *goals.DATASETS, *client_rows}
    apart |= {*network, *goals.NETWORK_CONNECTIONS, *goals.NETWORK_PINGS}
    apart |= {goal.row for goal in (*goals.GOSSIP, *goals.REGISTER_GOALS)}
    apart |= {goal.row for goal in goals.LARGER_THAN_MEMORY}
    apart |= {*goals.CLUSTER} | {*goals.HTTP} | {*goals.STORE}
    expected = {goal.row for goal in goals.GOALS} - apart
    assert expected <= rows.keys()
    assert all(figure > 0 for row in rows.values() for figure in row["samples"][row["ours"]])
    assert goals.GET_HIT_SMALL in printed
    assert "dict" in rows[goals.GET_HIT_SMALL]["samples"]


def test_quick_run_beside_a_node(tmp_path: Path) -> None:
    """A node serves while it builds, and both percentiles are there."""
    path = tmp_path / "figures.json"
    run("--only", "serving", "--json", str(path))
    rows = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    for row in (goals.SERVING, goals.SERVING_SMALL):
        assert rows[row]["samples"].keys() == {"GossipKV", goals.IDLE}


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("sequence", {goals.SEQUENCE_SHORT, goals.SEQUENCE_LONG_SORTED, goals.SEQUENCE_START}),
        ("lanes", {goals.LANES_BY_HASH, goals.LANES_MIXED, goals.LANES_MEMORY}),
        ("queue", {goals.QUEUE}),
        ("restart", {goals.RESTART, goals.RESTART_COLD}),
        ("switching", {goals.SWITCH_P99, goals.SWITCH_CROWDED_P99, goals.SWITCH_FAILED, goals.SWITCH_BACK}),
        ("scrub", {goals.SCRUB_P99, goals.SCRUB_GET, goals.SCRUB_SCAN}),
    ],
)
def test_quick_run_of_datasets(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part finds its records right, no get fails, and each of its goals gets a verdict."""
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    found = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows <= found.keys()
    for row in {goals.SWITCH_FAILED, goals.SWITCH_BACK} & found.keys():
        assert found[row]["samples"]["GossipKV"] == [0]


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("network-hot", {goals.NETWORK_ONE, goals.NETWORK_PIPELINED, goals.NETWORK_BATCHED}),
        (
            "network-forwarded",
            {goals.NETWORK_FORWARDED_ONE, goals.NETWORK_FORWARDED_PIPELINED, goals.NETWORK_FORWARDED_BATCHED},
        ),
        ("network-behind", {goals.NETWORK_BEHIND}),
        ("network-cold", {goals.NETWORK_COLD_PIPELINED, goals.NETWORK_COLD_BATCHED}),
        ("network-connections", {goals.NETWORK_MEMORY, *goals.NETWORK_CONNECTIONS}),
        (
            "network-round-trip",
            {goals.NETWORK_ROUND_TRIP, goals.NETWORK_BUSY_POLL}
            | {goals.NETWORK_ROUND_TRIP_CPU, goals.NETWORK_BUSY_POLL_CPU, goals.NETWORK_FEW_CPU},
        ),
        ("network-thread", {goals.NETWORK_THREAD, goals.NETWORK_THREAD_PYTHON}),
        ("network-lone", {goals.NETWORK_LONE}),
        ("network-pings", {*goals.NETWORK_PINGS}),
        ("clients", {goals.CLIENT_GET, goals.CLIENT_GET_MANY, goals.CLIENT_TASKS, goals.CLIENT_TASK}),
        ("network-handed-off", {goals.NETWORK_HANDED_OFF, goals.NETWORK_DATABASES}),
    ],
)
def test_quick_run_of_the_network(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, every answer of every server was right, and processor time was used."""
    if part == "clients" and (shutil.which("redis-server") is None or not all(map(find_spec, clients.NEEDED))):
        pytest.skip("redis-server or its clients are not installed")
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    found = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    assert found.keys() == rows
    measured = [row for name, row in found.items() if name != goals.NETWORK_MEMORY]
    assert all(figure > 0 for row in measured for samples in row["samples"].values() for figure in samples)


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("local", {goals.CLUSTER_LOCAL, goals.CLUSTER_LOCAL_PIPELINED}),
        ("deadlines", {goals.CLUSTER_DEADLINES}),
        ("scan", {goals.CLUSTER_SCAN, goals.CLUSTER_PAGES}),
        ("frozen", {goals.CLUSTER_FROZEN_FIRST, goals.CLUSTER_FROZEN_LATER, goals.CLUSTER_FROZEN_FAILED}),
        ("killed", {goals.CLUSTER_KILLED_FAILED}),
        (
            "switched",
            {goals.CLUSTER_SWITCH_FAILED, goals.CLUSTER_SWITCH_BACK, goals.CLUSTER_SWITCH_BACK_ACROSS},
        ),
        ("built", {goals.CLUSTER_BUILT}),
        ("suspected", {goals.CLUSTER_SUSPECTED}),
    ],
)
def test_quick_run_of_a_cluster(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, every value was right, no get failed or stepped back, and processor time was used."""
    path = tmp_path / "figures.json"
    run("--only", f"cluster-{part}", "--json", str(path))
    found = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    assert found.keys() == rows
    for row in found.values():
        if row["goal"] == 0:
            assert row["samples"]["GossipKV"] == [0]
            assert not row["unit"].endswith(" 0"), "nothing was read"
        else:
            assert all(figure > 0 for samples in row["samples"].values() for figure in samples)


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("http-get", {goals.HTTP_GET}),
        ("http-beside", {goals.HTTP_BESIDE}),
        ("http-metrics", {goals.HTTP_METRICS, goals.HTTP_METRICS_BESIDE}),
        ("http-page", {goals.HTTP_PAGE, goals.HTTP_PAGE_SIZE}),
        ("load-generator", {*goals.LOAD_DRIVES, *goals.LOAD_COSTS}),
        ("load-lateness", {goals.LOAD_LATENESS}),
    ],
)
def test_quick_run_of_http(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, but those of peers that are not here, and every value was right."""
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    found = {row["row"]: row for row in json.loads(path.read_text())["rows"]}
    missing = {*goals.LOAD_COSTS} if shutil.which("redis-server") is None else set()
    assert found.keys() == rows - missing
    moved = goals.HTTP_METRICS_BESIDE  # By how much, which is nothing or less as often as not.
    figures = [row["samples"] for name, row in found.items() if name != moved]
    assert all(figure > 0 for each in figures for samples in each.values() for figure in samples)


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("puts", {goals.STORE_PUT, goals.STORE_PUT_BATCH, goals.STORE_PUT_WRITERS}),
        ("gets", {goals.STORE_GET, goals.STORE_GET_YOUNG, goals.STORE_MISS_YOUNG}),
        ("scans", {goals.STORE_SCAN, goals.STORE_RANGE}),
        ("merging", {goals.STORE_MERGING_GET, goals.STORE_MERGING_PUT}),
        ("amplification", {goals.STORE_AMPLIFICATION, goals.STORE_SPACE, goals.STORE_SPACE_MERGING}),
        ("opening", {goals.STORE_OPENING}),
        ("memory", {goals.STORE_MEMORY, goals.STORE_MEMORY_CHILD}),
        ("simulated", {goals.STORE_SIMULATED}),
    ],
)
def test_quick_run_of_a_store(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, with the peers that are here, and every value was right."""
    path = tmp_path / "figures.json"
    run("--only", f"store-{part}", "--json", str(path))
    found = {row["row"]: row["samples"] for row in json.loads(path.read_text())["rows"]}
    assert found.keys() == rows
    assert all(figure > 0 for samples in found.values() for figures in samples.values() for figure in figures)
    for package, peer, compared in (("rocksdict", "RocksDB", STORE_WRITES), ("lmdb", "LMDB", STORE_READS)):
        for row in compared & rows:
            assert (peer in found[row]) == (find_spec(package) is not None)


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("register-changes", {*goals.REGISTER_UNITS}),
        ("register-outage", {goals.REGISTER_KILLED, goals.REGISTER_STOPPED}),
        ("metadata-transactions", {goals.metadata(row, count) for row in METADATA for count in goals.PARTITIONS}),
        ("catalogue-growth", {goals.CATALOGUE_GROWN, goals.CATALOGUE_FAILED}),
        ("register-runs", {goals.REGISTER_RUNS, goals.REGISTER_RUNS_STORE}),
    ],
)
def test_quick_run_of_registers(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, beside etcd where it is here; nothing was lost, and nothing refused."""
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    found = {row["row"]: row["samples"] for row in json.loads(path.read_text())["rows"]}
    assert found.keys() == rows
    for row in rows - {goals.CATALOGUE_FAILED}:
        assert all(figure > 0 for figures in found[row].values() for figure in figures)
    assert found.get(goals.CATALOGUE_FAILED, {"GossipKV": [0]}) == {"GossipKV": [0]}
    if goals.REGISTER_P50 in rows:
        assert (etcd.NAME in found[goals.REGISTER_P50]) == (etcd.missing() is None)


@pytest.mark.parametrize(
    ("part", "rows"), [("larger-library", {*goals.LARGER_LIBRARY}), ("larger-node", {*goals.LARGER_SERVED})]
)
def test_quick_run_of_what_is_larger_than_memory(part: str, rows: set[str], tmp_path: Path) -> None:
    """Each part has its rows, with the peers that are here; every value was right, and a disk was read."""
    if (missing := cgroup.missing()) is not None:
        pytest.skip(f"needs {missing}")
    path = tmp_path / "figures.json"
    run("--only", part, "--json", str(path))
    found = {row["row"]: row["samples"] for row in json.loads(path.read_text())["rows"]}
    assert found.keys() == rows
    assert all(figure > 0 for samples in found.values() for figures in samples.values() for figure in figures)
    for package, peer in (("rocksdict", "RocksDB"), ("lmdb", "LMDB")):
        if goals.LARGER_GET in rows:
            assert (peer in found[goals.LARGER_GET]) == (find_spec(package) is not None)


STORE_WRITES = {
    goals.STORE_PUT,
    goals.STORE_PUT_BATCH,
    goals.STORE_PUT_WRITERS,
    goals.STORE_AMPLIFICATION,
}
STORE_READS = {goals.STORE_GET, goals.STORE_GET_YOUNG, goals.STORE_MISS_YOUNG, goals.STORE_SCAN, goals.STORE_RANGE}
SIMULATED = goals.SIMULATED.partition(",")[0]  # Of the real processor.


def test_quick_run_of_gossip(tmp_path: Path) -> None:
    """Every part has rows, and figures of virtual time are the same in a second run."""
    path = tmp_path / "figures.json"
    figures = []
    for _ in range(2):
        run("--only", "gossip", "--json", str(path))
        rows = json.loads(path.read_text())["rows"]
        figures.append({row["row"]: row["samples"] for row in rows if not row["row"].startswith(SIMULATED)})
    assert figures[0] == figures[1]
    for row in (goals.FIRST_DEAD, goals.CHANGE):
        assert f"{goals.gossip(row, 8)}, p99" in figures[0]
    assert {goals.LEFT, goals.WRONG_DAY, goals.gossip(goals.SENT_ALL, 8)} <= figures[0].keys()


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
    side = builds.Side("here", builds.ROOT, tmp_path, meters.ProcessorTime(), builds.servers.Cores.of_this_machine())
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
    key = records.key_of(3)
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
    counts, seen, key = load_client.Counts(), load_client.Seen(), records.key_of(3)
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
        with pytest.raises(verification.WrongAnswerError, match="dict: get"):
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
    measurement = Measurement(goals.GET_HIT_SMALL, "ns", "GossipKV", {"GossipKV": [1, 40, 1], "LMDB": [2, 80, 4]})
    ratio = measurement.ratio("LMDB")
    assert (ratio.median, ratio.least, ratio.greatest) == (0.5, 0.25, 0.5)


@pytest.mark.parametrize(("ours", "verdict"), [(44.0, "met"), (46.0, "missed")])
def test_verdicts(ours: float, verdict: str) -> None:
    """The table says of each goal whether it was met."""
    line = report.table([Measurement(goals.GET_HIT_SMALL, "ns", "GossipKV", {"GossipKV": [ours], "LMDB": [100.0]})])
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


def test_every_goal_names_a_known_row() -> None:
    """No goal hangs in the air because a row was renamed."""
    rows = {value for name, value in vars(goals).items() if name.isupper() and isinstance(value, str)}
    rows |= {*goals.NETWORK_CONNECTIONS, *goals.LOAD_DRIVES, *goals.LOAD_COSTS}
    forms = [re.sub(r"\\{[\w:,]+\\}", r"[\\d,]+", re.escape(row)) + "(, p50|, p99)?" for row in rows]
    assert [goal.row for goal in goals.GOALS if not any(re.fullmatch(form, goal.row) for form in forms)] == []
