"""The settings of access: users, and the certificates that identify nodes and clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.settings.setting import plain, read_path

if TYPE_CHECKING:
    from pathlib import Path

LISTENERS: Final = ("listen", "resp_listen", "http_listen")
_LISTENERS_FORM: Final = f"all, or a comma-separated list of {', '.join(LISTENERS)}"


def read_listeners(text: str) -> tuple[str, ...]:
    """Parse names of listener settings, separated by commas."""
    names = LISTENERS if text.strip() == "all" else tuple(part.strip() for part in text.split(","))
    if not set(names) <= set(LISTENERS):
        raise ValueError(f"expected {_LISTENERS_FORM}")
    return names


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Users and TLS."""

    users: Path | None = plain(
        None, "path", "none", "a users file that only the node's user can read", read_path,
        meaning="file of users and their rights",
        why="without users, every client that reaches a port has all rights there",
    )  # fmt: skip
    tls_certificate: Path | None = plain(
        None, "path", "none", "a PEM file with the certificate and its chain", read_path,
        meaning="certificate of this node, which turns on TLS; needs `tls_key`",
        why="only the operator can get one",
    )  # fmt: skip
    tls_key: Path | None = plain(
        None, "path", "none", "a PEM file that only the node's user can read", read_path,
        meaning="key of `tls_certificate`",
        why="only the operator has the key",
    )  # fmt: skip
    tls_listeners: tuple[str, ...] = plain(
        LISTENERS, "text", "all", _LISTENERS_FORM, read_listeners,
        meaning="ports that accept only TLS if `tls_certificate` is set",
        why="no port stays unencrypted because it was forgotten",
    )  # fmt: skip
    tls_clients: Path | None = plain(
        None, "path", "none", "a PEM file of certificates", read_path,
        meaning="authorities to trust for certificates of clients, which name their users",
        why="tokens suffice for most clusters",
    )  # fmt: skip
    tls_peers: Path | None = plain(
        None, "path", "none", "a PEM file of certificates", read_path,
        meaning="authorities to trust for certificates of other nodes, for TLS between nodes; needs `tls_certificate`",
        why="only the operator knows the cluster's authorities",
    )  # fmt: skip
