"""Methods by which a node reports: on itself, on its databases, and on the cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.node.verdicts import LAST_S
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gossipkv.dataset.library import Library
    from gossipkv.errors import Detail
    from gossipkv.node.access import Access
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.methods import Method
    from gossipkv.node.names import Names
    from gossipkv.node.verdicts import NodeVerdicts
    from gossipkv.serving.loop import Caller
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value


@final
class ReportMethods:
    """The methods that change nothing, and read no records."""

    def __init__(
        self,
        datasets: Library,
        tables: TableMethods,
        names: Names,
        cluster: Gossiping,
        access: Access,
        *,
        info: Callable[[], Value],
        report: Callable[[], Awaitable[Value]],
        verdicts: NodeVerdicts,
    ) -> None:
        """`info` and `report` return the statements of this node for people, and for a member that makes a verdict."""
        self._datasets, self._tables, self._names = datasets, tables, names
        self._cluster, self._access = cluster, access
        self._info, self._report, self._verdicts = info, report, verdicts
        self.methods: dict[bytes, Method] = {
            b"ping": self._answer_ping,
            b"info": self._answer_info,
            b"databases": self._databases,
            b"partition_map": self._partition_map,
            b"report": self._answer_report,
            b"verdict": self._verdict,
        }

    def _answer_ping(self, arguments: Arguments) -> Value:
        arguments.end()
        return "pong"

    def _answer_info(self, arguments: Arguments) -> Value:
        arguments.end()
        return self._info()

    def _databases(self, arguments: Arguments) -> Value | DeferredResult:
        arguments.end()
        return DeferredResult(self._names.databases_with_others) if self._tables.shut else self._names.databases()

    def _partition_map(self, arguments: Arguments) -> Value | DeferredResult:
        database, _ = arguments.text("database"), arguments.options("start", "limit")
        if self._datasets.known(database):
            return {**self._datasets.partition_map(database)}
        arguments.rewind()
        return self._tables.partition_map(arguments)

    def status(self, arguments: Arguments, caller: Caller) -> Value | DeferredResult:
        """Answer `status`, as far as the caller may read."""
        may_read = partial(self._access.is_reader, caller.user)
        options = arguments.options("local", "database", "bitmaps")
        local, bitmaps = options.flag("local"), options.flag("bitmaps")
        database = options.text("database")
        is_dataset = database is not None and self._datasets.known(database)
        self._names.check_named(database)
        has_none = database and not is_dataset
        how = partial(self._datasets.status, local=local, bitmaps=bitmaps, may_read=may_read)
        statuses = {} if has_none else how(database)
        more = {"isolated": self._cluster.isolated(), "silent": self._cluster.silence is not None}

        def merged(tables: Mapping[str, Mapping[str, Detail]]) -> Value:
            found = {**tables, **statuses}  # A dataset that is not refused takes precedence.
            entries = {name: entry for name, entry in found.items() if isinstance(entry, dict)}
            return {name: {**entry, **more} for name, entry in self._names.with_disputes(entries).items()}

        async def tell() -> Value:
            return merged(await self._tables.status(database))

        return merged({}) if is_dataset or not self._tables.tables() else DeferredResult(tell, may_end=True)

    def _answer_report(self, arguments: Arguments) -> DeferredResult:
        """Answer `report`, which a member asks that makes a verdict."""
        arguments.end()
        return DeferredResult(self._report, shared_by=("report",))

    def _verdict(self, arguments: Arguments) -> DeferredResult:
        options = arguments.options("database", "last")
        database, is_last = options.text("database"), options.flag("last")
        self._names.check_named(database)

        async def tell() -> Value:
            made = await (self._verdicts.make(fresh_s=LAST_S) if is_last else self._verdicts.make())
            if database is not None:
                made = made.about(database, is_table=self._names.is_table(database))
            return made.to_map()

        return DeferredResult(tell, shared_by=("verdict", database, is_last))
