"""The commands against a fake node: arguments, output forms and exit status."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console

from gossipkv import cli
from gossipkv.cli.flags import load_settings
from gossipkv.cli.serve import serve
from gossipkv.errors import WRITES_ARE
from gossipkv.settings.config import SETTINGS
from gossipkv.status.verdict import (
    ATTENTION,
    COMES,
    STUCK,
    TROUBLE,
    WELL,
    ClusterVerdict,
    Coming,
    Reason,
    headline,
    worst,
)
from tests.unit.client.fake_node import FakeNode, answering, store

RECORDS = {f"k{number}".encode(): f"value {number}".encode() for number in range(7)}
RECORDS |= {b"empty": b"", b"bin": b"\xff\x00\n", b"\xfe": b"odd key", b"-": b"dash", b"text\n": "ä\n".encode()}


@pytest.fixture
def node(monkeypatch):
    """Start a node that serves RECORDS as every database, and make it the default of commands."""
    with FakeNode(store(RECORDS)) as fake:
        monkeypatch.setenv("GOSSIPKV_NODE", fake.address)
        yield fake


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Run a command line in this process; return its status and its output as bytes."""

    def command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        status = cli.run(
            [
                argument if isinstance(argument, str) else argument.decode("utf-8", "surrogateescape")
                for argument in arguments
            ]
        )
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(status=status, out=out, err=err.decode())

    return command


def one_line(error: str) -> bool:
    """True if an error is one line without a traceback."""
    return error.count("\n") == 1 and error.endswith("\n") and "Traceback" not in error


@pytest.mark.parametrize("key", [b"k1", b"empty", b"bin", b"\xfe"])
@pytest.mark.usefixtures("node")
def test_get_writes_the_value_as_it_is(run, key):
    """Nothing is added to a value that goes to a file or a pipe."""
    done = run("get", "geo", key)
    assert (done.status, done.out, done.err) == (0, RECORDS[key], "")


@pytest.mark.usefixtures("node")
def test_get_forms(run, tmp_path):
    assert run("get", "geo", "bin", "--hex").out == run("get", "geo", "0x62696e", "--hex").out == b"ff000a"
    assert run("get", "geo", "0x62696e").status == 1
    assert json.loads(run("get", "geo", "k1", "--json").out) == {"key": "k1", "value": "value 1", "version": "v1"}
    assert json.loads(run("get", "geo", b"\xfe", "--json").out)["key"] == {"base64": "/g=="}
    assert json.loads(run("get", "geo", "bin", "--json").out)["value"] == {"base64": "/wAK"}
    done = run("get", "geo", "nope", "--json")
    assert (done.status, json.loads(done.out)["value"]) == (1, None)
    done = run("get", "geo", "bin", "--hex", "--json")
    assert json.loads(done.out) == {"key": b"bin".hex(), "value": "ff000a", "version": "v1"}
    assert json.loads(run("get", "geo", "nope", "--hex", "--json").out)["value"] is None
    file = tmp_path / "value"
    done = run("get", "geo", "bin", "--out", str(file))
    assert (done.status, done.out, file.read_bytes()) == (0, b"", RECORDS[b"bin"])


@pytest.mark.usefixtures("node")
def test_get_not_found(run, tmp_path):
    """A missing key gives status 1, a line on standard error, and no file."""
    file = tmp_path / "value"
    done = run("get", "geo", "nope", "--out", str(file))
    assert (done.status, done.out) == (1, b"")
    assert done.err == "not found: 'nope' in geo, version v1\n"
    assert not file.exists()


@pytest.mark.parametrize(
    ("stdin", "value"), [(b"k1\n", b"value 1"), (b"k1", b"value 1"), (b"text\n\n", "ä\n".encode())]
)
@pytest.mark.usefixtures("node")
def test_get_takes_the_key_from_standard_input(run, stdin, value):
    """One line feed at the end of standard input is not part of the key."""
    assert run("get", "geo", "-", stdin=stdin).out == value


