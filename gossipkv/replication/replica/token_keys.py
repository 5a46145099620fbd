"""The keys that seal the tokens of clients; `token_keys.pxd` has the form of a seal.

They derive from the keys of the key ring. Without one, a single key derives from the secret that the catalogue keeps.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from gossipkv.replication._replication import TOKEN_SEAL as SEAL_BYTES
from gossipkv.replication._replication import TokenKeys, siphash

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SEAL_BYTES", "TokenKeys", "siphash", "token_keys"]


def token_keys(cluster: bytes, keys: Iterable[tuple[bytes, bytes]]) -> TokenKeys:
    """Return the keys of a cluster's tokens; `keys`: the ids and the secrets, of which the first seals."""
    derived = [
        (id_, blake2b(secret, digest_size=16, salt=cluster, person=b"gossipkv token").digest()) for id_, secret in keys
    ]
    return TokenKeys(cluster, derived)
