"""Every method and command with random arguments is refused or done, and never meets a defect of the node."""

from __future__ import annotations

import os
import random
import re
import socket

import pytest

from gossipkv.access.rights import COMMANDS, METHODS
from gossipkv.address import parse_address
from gossipkv.wire import rpc
from tests.ci.cluster.hostile_peers import answers
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ci.cluster.random_arguments import Arguments, ask_for
from tests.ports import HOST, quiet_ports

SECONDS = float(os.environ.get("RANDOM_ARGUMENTS_S", "60"))
DEFECTS = re.compile(
    r"^.*(?:internal_error|invariant_broken| defect |http_defect|Traceback).*(?:\n(?!\d{4}-).*)*", re.MULTILINE
)


@pytest.mark.timeout(SECONDS + 240)
def test_random_arguments_meet_no_defect(tmp_path):
    """The test runs for 60 s with a new seed each time; a failure prints the arguments and the traceback."""
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"key1\tvalue\nkey2\tvalue\n")
    seed = random.randrange(1 << 32)
    arguments = Arguments(random.Random(seed))
    resp = f"{HOST}:{quiet_ports(1)[0]}"
    with NodeProcess(tmp_path, "--resp-listen", resp, "--resp-databases", "geo", source=tmp_path / "source") as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        made = [
            ["shop", {"kind": "hash", "partitions": 4, "replication": 1}],
            ["days", {"kind": "range", "replication": 1}],
        ]
        with socket.create_connection(parse_address(node.address), PATIENCE_S) as peer:
            for params in made:
                peer.sendall(rpc.request(1, "create_table", params))
                ((_, _, error, _),) = answers(peer, 1)
                assert error is None, error
        ask_for(SECONDS, {"wire": node.address, "resp": resp}, arguments, lambda: node.process.poll() is None)
        said = node.said()
        assert node.process.poll() is None, (seed, said[-10_000:])
    assert not arguments.defects, (seed, arguments.defects[:20], DEFECTS.findall(said)[:20])
    assert not DEFECTS.findall(said), (seed, DEFECTS.findall(said)[:20])
    answered = {name for (_, name), _ in arguments.kinds}
    assert answered >= {name.decode() for name in [*METHODS, *COMMANDS]} - {"quit"}