@pytest.mark.usefixtures("node")
def test_mget(run):
    """Each key found has a line, in the order asked; missing keys go to standard error, with status 1."""
    done = run("mget", "geo", "k2", "nope", "k1", "empty")
    assert (done.status, done.out) == (1, b"k2\tvalue 2\nk1\tvalue 1\nempty\t\n")
    assert done.err == "not found: 'nope' in geo, version v1\n"
    assert run("mget", "geo", "k1", "bin", "--hex").out == b"6b31\t76616c75652031\n62696e\tff000a\n"
    lines = [json.loads(line) for line in run("mget", "geo", "k1", "nope", "--json").out.splitlines()]
    assert lines == [{"key": "k1", "value": "value 1"}, {"key": "nope", "value": None}]
    lines = [json.loads(line) for line in run("mget", "geo", "k1", "nope", "--json", "--hex").out.splitlines()]
    assert lines == [{"key": "6b31", "value": b"value 1".hex()}, {"key": b"nope".hex(), "value": None}]
    keys = b"k1\nk2\n" * 900
    done = run("mget", "geo", "-", stdin=keys)
    assert (done.status, done.out) == (0, b"k1\tvalue 1\nk2\tvalue 2\n" * 900)


@pytest.mark.usefixtures("node")
def test_scan(run):
    assert run("scan", "geo", "--start", "k1", "--end", "k3").out == b"k1\tvalue 1\nk2\tvalue 2\n"
    assert run("scan", "geo", "--prefix", "k", "--reverse", "--limit", "2").out == b"k6\tvalue 6\nk5\tvalue 5\n"
    assert run("scan", "geo", "--prefix", b"\xfe", "--hex").out == b"fe\t6f6464206b6579\n"
    assert len(run("scan", "geo", "--json").out.splitlines()) == len(RECORDS)
    (record,) = run("scan", "geo", "--prefix", b"\xfe", "--hex", "--json").out.splitlines()
    assert json.loads(record) == {"key": "fe", "value": b"odd key".hex()}
    assert run("scan", "geo", "--prefix", "zzz").status == 0


def test_ping(run, node):
    assert run("ping").out.decode().startswith(f"{node.address}: pong in ")
    assert json.loads(run("ping", "--json").out)["answer"] == "pong"
    assert run("ping", "--node", "127.0.0.1:1", "--node", node.address).status == 0


def test_several_nodes_from_the_environment(run, node, monkeypatch):
    monkeypatch.setenv("GOSSIPKV_NODE", f"127.0.0.1:1, {node.address}")
    assert run("get", "geo", "k1").out == b"value 1"
    monkeypatch.setenv("GOSSIPKV_NODE", "nonsense")
    done = run("get", "geo", "k1")
    assert done.status == 2
    assert "GOSSIPKV_NODE: expected HOST:PORT" in done.err
    assert "GOSSIPKV_NODE_NAME the name of the node that `serve` runs" in done.err
    monkeypatch.setenv("GOSSIPKV_NODE", "")
    monkeypatch.setenv("GOSSIPKV_NODE_NAME", node.address)
    done = run("get", "geo", "k1")
    assert (done.status, "is an address, not a name; GOSSIPKV_NODE has the HOST:PORT" in done.err) == (2, True)
    monkeypatch.setenv("GOSSIPKV_NODE", node.address)
    assert run("get", "geo", "k1").status == 0


@pytest.mark.parametrize(("error", "status"), [
    (("UNKNOWN_DATABASE", "no database geo", {}), 1), (("UNKNOWN_VERSION", "no such version", {}), 1),
    (("BAD_REQUEST", "wrong", {}), 2), (("TOO_LARGE", "too large", {}), 2), (("NOT_READY", "building\nstill", {}), 3),
    (("CORRUPT", "x", {"file": "f.gkv", "offset": 4096, "reason": "checksum"}), 3), (("OVERLOADED", "later", {}), 3),
    (("CONFLICT", "another came first", {}), 3), (("STALE_CONFIG", "too old a map", {}), 3),
    (("WRITE_LOST", "gone for good", {}), 3), (("INTERNAL", "a defect", {"id": "1"}), 3),
    (("NEWER_THAN_US", "what", {}), 3),
])  # fmt: skip
def test_errors_of_the_node(run, monkeypatch, error, status):
    """Each error is one line, with the exit status that the interface defines."""
    with FakeNode(answering(("get", error))) as fake:
        monkeypatch.setenv("GOSSIPKV_NODE", fake.address)
        done = run("get", "geo", "k")
    assert (done.status, done.out) == (status, b"")
    assert one_line(done.err)
    assert "f.gkv: damaged at byte 4096" in done.err or error[1].split("\n")[0] in done.err


