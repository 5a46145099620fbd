"""Calls of methods by a task of this node, at this node or at another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgpack

from gossipkv.table.peers.peer_client import awaited
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, Later, Packed, ProvenUser

if TYPE_CHECKING:
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.wire.rpc import Value


@final
class LocalCalls:
    """Calls methods without a connection; hidden tables can be written so."""

    def __init__(self, methods: TableMethods, participant: MetadataParticipant) -> None:
        self._methods, self._participant = methods, participant

    async def call(self, method: str, *params: Value) -> Value:
        """Return this node's result.  Raises GossipKVError."""
        name = method.encode()
        return await value_of(self._methods.methods[name](Arguments(name, msgpack.packb(params))))

    async def ask(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        """Return the result of a node, maybe this one.  Raises GossipKVError."""
        if node == self._participant.service.replicating().replicas.me:
            return await self.call(method, *params)
        return await self._participant.peers.ask(node, method, params, timeout_s)


async def value_of(result: Value | Packed | DeferredResult | Later) -> Value:
    """Return the decoded result of a method that was called.  Raises GossipKVError."""
    found: Value | Packed | ProvenUser
    match result:
        case DeferredResult():
            found = await result.result()
        case Later():
            found = await awaited(result.begin)
        case _:
            found = result
    assert not isinstance(found, ProvenUser), "only `auth` and `hello` prove a user"
    value: Value = msgpack.unpackb(found.data) if isinstance(found, Packed) else found
    return value
