"""The methods about tables, loaded when one of them is called: a node without tables does without."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import GossipKVError, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.table.accepting import OnForwarded
    from gossipkv.table.deciding import Deciding
    from gossipkv.table.for_clients import ClientMethods
    from gossipkv.table.for_peers import PeerMethods
    from gossipkv.table.placing import PlacingMethods
    from gossipkv.table.ranges import RangeMethods
    from gossipkv.table.records import Limits, RecordMethods
    from gossipkv.table.smearing import Put
    from gossipkv.table.telling import Telling
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Later, Waiting
    from gossipkv.wire.rpc import Value

FOR_CLIENTS: Final = (
    b"create_table",
    b"drop_table",
    b"metadata_status",
    b"metadata_join",
    b"metadata_leave",
    b"metadata_replace",
    b"metadata_force",
)
FOR_PLACING: Final = (
    b"add_node",
    b"remove_node",
    b"replace_node",
    b"set_weight",
    b"reshard",
    b"plan",
    b"placement_nodes",
)
FOR_RANGES: Final = (b"split", b"join", b"leave", b"force_join", b"partitions")
FOR_QUARANTINE: Final = (b"quarantine_list", b"quarantine_drop")
FOR_PEERS: Final = (
    b"register",
    b"metadata_hold",
    b"metadata_pages",
    b"metadata_transact",
    b"metadata_outcome",
    b"metadata_known",
    b"metadata_head",
    b"metadata_invite",
    b"metadata_describe",
    b"table_sizes",
    b"table_kept",
    b"table_divide",
    b"metadata_discover",
)
OF_RECORDS: Final = (
    b"put",
    b"delete",
    b"put_many",
    b"table_write",
    b"table_accepted",
    b"table_get",
    b"table_scan",
    b"table_settled",
    b"verify_table",
    b"table_digest",
    b"replica_tell",
    b"replica_feed",
    b"replica_load",
    b"replica_report",
    b"replica_digest",
)


@final
class TableMethods:
    """Both doors of the tables, `for_clients` and `for_peers`."""

    def __init__(self, deciding: Deciding, random: Random, limits: Limits) -> None:
        self._deciding = deciding
        self._random = random
        self._limits = limits
        self._records: RecordMethods | None = None
        self._telling: Telling | None = None
        self._clients: ClientMethods | None = None
        self._placing: PlacingMethods | None = None
        self._ranges: RangeMethods | None = None
        self._peers: PeerMethods | None = None
        deciding.forward = self._forward
        self.methods: dict[bytes, Callable[[Arguments], Value | Waiting | Later]] = {
            **{name: partial(self._answer_client, name) for name in FOR_CLIENTS},
            **{name: partial(self._answer_placing, name) for name in FOR_PLACING},
            **{name: partial(self._answer_ranges, name) for name in FOR_RANGES},
            **{name: partial(self._answer_quarantine, name) for name in FOR_QUARANTINE},
            **{name: partial(self._answer_peer, name) for name in FOR_PEERS},
            **{name: partial(self._answer_records, name) for name in OF_RECORDS},
        }

    def tell_seen(self, node: bytes) -> bytes:
        """What hello tells a node of its store."""
        return self._deciding.tell_seen(node)

    def hear_seen(self, seen: bytes) -> None:
        """Take in what hello told of this node's."""
        self._deciding.hear_seen(seen)

    def tables(self) -> list[dict[str, Value]]:
        """Return what `databases` tells of tables."""
        return [] if self._deciding.catalogue is None else self._for_clients().tables()

    def partition_map(self, name: str, start: bytes | None, limit: int | None) -> Value:
        """Return what `partition_map` answers of a table.  Raises UnknownDatabase, NotReady."""
        self._deciding.taking_part()
        return self._for_clients().partition_map(name, start, limit)

    def _answer_client(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        return self._for_clients().methods[name](arguments)

    def _answer_placing(self, name: bytes, arguments: Arguments) -> Waiting:
        if self._placing is None:
            from gossipkv.table.placing import PlacingMethods  # noqa: PLC0415  # See the module.

            self._placing = PlacingMethods(self._deciding, self._random)
        return self._placing.methods[name](arguments)

    def _answer_ranges(self, name: bytes, arguments: Arguments) -> Waiting:
        if self._ranges is None:
            from gossipkv.table.ranges import RangeMethods  # noqa: PLC0415  # See the module.

            self._ranges = RangeMethods(self._deciding, self._random)
        return self._ranges.methods[name](arguments)

    def _answer_quarantine(self, name: bytes, arguments: Arguments) -> Waiting:
        from gossipkv.table.quarantine import QuarantineMethods  # noqa: PLC0415  # See the module.

        return QuarantineMethods(self._deciding).methods[name](arguments)

    def _answer_peer(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        if self._peers is None:
            from gossipkv.table.for_peers import PeerMethods  # noqa: PLC0415  # See the module.

            self._peers = PeerMethods(self._deciding)
        return self._peers.methods[name](arguments)

    def has(self, name: str) -> bool:
        """Whether there is a table of that name, or may be, where nothing is known yet of those that there are."""
        is_known = self._deciding.catalogue is not None and self._of_records().routing.has(name)
        return is_known or self._deciding.has_just_come

    def read(self, arguments: Arguments) -> Value | Later:
        """Answer `get`, `get_many` or `scan` of a table."""
        return self._of_records().reads[arguments.method](arguments)

    def _forward(self, table: bytes, puts: Sequence[Put], on_forwarded: OnForwarded) -> None:
        """Forward what was accepted here, and waited."""
        self._of_records().forward(table, puts, on_forwarded)

    def _answer_records(self, name: bytes, arguments: Arguments) -> Value | Later | Waiting:
        return self._of_records().methods[name](arguments)

    async def status(self, name: str | None) -> dict[str, dict[str, Detail]]:
        """Return what `status` tells of a table, or of all; nothing of one that there is not."""
        catalogue = self._deciding.catalogue
        if catalogue is None:
            return {}
        tables = catalogue.tables()
        told: dict[str, dict[str, Detail]] = {}
        for table in tables if name is None else {name} & {*tables}:
            try:
                told[table] = await self._told().status(table)
            except GossipKVError as error:
                told[table] = {"kind": tables[table].kind, "error": error.message}
        return told

    async def conditions(self) -> dict[str, dict[str, Detail]]:
        """Return what is to be said of each table to whoever judges the whole."""
        catalogue = self._deciding.catalogue
        told: dict[str, dict[str, Detail]] = {}
        for name, table in ({} if catalogue is None else catalogue.tables()).items():
            try:
                told[name] = await self._told().condition(name)
            except NotReady as error:
                told[name] = {"kind": table.kind, "pending": error.message}
            except GossipKVError as error:
                told[name] = {"kind": table.kind, "error": error.message}
        return told

    def acceptors(self) -> list[str]:
        """Return the names of those that decide on the catalogue, as known here."""
        metadata = self._deciding.metadata
        known = None if metadata is None else metadata.known.get(self._deciding.register)
        return [] if known is None else sorted(self._deciding.name_of(one.node) for one in known.acceptors.new)

    def to_map(self) -> dict[str, Detail]:
        """Return what `info` tells of copies and records; nothing where there are none."""
        return {} if self._deciding.replication is None else self._told().to_map()

    def _told(self) -> Telling:
        if self._telling is None:
            from gossipkv.table.telling import Telling  # noqa: PLC0415  # See the module.

            self._telling = Telling(self._deciding, self._of_records().routing)
        return self._telling

    def _of_records(self) -> RecordMethods:
        if self._records is None:
            from gossipkv.table.records import RecordMethods  # noqa: PLC0415  # See the module.

            self._records = RecordMethods(self._deciding, self._random, self._limits)
        return self._records

    def _for_clients(self) -> ClientMethods:
        if self._clients is None:
            from gossipkv.table.for_clients import ClientMethods  # noqa: PLC0415  # See the module.

            self._clients = ClientMethods(self._deciding, self._random)
        return self._clients