@pytest.mark.parametrize("arguments", [
    [], ["nope"], ["get"], ["get", "geo"], ["get", "geo", "a", "b"], ["mget", "geo"], ["scan", "geo", "--limit", "-1"],
    ["get", "geo", "k", "--node", "nowhere"], ["get", "geo", "k", "--timeout", "5"], ["ping", "--timeout", "0s"],
    ["--nope"], ["serve", "--max-frame", "1B"], ["config", "--config", "/nonexistent.toml"], ["inspect", "/none"],
    ["build", "/etc", "/tmp", "--partitions", "0"], ["verify"], ["config", "--log-level", "loud"],
    ["build", "/etc", "/tmp/none", "--memory", "1MiB"], ["cluster"], ["cluster", "nope"], ["keys"],
])  # fmt: skip
def test_wrong_use_is_status_2(run, arguments):
    """Wrong use gives status 2, nothing on standard output, and one line (without arguments: the help)."""
    done = run(*arguments)
    assert (done.status, done.out) == (2, b"")
    assert one_line(done.err) or (not arguments and done.err.startswith("Usage: gossipkv"))
    assert done.err.startswith(("gossipkv: ", "Usage: "))


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["set", "geo", "k", "v"], f"; {WRITES_ARE}: use `gossipkv put` to write a record (see gossipkv --help)"),
        (["del", "geo", "k"], f"; {WRITES_ARE}: use `gossipkv delete` to delete a record (see gossipkv --help)"),
        (["stauts"], "; the nearest is status (see gossipkv --help)"),
        (["clustr", "up"], "; the nearest is cluster (see gossipkv --help)"),
        (["cluster", "strat", "1"], "; the nearest is start (see gossipkv cluster --help)"),
        (["keys", "lst", "f"], "; the nearest is list (see gossipkv keys --help)"),
        (["xyzzy"], " (see gossipkv --help)"),
    ],
)
def test_a_mistyped_command(run, arguments, nearest):
    """The nearest command is named, in groups as well, or none if none is near."""
    done = run(*arguments)
    wrong = arguments[-2] if arguments[0] in {"cluster", "keys"} else arguments[0]
    assert (done.status, done.out) == (2, b"")
    assert done.err == f"gossipkv: no such command {wrong!r}{nearest}\n"


def test_nobody_answers(run, monkeypatch):
    """The line has the address and the reason."""
    monkeypatch.setenv("GOSSIPKV_NODE", "127.0.0.1:1")
    done = run("get", "geo", "k")
    assert done.status == 3
    assert done.err == "gossipkv: no node could be reached: 127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize("command", [*cli.COMMANDS, None])
