"""Dialling of other nodes: plainly, or with `tls_peers` by TLS with certificates on both sides.

Addresses are not checked: a node is known by its uuid, which its certificate proves, or by its name if the certificate
has no uuid. A certificate that is read anew (`node.certificate`) holds for connections dialled from then on.
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
    from collections.abc import Callable, Collection

    from gossipkv.address import Address
    from gossipkv.environment.seam import ByteStream, SocketFactory
    from gossipkv.node.peers.hello import Proven
    from gossipkv.serving.loop import Tls

RECEIVE_BYTES: Final = 16_384


@final
class Dialling:
    """Dials other nodes, over these sockets."""

    def __init__(self, sockets: SocketFactory) -> None:
        self._sockets = sockets
        self._tls: Tls | None = None

    def use_tls(self, tls: Tls) -> None:
        """Make nodes that are dialled from now on prove their identity, if `tls` names the authorities for nodes."""
        self._tls = tls if tls.knows_peers else None

    @property
    def proves(self) -> bool:
        """True if dialled nodes must prove their identity by a certificate."""
        return self._tls is not None

    async def connect(self, to: Address, uuid: bytes | None = None, name: str = "") -> ByteStream:
        """Return a connection to the node of that uuid and name at a numeric address; None: to any node of the cluster.

        Only TLS checks the identity.

        Raises:
            OSError: no node answers.
            Unauthorized, ProtocolError: the other end is not that node, or does not accept this one as a node.
        """
        stream = await self._sockets.connect(to)
        if self._tls is None:
            return stream
        secured = SecuredStream(stream, TlsEnd(self._tls))
        try:
            hello.prove(await secured.shake(), uuid, (name,))
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.aclose()
            raise
        return secured


@final
class Proofs:
    """Checks that callers which act as nodes are nodes.

    `proven` returns what the current caller proved by a certificate; pass None if no proofs are required. `names`
    returns the names by which gossip knows the node of a uuid.
    """

    def __init__(
        self, proven: Callable[[], Proven | None] | None, names: Callable[[bytes], Collection[str]] = lambda _: ()
    ) -> None:
        self._proven, self._names = proven, names
        self._log = Log("gossipkv.node")
        self._sparing = Sparing()

    def check(self, uuid: bytes | None) -> bool:
        """Return True if the caller proved to be that node, or any node for None; False if no proof is required.

        Raises:
            Unauthorized: the caller did not; this is also logged.
        """
        if self._proven is None:
            return False
        try:
            hello.prove(self._proven(), uuid, () if uuid is None else self._names(uuid))
        except Unauthorized as error:
            if self._sparing.lets(trio.current_time(), uuid, error.message):
                self._log.warning("peer_refused", uuid=uuid.hex() if uuid else "none", reason=error.message)
            raise
        return True


@final
class SecuredStream:
    """One end of a TLS connection; bytes are sent and received only while a method waits for them."""

    def __init__(self, stream: ByteStream, end: TlsEnd) -> None:
        self._stream = stream
        self._end = end

    async def shake(self) -> Proven | None:
        """Do the handshake; return the uuid or the names that the other end's certificate proves.

        Raises:
            OSError: the connection breaks.
            Unauthorized, ProtocolError: one of the two refuses the other.
        """
        done = False
        while not done:
            try:
                done = self._end.shake()
            finally:
                await self._flush()  # Also an alert, which tells the other end the reason.
            if not done and not await self._receive():
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed during the handshake")
        return self._end.proven

    async def send_all(self, data: bytes) -> None:
        """Send all of the data. Raises as `shake`."""
        self._end.write(data)
        await self._flush()

    async def receive_some(self, most_bytes: int) -> bytes:
        """Return at least one byte, or nothing at the end of the stream. Raises as `shake`."""
        while (data := self._end.read(most_bytes)) is None:
            if not await self._receive():
                return b""
        return data

    def detach(self) -> object:
        """Return the connection in the form that a serving loop takes over."""
        descriptor = self._stream.detach()
        assert isinstance(descriptor, int), "TLS needs the operating system's sockets"
        return self._end.at(descriptor)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def _receive(self) -> bool:
        received = await self._stream.receive_some(RECEIVE_BYTES)
        self._end.feed(received)
        return bool(received)

    async def _flush(self) -> None:
        if output := self._end.take_output():
            await self._stream.send_all(output)
