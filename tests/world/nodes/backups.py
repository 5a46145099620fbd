"""Whole nodes whose tables are backed up during writes and faults, lost as a whole, and restored by new nodes.

The checker knows each acknowledged write by its dot. A restored key must have the newest of its writes that the saved
clock of its partition covers, and every write that was acknowledged before the backup began.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, cast, final
from unittest.mock import patch

import trio

from gossipkv.backup.archive import Archive
from gossipkv.dataset.offline import destinations
from gossipkv.errors import BadRequest, GossipKVError, NotReady, Overloaded, UnknownDatabase
from gossipkv.keyspace.partitioner import TABLE_HASHES
from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.token_keys import SEAL_BYTES
from gossipkv.replication.snapshot import transfer
from gossipkv.settings.databases import HIDDEN
from gossipkv.storage.directories import remove_tree
from gossipkv.table.session.token import HEAD, decode_body
from tests.world.nodes.phases import EVEN, HEALED_S, begin, settle
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.backup.archive import BackupManifest, SavedTable
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

PLACE: Final = "/backups"
DATA: Final = PurePath("/data")
KEYS: Final = 16
PACE_S: Final = 0.02
LOOK_S: Final = 0.2
PATIENCE_S: Final = 2.0  # Twice a write's time-out.
DONE_S: Final = 300.0  # A backup or a restore that is said again after each failure.
GONE_S: Final = 120.0  # Longer than a hidden table of an interrupted restore stays.
REFUSED: Final = (NotReady, Overloaded, UnknownDatabase)
TABLES: Final[dict[str, dict[str, Value]]] = {
    "hash": {"kind": "hash", "partitions": 4, "replication": 3},
    "range": {"kind": "range", "bounds": [b"key 07"], "replication": 3},
}
HIDDEN_TABLES: Final = [HIDDEN + name for name in TABLES]
OF_CLIENTS: Final[list[tuple[str, list[Value]]]] = [
    ("get", [b"key 00"]), ("get_many", [[b"key 00"]]), ("scan", []), ("put", [b"key 00", b"planted"]),
    ("delete", [b"key 00"]), ("put_many", [[[b"key 00", b"planted"]]]), ("delete_many", [[b"key 00"]]),
    ("delete_range", [b"", None]), ("create_table", [{"kind": "hash"}]),
]  # fmt: skip


@dataclass
class _Write:
    value: bytes | None
    # A clock with one entry; empty: acknowledged, and settled before its token came; None: the outcome is unknown.
    dot: bytes | None = None


@final
@dataclass
class History:
    """A client that writes a table's keys in turn, and all that it wrote, by key and in order."""

    cluster: SimulatedCluster
    table: str
    writes: dict[bytes, list[_Write]] = field(default_factory=dict)
    acknowledged: int = 0
    _tokens: dict[bytes, bytes | None] = field(default_factory=dict)
    _count: int = 0

    async def run(self) -> None:
        """Write at running nodes, until cancelled."""
        while True:
            if running := [machine for machine in self.cluster.machines if machine.runs]:
                with contextlib.suppress(GossipKVError):
                    await self.write(self.cluster.chance.choice(running))
            await trio.sleep(PACE_S)

    async def write(self, machine: NodeMachine) -> None:
        self._count += 1
        key = b"key %02d" % self.cluster.chance.randrange(KEYS)
        value = None if self.cluster.chance.random() < 0.3 else b"value %d" % self._count
        write, before = _Write(value), self._tokens.get(key)
        self.writes.setdefault(key, []).append(write)
        method, values = ("delete", []) if value is None else ("put", [value])
        try:
            token = await self.cluster.ask(
                machine, method, self.table, key, *values, {"token": before}, timeout_s=PATIENCE_S
            )
        except REFUSED:
            self.writes[key].remove(write)
            raise
        assert isinstance(token, bytes), token
        old = {} if before is None else dict(_entries(before))
        write.dot = clock.of(entry for entry in _entries(token) if old.get(entry[0]) != entry[1])
        self._tokens[key] = token
        self.acknowledged += 1

    def last(self) -> dict[bytes, int]:
        """Return the number of the last acknowledged write of each key."""
        return {
            key: max((at for at, write in enumerate(writes) if write.dot is not None), default=-1)
            for key, writes in self.writes.items()
        }

    def check(self, saved: SavedTable, last: dict[bytes, int], restored: dict[bytes, bytes]) -> None:
        """Compare the restored records with the history; `last`: from before the backup began."""
        if extra := restored.keys() - self.writes.keys():
            raise Violation(f"{self.table}: nobody wrote the restored keys {extra}")
        for key, writes in self.writes.items():
            covering, before = _place(saved, key), last.get(key, -1)
            # After a split, a clock does not name the assignments of the parent.
            named = {origin for origin, _ in clock.entries(covering)}
            known = [at for at, one in enumerate(writes) if one.dot and clock.entries(one.dot)[0][0] in named]
            covered = [at for at in known if clock.covers(covering, writes[at].dot or b"")]
            if before in {*known} - {*covered}:
                raise Violation(f"{self.table}: write {before} of {key!r} came before the backup, which lacks it")
            newest = max(before, *covered, -1)
            may_be = {None if newest < 0 else writes[newest].value}
            may_be |= {
                one.value for at, one in enumerate(writes) if one.dot is None or (at > newest and at not in known)
            }
            if restored.get(key) not in may_be:
                raise Violation(f"{self.table}: {key!r} is restored as {restored.get(key)!r}, and not one of {may_be}")


