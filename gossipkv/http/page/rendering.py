"""Templates to bytes.  Every name is escaped there: what nodes tell may be anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from gossipkv.http.page.view import View


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
