"""What a request says of how it is to be read, as options of the wire.

`?proxy=true` has a node answer from what it holds, and `?proxy=VERSION` from that version; `X-Sequins-Version` names
exactly one version, `X-GossipKV-Min-Version` the oldest that will do, `X-GossipKV-Timeout-Ms` the time allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.http.target import Target
    from gossipkv.wire.rpc import Value

PIN: Final = b"x-sequins-version"
MIN_VERSION: Final = b"x-gossipkv-min-version"
TIMEOUT: Final = b"x-gossipkv-timeout-ms"
STEERING: Final = frozenset({PIN, MIN_VERSION, TIMEOUT})

MAX_TIMEOUT_MS: Final = 60_000  # A balancer in front has given up by then.

_PROXY: Final = "proxy"
_ANY_VERSION: Final = "true"  # What Sequins' manual says; its nodes send the version.


@final
class Session:
    """The newest version that a gateway which stands alone answered from, by database, so that it never steps back.

    Versions compare as strings.  It remembers databases that nodes have answered for, so it does not grow by what
    clients invent.
    """

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}

    def min_version(self, database: str) -> str | None:
        """Return what an answer must not be older than, or None before the first."""
        return self._newest.get(database)

    def saw(self, database: str, version: str) -> None:
        """Remember that a version has answered."""
        if version > self._newest.get(database, ""):
            self._newest[database] = version


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    Attributes:
        wire: As they stand in a request of the wire.
        timeout_ms: Time allowed, or None for the usual.
        is_proxied: Whether another node of Sequins' kind seems to ask, and nobody else may be asked.
        names_version: Whether the answer depends on a version that is named, or on one that was answered before.
    """

    wire: dict[str, Value]
    timeout_ms: int | None = None
    is_proxied: bool = False
    names_version: bool = False


PLAIN: Final = ReadOptions({})


def read_options(
    headers: Mapping[bytes, bytes], target: Target, database: str, *, alone: bool, session: Session | None
) -> ReadOptions:
    """Return what a request says; `alone`: there is no node that it could be answered from without asking others.

    Raises:
        BadRequest: what it says is unknown, malformed, or contradicts itself.
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
    """The option `proxy`, or None where it is absent or says nothing."""
    for name in options:
        if name != _PROXY:
            raise BadRequest(f"unknown option {name[:60]!r} behind the ?; a ? that belongs to the key is %3F")
    return options.get(_PROXY) or None


def _version(headers: Mapping[bytes, bytes], proxy: str | None) -> str | None:
    """The one version that is to answer, or None."""
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
