"""What a node tells its gateway, a child process: lines of JSON on its standard input.

    the first     the order (`Order`): whom to ask, where connections come from, limits
    later ones    a word (`Word`): other settings of databases, or that the node is about to end

On standard output the child says one line of JSON for each line of the log: `["info", "http", {...}]`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

# Databases of these names are answered as any other but for the path beside, which is the gateway's own.
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
class Limits:
    """What the connections of a gateway may take; a time of 0 is none."""

    max_connections: int = 4096
    held_bytes: int = 256 << 20  # Requests and answers of all connections; beyond, whoever holds most is closed.
    request_timeout_ms: int = 10_000  # For a request to arrive whole.
    output_timeout_ms: int = 10_000  # In which a client takes nothing of what waits for it.
    idle_timeout_ms: int = 3_600_000


@final
@dataclass(frozen=True, slots=True)
class Types:
    """What values are by HTTP: of a database, else of all."""

    usual: str
    by_database: dict[str, str] = field(default_factory=dict)

    def of(self, database: str) -> bytes:
        """The `Content-Type` of its values."""
        return self.by_database.get(database, self.usual).encode()


@final
@dataclass(frozen=True, slots=True)
class Order:
    """What the child is to do."""

    node: Address  # Whom to ask, for what is told of it.
    connection: int  # A descriptor: the connection to that node.
    name: str  # What that node is called.
    address: Address  # Where that node answers HTTP, for the log.
    detached: int  # A descriptor: where connections come from, each with a `Peer` (`processes.passing`).
    leash: int  # A descriptor.
    types: Types
    limits: Limits
    is_secured: bool  # Whether connections come by TLS, which ends in the node.

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Return what `to_line` was called on."""
        told = json.loads(line)
        told |= {name: Address(*told[name]) for name in ("node", "address")}
        told |= {"types": Types(**told["types"]), "limits": Limits(**told["limits"])}
        return cls(**told)


class Peer(NamedTuple):
    """Who is at the other end of a connection; a line before what was read of it."""

    address: str
    user: str  # By its certificate; or `anonymous`.

    def before(self, begun: bytes) -> bytes:
        """What is passed on."""
        return f"{self.address} {self.user}\n".encode() + begun

    @classmethod
    def of(cls, passed: bytes) -> tuple[Peer, bytes]:
        """Return what `before` was called on, and with."""
        line, _, begun = passed.partition(b"\n")
        address, _, user = line.decode().partition(" ")
        return cls(address, user), begun


@final
@dataclass(frozen=True, slots=True)
class Word:
    """What changes while the child runs."""

    types: Types
    drain_ms: int | None = None  # The node ends in so much time.

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Word:
        """Return what `to_line` was called on."""
        told = json.loads(line)
        return cls(**{**told, "types": Types(**told["types"])})
