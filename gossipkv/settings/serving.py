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
        meaning="largest request",
        why="holds the largest value with its key; clients, too, read nothing longer",
    )  # fmt: skip
    max_depth: int = count(
        32, 4, 32,
        meaning="containers within containers in a request",
        why="the scanner has room for 32; plain requests need 4",
    )  # fmt: skip
    max_elements: int = count(
        16_384, 12_288, 1_048_576,
        meaning="elements in a request, keys and values of maps each",
        why="a get_many of 16,000 keys holds up others for about 2 ms; clients ask for more in parts",
    )  # fmt: skip
    max_key: int = size(
        "65535B", "1B", "65535B",
        meaning="longest key in a request",
        why="the longest that a sorted file can hold",
    )  # fmt: skip
    max_value: int = size(
        "16MiB", "1B", "16MiB",
        meaning="longest value in an answer; a longer one is refused as TOO_LARGE",
        why="the longest that a sorted file can hold",
    )  # fmt: skip
    max_connections: int = count(
        10_000, 1, 1_000_000,
        meaning="connections open at once; further ones are closed, and before that silent ones make way",
        why="each costs a descriptor and a few KiB, by TLS 15",
    )  # fmt: skip
    max_connections_per_address: int = count(
        _HALF, 1, 1_000_000, words={"half": _HALF, "off": 0},
        meaning="those of one IPv4 address or one IPv6 network of 64 bits; further ones are closed",
        why="half of max_connections: no one can take all; off where everybody comes through one proxy",
    )  # fmt: skip
    max_in_flight: int = count(
        1000, 1, 100_000,
        meaning="unanswered requests of one connection before its reading pauses",
        why="ten times what a pipelining client needs to hide a round trip",
    )  # fmt: skip
    max_in_flight_total: int = count(
        65_536, 1, 1_000_000,
        meaning="unanswered requests of all connections; a further one is refused as OVERLOADED",
        why="an answer that takes time holds a task of some KiB",
    )  # fmt: skip
    max_queued: int = size(
        "4MiB", "64KiB", "1GiB",
        meaning="answers waiting for one connection's peer before its reading pauses",
        why="a peer that does not read must not hold the node's memory",
    )  # fmt: skip
    max_queued_total: int = size(
        "256MiB", "1MiB", "1TiB",
        meaning="requests and answers held for all connections; beyond, whoever holds most is closed",
        why="room for 15 of the largest requests, or 64 peers that do not read",
    )  # fmt: skip
    frame_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time for a half-sent request to arrive whole",
        why="the largest request needs 3 s on a 100 Mbit/s line",
    )  # fmt: skip
    output_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time in which a peer takes nothing of the answers that wait for it, until it is closed",
        why="longer than a client's pause for garbage collection; its answers are held meanwhile",
    )  # fmt: skip
    idle_timeout: int = duration(
        "1h", "1s", "30d", zero="off",
        meaning="time without a request until a connection is closed",
        why="clients keep connections; those that vanished without a word must end one day",
    )  # fmt: skip
    drain_timeout: int = duration(
        "10s", "0s", "1h",
        meaning="when the node stops: time for others to build what it alone has, then for requests in flight",
        why="twice that is well below the 30 s after which supervisors kill",
    )  # fmt: skip
    busy_poll: str = choice(
        "auto", ("auto", "on", "off"),
        meaning="whether the node looks out for the next request for up to 50 µs before it sleeps",
        why="auto: while requests follow each other that closely, and only if it may run on a second core",
    )  # fmt: skip
    pumps: int = count(
        _AUTO, 1, 64, words={"auto": _AUTO},
        meaning="threads that serve; auto: as many as the cores granted, at most 8",
        why="each serves connections of its own with a core of its own",
    )  # fmt: skip
    scan_limit: int = count(
        1000, 1, 100_000,
        meaning="most records in one answer to a scan",
        why="a long scan comes in pages, so it holds up no one for more than a moment",
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
_FORM: Final = "names of databases, several with commas between"


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
    """The answers of a node to Redis clients; limits are those of serving."""

    resp_listen: Address | None = plain(
        None, "address", "off", "HOST:PORT, port 0 for any free one, or off", read_listen,
        meaning="where the node answers RESP, protocol 2 and 3, for clients of Redis",
        why="a further port is opened by whoever wants it",
    )  # fmt: skip
    resp_databases: tuple[str, ...] = plain(
        (), "text", "none", _FORM, read_databases,
        meaning="what SELECT 1, 2 and so on mean; with SELECT 0 the first colon of a key divides database and key",
        why="clients of Redis number databases, and only who runs them knows the order",
    )  # fmt: skip
