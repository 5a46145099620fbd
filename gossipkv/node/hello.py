"""What two nodes say first on a connection between them: who each is, so that nobody asks whom it did not mean.

An address may be another node's by now, or of another cluster: such a connection ends before anything is asked on it.
Both ends check.  Fields that a later version adds are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError, Unauthorized
from gossipkv.gossip.member import MAX_EPOCH, UUID_BYTES

if TYPE_CHECKING:
    from gossipkv.node.arguments import Options
    from gossipkv.wire.rpc import Value

PROTOCOL = 1  # Grows when a peer or a client must know; new methods and options are no reason.


class Hello(NamedTuple):
    """Who a node is."""

    protocol: int
    cluster_id: bytes
    uuid: bytes
    epoch: int  # Of this start; 0 while nobody may hear of the node: it counts for nothing that has to last.

    def to_map(self) -> Value:
        """Return it as it is sent."""
        return {"protocol": self.protocol, "cluster_id": self.cluster_id, "uuid": self.uuid, "epoch": self.epoch}

    def check(self, other: Hello) -> None:
        """Whether these two may speak.

        Raises:
            Unauthorized: of another protocol or cluster; both are named.
        """
        if other.protocol != self.protocol:
            raise Unauthorized(
                f"this node speaks protocol {self.protocol}, the other one {other.protocol}: "
                "let them run versions that fit",
                {"protocol": self.protocol, "other": other.protocol},
            )
        if other.cluster_id != self.cluster_id:
            raise Unauthorized(
                f"this node is of the cluster {self.cluster_id.hex()}, the other one of {other.cluster_id.hex()}",
                {"cluster_id": self.cluster_id.hex(), "other": other.cluster_id.hex()},
            )


def of_fields(fields: Options) -> Hello:
    """What whoever connects has sent.

    Raises:
        BadRequest: it is no hello.
    """
    protocol, epoch = fields.number("protocol"), fields.number("epoch", most=MAX_EPOCH)
    cluster_id, uuid = fields.blob("cluster_id"), fields.blob("uuid")
    if protocol is None or epoch is None or cluster_id is None or uuid is None or len(uuid) != UUID_BYTES:
        raise BadRequest("a hello says protocol, cluster_id, uuid and epoch")
    return Hello(protocol, cluster_id, uuid, epoch)


def of_answer(answer: Value) -> Hello:
    """What whoever was connected to has answered.

    Raises:
        ProtocolError: it is no hello.
    """
    match answer:
        case {"protocol": int(protocol), "cluster_id": bytes(cluster_id), "uuid": bytes(uuid), "epoch": int(epoch)}:
            if len(uuid) == UUID_BYTES and 0 <= epoch <= MAX_EPOCH:
                return Hello(protocol, cluster_id, uuid, epoch)
    raise ProtocolError("a hello says protocol, cluster_id, uuid and epoch")