def test_help(run, command):
    """The help goes to standard output, with status 0."""
    done = run(*([command] if command else []), "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"Usage: gossipkv {command or '[OPTIONS]'}".encode())


@pytest.mark.parametrize("command", ["serve", "config"])
def test_help_shows_the_settings_that_people_need(run, command):
    """The help lists twelve settings in groups; the long help lists each setting once, the twelve first."""
    few, all_ = (run(command, flag).out.decode() for flag in ("--help", "--help-all"))
    shown = re.findall(r"^  (--[a-z-]+)", few, re.MULTILINE)
    settings = [flag for flag in shown if flag in {setting.flag for setting in SETTINGS}]
    assert settings == [setting.replace("_", "-") for setting in (
        "--source", "--data", "--refresh_period", "--listen", "--advertise", "--http_listen", "--cluster", "--node",
        "--join", "--replication", "--key_ring", "--log_level",
    )]  # fmt: skip
    titles = ["Data:", "Network:", "Cluster:", "Log:", "Options:", "Examples:"]
    assert [*re.findall(r"^[A-Z].*:$", few, re.MULTILINE)] == titles
    assert f"with the other {len(SETTINGS) - 12} settings" in " ".join(few.split())
    every = re.findall(r"^  (--[a-z-]+)", all_, re.MULTILINE)
    assert sorted({setting.flag for setting in SETTINGS} & {*every}) == sorted(setting.flag for setting in SETTINGS)
    assert len(every) == len({*every})
    assert every[:12] == settings
    assert ({*shown} - {*settings}) < {*every}


def test_a_command_that_this_system_cannot_run(run, monkeypatch):
    """The line says that the command needs Linux."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "gossipkv.cli.serve", None)
    done = run("serve", "--help")
    assert (done.status, done.out, one_line(done.err)) == (3, b"", True)
    assert "`serve` needs Linux" in done.err


def test_version(run):
    assert run("--version").out == b"gossipkv 0.1.0\n"


def test_a_defect_keeps_its_traceback(run, node, monkeypatch):
    """A defect of the program is not shown as an error of the user."""
    monkeypatch.setattr("gossipkv.client.blocking.Client.ping", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        run("ping", "--node", node.address)


STATUS = {
    "geo": {"kind": "dataset", "active": "1", "hold": "1", "error": None, "versions": {
        "1": {"state": "ACTIVE", "records": 1234, "size_bytes": 2048, "partitions": [{}, {}], "source_differs": True,
              "format": "sequence", "function": "text", "alike": ["text", "string"], "duplicates": 1012,
              "scrub": {"last_s": None, "bypassed_cache": None, "damaged_files": None, "running": False}},
        "2": {"state": "BUILDING", "waited_s": 75.9, "progress": {"done": 0.25, "remaining_s": 65.0}},
        "3": {"state": "SEEN", "waiting_for": "a file _SUCCESS"},
        "4": {"state": "SEEN", "waiting_for": "disk space: about 9 bytes are needed, 5 bytes are free",
              "needed_bytes": 9, "free_bytes": 5},
        "5": {"state": "RETIRING", "function": "sequins", "voided": "spark", "strays": 1200,
              "first_stray": {"key": b"k\xff", "file": "/s/part-3", "offset": 12345},
              "scrub": {"last_s": 7325, "bypassed_cache": True, "damaged_files": 0, "running": True}}}},
    "bad": {"kind": "dataset", "active": None, "error": "unreadable", "versions": {
        "1": {"state": "ERROR", "error": {"message": "f.tsv: line 3: no TAB"},
              "scrub": {"last_s": 60, "bypassed_cache": False, "damaged_files": 2, "running": False}}}},
    "new": {"kind": "dataset", "active": None, "error": None, "versions": {}},
}  # fmt: skip
INFO = {"node": "n1", "cluster": "c", "uptime_s": 3700.0, "source_error": "/src: gone"}


def of_one_or_all(options=None):
    """Answer with the database that the options name, or with all."""
    if options is None:
        return STATUS
    name = options["database"]
    return {name: STATUS[name]} if name in STATUS else ("UNKNOWN_DATABASE", f"no database {name} here", {})


@pytest.mark.parametrize("database", [None, "geo", "new"])
def test_status_for_people(run, database):
    """Active, building, waiting and failed versions are all visible."""
    with FakeNode(answering(("status", of_one_or_all), ("info", INFO), ("verdict", judged()))) as fake:
        done = run("status", *([database] if database else []), "--node", fake.address)
    text = done.out.decode()
    assert (done.status, done.err) == (0, "")
    assert f"n1 at {fake.address}, cluster c, up 1 h 1 min" in text
    if database != "new":
        for words in (
            "ACTIVE",
            "1,234",
            "2.0 KiB",
            "25%, 1 min 5 s left; waiting 1 min 15 s",
            "waits for a file _SUCCESS",
            "source changed after the build",
            "sequence",
            "held; partitioned by string as well; 1,012 duplicates" if database else "held; 1,012 duplicates",
            "being scrubbed; scrubbed 2 h 2 min ago",
            "waits for room",
        ):
            assert words in text
    if database is None:
        assert "scrubbed 1 min 0 s ago, through the cache, 2 files damaged" in text
    assert ("EMPTY" in text) == (database != "geo")
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [20, 40, 60, 90])
def test_status_in_a_narrow_terminal(run, monkeypatch, width):
    """The state of each version is never folded."""
    for module in "screen", "status":
        monkeypatch.setattr(f"gossipkv.cli.{module}.console", partial(Console, width=width, highlight=False))
    with FakeNode(answering(("status", of_one_or_all), ("info", INFO), ("verdict", judged()))) as fake:
        words = run("status", "--node", fake.address).out.decode().split()
    for state, times in ("ACTIVE", 1), ("BUILDING", 1), ("SEEN", 2), ("RETIRING", 1), ("ERROR", 1), ("EMPTY", 1):
        assert words.count(state) == times


def test_status_of_tables(run):
    """With --verbose the store of the tables has a line, with its counters."""
    for tables, line in (
        ({"state": "none", "why": None}, None),
        (
            {"state": "open", "why": None, "life": 3, "counters": {"young_runs": 2}},
            "tables: open, life 3, 2 young runs",
        ),
    ):
        with FakeNode(
            answering(("status", of_one_or_all), ("info", {**INFO, "tables": tables}), ("verdict", judged()))
        ) as fake:
            text, plain = (run("status", *more, "--node", fake.address).out.decode() for more in (["--verbose"], []))
        assert "tables" not in plain
        assert "tables" not in text if line is None else f"{line}\n" in text


def test_status_for_programs(run):
    """--json passes on the node's answer, for one database or all."""
    with FakeNode(answering(("status", of_one_or_all), ("info", INFO), ("verdict", judged()))) as fake:
        told = json.loads(run("status", "--json", "--node", fake.address).out)
        assert told["geo"]["versions"]["5"]["first_stray"].pop("key") == {"base64": "a/8="}
        told["geo"]["versions"]["5"]["first_stray"]["key"] = b"k\xff"
        assert told == STATUS
        assert json.loads(run("status", "new", "--json", "--node", fake.address).out) == {"new": STATUS["new"]}
        done = run("status", "nope", "--node", fake.address)
    assert (done.status, done.err) == (1, "gossipkv: no database nope here\n")


REASONS = (
    Reason(TROUBLE, "geo: a\nb\x1b[31mc", "geo", "Mend [it]."),
    Reason(ATTENTION, "n2 is dead", None, "Start n2 again."),
    Reason(WELL, "geo 1: more copies are being made", "geo"),
)


def judged(*reasons, **coming):
    level = worst(reason.level for reason in reasons)
    text = headline(reasons, coming, "1 database")
    return ClusterVerdict("n1", level, text, reasons, coming=coming, databases=1).to_map()


@pytest.mark.parametrize(("count", "status"), [(3, 3), (2, 0), (1, 0)])
def test_status_says_whether_all_is_well(run, count, status):
    """The verdict comes with each reason and an advice; the status is 3 if something is wrong."""
    made = judged(*REASONS[-count:])
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", made))) as fake:
        whole, short = (run("status", *more, "--node", fake.address) for more in ((), ("--verdict",)))
        told = json.loads(run("status", "--verdict", "--json", "--node", fake.address).out)
    assert (whole.status, short.status) == (status, status)
    text = ["1 thing is wrong.", "Everything can be read; something deserves attention.", "All is well."][3 - count]
    assert whole.out.decode().splitlines()[1][2:] == f"{text} 1 database."
    lines = ["geo: a\\nb\\x1b[31mc", "n2 is dead", "geo 1: more copies are being made"]
    advice = ["→ Mend [it].", "→ Start n2 again."]
    assert short.out.decode().splitlines()[1:] == lines[3 - count :] + advice[3 - count :]
    assert whole.out.decode().splitlines()[3:] == short.out.decode().splitlines()[1:]
    assert told == made


@pytest.mark.parametrize(("reason", "status"), [(REASONS[1], 1), (REASONS[0], 3)])
def test_status_tells_that_a_version_is_withheld(run, reason, status):
    """A newest version that does not become active by itself needs its publisher; trouble weighs more."""
    withheld = judged(reason, geo=Coming("2", STUCK))
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", withheld))) as fake:
        assert run("status", "--node", fake.address).status == status


def test_status_waits_until_everything_serves(run, monkeypatch):
    """The command waits while a version is coming; a terminal shows the progress."""
    monkeypatch.setattr("gossipkv.cli.status.POLL_S", 0)
    shown = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda _bar, _task, **fields: shown.append(fields))
    waiting = judged(geo=Coming("2", COMES, waits=("waits for the source",)))
    building = judged(geo=Coming("2", COMES, 0.25, 65.0, 2))
    told = [waiting, building, judged(), judged()]
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", told))) as fake:
        done = run("status", "--wait", "--node", fake.address)
    assert (done.status, done.err, len(told)) == (0, "", 1)
    assert shown == [
        {"completed": 0.0, "times": "waits for the source"},
        {"completed": 0.25, "times": "25 % done, 1 min 5 s left; 2 nodes build"},
    ]


