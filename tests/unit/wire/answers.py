"""What a node says in its own words, for tests that stand in for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from gossipkv.errors import to_wire
from gossipkv.wire.rpc import RESPONSE

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError


def error_response(msgid: int, error: GossipKVError) -> bytes:
    """The frame of an error."""
    return msgpack.packb((RESPONSE, msgid, to_wire(error), None), unicode_errors="backslashreplace")
