"""`table import` and `table export` against a fake node: files, order, places of errors, and interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from gossipkv.cli import table_export, table_import
from gossipkv.settings.tables import MAX_KEY_BYTES
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

RECORDS = {b"key %04d" % number: b"value of %d" % number for number in range(5000)}
STRANGE = {b"": b"", b"\0\xff\n\t": b"\xfe\r\n\t\0", "ä".encode(): "ö\u2028".encode(), b"big": bytes(200_000)}


class WholeNode(TableNode):
    """A node whose scans have one page."""

    def scan(self, options=None):
        start, prefix = (options or {}).get("start", b""), (options or {}).get("prefix", b"")
        keys = sorted(key for key in self.records if key >= start and key.startswith(prefix))
        return [[[key, self.records[key]] for key in keys], None, b"token"]


@pytest.fixture
def node(monkeypatch):
    """Return a fake node, which commands ask."""
    found = WholeNode()
    with FakeNode(found) as listening:
        monkeypatch.setenv("GOSSIPKV_NODE", listening.address)
        yield found


@pytest.fixture
def small(monkeypatch):
    """Let chunks be small."""
    monkeypatch.setattr(table_import, "CHUNK_RECORDS", 40)
    monkeypatch.setattr(table_import, "SAVE_S", 0.0)
    monkeypatch.setattr(table_import, "PAUSE_S", 0.001)


def tsv(path, records):
    path.write_bytes(b"".join(b"%b\t%b\n" % record for record in records))
    return path


def put(node):
    """Return the records that the node was told to put, in its order."""
    return [(key, value) for method, params in node.asked if method == "put_many" for key, value in params[0]]


@pytest.mark.parametrize("name", [
    "t.jsonl", "t.json.gz", "t.ndjson.zst", "t.jsonl.lz4", "t.parquet", "t.tsv", "t.tab.lz4",
])  # fmt: skip
def test_what_is_exported_is_imported_again(run, node, tmp_path, name):
    """All formats have the same records again; TSV has none with a TAB or a line feed."""
    node.records = before = RECORDS | ({} if ".t" in name else STRANGE)
    done = run("table", "export", "t", tmp_path / name)
    assert (done.status, done.out) == (0, f"{tmp_path / name}: {len(before):,} records of t\n")
    node.records = {}
    done = run("table", "import", "t", tmp_path / name, "--json")
    assert (done.status, node.records) == (0, before), done.err
    assert json.loads(done.out) == {"table": "t", "records": len(before), "files": 1, "skipped": 0}
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_partial_export_names_what_it_lacks(run, node, tmp_path, monkeypatch):
    """Pages may name parts that they leave out; the status is 0, and only a page of that form is taken."""
    given = []

    def scan(options):
        given.append(options)
        if "cursor" in options:
            return [[[b"z", b"2"]], None, b"token", [[{"start": b"m", "end": None}, "n2 is down"]]]
        return [[[b"a", b"1"]], b"next", b"token", [[{"shard": 3}, "n1 is down"]]]

    monkeypatch.setattr(node, "scan", scan)
    done = run("table", "export", "t", tmp_path / "t.tsv", "--partial", "--start", "a", "--json")
    assert json.loads(done.out)["missing"] == [{"shard": 3}, {"start": "m", "end": None}]
    assert (done.status, (tmp_path / "t.tsv").read_bytes()) == (0, b"a\t1\nz\t2\n")
    assert done.err.splitlines() == [
        "gossipkv: t: shard 3 cannot be read: n1 is down",
        "gossipkv: t: the keys from 'm' cannot be read: n2 is down",
    ]
    assert [(one["partial"], one["start"], one.get("cursor")) for one in given] == [
        (True, b"a", None),
        (True, b"a", b"next"),
    ]
    monkeypatch.setattr(node, "scan", lambda _: [[], None, b"token"])
    done = run("table", "export", "t", tmp_path / "u.tsv", "--partial")
    assert (done.status, [*tmp_path.iterdir()]) == (3, [tmp_path / "t.tsv"])


EXPIRING = """{"key": "a", "value": "1", "expires_at": 1800000000000}
{"expires_at": null, "key": "b", "value": "2"}
{"key": "c", "value": "3"}
"""


@pytest.mark.parametrize(("options", "expected"), [
    ("", ([], None)), ("--ttl 1h", ([], 3_600_000)), ("--expiry-field expires_at", ([1_800_000_000_000], 0)),
    ("--expiry-field expires_at --ttl 1h", ([1_800_000_000_000], 3_600_000)),
])  # fmt: skip
def test_an_import_sets_expiries(run, node, tmp_path, options, expected):
    """Each record has that of its field; --ttl is for all others."""
    path, (own, ttl_ms) = tmp_path / "t.jsonl", expected
    path.write_text(EXPIRING)
    assert run("table", "import", "t", path, *options.split()).status == 0
    asked = [params for method, params in node.asked if method == "put_many"]
    assert sorted(row for rows, _ in asked for row in rows) == [[b"a", b"1", *own], [b"b", b"2"], [b"c", b"3"]]
    assert {given.get("ttl_ms") for _, given in asked} == {ttl_ms}


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.parquet"])
def test_expiries_are_exported_and_imported_again(run, node, tmp_path, name):
    """Records without an expiry never expire afterwards; TSV has no place for one."""
    node.records = {b"a": b"1", b"b": b"2", b"c\xff": b"3"}
    node.expiries = before = {b"a": {"expires_at": 1_800_000_000_000}}
    done = run("table", "export", "t", tmp_path / name, "--expiry")
    assert (done.status, done.out) == (0, f"{tmp_path / name}: 3 records of t\n"), done.err
    node.records, node.expiries = {}, {}
    assert run("table", "import", "t", tmp_path / name, "--expiry-field", "expires_at").status == 0
    assert (node.records, node.expiries) == ({b"a": b"1", b"b": b"2", b"c\xff": b"3"}, before)
    assert run("table", "export", "t", tmp_path / "t.tsv", "--expiry").status == 2


def test_an_expiry_needs_fields(run, node, tmp_path):
    """TSV has none."""
    done = run("table", "import", "t", tsv(tmp_path / "t.tsv", [(b"a", b"1")]), "--expiry-field", "expires_at")
    assert (done.status, node.records) == (3, {})
    assert "tsv has no fields beside key and value, so omit --expiry-field" in done.err


def test_an_export_appears_when_it_is_whole(run, node, tmp_path, monkeypatch):
    """A failed export leaves the former file, and nothing beside it; bounds and --format are obeyed."""
    path = tmp_path / "t.tsv"
    path.write_text("before")
    node.records = {b"a": b"1", b"b\t": b"2", b"ba": b"3"}
    done = run("table", "export", "t", path)
    assert (done.status, path.read_text(), [*tmp_path.iterdir()]) == (2, "before", [path])
    assert "the record of 0x6209 has a TAB or a line feed" in done.err
    assert run("table", "export", "t", path, "--start", "ba").status == 0
    assert path.read_bytes() == b"ba\t3\n"
    assert run("table", "export", "t", path, "--prefix", "b", "--format", "json").status == 0
    assert path.read_bytes() == b'{"key": "b\\t", "value": "2"}\n{"key": "ba", "value": "3"}\n'
    for name in ("t.xml", "t.parquet.gz", "t"):
        assert "unknown format:" in run("table", "export", "t", tmp_path / name).err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("table", "export", "t", tmp_path / "t.parquet")
    assert (done.status, "pip install 'gossipkv[parquet]'" in done.err) == (3, True)


def test_groups_of_parquet_are_small(run, node, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(table_export, "GROUP_BYTES", 1000)
    node.records = dict.fromkeys(RECORDS, bytes(100))
    assert run("table", "export", "t", tmp_path / "t.parquet").status == 0
    found = parquet.ParquetFile(tmp_path / "t.parquet")
    rows = [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)]
    assert (sum(rows), max(rows)) == (len(RECORDS), 10)


@pytest.mark.usefixtures("small")
def test_the_last_record_of_a_key_stays(run, node, tmp_path):
    """Records of one key are put in the order of the files, also when a batch fails for a moment."""
    node.fails = {number: ["UNKNOWN" if number % 2 else "NOT_READY", "no", {}] for number in range(5, 60, 6)}
    one = tsv(tmp_path / "b", [(b"%d" % (number % 7), b"b%03d" % number) for number in range(900)])
    two = tsv(tmp_path / "a", [(b"%d" % (number % 5), b"c%03d" % number) for number in range(400)])
    done = run("table", "import", "t", one, two, "--level", "all")
    assert (done.status, done.out.split(" in ")[0]) == (0, "t: 1,300 records put, from 2 files")
    assert node.records == {
        **{b"%d" % key: b"c%03d" % (395 + key) for key in range(5)}, b"5": b"b894", b"6": b"b895",
    }  # fmt: skip
    assert {params[-1]["level"] for _, params in node.asked} == {"all"}


@pytest.mark.parametrize("bad", [
    ("t.tsv", b"a\t1\n\nb 2\nc\t3\n", "t.tsv: line 3"),
    ("t.jsonl", b'{"key": "a", "value": "1"}\n{"key": "b"}\n', "t.jsonl: line 2"),
    ("t.tsv", b"a\t1\nb" + bytes(MAX_KEY_BYTES) + b"\t2\n", "t.tsv: byte 4: record 2 has a key of 65,523 bytes"),
])  # fmt: skip
@pytest.mark.usefixtures("small")
def test_a_bad_row_is_named(run, node, tmp_path, bad):
    """The error has file and line; all chunks before it are put."""
    name, lines, words = bad
    first = tsv(tmp_path / "first.tsv", list(RECORDS.items())[:100])
    (tmp_path / name).write_bytes(lines)
    done = run("table", "import", "t", first, tmp_path / name)
    assert (done.status, len(node.records)) == (3, 100)
    assert words in done.err
    assert "gossipkv: 100 records were put; the same command puts them again\n" in done.err


@pytest.mark.usefixtures("small")
def test_a_refused_batch_is_placed(run, node, tmp_path):
    node.fails = {number: ["BAD_REQUEST", "the key has no time", {}] for number in range(9, 99)}
    done = run("table", "import", "t", tsv(tmp_path / "t.tsv", list(RECORDS.items())[:200]))
    assert done.status == 2
    assert "t.tsv: one of the records 41 to 80: the key has no time" in done.err
    node.fails = {number: ["BAD_REQUEST", "t is a dataset", {"database": "t"}] for number in range(9, 999)}
    done = run("table", "import", "t", tmp_path / "t.tsv")
    assert ("t is a dataset" in done.err, "one of the records" in done.err) == (True, False)


@pytest.mark.usefixtures("small")
def test_an_import_goes_on_at_its_state(run, node, tmp_path):
    """Chunks before the saved position are not put again, all behind it are, and the file goes at the end."""
    paths = [tsv(tmp_path / f"{at}.tsv", list(RECORDS.items())[at : at + 500]) for at in (0, 500)]
    state = tmp_path / "state"
    command = ("table", "import", "t", *paths, "--state", state)
    node.fails = {number: ["BAD_REQUEST", "no", {}] for number in range(100, 999)}
    done = run(*command)
    assert (done.status, "the same command continues from there" in done.err) == (2, True)
    before, (file, records) = len(put(node)), json.loads(state.read_text())["position"]
    assert (file, 400 <= records <= 500) == (0, True)
    node.fails = {}
    for other in (("table", "import", "u", *command[3:]), ("table", "import", "t", paths[0], "--state", state)):
        done = run(*other)
        assert (done.status, "the state of another import" in done.err) == (2, True)
    done = run(*command)
    assert (done.status, node.records) == (0, dict(list(RECORDS.items())[:1000]))
    assert len(put(node)) - before == 1000 - records
    assert not state.exists()
    state.write_text("[]")
    assert "not the state of an import" in run(*command).err


def test_an_import_that_is_killed(node, tmp_path):
    """After kill -9 the same command puts all that is left, and few records again."""
    records = [(b"%06d" % number, b"v") for number in range(60_000)]
    path, state, asked = tsv(tmp_path / "t.tsv", records), tmp_path / "state", threading.Event()
    slow = node.put_many

    def put_many(*params):
        time.sleep(0.02)
        asked.set()
        return slow(*params)

    node.put_many = put_many
    command = [sys.executable, "-m", "gossipkv", "table", "import", "t", str(path), "--state", str(state)]
    with subprocess.Popen(command, env=os.environ) as first:
        assert asked.wait(60)
        while not state.exists() and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    assert 0 < len(node.records) < len(records)
    node.put_many = slow
    assert subprocess.run(command, env=os.environ, check=False).returncode == 0
    assert node.records == dict(records)
    again = [key for key, count in Counter(key for key, _ in put(node)).items() if count > 1]
    assert len(again) < len(records) / 2


@pytest.mark.parametrize(
    "arguments", [("import", "t"), ("import", "t", "/none"), ("export", "t"), ("export", "t", "/")]
)
def test_wrong_use(run, arguments):
    done = run("table", *arguments)
    assert (done.status, done.out) == (2, "")
