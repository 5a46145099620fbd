"""The first connection to a server; those that break are made again by the extension."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from gossipkv.errors import Unavailable

if TYPE_CHECKING:
    from gossipkv.address import Address


def dial(address: Address, timeout_s: float, number: int, connections: int) -> socket.socket:
    """Connection `number` of so many, which does not wait for more to send.

    Raises:
        Unavailable: it cannot be had.
    """
    try:
        connection = socket.create_connection(address, timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no name service could know.
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Unavailable(
            f"connection {number + 1} of {connections} to {address} cannot be had: {reason}",
            {"address": str(address), "connection": number + 1},
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(0)
    return connection
