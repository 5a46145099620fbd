"""The gateway's own paths: who answers `/healthz` and its like, and the page.

A part of the gateway is reached by its line here, and by nothing else; `order.HIDING` names what its path hides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.http.answers import Asker
    from gossipkv.http.site import Looking, Pages


def own_paths(ask: Asker) -> dict[bytes, Looking]:
    """Who answers which path, exactly."""
    del ask
    return {}


def make_pages(ask: Asker) -> Pages | None:
    """Who shows how things are."""
    del ask
    return None
