"""`backup` and `restore`: the questions to a node, the work without a node, and the output."""

from __future__ import annotations

import json
import random

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import read_node
from gossipkv.storage.engine.manifest import segment_path
from tests.unit.table.real_store import BATCH_AT, RECORDS, read_store, write_store


@pytest.fixture
def data(tmp_path):
    """Return a data directory that a node has used."""
    place = tmp_path / "data"
    DataDirectory.open(place, RealFiles(), cluster="c", random=random.Random(1), node="n1").close()
    return place


@pytest.fixture
def backed_up(tmp_path):
    """Return a backup: a store that no process has open."""
    write_store(tmp_path / "backup")
    return tmp_path / "backup"


def test_restore(run, data, backed_up):
    """A second restore refuses to replace the tables unless it is told to forget them."""
    done = run("restore", backed_up, "--data", data)
    store = read_node(RealFiles(), data).store
    assert (done.status, done.out) == (0, f"{data}: node n1 has the tables of {backed_up}, as store {store:016x}\n")
    assert read_store(data / "tables") == RECORDS
    done = run("restore", backed_up, "--data", data)
    assert (done.status, done.out) == (3, "")
    assert "with --forget-tables they are set aside" in done.err
    told = json.loads(run("restore", backed_up, "--data", data, "--forget-tables", "--json").out)
    record = read_node(RealFiles(), data)
    assert told == {
        "node": "n1", "uuid": record.uuid, "store": f"{record.store:016x}",
        "forgotten": str(data / "tables-forgotten-1"),
    }  # fmt: skip
    assert record.store != store
    done = run("restore", backed_up, "--data", data, "--forget-tables")
    assert done.out.endswith(f"{data / 'tables-forgotten-2'}: the tables that were there\n")


def test_restore_into_what_a_node_has_open(run, data, backed_up):
    """The refusal names the process that has the directory open."""
    with DataDirectory.open(data, RealFiles(), cluster="c", random=random.Random(1)):
        done = run("restore", backed_up, "--data", data)
    assert (done.status, done.out) == (3, "")
    assert "in use by process" in done.err


def test_restore_what_is_damaged(run, data, backed_up):
    """The refusal names file and offset, or says that there is no backup; the directory gets no tables."""
    log = segment_path(backed_up, 1)
    whole = log.read_bytes()
    log.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    done = run("restore", backed_up, "--data", data)
    assert (done.status, done.out) == (3, "")
    assert f"{log}: damaged at byte {BATCH_AT}" in done.err
    log.write_bytes(whole)
    (backed_up / "MANIFEST").rename(backed_up / "elsewhere")
    done = run("restore", backed_up, "--data", data)
    assert (done.status, "there is no backup here" in done.err) == (3, True)
    assert read_node(RealFiles(), data).store == 0
    assert not [path for path in data.iterdir() if path.name.startswith("tables")]
    (backed_up / "elsewhere").rename(backed_up / "MANIFEST")
    assert run("restore", backed_up, "--data", data).status == 0
