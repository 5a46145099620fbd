"""What a simulation serves its nodes' connections with: streams in the place of the system's sockets.

The loop, and with it the order of a round, is the one of `loop/loop.pyx`; `streams.pyx` is what calls these methods.
Time stands still while a round lasts, so its budgets in time mean nothing here.
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
    """The server's end of a connection; nothing here waits."""

    @property
    def is_broken(self) -> bool: ...

    @property
    def is_readable(self) -> bool:
        """Whether `receive` has something to give: bytes, the end, or an error."""
        ...

    @property
    def room_bytes(self) -> int: ...

    def receive(self, most_bytes: int) -> bytes | None:
        """What has arrived; nothing at its end; None: not yet.

        Raises:
            OSError: the connection is broken.
        """
        ...

    def send(self, data: bytes) -> None:
        """Requires: not more than there is room for."""
        ...

    def close(self) -> None:
        """End it behind what was sent; what still comes is thrown away, but for the peer's end.  Again does nothing."""
        ...

    def abort(self) -> None: ...


@runtime_checkable
class StreamListener(SocketListener, Protocol):
    """A listener whose connections are streams; its descriptor is readable when one of them has moved as well."""

    @property
    def is_readable(self) -> bool: ...

    def accept(self) -> ServedStream | None: ...

    def watch(self, stream: ServedStream) -> None:
        """Make the descriptor readable when that one moves, too."""
        ...

    def wake(self) -> None: ...


def over_streams(clock: EnvironmentClock) -> MakeTransport:
    """What makes such transports, for `node.run`, whose environment's sockets have to be streams."""

    def make(listener: SocketListener | None, *beside: SocketListener | None, polls: bool) -> Streams:
        assert isinstance(listener, StreamListener), listener
        assert not any(beside), "simulated clients speak MessagePack-RPC"
        del polls  # Nothing comes while one looks out: time stands still.
        return Streams(listener, clock)

    return make
