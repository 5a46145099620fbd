"""The settings of the node itself: where it keeps its files, where it is reached, what it logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.address import Address, parse_address
from gossipkv.settings.setting import choice, plain, read_advertised, read_path

if TYPE_CHECKING:
    from pathlib import Path


def _default_data() -> Path:
    from platformdirs import user_data_path  # noqa: PLC0415  # Only a node that was not told asks; clients do not pay.

    return user_data_path("gossipkv", appauthor=False)


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Where a node is: on the disk and in the network."""

    data: Path = field(
        default_factory=_default_data,
        metadata=plain(
            "path", "a platform data directory", "a directory that this node alone uses", read_path,
            meaning="where this node keeps its files; locked",
            why="the place where the system expects a program's own data",
        ),
    )  # fmt: skip
    listen: Address = field(
        default=Address("127.0.0.1", 7070),
        metadata=plain(
            "address", "127.0.0.1:7070", "HOST:PORT, port 0 for any free one", parse_address,
            meaning="where the node answers MessagePack-RPC, and gossip on the same number over UDP",
            why="only this machine, as long as there is no authentication",
        ),
    )  # fmt: skip
    advertise: Address | None = field(
        default=None,
        metadata=plain(
            "address", "as listen", "HOST:PORT, port 0 for that of listen", read_advertised,
            meaning="where other nodes reach this one",
            why="as listen; where that is every interface, the address that leads to the first of join",
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What a node says on standard error."""

    log_level: str = choice(
        "info", ("debug", "info", "warning", "error"),
        meaning="least level of the log lines written",
        why="info is a few lines a start, and one for each change",
    )  # fmt: skip
    log_format: str = choice(
        "text", ("text", "json"),
        meaning="form of the log lines on standard error",
        why="text for people; json for a collector",
    )  # fmt: skip
