"""Around each message: whose it is, and whether it arrived whole.

    offset size field
    0      1    0x47, the letter G
    1      1    protocol version
    2      1    form: 0 plain, 1 sealed
    3      4    cluster name: the first bytes of its BLAKE2b
    7      8    cluster id, zeros for none yet
    15     4    CRC-32 (zlib's) of all other bytes          | plain form; `sealing` has the other
    19     n    message                                     |

What does not fit is dropped and counted under the reason that `Dropped` names.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import final

MAGIC = 0x47
PROTOCOL = 1
PLAIN, SEALED = 0, 1
CLUSTER_ID_BYTES = 8
NO_CLUSTER = bytes(CLUSTER_ID_BYTES)
PREFIX_BYTES = 15
HEADER_BYTES = 19


class Dropped(Exception):  # It is no error of ours, and ends in a counter.
    """A packet that is not for us; `reason` is the name of its counter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def cluster_mark(name: str) -> bytes:
    """Four bytes that stand for a cluster's name."""
    return blake2b(name.encode(), digest_size=4).digest()


@final
class Envelope:
    """Wraps and unwraps the plain form."""

    def __init__(self, cluster: str, cluster_id: bytes = NO_CLUSTER) -> None:
        self._mark = cluster_mark(cluster)
        self.cluster_id = cluster_id
        self._join(cluster_id)

    def _join(self, cluster_id: bytes) -> None:
        self.cluster_id = cluster_id
        self._prefix = bytes((MAGIC, PROTOCOL, PLAIN)) + self._mark + cluster_id
        self._prefix_sum = zlib.crc32(self._prefix)

    def wrap(self, message: bytes) -> bytes:
        """The packet of a message."""
        return self._prefix + zlib.crc32(message, self._prefix_sum).to_bytes(4, "big") + message

    def unwrap(self, packet: bytes) -> bytes:
        """The message of a packet of this very cluster.

        Raises:
            Dropped: it is not.
        """
        if packet[:PREFIX_BYTES] != self._prefix:
            raise Dropped(self._why(packet))
        message = packet[HEADER_BYTES:]
        if zlib.crc32(message, self._prefix_sum).to_bytes(4, "big") != packet[PREFIX_BYTES:HEADER_BYTES]:
            raise Dropped("checksum")
        return message

    def _why(self, packet: bytes) -> str:
        if len(packet) < HEADER_BYTES:
            return "short"
        if packet[0] != MAGIC:
            return "foreign"
        if packet[1] != PROTOCOL:
            return "protocol_version"
        if packet[3:7] != self._mark:
            return "cluster_name"
        return "form" if packet[2] != PLAIN else "cluster_id"
