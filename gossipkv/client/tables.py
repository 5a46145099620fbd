"""Requests of tables beyond those of datasets: writes, and the time that a node may wait; shared by every shell.

A write is never repeated once any of it was sent (it is not among `reads.REPEATABLE`): it may have been applied.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgpack

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.client._client import Request
    from gossipkv.client.reads import Key, Stamp
    from gossipkv.wire.rpc import Value

Level = Literal["one", "majority", "all"]  # Replicas that have a write when it is acknowledged.
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

# Share of the time allowed, so that the node's answer about the outcome comes before the client gives up.
NODE_SHARE: Final = 0.9


def read_options(token: bytes, wait_ms: int, allowed_ms: int, config: int = 0) -> dict[str, Value]:
    """Return the options of a read; empty without a session, a map and a wait."""
    options: dict[str, Value] = {"wait_ms": wait_ms, **_time(allowed_ms)} if wait_ms else {}
    if token:
        options["token"] = token
    if config:
        options["config"] = config
    return options


def write_options(
    token: bytes, level: Level | None, wait_ms: int, allowed_ms: int, config: int = 0
) -> dict[str, Value]:
    """Return the options of a write; without a level, which means a majority, a put may be smeared."""
    given: dict[str, Value] = {"level": level, "wait_ms": wait_ms, "token": token, "config": config}
    return {**_time(allowed_ms), **{name: value for name, value in given.items() if value}}


def expiry_options(ttl_ms: int | None, expires_at: int | None) -> dict[str, Value]:
    """Return the options of a put about its expiry; the node checks them."""
    given: dict[str, Value] = {"ttl_ms": ttl_ms, "expires_at": expires_at}
    return {name: value for name, value in given.items() if value is not None}


def _time(allowed_ms: int) -> dict[str, Value]:
    return {"timeout_ms": max(1, int(allowed_ms * NODE_SHARE))}


@lru_cache(maxsize=64)
def packed_config(config: int) -> bytes:
    """Return the options of a read by a map without others; most reads are like that, so they are cached."""
    whole: bytes = msgpack.packb({"config": config})
    return whole


def packed(options: dict[str, Value]) -> bytes | None:
    """Return options as they are sent; None if there are none.

    Raises:
        BadRequest: MessagePack cannot encode them.
    """
    try:
        return msgpack.packb(options) if options else None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"the options {options} cannot be encoded: {error}") from None


def value_bytes(value: bytes) -> bytes:
    """Return the value as it is sent.

    Raises:
        TypeError: it is not bytes.  Text is refused, since reads would return bytes.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a value must be bytes, not {type(value).__name__}")


def put(table: str, key: Key, value: bytes, options: dict[str, Value]) -> Request[Value]:
    """Return a `put`.  Raises as `call_request` and `reads.key_bytes`."""
    return call_request("put", [table, reads.key_bytes(key), value_bytes(value), options])


def delete(table: str, key: Key, options: dict[str, Value]) -> Request[Value]:
    """Return a `delete`.  Raises as `put`."""
    return call_request("delete", [table, reads.key_bytes(key), options])


def delete_many(table: str, keys: Sequence[bytes], options: dict[str, Value]) -> Request[Value]:
    """Return a `delete_many` of keys that fit into one frame."""
    return call_request("delete_many", [table, [*keys], options])


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
