"""`gossipkv loadtest` as a process against real nodes: the table, the document, the report, limits, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from gossipkv.loadtest import documents
from tests.ci.cluster.node_process import NodeProcess, wait_for
from tests.ci.cluster.test_http import gateways
from tests.preload import preload

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 120
LOOKS = 4
RECORDS = {f"key{number:04}": f"value {number}" for number in range(2000)}
SETTINGS = {"refresh_period": "200ms", "time_to_converge": "500ms"}


def lines(records: dict[str, str]) -> str:
    """Return records in the format of a source and a truth file."""
    return "".join(f"{key}\t{value}\n" for key, value in records.items())


def put_version(source: Path, name: str, suffix: str = "") -> None:
    """Publish a version of the database at the source atomically; its values end in `suffix`."""
    version = source / "geo" / f"_{name}"
    version.mkdir(parents=True)
    for part in range(4):
        own = {key: value + suffix for number, (key, value) in enumerate(RECORDS.items()) if number % 4 == part}
        (version / f"part-{part}.tsv").write_text(lines(own))
    version.rename(source / "geo" / name)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("truth") / "truth.tsv"
    file.write_text(lines(RECORDS))
    return file


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    place = tmp_path_factory.mktemp("node")
    put_version(place / "source", "1")
    with NodeProcess(place, "--http-listen", "127.0.0.1:0", source=place / "source") as process:
        process.ready()
        wait_for(process.address, "geo", "1")
        yield process


@pytest.fixture(scope="module")
def node(process: NodeProcess) -> str:
    return process.address


@pytest.fixture(scope="module")
def gateway(process: NodeProcess) -> str:
    """The HTTP address that the node logs."""
    return gateways(process)[0][0]


def line_of(node: str, *arguments: str | Path) -> list[str]:
    asked = ["loadtest", "--node", node, "--db", "geo", "--warm-up", "100ms", *map(str, arguments)]
    return [sys.executable, "-m", "gossipkv", *asked]


def run(node: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = line_of(node, *arguments)
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_every_answer_is_compared(node: str, truth: Path, tmp_path: Path) -> None:
    """A mix over several connections and processes is right in the table, the report and the JSON document."""
    mix = ["--mix", "get=8,get_many=1,scan=1", "--connections", "4", "--processes", "2", "--misses", "10%"]
    done = run(node, "--truth", truth, "--duration", "1s", *mix, "--report", tmp_path / "r.html", "--json")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "a.json"
    file.write_text(done.stdout)
    result = documents.load(file)
    assert result.is_clean
    assert result.totals.misses > 0
    assert set(result.latency) == {"all", "get", "get_many", "scan"}
    assert sum(result.latency[kind].count for kind in ("get", "get_many", "scan")) == result.totals.requests
    assert sum(second.requests for second in result.seconds if second.t >= 0) == result.totals.requests
    assert set(result.by_version) == {"1"}
    page = (tmp_path / "r.html").read_text()
    assert "Every answer " in page
    assert done.stderr.splitlines()[-1] == f"report: {tmp_path / 'r.html'}"
    again = subprocess.run(
        [sys.executable, "-m", *result.command], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert again.returncode == 0, again.stderr
    compared = [sys.executable, "-m", "gossipkv", "loadtest", "--compare", str(file), str(file)]
    assert "too few rounds" in subprocess.check_output(compared, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("suffix", ["", " anew"])
def test_over_http_every_answer_is_compared(gateway: str, tmp_path: Path, suffix: str) -> None:
    """The gateway's `get`, `_mget` and `_scan` give right answers, and each wrong value is found."""
    put_version(tmp_path, "1", suffix)
    line = [sys.executable, "-m", "gossipkv", "loadtest", "--target", f"http://{gateway}", "--db", "geo"]
    line += ["--truth", str(tmp_path), "--mix", "get=6,get_many=2,scan=2", "--misses", "20%", "--connections", "4"]
    line += ["--pipeline", "2", "--duration", "1s", "--warm-up", "0s", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    result = documents.parse(json.loads(done.stdout))
    totals = result.totals
    assert done.returncode == (3 if suffix else 0), done.stderr
    assert (totals.errors, totals.lost, totals.broken, totals.unchecked) == ({}, 0, {}, 0)
    assert {kind for kind, latency in result.latency.items() if latency.count} == {"all", "get", "get_many", "scan"}
    assert 0 < totals.misses < totals.keys
    assert totals.wrong == (totals.keys - totals.misses if suffix else 0)
    assert set(result.by_version) == {"1"}


def test_keys_of_the_database(node: str) -> None:
    """Without keys and truth the keys are read from the database, and the output says that no value was compared."""
    done = run(node, "--duration", "300ms")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Every request was answered; values were not checked.")


def test_a_truth_that_lies(node: str, tmp_path: Path) -> None:
    """A single wrong value is found and named, with status 3."""
    lie = tmp_path / "lie.tsv"
    lie.write_text(lines(RECORDS | {"key0007": "a lie"}))
    done = run(node, "--truth", lie, "--distribution", "sequential", "--duration", "1s")
    assert done.returncode == 3
    assert "key0007" in done.stderr.splitlines()[-1]
    assert "a lie" in done.stderr.splitlines()[-1]


def test_a_limit_that_was_passed(node: str, truth: Path) -> None:
    done = run(node, "--truth", truth, "--duration", "300ms", "--fail-if", "p50>1us", "--fail-if", "errors>0")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("gossipkv: 1 limit violated; Limit violated: p50>1us (measured: ")


def test_nobody_there(truth: Path) -> None:
    done = run("127.0.0.1:1", "--truth", truth)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("text", [b"", b"no tab in it\n"])
def test_a_truth_of_nothing(node: str, tmp_path: Path, text: bytes) -> None:
    """An empty or malformed truth is a one-line error with its name, before any request."""
    file = tmp_path / "truth.tsv"
    file.write_bytes(text)
    done = run(node, "--truth", file)
    assert done.returncode in {2, 3}
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert str(file) in done.stderr


def test_an_interrupt_tells_of_what_was(node: str, truth: Path, tmp_path: Path) -> None:
    """Ctrl-C gives status 130, the table and a report."""
    line = line_of(node, "--truth", truth, "--duration", "10m", "--report", tmp_path / "r.html")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert " of 10 min: " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert out.startswith("Every answer was right, until the run was cut short.")
    assert "until the run was cut short" in (tmp_path / "r.html").read_text()


def test_a_wall_clock_that_jumps_changes_nothing(node: str, truth: Path, tmp_path: Path) -> None:
    """A wall clock that is off by an hour at every other read changes neither the rate nor any duration."""
    library = preload(Path(__file__).with_name("jumping_clock.c"), tmp_path)
    environ = {**os.environ, "LD_PRELOAD": str(library)}
    look = "import time; a, b = time.time(), time.time(); print(round(abs(a - b)))"
    assert int(subprocess.check_output([sys.executable, "-c", look], env=environ)) == 2 * 3600
    line = line_of(
        node, "--truth", truth, "--rate", "100", "--duration", "2s", "--processes", "2", "--connections", "2"
    )
    done = subprocess.run(
        [*line, "--json"], env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    result = documents.parse(json.loads(done.stdout))
    assert (result.totals.requests, result.totals.unsent, result.ended) == (200, 0, "done")
    assert result.lateness is not None
    for latency in (*result.latency.values(), result.lateness):
        assert latency.percentiles["100"] < PATIENCE_S * 1e6
    assert result.totals.duration_s < PATIENCE_S
    assert all(0 <= second.t < PATIENCE_S for second in result.seconds)
    assert all(abs(event.t) < PATIENCE_S for event in result.events)
    assert all(cpu.cpu_s < PATIENCE_S for cpu in result.server_cpu.values())


def test_a_terminal_is_drawn_on(node: str, truth: Path) -> None:
    """Standard error redraws its line on a terminal, and the table follows."""
    terminal, side = pty.openpty()
    line = line_of(node, "--truth", truth, "--duration", "2s")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=side, text=True) as process:
        os.close(side)
        drawn = b""
        while True:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:  # The other side has gone.
                break
        out = process.stdout.read()
    os.close(terminal)
    assert process.returncode == 0
    assert b"closed loop" in drawn
    assert out.startswith("Every answer was right.")


def test_a_switch_and_a_kill(tmp_path: Path) -> None:
    """After a switch and a kill among three nodes no value is wrong, and the document has both events."""
    source = tmp_path / "source"
    put_version(source, "1")
    with Cluster(tmp_path / "nodes", nodes=3, source=source, settings=SETTINGS) as cluster:
        for address in cluster.addresses:
            wait_for(str(address), "geo", "1")
        options = ["--truth", source, "--connections", "2", "--rate", "300", "--duration", "10m", "--members"]
        line = line_of(str(cluster.addresses[0]), *options, "--report", tmp_path / "r.html", "--json")
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert " of 10 min: " in process.stderr.readline()
            wait_until_watched(cluster, 1)
            put_version(source, "2", " anew")
            wait_for_line(process, "Truth of version 2: 2,000 records")
            cluster.kill(2)
            wait_for_line(process, "dead")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        cluster.start(2)
    assert process.returncode == 130, err
    result = documents.parse(json.loads(out))
    assert (result.totals.wrong, result.totals.steps_back) == (0, 0)
    assert {"1", "2"} == set(result.by_version)
    assert result.by_version["1"].unchecked == 0
    assert 0 < result.by_version["2"].unchecked < result.by_version["2"].requests
    assert {"member", "version", "truth"} <= {event.what for event in result.events}
    assert 'class="flag"' in (tmp_path / "r.html").read_text()


def test_a_death_and_a_frozen_second(tmp_path: Path) -> None:
    """The death of a node that is no target and a freeze of the target are reported at once and in the document."""
    source = tmp_path / "source"
    put_version(source, "1")
    with Cluster(tmp_path / "nodes", nodes=3, source=source, settings=SETTINGS) as cluster:
        for address in cluster.addresses:
            wait_for(str(address), "geo", "1")
        options = ["--truth", source, "--duration", "10m", "--timeout", "1m", "--json", "--report", tmp_path / "r.html"]
        line = line_of(str(cluster.addresses[0]), *options)
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert " of 10 min: " in process.stderr.readline()
            wait_until_watched(cluster, 3)
            cluster.kill(3)
            wait_for_line(process, "n3 does not answer: UNAVAILABLE")
            cluster.send(1, signal.SIGSTOP)
            wait_for_line(process, "10 min: 0 /s")
            cluster.send(1, signal.SIGCONT)
            wait_for_line(process, "No request was answered for ")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        cluster.start(3)
    assert process.returncode == 130, err
    result = documents.parse(json.loads(out))
    assert (result.totals.wrong, result.totals.lost) == (0, 0)
    assert ("silent", "n3") in {(event.what, event.who) for event in result.events}
    frozen = [event.detail for event in result.events if event.what == "frozen"]  # The machine may stand still as well.
    page = (tmp_path / "r.html").read_text()
    assert frozen
    assert [detail for detail in frozen if f": No request was answered for {detail}</li>" not in page] == []


def wait_until_watched(cluster: Cluster, index: int) -> None:
    """Return when the load test's first look at a node is certainly done; each look makes two requests.

    Apart from the looks and this function, no client sends a node of an idle cluster a request that Python answers.
    """
    with cluster.connect(index, timeout_ms=1000 * PATIENCE_S) as client:
        give_up_s = time.monotonic() + PATIENCE_S
        wanted = client.info()["counters"]["handed_off"] + 2 * LOOKS
        while client.info()["counters"]["handed_off"] < wanted:
            assert time.monotonic() < give_up_s
            wanted += 1
            time.sleep(0.1)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read standard error until a line contains the text."""
    give_up_s = time.monotonic() + PATIENCE_S
    while text not in (line := process.stderr.readline()):
        assert line, "it ended"
        assert time.monotonic() < give_up_s, line