def test_status_wait_ends_where_nothing_will_come(run):
    """A stuck version ends the wait with status 3 and the reason."""
    stuck = judged(REASONS[0], geo=Coming("2", STUCK, waits=("n2 cannot build it: no TAB",)))
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", [stuck, judged()]))) as fake:
        done = run("status", "geo", "--wait", "--node", fake.address)
    assert (done.status, done.err) == (3, "gossipkv: geo: version 2 does not come: n2 cannot build it: no TAB\n")


def test_status_wait_ends_at_its_deadline(run):
    """At the deadline the status is 3 and each missing version is named; without databases the wait ends at once."""
    coming = judged(geo=Coming("2", COMES), words=Coming("7", COMES, waits=("waits for n3",)))
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", coming))) as fake:
        done = run("status", "--wait", "--timeout", "50ms", "--node", fake.address)
    assert done.status == 3
    assert done.err.splitlines() == [
        "gossipkv: geo: version 2 does not serve yet: its builders are not known yet",
        "gossipkv: words: version 7 does not serve yet: waits for n3",
    ]
    with FakeNode(answering(("status", {}), ("info", INFO), ("verdict", judged()))) as fake:
        assert run("status", "--wait", "--node", fake.address).status == 0


def test_refresh(run):
    with FakeNode(answering(("refresh", {"geo": ["1", "2"], "abc": []}))) as fake:
        assert run("refresh", "--node", fake.address).out == b"abc\t\ngeo\t1 2\n"
        assert json.loads(run("refresh", "geo", "--json", "--node", fake.address).out) == {"geo": ["1", "2"], "abc": []}


