"""The settings of RESP: where a node answers clients of Redis, and what their databases are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gossipkv.settings.setting import plain, read_listen

if TYPE_CHECKING:
    from gossipkv.address import Address

_NAME: Final = re.compile(r"[-_a-zA-Z0-9]{1,255}")
_FORM: Final = "names of databases, several with commas between"


def read_databases(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    if text.strip() in {"", "none"}:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(_NAME.fullmatch(name) for name in names):
        raise ValueError(f"expected {_FORM}")
    return names


@dataclass(frozen=True, kw_only=True)
class RespSettings:
    """How a node answers clients of Redis; limits are those of serving."""

    resp_listen: Address | None = field(
        default=None,
        metadata=plain(
            "address", "off", "HOST:PORT, port 0 for any free one, or off", read_listen,
            meaning="where the node answers RESP, protocol 2 and 3, for clients of Redis",
            why="a further port is opened by whoever wants it",
        ),
    )  # fmt: skip
    resp_databases: tuple[str, ...] = field(
        default=(),
        metadata=plain(
            "text", "none", _FORM, read_databases,
            meaning="what SELECT 1, 2 and so on mean; with SELECT 0 the first colon of a key divides database and key",
            why="clients of Redis number databases, and only who runs them knows the order",
        ),
    )  # fmt: skip
