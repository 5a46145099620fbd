"""Options of a request, as options of the wire.

`?proxy=true` lets a node answer only from its own data, and `?proxy=VERSION` from that version.  `X-Sequins-Version`
names the exact version, `X-GossipKV-Min-Version` the oldest acceptable one, `X-GossipKV-Timeout-Ms` the time allowed.
`GossipKV-Token` shows what a session has seen of tables, and `X-GossipKV-Wait-Ms` how long a replica may wait for that.
`?level=LEVEL` or `X-GossipKV-Level` says what a write must reach, `GossipKV-TTL` how long its records live, in seconds.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest
from gossipkv.http.answers import RefusedRequest, text
from gossipkv.settings.tables import MAX_TTL_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value

PIN: Final = b"x-sequins-version"
MIN_VERSION: Final = b"x-gossipkv-min-version"
TIMEOUT: Final = b"x-gossipkv-timeout-ms"
WAIT: Final = b"x-gossipkv-wait-ms"
SHOWN: Final = b"gossipkv-token"  # Tokens in Base64; several, in one header or more, are as one.
LEVEL: Final = b"x-gossipkv-level"
TTL: Final = b"gossipkv-ttl"
STEERING: Final = frozenset({PIN, MIN_VERSION, TIMEOUT, WAIT, SHOWN})

MAX_TIMEOUT_MS: Final = 60_000  # A load balancer in front has given up by then.

_UNCONDITIONAL: Final = "conditional writes are not supported; omit the header"
_PROXY: Final = "proxy"
_LEVEL: Final = "level"
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
    headers: Mapping[bytes, bytes], target: RequestTarget, *, alone: bool, session: ReadSession | None
) -> ReadOptions:
    """Return the options of a read; `alone`: the gateway has no node that could answer locally.

    Raises:
        BadRequest: an option is unknown, malformed, or contradicts another.
    """
    if STEERING.isdisjoint(headers) and not target.options and session is None:
        return PLAIN
    wire: dict[str, Value] = {}
    proxy = _proxy(target.options)
    if proxy is not None:
        if alone:
            raise BadRequest(
                "proxy: this gateway has no data of its own; send the request to the HTTP address of a node"
            )
        wire["local"] = True
    version = _version(headers, proxy)
    min_version = _text(headers, MIN_VERSION) or None
    if version is not None:
        wire["version"] = version
    elif session is not None:
        min_version = max(filter(None, (min_version, session.min_version(target.database or ""))), default=None)
    if min_version is not None:
        wire["min_version"] = min_version
    timeout_ms = _put_session(headers, wire)
    return ReadOptions(wire, timeout_ms, proxy is not None, version is not None or min_version is not None)


def write_options(headers: Mapping[bytes, bytes], target: RequestTarget) -> ReadOptions:
    """Return the options of a write.

    Raises:
        RefusedRequest: it has a condition.
        BadRequest: an option is unknown, malformed, or contradicts another.
    """
    conditions = [name for name in headers if name.startswith(b"if-") or name == b"if"]
    if conditions:
        raise RefusedRequest(text(501, f"{conditions[0].decode('latin-1')}: {_UNCONDITIONAL}"))
    if b"content-range" in headers:
        raise BadRequest("Content-Range: partial writes are not supported; send the whole value")
    wire: dict[str, Value] = {}
    for name in target.options:
        if name != _LEVEL:
            raise BadRequest(f"unknown query parameter {name[:60]!r}; a write accepts only `level`")
    for name, header in (("version", PIN), ("min_version", MIN_VERSION), (_LEVEL, LEVEL)):
        if (said := _text(headers, header) or None) is not None:
            wire[name] = said  # The node says that tables have no versions.
    asked = target.options.get(_LEVEL) or None
    if asked is not None and wire.setdefault(_LEVEL, asked) != asked:
        raise BadRequest(f"level={asked[:60]} and X-GossipKV-Level differ; send only one of them")
    if (ttl_s := _number(headers, TTL, 0, MAX_TTL_MS // 1000)) is not None:
        wire["ttl_ms"] = 1000 * ttl_s
    return ReadOptions(wire, _put_session(headers, wire))


def _put_session(headers: Mapping[bytes, bytes], wire: dict[str, Value]) -> int | None:
    """Add token and times to the options; return the time allowed, or None for the usual.  Raises BadRequest."""
    if shown := headers.get(SHOWN):
        try:
            wire["token"] = b"".join(b64decode(part.strip(), validate=True) for part in shown.split(b","))
        except (ValueError, binascii.Error) as error:
            raise BadRequest(
                f"GossipKV-Token is not valid base64: {error}; send it as the server returned it"
            ) from None
    timeout_ms = _number(headers, TIMEOUT, 1)
    times = {"timeout_ms": timeout_ms, "wait_ms": _number(headers, WAIT, 0)}
    wire |= {name: given for name, given in times.items() if given is not None}
    return timeout_ms


def _proxy(options: Mapping[str, str]) -> str | None:
    """Return the option `proxy`, or None if it is absent or empty."""
    for name in options:
        if name != _PROXY:
            raise BadRequest(f"unknown query parameter {name[:60]!r}; if the key contains a ?, write it as %3F")
    return options.get(_PROXY) or None


def _version(headers: Mapping[bytes, bytes], proxy: str | None) -> str | None:
    """Return the only version that may answer, or None."""
    version = _text(headers, PIN)
    if version == "":
        raise BadRequest("X-Sequins-Version is empty; name a version, or omit the header")
    if proxy is None or proxy == _ANY_VERSION:
        return version
    if version not in {None, proxy}:
        raise BadRequest(
            f"proxy={proxy[:60]} and X-Sequins-Version: {version} name different versions; send only one of them"
        )
    return proxy


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name.decode()} is not UTF-8: {error.reason} at byte {error.start}") from None


def _number(headers: Mapping[bytes, bytes], name: bytes, least: int, most: int = MAX_TIMEOUT_MS) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    number = int(value) if value.isdigit() and len(value) <= len(str(most)) else -1
    if not least <= number <= most:
        shown = name.decode().title().replace("Gossipkv", "GossipKV").replace("Ttl", "TTL")
        raise BadRequest(f"{shown} must be a whole number from {least} to {most}")
    return number
