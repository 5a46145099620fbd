"""Dispatch of the methods about tables."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from gossipkv.errors import BadRequest, GossipKVError, NotReady, Unavailable, no_table
from gossipkv.replication.replica.hlc import check_left
from gossipkv.settings.databases import HIDDEN
from gossipkv.table.peers.peer_client import CHANGES
from gossipkv.table.records.endpoints import RecordMethods
from gossipkv.table.rpc.admin import AdminMethods
from gossipkv.table.rpc.node_admin import NodeAdminMethods
from gossipkv.table.rpc.peer_rpc import PeerMethods
from gossipkv.table.rpc.quarantine import QuarantineMethods
from gossipkv.table.rpc.range_admin import RangeAdminMethods
from gossipkv.table.rpc.status import TableReporter
from gossipkv.wire.arguments import MAX_TIMEOUT_MS, Arguments, name_of
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.settings.config import Config
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.ports import GatheredWrites, Refuse
    from gossipkv.table.records.router import Router
    from gossipkv.table.rpc.status import NodesNow
    from gossipkv.wire.results import Later
    from gossipkv.wire.rpc import Value

    Answer = Value | DeferredResult | Later
    Method = Callable[[Arguments], Answer]

# Methods that a node forwards while its tables are closed, or it has no room for a table's map, like the reads below.
FOR_CLIENTS: Final = frozenset(b"create_table drop_table put delete put_many delete_many delete_range".split())
READS: Final = frozenset(("get", "get_many", "scan", "changes", "partition_map", "databases"))
PASS_MS: Final = 10_000
LIST_S: Final = 0.5  # Shorter than the 0.9 s of a probe that waits for the list.
MAX_DEADLINE: Final = (1 << 64) - 1


@final
class TableMethods:
    """The methods about tables: for operators and clients, for other nodes, and about records."""

    def __init__(self, participant: MetadataParticipant, random: Random, limits: Config) -> None:
        self._participant, self._service = participant, participant.service
        self._directory, self._watcher = participant.directory, participant.watcher
        self._random = random
        self._clients = AdminMethods(participant, random)
        self._records = RecordMethods(participant, random, limits)
        self._reporter = TableReporter(participant, self._records.routing, self._records.writes_failed)
        participant.service.forward = self._records.forward
        self._here: dict[bytes, Method] = {  # Answered by this node.
            **self._clients.methods,
            **NodeAdminMethods(participant, random).methods,
            **RangeAdminMethods(participant, random).methods,
            **QuarantineMethods(participant).methods,
            **PeerMethods(participant).methods,
            **self._records.methods,
        }
        of_clients = {name: partial(self._answer, self._here[name]) for name in FOR_CLIENTS}
        self.methods: dict[bytes, Method] = {**self._here, **of_clients, b"within": self._within}

    @property
    def router(self) -> Router:
        """The maps of all tables.  Requires: this node takes part."""
        return self._records.routing

    def tables(self) -> list[dict[str, Value]]:
        """Return the tables for `databases`."""
        return [] if self._service.catalogue is None else self._clients.tables()

    def names(self) -> set[str]:
        """Return the names of the tables for `databases`."""
        return set() if self._service.catalogue is None else self._clients.names()

    async def tables_of_others(self) -> list[dict[str, Value]]:
        """Return the tables from another node; none while no node answers, since datasets still answer."""
        with contextlib.suppress(GossipKVError):
            databases = await self._pass_on("databases", [], LIST_S)
            if isinstance(databases, list):
                return [database for database in databases if isinstance(database, dict)]
        return []

    @property
    def shut(self) -> str | None:
        """The reason why the tables of this node are closed since the start, if other nodes answer for them."""
        return self._service.store.closed if self._service.metadata is None and self._watcher.participants() else None

    def partition_map(self, arguments: Arguments) -> Value | DeferredResult:
        """Answer `partition_map` of a table. Raises UnknownDatabase, NotReady."""
        return self._elsewhere(_name_in(arguments), arguments) or self._partition_map(arguments)

    def _partition_map(self, arguments: Arguments) -> Value:
        name, options = arguments.text("database"), arguments.options("start", "limit")
        start, limit = options.blob("start"), options.number("limit", least=1)
        self._service.taking_part(name)
        return self._clients.partition_map(name, start, limit)

    def has(self, name: str) -> bool:
        """True if a table of that name exists, or may exist while the tables are not known here."""
        if name.startswith(HIDDEN):
            return False
        is_known = self._service.catalogue is not None and self._records.routing.has(name)
        return is_known or self._service.has_just_come or self.shut is not None

    def read(self, name: str, arguments: Arguments) -> Answer:
        """Answer `get`, `get_many` or `scan` of a table."""
        return self._elsewhere(name, arguments, once=True) or self._records.reads[arguments.called](arguments)

    def write(self, name: str, arguments: Arguments) -> Answer:
        """Answer `put`, `delete`, `put_many`, `delete_many` or `delete_range` of a client."""
        if name.startswith(HIDDEN):
            raise no_table(name)
        return self._elsewhere(name, arguments, once=True) or self._records.methods[arguments.called](arguments)

    def begin_writes(self, gathered: Sequence[GatheredWrites], refuse: Refuse, *, may_wait: bool) -> bool:
        """Begin the plain writes that a serving loop has gathered; return False if it is to gather more."""
        return self._records.begin_writes(gathered, refuse, may_wait=may_wait)

    async def status(self, name: str | None) -> dict[str, dict[str, Detail]]:
        """Return the status of a table or of all tables; empty for an unknown table."""
        catalogue = self._service.catalogue
        if catalogue is None:
            return {}
        tables = catalogue.tables()
        statuses: dict[str, dict[str, Detail]] = {}
        nodes = self._nodes()
        for table in tables if name is None else {name} & {*tables}:
            try:
                statuses[table] = await self._reporter.status(table, nodes)
            except GossipKVError as error:
                statuses[table] = {"kind": tables[table].kind, "error": error.message}
        return statuses

    async def conditions(self) -> dict[str, dict[str, Detail]]:
        """Return the condition of each table, for the verdict."""
        catalogue = self._service.catalogue
        conditions: dict[str, dict[str, Detail]] = {}
        nodes = self._nodes()
        for name, table in ({} if catalogue is None else catalogue.tables()).items():
            try:
                conditions[name] = await self._reporter.condition(name, nodes)
            except NotReady as error:
                conditions[name] = {"kind": table.kind, "pending": error.message}
            except GossipKVError as error:
                conditions[name] = {"kind": table.kind, "error": error.message}
        return conditions

    def acceptors(self) -> list[str]:
        """Return the names of the catalogue's acceptors, as known here."""
        metadata = self._service.metadata
        known_map = None if metadata is None else metadata.known.get(self._service.register)
        acceptors = () if known_map is None else known_map.acceptors.new
        names = self._directory.known_names()
        return sorted([names.get(acceptor.node) or acceptor.node.hex() for acceptor in acceptors])

    def removed(self) -> dict[str, bool]:
        """Return the nodes that tables have removed, with True for those that are lost for good."""
        with contextlib.suppress(NotReady):
            catalogue, name_of = self._service.catalogue, self._directory.name_of
            named = {} if catalogue is None else catalogue.nodes.named()
            return {name_of(uuid): node.weight is None for uuid, node in named.items() if not node.weight}
        return {}

    def copies_aside(self) -> int:
        """Return the number of replicas on this node that are quarantined or take no writes."""
        return 0 if self._service.replication is None else self._reporter.copies_aside()

    def _nodes(self) -> NodesNow | None:
        """Look at the nodes for the statuses of several tables; None if there are no replicas."""
        return None if self._service.replication is None else self._reporter.nodes()

    def to_map(self) -> dict[str, Detail]:
        """Return the values about replicas and records for `info`; empty if there are no replicas."""
        return {} if self._service.replication is None else self._reporter.to_map()

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def _within(self, arguments: Arguments) -> Answer:
        """Answer `within [deadline, method, its parameters, packed]`: call the method unless the deadline has passed.

        Raises:
            TimedOut: the deadline has passed, and nothing is changed.
            NotReady: the tables of this node are closed; the request came from a node, and is not forwarded again.
        """
        deadline, name = arguments.whole("deadline", MAX_DEADLINE), arguments.blob("method")
        inner = Arguments(name, arguments.blob("parameters"))
        arguments.end()
        is_read = name_of(name) in READS
        if name_of(name) not in CHANGES and not is_read:
            raise BadRequest(f"within: {name_of(name)} has no deadline")
        check_left(self._service.skew.left_s(deadline))
        if (why := self.shut) is not None:
            raise NotReady(f"the tables of this node are closed: {why}")
        if is_read:
            return self._read_here(inner)
        return self._here[name](inner)

    def _read_here(self, arguments: Arguments) -> Answer:
        match arguments.method:
            case "databases":
                return [*self.tables()]
            case "partition_map":
                return self._partition_map(arguments)
            case _:
                return self._records.reads[arguments.called](arguments)

    def _elsewhere(self, name: str, arguments: Arguments, *, once: bool = False) -> DeferredResult | None:
        """Forward a client's request if the tables are closed, or this node lacks the table's map; else return None.

        `once`: True to forward it also while this node is about to read the map.
        """
        if self._service.catalogue is None:
            why = self.shut
            return None if why is None else self._passed_on(arguments, f"the tables of this node are closed ({why})")
        lack = self._records.routing.lack(name, once=once)
        return None if lack is None else self._passed_on(arguments, f"this node {lack}")

    def _passed_on(self, arguments: Arguments, why: str) -> DeferredResult:
        """Return another node's answer to a request, which is forwarded unchanged."""
        params = cast("list[Value]", [*arguments.values])
        options = params[-1] if params and isinstance(params[-1], dict) else {}
        timeout_ms = options.get(b"timeout_ms")  # type: ignore[call-overload]  # Names are still bytes.
        wait_ms = options.get(b"wait_ms")  # type: ignore[call-overload]  # Names are bytes here, too.
        most_ms = PASS_MS + (wait_ms if isinstance(wait_ms, int) and 0 < wait_ms <= MAX_TIMEOUT_MS else 0)
        timeout_s = (timeout_ms if isinstance(timeout_ms, int) and 0 < timeout_ms <= MAX_TIMEOUT_MS else most_ms) / 1000
        return DeferredResult(partial(self._pass_on, arguments.method, params, timeout_s, why), may_end=True)

    async def _pass_on(self, method: str, params: list[Value], timeout_s: float, why: str = "") -> Value:
        nodes = self._watcher.participants()
        self._random.shuffle(nodes)
        try:
            return await self._participant.peers.ask_any(nodes, method, params, timeout_s)
        except Unavailable as error:
            raise Unavailable(f"{why}, and no other node answers: {error.message}") from error

    def _answer(self, method: Method, arguments: Arguments) -> Answer:
        return self._elsewhere(_name_in(arguments), arguments) or method(arguments)


def _name_in(arguments: Arguments) -> str:
    """Return the first parameter as the name of a table; empty if it is none."""
    name = arguments.values[0] if arguments.values else None
    return name.decode(errors="replace") if isinstance(name, bytes) else ""
