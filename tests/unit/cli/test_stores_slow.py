"""`inspect` and `verify` of a data directory with tables check the store as a whole."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.directory import DataDirectory
from gossipkv.storage.engine.manifest import segment_path
from tests.unit.table.real_store import BATCH_AT, make_tables

FILES = RealFiles()


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def data(tmp_path):
    """Return a data directory with tables and forgotten tables."""
    place = tmp_path / "data"
    make_tables(place)
    shutil.copytree(place / "tables", place / "tables-forgotten-1")
    return place


@pytest.fixture
def store(data):
    """Return the id of its store in hexadecimal."""
    with DataDirectory.open(data, FILES, cluster="gossipkv", random=random.Random(1)) as directory:
        return f"{directory.record.store:016x}"


def test_verify_a_data_directory_with_tables(run, data):
    """The files of the store are counted; forgotten tables are skipped."""
    flip(segment_path(data / "tables-forgotten-1", 1), 5000)
    done = run("verify", data)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("3 files, ")  # NODE; MANIFEST, a segment.
    log = segment_path(data / "tables", 1)
    flip(log, 5000)
    done = run("verify", data)
    assert (done.status, f"{log}: damaged at byte {BATCH_AT}: " in done.out) == (3, True)
    (told,) = json.loads(run("verify", data, "--json").out)["damaged"]
    assert (told["file"], told["offset"]) == (str(log), BATCH_AT)


def test_verify_a_store_itself(run, data):
    """Forgotten tables can be verified anywhere."""
    place = data / "tables-forgotten-1"
    assert run("verify", place).out.startswith("2 files, ")
    (place / "MANIFEST").write_bytes((place / "MANIFEST").read_bytes()[:-1])
    done = run("verify", place)
    assert (done.status, f"{place}/MANIFEST: damaged" in done.out) == (3, True)


def test_verify_tables_that_are_lost(run, data):
    """NODE names a store that is missing, which is damage; the rest is still checked."""
    (data / "tables").rename(data.with_name("elsewhere"))
    done = run("verify", data)
    assert (done.status, "1 damaged" in done.out) == (3, True)
    assert f"{data}/tables/MANIFEST: damaged at byte 0: the manifest of the store is missing" in done.out


def test_inspect_tables(run, data, store):
    """Tables are shown with the data directory or alone; damaged tables do not hide the rest."""
    told = json.loads(run("inspect", data, "--json").out)
    assert told["tables"].items() >= {"directory": f"{data}/tables", "store": store, "life": 1}.items()
    assert store in run("inspect", data).out
    assert json.loads(run("inspect", data / "tables", "--json").out) == told["tables"]
    assert store in run("inspect", data / "tables-forgotten-1").out
    assert json.loads(run("inspect", data / "tables" / "MANIFEST", "--json").out)["kind"] == "STORE"
    (data / "tables" / "MANIFEST").unlink()
    done = run("inspect", data, "--json")
    assert (done.status, json.loads(done.out)["node"]) == (0, "n1")
    assert json.loads(done.out)["tables"]["damage"].startswith(f"{data}/tables/MANIFEST: ")


def test_a_data_directory_without_tables(run, tmp_path):
    DataDirectory.open(tmp_path, FILES, cluster="c", random=random.Random(1)).close()
    assert json.loads(run("inspect", tmp_path, "--json").out)["tables"] is None
    assert run("verify", tmp_path).out.startswith("1 file, ")