async def backups(cluster: SimulatedCluster) -> None:
    """Backups are made during writes and faults; then the cluster is lost, and two new nodes restore one of them."""
    attempts = cluster.streams["attempts"]
    with (
        patch.multiple(transfer, PAGE_RECORDS=2, PAGE_BYTES=1),  # Writes come between pages.
        patch.object(destinations, "attempt_name", lambda: f"{destinations.ATTEMPT}{attempts.getrandbits(64):x}"),
    ):
        await _backups(cluster)


async def _backups(cluster: SimulatedCluster) -> None:
    await begin(cluster)
    chance = cluster.chance
    driver = chance.choice(cluster.machines)
    histories = [History(cluster, name) for name in TABLES]
    for name, options in TABLES.items():
        await _until_done(cluster, driver, "create_table", name, options)
    points: dict[str, list[dict[bytes, int]]] = {}
    async with trio.open_nursery() as nursery:
        for history in histories:
            nursery.start_soon(history.run)
        await trio.sleep(chance.uniform(1, 3))
        since: str | None = None
        for _ in range(3):
            if chance.choice(EVEN):
                await _delay(cluster, driver)
            async with trio.open_nursery() as striking:
                striking.start_soon(_strike, cluster, driver)
                since, points_then = await _back_up(cluster, driver, since, histories)
                points[since] = points_then
            await trio.sleep(chance.uniform(0, 3))
        await settle(cluster, HEALED_S)
        nursery.cancel_scope.cancel()
    complete = Archive(PLACE, {}, driver.disk).contents().complete.keys()
    left = {entry.name for entry in driver.disk.list_directory(PLACE)}
    unanswered = complete - points.keys()  # Their driver was killed between the manifest and the answer.
    if left != points.keys() | unanswered or len(unanswered) > cluster.struck["driver"]:
        raise Violation(f"there are backups {sorted(points)}, and {sorted(left)} at the destination")
    name = chance.choice(sorted(points))
    manifest = Archive(PLACE, {}, driver.disk).manifest(name)
    machines = await _lose_all(cluster, driver)
    await _restore(cluster, machines, manifest)
    for history, last in zip(histories, points[name], strict=True):
        (saved,) = (table for table in manifest.tables if table.name == history.table)
        history.check(saved, last, await _shown(cluster, machines[-1], history.table))


async def _back_up(
    cluster: SimulatedCluster, driver: NodeMachine, since: str | None, histories: Sequence[History]
) -> tuple[str, list[dict[bytes, int]]]:
    """Back up, again after each failure; return the backup's name, and the last writes before it began."""
    give_up_at = trio.current_time() + DONE_S
    while True:
        points = [history.last() for history in histories]
        try:
            told = await job(cluster, driver, "backup", PLACE, {} if since is None else {"since": since})
        except GossipKVError as error:
            cluster.struck["backup failed"] += 1
            if trio.current_time() > give_up_at:
                raise Violation(f"no backup succeeds: {error.message}") from error
            await trio.sleep(1.0)
        else:
            return str(told["backup"]), points


