"""Parts over TCP are compressed, and their size is checked before decompression."""

from __future__ import annotations

import contextlib

import lz4.block
import pytest

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES, PACK_BYTES, pack, unpack
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import PACKED, REPLY, SYNC_BYTES

ME, HASH = b"m" * 8, b"h" * 8


@pytest.mark.parametrize("size", [0, 1, PACK_BYTES - 1, PACK_BYTES, 100_000, MAX_UNPACKED_BYTES])
def test_there_and_back(size: int) -> None:
    """Short messages stay plain; long ones are compressed."""
    parts = (b"some parts " * (size // 11 + 1))[:size]
    message = pack(ME, HASH, REPLY, parts)
    state_hash, flags = messages.read_sync(message)
    assert (state_hash, flags) == (HASH, REPLY | PACKED if size >= PACK_BYTES else REPLY)
    assert unpack(message) == parts
    assert len(message) <= SYNC_BYTES + max(PACK_BYTES, size // 20 + 100)


def test_a_bomb_is_not_unpacked() -> None:
    """The size is refused when it is stated and also when the stated size is false."""
    bomb = lz4.block.compress(bytes(MAX_UNPACKED_BYTES + 1), store_size=False)
    assert len(bomb) < 70_000
    for said in (MAX_UNPACKED_BYTES + 1, 1000, 0, 0xFFFFFFFF):
        message = messages.sync(ME, HASH, PACKED) + said.to_bytes(4, "big") + bomb
        with pytest.raises(Malformed):
            unpack(message)


@pytest.mark.parametrize("cut", range(SYNC_BYTES, SYNC_BYTES + 40))
def test_cut_anywhere(cut: int) -> None:
    message = pack(ME, HASH, 0, bytes(range(256)) * 8)
    with pytest.raises(Malformed):
        unpack(message[:cut])


def test_every_flipped_bit_is_parts_or_malformed() -> None:
    """Envelopes have a checksum; without one a flipped bit causes no worse error."""
    message = pack(ME, HASH, 0, b"abcdefgh" * 200)
    for bit in range(SYNC_BYTES * 8, len(message) * 8):
        bad = bytearray(message)
        bad[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(Malformed):
            assert len(unpack(bytes(bad))) <= MAX_UNPACKED_BYTES
