"""Logs and metadata are read in a process of their own: what an author writes there harms no node."""

import gzip
import json
import os
import signal

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from gossipkv.dataset.snapshots import table_source
from gossipkv.dataset.snapshots.table_source import TableOptions, open_table
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError
from gossipkv.processes.usage import peak_bytes
from gossipkv.settings.databases import DatabaseSettings
from gossipkv.settings.stores import Stores
from tests.unit.dataset.snapshots.delta_tables import commit
from tests.unit.dataset.snapshots.test_delta import METADATA, PROTOCOL, add


@pytest.fixture
def source(tmp_path):
    """Return the source of a database below a root, which has a Delta table with a file."""
    (tmp_path / "root" / "db" / "_delta_log").mkdir(parents=True)
    commit(tmp_path / "root" / "db", PROTOCOL, METADATA, add("a"))
    (tmp_path / "root" / "db" / "a").write_bytes(b"12345")
    return opened(tmp_path)


def opened(tmp_path, kind="delta"):
    root = SourceRoot(str(tmp_path / "root"), RealFiles())
    return open_table(DatabaseSettings(format=kind), root, "db", RealFiles(), TableOptions(None, Stores({})))


def files(source):
    return [file.path for file in source.version("db", source.versions("db").names[-1]).files]


def processes(source):
    return source._process and source._process._worker.process.pid


def test_the_process_stays_while_the_table_changes(source, tmp_path):
    table = tmp_path / "root" / "db"
    assert files(source) == [f"{table}/a"]
    first = processes(source)
    commit(table, add("b"))
    assert len(files(source)) == 2
    assert processes(source) == first
    assert len(source.versions("db").names) == 2
    assert processes(source) is None
    assert len(files(source)) == 2
    commit(table, add("c"))
    assert len(files(source)) == 3


def test_a_process_that_is_killed_is_replaced(source, tmp_path):
    source.versions("db")
    os.kill(processes(source), signal.SIGKILL)
    commit(tmp_path / "root" / "db", add("b"))
    with pytest.raises(
        SourceError, match=r"the process was killed by signal 9 \(a table's metadata may take 300 s and"
    ):
        source.versions("db")
    assert len(files(source)) == 2


def test_it_may_not_take_for_ever(source, monkeypatch):
    monkeypatch.setattr(table_source, "LOOK_S", 0.0)
    with pytest.raises(SourceError, match="the table cannot be read: the process was killed"):
        source.versions("db")


@pytest.mark.parametrize("trick", ["log", "commit", "data", "fifo commit", "fifo data"])
def test_nothing_leads_out_of_the_source(source, tmp_path, trick):
    table, outside = tmp_path / "root" / "db", tmp_path / "outside"
    place = {"log": table / "_delta_log", "data": table / "a"}.get(
        trick.split()[-1], table / "_delta_log" / f"{0:020}.json"
    )
    if trick.startswith("fifo"):
        place.unlink()
        os.mkfifo(place)
    else:
        place.rename(outside)
        place.symlink_to(outside)
    with pytest.raises(SourceError, match="fifo or device" if trick.startswith("fifo") else "the link leads out of"):
        files(source)


def test_links_within_the_source_are_followed(source, tmp_path):
    table = tmp_path / "root" / "db"
    (table / "a").rename(tmp_path / "root" / "moved")
    (table / "a").symlink_to(tmp_path / "root" / "moved")
    assert files(source) == [f"{tmp_path}/root/moved"]


def test_metadata_that_unpack_to_gigabytes(source, tmp_path):
    """A small file of Iceberg's, and a checkpoint of Delta's: the node's memory stays, and the reason is told."""
    metadata = tmp_path / "root" / "db" / "metadata"
    metadata.mkdir()
    with gzip.open(metadata / "v1.gz.metadata.json", "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    before = peak_bytes()
    with pytest.raises(SourceError, match=r"has more than 268,435,456 bytes when it is unpacked"):
        opened(tmp_path, "iceberg").versions("db")
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * (4 << 20)]))
    path = {"path": paths, "size": pa.array([1] * 1000), "modificationTime": pa.array([1] * 1000)}
    rows = pa.table({"add": pa.StructArray.from_arrays([*path.values()], [*path])})
    log = tmp_path / "root" / "db" / "_delta_log"
    pq.write_table(rows, log / f"{1:020}.checkpoint.parquet")
    (log / f"{1:020}.json").write_text(json.dumps(add("b")))
    with pytest.raises(SourceError, match="the table cannot be read"):
        files(source)
    assert peak_bytes() - before < 200 << 20


def test_a_refused_snapshot_is_asked_for_once(source, tmp_path):
    """Its refusal does not change, so no further process reads it; a pipe in place of a file may go away."""
    commit(tmp_path / "root" / "db", add("../outside"))
    for _ in range(2):
        with pytest.raises(SourceError, match="not below the table's directory"):
            files(source)
    assert processes(source) is None
