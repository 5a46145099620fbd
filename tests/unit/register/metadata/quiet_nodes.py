"""Simulated nodes that act only on the test's calls."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
import trio

from gossipkv.errors import GossipKVError
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.messages import RequestKind, decode_request
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.partitions import HASH, decode_partition, shard_key
from gossipkv.register.space import MAP
from tests.world.metadata.deciding_node import CATALOGUE, Node
from tests.world.metadata.network import Network
from tests.world.metadata.store import Disk
from tests.world.metadata.witness import Witness


def wanted(name="t", replication=1, shards=1):
    """Return a hash table to create."""
    return WantedTable(name, HASH, replication, [shard_key(number) for number in range(shards)])


class QuietNodes:
    """Nodes by their letters; their requests are listed, and a node can be made deaf to a method."""

    def __init__(self, network, letters):
        self.random = Random(7)
        self.network = network
        self.witness = Witness(CATALOGUE)
        self.nodes = {}
        self.asked = []  # Letter of the asked node, and method.
        self.deaf = set()  # Letter and method.
        self.on_ask = lambda letter, method: None  # May raise GossipKVError, or cancel.
        self.silent = ""
        for letter in letters:
            disk = Disk(16 * letter.encode(), ord(letter))
            self.witness.disks[AcceptorId(disk.node, disk.store)] = disk
            node = self.nodes[letter] = Node(disk.node, disk, network, self.witness, Random(ord(letter)))
            node.is_busy = False

    def __getitem__(self, letter):
        return self.nodes[letter].life

    def metadata(self, letter):
        return self[letter].metadata

    def known(self, letter, register=CATALOGUE):
        return self[letter].metadata.known[register]

    def deciders(self, register=CATALOGUE, of="a"):
        """Return the letters of a register's acceptors, as a node knows them."""
        return "".join(chr(one.node[0]) for one in self.known(of, register).acceptors.new)

    # -- what nodes hear -----------------------------------------------------------------------------------------------

    def listen(self, letter):
        """List the requests to a node's life, and drop those to which it is deaf."""
        life, answer = self[letter], self[letter].answer

        def heard(method, params, told):
            self.asked.append((letter, method))
            try:
                self.on_ask(letter, method)
            except GossipKVError as error:
                told(None, error)
                return
            if (letter, method) not in self.deaf:
                answer(method, params, told)

        life.answer = heard
        self.hush(self.silent)

    def hush(self, letters):
        """Cut these nodes off from all others, which count them as dead."""
        self.silent = letters
        uuids = {letter: node.uuid for letter, node in self.nodes.items()}
        self.network.cuts = {(uuids[a], uuids[b]) for a in uuids for b in uuids if a != b and {a, b} & {*letters}}
        for letter in uuids:
            if (life := self[letter]) is not None:
                others = [uuid for other, uuid in uuids.items() if other != letter and other not in letters]
                life._heard = dict.fromkeys(others, trio.current_time() + 1e9)

    def cut(self, source, to):
        """Let no message of a node reach these others."""
        self.network.cuts |= {(self.nodes[source].uuid, self.nodes[other].uuid) for other in to}

    @contextlib.contextmanager
    def cut_at_accept(self, source, others, *, answers=False):
        """Cut a node off from others when it first asks for an acceptance: no question passes, or no answer."""
        tell = self.network.tell

        def cut(life, to, question, told):
            is_accept = question.method == "register" and decode_request(question.params[0]).kind is RequestKind.ACCEPT
            if is_accept and life is self[source]:
                for other in others:
                    self.cut(*((other, source) if answers else (source, other)))
            tell(life, to, question, told)

        self.network.tell = cut
        yield
        self.network.tell = tell

    def times(self, method):
        return sum(name == method for _, name in self.asked)

    async def restart(self, letter, disk=None):
        """Crash a node and wait for its next life; `disk`: the one that it finds then."""
        before, node = self[letter], self.nodes[letter]
        before.end()
        if disk is not None:
            node.disk = self.witness.disks[AcceptorId(disk.node, disk.store)] = disk
        while self[letter] in (None, before) or self[letter].node not in self.network.lives:
            await trio.sleep(0.01)
        self.listen(letter)

    def fresh_disk(self, letter):
        """Return an empty disk with another store id, for a node."""
        disk = self.nodes[letter].disk
        return Disk(disk.node, disk.store + 1000)

    # -- what they decide ----------------------------------------------------------------------------------------------

    async def found(self, letters="abc"):
        """Found a catalogue on these nodes, and show it to all nodes."""
        await self[letters[0]].catalogue.found()
        members = [self.metadata(letter).me for letter in letters]
        if len(members) > 1:
            await self[letters[0]].catalogue.reconfigure(CATALOGUE, members)
        await self.read(CATALOGUE, self.known(letters[0]).acceptors)

    async def read(self, register=CATALOGUE, hint=None, letters=None):
        """Let nodes read a register by a quorum: all that are not silent, by default."""
        for letter in self.nodes if letters is None else letters:
            if letter not in self.silent:
                await self.metadata(letter).quorum_read(register, hint)

    async def table(self, letter="a", name="t", shards=2, replication=1):
        """Create a table at a node, and show it to all nodes."""
        made = await self[letter].catalogue.create(wanted(name, replication, shards), self.random.randbytes(20))
        await self.read()
        await self.read(made.id, Acceptors.of(made.acceptors))
        return made

    def operation(self, letter, register, name, *argument, base=None, version=1):
        base = self.known(letter, register).config if base is None else base
        return Operation(self.random.randbytes(20), base, name, version, argument)

    async def ask(self, letter, register, operation, timeout_s=10):
        """Return a server's outcome of one operation."""
        (answer,) = await self.metadata(letter).transact(register, [operation], timeout_s)
        return answer.outcome.name

    async def on(self, letter, register, name, *argument):
        """Return a server's outcome of an operation on the map that it knows."""
        return await self.ask(letter, register, self.operation(letter, register, name, *argument))

    async def idle(self, letter="a"):
        """Let the catalogue of a server judge an operation without effect."""
        assert await self.on(letter, CATALOGUE, "remove_table", b"none", bytes(16)) == "DONE"

    def assign(self, letter, table, shard=0, node="e", base=None):
        """Return the operation that assigns a shard to a node."""
        entry = self.metadata(letter).view(table.id).get(shard_key(shard))
        argument = (entry.key, decode_partition(entry.record).id, self.random.getrandbits(60), 16 * node.encode(), 0)
        return self.operation(letter, table.id, "assign", *argument, base=base)

    def nothing(self, letter, table):
        """Return an operation on a table without effect."""
        entry = next(self.metadata(letter).view(table.id).scan())
        return self.operation(letter, table.id, "unassign", entry.key, decode_partition(entry.record).id, 0)

    def maps(self, letter):
        """Return the registers of which a node's disk has a map."""
        return {key[1:17] for key in self[letter].store.disk.records if key[:1] == MAP}


@contextlib.asynccontextmanager
async def quiet(letters="abc", founded=""):
    """Run nodes for the block, and check at its end that all commits were valid; `founded`: by these nodes."""
    async with trio.open_nursery() as nursery:
        nodes = QuietNodes(Network(Random(3), nursery), letters)
        for node in nodes.nodes.values():
            nursery.start_soon(node.run)
        while len(nodes.network.lives) < len(letters):
            await trio.sleep(0.001)
        for letter in letters:
            nodes.listen(letter)
        if founded:
            await nodes.found(founded)
        yield nodes
        nursery.cancel_scope.cancel()
    if nodes.witness.violations:
        pytest.fail("\n".join(map(str, nodes.witness.violations)))
