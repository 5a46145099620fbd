"""The forms of bodies given and wanted, by `Content-Type` and `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final

from gossipkv.http.answers import RefusedRequest, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Media(enum.Enum):
    """A form of bodies, with its name in answers."""

    LINES = b"application/x-ndjson"
    MESSAGEPACK = b"application/msgpack"
    JSON = b"application/json"


_NAMES: Final = {
    b"application/x-ndjson": Media.LINES,
    b"application/ndjson": Media.LINES,
    b"application/jsonl": Media.LINES,
    b"application/x-jsonlines": Media.LINES,
    b"application/json": Media.JSON,
    b"application/msgpack": Media.MESSAGEPACK,
    b"application/x-msgpack": Media.MESSAGEPACK,
    b"application/vnd.msgpack": Media.MESSAGEPACK,
}
_QUALITY: Final = re.compile(rb"[qQ][ \t]*=[ \t]*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
_MAX_ACCEPTED: Final = 64  # Browsers list under ten.


def given(headers: Mapping[bytes, bytes], spoken: Sequence[Media]) -> Media:
    """Return the form of a body; without `Content-Type` the first one known.  JSON lines may be called JSON.

    Raises:
        RefusedRequest: the form is not known: 415.
    """
    header = headers.get(b"content-type")
    if header is None:
        return spoken[0]
    media = _NAMES.get(header.partition(b";")[0].strip().lower())
    if media is not None and media in spoken:
        return media
    if media is Media.JSON and Media.LINES in spoken:
        return Media.LINES
    listed = _listed(spoken)
    shown = header[:60].decode("ascii", "replace")
    line = f"Content-Type {shown} is not supported here; send {listed.replace(',', ' or')}"
    raise RefusedRequest(text(415, line, headers=[(b"Accept-Post", listed.encode())]))


def wanted(headers: Mapping[bytes, bytes], spoken: Sequence[Media], usual: Media) -> Media:
    """Return the preferred form; `usual` if none is preferred to it.

    Raises:
        RefusedRequest: no known form is wanted: 406.
    """
    header = headers.get(b"accept")
    if header is None or header.strip() == b"*/*":
        return usual
    accepted = qualities(header)
    best = max([usual, *spoken], key=lambda media: _quality(media, accepted))  # `max` takes the first of equals.
    if _quality(best, accepted) > 0:
        return best
    raise RefusedRequest(text(406, f"the header Accept allows none of the supported types: {_listed(spoken)}"))


def qualities(accept: bytes) -> dict[bytes, float]:
    """Return the types that `Accept` names, in lower case, and how much each is wanted; malformed parts count as 1."""
    found: dict[bytes, float] = {}
    for item in accept.split(b",")[:_MAX_ACCEPTED]:
        name, *parameters = (part.strip() for part in item.split(b";"))
        given = filter(None, map(_QUALITY.fullmatch, parameters))
        found[name.lower()] = next((float(match[1]) for match in given), 1.0)
    return found


def _quality(media: Media, accepted: Mapping[bytes, float]) -> float:
    """Return the quality of a form: its own name precedes its kind, and that `*/*`."""
    named = [quality for name, quality in accepted.items() if _NAMES.get(name) in _same(media)]
    return max(named, default=accepted.get(b"application/*", accepted.get(b"*/*", 0.0)))


def _same(media: Media) -> tuple[Media, ...]:
    """Return the names under which a form may be requested: many clients can only ask for JSON."""
    return (Media.LINES, Media.JSON) if media is Media.LINES else (media,)


def _listed(spoken: Sequence[Media]) -> str:
    return ", ".join(media.value.decode() for media in spoken)
