"""Environment variables of client commands; the node to ask is easily confused with the node's own name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.address import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_VARIABLE: Final = "GOSSIPKV_NODE"
TOKEN_VARIABLE: Final = "GOSSIPKV_TOKEN"  # noqa: S105  # A name.
OWN_NAME: Final = "GOSSIPKV_NODE_NAME"
APART: Final = (
    f"{NODE_VARIABLE} has the HOST:PORT of nodes that commands ask, and {OWN_NAME} the name of "
    "the node that `serve` runs"
)


def asked_nodes(environ: Mapping[str, str]) -> list[Address]:
    """Return the nodes that commands ask by default; empty if the environment names none.

    Raises:
        ValueError: one of the two variables has a value for the other.
    """
    try:
        asked = [parse_address(text) for text in environ.get(NODE_VARIABLE, "").replace(",", " ").split()]
    except ValueError as error:
        raise ValueError(f"{NODE_VARIABLE}: {error}; {APART}") from None
    if not asked and ":" in (own := environ.get(OWN_NAME, "")):  # A name never contains a colon, an address always.
        raise ValueError(f"{OWN_NAME}: {own!r} is an address, not a name; {APART}")
    return asked
