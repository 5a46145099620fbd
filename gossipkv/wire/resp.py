"""Values in RESP, as clients of Redis read them: in protocol 3, and in 2, which has neither maps nor a null of its own."""

from __future__ import annotations

from typing import NamedTuple


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
            return b"_\r\n" if protocol == 3 else b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case Line(text):
            return b"+%s\r\n" % text.encode()
        case Refusal(text):
            return b"-%s\r\n" % text.replace("\r", " ").replace("\n", " ").encode(errors="replace")
        case list():
            return b"*%d\r\n%s" % (len(value), b"".join(say(one, protocol) for one in value))
        case dict():
            head = b"%%%d\r\n" % len(value) if protocol == 3 else b"*%d\r\n" % (2 * len(value))
            pairs = (say(key, protocol) + say(one, protocol) for key, one in value.items())
            return head + b"".join(pairs)
