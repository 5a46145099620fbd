"""Correctly sealed TLS 1.3 records with contents that `ssl` would never send."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.serving.secured import Client

CHANGE_CIPHER, ALERT, HANDSHAKE, DATA, HEARTBEAT = 20, 21, 22, 23, 24  # Kinds of records.
RECORD_BYTES = 1 << 14  # The maximal size of a record.
KEY_UPDATE = b"\x18\0\0\1"  # A handshake message; one byte follows that asks the other side for the same.
NAMED = "TLS_AES_256_GCM_SHA384"  # The cipher suite on which two OpenSSL peers agree.


def raw(kind: int, data: bytes) -> bytes:
    return bytes([kind, 3, 3]) + len(data).to_bytes(2, "big") + data


class Sealing:
    """Continue the records of a client that has only shaken hands.

    `keys` is the key log of its context; the secrets of this client are the last ones.
    """

    def __init__(self, client: Client, keys: Path) -> None:
        assert client.tls.cipher()[0] == NAMED
        _, _, said = keys.read_text().rpartition("CLIENT_TRAFFIC_SECRET_0 ")
        self._secret = bytes.fromhex(said.split()[1])
        self._begin()

    def _begin(self) -> None:
        self._number = 0
        self._sealed = AESGCM(self._drawn("key", 32))
        self._mask = int.from_bytes(self._drawn("iv", 12), "big")

    def _drawn(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(hashes.SHA384(), size, info).derive(self._secret)

    def seal(self, kind: int, data: bytes, padding: int = 0) -> bytes:
        inner = data + bytes([kind]) + bytes(padding)
        head = raw(DATA, inner + bytes(16))[:5]
        nonce = (self._mask ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._sealed.encrypt(nonce, inner, head)

    def change_keys(self) -> None:
        """Derive the next keys, as after a `KEY_UPDATE`."""
        self._secret = self._drawn("traffic upd", hashlib.sha384().digest_size)
        self._begin()
