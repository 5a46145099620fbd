"""What commands have in common by which something is decided on tables: the time allowed, and asking once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.cli.options import timeout
from gossipkv.cli.output import note
from gossipkv.errors import Conflict, Unknown
from gossipkv.status.reading import map_of
from gossipkv.table.requests import DECISION_MS

if TYPE_CHECKING:
    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

DECISION: Final = timeout("10s", "the decision, and again for asking what became of it")


def allowed(timeout_ms: int) -> dict[str, Value]:
    """The time allowed, where it is not what a node allows by itself: one of the last release takes no other."""
    return {} if timeout_ms == DECISION_MS else {"timeout_ms": timeout_ms}


def decided(client: Client, method: str, *params: Value, told: str | None = None) -> dict[str, Value]:
    """Ask for a decision, and once more where it is not known what became of it.

    `told`: what is in the details of a `Conflict` that says, the second time, that it is done.

    Requires: asked for twice it is done once.
    """
    try:
        return map_of(client.call(method, *params))
    except Unknown as error:
        note(f"gossipkv: {error}; asking what became of it")
    try:
        return map_of(client.call(method, *params))
    except Conflict as error:
        if told not in error.details:
            raise
        return map_of(error.details)
