"""The methods about tables, loaded when one of them is called: a node without tables does without."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.table.deciding import Deciding
    from gossipkv.table.for_clients import ClientMethods
    from gossipkv.table.for_peers import PeerMethods
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Waiting
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
FOR_PEERS: Final = (
    b"register",
    b"metadata_hold",
    b"metadata_pages",
    b"metadata_transact",
    b"metadata_outcome",
    b"metadata_known",
    b"metadata_invite",
    b"metadata_discover",
)


@final
class TableMethods:
    """Both doors of the tables, `for_clients` and `for_peers`."""

    def __init__(self, deciding: Deciding, random: Random, *, replication: int) -> None:
        """`replication`: of tables that do not say."""
        self._deciding = deciding
        self._random = random
        self._replication = replication
        self._clients: ClientMethods | None = None
        self._peers: PeerMethods | None = None
        self.methods: dict[bytes, Callable[[Arguments], Value | Waiting]] = {
            **{name: partial(self._answer_client, name) for name in FOR_CLIENTS},
            **{name: partial(self._answer_peer, name) for name in FOR_PEERS},
        }

    def tell_seen(self, node: bytes) -> bytes:
        """What hello tells a node of its store."""
        return self._deciding.tell_seen(node)

    def hear_seen(self, seen: bytes) -> None:
        """Take in what hello told of this node's."""
        self._deciding.hear_seen(seen)

    def tables(self) -> list[Value]:
        """Return what `databases` tells of tables."""
        return [] if self._deciding.catalogue is None else self._for_clients().tables()

    def partition_map(self, name: str, start: bytes | None, limit: int | None) -> Value:
        """Return what `partition_map` answers of a table.  Raises UnknownDatabase, NotReady."""
        self._deciding.taking_part()
        return self._for_clients().partition_map(name, start, limit)

    def _answer_client(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        return self._for_clients().methods[name](arguments)

    def _answer_peer(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        if self._peers is None:
            from gossipkv.table.for_peers import PeerMethods  # noqa: PLC0415  # See the module.

            self._peers = PeerMethods(self._deciding)
        return self._peers.methods[name](arguments)

    def _for_clients(self) -> ClientMethods:
        if self._clients is None:
            from gossipkv.table.for_clients import ClientMethods  # noqa: PLC0415  # See the module.

            self._clients = ClientMethods(self._deciding, self._random, replication=self._replication)
        return self._clients
