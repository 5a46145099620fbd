"""Error responses as a node packs them, for tests that stand in for a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import to_wire
from gossipkv.node import methods
from gossipkv.wire.rpc import RESPONSE

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError


def error_response(msgid: int, error: GossipKVError) -> bytes:
    """Return the frame of an error, as the methods of a node pack it."""
    packed: bytes = methods._make_packer().pack((RESPONSE, msgid, to_wire(error), None))
    return packed
