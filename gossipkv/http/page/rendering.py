"""Pages as bytes, with the style, the script and the icon that they need, and the headers of all of them.

Every name is escaped in the templates: what nodes tell may be anything.  Nothing is loaded from elsewhere and nothing
runs that is written into a page: the policy says so to the browser.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gossipkv.http.answers import Answer
from gossipkv.http.conditions import is_among

if TYPE_CHECKING:
    from gossipkv.http.answers import Header, Request
    from gossipkv.http.page.view import View


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


def _quoted(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="", errors="backslashreplace")


def _with_code(line: str) -> Markup:
    """A sentence, escaped, in which what stands in backticks is code."""
    parts = line.split("`")
    if len(parts) % 2 == 0:  # One that nobody closes.
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


def page(view: View) -> bytes:
    """Return a page."""
    return _render("page.html", view=view)


def failure(status: int, title: str, message: str) -> bytes:
    """Return a page that says why there is none; its script goes on asking."""
    return _render("failure.html", status=status, title=title, message=message)


def _render(template: str, **values: object) -> bytes:
    # A path of a source may be any bytes; what UTF-8 cannot say is shown by its escape.
    return _ENVIRONMENT.get_template(template).render(**values).encode("utf-8", "backslashreplace")
