"""The style, the script and the icon of the page, as they stand in the package, and the headers of pages and assets.

Nothing is loaded from elsewhere and nothing runs that is written into a page: the policy says so to the browser.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Final

from gossipkv.http.answers import Answer
from gossipkv.http.conditions import is_among

if TYPE_CHECKING:
    from gossipkv.http.answers import Header, Request

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
GUARDS: Final[tuple[Header, ...]] = (
    (b"Content-Security-Policy", POLICY.encode()),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
)
TYPES: Final = {
    "page.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}

_STATIC: Final = resources.files("gossipkv.http.page") / "static"
_BODIES: Final = {name: (_STATIC / name).read_bytes() for name in TYPES}
_TAGS: Final = {name: f'"{hashlib.sha256(body).hexdigest()[:16]}"'.encode() for name, body in _BODIES.items()}


def asset(name: str, request: Request | None = None) -> Answer | None:
    """Return an asset, or 304 where `request` has its tag already; None: there is none of that name."""
    if name not in _BODIES:
        return None
    headers = [
        (b"Content-Type", TYPES[name]),
        (b"Cache-Control", b"public, max-age=60, must-revalidate"),  # An upgrade is seen within a minute.
        (b"ETag", _TAGS[name]),
        *GUARDS,
    ]
    if request is not None and is_among(_TAGS[name], request.headers.get(b"if-none-match", b""), weakly=True):
        return Answer(304, headers[1:])
    return Answer(200, headers, _BODIES[name])
