"""The first bytes of each packet, sealed or not, and the reasons to drop one.

    offset size field
    0      1    0x47, the letter G
    1      1    protocol version
    2      1    form: 0 plain (`envelope.py`), 1 sealed (`sealing.py`)
    3      4    cluster name: the first bytes of its BLAKE2b
    7      8    cluster id, zeros for none yet
    15     n    by form

A packet that does not fit is dropped and counted under the reason in `DroppedPacket`. The version is that of the
message inside: prefix, forms, and the sender's place in the message stay the same in all versions.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MAGIC = 0x47
PLAIN, SEALED = 0, 1
CLUSTER_ID_BYTES = 8
NO_CLUSTER = bytes(CLUSTER_ID_BYTES)
MARK_BYTES = 4
PREFIX_BYTES = 15

ID_AT: Final = 3 + MARK_BYTES

# The reasons, in the order in which they are checked.
REASONS: Final = (
    "short",  # The packet is shorter than the header of its form.
    "foreign",  # The packet is of another protocol.
    "protocol_version",  # The message is of a version of this protocol that this node does not speak.
    "cluster_name",  # The packet is of a cluster with another name.
    "form",  # The form is neither plain nor sealed.
    "cluster_id",  # The packet is of another cluster with the same name.
    "not_sealed",  # The packet is plain, and only sealed ones are accepted.
    "no_keys",  # The packet is sealed, and this node has no key ring.
    "own",  # The packet was sealed by this very session: somebody sends our packets back.
    "unknown_key",  # The packet was sealed with a key that is not in the ring.
    "replayed",  # The packet was opened before, or is too old to tell.
    "not_authentic",  # The packet was sealed with another key of that id, or changed in transit.
    "checksum",  # The packet is plain and changed in transit.
)


class DroppedPacket(Exception):  # Ends in a counter, and is no error of ours.
    """A packet is not for this node; `reason` is the name of its counter, and `sender` an id if it is known."""

    def __init__(self, reason: str, sender: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.sender = sender


def cluster_mark(name: str) -> bytes:
    """Return four bytes that stand for a cluster's name."""
    return blake2b(name.encode(), digest_size=MARK_BYTES).digest()


def version_of(packet: bytes) -> int | None:
    """Return the protocol version of a packet; None if the bytes are no packet of ours."""
    return packet[1] if len(packet) >= PREFIX_BYTES and packet[0] == MAGIC else None


def is_sealed(packet: bytes) -> bool:
    """Return True if a holder of a key made a packet; only meaningful after unwrapping."""
    return packet[2] == SEALED


def cluster_id_of(packet: bytes) -> bytes:
    """Return the cluster id that a packet carries; only meaningful after unwrapping."""
    return packet[ID_AT:PREFIX_BYTES]
