"""`loadtest`: the plan of a command line, its output, and its exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gossipkv.cli import FAILED
from gossipkv.cli import loadtest as command
from gossipkv.errors import Unavailable
from gossipkv.loadtest import documents
from gossipkv.loadtest.result import RunTotals
from tests.unit.client.fake_node import Connection, FakeNode, answering, store
from tests.unit.loadtest import results

NODE = "127.0.0.1:7070"
LINE = ["loadtest", "--node", NODE, "--db", "geo"]


class Engine:
    """Replace the load generator: record the plans, and return the given result."""

    def __init__(self, result):
        self.result = result
        self.plans = []
        self.keys = None

    def __call__(self, plan, on_progress, credentials):
        self.plans.append(plan)
        self.keys = None if plan.keys is None else Path(plan.keys).read_bytes()
        if isinstance(self.result, Exception):
            raise self.result
        return replace(self.result, plan=plan.to_json())

    @property
    def plan(self):
        (plan,) = self.plans
        return plan


@pytest.fixture
def engine(monkeypatch):
    """Install the engine that the command finds."""
    found = Engine(results.plain())
    monkeypatch.setattr(command, "run_plan", found)
    return found


@pytest.fixture
def keys(tmp_path):
    """Return options that name a file of keys."""
    file = tmp_path / "keys"
    file.write_bytes(b"paris\nlima\n")
    return ["--keys", file]


def one_line(error):
    """True if an error is one line without a traceback."""
    return error.count("\n") == 1 and error.startswith("gossipkv: ") and "Traceback" not in error


def test_a_line_becomes_a_plan(run, engine, keys):
    done = run(
        *LINE, *keys, "--target", "redis://10.0.0.9:6379/3", "--truth", "2=a.tsv", "--truth", "b.tsv",
        "--distribution", "hot:0.8/0.2", "--misses", "5%", "--mix", "get=90,get_many=10", "--connections", 8,
        "--pipeline", 4, "--batch", 32, "--processes", 2, "--rate", "1000,2000", "--duration", "20s", "--warm-up",
        "500ms", "--rounds", 3, "--timeout", "2s", "--seed", 7, "--members",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    plan = engine.plan
    assert [str(target) for target in plan.targets] == [f"gossipkv://{NODE}", "redis://10.0.0.9:6379/3"]
    assert [(truth.version, truth.path) for truth in plan.truth] == [("2", "a.tsv"), (None, "b.tsv")]
    assert (plan.distribution.shape, plan.distribution.hot_requests) == ("hot", 0.8)
    assert (plan.misses, plan.mix) == (0.05, {"get": 90.0, "get_many": 10.0})
    assert (plan.connections, plan.pipeline, plan.batch, plan.processes) == (8, 4, 32, 2)
    assert [(step.rate, step.duration_s) for step in plan.steps] == [(1000.0, 20.0), (2000.0, 20.0)]
    assert (plan.warm_up_s, plan.rounds, plan.timeout_s, plan.seed, plan.all_members) == (0.5, 3, 2.0, 7, True)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], ({"get": 1.0}, 1)),
        (["--batch", "1"], ({"get": 1.0}, 1)),
        (["--batch", "50"], ({"get_many": 1.0}, 50)),
        (["--mix", "scan"], ({"scan": 1.0}, 16)),
        (["--mix", "get=1,scan=1", "--batch", "1"], ({"get": 1.0, "scan": 1.0}, 1)),
    ],
)
def test_a_batch_alone_says_what_is_asked(run, engine, keys, options, asked):
    """`--batch` implies get_many, so the mix may be omitted."""
    assert run(*LINE, *keys, *options).status == 0
    assert (engine.plan.mix, engine.plan.batch) == asked


def test_a_path_with_an_equals_sign(run, engine, tmp_path, keys):
    """An existing file is a path, whatever its name."""
    truth = tmp_path / "a=b.tsv"
    truth.write_bytes(b"k\tv\n")
    assert run(*LINE, *keys, "--truth", truth).status == 0
    assert [(each.version, each.path) for each in engine.plan.truth] == [(None, str(truth))]


def test_the_nodes_of_the_environment(run, engine, keys, monkeypatch):
    """The nodes of the environment are the default, and the command line in the result names them."""
    monkeypatch.setenv("GOSSIPKV_NODE", "10.0.0.1:7070, 10.0.0.2:7070")
    done = run("loadtest", "--db", "geo", *keys, "--json")
    assert [str(target.address) for target in engine.plan.targets] == ["10.0.0.1:7070", "10.0.0.2:7070"]
    named = ["--node", "10.0.0.1:7070", "--node", "10.0.0.2:7070"]
    assert json.loads(done.out)["command"] == ["gossipkv", "loadtest", *named, "--db", "geo", *map(str, keys), "--json"]
    assert json.loads(run(*LINE, *map(str, keys), "--json").out)["command"][2:4] == ["--node", NODE]
    monkeypatch.setenv("GOSSIPKV_NODE", "nonsense")
    done = run("loadtest", "--db", "geo", *keys)
    assert (done.status, one_line(done.err)) == (2, True)
    assert "GOSSIPKV_NODE: expected HOST:PORT" in done.err


def test_keys_of_the_database(run, engine):
    """Without keys and truth, keys come from a scan of the database, and the result says so."""
    records = {b"lima": b"1", b"paris": b"2", b"two\nlines": b"3"}
    with FakeNode(store(records)) as node:
        done = run("loadtest", "--node", node.address, "--db", "geo", "--json")
    assert done.status == 0
    assert engine.keys == b"lima\nparis\n"
    assert json.loads(done.out)["plan"]["keys"] == "the first 100,000 of the database, by scan"
    assert not Path(engine.plan.keys).exists()


def test_an_empty_database(run, engine):
    """There is nothing to ask for, which is one error."""
    with FakeNode(store({})) as node:
        done = run("loadtest", "--node", node.address, "--db", "geo")
    assert (done.status, engine.plans, one_line(done.err)) == (2, [], True)
    assert "geo has no keys to read" in done.err


def test_a_node_that_is_silent_is_asked_again_for_keys(run, engine, monkeypatch):
    """The scan resumes where it stopped and says so; a node that stays silent ends the run with one line."""
    monkeypatch.setattr(command, "ASKING_TIMEOUT_MS", 300)
    serves = store({b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}, page=2)
    connections = []

    def silent_at_times(connection):
        connections.append(connection)
        if len(connections) == 2:
            connection.ignore()
        elif len(connections) == 1:
            request = connection.next_request()
            scan = request[2][1]
            connection.answer(request[0], [[[b"a", b"1"], [b"b", b"2"]], b"b", "v1"])
            assert "start" not in scan
            connection.next_request()
            connection.next_request()
        else:
            serves(connection)

    with FakeNode(silent_at_times) as node:
        done = run("loadtest", "--node", node.address, "--db", "geo")
    assert (done.status, engine.keys) == (0, b"a\nb\nc\nd\n")
    assert done.err.count("reading the keys of geo again\n") == 2
    with FakeNode(Connection.ignore) as node:
        done = run("loadtest", "--node", node.address, "--db", "geo")
    assert (done.status, len(engine.plans), done.err.count("reading the keys")) == (FAILED, 1, 2)
    assert "did not answer" in done.err.splitlines()[-1]


def test_without_a_database(run, engine, keys):
    """The line says what to give, and lists the databases if a node answers."""
    names = [{"name": name, "kind": "dataset"} for name in ("numbers", "geo", "geo")]
    with FakeNode(answering(("databases", [[*names, {"name": "carts", "kind": "hash"}]]))) as node:
        done = run("loadtest", "--node", node.address, *keys)
    assert (done.status, done.out, engine.plans, one_line(done.err)) == (2, "", [], True)
    assert f"name the database to read with --db; {node.address} has geo, numbers (see " in done.err
    with FakeNode(
        answering(("databases", [[{"name": f"db{number}", "kind": "dataset"} for number in range(10)]]))
    ) as node:
        assert "db7 and 2 more (see " in run("loadtest", "--node", node.address).err
    for nobody in (["--node", "127.0.0.1:1"], ["--target", "http://127.0.0.1:1"]):
        done = run("loadtest", *nobody, *keys)
        assert (done.status, one_line(done.err)) == (2, True)
        assert "name the database to read with --db, such as --db geo (see " in done.err
    assert run("loadtest", "--target", "redis://127.0.0.1:6379/0", *keys).status == 0


@pytest.mark.usefixtures("engine")
def test_the_table(run):
    """The verdict and the percentiles go to standard output; one target needs no table of targets."""
    done = run(*LINE, "--truth", "geo.tsv")
    assert done.out.startswith("Every answer was right.\n100 requests answered in 2.5 s, 40 /s")
    (row,) = [" ".join(line.split()) for line in done.out.splitlines() if line.startswith("all requests")]
    assert row == "all requests 100 100 us 200 us 900 us 4 ms 4 ms 4 ms 251 us"
    assert "target" not in done.out


def test_the_table_of_a_mix(run, engine):
    """Each kind and each target has a row, and the failures are listed above them."""
    engine.result = results.eventful()
    out = run(*LINE, "--truth", "geo.tsv").out
    assert out.startswith("Every answer was right, but 65 requests had no answer.\n")
    assert "  42 requests failed with an error (0.417 %): UNAVAILABLE 40, TIMEOUT 2." in out
    for name in ("get_many", "scan", "sent late by", "gossipkv://10.0.0.2:7070 (n2)"):
        assert sum(line.startswith(name) for line in out.splitlines()) == 1


def test_json_is_the_document(run, engine, keys, tmp_path):
    """Standard output is one document that can be read back."""
    engine.result = results.eventful()
    done = run(*LINE, *keys, "--json", "--fail-if", "p99>1s")
    document = json.loads(done.out)
    assert document["limits"] == [{"limit": "p99>1s", "passed": False, "measured": "2 ms"}]
    file = tmp_path / "a.json"
    file.write_text(done.out)
    assert documents.load(file).totals == results.eventful().totals


FAULTS = [
    ({}, [], ""),
    ({"wrong": 2}, [], "gossipkv: 2 values of 100 wrong; 2 values did not match the truth; the first: b'k'.\n"),
    ({}, ["--fail-if", "p99>1us"], "gossipkv: 1 limit violated; Limit violated: p99>1us (measured: 900 us).\n"),
    ({}, ["--fail-if", "p99>1s", "--fail-if", "rate<1"], ""),
    ({"errors": {"TIMEOUT": 3}}, [], ""),
    ({"errors": {"X": 3}}, ["--fail-if", "errors>0"], "1 limit violated; Limit violated: errors>0 (measured: 3)"),
    ({"steps_back": 1}, [], ""),
]


@pytest.mark.parametrize(("changes", "options", "said"), FAULTS)
def test_the_status(run, engine, changes, options, said):
    """Wrong values and an exceeded limit give status 3, named in the last line; refused requests alone do not."""
    engine.result = results.plain(totals=replace(results.plain().totals, **changes), first_wrong="b'k'")
    for form in ([], ["--json"]):
        done = run(*LINE, "--truth", "geo.tsv", *options, *form)
        assert done.status == (3 if said else 0)
        assert said in done.err
        assert bool(done.err) is bool(said)


def test_nothing_was_answered(run, engine, keys):
    """A run without an answer fails, and an unreachable server gives one line."""
    engine.result = results.plain(totals=RunTotals(lost=4), latency={})
    assert run(*LINE, *keys).status == 3
    engine.result = Unavailable(f"{NODE} cannot be reached")
    done = run(*LINE, *keys)
    assert (done.status, done.err) == (3, f"gossipkv: {NODE} cannot be reached\n")


def test_an_interrupted_run_is_told_of(run, engine, keys, tmp_path):
    """The status is 130, and table and report show the part that ran."""
    engine.result = results.plain(ended="interrupted")
    file = tmp_path / "r.html"
    done = run(*LINE, *keys, "--report", file)
    assert done.status == 130
    assert "until the run was cut short" in done.out
    assert "until the run was cut short" in file.read_text()


def test_the_report(run, keys, tmp_path, engine):
    """The report file is named at the end and shows the limits; a key that is no text is harmless."""
    engine.result = results.plain(first_wrong="b'\\xff'")
    file = tmp_path / "r.html"
    done = run(*LINE, *keys, "--report", file, "--fail-if", "p99>1ms")
    assert (done.status, done.err) == (0, f"report: {file}\n")
    text = file.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "p99&gt;1ms" in text
    assert f"--report {file}" in text


def test_a_report_that_cannot_be_written(run, engine, keys, tmp_path):
    """The run is refused before the first request."""
    done = run(*LINE, *keys, "--report", tmp_path / "gone" / "r.html")
    assert (done.status, engine.plans, one_line(done.err)) == (2, [], True)
    assert f"the directory {tmp_path / 'gone'} does not exist" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--misses", "many"], "'many': expected a share, such as 5% or 0.05"),
        (["--misses", "500%"], "misses must be a share from 0 to 1"),
        (["--fail-if", "p99>2"], "p99 is a latency and needs one of the units us, ms, s; got no unit"),
        (["--fail-if", "speed>2"], "unknown metric 'speed'"),
        (["--target", "ftp://a:1"], "a target must begin with gossipkv://, http://, redis://"),
        (["--rate", "fast"], "rate 'fast'"),
        (["--duration", "long"], "'long' is not a duration"),
        (["--mix", "set=1"], "mix 'set=1'"),
        (["--mix", "get", "--batch", "8"], "--batch is for get_many, put_many and scan"),
        (["--connections", "0"], "connections must be at least 1"),
        (["--keys", "/no/such/file"], "does not exist"),
        (["--compare", "a.json"], "--compare needs 2 values"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_wrong_use(run, engine, keys, options, said):
    done = run(*LINE, *keys, *options)
    assert (done.status, done.out, engine.plans) == (2, "", [])
    assert one_line(done.err)
    assert said in done.err


def write(path, result):
    path.write_text(json.dumps(result.to_json()))
    return path


def test_a_comparison(run, engine, tmp_path):
    """Medians, ranges and the judgement are shown; differences of the plans are named, and nothing runs."""
    one = write(tmp_path / "a.json", results.repeated([40.0, 41.0, 42.0, 43.0], [900.0] * 4))
    other = results.repeated([80.0, 82.0, 84.0, 86.0], [900.0] * 4, plan={**results.plain().plan, "pipeline": 16})
    pair = ["--compare", one, write(tmp_path / "b.json", other)]
    done = run("loadtest", *pair)
    assert (done.status, done.err, engine.plans) == (0, "", [])
    rows = {line.split()[0]: line for line in done.out.splitlines() if line}
    assert "41.5 /s (40 /s to 43 /s)" in rows["rate"]
    assert rows["rate"].endswith("+100.0 %  better")
    assert rows["p99"].endswith("same")
    assert "plan pipeline: 4 in A, 16 in B" in done.out
    found = json.loads(run("loadtest", *pair, "--json").out)
    assert found["measures"]["rate"]["difference"] == "better"
    assert found["measures"]["rate"]["a"] == [40.0, 41.0, 42.0, 43.0]
    assert found["unlike"]["plan"] == {"pipeline": ["4", "16"]}


def test_a_comparison_of_few_rounds(run, tmp_path):
    """The output says how many rounds are needed, unless there are enough."""
    few = write(tmp_path / "a.json", results.plain())
    many = write(tmp_path / "b.json", results.repeated([40.0] * 4, [900.0] * 4))
    assert "run both tests with --rounds 4" in run("loadtest", "--compare", few, few).out
    assert "too few rounds" not in run("loadtest", "--compare", many, many).out


def test_a_comparison_runs_nothing(run, engine, tmp_path):
    """Options of a run are refused beside `--compare`, and so is a foreign file."""
    file = write(tmp_path / "a.json", results.plain())
    done = run("loadtest", "--compare", file, file, "--connections", 4)
    assert (done.status, one_line(done.err)) == (2, True)
    assert "omit --connections" in done.err
    file.write_text("{}")
    done = run("loadtest", "--compare", file, file)
    assert (done.status, one_line(done.err), engine.plans) == (2, True, [])
    assert f"{file} is not the result of a load test" in done.err
