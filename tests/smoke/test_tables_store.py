"""The tables' store of a real node."""

from __future__ import annotations

import json
import signal

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.identity import read_node
from tests.ci.cluster import test_tables_store
from tests.ci.cluster.node_process import NodeProcess
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_tables_store import SETTINGS, tables_of
from tests.unit.table.real_store import RECORDS, read_store

data = test_tables_store.data


def test_a_store_through_kills(data, tmp_path):
    """Each start is a new life of the store, and the running node's store is shown and checked."""
    store = f"{read_node(RealFiles(), data).store:016x}"
    with NodeProcess(tmp_path, *SETTINGS) as node:
        node.ready()
        told = tables_of(node)
        assert (told["state"], told["why"], told["store"], told["life"]) == ("open", None, store, 2)
        assert "tables: open, life 2" in gossipkv("status", "--verbose", node=node.address).stdout.decode()
        done = gossipkv("verify", data)
        assert (done.returncode, done.stdout[:8]) == (0, b"3 files,"), done
        assert json.loads(gossipkv("inspect", data, "--json").stdout)["tables"]["life"] == 2
        assert node.stop(signal.SIGKILL) == -signal.SIGKILL
    with NodeProcess(tmp_path, *SETTINGS) as node:
        node.ready()
        assert tables_of(node)["life"] == 3
        assert node.stop() == 0
    assert read_node(RealFiles(), data).life == 3
    assert read_store(data / "tables") == RECORDS
