"""The settings of access: users, and the certificates that identify nodes and clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.settings.setting import plain, read_path

if TYPE_CHECKING:
    from pathlib import Path

LISTENERS: Final = ("listen", "resp_listen", "http_listen")
_LISTENERS_FORM: Final = f"all, or some of {', '.join(LISTENERS)} with commas between"


def read_listeners(text: str) -> tuple[str, ...]:
    """Parse names of listener settings, separated by commas."""
    names = LISTENERS if text.strip() == "all" else tuple(part.strip() for part in text.split(","))
    if not set(names) <= set(LISTENERS):
        raise ValueError(f"expected {_LISTENERS_FORM}")
    return names


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """The users and peers that a node knows, and its own certificate."""

    users: Path | None = plain(
        None, "path", "none", "a file of users that this user alone can read", read_path,
        meaning="who may do what, by a token or by a certificate",
        why="without one whoever reaches a port may do all that is done there",
    )  # fmt: skip
    tls_certificate: Path | None = plain(
        None, "path", "none", "a file in PEM, with those that signed it behind it", read_path,
        meaning="this node's certificate, for TLS at its ports; goes with `tls_key`",
        why="only whoever runs the node can say who it is",
    )  # fmt: skip
    tls_key: Path | None = plain(
        None, "path", "none", "a file in PEM that this user alone can read", read_path,
        meaning="the key of `tls_certificate`",
        why="only whoever runs the node has it",
    )  # fmt: skip
    tls_listeners: tuple[str, ...] = plain(
        LISTENERS, "text", "all", _LISTENERS_FORM, read_listeners,
        meaning="where TLS is spoken, once there is a `tls_certificate`, and nothing else",
        why="a port that is forgotten must not be the open one",
    )  # fmt: skip
    tls_clients: Path | None = plain(
        None, "path", "none", "a file of certificates in PEM", read_path,
        meaning="authorities that sign certificates of clients, whose names are those of users",
        why="tokens are enough for most",
    )  # fmt: skip
    tls_peers: Path | None = plain(
        None, "path", "none", "a file of certificates in PEM", read_path,
        meaning="authorities that sign certificates of nodes, for TLS between them; goes with `tls_certificate`",
        why="only whoever built the cluster knows who signs for it",
    )  # fmt: skip
