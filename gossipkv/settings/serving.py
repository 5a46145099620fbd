"""The settings of serving: limits for a request, a connection and all connections; RESP listeners."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.settings.setting import choice, count, duration, plain, read_listen, size

if TYPE_CHECKING:
    from gossipkv.address import Address


_HALF: Final = -1
_AUTO: Final = -1
MAX_PUMPS: Final = 8  # The maximum for `auto`.


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """Limits of requests and connections; durations in ms, sizes in bytes."""

    max_frame: int = size(
        "17MiB", "64KiB", "17MiB",
        meaning="maximum size of a request",
        why="the largest value fits with its key; clients have the same limit for answers",
    )  # fmt: skip
    max_depth: int = count(
        32, 4, 32,
        meaning="maximum depth of nested lists and maps in a request",
        why="plain requests need 4",
    )  # fmt: skip
    max_elements: int = count(
        16_384, 12_288, 1_048_576,
        meaning="maximum number of elements in a request; keys and values of maps count separately",
        why="a get_many of 16,000 keys delays others by about 2 ms; clients split larger ones",
    )  # fmt: skip
    max_key: int = size(
        "65535B", "1B", "65535B",
        meaning="maximum size of a key in a request",
        why="the limit of sorted files",
    )  # fmt: skip
    max_value: int = size(
        "16MiB", "1B", "16MiB",
        meaning="maximum size of a value in an answer; larger values are refused as TOO_LARGE",
        why="the limit of sorted files",
    )  # fmt: skip
    max_connections: int = count(
        10_000, 1, 1_000_000,
        meaning="maximum number of connections; for a further one, a silent connection is closed, else the new one",
        why="each connection costs a descriptor and a few KiB, with TLS 15",
    )  # fmt: skip
    max_connections_per_address: int = count(
        _HALF, 1, 1_000_000, words={"half": _HALF, "off": 0},
        meaning=(
            "maximum number of connections from one IPv4 address or one IPv6 network of 64 bits; further ones are "
            "closed"
        ),
        why="half of `max_connections`, so no client can take all; turn it off if all clients come through one proxy",
    )  # fmt: skip
    max_in_flight: int = count(
        1000, 1, 100_000,
        meaning="number of unanswered requests of a connection at which the node stops reading from it",
        why="ten times the need of a pipelining client",
    )  # fmt: skip
    max_in_flight_total: int = count(
        65_536, 1, 1_000_000,
        meaning="maximum number of unanswered requests of all connections; further requests are refused as OVERLOADED",
        why="each waiting request takes some KiB",
    )  # fmt: skip
    max_queued: int = size(
        "4MiB", "64KiB", "1GiB",
        meaning="size of answers waiting for a client at which the node stops reading from it",
        why="a client that does not read must not fill the node's memory",
    )  # fmt: skip
    max_queued_total: int = size(
        "256MiB", "1MiB", "1TiB",
        meaning=(
            "maximum size of requests and answers of all connections; beyond, the connection that holds most is "
            "closed"
        ),
        why="room for 15 of the largest requests, or for 64 clients that do not read",
    )  # fmt: skip
    frame_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time for a request to arrive completely",
        why="the largest request needs 3 s on a 100 Mbit/s line",
    )  # fmt: skip
    output_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time without progress in sending answers after which a connection is closed",
        why="longer than a client's pause of garbage collection",
    )  # fmt: skip
    idle_timeout: int = duration(
        "1h", "1s", "30d", zero="off",
        meaning="time without a request after which a connection is closed",
        why="clients keep connections, and those of vanished clients must end",
    )  # fmt: skip
    drain_timeout: int = duration(
        "10s", "0s", "1h",
        meaning=(
            "time at a stop for other nodes to build data that only this node has, and again for requests in flight"
        ),
        why="twice this time is below the 30 s after which supervisors kill",
    )  # fmt: skip
    busy_poll: str = choice(
        "auto", ("auto", "on", "off"),
        meaning="wait for up to 50 µs for the next request without sleep, at the cost of processor time",
        why="while requests follow closely, and if there is a second core",
    )  # fmt: skip
    pumps: int = count(
        _AUTO, 1, 64, words={"auto": _AUTO},
        meaning="number of threads that serve requests",
        why="one for each granted core, at most 8",
    )  # fmt: skip
    scan_limit: int = count(
        1000, 1, 100_000,
        meaning="maximum number of records in one page of a scan",
        why="pages keep a long scan from delaying other requests",
    )  # fmt: skip

    def pumps_for(self, cores: int) -> int:
        """Return how many threads serve with so many granted cores."""
        return min(MAX_PUMPS, max(1, cores)) if self.pumps == _AUTO else self.pumps

    @property
    def connections_per_address(self) -> int:
        """The maximum number of connections from one address; 0: unlimited."""
        if self.max_connections_per_address == _HALF:
            return max(1, self.max_connections // 2)
        return self.max_connections_per_address


_NAME: Final = re.compile(r"[-_a-zA-Z0-9]{1,255}")
_FORM: Final = "names of databases, comma-separated"


def read_databases(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    if text.strip() in {"", "none"}:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(_NAME.fullmatch(name) for name in names):
        raise ValueError(f"expected {_FORM}")
    return names


@dataclass(frozen=True, kw_only=True)
class RespSettings:
    """Redis clients; limits are those of serving."""

    resp_listen: Address | None = plain(
        None, "address", "off", "HOST:PORT, or off; port 0 means any free port", read_listen,
        meaning="address for Redis clients (RESP 2 and 3)",
        why="a port is opened only on request",
    )  # fmt: skip
    resp_databases: tuple[str, ...] = plain(
        (), "text", "none", _FORM, read_databases,
        meaning=(
            "databases that Redis clients choose by SELECT 1, 2 and so on; after SELECT 0, keys are written as "
            "DATABASE:KEY"
        ),
        why="only the operator knows the order",
    )  # fmt: skip