def test_config(run, tmp_path, monkeypatch):
    file = tmp_path / "g.toml"
    file.write_text('refresh_period = "90s"\n')
    monkeypatch.setenv("GOSSIPKV_MAX_CONNECTIONS", "77")
    arguments = ["config", "--config", str(file), "--no-require-success-file", "--listen", "[::1]:1"]
    told = {row["setting"]: row for row in json.loads(run(*arguments, "--json").out)}
    assert (told["refresh_period"]["value"], told["refresh_period"]["from"]) == ("90s", f"{file}:1")
    assert (told["max_connections"]["value"], told["max_connections"]["from"]) == (
        "77",
        "environment GOSSIPKV_MAX_CONNECTIONS",
    )
    assert (told["listen"]["value"], told["listen"]["from"]) == ("[::1]:1", "flag --listen")
    assert told["require_success_file"]["from"] == "flag --require-success-file"
    assert (told["source"]["value"], told["source"]["from"]) == (None, "default")
    text = run(*arguments).out.decode()
    for row in told.values():
        assert row["setting"] in text
        assert row["meaning"].split()[0] in text
    assert "90s" in text
    assert "[::1]:1 " in text


def test_settings_from_a_pipe():
    """A node reads its settings again at SIGHUP, when the pipe is empty."""
    out, into = os.pipe()
    os.write(into, b'[databases.geo]\nhold = "v1"\n')
    os.close(into)
    with serve.make_context("serve", ["--config", f"/dev/fd/{out}"]) as context:
        held = [load_settings(context.params["file"], {}).databases["geo"].hold for _ in range(2)]
    os.close(out)
    assert held == ["v1", "v1"]


