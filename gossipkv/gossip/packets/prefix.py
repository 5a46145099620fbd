"""How each packet begins, sealed or not, and why one is dropped.

    offset size field
    0      1    0x47, the letter G
    1      1    protocol version
    2      1    form: 0 plain (`envelope.py`), 1 sealed (`sealing.py`)
    3      4    cluster name: the first bytes of its BLAKE2b
    7      8    cluster id, zeros for none yet
    15     n    by form

What does not fit is dropped and counted under the reason that `Dropped` names.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MAGIC = 0x47
PROTOCOL = 1
PLAIN, SEALED = 0, 1
CLUSTER_ID_BYTES = 8
NO_CLUSTER = bytes(CLUSTER_ID_BYTES)
MARK_BYTES = 4
PREFIX_BYTES = 15

ID_AT: Final = 3 + MARK_BYTES

# Every reason, in the order in which they are looked for.
REASONS: Final = (
    "short",  # Fewer bytes than the form has before the message.
    "foreign",  # Not of this protocol at all.
    "protocol_version",  # Of another version of it.
    "cluster_name",  # Of a cluster of another name.
    "form",  # Neither plain nor sealed.
    "cluster_id",  # Of another cluster of the same name.
    "not_sealed",  # Plain, where only sealed packets are let in.
    "no_keys",  # Sealed, and there is no key ring here.
    "own",  # Sealed by this very session: somebody sends our packets back.
    "unknown_key",  # Sealed with a key that the ring does not have.
    "replayed",  # Sealed and heard before, or too long ago to tell.
    "not_authentic",  # Sealed with another key of that id, or changed on the way.
    "checksum",  # Plain and changed on the way.
)


class Dropped(Exception):  # It is no error of ours, and ends in a counter.
    """A packet that is not for us; `reason` is the name of its counter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def cluster_mark(name: str) -> bytes:
    """Four bytes that stand for a cluster's name."""
    return blake2b(name.encode(), digest_size=MARK_BYTES).digest()


def is_sealed(packet: bytes) -> bool:
    """Whether somebody with a key made a packet; true only of a packet that was unwrapped."""
    return packet[2] == SEALED


def cluster_id_of(packet: bytes) -> bytes:
    """The cluster id that a packet carries; true only of a packet that was unwrapped."""
    return packet[ID_AT:PREFIX_BYTES]