async def _delay(cluster: SimulatedCluster, driver: NodeMachine) -> None:
    """Clog the link between two nodes that the driver reaches: each lacks acknowledged writes of the other."""
    one, other = (machine.host for machine in cluster.machines if machine is not driver)
    cluster.struck["clog"] += 1
    until_us = int((trio.current_time() + cluster.chance.uniform(1, 3)) * 1e6)
    for link in (cluster.network.link(one, other), cluster.network.link(other, one)):
        link.clogged_until_us = until_us
    await trio.sleep(cluster.chance.uniform(0.2, 1))


async def _strike(cluster: SimulatedCluster, driver: NodeMachine) -> None:
    """Lose nodes for a while, the driver too, and split the range table."""
    chance = cluster.chance
    for _ in range(chance.randrange(3)):
        await trio.sleep(chance.expovariate(2))
        fault = chance.choice(("source", "source", "driver", "split"))
        cluster.struck[fault] += 1
        if fault == "split":
            with contextlib.suppress(GossipKVError):
                key = b"key %02d" % chance.randrange(1, KEYS)
                await cluster.ask(driver, "split", "range", key, timeout_s=30)
            continue
        victim = driver if fault == "driver" else chance.choice([one for one in cluster.machines if one is not driver])
        if victim.runs:
            if chance.choice(EVEN):
                victim.kill()
            else:
                victim.lose_power()
            await trio.sleep(chance.uniform(0, 3))
            await victim.start()


async def _lose_all(cluster: SimulatedCluster, driver: NodeMachine) -> list[NodeMachine]:
    """Lose all nodes and disks but the backups; start a new cluster of two nodes, one of which has the backups."""
    for machine in cluster.machines:
        machine.kill()
        if machine is not driver:
            machine.lose_disk()
    driver.disk = driver.disk.copied()
    remove_tree(driver.disk, DATA)
    spare = cluster.chance.choice([machine for machine in cluster.machines if machine is not driver])
    machines = [driver, *(machine for machine in cluster.machines if machine not in (driver, spare))]
    await begin(cluster, spare)
    return machines


async def _restore(cluster: SimulatedCluster, machines: Sequence[NodeMachine], manifest: BackupManifest) -> None:
    """Restore at the first machine, again after each failure; a client sees nothing of it before it is whole."""
    driver, chance, place = machines[0], cluster.chance, f"{PLACE}/{manifest.name}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_observe, cluster, machines)
        if chance.choice(EVEN):
            await _interrupt(cluster, machines, place)
        give_up_at = trio.current_time() + DONE_S
        while True:
            try:
                await job(cluster, driver, "restore", place, {})
                break
            except GossipKVError as error:
                if trio.current_time() > give_up_at:
                    raise Violation(f"no restore succeeds: {error.message}") from error
                await trio.sleep(1.0)
        nursery.cancel_scope.cancel()


async def _interrupt(cluster: SimulatedCluster, machines: Sequence[NodeMachine], place: str) -> None:
    """Begin a restore, and kill a node meanwhile; nothing of the restore stays unless it succeeded."""
    victim, struck = cluster.chance.choice(machines), trio.current_time()
    cluster.struck["restore"] += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_kill_soon, cluster, victim)
        with contextlib.suppress(GossipKVError):
            await job(cluster, machines[0], "restore", place, {})
            await trio.sleep_until(struck + GONE_S)
            for name in TABLES:
                await cluster.ask(machines[0], "drop_table", name, timeout_s=30)
            return

    async def is_gone() -> bool:
        """The hidden tables of an interrupted restore are gone."""
        try:
            told = await cluster.ask(machines[-1], "metadata_status", None, timeout_s=PATIENCE_S)
        except GossipKVError:  # The node has yet to hear of the catalogue.
            return False
        assert isinstance(told, list)
        return len(told) < 2  # Only the register of the catalogue, if it was founded.

    await cluster.until(is_gone, within_s=GONE_S)


