"""The map of one table, as METADATA and the catalogue show it to the controllers."""

from __future__ import annotations

import random
from types import SimpleNamespace

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata.operations import Operation, judge
from gossipkv.register.metadata.pages import OperationOutcome
from gossipkv.register.metadata.partitions import (
    HASH,
    MAP,
    OPERATIONS,
    TableMeta,
    decode_partition,
    first_body,
    shard_key,
)
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.register.metadata.tree import MapTree
from tests.unit.replication.memory import TABLE

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
        self.config = FIRST
        self._pages = {}
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
        self._take(first_body(table, partitions, FIRST))

    def name(self, number):
        """Add a table node to the catalogue."""
        self.named[node(number)] = NamedNode(f"n{number}", "", 1)

    def _take(self, changed):
        self._pages.update(changed.pages)
        head = SimpleNamespace(root=changed.root, ended=False)
        acceptors = SimpleNamespace(new=[SimpleNamespace(node=node(one)) for one in self._servers])
        self.known = {TABLE: SimpleNamespace(head=head, config=self.config, acceptors=acceptors)}

    def tables(self):
        return {"t": SimpleNamespace(id=TABLE)}

    def tree(self, table):
        return MapTree.opened(self._pages.__getitem__, self.known[table].head.root, MAP.name)

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
        judgement = judge(self.tree(TABLE), operations, self.config + 1, OPERATIONS)
        assert {answer.outcome for answer in judgement.answers} == {OperationOutcome.DONE}, judgement.answers
        self.config += 1
        if judgement.changed is not None:
            self._take(judgement.changed)

    @property
    def partitions(self):
        return [decode_partition(entry.record) for entry in self.tree(TABLE).scan()]

    @property
    def versions(self):
        return [entry.version for entry in self.tree(TABLE).scan()]
