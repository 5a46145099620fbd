"""The demo as a user runs it: its numbers hold, and it always cleans up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from gossipkv import demo
from gossipkv.demo import table, upgrade
from gossipkv.demo.editions import Edition, editions
from gossipkv.demo.outcome import DemoOutcome
from gossipkv.demo.upgrade import IN_FLIGHT, PHASES, READS_AFTER, READS_BEFORE, UpgradeReader
from gossipkv.launcher import NodeStatus

COMMAND = [sys.executable, "-m", "gossipkv", "demo"]
PATIENCE_S = 120
LEFT_S = 60


def environment(place: Path) -> dict[str, str]:
    """Return an environment with temporary files below `place`, whose GOSSIPKV settings must not reach the nodes."""
    return {
        **os.environ,
        "TMPDIR": str(place),
        "GOSSIPKV_NODE": "nonsense",
        "GOSSIPKV_PROFILE": "nonsense",
        "PYTHONIOENCODING": "utf-8",
    }


def processes_below(place: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(place) in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue  # The process ended.
    return found


def left_below(place: Path) -> list[int]:
    """Return those processes that do not end: a process that was just killed may exist a moment longer."""
    give_up_s = time.monotonic() + LEFT_S
    while (found := processes_below(place)) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    return found


def test_the_numbers_hold(tmp_path):
    """The exit status is 0, every required number and the record counts are right, and no file or process is left."""
    done = subprocess.run(
        [*COMMAND, "--json"], capture_output=True, env=environment(tmp_path), timeout=PATIENCE_S, check=False
    )
    told = json.loads(done.stdout)
    assert told["trouble"] == []
    assert (done.returncode, done.stderr) == (0, b"")
    assert told["success"]
    assert all(required.least <= told[required.name] for required in demo.REQUIRED)
    assert (told["failures"], told["steps_back"], told["lost"]) == (0, 0, 0)
    assert told["read_back"] == told["writes"] == 2 * table.WRITES
    assert told["spread"] == 4
    assert tuple(told["latency"]) == PHASES
    assert sum(phase["count"] for phase in told["latency"].values()) == told["reads"]
    assert all(0 < phase["p50_us"] <= phase["p99_us"] for phase in told["latency"].values())
    assert list(tmp_path.iterdir()) == []
    assert left_below(tmp_path) == []


def test_a_node_that_does_not_start_is_told(tmp_path):
    """The failure has one line, status 3 and no leftovers."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "trio.py").write_text("raise ImportError('no trio today')\n")
    place = tmp_path / "temporary"
    place.mkdir()
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        env={**environment(place), "PYTHONPATH": str(broken)},
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 3
    assert b"a node did not start" in done.stderr
    assert b"no trio today" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert list(place.iterdir()) == []


def crash(cluster, index):
    """Kill n1 unknown to the launcher, in place of the node to kill: reads fail without both nodes."""
    os.kill(cluster.node(1).process, signal.SIGKILL)
    return cluster.node(index)


