"""Pages as bytes, with their style, script and icon, and the headers of all pages.

The templates escape every name, since nodes may report anything.  The policy forbids the browser to load from
elsewhere, and to run scripts written into a page.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gossipkv.http.answers import HttpAnswer
from gossipkv.http.conditions import is_among
from gossipkv.http.page.drawing import shapes

if TYPE_CHECKING:
    from gossipkv.http.answers import Header, HttpRequest
    from gossipkv.http.page.view import PageView


POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
GUARDS: Final[tuple[Header, ...]] = (
    (b"Content-Security-Policy", POLICY.encode()),
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


def asset(name: str, request: HttpRequest | None = None) -> HttpAnswer | None:
    """Return an asset, or 304 if `request` has its tag already; None if there is no such asset."""
    if name not in _BODIES:
        return None
    headers = [
        (b"Content-Type", TYPES[name]),
        (b"Cache-Control", b"public, max-age=60, must-revalidate"),  # An upgrade is visible within a minute.
        (b"ETag", _TAGS[name]),
        *GUARDS,
    ]
    if request is not None and is_among(_TAGS[name], request.headers.get(b"if-none-match", b""), weakly=True):
        return HttpAnswer(304, headers[1:])
    return HttpAnswer(200, headers, _BODIES[name])


def _quoted(name: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(name, safe="", errors="backslashreplace")


def _with_code(line: str) -> Markup:
    """Return a sentence, escaped, with its parts in backticks as code."""
    parts = line.split("`")
    if len(parts) % 2 == 0:  # A backtick is not closed.
        return escape(line)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("gossipkv.http.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_ENVIRONMENT.filters["segment"] = _quoted
_ENVIRONMENT.filters["code"] = _with_code
_ENVIRONMENT.filters["shapes"] = shapes


def page(view: PageView) -> bytes:
    """Return a page."""
    return _render("page.html", view=view)


def failure(status: int, title: str, message: str) -> bytes:
    """Return a page that reports an error; its script keeps asking."""
    return _render("failure.html", status=status, title=title, message=message)


def _render(template: str, **values: object) -> bytes:
    # A path of a source may be any bytes; bytes that are no UTF-8 are shown as escapes.
    return _ENVIRONMENT.get_template(template).render(**values).encode("utf-8", "backslashreplace")
