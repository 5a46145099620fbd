"""The streams that replace the system's sockets in a simulation.

The loop, and with it the order of a round, is that of `loop/loop.pyx`; `streams.pyx` calls these methods.  Time stands
still during a round, so its time budgets have no effect here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gossipkv.environment.seam import SocketListener
from tests.world._world import Streams

if TYPE_CHECKING:
    from gossipkv.environment.seam import EnvironmentClock
    from gossipkv.serving.pump import MakeTransport


@runtime_checkable
class ServedStream(Protocol):
    """The server's end of a connection; its methods never wait."""

    @property
    def is_broken(self) -> bool: ...

    @property
    def is_readable(self) -> bool:
        """True if `receive` would return bytes or the end, or raise."""
        ...

    @property
    def room_bytes(self) -> int: ...

    def receive(self, most_bytes: int) -> bytes | None:
        """Return arrived bytes; empty at the end; None: nothing yet.

        Raises:
            OSError: the connection is broken.
        """
        ...

    def send(self, data: bytes) -> None:
        """Send bytes.  Requires: no more than there is room for."""
        ...

    def close(self) -> None:
        """Close after the sent bytes; drop further input except the peer's end.  A second call does nothing."""
        ...

    def abort(self) -> None: ...


@runtime_checkable
class StreamListener(SocketListener, Protocol):
    """A listener whose connections are streams; its descriptor is also readable when a stream has moved."""

    @property
    def is_readable(self) -> bool: ...

    def accept(self) -> ServedStream | None: ...

    def watch(self, stream: ServedStream) -> None:
        """Make the descriptor readable also when this stream moves."""
        ...

    def wake(self) -> None: ...


def over_streams(clock: EnvironmentClock) -> MakeTransport:
    """Return the transport factory for `node.run`; the environment's sockets must be streams."""

    def make(listener: SocketListener | None, *beside: SocketListener | None, polls: bool) -> Streams:
        assert isinstance(listener, StreamListener), listener
        assert not any(beside), "simulated clients speak MessagePack-RPC"
        del polls  # Time stands still, so polling would find nothing new.
        return Streams(listener, clock)

    return make
