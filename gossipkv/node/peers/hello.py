"""What two nodes say first on a connection between them: who each is, so that nobody asks whom it did not mean.

An address may be another node's by now, or of another cluster: such a connection ends before anything is asked on it.
Both ends check.  Fields that a later version adds are passed over.  `store` and `life` are 0 where they are missing,
and `seen`, `word`, `nonce` and `proof` (`proof.py`) nothing: a client may say hello without them.  They are as they
were when the connection began: a life ends with its connections, but a first store may be made while there are some.

Anybody may say hello, so nothing that lasts follows from one that came.  `seen` is therefore only answered: to take it
in, a node dials the member that has seen something, at the address at which that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError, Unauthorized
from gossipkv.gossip.member import MAX_EPOCH, UUID_BYTES
from gossipkv.node.identity import MAX_STORE

if TYPE_CHECKING:
    from gossipkv.wire.arguments import OptionArguments
    from gossipkv.wire.rpc import Value

PROTOCOL = 1  # Grows when a peer or a client must know; new methods and options are no reason.


class Hello(NamedTuple):
    """Who a node is."""

    protocol: int
    cluster_id: bytes
    uuid: bytes
    epoch: int  # Of this start; 0 while nobody may hear of the node: it counts for nothing that has to last.
    store: int = 0  # The id of the store of its tables, and the life in which that is; 0: it has none, or does not say.
    life: int = 0
    seen: bytes = b""  # In an answer: what it has seen of the other's store (`register.seen`); empty: nothing.
    nonce: bytes = b""  # By which the other is to prove to be a node (`proof.py`); empty: it has no keys.
    proof: bytes = b""
    word: bytes = b""  # By which the sender knows, later, that the node dialled here is the one that asks it.

    def to_map(self) -> Value:
        """Return it as it is sent."""
        return {**self._asdict()}

    def check(self, other: Hello) -> None:
        """Whether these two may speak.

        Raises:
            Unauthorized: of another protocol or cluster.  It tells the other end no more than that has said itself.
        """
        if other.protocol != self.protocol:
            raise Unauthorized(
                f"this node speaks protocol {self.protocol}, the other one {other.protocol}: "
                "let them run versions that fit",
                {"protocol": self.protocol, "other": other.protocol},
            )
        if other.cluster_id != self.cluster_id:
            raise Unauthorized(
                "this node is of another cluster than who says hello; `gossipkv inspect DATA/NODE` shows of which"
            )


def prove(proven: bytes | None, uuid: bytes | None) -> None:
    """Whether the other end's certificate proves that uuid, which None leaves open: a node's it is in any case.

    Raises:
        Unauthorized: it does not.
    """
    if proven is None:
        raise Unauthorized("no certificate by tls_peers proves a uuid: whoever this is, it is no node")
    if uuid not in {None, proven}:
        raise Unauthorized(
            f"the certificate is that of the node {proven.hex()}, and not of {uuid.hex()}",
            {"uuid": uuid.hex(), "proven": proven.hex()},
        )


def of_fields(fields: OptionArguments) -> Hello:
    """What whoever connects has sent.

    Raises:
        BadRequest: it is no hello.
    """
    protocol, epoch = fields.number("protocol"), fields.number("epoch", most=MAX_EPOCH)
    cluster_id, uuid = fields.blob("cluster_id"), fields.blob("uuid")
    store, life = fields.number("store", most=MAX_STORE) or 0, fields.number("life", most=MAX_STORE) or 0
    nonce = fields.blob("nonce") or b""
    if protocol is None or epoch is None or cluster_id is None or uuid is None or len(uuid) != UUID_BYTES:
        raise BadRequest("a hello says protocol, cluster_id, uuid and epoch")
    proof, word = fields.blob("proof") or b"", fields.blob("word") or b""
    return Hello(protocol, cluster_id, uuid, epoch, store, life, b"", nonce, proof, word)


def of_answer(answer: Value) -> Hello:
    """What whoever was connected to has answered.

    Raises:
        ProtocolError: it is no hello.
    """
    absent: dict[str, Value] = {"store": 0, "life": 0, "seen": b"", "nonce": b"", "proof": b""}
    match {**absent, **answer} if isinstance(answer, dict) else None:
        case {
            "protocol": int(protocol),
            "cluster_id": bytes(cluster_id),
            "uuid": bytes(uuid),
            "epoch": int(epoch),
            "store": int(store),
            "life": int(life),
            "seen": bytes(seen),
            "nonce": bytes(nonce),
            "proof": bytes(proof),
        } if len(uuid) == UUID_BYTES and 0 <= epoch <= MAX_EPOCH and 0 <= store <= MAX_STORE and 0 <= life <= MAX_STORE:
            return Hello(protocol, cluster_id, uuid, epoch, store, life, seen, nonce, proof)
    raise ProtocolError("a hello says protocol, cluster_id, uuid and epoch, and store and life as numbers")
