"""What the environment tells commands that ask; of it, whom they ask is taken for what a node is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.address import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_VARIABLE: Final = "GOSSIPKV_NODE"
TOKEN_VARIABLE: Final = "GOSSIPKV_TOKEN"  # noqa: S105  # A name.
OWN_NAME: Final = "GOSSIPKV_NODE_NAME"
APART: Final = (
    f"{NODE_VARIABLE} has HOST:PORT of the nodes that commands ask, {OWN_NAME} the name of the node that `serve` runs"
)


def asked_nodes(environ: Mapping[str, str]) -> list[Address]:
    """Return the nodes that commands ask where they are told none; nothing, if the environment names none either.

    Raises:
        ValueError: one of the two variables has what the other is for.
    """
    try:
        asked = [parse_address(text) for text in environ.get(NODE_VARIABLE, "").replace(",", " ").split()]
    except ValueError as error:
        raise ValueError(f"{NODE_VARIABLE}: {error}; {APART}") from None
    if not asked and ":" in (own := environ.get(OWN_NAME, "")):  # No name has it, and every address.
        raise ValueError(f"{OWN_NAME}: {own!r} is an address, not a name; {APART}")
    return asked
