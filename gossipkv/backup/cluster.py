"""The cluster as backups and restores see it, from the node that drives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from gossipkv.settings.databases import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.errors import Detail
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.peers.hints import HintBoard
    from gossipkv.table.records.router import Router
    from gossipkv.table.rpc.local_calls import LocalCalls


@final
@dataclass(frozen=True)
class BackedUpCluster:
    """The tables and datasets of the cluster."""

    calls: LocalCalls
    participant: MetadataParticipant
    router: Callable[[], Router]
    statuses: Callable[[], Mapping[str, Detail]]  # Local status of each dataset, by name.
    hold: Callable[[str, str], Awaitable[object]]  # Holds a dataset on a version on all nodes.  Raises GossipKVError.
    check_free: Callable[[str], object]  # Raises Conflict: a dataset has the name.
    transfer: float  # Bytes a second, as in the setting `table_transfer`.
    node: str
    own: Callable[[], tuple[str, int]]  # Uuid and epoch of this node.

    @property
    def me(self) -> bytes:
        """The uuid of this node."""
        return bytes.fromhex(self.own()[0])

    @property
    def board(self) -> HintBoard:
        """The hints that this node publishes."""
        return self.participant.board

    @property
    def live_nodes(self) -> Sequence[bytes]:
        """The nodes that may be alive, in their order, this one among them."""
        is_up = self.participant.peers.is_up
        return [node for node in sorted(self.participant.directory.names()) if node == self.me or is_up(node)]

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, in hexadecimal digits."""
        return self.participant.service.register.hex()[:16]

    def check(self) -> None:
        """Raise NotReady if there are tables, and this node does not know them."""
        if self.participant.service.is_founded or self.participant.service.store.closed:
            self.participant.service.taking_part()

    def tables(self, *, hidden: bool = False) -> Mapping[str, bytes]:
        """Return the ids of the tables, or of the hidden ones, by their names without `HIDDEN`.  Raises as `check`."""
        self.check()
        names = self.router().names()
        return {name.removeprefix(HIDDEN): id_ for name, id_ in names.items() if name.startswith(HIDDEN) is hidden}

    def datasets(self) -> dict[str, dict[str, str | None]]:
        """Return the active and the held version of each dataset, by name."""
        found: dict[str, dict[str, str | None]] = {}
        for name, entry in self.statuses().items():
            match entry:
                case {"active": None | str() as active, "hold": None | str() as hold}:
                    found[name] = {"active": active, "hold": hold}
        return found

    async def show(self, name: str, table: bytes) -> None:
        """Give a hidden table its name, so that clients see it.  Raises GossipKVError."""
        _, catalogue = self.participant.service.taking_part()
        await catalogue.show(name, table)