def test_config_of_databases_and_stores(run, tmp_path):
    """Each table of the file is listed; values of storage options are hidden."""
    file = tmp_path / "g.toml"
    file.write_text(
        'source = "ftp://joe:correct-horse@host/x"\n[storage_options]\nsecret = "correct-horse"\n'
        'client_kwargs.region_name = "east"\n[databases.geo]\nhold = "v1"\n'
        '[databases.geo.storage_options]\nkey = "correct-horse"\n'
        '[databases.t]\nformat = "delta"\ntable = "ftp://joe:correct-horse@host/t"\n'
        '[databases.i]\nformat = "iceberg"\ntable = "a.b"\ncatalog = { token = "correct-horse" }\n'
    )
    done = run("config", "--config", str(file), "--json")
    told = {row["setting"]: (row["value"], row["from"]) for row in json.loads(done.out)}
    assert told["source"] == ("ftp://***@host/x", f"{file}:1")
    assert told["storage_options.secret"] == ("***", f"{file}:2")
    assert told["storage_options.client_kwargs.region_name"] == ("east", f"{file}:2")
    assert told["databases.geo.hold"] == ("v1", f"{file}:6")
    assert told["databases.geo.storage_options.key"] == ("***", f"{file}:7")
    assert told["databases.t.table"] == ("ftp://***@host/t", f"{file}:11")
    assert told["databases.i.catalog.token"] == ("***", f"{file}:15")
    assert "databases.geo.format" not in told
    text = run("config", "--config", str(file)).out.decode()
    assert "databases.geo.storage_options.key" in text
    assert "correct-horse" not in text + done.out.decode()


def test_config_shows_every_setting_of_a_database(run, tmp_path):
    """Each kind of value is shown as text and as JSON."""
    file = tmp_path / "g.toml"
    file.write_text(
        '[databases.geo]\nformat = "csv"\nkey = ["a", "b"]\nmin_records = 5\nmin_ratio = 0.5\nallow_empty = true\n'
        'csv = { delimiter = ";" }\n'
    )
    rows = json.loads(run("config", "--config", str(file), "--json").out)
    told = {row["setting"].removeprefix("databases.geo."): row["value"] for row in rows}
    assert (told["min_records"], told["min_ratio"], told["allow_empty"]) == ("5", "0.5", "true")
    assert (told["key"], told["csv"]["delimiter"]) == (["a", "b"], ";")
    assert "databases.geo.allow_empty" in run("config", "--config", str(file)).out.decode()


def test_config_of_many_databases(run, tmp_path):
    """All are shown, in the form that is drawn at once."""
    file = tmp_path / "g.toml"
    file.write_text("".join(f'[databases.d{number}]\nformat = "csv"\n' for number in range(600)))
    lines = run("config", "--config", str(file)).out.decode().splitlines()
    assert sum(line.startswith("databases.d") for line in lines) == 600
    assert lines[-2].split() == ["databases.d599.format", "csv", f"{file}:1200"]


def test_config_on_a_narrow_terminal(run, monkeypatch):
    monkeypatch.setattr("gossipkv.cli.settings.WIDE", 2000)
    lines = run("config").out.decode().splitlines()
    assert lines[0].split() == ["source", "-", "default"]
    assert lines[1] == "    directory or URL of the versions, as DATABASE/VERSION/FILES"
