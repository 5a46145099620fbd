"""Simulated nodes that act only on the test's calls."""

from __future__ import annotations

import contextlib
from random import Random

import trio

from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.partitions import decode_partition, shard_key
from tests.world.metadata.deciding_node import CATALOGUE, Node
from tests.world.metadata.network import Network
from tests.world.metadata.store import Disk
from tests.world.metadata.witness import Witness

LETTERS = "abcde"


class QuietNodes:
    """Nodes by their letters; their requests are listed, and a node can be made deaf to a method."""

    def __init__(self, network, letters):
        self.random = Random(7)
        self.network = network
        self.witness = Witness(CATALOGUE)
        self.nodes = {}
        self.asked = []  # Letter of the node, and method.
        self.deaf = set()  # Letter and method.
        for letter in letters:
            disk = Disk(16 * letter.encode(), ord(letter))
            self.witness.disks[AcceptorId(disk.node, disk.store)] = disk
            node = self.nodes[letter] = Node(disk.node, disk, network, self.witness, Random(ord(letter)))
            node.is_busy = False
        for node in self.nodes.values():
            node.others = [other.uuid for other in self.nodes.values() if other is not node]

    def __getitem__(self, letter):
        return self.nodes[letter].life

    def listen(self, letter):
        """List the requests to a node's life, and drop those to which it is deaf."""
        life, answer = self[letter], self[letter].answer

        def heard(method, params, told):
            self.asked.append((letter, method))
            if (letter, method) not in self.deaf:
                answer(method, params, told)

        life.answer = heard
        known = {node.uuid: trio.current_time() + 1e9 for node in self.nodes.values() if node.uuid != life.node}
        life._heard = known

        async def put_in(hosts, base):  # A table's creation must change nothing but the subject of a test.
            pass

        life.catalogue.put_in = put_in

    def hide(self, *letters):
        """Keep pages from these nodes, both in requests to them and in answers to theirs."""
        self.deaf |= {(letter, "metadata_pages") for letter in self.nodes}
        for letter in letters:
            self[letter].metadata.append = lambda register, offer: None

    def show(self):
        self.deaf.clear()
        for letter in self.nodes:
            self[letter].metadata.__dict__.pop("append", None)

    async def restart(self, letter):
        """Crash a node and wait for its next life."""
        before = self[letter]
        before.end()
        while self[letter] in (None, before) or self[letter].node not in self.network.lives:
            await trio.sleep(0.01)
        self.listen(letter)

    async def found(self, letters="abc"):
        """Found a catalogue on these nodes, and show it to all nodes."""
        await self[letters[0]].catalogue.found()
        members = [self[letter].metadata.me for letter in letters]
        if len(members) > 1:
            await self[letters[0]].catalogue.reconfigure(CATALOGUE, members)
        for letter in self.nodes:
            await self[letter].metadata.quorum_read(CATALOGUE, self[letters[0]].metadata.known[CATALOGUE].acceptors)

    async def table(self, letter="a", name="t", shards=2, replication=1):
        keys = [shard_key(number) for number in range(shards)]
        wanted = WantedTable(name, "hash", replication, keys)
        made = await self[letter].catalogue.create(wanted, self.random.randbytes(20))
        for each in self.nodes:
            await self[each].metadata.quorum_read(CATALOGUE)
            await self[each].metadata.quorum_read(made.id, self[letter].metadata.known[made.id].acceptors)
        return made

    def assign(self, letter, table, shard=0, node="e", base=None):
        """Return the operation that assigns a shard to a node."""
        metadata = self[letter].metadata
        entry = metadata.tree(table.id).get(shard_key(shard))
        argument = (entry.key, decode_partition(entry.record).id, self.random.getrandbits(60), 16 * node.encode(), 0)
        at = metadata.known[table.id].config if base is None else base
        return Operation(self.random.randbytes(20), at, "assign", 1, argument)

    def nothing(self, letter, table, base=None):
        metadata = self[letter].metadata
        entry = next(metadata.tree(table.id).scan())
        at = metadata.known[table.id].config if base is None else base
        argument = (entry.key, decode_partition(entry.record).id, 0)
        return Operation(self.random.randbytes(20), at, "unassign", 1, argument)

    def times(self, method):
        return sum(name == method for _, name in self.asked)


@contextlib.asynccontextmanager
async def quiet(letters="abc"):
    """Run nodes for the block, and check at its end that all commits were valid."""
    async with trio.open_nursery() as nursery:
        nodes = QuietNodes(Network(Random(3), nursery), letters)
        for node in nodes.nodes.values():
            nursery.start_soon(node.run)
        while len(nodes.network.lives) < len(letters):
            await trio.sleep(0.001)
        for letter in letters:
            nodes.listen(letter)
        yield nodes
        nursery.cancel_scope.cancel()
    assert nodes.witness.violations == []
