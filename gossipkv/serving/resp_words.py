"""RESP as it is written: values, simple strings and errors; and the numbers among a command's words."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_NUMBER: Final = (1 << 64) - 1
MIN_SIGNED, MAX_SIGNED = -(1 << 63), (1 << 63) - 1
NO_INTEGER: Final = "ERR value is not an integer or out of range"
NEWER: Final = 3  # This protocol version has maps.


class RespLine(NamedTuple):
    """A RESP simple string, such as `OK`."""

    text: str


class RespRefusal(NamedTuple):
    """An error in Redis's own words, with the code in front."""

    text: str


Said = None | int | bytes | RespLine | RespRefusal | list["Said"] | dict[bytes, "Said"]


def say(value: Said, protocol: int) -> bytes:
    """Return a value in RESP for protocol 3, or for 2, which has no maps and no null of its own."""
    match value:
        case None:
            return b"_\r\n" if protocol == NEWER else b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case RespLine(text) | RespRefusal(text):
            line = text.replace("\r", " ").replace("\n", " ").encode(errors="replace")
            return b"%s%s\r\n" % (b"+" if isinstance(value, RespLine) else b"-", line)
        case dict() if protocol == NEWER:
            head, parts = b"%%%d\r\n" % len(value), [part for pair in value.items() for part in pair]
        case dict():
            return say([part for pair in value.items() for part in pair], protocol)
        case list():
            head, parts = b"*%d\r\n" % len(value), value
    return head + b"".join(say(part, protocol) for part in parts)


class RefusedError(Exception):
    """A command that is refused in Redis's words."""


def whole(word: bytes) -> int:
    """Return an unsigned number.  Raises RefusedError."""
    if not word.isdigit() or len(word) > len(str(MAX_NUMBER)) or int(word) > MAX_NUMBER:
        raise RefusedError(NO_INTEGER)
    return int(word)


def signed(word: bytes) -> int:
    """Return a signed number as Redis reads it: without spaces, plus signs or leading zeros.  Raises RefusedError."""
    if re.fullmatch(rb"0|-?[1-9][0-9]{0,18}", word) is None or not MIN_SIGNED <= int(word) <= MAX_SIGNED:
        raise RefusedError(NO_INTEGER)
    return int(word)
