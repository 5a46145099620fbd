r"""MessagePack-RPC messages: the content of a frame.

    request       [0, id, method, params]
    response      [1, id, error, result]      error is nil, or [code, message, details]
    notification  [2, method, params]

Only frames that a `FrameReader` has passed are decoded here. MessagePack's `str` is read in two ways on purpose:

* A node (`decode_request`, `wire.arguments`) reads every `str` as its UTF-8 bytes. Keys are bytes whichever type a
  client's library chooses, and some libraries (Neovim's) send arbitrary bytes as `str`. Names are decoded only where
  text is needed.
* A client (`decode_response`) reads a node's `str` as text and its `bin` as bytes: a node sends values as `bin`. Python
  text that UTF-8 cannot encode (file names may be any bytes) is sent as `\udcff`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, Unavailable, from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST = 0
RESPONSE = 1
NOTIFICATION = 2

MAX_MESSAGE_ID = 0xFFFF_FFFF  # MessagePack-RPC: an unsigned 32-bit number, chosen by the client.

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
# Values as a node reads them: text is still bytes.
Raw = None | bool | int | float | bytes | list["Raw"] | dict[bytes, "Raw"]


class RpcRequest(NamedTuple):
    """A request as the node reads it: text is still bytes."""

    msgid: int
    method: bytes
    params: list[Raw]


class Response(NamedTuple):
    """An answer as the client reads it; exactly one of `error` and `result` is meaningful."""

    msgid: int
    error: GossipKVError | None
    result: Value


def request(msgid: int, method: str, params: Sequence[Value]) -> bytes:
    """Return the frame of a request."""
    return msgpack.packb((REQUEST, msgid, method, params))


def notification(method: str, params: Sequence[Value]) -> bytes:
    """Return the frame of a message without an answer."""
    return msgpack.packb((NOTIFICATION, method, params))


def response(msgid: int, result: Value) -> bytes:
    """Return the frame of an answer."""
    return msgpack.packb((RESPONSE, msgid, None, result), unicode_errors="backslashreplace")


def decode_request(frame: bytes) -> RpcRequest:
    """Decode a request frame.

    Raises:
        BadRequest: the frame is not `[0, id, method, params]`.
    """
    message = unpack_raw(frame)
    match message:
        case [0, int(msgid), bytes(method), list(params)] if 0 <= msgid <= MAX_MESSAGE_ID:
            return RpcRequest(msgid, method, params)
    raise BadRequest("a request must be [0, id, method, [parameters]], with an unsigned 32-bit number as its id")


def decode_response(frame: bytes) -> Response:
    """Decode a response frame; an `error` in it is returned, not raised.

    Raises:
        ProtocolError: the frame is not `[1, id, error, result]`, or holds text that is not UTF-8.
    """
    try:
        message: Value = msgpack.unpackb(frame, raw=False, strict_map_key=True)
    except ValueError as error:
        raise ProtocolError(f"the answer cannot be decoded: {error}") from error
    match message:
        # Python treats these as equal to a number, MessagePack does not.
        case [bool() | float(), _, _, _] | [_, bool(), _, _]:
            pass
        case [1, int(msgid), None, result]:
            return Response(msgid, None, result)
        case [1, int(msgid), [str(code), str(text), *rest], _]:
            details = rest[0] if rest and isinstance(rest[0], dict) else {}
            return Response(msgid, from_wire(code, text, details), None)
        case [1, int(msgid), other, _]:  # Another implementation's error, which may be any value.
            return Response(msgid, from_wire("UNAVAILABLE", str(other), {}), None)
    raise ProtocolError(f"the peer sent {kind_of(message)}, expected [1, id, error, result]")


def refusal_of(packed: bytes, name: str) -> GossipKVError:
    """Return the error in a node's answer, as the node sent it; Unavailable if it is malformed."""
    with contextlib.suppress(ValueError):
        match msgpack.unpackb(packed):
            case [str(code), str(message), dict(details)]:
                return from_wire(code, message, details)
    return Unavailable(f"the error in the answer of {name} is malformed")


def kind_of(value: Value | Raw) -> str:
    """Return MessagePack's name of a value's type, for error messages."""
    names = {dict: "a map", list: "an array", bytes: "bytes", str: "a string", bool: "a boolean", int: "an integer"}
    return "nil" if value is None else names.get(type(value), "a float")


def unpack_raw(data: bytes) -> Raw:
    """Decode MessagePack as a node reads it. Raises BadRequest."""
    try:
        value: Raw = msgpack.unpackb(data, raw=True, strict_map_key=True)
    except ValueError as error:
        raise BadRequest(f"the request cannot be decoded: {error}") from error
    return value
