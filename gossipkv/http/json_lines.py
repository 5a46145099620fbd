"""Keys and values in JSON, which has no bytes: a string if they are UTF-8, else `{"base64": "…"}`; one per line."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from gossipkv.errors import BadRequest, TooLarge
from gossipkv.wire.json_form import json_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.wire.rpc import Value

MAX_DOCUMENT_BYTES: Final = 512 * 1024  # The longest key, fully escaped: parsing delays all other requests.
PIECE_BYTES: Final = 64 * 1024  # Lines sent at once: other requests are served between two pieces.


def line(value: Value) -> bytes:
    """Encode a value as a line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def record(key: bytes, value: bytes | None) -> bytes:
    """Encode a key and its value as a line."""
    return line({"key": json_form(key), "value": json_form(value)})


def pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to pieces of about `PIECE_BYTES`."""
    held = bytearray()
    for line in lines:
        held += line
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def parse(document: bytes, where: str) -> Value:
    """Parse one JSON document.

    Raises:
        BadRequest: it is malformed, or nested too deeply.
        TooLarge: it is longer than any key.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise TooLarge(f"{where} has more than {MAX_DOCUMENT_BYTES} bytes", {"limit": MAX_DOCUMENT_BYTES})
    try:
        parsed: Value = json.loads(document.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where} is not valid JSON: {error}") from None
    return parsed


def key_of(key: Value, where: str) -> bytes:
    """Return the bytes of a string or `{"base64": …}`.

    Raises:
        BadRequest: it is neither.
    """
    match key:
        case str():
            try:
                return key.encode()
            except UnicodeEncodeError as error:
                raise BadRequest(f"{where} cannot be encoded as UTF-8: {error.reason}") from None
        case {"base64": str(encoded), **others} if not others:
            try:
                return b64decode(encoded, validate=True)
            except (ValueError, binascii.Error) as error:
                raise BadRequest(f"{where} is not valid base64: {error}") from None
    raise BadRequest(f'{where} must be a string or {{"base64": "..."}}')
