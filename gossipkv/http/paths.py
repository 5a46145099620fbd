"""The gateway's own paths: who answers `/healthz` and its like, and the page.

A part of the gateway is reached by its line here, and by nothing else; `order.HIDING` names what its path hides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.http.health import healthz, livez, readyz
from gossipkv.http.metrics import debug_vars, metrics
from gossipkv.http.page.pages import Pages
from gossipkv.http.site import Site

if TYPE_CHECKING:
    from gossipkv.http.answers import Asker
    from gossipkv.http.permissions import Permissions
    from gossipkv.http.reads import ReadContext
    from gossipkv.http.site import Looking


def site_of(context: ReadContext, ask: Asker, permissions: Permissions | None = None) -> tuple[Site, Pages]:
    """Everything that a gateway answers, and the pages in it, which run beside; None: to all alike."""
    pages = Pages(ask)
    own: dict[bytes, Looking] = {
        b"/healthz": lambda _request, _target: healthz(ask),
        b"/livez": lambda _request, _target: livez(ask),
        b"/readyz": lambda _request, target: readyz(ask, verbose="verbose" in target.options),
        b"/metrics": lambda request, _target: metrics(ask, request.headers.get(b"accept", b"")),
        b"/debug/vars": lambda _request, _target: debug_vars(ask),
    }
    return Site(context, own, pages, permissions), pages
