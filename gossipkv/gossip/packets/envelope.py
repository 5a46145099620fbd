"""The envelope around each message: its cluster, and a check that it arrived whole.

    offset size field
    0      15   as in every packet (`prefix.py`), form 0
    15     4    CRC-32 (zlib's) of all other bytes
    19     n    message

Plain and sealed packets are both opened and made here, so that a core uses one object. The *seal* says which form is
sent and which are accepted: a running cluster gets its keys in three rolling steps, `accept`, `send`, `require`.
Packets of all protocol versions that this node speaks are accepted. Those that it sends are of the agreed one.
"""

from __future__ import annotations

import enum
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.packets.messages import SENDER
from gossipkv.gossip.packets.prefix import (
    ID_AT,
    MAGIC,
    NO_CLUSTER,
    PLAIN,
    PREFIX_BYTES,
    SEALED,
    DroppedPacket,
    cluster_mark,
)
from gossipkv.protocol import OURS

if TYPE_CHECKING:
    from gossipkv.gossip.packets.sealing import Sealing
    from gossipkv.protocol import ProtocolVersions

HEADER_BYTES = 19

_NOTHING: Final = b""  # Matches the prefix of no packet.


class Seal(enum.StrEnum):
    """Use of the key ring by a node."""

    ACCEPT = "accept"  # Opens both forms, sends plain packets.
    SEND = "send"  # Opens both forms, sends sealed packets.
    REQUIRE = "require"  # Opens and sends sealed packets only.


@final
class Envelope:
    """Wraps and unwraps messages: plain without a `sealing`, else as `seal` says."""

    __slots__ = ("_mark", "_opens", "_prefix", "_prefix_sum", "_seal", "_sealing", "_seals", "cluster_id", "overhead",
        "version", "versions")  # fmt: skip

    cluster_id: bytes
    overhead: int  # Bytes that `wrap` adds to a message.
    version: int  # Protocol version of the packets that this node sends.

    def __init__(
        self,
        cluster: str,
        cluster_id: bytes = NO_CLUSTER,
        sealing: Sealing | None = None,
        seal: Seal = Seal.ACCEPT,
        versions: ProtocolVersions = OURS,
    ) -> None:
        self._mark = cluster_mark(cluster)
        self._sealing = sealing
        self._seal = seal
        self._seals = sealing if seal is not Seal.ACCEPT else None
        self.overhead = HEADER_BYTES if self._seals is None else self._seals.overhead
        self.versions = versions  # Those that this node reads.
        self.version = versions.oldest
        self.adopt(cluster_id)

    def adopt(self, cluster_id: bytes) -> None:
        """Change to another cluster id."""
        self.cluster_id = cluster_id
        form = PLAIN if self._seals is None else SEALED
        self._prefix = bytes((MAGIC, self.version, form)) + self._mark + cluster_id
        # A plain packet is compared with this one slice; with `require` no packet fits.
        plain = bytes((MAGIC, self.version, PLAIN)) + self._prefix[3:]
        self._opens = _NOTHING if self._only_sealed else plain
        self._prefix_sum = zlib.crc32(plain)

    def use(self, version: int) -> None:
        """Send packets of this protocol version from now on."""
        if version != self.version:
            self.version = version
            self.adopt(self.cluster_id)

    @property
    def _only_sealed(self) -> bool:
        return self._sealing is not None and self._seal is Seal.REQUIRE

    def wrap(self, message: bytes, version: int | None = None) -> bytes:
        """Return the packet of a message; `version` is that of the request that it answers, or that is tried."""
        prefix, prefix_sum = self._prefix, self._prefix_sum
        if version is not None and version != self.version:
            prefix = bytes((MAGIC, version)) + prefix[2:]
            prefix_sum = zlib.crc32(prefix)
        if self._seals is not None:
            return self._seals.seal(prefix, message)
        return prefix + zlib.crc32(message, prefix_sum).to_bytes(4, "big") + message

    def unwrap(self, packet: bytes, *, any_cluster: bool = False) -> bytes:
        """Return the message of a packet of this cluster; with `any_cluster`, of any cluster of this name.

        Raises:
            DroppedPacket: the packet is of another cluster, broken, or of a form that is not accepted.
        """
        if packet[:PREFIX_BYTES] != self._opens:
            return self._other(packet, any_cluster=any_cluster)
        message = packet[HEADER_BYTES:]
        if zlib.crc32(message, self._prefix_sum).to_bytes(4, "big") != packet[PREFIX_BYTES:HEADER_BYTES]:
            raise DroppedPacket("short" if len(packet) < HEADER_BYTES else "checksum")
        return message

    def _other(self, packet: bytes, *, any_cluster: bool) -> bytes:
        why = self._foreign(packet)
        if why is None and not any_cluster and packet[ID_AT:PREFIX_BYTES] != self.cluster_id:
            why = "cluster_id"
        if why is not None:
            raise DroppedPacket(why, self._sender(packet) if why == "protocol_version" else b"")
        return self._opened(packet)

    def _opened(self, packet: bytes) -> bytes:
        if packet[2] == SEALED:
            if self._sealing is None:
                raise DroppedPacket("no_keys")
            return self._sealing.open(packet)
        if self._only_sealed:
            raise DroppedPacket("not_sealed")
        message = packet[HEADER_BYTES:]
        check = zlib.crc32(message, zlib.crc32(packet[:PREFIX_BYTES]))
        if check.to_bytes(4, "big") != packet[PREFIX_BYTES:HEADER_BYTES]:
            raise DroppedPacket("checksum")
        return message

    def _sender(self, packet: bytes) -> bytes:
        """Return the sender's id in a packet of another version, whose envelope is the same; empty if it is broken."""
        with suppress(DroppedPacket):
            return self._opened(packet)[SENDER]
        return b""

    def _foreign(self, packet: bytes) -> str | None:
        """Return the reason why a packet is of no cluster of this name and protocol."""
        if len(packet) < HEADER_BYTES:
            return "short"
        if packet[0] != MAGIC:
            return "foreign"
        if packet[1] not in self.versions:
            return "protocol_version"
        if packet[3:ID_AT] != self._mark:
            return "cluster_name"
        return None if packet[2] in {PLAIN, SEALED} else "form"
