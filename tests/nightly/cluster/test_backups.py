"""kill -9 during backups and restores of real nodes: the same command succeeds afterwards, and nothing is left."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from gossipkv.backup.archive import OWNER
from gossipkv.errors import GossipKVError
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.test_backups import TABLES, digests, done, fill

STEPS = 24
PATIENCE_S = 120
# An abandoned table goes within seconds, and not after a minute.
SOON = "from gossipkv.table.controllers import abandoned_restores\nabandoned_restores.ABANDONED_S = 8.0"


class Three:
    """Three nodes, each with a data directory of its own."""

    def __init__(self, place, stack):
        self._place, self._stack, self.backups = place, stack, place / "backups"
        self.nodes = {}
        for number in range(3):
            (place / str(number)).mkdir()
            self.start(number)

    def start(self, number):
        others = [f"--join={node.address}" for at, node in self.nodes.items() if at != number]
        options = ["--node", f"n{number}", "--insecure-gossip", "--refresh-period", "off", *others]
        options += ["--backup-roots", str(self._place / "backups")]
        node = NodeProcess(self._place / str(number), *options, changed=SOON)
        self._stack.enter_context(node)
        node.ready()
        self.nodes[number] = node

    def kill(self, number):
        self.nodes[number].stop(signal.SIGKILL)

    def client(self):
        return connect(self.nodes[0].address)


def until(look, within_s=PATIENCE_S):
    """Return the first true result of `look`, whose errors pass."""
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            if seen := look():
                return seen
        except (GossipKVError, AssertionError) as error:
            seen = error
        assert time.monotonic() < give_up_s, seen
        time.sleep(0.2)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with ExitStack() as stack:
        three = Three(tmp_path_factory.mktemp("three"), stack)
        with three.client() as client:
            for name, options in TABLES.items():
                until(
                    lambda name=name, options=options: client.call("create_table", name, {**options, "replication": 3})
                )
            fill(client, 1)
        yield three


def interrupted(three, victim, after_s, *arguments):
    """Begin a command at the first node, kill a node after a while, start it again; return once the command ended."""
    command = [sys.executable, "-m", "gossipkv", *map(str, arguments), "--node", three.nodes[0].address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        time.sleep(after_s)
        three.kill(victim)
        time.sleep(random.Random(after_s).random())
        three.start(victim)
        running.communicate(timeout=PATIENCE_S)


def test_backups_and_restores_survive_kills(three, tmp_path):
    """Each step kills the driver, a source or a target at another moment."""
    place = three.backups
    began_s = time.monotonic()
    until(lambda: done("backup", "create", place, node=three.nodes[0].address))
    lasts_s = time.monotonic() - began_s
    chance, since = random.Random(60), ()
    for step in range(STEPS):
        with three.client() as client:
            until(lambda client=client, step=step: client.table("log").put(b"last", b"%d" % step) or True)
            expected = until(lambda client=client: digests(client))
        interrupted(three, step % 3, chance.uniform(0, lasts_s), "backup", "create", place, *since)
        told = json.loads(
            until(lambda since=since: done("backup", "create", place, *since, "--json", node=three.nodes[0].address))
        )
        since = ("--since", told["backup"])
        assert not [path for path in place.iterdir() if (path / OWNER).exists()]
        assert ": all whole" in until(
            lambda told=told: done("backup", "verify", place / told["backup"], node=three.nodes[0].address)
        )
        again = [*(("restore", place / told["backup"], "--table", "log", "--as", "again"))]
        interrupted(three, step % 3, chance.uniform(0, lasts_s), *again)
        if step % 2:  # Nobody says the command again.
            with three.client() as client:
                until(lambda client=client: {"again"} <= names(client) or len(registers(client)) == 1 + len(TABLES))
        with three.client() as client:
            if "again" not in until(lambda client=client: names(client)):
                until(lambda again=again: done(*again, node=three.nodes[0].address))
            assert until(lambda client=client: digests(client, ["again"]))["again"] == expected["log"]
            until(lambda client=client: client.call("drop_table", "again", {"timeout_ms": 30_000}))
            assert digests(client) == expected


def names(client):
    return {one["name"] for one in client.databases()}


def registers(client):
    """Return the registers at the first node: of the catalogue, and of each table, hidden ones too."""
    return client.call("metadata_status", None)
