"""Values in RESP, as clients of Redis read them: in protocol 3, or in 2, which has no maps and no null of its own."""

from __future__ import annotations

from typing import Final, NamedTuple

NEWER: Final = 3  # The protocol that has maps.


class Line(NamedTuple):
    """A word that is no data, as `OK`."""

    text: str


class Refusal(NamedTuple):
    """An error in Redis' own words, its code in front."""

    text: str


Said = None | int | bytes | Line | Refusal | list["Said"] | dict[bytes, "Said"]


def say(value: Said, protocol: int) -> bytes:
    """Its bytes."""
    match value:
        case None:
            return b"_\r\n" if protocol == NEWER else b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case Line(text) | Refusal(text):
            line = text.replace("\r", " ").replace("\n", " ").encode(errors="replace")
            return b"%s%s\r\n" % (b"+" if isinstance(value, Line) else b"-", line)
        case dict() if protocol == NEWER:
            head, parts = b"%%%d\r\n" % len(value), [part for pair in value.items() for part in pair]
        case dict():
            return say([part for pair in value.items() for part in pair], protocol)
        case list():
            head, parts = b"*%d\r\n" % len(value), value
    return head + b"".join(say(part, protocol) for part in parts)
