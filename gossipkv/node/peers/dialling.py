"""How other nodes are dialled: plainly, or, with `tls_peers`, by TLS with certificates on both sides.

Names of hosts are not looked at: a node is known by its uuid, which its certificate proves.  What is read anew
(`node.certificate`) holds for those who are dialled from then on.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import Unauthorized
from gossipkv.log import Log, Sparing
from gossipkv.node.peers import hello
from gossipkv.serving.loop import TlsEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.environment.seam import ByteStream, SocketFactory
    from gossipkv.serving.loop import Tls

RECEIVE_BYTES: Final = 16_384


@final
class Dialling:
    """Connections to other nodes, over such sockets."""

    def __init__(self, sockets: SocketFactory) -> None:
        self._sockets = sockets
        self._tls: Tls | None = None

    def use_tls(self, tls: Tls) -> None:
        """Have nodes that are dialled from now on prove who they are, if it says who signs for them."""
        self._tls = tls if tls.knows_peers else None

    @property
    def proves(self) -> bool:
        """True if whoever is dialled has to prove its uuid by a certificate."""
        return self._tls is not None

    async def connect(self, to: Address, uuid: bytes | None = None) -> ByteStream:
        """A connection to a numeric address, where, by TLS, that node answers; None: any node of the cluster.

        Raises:
            OSError: nobody answers.
            Unauthorized, ProtocolError: whoever does is not that node, or does not take this one for a node.
        """
        stream = await self._sockets.connect(to)
        if self._tls is None:
            return stream
        secured = SecuredStream(stream, TlsEnd(self._tls))
        try:
            hello.prove(await secured.shake(), uuid)
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.aclose()
            raise
        return secured


@final
class Proofs:
    """Whether those who come as nodes are nodes.

    `proven`: the uuid that whoever asks right now has proved by a certificate; None: nobody has to prove anything.
    """

    def __init__(self, proven: Callable[[], bytes | None] | None) -> None:
        self._proven = proven
        self._log = Log("gossipkv.node")
        self._sparing = Sparing()

    def check(self, uuid: bytes | None) -> bool:
        """Whether whoever asks has proved to be that node, None: any; False: nobody has to.  What is wrong is told.

        Raises:
            Unauthorized: it is not.
        """
        if self._proven is None:
            return False
        try:
            hello.prove(self._proven(), uuid)
        except Unauthorized as error:
            if self._sparing.lets(trio.current_time(), uuid, error.message):
                self._log.warning("peer_refused", uuid=uuid.hex() if uuid else "none", reason=error.message)
            raise
        return True


@final
class SecuredStream:
    """A connection by TLS, of which one end is ours; nothing is sent or received but when somebody waits for it."""

    def __init__(self, stream: ByteStream, end: TlsEnd) -> None:
        self._stream = stream
        self._end = end

    async def shake(self) -> bytes | None:
        """Shake hands; the uuid that the other end's certificate proves.

        Raises:
            OSError: it breaks.
            Unauthorized, ProtocolError: one of the two refuses the other.
        """
        done = False
        while not done:
            try:
                done = self._end.shake()
            finally:
                await self._flush()  # Also an alert, which tells the other why.
            if not done and not await self._receive():
                raise ConnectionResetError(errno.ECONNRESET, "closed amid a handshake")
        return self._end.uuid

    async def send_all(self, data: bytes) -> None:
        """All of it.  Raises as `shake`."""
        self._end.write(data)
        await self._flush()

    async def receive_some(self, most_bytes: int) -> bytes:
        """What has come, at least one byte; nothing at its end.  Raises as `shake`."""
        while (data := self._end.read(most_bytes)) is None:
            if not await self._receive():
                return b""
        return data

    def detach(self) -> object:
        """What a serving loop goes on with."""
        descriptor = self._stream.detach()
        assert isinstance(descriptor, int), "TLS needs the operating system's sockets"
        return self._end.at(descriptor)

    async def aclose(self) -> None:
        """End it."""
        await self._stream.aclose()

    async def _receive(self) -> bool:
        received = await self._stream.receive_some(RECEIVE_BYTES)
        self._end.feed(received)
        return bool(received)

    async def _flush(self) -> None:
        if output := self._end.take_output():
            await self._stream.send_all(output)
