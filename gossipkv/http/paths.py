"""The gateway's own paths: who answers `/healthz` and its like, and the page.

A part of the gateway is reached by its line here, and by nothing else; `order.HIDING` names what its path hides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.http.health import healthz, livez, readyz
from gossipkv.http.metrics import debug_vars, metrics
from gossipkv.http.page.pages import Pages

if TYPE_CHECKING:
    from gossipkv.http.answers import Answer, Asker, Request
    from gossipkv.http.site import Looking
    from gossipkv.http.target import Target


def own_paths(ask: Asker) -> dict[bytes, Looking]:
    """Who answers which path, exactly."""

    async def _healthz(_request: Request, _target: Target) -> Answer:
        return await healthz(ask)

    async def _livez(_request: Request, _target: Target) -> Answer:
        return await livez(ask)

    async def _readyz(_request: Request, target: Target) -> Answer:
        return await readyz(ask, verbose="verbose" in target.options)

    async def _metrics(request: Request, _target: Target) -> Answer:
        return await metrics(ask, request.headers.get(b"accept", b""))

    async def _debug_vars(_request: Request, _target: Target) -> Answer:
        return await debug_vars(ask)

    return {
        b"/healthz": _healthz,
        b"/livez": _livez,
        b"/readyz": _readyz,
        b"/metrics": _metrics,
        b"/debug/vars": _debug_vars,
    }


def make_pages(ask: Asker) -> Pages:
    """Who shows how things are."""
    return Pages(ask)
