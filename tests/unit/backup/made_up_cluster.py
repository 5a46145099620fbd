"""A cluster whose ranges are real replicas in memory, and a dictionary in place of restored tables.

Time of the replicas moves while a node is asked; Trio's time moves by `autojump_clock`.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from types import SimpleNamespace

import msgpack
import trio

from gossipkv.backup.archive import BackupOwner
from gossipkv.backup.create import BackupCreation
from gossipkv.backup.restore import Restore
from gossipkv.errors import Conflict, GossipKVError, Unavailable, UnknownDatabase
from gossipkv.register.metadata.partitions import RANGE, TableMeta
from gossipkv.settings.databases import HIDDEN
from gossipkv.table.controllers.move_step import report_of
from gossipkv.table.records.router import PartitionRoute
from tests.unit.backup import made_up
from tests.unit.replication import memory
from tests.world.simulated_files import SimulatedFiles

CONFIG = 1


class Route:
    """The map of a range table."""

    is_hash = False

    def __init__(self, name, id_, partitions):
        self.table = TableMeta(id_, name, RANGE, 3, 0)
        self.partitions = partitions  # Numbers, by first key.

    def places(self):
        firsts = sorted(self.partitions)
        hosts = tuple(bytes([number]) * 16 for number in (1, 2, 3))
        for first, end in zip(firsts, [*firsts[1:], None], strict=True):
            yield PartitionRoute(self.partitions[first], first, end, hosts, (1, 2, 3), CONFIG)

    def place(self, key):
        places = [*self.places()]
        return places[bisect_right([place.first for place in places], key) - 1]


class MadeUpCluster:
    """The parts that `BackedUpCluster` has, and hooks that see each call first."""

    me, node, transfer, cluster_id = b"\1" * 16, "n1", 1e12, "c"
    live_nodes = tuple(bytes([number]) * 16 for number in (1, 2, 3))

    def __init__(self, disk=None):
        self.disk = SimulatedFiles() if disk is None else disk
        self.archive = made_up.archive(self.disk)
        self.ranges, self.routes = {}, {}  # Replicas by partition; maps by the table's name.
        self.asked, self.before = [], []  # Each call's node, method and parameters; functions that see them.
        self.silent = set()  # Numbers of nodes that do not answer.
        self.restored, self.rows, self.held = {}, {}, {}  # Ids by name, records by id, versions by dataset.
        self.published = set()
        self.calls = SimpleNamespace(ask=self.ask, call=self.call)
        self.board = SimpleNamespace(
            begin_restore=self.published.add, end_restore=self.published.discard, restored=lambda: self.published,
            begin_backup=self.published.add, end_backup=self.published.discard,
        )  # fmt: skip
        self.writing = {}  # By node: the names of the backups that it says it writes.
        self.environment = SimpleNamespace(
            files=self.disk,
            threads=self,
            random=random.Random(1),
            clock=SimpleNamespace(wall_ms=lambda: 1_700_000_000_000),
        )

    async def run(self, function, *arguments):
        """Do the work of a thread."""
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    # -- backups -------------------------------------------------------------------------------------------------------

    def make(self, name, *firsts):
        """Make a table with these ranges; return the replicas of the first one."""
        partitions = {first: len(self.ranges) + at for at, first in enumerate(firsts or [b""])}
        self.ranges |= {number: memory.Cluster() for number in partitions.values()}
        self.routes[name] = Route(name, bytes([len(self.routes)]) * 16, partitions)
        return self.ranges[partitions[b""]]

    def router(self):
        return self

    def route(self, name):
        if name not in self.routes:
            raise UnknownDatabase(f"there is no table {name}")
        return self.routes[name]

    def tables(self, *, hidden=False):
        shown = {} if hidden else {name: route.table.id for name, route in self.routes.items()}
        named = {
            name.removeprefix(HIDDEN): id_ for name, id_ in self.restored.items() if name.startswith(HIDDEN) is hidden
        }
        return shown | named

    def datasets(self):
        return {"geo": {"active": "7", "hold": "7"}}

    async def ask(self, node, method, params, timeout_s):
        number = node[0]
        if method == "put_many":
            return await self.call(method, *params)
        if method == "entries":
            if node not in self.writing:
                raise Unavailable("it does not answer")
            return [{"name": name} for name in self.writing[node]]
        for look in self.before:
            look(number, method, params)
        self.asked.append((number, method, params))
        await trio.sleep(0.01)
        partition = msgpack.unpackb(params[2])[0] if method == "replica_report" else params[2]
        cluster = self.ranges.get(partition)
        if cluster is None or number in self.silent:
            raise Unavailable(f"n{number} does not answer within {timeout_s} s")
        asked = cluster.nodes[number - 1]
        if method == "replica_report":
            return msgpack.packb([[partition, *report_of(asked.copy)]])
        answers = []
        asked.answer(method, [params[0], *asked.copy.partition, *params[3:]], answers.append)
        cluster.pass_s(0.02)
        (answer,) = answers
        if isinstance(answer, GossipKVError):
            raise answer
        return answer

    async def back_up(self, number=1, *tables, since=None, is_partial=False):
        """Make a backup; return its manifest."""
        owner = BackupOwner(made_up.UUID, 1, since, self.cluster_id)
        creation = BackupCreation(
            self.archive, self, self.environment, owner, made_up.name_of(number), is_partial=is_partial
        )
        return await creation.run(tables)

    def saved(self, manifest, table="t"):
        """Return a table's records in a backup, after a check of its files."""
        for file in manifest.files.values():
            self.archive.check(file)
        (saved,) = (one for one in manifest.tables if one.name == table)
        found = {}
        for partition in saved.partitions:
            with self.archive.records(partition.files) as records:
                found |= {key: marked[1:] for key, marked in records}
        return found

    # -- restores ------------------------------------------------------------------------------------------------------

    def check_free(self, name):
        if name == "geo":
            raise Conflict("this node serves the dataset geo")

    async def call(self, method, name, *params):
        for look in self.before:
            look(1, method, [name, *params])
        self.asked.append((1, method, [name, *params]))
        await trio.sleep(0.01)
        if method == "create_table":
            self.restored[name] = len(self.rows).to_bytes(16, "big")
            self.rows[self.restored[name]] = {}
            return {"table": self.restored[name].hex()}
        if method == "drop_table":
            if self.restored.get(name) != bytes.fromhex(params[0]["table"]):
                raise UnknownDatabase(f"there is no table {name}")
            del self.rows[self.restored.pop(name)]
            return {}
        assert method == "put_many", method
        self.rows[self.restored[name]] |= {key: value for key, value, *_ in params[0]}
        for look in self.before:
            look(1, "stored", [name, *params])
        return b""

    async def show(self, name, id_):
        for look in self.before:
            look(1, "show", [name, id_])
        await trio.sleep(0.01)
        if self.restored.get(HIDDEN + name) == id_:
            self.restored[name] = self.restored.pop(HIDDEN + name)

    async def hold(self, name, version):
        self.held[name] = version

    def restore(self, manifest, *tables, new_name=None):
        """Return a restore, which is to be awaited."""
        return Restore(self.archive, self, self.environment).run(manifest, tables, new_name)


def once(method, error, *, after=0):
    """Return a hook that raises at one call of a method."""
    calls = []

    def look(number, called, params):
        if called == method:
            calls.append((number, params))
            if len(calls) == after + 1:
                raise error

    return look
