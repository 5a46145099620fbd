"""Settings of a client's sockets."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Protocol

    class Tunable(Protocol):
        """A socket of the system, or Trio's."""

        def setsockopt(self, level: int, option: int, value: int, /) -> object: ...


# A connection whose other machine is gone ends within a minute, also while nothing is asked.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def tune(connection: Tunable) -> None:
    """Send requests without a delay, and probe a quiet connection, as far as the system can."""
    options = {socket.TCP_NODELAY: 1}
    options |= {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
    with contextlib.suppress(OSError):  # A connection that is gone reports so at the first request.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
