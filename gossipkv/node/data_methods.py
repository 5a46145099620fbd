"""Methods that read records, and that change datasets and tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest, NotReady
from gossipkv.settings.databases import NAMES, is_name
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from gossipkv.dataset.library import Library
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.methods import Method
    from gossipkv.node.names import Names
    from gossipkv.node.verdicts import NodeVerdicts
    from gossipkv.serving.reads import Reads
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Packed
    from gossipkv.wire.rpc import Value

WRITES: Final = (b"put", b"delete", b"put_many", b"delete_many", b"delete_range")


@final
class DataMethods:
    """The methods about a dataset or a table, by name."""

    def __init__(
        self,
        datasets: Library,
        reads: Reads,
        tables: TableMethods,
        names: Names,
        *,
        cluster: Gossiping,
        verdicts: NodeVerdicts,
    ) -> None:
        self._datasets, self._tables, self._names = datasets, tables, names
        self._cluster, self._verdicts = cluster, verdicts
        self.methods: dict[bytes, Method] = {
            b"get": partial(self._read, reads.get),
            b"get_many": partial(self._read, reads.get_many),
            b"scan": partial(self._read, reads.scan),
            b"refresh": self._refresh,
            **dict.fromkeys((b"hold", b"release"), self._order),
            **tables.methods,
            b"changes": self._changes,
            b"create_table": self._create_table,
            **dict.fromkeys(WRITES, self._write),
        }

    def _read(self, read: Method, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        database = arguments.text("database")
        arguments.rewind()
        if self._datasets.known(database) or not self._tables.has(database):
            return read(arguments)
        return self._tables.read(database, arguments)

    def _changes(self, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        name = arguments.text("table")
        arguments.rewind()
        if self._datasets.known(name):
            raise BadRequest(f"{name} is a dataset, which changes as a whole; `changes` follows tables")
        return self._tables.read(name, arguments)

    def _write(self, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        name = arguments.text("table")
        self._names.check_takes_puts(name)
        arguments.rewind()
        return self._tables.write(name, arguments)

    def _create_table(self, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        self._names.check_free(arguments.text("table"))
        arguments.rewind()
        return self._tables.methods[b"create_table"](arguments)

    def _refresh(self, arguments: Arguments) -> DeferredResult:
        database = arguments.text_or_nil("database")
        arguments.end()
        self._check_writes("builds")

        async def look() -> Value:
            seen = await self._datasets.rescan(database)
            self._verdicts.outdate()
            if database is not None and database not in seen:
                self._names.check_known(database)
            return {name: list(versions) for name, versions in seen.items()}

        return DeferredResult(look, shared_by=("refresh", database))

    def _check_writes(self, verb: str) -> None:
        silence = self._cluster.silence
        if silence is not None:
            raise NotReady(f"this node is silent and {verb} nothing until its data directory is writable: {silence}")

    def _order(self, arguments: Arguments) -> DeferredResult:
        """Answer `hold [database, version, {options}]` or `release [database, {options}]`."""
        database = arguments.text("database")
        version = arguments.text("version") if arguments.method == "hold" else None
        is_here = arguments.options("local").flag("local")
        if version is not None and not is_name(version):
            raise BadRequest(f"{version[:80]!r} is not the name of a version: {NAMES}")
        if self._names.is_table(database):
            raise BadRequest(f"{database} is a table, which has no versions", {"database": database})
        self._names.check_known(database)
        self._check_writes("holds")

        async def order() -> Value:
            ordered = await self._datasets.order(database, version, here=is_here)
            self._verdicts.outdate()
            return {**ordered}

        return DeferredResult(order)
