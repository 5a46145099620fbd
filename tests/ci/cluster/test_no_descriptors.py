"""A node without free descriptors: it reports, serves what it has open, and refuses the rest in words."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import GossipKVError
from tests.ci.cluster.node_process import NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.client import blocking

# Prints each module that is looked for after the node was ready.
TELLING = """
import gossipkv.cli.output as output

class Telling:
    def find_spec(self, name, path=None, target=None):
        print("imported late:", name, file=sys.stderr, flush=True)

say_ready = output.say_ready

def say(address):
    sys.meta_path.insert(0, Telling())
    say_ready(address)

output.say_ready = say
"""
DIRECTORY = "a directory of this test"
CALLS = {
    "ping": [],
    "info": [],
    "status": [{}],
    "members": [],
    "databases": [],
    "partition_map": ["geo"],
    "get": ["geo", "paris"],
    "scan": ["geo", {"limit": 1}],
    "hold": ["geo", "1"],
    "release": ["geo"],
    "refresh": ["geo"],
    "create_table": ["carts", {"kind": "range", "partitions": 1, "replication": 1}],
    "put": ["carts", "ana", "two pears"],
    "get_many": ["carts", ["ana"]],
    "changes": ["carts", {"start": "snapshot"}],
    "plan": ["carts"],
    "partitions": ["carts"],
    "table_settled": ["carts"],
    "metadata_status": [],
    "set_weight": ["n1", 2],
    "add_node": ["n2"],
    "split": ["carts", "ana"],
    "delete_range": ["carts", {"prefix": "x"}],
    "quarantined": [],
    "verify": ["carts"],
    "backup": [DIRECTORY, {"wait_ms": 5000}],
    "backup_list": [DIRECTORY],
    "backup_verify": [DIRECTORY],
    "backup_expire": [DIRECTORY, {"keep": 1}],
    "restore": [DIRECTORY, {"as": "again", "wait_ms": 5000}],
    "drop_table": ["carts"],
    "no_such_method": [],
}
ANSWERED = {"ping", "info", "status", "members", "databases", "get", "metadata_status"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"paris\tFrance\n")
    with NodeProcess(tmp_path, "--node", "n1", source=tmp_path / "source", changed=TELLING) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        yield node


def outcomes(client: blocking.Client, directory: Path) -> dict[str, str]:
    """Call all methods in turn; return the code of each error, or an empty string."""
    found = {}
    for method, params in CALLS.items():
        given = [str(directory) if param is DIRECTORY else param for param in params]
        try:
            client.call(method, *given)
            found[method] = ""
        except GossipKVError as error:
            found[method] = f"{error.code} {error.message}"
    return found


def test_nothing_is_imported_late(node: NodeProcess, tmp_path: Path) -> None:
    """No method makes a node look for a module: it has them all before it is ready."""
    with connect(node.address) as client:
        found = outcomes(client, tmp_path / "backups")
    assert [method for method, outcome in found.items() if outcome.startswith("INTERNAL")] == []
    assert not any(found[method] for method in (*ANSWERED, "create_table", "put")), found
    assert [line for line in node.said().splitlines() if "imported late" in line] == []


@pytest.mark.parametrize("has_tables", [False, True])
def test_without_descriptors(node: NodeProcess, tmp_path: Path, has_tables: bool) -> None:
    """The node answers reports and reads, and refuses in words what needs a file; later it goes on."""
    with connect(node.address) as client:
        client.call("ping")  # The node accepts no connection later.
        if has_tables:
            client.call("create_table", "carts", CALLS["create_table"][1])
            client.table("carts").put(b"ana", b"two pears")
        _, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (3, hard))
        found = outcomes(client, tmp_path / "backups")
        assert [method for method, outcome in found.items() if outcome.startswith("INTERNAL")] == [], found
        assert not any(found[method] for method in ANSWERED), found
        assert found["backup"], found
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        client.call("status", {})
    assert "Traceback" not in node.said()
    assert node.stop() == 0
