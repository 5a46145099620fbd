"""An acceptor's directory is put back to an older copy: the node is out, says so, and is replaced."""

from __future__ import annotations

import contextlib
import shutil
import signal
from typing import TYPE_CHECKING

from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_tables import deciders

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.client import blocking

NAMES = ("n1", "n2", "n3")
OPTIONS = {"kind": "hash", "partitions": 4, "replication": 1}


def started(stack: contextlib.ExitStack, place: Path, name: str, *flags: str) -> NodeProcess:
    """Start a node in its directory, which is made if it is new."""
    (place / name).mkdir(exist_ok=True)
    told = ("--node", name, "--cluster", place.name, "--profile", "local", "--refresh-period", "off", *flags)
    node = stack.enter_context(NodeProcess(place / name, *told))
    node.ready()
    return node


def tables(client: blocking.Client) -> dict[str, object]:
    """Return the ids of the tables that a node knows, by name."""
    found = client.call("databases")
    return {each["name"]: client.call("partition_map", each["name"])["table"] for each in found}


def test_a_node_that_is_put_back_to_what_it_had(tmp_path: Path) -> None:
    """No table made since the copy is lost or made twice; the node says why it is out, and rejoins as another."""
    with contextlib.ExitStack() as stack:
        nodes = [started(stack, tmp_path, "n1")]
        joins = ("--join", nodes[0].address)
        nodes += [started(stack, tmp_path, name, *joins) for name in NAMES[1:]]
        with connect(nodes[0].address) as client:
            until(lambda: [each["state"] for each in client.members()], lambda found: found == 3 * ["alive"])
            client.call("create_table", "first", OPTIONS)
            until(lambda: deciders(client), lambda found: found == 2 * [[*NAMES]])
            assert nodes[1].stop(signal.SIGTERM) == 0
            shutil.copytree(tmp_path / "n2" / "data", tmp_path / "older")
            nodes[1] = started(stack, tmp_path, "n2", *joins)
            for number in range(4):
                client.call("create_table", f"since{number}", OPTIONS)
            until(lambda: len(tables(client)), lambda found: found == 5)
            made = tables(client)
            assert nodes[1].stop(signal.SIGTERM) == 0
            shutil.rmtree(tmp_path / "n2" / "data")
            (tmp_path / "older").rename(tmp_path / "n2" / "data")
            nodes[1] = started(stack, tmp_path, "n2", *joins)
            until(nodes[1].said, lambda said: "tables_closed" in said)
            with connect(nodes[1].address) as other:
                until(lambda: other.info()["tables"]["state"], lambda state: state == "closed")
                assert "--forget-tables" in str(other.info()["tables"]["why"])
            client.call("create_table", "after", OPTIONS)
            assert nodes[1].stop(signal.SIGTERM) == 0
            nodes[1] = started(stack, tmp_path, "n2", *joins, "--forget-tables")
            # The new incarnation is known, and makes a store, only after a while.
            replace = ("metadata", "replace", "n2", "n2", "--json")
            until(lambda: gossipkv(*replace, node=nodes[0].address), lambda done: done.returncode == 0)
            until(lambda: deciders(client), lambda found: set(map(tuple, found)) == {NAMES})
            until(lambda: {**made, **tables(client)} == tables(client), bool)
            with connect(nodes[1].address) as other:
                until(lambda: tables(other), lambda found: found == tables(client))
