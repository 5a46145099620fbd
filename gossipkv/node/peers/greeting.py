"""The greeting of a dialled member: both ends say who they are, and prove it if the cluster asks for that."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import Unauthorized
from gossipkv.node.peers import hello
from gossipkv.node.peers.proof import NONCE_BYTES
from gossipkv.wire.frames import FrameReader
from gossipkv.wire.rpc import decode_response, request

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.environment.seam import ByteStream
    from gossipkv.node.peers.dialling import Dialling
    from gossipkv.node.peers.hello import Hello
    from gossipkv.node.peers.proof import Prover
    from gossipkv.table.peers.words import Words

MAX_HELLO_BYTES: Final = 4096  # No hello is longer.


@final
class Greeter:
    """Dials members, and exchanges hellos with them."""

    def __init__(
        self,
        dialling: Dialling,
        random: random.Random,
        *,
        mine: Callable[[], Hello],
        prover: Prover | None,
        words: Callable[[], Words],
    ) -> None:
        self._dialling = dialling
        self._random = random
        self._mine = mine
        self._prover = prover
        self._words = words

    async def connect(self, name: str, to: Address, uuid: bytes) -> tuple[ByteStream, Hello]:
        """Return a connection to a member, and its hello.

        Raises:
            OSError: no node answers.
            Unauthorized, ProtocolError: the answering node is not that member.
        """
        stream = await self._dialling.connect(to, uuid, name)
        try:
            return stream, await self._greet(stream, name, to, uuid)
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.aclose()
            raise

    async def _greet(self, stream: ByteStream, name: str, to: Address, uuid: bytes) -> Hello:
        """Exchange hellos; return the member's. Raises as `connect`."""
        mine = self._mine()._replace(word=self._words().made_for(uuid))
        is_proven = self._dialling.proves
        if self._prover is not None:
            mine = mine._replace(nonce=self._random.randbytes(NONCE_BYTES))
        theirs = await _exchange(stream, mine)
        mine.check(theirs, name)
        if theirs.uuid != uuid:
            raise Unauthorized(
                f"{to} is now the node {theirs.uuid.hex()}, not {name}",
                {"uuid": uuid.hex(), "other": theirs.uuid.hex()},
            )
        if self._prover is not None and (again := self._prover.ask(mine, theirs)) is not None:
            theirs, is_proven = await _exchange(stream, again), True
        self._words().hear_seen(theirs.seen, is_proven=is_proven)
        return theirs


async def _exchange(stream: ByteStream, mine: Hello) -> Hello:
    """Send a hello; return the answer.

    Raises:
        OSError: no node answers.
        GossipKVError: the other end refuses, or sends no hello.
    """
    await stream.send_all(request(0, "hello", [mine.to_map()]))
    reader = FrameReader(MAX_HELLO_BYTES)
    while True:
        received = await stream.receive_some(MAX_HELLO_BYTES)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed without a hello")
        reader.feed(received)
        for frame in reader:
            response = decode_response(frame)
            if response.error is not None:
                raise response.error
            return hello.of_answer(response.result)
