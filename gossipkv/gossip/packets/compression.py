"""Parts on their way over TCP: compressed when that pays, never unpacked beyond a bound."""

from __future__ import annotations

from typing import Final

import lz4.block

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import PACKED, SYNC_BYTES

PACK_BYTES: Final = 1024  # Less fits a segment or two as it is.
# What a peer may make this node hold and look at in one go: the smallest parts of so many bytes take about a second.
MAX_UNPACKED_BYTES: Final = 2 << 20
_SIZE_BYTES: Final = 4


def pack(sender: bytes, state_hash: bytes, flags: int, parts: bytes) -> bytes:
    """A SYNC of these parts."""
    if len(parts) < PACK_BYTES:
        return messages.sync(sender, state_hash, flags) + parts
    block: bytes = lz4.block.compress(parts, store_size=False)
    return messages.sync(sender, state_hash, flags | PACKED) + len(parts).to_bytes(_SIZE_BYTES, "big") + block


def unpack(message: bytes) -> bytes:
    """The parts of a SYNC.

    Raises:
        Malformed: they cannot be unpacked, or are too large.
    """
    _, flags = messages.read_sync(message)
    if not flags & PACKED:
        return message[SYNC_BYTES:]
    begin = SYNC_BYTES + _SIZE_BYTES
    size = int.from_bytes(message[SYNC_BYTES:begin], "big")
    if len(message) < begin or size > MAX_UNPACKED_BYTES:
        raise Malformed(f"packed parts of {size} bytes")
    try:
        parts: bytes = lz4.block.decompress(message[begin:], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise Malformed(f"packed parts that do not unpack: {error}") from None
    if len(parts) != size:
        raise Malformed(f"packed parts of {len(parts)} bytes, said to be {size}")
    return parts
