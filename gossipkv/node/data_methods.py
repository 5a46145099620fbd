"""Methods that read records, and that change datasets and tables."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest, GossipKVError, NotReady, Overloaded
from gossipkv.settings.databases import NAMES, is_name
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from gossipkv.dataset.library import Library
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.methods import Method
    from gossipkv.node.names import Names
    from gossipkv.node.verdicts import NodeVerdicts
    from gossipkv.serving.loop import Caller
    from gossipkv.serving.reads import Reads
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion, Packed, ProvenUser
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
        max_polls: int,
    ) -> None:
        """`max_polls`: the maximum of open polls of change feeds on a connection."""
        self._datasets, self._tables, self._names = datasets, tables, names
        self._cluster, self._verdicts = cluster, verdicts
        self._polls, self._max_polls = Counter[tuple[int, int]](), max_polls
        self.methods: dict[bytes, Method] = {
            b"get": partial(self._read, reads.get),
            b"get_many": partial(self._read, reads.get_many),
            b"scan": partial(self._read, reads.scan),
            b"refresh": self._refresh,
            **dict.fromkeys((b"hold", b"release"), self._order),
            **tables.methods,
            b"create_table": self._create_table,
            **dict.fromkeys(WRITES, self._write),
        }

    def _read(self, read: Method, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        database = arguments.text("database")
        arguments.rewind()
        if self._datasets.known(database) or not self._tables.has(database):
            return read(arguments)
        return self._tables.read(database, arguments)

    def changes(self, arguments: Arguments, caller: Caller) -> Value | Packed | ProvenUser | DeferredResult | Later:
        """Answer `changes`; a connection has few enough polls open that its other requests are read."""
        name, connection = arguments.text("table"), (caller.pump, caller.handle)
        arguments.rewind()
        if self._datasets.known(name):
            raise BadRequest(f"{name} is a dataset, which changes as a whole; `changes` follows tables")
        if self._polls[connection] >= self._max_polls:
            words = f"this connection has {self._max_polls:,} polls of change feeds open, half of `max_in_flight`"
            raise Overloaded(f"{words}; use further connections", {"limit": self._max_polls})
        answer = self._tables.read(name, arguments)
        if isinstance(answer, Later):
            return Later(partial(self._poll, connection, answer))
        assert isinstance(answer, DeferredResult), answer
        return DeferredResult(partial(self._await_poll, connection, answer))

    def _poll(self, connection: tuple[int, int], poll: Later, complete: Completion[Value | Packed]) -> object:
        def done(answer: Value | Packed | GossipKVError) -> None:
            self._ends(connection)
            complete(answer)

        self._polls[connection] += 1
        try:
            return poll.begin(done)
        except GossipKVError:
            self._ends(connection)
            raise

    async def _await_poll(self, connection: tuple[int, int], poll: DeferredResult) -> Value | Packed | ProvenUser:
        self._polls[connection] += 1
        try:
            return await poll.result()
        finally:
            self._ends(connection)

    def _ends(self, connection: tuple[int, int]) -> None:
        self._polls[connection] -= 1
        if not self._polls[connection]:
            del self._polls[connection]

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
