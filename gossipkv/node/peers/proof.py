"""How two nodes prove to each other, in hello, that they hold a key of gossip.

    who asks                                         who answers
    hello: who I am, nonce A                    ──>
                                                <──  hello: who I am, nonce B, proof that I answer
    hello: the same, proof that I ask           ──>
                                                <──  hello, and from now on this connection is a node's

A proof is the id of a key, and the HMAC-SHA256 under that key of which of the two it is of, both nonces and both uuids.
So one that was heard is of no use on another connection, nor in the other direction, nor towards another node.  The
first key of the ring proves and each is taken, as with packets: keys change in the same three steps.

Whoever answers keeps nothing: its nonce is made of the connection's own number, which no other ever has in the life of
the process, under a secret of that life.

What this does not do: it proves who began the connection, not who goes on.  Whoever can change what is on the way can
go on in its place; TLS is against that.  Rejected: the time in place of the second nonce, which would save a round trip
for each connection, and which clocks would have to agree on.
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
    """What is proved: nonces and uuids of who asks and who answers, in that order."""

    asking_nonce: bytes
    answering_nonce: bytes
    asking: bytes
    answering: bytes


@final
class Prover:
    """Proves for this node, and sees what others prove; `is_required`: nobody who does not is taken for a node."""

    def __init__(self, keys: Callable[[], Sequence[Key]], secret: bytes, *, is_required: bool) -> None:
        """`secret`: random bytes of this life."""
        self.is_required = is_required
        self._keys = keys
        self._secret = secret

    def answer(self, mine: Hello, theirs: Hello, connection: bytes) -> tuple[Hello, bool]:
        """What to say to who asks on that connection, and whether that one has proved to be a node.

        Raises:
            Unauthorized: it shows a proof that does not hold; or nothing, where that is required.
        """
        if not theirs.nonce:
            if self.is_required:
                raise _unproven("who asks")
            return mine, False
        nonce = hmac.digest(self._secret, connection + theirs.nonce, "sha256")[:NONCE_BYTES]
        challenge = Challenge(theirs.nonce, nonce, theirs.uuid, mine.uuid)
        if theirs.proof and not self._holds(_ASKS, challenge, theirs.proof):
            raise _unproven("who asks")
        return mine._replace(nonce=nonce, proof=self._prove(_ANSWERS, challenge)), bool(theirs.proof)

    def ask(self, mine: Hello, theirs: Hello) -> Hello | None:
        """What to say once more to who has answered; None: nothing, it proves nothing and need not.

        Raises:
            Unauthorized: it proves nothing, where that is required, or its proof does not hold.
        """
        if not theirs.proof and not self.is_required:
            return None
        challenge = Challenge(mine.nonce, theirs.nonce, mine.uuid, theirs.uuid)
        if not self._holds(_ANSWERS, challenge, theirs.proof):
            raise _unproven("who answers")
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


def _unproven(who: str) -> Unauthorized:
    return Unauthorized(f"{who} does not prove that it holds a key of this cluster's gossip")