def test_a_node_that_ends_unasked_is_a_failure(tmp_path, monkeypatch):
    """The demo reports the end, though no read fails: the reader goes on through another node."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("gossipkv.launcher.local_cluster.Cluster.kill", crash)
    monkeypatch.setattr(
        "gossipkv.launcher.local_cluster.Cluster.start", lambda cluster, index, **_: cluster.node(index)
    )
    monkeypatch.setattr(demo, "ACTS", (upgrade,))
    outcome = demo.run(lambda _: None)
    assert not outcome.is_success
    assert (outcome.counts["failures"], outcome.counts["steps_back"]) == (1, 0)
    assert outcome.trouble[0].startswith("n1 ended by SIGKILL: ")
    assert list(tmp_path.iterdir()) == []
    assert left_below(tmp_path) == []


class Scripted:
    """A client and dataset with scripted answers, in place of a node."""

    def __init__(self, answers, status=None):
        self.answers = answers
        self.told = {"unicode": {"versions": {NEW.version: status or {"state": "BUILDING"}}}}

    def dataset(self, _name):
        return self

    def status(self, _database):
        return self.told

    def iter_get(self, keys, in_flight):
        """Take keys ahead of the answers, as the pipeline does."""
        ahead = [next(keys) for _ in range(in_flight)]
        for number in range(200_000):
            key = ahead.pop(0)
            yield key, *self.answers(number, key)
            ahead.append(next(keys))


OLD = Edition("3.2.0", {b"k%d" % number: b"old" for number in range(3000)})
NEW = Edition("14.0.0", {b"k%d" % number: b"new" if number < 600 else b"old" for number in range(3000)})


SWITCH = READS_BEFORE + 4000  # A correct node switches at this answer.


def outcome_of(answers, status=None, happened=None, said=None):
    """Run the reader on these answers; its events are added to `happened`, its output to `said`."""
    outcome = DemoOutcome(upgrade.REQUIRED)
    happened, said = [] if happened is None else happened, [] if said is None else said
    killed = Future()
    killed.set_result(NodeStatus(3, "n3", "127.0.0.1:7072", "ended", exit_status=-signal.SIGKILL))

    def publish():
        happened.append(("publish", outcome.counts["reads"]))

    def kill():
        happened.append(("kill", outcome.counts["reads"]))
        return killed

    UpgradeReader(OLD, NEW, outcome, said.append).read(Scripted(answers, status), publish, kill)
    return outcome


def truthful(number, key, switch=SWITCH):
    edition = NEW if number >= switch else OLD
    return edition.records.get(key), edition.version


def test_the_reader_accepts_a_truthful_node():
    """A correct run is a success with exact numbers."""
    outcome = outcome_of(truthful)
    assert outcome.is_success
    assert outcome.counts["changed"] == 600
    assert outcome.counts["in_flight"] == IN_FLIGHT
    phases = [outcome.latency[phase]["count"] for phase in PHASES]
    assert phases == [READS_BEFORE, outcome.counts["reads"] - READS_BEFORE - READS_AFTER, READS_AFTER]


def test_what_happens_on_the_way():
    """The second version appears and a node is killed at once, before its partitions are built elsewhere."""
    happened = []
    assert outcome_of(truthful, happened=happened).is_success
    assert happened == [("publish", READS_BEFORE), ("kill", READS_BEFORE)]


def test_requests_on_their_way_at_the_switch_may_be_answered_by_either_version():
    """A step back is an answer older than an answer that was received before the request was sent."""

    def answers(number, key, last):
        return truthful(0 if SWITCH < number <= last else number, key)

    on_their_way = SWITCH + IN_FLIGHT - 1
    assert outcome_of(lambda number, key: answers(number, key, on_their_way)).is_success
    assert outcome_of(lambda number, key: answers(number, key, on_their_way + 1)).counts["steps_back"] == 1


def test_the_reader_goes_on_while_the_second_version_is_built(monkeypatch):
    """The reader looks repeatedly, and ends with the reason if that version is in error."""
    monkeypatch.setattr(upgrade, "LOOK_PERIOD_S", 0.0)
    said = []
    assert outcome_of(truthful, said=said).is_success
    assert any(line.endswith(f"version {NEW.version} is BUILDING") for line in said)
    failed = {"state": "ERROR", "error": {"message": "part-3: line 7"}}
    outcome = outcome_of(lambda number, key: truthful(0, key), failed)
    assert outcome.counts["failures"] == 1
    assert outcome.trouble[0].endswith("part-3: line 7")
    assert sum(phase["count"] for phase in outcome.latency.values()) == outcome.counts["reads"]


@pytest.mark.parametrize(("name", "answers"), [
    ("failures", lambda number, key: (b"lie", OLD.version) if number == 77 else truthful(number, key)),
    ("failures", lambda number, key: (None, NEW.version) if number == SWITCH + 500 else truthful(number, key)),
    ("failures", lambda number, key: (OLD.records[key], "05-0-0") if number == 100 else truthful(number, key)),
    ("steps_back", lambda number, key: truthful(0 if number == SWITCH + 500 else number, key)),
    ("changed", lambda number, key: truthful(number, key, switch=0)),
])  # fmt: skip
def test_the_reader_rejects(name, answers):
    """A lie, an absence, an unknown version, a step back and an unseen switch each fail their number."""
    outcome = outcome_of(answers)
    assert not outcome.holds(name)
    assert not outcome.is_success


def test_editions_survive_being_written(tmp_path):
    """The source files hold exactly the records of the editions: no name or value breaks the format."""
    for edition in editions():
        edition.write(tmp_path / edition.version)
        lines = b"".join(path.read_bytes() for path in sorted((tmp_path / edition.version).iterdir())).split(b"\n")
        assert lines.pop() == b""
        read = dict(line.split(b"\t", 1) for line in lines)
        assert read == edition.records
        assert len(lines) == len(read)
    old, new = editions()
    assert old.version < new.version
