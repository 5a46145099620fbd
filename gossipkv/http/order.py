"""Messages from a node to its gateway, a child process: lines of `order_line` on its standard input.

    the first     the order (`GatewayOrder`): the node to ask, the source of connections, limits
    later ones    a word (`GatewayWord`): changed settings of databases, or the node's coming end

On standard output the child writes one line of JSON for each line of the log: `["info", "http", {...}]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.address import Address

# A database with one of these names is answered like any other, except for the path beside it, which belongs to the
# gateway.
HIDING: Final[Mapping[str, str]] = MappingProxyType({
    "healthz": "/healthz",
    "livez": "/livez",
    "readyz": "/readyz",
    "metrics": "/metrics",
    "debug": "/debug/vars",
    "static": "/static/...",
})  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The limits on connections of a gateway; a time of 0 means no limit."""

    max_connections: int = 4096
    held_bytes: int = 256 << 20  # Requests and answers of all connections; above, the largest holder is closed.
    request_timeout_ms: int = 10_000  # A request must arrive completely in this time.
    output_timeout_ms: int = 10_000  # A client must take a piece of its answer in this time.
    idle_timeout_ms: int = 3_600_000
    max_streams_of_address: int = 250  # Half of the polls that a node takes on the gateway's connection; 0: no limit.


@final
@dataclass(frozen=True, slots=True)
class Types:
    """The content types of values: by database, else the usual one."""

    usual: str
    by_database: dict[str, str] = field(default_factory=dict)

    def of(self, database: str) -> bytes:
        """Return the `Content-Type` of a database's values."""
        return self.by_database.get(database, self.usual).encode()


@final
@dataclass(frozen=True, slots=True)
class GatewayOrder:
    """The order for the child."""

    node: Address  # The node to ask, as shown in messages.
    connection: int  # Descriptor of the connection to that node.
    name: str  # Name of that node.
    address: Address  # The node's address for HTTP, for the log.
    detached: int  # Descriptor of the socket with connections, each with a `GatewayPeer` (`processes.passing`).
    leash: int  # Descriptor of the leash.
    types: Types
    limits: GatewayLimits
    hosts: str  # The names that `Host` may have, separated by spaces; empty: any.
    is_secured: bool  # True if connections come by TLS, which ends in the node.


class GatewayPeer(NamedTuple):
    """The client of a connection; it is sent as a line before the bytes already read."""

    address: str
    user: str  # The certificate names the user; without one it is `anonymous`.

    def before(self, begun: bytes) -> bytes:
        """Encode the peer and the bytes already read."""
        return f"{self.address} {self.user}\n".encode() + begun

    @classmethod
    def of(cls, passed: bytes) -> tuple[GatewayPeer, bytes]:
        """Decode the result of `before`: the peer and the bytes."""
        line, _, begun = passed.partition(b"\n")
        address, _, user = line.decode().partition(" ")
        return cls(address, user), begun


@final
@dataclass(frozen=True, slots=True)
class GatewayWord:
    """Changes while the child runs."""

    types: Types
    drain_ms: int | None = None  # The node ends within this time.
