"""The methods about quarantined replicas: operators list and drop them; nothing merges them back.

quarantine_list   [{node}]            replicas of a node or of all live nodes, and errors of nodes that do not answer
quarantine_drop   [node, copy]        `copy`: the name in the list
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import BadRequest, GossipKVError, NotReady
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.replication.replica.spaces import QuarantinedReplica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

ASK_S: Final = 5.0


@final
class QuarantineMethods:
    """The methods about quarantined replicas."""

    def __init__(self, participant: MetadataParticipant) -> None:
        self._service, self._directory, self._peers = participant.service, participant.directory, participant.peers
        self.methods: dict[bytes, Callable[[Arguments], DeferredResult]] = {
            b"quarantine_list": self._list,
            b"quarantine_drop": self._drop,
        }

    def _list(self, arguments: Arguments) -> DeferredResult:
        node = arguments.options("node").text("node")

        async def tell() -> Value:
            me = self._service.taking_part()[0].me.node
            listed: list[Value] = []

            async def ask(other: bytes) -> None:
                name = self._directory.name_of(other)
                try:
                    rows: Value = [*self._rows()] if other == me else await self._ask(other, "list", {"node": name})
                except GossipKVError as error:
                    if node is not None:
                        raise
                    listed.append({"node": name, "error": error.message})  # The answer still lists the other nodes.
                else:
                    listed.extend(rows if isinstance(rows, list) else [])

            if node is not None:
                await ask(self._directory.uuid_of(node))
                return listed
            async with trio.open_nursery() as nursery:
                for other in self._directory.alive():
                    nursery.start_soon(ask, other)
            return listed

        return DeferredResult(tell, may_end=True)

    def _drop(self, arguments: Arguments) -> DeferredResult:
        node, name = arguments.text("node"), arguments.text("copy")
        arguments.end()

        async def drop() -> Value:
            me = self._service.taking_part()[0].me.node
            uuid = self._directory.uuid_of(node)
            if uuid != me:
                return await self._ask(uuid, "drop", node, name)
            replication = self._service.replicating()
            named = [replica for replica in replication.replicas.spaces.all_quarantined() if replica.name == name]
            if not named:
                raise BadRequest(f"{node} has no quarantined replica {name[:40]}: `quarantine_list` lists them")
            await replication.drop_quarantined(named[0])
            return {"node": node, "copy": name}

        return DeferredResult(drop)

    async def _ask(self, node: bytes, what: str, *params: Value) -> Value:
        return await self._peers.ask(node, f"quarantine_{what}", [*params], ASK_S)

    def _rows(self) -> list[dict[str, Value]]:
        metadata, catalogue = self._service.taking_part()
        try:
            replication = self._service.replicating()
        except NotReady:
            return []
        names = {table.id: name for name, table in catalogue.tables().items()}
        return [
            {
                "node": self._directory.name_of(metadata.me.node),
                "copy": quarantined.name,
                "table": names.get(quarantined.identity.table) or quarantined.identity.table.hex(),
                "partition": quarantined.identity.partition,
                "assignment": f"{quarantined.identity.assignment:016x}",
                "bytes": _size(replication, quarantined),
                "why": quarantined.why,
            }
            for quarantined in replication.replicas.spaces.all_quarantined()
        ]


def _size(replication: Replication, quarantined: QuarantinedReplica) -> int | None:
    """Return the approximate bytes of a replica; None if it cannot be read, or is just being dropped."""
    with contextlib.suppress(GossipKVError, ValueError):
        return replication.size_bytes(quarantined.space, quarantined.identity.bounds)
    return None
