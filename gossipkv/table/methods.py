"""The methods about tables, loaded when one of them is called: a node without tables does without."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import GossipKVError, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.settings.config import Config
    from gossipkv.table.accepting import OnForwarded
    from gossipkv.table.deciding import Deciding
    from gossipkv.table.for_clients import ClientMethods
    from gossipkv.table.for_peers import PeerMethods
    from gossipkv.table.records import RecordMethods
    from gossipkv.table.smearing import Put
    from gossipkv.table.telling import Telling
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Later, Waiting
    from gossipkv.wire.rpc import Value

FOR_PEOPLE: Final = (
    b"create_table drop_table metadata_status metadata_join metadata_leave metadata_replace metadata_force "
    b"add_node remove_node replace_node set_weight reshard plan placement_nodes "
    b"split join leave force_join partitions quarantine_list quarantine_drop"
).split()
FOR_PEERS: Final = (
    b"register metadata_hold metadata_pages metadata_transact metadata_outcome metadata_known metadata_head "
    b"metadata_invite metadata_describe table_sizes table_kept table_divide metadata_discover"
).split()
OF_RECORDS: Final = (
    b"put delete put_many table_write table_accepted table_get table_scan table_settled verify_table table_digest "
    b"replica_tell replica_feed replica_load replica_report replica_digest"
).split()


@final
class TableMethods:
    """The doors of the tables: for people and clients, for other nodes, and of records."""

    def __init__(self, deciding: Deciding, random: Random, limits: Config) -> None:
        self._deciding = deciding
        self._random = random
        self._limits = limits
        deciding.forward = self._forward
        self.methods: dict[bytes, Callable[[Arguments], Value | Waiting | Later]] = {
            **{name: partial(self._answer_people, name) for name in FOR_PEOPLE},
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
        return [] if self._deciding.catalogue is None else self._clients.tables()

    def partition_map(self, name: str, start: bytes | None, limit: int | None) -> Value:
        """Return what `partition_map` answers of a table.  Raises UnknownDatabase, NotReady."""
        self._deciding.taking_part()
        return self._clients.partition_map(name, start, limit)

    def has(self, name: str) -> bool:
        """Whether there is a table of that name, or may be, where nothing is known yet of those that there are."""
        is_known = self._deciding.catalogue is not None and self._records.routing.has(name)
        return is_known or self._deciding.has_just_come

    def read(self, arguments: Arguments) -> Value | Later:
        """Answer `get`, `get_many` or `scan` of a table."""
        return self._records.reads[arguments.method](arguments)

    def _forward(self, table: bytes, puts: Sequence[Put], on_forwarded: OnForwarded) -> None:
        self._records.forward(table, puts, on_forwarded)

    async def status(self, name: str | None) -> dict[str, dict[str, Detail]]:
        """Return what `status` tells of a table, or of all; nothing of one that there is not."""
        catalogue = self._deciding.catalogue
        if catalogue is None:
            return {}
        tables = catalogue.tables()
        told: dict[str, dict[str, Detail]] = {}
        for table in tables if name is None else {name} & {*tables}:
            try:
                told[table] = await self._telling.status(table)
            except GossipKVError as error:
                told[table] = {"kind": tables[table].kind, "error": error.message}
        return told

    async def conditions(self) -> dict[str, dict[str, Detail]]:
        """Return what is to be said of each table to whoever judges the whole."""
        catalogue = self._deciding.catalogue
        told: dict[str, dict[str, Detail]] = {}
        for name, table in ({} if catalogue is None else catalogue.tables()).items():
            try:
                told[name] = await self._telling.condition(name)
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
        return {} if self._deciding.replication is None else self._telling.to_map()

    # -- doors ---------------------------------------------------------------------------------------------------------

    def _answer_people(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        return self._people[name](arguments)

    def _answer_peer(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        return self._peers.methods[name](arguments)

    def _answer_records(self, name: bytes, arguments: Arguments) -> Value | Later | Waiting:
        return self._records.methods[name](arguments)

    @cached_property
    def _clients(self) -> ClientMethods:
        from gossipkv.table.for_clients import ClientMethods  # noqa: PLC0415  # See the module.

        return ClientMethods(self._deciding, self._random)

    @cached_property
    def _people(self) -> Mapping[bytes, Callable[[Arguments], Value | Waiting]]:
        from gossipkv.table.placing import PlacingMethods  # noqa: PLC0415  # See the module.
        from gossipkv.table.quarantine import QuarantineMethods  # noqa: PLC0415  # See the module.
        from gossipkv.table.ranges import RangeMethods  # noqa: PLC0415  # See the module.

        placing, ranges = PlacingMethods(self._deciding, self._random), RangeMethods(self._deciding, self._random)
        return {
            **self._clients.methods,
            **placing.methods,
            **ranges.methods,
            **QuarantineMethods(self._deciding).methods,
        }

    @cached_property
    def _peers(self) -> PeerMethods:
        from gossipkv.table.for_peers import PeerMethods  # noqa: PLC0415  # See the module.

        return PeerMethods(self._deciding)

    @cached_property
    def _records(self) -> RecordMethods:
        from gossipkv.table.records import RecordMethods  # noqa: PLC0415  # See the module.

        return RecordMethods(self._deciding, self._random, self._limits)

    @cached_property
    def _telling(self) -> Telling:
        from gossipkv.table.telling import Telling  # noqa: PLC0415  # See the module.

        return Telling(self._deciding, self._records.routing)
