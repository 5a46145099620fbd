"""Options of requests to tables beyond those of datasets, values, and answers; shared by every shell.

A write is never repeated once any of it was sent (it is not among `reads.REPEATABLE`): it may have been applied.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgpack

from gossipkv.client import reads

if TYPE_CHECKING:
    from gossipkv.client.reads import Stamp
    from gossipkv.wire.rpc import Value

Level = Literal["one", "majority", "all"]  # Replicas that have a write when it is acknowledged.
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

# Share of the time allowed, so that the node's answer about the outcome comes before the client gives up.
NODE_SHARE: Final = 0.9


def read_options(token: bytes, wait_ms: int, allowed_ms: int, config: int = 0) -> dict[str, Value]:
    """Return the options of a read; empty without a session, a map and a wait."""
    return write_options(token, None, wait_ms, allowed_ms if wait_ms else 0, config)


def write_options(
    token: bytes, level: Level | None, wait_ms: int, allowed_ms: int, config: int = 0
) -> dict[str, Value]:
    """Return the options of a write; without a level, which means a majority, a put may be smeared."""
    time_ms = max(1, int(allowed_ms * NODE_SHARE)) if allowed_ms else 0
    given: dict[str, Value] = {"level": level, "wait_ms": wait_ms, "token": token, "config": config}
    return {name: value for name, value in {"timeout_ms": time_ms, **given}.items() if value}


@lru_cache(maxsize=64)
def packed_config(config: int) -> bytes:
    """Return the options of a read by a map without others; most reads are like that, so they are cached."""
    whole: bytes = msgpack.packb({"config": config})
    return whole


def value_bytes(value: bytes) -> bytes:
    """Return the value as it is sent.

    Raises:
        TypeError: it is not bytes.  Text is refused, since reads would return bytes.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a value must be bytes, not {type(value).__name__}")


def explained(result: Value) -> tuple[tuple[bytes | None, int | None], Stamp]:
    """Check the answer to a `get` that explains: the value and its expiry, and the stamp."""
    match result:
        case [None | bytes() as value, str() | bytes() as stamp, {"node": _, **more}]:
            match more.get("expires_at"):
                case None | int() as expires_at:
                    return (value, expires_at), stamp
    raise reads.unexpected("get", "[value or nil, token, {node, perhaps expires_at}]", result)


def token_of(method: str, result: Value) -> bytes:
    """Return the token that answers a write; empty for a smeared put, which no replica has yet.

    Raises:
        ProtocolError: the answer has neither form.
    """
    match result:
        case bytes():
            return result
        case {"accepted": True} if method == "put":
            return b""
    raise reads.unexpected(method, "a token", result)
