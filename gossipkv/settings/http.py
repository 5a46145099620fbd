"""The settings of HTTP: its listener, the media type of values, and the gateway's connections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.settings.setting import count, plain, read_listen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.address import Address

# A media type of RFC 9110, including parameters; it cannot contain the start of another header.
_MEDIA_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+( *;[ -~]*)?")
MEDIA_TYPE_FORM: Final = "TYPE/SUBTYPE, with parameters after a semicolon"
USUAL_MEDIA_TYPE: Final = "application/octet-stream"


def is_media_type(text: str) -> bool:
    """Return True if the text is valid in a `Content-Type`."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def read_media_type(text: str) -> str:
    """Check the media type of values.

    Raises:
        ValueError: the text is no media type.
    """
    if not is_media_type(text.strip()):
        raise ValueError("expected a media type, such as text/plain; charset=utf-8")
    return text.strip()


_HOST: Final = re.compile(r"[-_a-zA-Z0-9]+(\.[-_a-zA-Z0-9]+)*\.?")
_ANY_HOST: Final = "*"
_HOSTS_FORM: Final = f"names of hosts without ports, comma-separated; or {_ANY_HOST} for any"


def read_hosts(text: str) -> tuple[str, ...]:
    """Parse names of hosts, separated by commas.  Raises ValueError."""
    names = () if text.strip() in {"", "none"} else tuple(part.strip() for part in text.split(","))
    if not all(name == _ANY_HOST or _HOST.fullmatch(name) for name in names):
        raise ValueError(f"expected {_HOSTS_FORM}")
    return names


def expected_hosts(own: Iterable[Address | None], further: Iterable[str]) -> str:
    """Return the names that `Host` may have, in lower case, separated by spaces; empty: any."""
    names = ["localhost", *(address.host for address in own if address is not None), *further]
    return "" if _ANY_HOST in further else " ".join(dict.fromkeys(name.lower().removesuffix(".") for name in names))


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """HTTP and the status page.

    Times are those of serving: `frame_timeout` for a request to arrive whole, `output_timeout`, `idle_timeout`,
    `drain_timeout`; and so is `max_queued_total`, for the data that the gateway holds for all its connections.
    """

    http_listen: Address | None = plain(
        None, "address", "off", "HOST:PORT, or off; port 0 means any free port", read_listen,
        meaning="address for HTTP and the status page",
        why="a port is opened only on request; `gossipkv cluster` opens it",
    )  # fmt: skip
    content_type: str = plain(
        USUAL_MEDIA_TYPE, "text", USUAL_MEDIA_TYPE, MEDIA_TYPE_FORM, read_media_type,
        meaning="media type of values by HTTP, unless the database has its own",
        why="bytes of unknown type",
    )  # fmt: skip
    http_hosts: tuple[str, ...] = plain(
        (), "hosts", "none", _HOSTS_FORM, read_hosts,
        meaning=(
            "further names in the `Host` of HTTP requests, in addition to addresses, `localhost` and the names in "
            "`advertise`, `listen` and `http_listen`; with `users`, any name is accepted"
        ),
        why="DNS rebinding makes other sites' pages reach a node under their own names",
    )  # fmt: skip
    http_max_connections: int = count(
        4096, 1, 1_000_000,
        meaning=(
            "maximum number of HTTP connections; for a further one, the longest idle connection is closed, else the "
            "new one is refused"
        ),
        why="each connection costs the gateway a descriptor and some KiB",
    )  # fmt: skip
