"""A token of sessions over tables, bit by bit: its contents, and its checks."""

from __future__ import annotations

from hashlib import blake2b

from tests.oracle.siphash import siphash128

RING = ((b"ring", b"secret" * 5),)  # The keys of tests: an id and a secret.
POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def encoded(token: dict[bytes, tuple[int, dict[int, int]]], cluster: bytes) -> bytes:
    """Return the bytes of a token: of each table its newest config id, and a counter for each assignment."""
    body = b""
    for table in sorted(token):
        config, counters = token[table]
        body += table + config.to_bytes(8, "big") + len(counters).to_bytes(4, "big")
        for assignment in sorted(counters):
            body += assignment.to_bytes(8, "big") + counters[assignment].to_bytes(8, "big")
    return sealed(b"\2" + len(body).to_bytes(4, "big") + body, cluster)


def sealed(covered: bytes, cluster: bytes) -> bytes:
    """Return a token with its seal, by the first key of `RING`."""
    id_, secret = RING[0]
    key = blake2b(secret, digest_size=16, salt=cluster, person=b"gossipkv token").digest()
    return covered + id_ + crc32c(cluster + id_).to_bytes(4, "big") + siphash128(key, covered)


def merged(
    one: dict[bytes, tuple[int, dict[int, int]]], other: dict[bytes, tuple[int, dict[int, int]]]
) -> dict[bytes, tuple[int, dict[int, int]]]:
    whole = {}
    for table in one.keys() | other.keys():
        (config, counters), (config2, counters2) = one.get(table, (0, {})), other.get(table, (0, {}))
        both = {id_: max(counters.get(id_, 0), counters2.get(id_, 0)) for id_ in counters.keys() | counters2.keys()}
        whole[table] = max(config, config2), both
    return whole
