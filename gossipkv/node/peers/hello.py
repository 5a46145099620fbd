"""Hello, the first message of two nodes on a connection: the identity of each, so that no wrong node is asked.

An address may belong to another node by now, or to another cluster; such a connection ends before any question. Both
ends check. `min` and `max` are the protocol versions of the sender. The lower `max` wins: the connection has the
version `protocol` of the answer. Unknown fields of later versions are skipped. Clients may omit `min` and `max` (then
`protocol`), `store` and `life` (then 0) and `seen`, `word`, `nonce` and `proof` (`proof.py`; then empty). The fields
are as of the beginning of the connection: a life ends with its connections, but the first store may come later.

Anybody may send a hello, so a received one changes nothing that lasts. `seen` is therefore only sent in answers: to
learn it, a node dials the member that has seen its store, at that member's known address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError, Unauthorized
from gossipkv.gossip.member import MAX_EPOCH, UUID_BYTES
from gossipkv.node.identity import MAX_STORE
from gossipkv.protocol import ProtocolVersions

if TYPE_CHECKING:
    from collections.abc import Collection

    from gossipkv.wire.arguments import OptionArguments
    from gossipkv.wire.rpc import Value

Proven = bytes | tuple[str, ...]  # The uuid in a certificate; without one, its DNS names.


class Hello(NamedTuple):
    """The identity that a node states in a hello."""

    protocol: int  # The newest version of the asking node; in the answer, the version that both use.
    cluster_id: bytes
    uuid: bytes
    epoch: int  # Epoch of this start; 0 while the node is silent: then nothing that lasts may depend on it.
    store: int = 0  # The id of the store of its tables and that store's life; 0: it has none, or does not say.
    life: int = 0
    seen: bytes = b""  # In an answer: what it has seen of the other's store (`register.seen`); empty: nothing.
    nonce: bytes = b""  # Challenge for the other end's proof (`proof.py`); empty: the sender has no keys.
    proof: bytes = b""
    word: bytes = b""  # Lets the sender recognise later that a caller is the node dialled here.
    min: int = 0  # The oldest and the newest version of the sender; 0: `protocol` is the only one.
    max: int = 0

    @property
    def versions(self) -> ProtocolVersions:
        """The protocol versions of the sender."""
        return ProtocolVersions(self.min or self.protocol, self.max or self.protocol)

    def to_map(self) -> Value:
        """Return it as it is sent."""
        return {**self._asdict()}

    def check(self, other: Hello, name: str = "the other node") -> None:
        """Check that these two nodes may speak; `name` is that of the other.

        Raises:
            Unauthorized: another protocol or cluster. The error tells the other end only what that end has said
                itself.
        """
        if not self.versions.fits(other.versions):
            raise Unauthorized(
                f"this node speaks {self.versions}, and {name} {other.versions}: run compatible releases",
                {"protocol": [*self.versions], "other": [*other.versions]},
            )
        if other.cluster_id != self.cluster_id:
            raise Unauthorized(
                "this node is in another cluster than the sender of hello; compare with `gossipkv inspect DATA/NODE`"
            )


def prove(proven: Proven | None, uuid: bytes | None, names: Collection[str] = ()) -> None:
    """Check that the other end's certificate proves the node of that uuid; for None any node of the cluster.

    A certificate without a uuid proves a node by its name. `names` are the names that gossip knows for the uuid.

    Raises:
        Unauthorized: it does not.
    """
    if proven is None:
        raise Unauthorized(
            "the peer has no certificate of tls_peers with a uuid or a name, so it is not accepted as a node"
        )
    if uuid is None or proven == uuid:
        return
    if isinstance(proven, tuple):
        if not set(proven).intersection(names):
            known = f"known as {', '.join(names)}" if names else "not known to this node yet"
            raise Unauthorized(
                f"the certificate has no uuid, and its names ({', '.join(proven)}) are not those of the node "
                f"{uuid.hex()}, {known}",
                {"uuid": uuid.hex()},
            )
    else:
        raise Unauthorized(
            f"the certificate belongs to the node {proven.hex()}, not to {uuid.hex()}",
            {"uuid": uuid.hex(), "proven": proven.hex()},
        )


def of_fields(fields: OptionArguments) -> Hello:
    """Return the hello that a connecting node has sent.

    Raises:
        BadRequest: it is no hello.
    """
    protocol, epoch = fields.number("protocol"), fields.number("epoch", most=MAX_EPOCH)
    cluster_id, uuid = fields.blob("cluster_id"), fields.blob("uuid")
    store, life = fields.number("store", most=MAX_STORE) or 0, fields.number("life", most=MAX_STORE) or 0
    nonce = fields.blob("nonce") or b""
    if protocol is None or epoch is None or cluster_id is None or uuid is None or len(uuid) != UUID_BYTES:
        raise BadRequest("a hello needs protocol, cluster_id, uuid and epoch")
    proof, word = fields.blob("proof") or b"", fields.blob("word") or b""
    oldest, newest = fields.number("min") or 0, fields.number("max") or 0
    return Hello(protocol, cluster_id, uuid, epoch, store, life, b"", nonce, proof, word, oldest, newest)


def of_answer(answer: Value) -> Hello:
    """Return the hello that a dialled node has answered.

    Raises:
        ProtocolError: it is no hello.
    """
    absent: dict[str, Value] = {"store": 0, "life": 0, "seen": b"", "nonce": b"", "proof": b"", "min": 0, "max": 0}
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
            "min": int(oldest),
            "max": int(newest),
        } if len(uuid) == UUID_BYTES and 0 <= epoch <= MAX_EPOCH and 0 <= store <= MAX_STORE and 0 <= life <= MAX_STORE:
            return Hello(protocol, cluster_id, uuid, epoch, store, life, seen, nonce, proof, b"", oldest, newest)
    raise ProtocolError("a hello needs protocol, cluster_id, uuid and epoch, and store and life as numbers")
