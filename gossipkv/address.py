"""Addresses of nodes: `host:port`, with IPv6 hosts in brackets (`[::1]:7070`)."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 7070
_LAST_PORT: Final = 65_535


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6 address without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that `text` names.

    Raises:
        ValueError: the text is not `host:port`, or the port is not in 0..65535.
    """
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or host.endswith("]"):
        raise ValueError(f"expected HOST:PORT, with an IPv6 host in brackets ([::1]:{DEFAULT_PORT}), got {text!r}")
    if not (host and colon) or " " in host or not host.isprintable():
        raise ValueError(f"expected HOST:PORT, for example 127.0.0.1:{DEFAULT_PORT}, got {text!r}")
    if not (port.isascii() and port.isdigit()) or len(port) > len(str(_LAST_PORT)) or int(port) > _LAST_PORT:
        raise ValueError(f"expected a port from 0 to {_LAST_PORT} after the colon, got {text!r}")
    return Address(host, int(port))
