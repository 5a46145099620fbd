"""What commands have in common by which something is decided on tables: the time allowed, and asking once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.cli import WRONG_USE
from gossipkv.cli.options import timeout
from gossipkv.cli.output import note
from gossipkv.errors import GossipKVError, Unknown
from gossipkv.status.reading import map_of
from gossipkv.table.rpc.requests import DECISION_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

DECISION: Final = timeout("10s", "the decision, and again for asking what became of it")


def allowed(timeout_ms: int) -> dict[str, Value]:
    """The time allowed, where it is not what a node allows by itself."""
    return {} if timeout_ms == DECISION_MS else {"timeout_ms": timeout_ms}


def unconfirmed(what: str) -> int:
    """Say what may be lost; nothing is done without --yes."""
    note(f"gossipkv: nothing was done.  {what}.  If that is to be, repeat this with --yes")
    return WRONG_USE


def decided(
    client: Client,
    method: str,
    *params: Value,
    done: Callable[[GossipKVError], dict[str, Value] | None] = lambda _: None,
) -> dict[str, Value]:
    """Ask for a decision, and once more where it is not known what became of it.

    `done`: what is told by an error that says, the second time, that it is done; None: that says something else.

    Requires: asked for twice it is done once.
    """
    try:
        return map_of(client.call(method, *params))
    except Unknown as error:
        note(f"gossipkv: {error}; asking what became of it")
    try:
        return map_of(client.call(method, *params))
    except GossipKVError as error:
        if (told := done(error)) is None:
            raise
        return told
