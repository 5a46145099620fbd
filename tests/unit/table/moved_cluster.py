"""Whole nodes in virtual time whose tables move while they are written and read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import trio

from gossipkv.errors import GossipKVError, WriteLost
from tests.unit.table.rpc.test_node_admin import come, die, planned
from tests.unit.table.rpc.test_node_admin_slow import placed
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import USUAL

STALL_S = 2  # A short time, for tests.
CONFIG = replace(USUAL, move_stall=STALL_S * 1000)


class Load:
    """A session that writes at `majority` and reads at any node, with its acknowledged writes and failures."""

    def __init__(self, cluster, *, table="t", level="majority"):
        self._cluster, self._table, self._level = cluster, table, level
        self.machines = [one for one in cluster.machines if one.runs]
        self.written = {}
        self.reads, self.failed = 0, Counter()
        self.token = b""

    async def run(self):
        number = 0
        while True:
            for machine in [one for one in self.machines if one.runs]:
                await self._once(machine, number)
                number += 1
            await trio.sleep(0.1)

    async def _once(self, machine, number):
        key = b"k%d" % (number % 40)
        options = {"level": self._level, "token": self.token, "wait_ms": 3000, "timeout_ms": 3000}
        try:
            told = await self._cluster.ask(machine, "put", self._table, key, b"%d" % number, options)
        except GossipKVError as error:
            self.failed["put", f"{error}"] += 1
            return
        self.token = told
        self.written[key] = number
        await self._read(machine, key)

    async def _read(self, machine, key):
        try:
            found = await self._cluster.ask(machine, "get", self._table, key, {"token": self.token, "wait_ms": 3000})
        except GossipKVError as error:
            self.failed["get", type(error).__name__] += 1
            if isinstance(error, WriteLost):
                self.token = b""
            return
        value, self.token = found
        self.reads += 1
        assert int(value) >= self.written[key], "a session steps back"


async def everywhere(cluster, load, table="t"):
    """Check that all running nodes have all acknowledged writes."""
    for machine in [one for one in cluster.machines if one.runs]:
        for key, number in load.written.items():
            value, _ = await cluster.ask(machine, "get", table, key, {"token": load.token, "wait_ms": 3000})
            assert int(value) >= number, (machine.name, key)


async def hosts(cluster, machine, table="t"):
    """Return the number of partitions by node and state."""
    told = await cluster.ask(machine, "partition_map", table)
    return Counter((one["node"], one["state"]) for part in told["partitions"] for one in part["assignments"])


__all__ = ["CONFIG", "STALL_S", "Load", "begin", "come", "die", "everywhere", "hosts", "placed", "planned"]
