"""Loads tables of a backup into a running cluster of any number of nodes.

Each table is created as a *hidden* one, which clients do not see, and its records are put into it like a client's, at a
majority. When the records of all tables are in, the tables get their names. Before that, an error or a cancellation
drops all of them; if this node is killed, the mover of each table drops it (`table.controllers.abandoned_restores`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.backup.archive import EXPIRY_BYTES, PRESENT
from gossipkv.backup.create import RETRIED, closed_in_thread
from gossipkv.backup.jobs import Progress
from gossipkv.errors import BadRequest, Conflict, GossipKVError, ProtocolError, Unavailable
from gossipkv.processes.pace import RateLimit
from gossipkv.register.metadata.partitions import HASH
from gossipkv.settings.databases import HIDDEN, NAMES, is_name
from gossipkv.table.rpc.requests import MAX_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from gossipkv.backup.archive import Archive, BackupManifest, SavedTable
    from gossipkv.backup.cluster import BackedUpCluster
    from gossipkv.environment.seam import Environment
    from gossipkv.wire.rpc import Value

WRITERS: Final = 8  # Batches under way.
BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 512 << 10
PUT_MS: Final = 10_000
CREATE_MS: Final = 60_000
PATIENCE_S: Final = 60.0  # Time for one step; a dead node is detected sooner.
RETRY_S: Final = 0.5

Rows = list[tuple[bytes, bytes]]


@final
@dataclass
class Restore:
    """One restore."""

    archive: Archive
    cluster: BackedUpCluster
    environment: Environment
    progress: Progress = field(default_factory=Progress)
    made: dict[str, bytes] = field(default_factory=dict)  # The ids of the tables, by name.
    _fewer: dict[str, Value] = field(default_factory=dict)

    async def run(self, manifest: BackupManifest, wanted: Sequence[str], new_name: str | None) -> dict[str, Value]:
        """Restore these tables, none for all; `new_name`: that of the only table.

        Raises:
            BadRequest: the backup has no such table, or `new_name` is for none or several.
            Conflict: a table of that name exists.
            Corrupt: the backup is damaged; no table was restored.
            GossipKVError: the cluster refused; no table was restored.
        """
        tables = self._tables(manifest, wanted, new_name)
        self.progress.total = sum(len(table.partitions) for table in tables.values())
        for name in tables:
            self._check_free(name)
        made = self.made
        limit = RateLimit(self.cluster.transfer)
        try:
            for name, table in tables.items():
                made[name] = await self._create(name, table)
                await self._load(name, table, limit)
            for name, id_ in made.items():
                await self._again("the cluster does not show the tables now", partial(self.cluster.show, name, id_))
        except BaseException:
            with trio.CancelScope(shield=True):
                for name, id_ in made.items():
                    await self._drop(name, id_)
            raise
        finally:
            for id_ in made.values():
                self.cluster.board.end_restore(id_)
        holds = {} if wanted or new_name else await self._hold(manifest)
        return {
            "backup": manifest.name,
            "holds": {**holds},
            "fewer": self._fewer,
            "tables": {name: table.name for name, table in tables.items()},
            "missing": {name: table.left_out for name, table in tables.items() if table.missing},
            "records": self.progress.records,
            "bytes": self.progress.bytes,
        }

    def _tables(self, manifest: BackupManifest, wanted: Sequence[str], new_name: str | None) -> dict[str, SavedTable]:
        """Return the tables to restore, by their names from then on."""
        saved = {table.name: table for table in manifest.tables}
        if missing := sorted({*wanted} - saved.keys()):
            words = f"the backup {manifest.name} has no table {missing[0]}; it has: {', '.join(saved) or 'none'}"
            raise BadRequest(words, {"table": missing[0]})
        chosen = {name: saved[name] for name in wanted or saved}
        if new_name is None:
            return chosen
        if len(chosen) != 1:
            raise BadRequest("restore: another name needs exactly one table; name the table", {"option": "as"})
        if not is_name(new_name):
            raise BadRequest(f"restore: {new_name!r} cannot be a table's name: {NAMES}", {"option": "as"})
        (table,) = chosen.values()
        return {new_name: table}

    async def _hold(self, manifest: BackupManifest) -> dict[str, Value]:
        """Hold the datasets that were held; return nil for each, or the reason why that was impossible."""
        results: dict[str, Value] = {}
        for name, versions in manifest.datasets.items():
            if (version := versions.get("hold")) is not None:
                results[name] = None
                try:
                    await self.cluster.hold(name, version)
                except GossipKVError as error:
                    results[name] = f"{version} could not be held: {error.message}"
        return results

    def _check_free(self, name: str) -> None:
        self.cluster.check_free(name)
        if name in self.cluster.tables():
            words = f"the table {name} exists; drop it, or restore the table under another name (`--table T --as NEW`)"
            raise Conflict(words, {"database": name})
        if self.cluster.tables(hidden=True).get(name) in self.cluster.board.restored():
            raise Conflict(f"a node already restores the table {name}", {"database": name})

    async def _create(self, name: str, table: SavedTable) -> bytes:
        """Create the hidden table; one that an interrupted restore left is dropped first."""
        if (left := self.cluster.tables(hidden=True).get(name)) is not None:
            await self._drop(name, left)
        firsts = [partition.first for partition in table.partitions]
        bounds: list[Value] = [*firsts[1 :: 1 + len(firsts) // MAX_BOUNDS]]
        options: dict[str, Value] = {
            "kind": table.kind,
            "replication": table.replication,  # A hidden table may have fewer: one for each member.
            **({"partitions": len(firsts), "partitioner": table.partitioner} if table.kind == HASH else {}),
            **({"bounds": bounds} if bounds and table.kind != HASH else {}),
            **({"time_key": [*table.time_key], "smear": table.smears} if table.time_key is not None else {}),
            "ttl_ms": table.ttl_ms,
            **({"retention_ms": table.retention_ms} if table.retention_ms else {}),
            "timeout_ms": CREATE_MS,
        }
        made = await self.cluster.calls.call("create_table", HIDDEN + name, options)
        match made:
            case {"table": str(digits), **told}:
                id_ = bytes.fromhex(digits)
                self.cluster.board.begin_restore(id_)
                match told:
                    case {"replicas": int(replicas), "left_out": list(names)} if replicas < table.replication:
                        self._fewer[name] = {"wanted": table.replication, "replicas": replicas, "left_out": names}
                return id_
        raise ProtocolError("the answer of a node does not name the table that it created")

    async def _drop(self, name: str, id_: bytes) -> None:
        """Drop a hidden table, if it is still there; otherwise its mover drops it later."""
        with contextlib.suppress(GossipKVError):
            await self.cluster.calls.call("drop_table", HIDDEN + name, {"table": id_.hex()})

    async def _load(self, name: str, table: SavedTable, limit: RateLimit) -> None:
        self.progress.table = name
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Rows](0)
            nodes = self.cluster.live_nodes
            for number in range(WRITERS):  # Each node originates a share of the writes.
                nursery.start_soon(self._write, HIDDEN + name, nodes[number % len(nodes)], receive)
            async with send:
                for partition in table.partitions:
                    run = self.environment.threads.run
                    async with closed_in_thread(self.environment.threads) as stack:
                        records = await run(stack.enter_context, self.archive.records(partition.files))
                        while batch := await run(_batch, records):
                            size_bytes = sum(len(key) + len(value) for key, value in batch)
                            await trio.sleep(limit.take(size_bytes, trio.current_time()))
                            await send.send(batch)
                            self.progress.bytes += size_bytes
                    self.progress.done += 1

    async def _write(self, name: str, node: bytes, receive: trio.MemoryReceiveChannel[Rows]) -> None:
        async for batch in receive:
            rows: list[Value] = [_row(key, marked) for key, marked in batch]
            # The same rows may be put twice.
            await self._again("the cluster takes no records now", partial(self._put, node, name, rows))
            self.progress.records += len(batch)

    async def _put(self, node: bytes, name: str, rows: list[Value]) -> None:
        """Put rows by a node, or by this one if that node seems dead."""
        asked = node if node in self.cluster.live_nodes else self.cluster.me
        await self.cluster.calls.ask(
            asked, "put_many", [name, rows, {"ttl_ms": 0, "timeout_ms": PUT_MS}], PUT_MS / 1000
        )

    async def _again(self, refusal: str, act: Callable[[], Awaitable[object]]) -> None:
        """Do it, again after a failure that may pass.  Raises Unavailable with these words, and other errors."""
        give_up_at = trio.current_time() + PATIENCE_S
        while True:
            try:
                await act()
            except RETRIED as error:
                if trio.current_time() > give_up_at:
                    raise Unavailable(f"{refusal}: {error.message}") from error
            else:
                return
            await trio.sleep(RETRY_S)


def _row(key: bytes, marked: bytes) -> list[Value]:
    """Return the row of `put_many` for a value behind its mark."""
    if marked[:1] == PRESENT:
        return [key, marked[1:]]
    return [key, marked[1 + EXPIRY_BYTES :], int.from_bytes(marked[1 : 1 + EXPIRY_BYTES], "big")]


def _batch(records: Iterator[tuple[bytes, bytes]]) -> Rows:
    """Return the next records, about `BATCH_BYTES` at most; empty at the end."""
    batch, size_bytes = Rows(), 0
    for key, value in islice(records, BATCH_RECORDS):
        batch.append((key, value))
        size_bytes += len(key) + len(value)
        if size_bytes >= BATCH_BYTES:
            break
    return batch