async def _kill_soon(cluster: SimulatedCluster, victim: NodeMachine) -> None:
    await trio.sleep(cluster.chance.uniform(0, 1.5))
    victim.kill()
    await trio.sleep(cluster.chance.uniform(0, 2))
    await victim.start()


async def _observe(cluster: SimulatedCluster, machines: Sequence[NodeMachine]) -> None:
    """Look for tables until cancelled: one that is shown must have all its records."""
    whole: dict[str, dict[bytes, bytes]] = {}
    while True:
        for machine in machines:
            with contextlib.suppress(GossipKVError):
                told = await cluster.ask(machine, "databases", timeout_s=PATIENCE_S)
                assert isinstance(told, list)
                names = {str(one["name"]) for one in told if isinstance(one, dict)}
                if hidden := names - TABLES.keys():
                    raise Violation(f"{machine.name} shows {hidden}")
                await _ask_hidden(cluster, machine)
                for name in sorted(names):
                    rows = await rows_of(cluster, machine, name)
                    if whole.setdefault(name, rows) != rows:
                        raise Violation(f"{machine.name} shows {name} before it is whole")
        await trio.sleep(LOOK_S)


async def _ask_hidden(cluster: SimulatedCluster, machine: NodeMachine) -> None:
    """Ask a node for a hidden table by one of the methods of clients, which do not know it."""
    method, params = cluster.chance.choice(OF_CLIENTS)
    try:
        told = await cluster.ask(machine, method, cluster.chance.choice(HIDDEN_TABLES), *params, timeout_s=PATIENCE_S)
    except (UnknownDatabase, BadRequest):
        return
    raise Violation(f"{machine.name} answers {method} of a hidden table with {told!r}")


async def job(
    cluster: SimulatedCluster, machine: NodeMachine, method: str, place: str, options: dict[str, Value]
) -> dict[str, Value]:
    """Run a job at a node to its end, as the command line does; return the result.  Raises GossipKVError."""
    operation = cluster.chance.randbytes(20)
    while True:
        asked: Value = {**options, "operation": operation, "wait_ms": 1000}
        told = await cluster.ask(machine, method, place, asked, timeout_s=PATIENCE_S * 2)
        assert isinstance(told, dict), told
        if told["state"] == "done":
            return told


async def _shown(cluster: SimulatedCluster, machine: NodeMachine, table: str) -> dict[bytes, bytes]:
    """Return all records of a table, as soon as the node shows it."""
    rows: dict[bytes, bytes] = {}

    async def holds() -> bool:
        with contextlib.suppress(GossipKVError):
            rows.update(await rows_of(cluster, machine, table))
            return True
        return False

    await cluster.until(holds, within_s=HEALED_S)
    return rows


async def rows_of(cluster: SimulatedCluster, machine: NodeMachine, table: str) -> dict[bytes, bytes]:
    """Return all records of a table, as one node reads them.  Raises GossipKVError."""
    rows: list[tuple[bytes, bytes]] = []
    cursor: Value = None
    while True:
        page = await cluster.ask(machine, "scan", table, {"limit": 100, "cursor": cursor}, timeout_s=PATIENCE_S)
        assert isinstance(page, list)
        rows += cast("list[tuple[bytes, bytes]]", page[0])
        cursor = page[1]
        if cursor is None:
            return dict(rows)


async def _until_done(cluster: SimulatedCluster, machine: NodeMachine, method: str, *params: Value) -> None:
    async def holds() -> bool:
        with contextlib.suppress(GossipKVError):
            await cluster.ask(machine, method, *params, timeout_s=30)
            return True
        return False

    await cluster.until(holds, within_s=60)


def _place(saved: SavedTable, key: bytes) -> bytes:
    """Return the saved clock of the partition that has a key."""
    if saved.kind == "hash":
        return saved.partitions[TABLE_HASHES[saved.partitioner](key) % len(saved.partitions)].clock
    return saved.partitions[bisect_right([one.first for one in saved.partitions], key) - 1].clock


def _entries(token: bytes) -> list[tuple[int, int]]:
    return [
        entry
        for seen in decode_body(token[HEAD.size : -SEAL_BYTES]).values()
        for entry in clock.entries(seen.clock)
        if entry[0] != LEFT_OUT
    ]
