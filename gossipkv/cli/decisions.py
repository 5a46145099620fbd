"""Helpers of commands that decide on tables: the time allowed, and a second request after an unknown outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.cli import WRONG_USE
from gossipkv.cli.options import ask_map, ask_within
from gossipkv.cli.output import note
from gossipkv.errors import GossipKVError, Unknown
from gossipkv.settings.tables import DECISION_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

DECISION: Final = ask_within("10s", "the decision, and again to ask for its outcome")


def allowed(timeout_ms: int, default_ms: int = DECISION_MS) -> dict[str, Value]:
    """Return the option for the time allowed; empty if it is the node's default."""
    return {} if timeout_ms == default_ms else {"timeout_ms": timeout_ms}


def unconfirmed(what: str) -> int:
    """Report the possible loss, and return the status of a refusal without --yes."""
    note(f"gossipkv: nothing was done. {what}. To do it, repeat the command with --yes")
    return WRONG_USE


def decided(
    client: Client,
    method: str,
    *params: Value,
    done: Callable[[GossipKVError], dict[str, Value] | None] = lambda _: None,
) -> dict[str, Value]:
    """Ask for a decision, and once more if its outcome is unknown.

    `done` turns an error of the second request into a result if the error says that the decision was made; else None.

    Requires: the request is idempotent.
    """
    try:
        return ask_map(client, method, *params)
    except Unknown as error:
        note(f"gossipkv: {error}; asking for the outcome")
    try:
        return ask_map(client, method, *params)
    except GossipKVError as error:
        if (decision := done(error)) is None:
            raise
        return decision
