"""The first map of a register: written at all its acceptors before anybody knows of the register."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.register.ballot import ZERO
from gossipkv.register.changes import Applied, CannotJudge
from gossipkv.register.configuration import Value
from gossipkv.register.edits import decode_value, divided
from gossipkv.register.messages import AcceptorVerdict, RegisterRequest, RequestKind, decode_reply, encode_request
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.state import first_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Acceptors
    from gossipkv.register.edits import Edit
    from gossipkv.register.maps import AskNode
    from gossipkv.register.metadata.server import Metadata

ASK_S: Final = 5.0
ROUND_S: Final = 10.0


@final
class FirstMaps:
    """Begins registers, from one node."""

    def __init__(self, metadata: Metadata, ask: AskNode) -> None:
        self._metadata = metadata
        self._ask = ask

    async def write(self, register: bytes, servers: Acceptors, edits: list[Edit]) -> int:
        """Make every server accept the first map; return its sequence. Raises `Unavailable`: a server did not.

        The part that fits into one value is its first transaction; others add the rest.
        """
        metadata, parts = self._metadata, divided(edits)
        value = Value(servers, first_value(parts[0]).encode())
        try:
            async with trio.open_nursery() as nursery:
                for server in servers.new:
                    nursery.start_soon(self.create_at, server, register, ZERO, value)
        except* GossipKVError as errors:
            raise Unavailable(f"a server did not take the first map: {errors.exceptions[0]}") from errors
        metadata.maps.decided(register, value, ZERO)
        for number, part in enumerate(parts[1:], start=1):
            add = partial(self._add_part, register, number, part)
            while metadata.maps.position(register).sequence <= number:
                outcome = await metadata.registers.change(register, add, timeout_s=ROUND_S, hint=servers)
                if outcome.end is not ChangeEnd.DONE or outcome.value is None or outcome.ballot is None:
                    raise Unavailable(f"the servers did not take the first map: {outcome.message}")
                metadata.maps.decided(register, outcome.value, outcome.ballot)
        return len(parts)

    def _add_part(
        self, register: bytes, number: int, edits: Sequence[Edit], value: Value, generation: int
    ) -> Applied | CannotJudge:
        """Add a part of a first map, unless an earlier round has done it: nobody else changes a map without a name."""
        del generation
        found, map_ = decode_value(value.payload), self._metadata.maps.map(register)
        state = map_.state_of(found)
        if state is None:
            self._metadata.maps.fetch_soon(register, value)
            return CannotJudge("this node is reading the map from another server")
        if found.sequence > number or map_.is_full(found):
            return Applied(value.payload)
        return Applied(map_.next_value(found, state, edits).encode())

    async def create_at(self, server: AcceptorId, register: bytes, ballot: Ballot, value: Value) -> None:
        """Let an acceptor begin a register. Raises `Unavailable`: it did not."""
        request = encode_request(RegisterRequest(RequestKind.CREATE, register, server, 0, ballot, value))
        if server == self._metadata.me:
            reply = await self._metadata.answer(request)
        else:
            answer = await self._ask(server.node, "register", [request], ASK_S)
            reply = answer if isinstance(answer, bytes) else b""
        verdict = decode_reply(reply).verdict
        if verdict is not AcceptorVerdict.OK:
            raise Unavailable(f"{server} refused to create a register: {verdict.name}")
        if server == self._metadata.me:  # Until now, the proposer may have believed a false hint of a stranger.
            self._metadata.registers.learn(register)
