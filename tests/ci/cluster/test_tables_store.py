"""Real nodes over a store of tables: opened, copied, killed, reopened, or closed where it must not be opened."""

from __future__ import annotations

import random
import shutil

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import read_node
from gossipkv.storage.engine.manifest import segment_path
from tests.ci.cluster.node_process import NodeProcess, connect, wait_for
from tests.ci.cluster.test_cli import gossipkv
from tests.unit.table.real_store import BATCH_AT, RECORDS, keep_log, make_tables, write_store
from tests.world.blocking_store import Store

SETTINGS = ("--table-segment", "1MiB", "--refresh-period", "off")


@pytest.fixture
def data(tmp_path):
    make_tables(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def source(tmp_path):
    """Write a source with a database, which is served whatever the state of the tables."""
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"peru\tLima\n")
    return tmp_path / "source"


def tables_of(node):
    with connect(node.address) as client:
        return client.info()["tables"]


def content(place):
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def lose(data):
    shutil.rmtree(data / "tables")


def exchange(data):
    lose(data)
    write_store(data / "tables", seed=8)


def put_an_old_copy_back(data):
    shutil.copytree(data / "tables", data.with_name("copy"))
    make_tables(data)
    make_tables(data)
    lose(data)
    data.with_name("copy").rename(data / "tables")


def flip_a_bit(data):
    log = segment_path(data / "tables", 1)
    written = bytearray(log.read_bytes())
    written[BATCH_AT + 100] ^= 1
    log.write_bytes(written)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lose, "the store of this node's tables is missing"), (exchange, "does not belong to this node"),
        (put_an_old_copy_back, "an older copy of the store: its life is 1, and was 3"),
        (flip_a_bit, f"log/0000000000000001.log: damaged at byte {BATCH_AT}: "),
    ],
)  # fmt: skip
def test_a_store_that_must_not_be_opened(data, tmp_path, source, harm, why):
    """The store stays unchanged; the node says why, and serves its datasets."""
    harm(data)
    before = content(data / "tables")
    with NodeProcess(tmp_path, *SETTINGS, source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        told = tables_of(node)
        assert (told["state"], why in told["why"], "--forget-tables" in told["why"]) == ("closed", True, True), told
        assert node.stop() == 0
    assert "tables_closed" in node.said()
    assert content(data / "tables") == before


def test_log_that_only_followers_need_is_damaged(data, tmp_path):
    """The tables are open, and node, log and `status` name the damaged file until it is dropped."""
    kept = keep_log(data / "tables")
    written = bytearray(kept[1].read_bytes())
    written[20] ^= 1
    kept[1].write_bytes(written)
    for starts in range(2):
        with NodeProcess(tmp_path, *SETTINGS) as node:
            node.ready()
            told = tables_of(node)
            shown = gossipkv("status", node=node.address).stdout.decode()
            assert node.stop() == 0
        assert told["state"] == "open"
        assert [str(kept[1]) in str(told["log_damage"]), "log kept for lagging" in shown] == [not starts] * 2
        assert node.said().count("tables_log_damaged") == 1
        assert [path.exists() for path in kept] == [False, False, True]
    with Store.open(data / "tables", create=False) as store:
        assert store.get_many(1, [*RECORDS]) == [*RECORDS.values()]


def test_a_node_that_forgets_its_tables(data, tmp_path, source):
    """The node starts as a new one without tables, the old store is kept beside, and a second time is refused."""
    flip_a_bit(data)
    before, uuid = len(content(data / "tables")), read_node(RealFiles(), data).uuid
    done = gossipkv("verify", data)
    assert (done.returncode, f"damaged at byte {BATCH_AT}: " in done.stdout.decode()) == (3, True)
    with NodeProcess(tmp_path, *SETTINGS, "--forget-tables", source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        assert tables_of(node) == {"state": "none", "why": None, "lost": False, "store": None, "life": 0}
        assert node.stop() == 0
    assert read_node(RealFiles(), data).uuid != uuid
    assert len(content(data / "tables-forgotten-1")) == before
    assert gossipkv("verify", data).returncode == 0
    done = gossipkv("serve", "--data", data, "--listen", "127.0.0.1:0", "--forget-tables")
    assert (done.returncode, b"no tables to forget" in done.stderr) == (2, True), done
    with DataDirectory.open(data, RealFiles(), cluster="gossipkv", random=random.Random(1)) as directory:
        assert directory.record.store == 0
