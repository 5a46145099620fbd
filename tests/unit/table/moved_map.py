"""The map of one table, as METADATA and the catalogue show it to the controllers."""

from __future__ import annotations

import random
from types import SimpleNamespace

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata.known import KnownMap
from gossipkv.register.metadata.operations import Operation, OperationOutcome
from gossipkv.register.metadata.partitions import HASH, TableMeta, decode_partition, shard_key
from gossipkv.register.metadata.tables import NamedNode
from tests.unit.replication.memory import TABLE
from tests.unit.table.edited_maps import first_base, judged

FIRST = 1 << 48 | 1
PARTITION = 7
FORCED = "unassign by force"


def node(number):
    return bytes([number]) * 16


class MovedMap:
    """A hash table of shards; slot s starts on node s + 1, under an assignment of the node's number."""

    def __init__(self, *, shards=1, replication=3, nodes=4, servers=(1,), groups=()):
        self.me = SimpleNamespace(node=node(1))
        self.random = random.Random(1)
        self.named = {}
        for one in range(1, nodes + 1):
            self.name(one)
        self._servers = servers
        self.nodes = SimpleNamespace(named=lambda: self.named)
        self.asked = []  # Operations: name, or FORCED, and argument.
        groups = tuple(tuple(map(node, group)) for group in groups)
        table = TableMeta(TABLE, "t", HASH, replication, shards, groups=groups)
        partitions = {
            shard_key(number): Partition.of(
                PARTITION + number,
                [
                    Assignment(100 * number + slot + 1, node(slot + 1), slot, AssignmentState.AVAILABLE)
                    for slot in range(replication)
                ],
            )
            for number in range(shards)
        }
        self._begin(table, partitions)

    def name(self, number):
        """Add a table node to the catalogue."""
        self.named[node(number)] = NamedNode(f"n{number}", "", 1)

    def _begin(self, table, partitions, config=FIRST):
        self._take(first_base(table, partitions, config, map(node, self._servers)))

    def _take(self, base):
        self._base, self.known = base, {TABLE: KnownMap(base)}

    @property
    def config(self):
        return self.known[TABLE].config

    def tables(self):
        return {"t": SimpleNamespace(id=TABLE)}

    def view(self, table):
        return self.known[table].view

    async def transact(self, table, operations, timeout_s):
        assert table == TABLE
        self.asked += [(one.name if one.version == 1 else FORCED, one.argument) for one in operations]
        self._judge(operations)

    def have(self, name, *argument):
        """Apply one operation to the first shard; FORCED is `unassign` by force."""
        if name == FORCED:
            name, version = "unassign", 2
        else:
            version = 1
        argument = shard_key(0), self.partitions[0].id, *argument
        self._judge([Operation(b"%020d" % self.config, self.config, name, version, argument)])

    def _judge(self, operations):
        base, answers = judged(self._base, operations)
        assert {answer.outcome for answer in answers} == {OperationOutcome.DONE}, answers
        self._take(base)

    @property
    def partitions(self):
        return [decode_partition(entry.record) for entry in self.view(TABLE).scan()]

    @property
    def versions(self):
        return [entry.version for entry in self.view(TABLE).scan()]
