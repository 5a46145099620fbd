"""Compression of parts over TCP: used if it pays; unpacking is bounded."""

from __future__ import annotations

from typing import Final

import lz4.block

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import PACKED, SYNC_BYTES

PACK_BYTES: Final = 1024  # Fewer bytes fit a segment or two uncompressed.
# Bounds the bytes that a peer can make this node process at once: the smallest parts of this size take a second.
MAX_UNPACKED_BYTES: Final = 2 << 20
_SIZE_BYTES: Final = 4


def pack(sender: bytes, state_hash: bytes, flags: int, parts: bytes) -> bytes:
    """Return a SYNC of these parts."""
    if len(parts) < PACK_BYTES:
        return messages.sync(sender, state_hash, flags) + parts
    block: bytes = lz4.block.compress(parts, store_size=False)
    return messages.sync(sender, state_hash, flags | PACKED) + len(parts).to_bytes(_SIZE_BYTES, "big") + block


def unpack(message: bytes) -> bytes:
    """Return the parts of a SYNC.

    Raises:
        Malformed: the parts cannot be unpacked, or are too large.
    """
    _, flags = messages.read_sync(message)
    if not flags & PACKED:
        return message[SYNC_BYTES:]
    begin = SYNC_BYTES + _SIZE_BYTES
    size = int.from_bytes(message[SYNC_BYTES:begin], "big")
    if len(message) < begin or size > MAX_UNPACKED_BYTES:
        raise Malformed(f"packed parts cannot have {size} bytes")
    try:
        parts: bytes = lz4.block.decompress(message[begin:], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise Malformed(f"packed parts cannot be unpacked: {error}") from None
    if len(parts) != size:
        raise Malformed(f"packed parts have {len(parts)} bytes, not {size} as stated")
    return parts
