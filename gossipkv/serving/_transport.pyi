from pathlib import Path
from typing import Self, final

from typing_extensions import disjoint_base

from gossipkv.environment.seam import SocketListener

__pyx_capi__: dict[str, object]

@disjoint_base
class Transport:
    polls: bool

NAMES: list[str]

@final
class Tls:
    uuid: bytes | None
    names: tuple[str, ...]
    expires_s: int
    @property
    def knows_peers(self) -> bool: ...
    def __new__(
        cls, certificate: Path, key: Path, clients: Path | None = None, peers: Path | None = None, *, listeners: int
    ) -> Self: ...

@final
class TlsClient:
    def __new__(
        cls, host: str, authorities: Path | None = None, certificate: Path | None = None, key: Path | None = None
    ) -> Self: ...

@final
class TlsEnd:
    def __new__(cls, tls: Tls) -> Self: ...
    @property
    def proven(self) -> bytes | tuple[str, ...] | None: ...
    def feed(self, data: bytes) -> None: ...
    def take_output(self) -> bytes: ...
    def shake(self) -> bool: ...
    def read(self, most: int) -> bytes | None: ...
    def write(self, data: bytes) -> None: ...
    def at(self, fd: int) -> Self: ...

@final
class TlsConnections: ...

@final
class Tunnels:
    count: int

@final
class Sockets(Transport):
    def __new__(cls, listener: SocketListener | None, *beside: SocketListener | None, polls: bool) -> Self: ...
