"""SipHash-2-4 with 128 bits, step by step: https://www.aumasson.jp/siphash/siphash.pdf and its reference code."""

from __future__ import annotations

MASK = (1 << 64) - 1


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1], v[3] = rotated(v[1], 13) ^ v[0], rotated(v[3], 16) ^ v[2]
        v[0] = (rotated(v[0], 32) + v[3]) & MASK
        v[2] = (v[2] + v[1]) & MASK
        v[1], v[3] = rotated(v[1], 17) ^ v[2], rotated(v[3], 21) ^ v[0]
        v[2] = rotated(v[2], 32)


def siphash128(key: bytes, data: bytes) -> bytes:
    """Return the sum of 16 bytes by a key of 16 bytes."""
    one, two = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [int.from_bytes(text, "big") for text in (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")]
    v = [v[0] ^ one, v[1] ^ two ^ 0xEE, v[2] ^ one, v[3] ^ two]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
    found = b""
    for place, change in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= change
        rounds(v, 4)
        found += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return found
