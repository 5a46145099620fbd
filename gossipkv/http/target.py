r"""Request targets: a path, a database, a key, and options behind the question mark.

    /geo/a/b%2F%00?proxy=true      database geo, key a/b/\0, option proxy

The key is everything behind the slash after the database, percent-decoded once: slashes, dots and `+` belong to it, and
nothing is normalised.  So `/geo//x`, `/geo/../x` and `/geo/+` are three keys.  The first `?` begins the options; in a
key it is `%3F`.  A target of the form `http://host/path` stands for its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from gossipkv.http.answers import RefusedRequest, text

if TYPE_CHECKING:
    from gossipkv.http.answers import HttpAnswer

MAX_TARGET_BYTES: Final = 8 * 1024  # The limit of nginx and Apache.  Longer keys come by `_mget`.

NAME: Final = re.compile(r"[-_a-zA-Z0-9]+")  # The name of a database or a version.

_ESCAPE: Final = re.compile(rb"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_ASTERISK: Final = b"*"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A parsed request target.

    Attributes:
        path: As sent, without the options; `/metrics` and similar paths are compared with it.
        database: The first part of the path, decoded, valid as a name or not; None: there is none.
        key: Everything behind the slash that ends the database; None without such a slash.
        options: The options behind the question mark, the first value of each name, decoded.
    """

    path: bytes
    database: str | None
    key: bytes | None
    options: dict[str, str]


def parse(raw: bytes) -> RequestTarget:
    """Parse a request target.

    Raises:
        RefusedRequest: too long, neither a path nor `*` nor `http://host/path`, or `%` without two hexadecimal digits.
    """
    if len(raw) > MAX_TARGET_BYTES:
        raise RefusedRequest(too_long())
    if not raw.startswith(b"/"):
        raw = _path_of(raw)
        if raw == _ASTERISK:
            return RequestTarget(raw, None, None, {})
    path, _, query = raw.partition(b"?")
    database, slash, key = path[1:].partition(b"/")
    if b"%" in raw:
        _check_escapes(raw)
        name = unquote_to_bytes(database).decode("utf-8", "replace")
        return RequestTarget(path, name or None, unquote_to_bytes(key) if slash else None, _options(query))
    name = database.decode("utf-8", "replace")
    return RequestTarget(path, name or None, key if slash else None, _options(query))


def authority_of(raw: bytes, other: bytes | None) -> bytes | None:
    """Return host and port in a target of the form `http://host/path`; `other` for other targets."""
    return other if (begin := _ABSOLUTE.match(raw)) is None else begin[1]


def too_long() -> HttpAnswer:
    """Return the answer to a target that is over the limit."""
    return text(
        414, f"the request target has more than {MAX_TARGET_BYTES} bytes; read longer keys by POST /<database>/_mget"
    )


def _path_of(raw: bytes) -> bytes:
    """Return path and options of a target that does not begin with a slash."""
    if raw == _ASTERISK:
        return raw
    if (begin := _ABSOLUTE.match(raw)) is None:
        raise RefusedRequest(text(400, "the request target must be a path that begins with /, or http://HOST/PATH"))
    path = raw[begin.end() :]
    return path if path.startswith(b"/") else b"/" + path


def _check_escapes(raw: bytes) -> None:
    if (bad := _ESCAPE.search(raw)) is not None:
        shown = bad[0].decode("ascii", "backslashreplace")
        raise RefusedRequest(
            text(
                400,
                f"{shown} at byte {bad.start()} of the request target is not a valid percent escape; write % as %25",
            )
        )


def _options(query: bytes) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in query.split(b"&") if query else ():
        name, _, value = pair.replace(b"+", b" ").partition(b"=")
        if pair:
            options.setdefault(_text(name), _text(value))
    return options


def _text(part: bytes) -> str:
    return unquote_to_bytes(part).decode("utf-8", "replace")
