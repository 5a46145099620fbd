"""Read options of a request, as options of the wire.

`?proxy=true` lets a node answer only from its own data, and `?proxy=VERSION` from that version.  `X-Sequins-Version`
names the exact version, `X-GossipKV-Min-Version` the oldest acceptable one, `X-GossipKV-Timeout-Ms` the time allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value

PIN: Final = b"x-sequins-version"
MIN_VERSION: Final = b"x-gossipkv-min-version"
TIMEOUT: Final = b"x-gossipkv-timeout-ms"
STEERING: Final = frozenset({PIN, MIN_VERSION, TIMEOUT})

MAX_TIMEOUT_MS: Final = 60_000  # A load balancer in front has given up by then.

_PROXY: Final = "proxy"
_ANY_VERSION: Final = "true"  # The value in Sequins' manual; its nodes send the version.


@final
class ReadSession:
    """The newest version per database from which a gateway without a node answered, so that it never steps back.

    Versions compare as strings.  Only databases that nodes have answered for are kept, so clients cannot make it grow.
    """

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}

    def min_version(self, database: str) -> str | None:
        """Return the oldest version for an answer, or None before the first."""
        return self._newest.get(database)

    def saw(self, database: str, version: str) -> None:
        """Note that a version has answered."""
        if version > self._newest.get(database, ""):
            self._newest[database] = version


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes:
        wire: The options in a request of the wire.
        timeout_ms: Time allowed, or None for the usual.
        is_proxied: The request seems to come from a node of Sequins' kind, and no other node may be asked.
        names_version: The answer depends on a version that was named, or answered earlier.
    """

    wire: dict[str, Value]
    timeout_ms: int | None = None
    is_proxied: bool = False
    names_version: bool = False


PLAIN: Final = ReadOptions({})


def read_options(
    headers: Mapping[bytes, bytes], target: RequestTarget, database: str, *, alone: bool, session: ReadSession | None
) -> ReadOptions:
    """Return the options of a request; `alone`: the gateway has no node that could answer locally.

    Raises:
        BadRequest: an option is unknown, malformed, or contradicts another.
    """
    if STEERING.isdisjoint(headers) and not target.options and session is None:
        return PLAIN
    wire: dict[str, Value] = {}
    proxy = _proxy(target.options)
    if proxy is not None:
        if alone:
            raise BadRequest("proxy: this gateway holds nothing that it could answer from; ask a node's own address")
        wire["local"] = True
    version = _version(headers, proxy)
    min_version = _text(headers, MIN_VERSION) or None
    if version is not None:
        wire["version"] = version
    elif session is not None:
        min_version = max(filter(None, (min_version, session.min_version(database))), default=None)
    if min_version is not None:
        wire["min_version"] = min_version
    timeout_ms = _timeout_ms(headers)
    if timeout_ms is not None:
        wire["timeout_ms"] = timeout_ms
    return ReadOptions(wire, timeout_ms, proxy is not None, version is not None or min_version is not None)


def _proxy(options: Mapping[str, str]) -> str | None:
    """Return the option `proxy`, or None if it is absent or empty."""
    for name in options:
        if name != _PROXY:
            raise BadRequest(f"unknown option {name[:60]!r} behind the ?; a ? that belongs to the key is %3F")
    return options.get(_PROXY) or None


def _version(headers: Mapping[bytes, bytes], proxy: str | None) -> str | None:
    """Return the only version that may answer, or None."""
    version = _text(headers, PIN)
    if version == "":
        raise BadRequest("X-Sequins-Version is empty: name a version, or leave the header away")
    if proxy is None or proxy == _ANY_VERSION:
        return version
    if version not in {None, proxy}:
        raise BadRequest(f"proxy={proxy[:60]} and X-Sequins-Version: {version} name two versions")
    return proxy


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name.decode()} is not UTF-8: {error.reason} at byte {error.start}") from None


def _timeout_ms(headers: Mapping[bytes, bytes]) -> int | None:
    value = headers.get(TIMEOUT)
    if value is None:
        return None
    timeout_ms = int(value) if value.isdigit() and len(value) <= len(str(MAX_TIMEOUT_MS)) else 0
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise BadRequest(f"X-GossipKV-Timeout-Ms must be a whole number from 1 to {MAX_TIMEOUT_MS}")
    return timeout_ms
