"""Proofs in hello that two nodes hold a key of gossip.

    asking node                                      answering node
    hello: my identity, nonce A                 ──>
                                                <──  hello: my identity, nonce B, proof that I answer
    hello: the same, proof that I ask           ──>
                                                <──  hello, and from now on this connection is a node's

A proof is a key's id and the HMAC-SHA256 under that key of the role, both nonces and both uuids. So a recorded proof
is useless on another connection, in the other direction, and towards another node. The first key of the ring proves,
and every key is accepted: keys change by appending one, moving it to the front, and removing the old one. The answering
node stores nothing: its nonce derives from the connection's number, unique in the process, under a secret of that life.

Limit: a proof covers the beginning of a connection; against an attacker who takes it over on the way, use TLS.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Unauthorized
from gossipkv.gossip.packets.key_ring import KEY_ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.node.peers.hello import Hello

NONCE_BYTES: Final = 16
_ASKS: Final = b"gossipkv hello 1 asks"
_ANSWERS: Final = b"gossipkv hello 1 answers"


class Challenge(NamedTuple):
    """The input of a proof: nonces and uuids of the asking and the answering node, in that order."""

    asking_nonce: bytes
    answering_nonce: bytes
    asking: bytes
    answering: bytes


@final
class Prover:
    """Proves for this node and checks others' proofs; `is_required`: callers without proof do not count as nodes."""

    def __init__(self, keys: Callable[[], Sequence[Key]], secret: bytes, *, is_required: bool) -> None:
        """Begin; `secret` is random bytes of this life."""
        self.is_required = is_required
        self._keys = keys
        self._secret = secret

    def answer(self, mine: Hello, theirs: Hello, connection: bytes) -> tuple[Hello, bool]:
        """Return the answer to a hello on that connection, and True if the asking node has proved to be a node.

        Raises:
            Unauthorized: its proof does not hold, or is missing where one is required.
        """
        if not theirs.nonce:
            if self.is_required:
                raise _unproven("the asking node")
            return mine, False
        nonce = hmac.digest(self._secret, connection + theirs.nonce, "sha256")[:NONCE_BYTES]
        challenge = Challenge(theirs.nonce, nonce, theirs.uuid, mine.uuid)
        if theirs.proof and not self._holds(_ASKS, challenge, theirs.proof):
            raise _unproven("the asking node")
        return mine._replace(nonce=nonce, proof=self._prove(_ANSWERS, challenge)), bool(theirs.proof)

    def ask(self, mine: Hello, theirs: Hello) -> Hello | None:
        """Return the second hello to the answering node; None if that proves nothing and need not.

        Raises:
            Unauthorized: its proof does not hold, or is missing where one is required.
        """
        if not theirs.proof and not self.is_required:
            return None
        challenge = Challenge(mine.nonce, theirs.nonce, mine.uuid, theirs.uuid)
        if not self._holds(_ANSWERS, challenge, theirs.proof):
            raise _unproven("the answering node")
        return mine._replace(proof=self._prove(_ASKS, challenge))

    def _prove(self, role: bytes, challenge: Challenge) -> bytes:
        key = self._keys()[0]
        return key.id + _tag(key, role, challenge)

    def _holds(self, role: bytes, challenge: Challenge, proof: bytes) -> bool:
        if len(challenge.asking_nonce) != NONCE_BYTES or len(challenge.answering_nonce) != NONCE_BYTES:
            return False
        tags = [_tag(key, role, challenge) for key in self._keys() if key.id == proof[:KEY_ID_BYTES]]
        return any(hmac.compare_digest(tag, proof[KEY_ID_BYTES:]) for tag in tags)


def _tag(key: Key, role: bytes, challenge: Challenge) -> bytes:
    return hmac.digest(key.secret, b"".join((role, *challenge)), "sha256")


def _unproven(party: str) -> Unauthorized:
    return Unauthorized(f"{party} does not prove that it has a key of this cluster's key ring")
