"""Datagrams of strangers: garbage, pieces and copies of real ones, packets of other clusters, and forged ones.

A listener on the network can send all but the forged ones to a cluster with keys. To a cluster without keys it can also
send forged ones, which are valid in every byte. The oracle encodes all packets.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tests.oracle import packets as oracle

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

NOISE = ("garbage", "truncated", "flipped", "oversized", "foreign", "replayed")
SHARES = (10, 10, 10, 1, 10, 10)
LARGEST_DATAGRAMS = (4095, 4095, 65_507)  # The largest that a node's socket delivers, and the largest possible.
FULL = 2**32 - 1


def member_id(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


class Stranger:
    """Draws packets; `heard` is what the stranger has heard of the cluster."""

    def __init__(self, draw: random.Random, names: list[str], *, cluster: str, cluster_id: bytes) -> None:
        self.draw = draw
        self.names = names
        self.cluster = cluster
        self.cluster_id = cluster_id
        self.heard: list[bytes] = []
        self.epochs = [1]
        self.invented = [f"x{number}" for number in range(40)]
        self._kinds: dict[str, Callable[[], bytes]] = {
            "garbage": self.garbage, "truncated": self.truncated, "flipped": self.flipped,
            "oversized": self.oversized, "foreign": self.foreign, "replayed": self.real, "forged": self.forged,
        }  # fmt: skip

    def packet(self, kind: str) -> bytes:
        return self._kinds[kind]()

    def real(self) -> bytes:
        return self.draw.choice(self.heard)

    def garbage(self) -> bytes:
        """Return random bytes, sometimes after a valid beginning."""
        size = self.draw.choice((0, 1, 18, 19, 59, self.draw.randrange(2000)))
        return self.real()[: self.draw.choice((0, 0, 1, 3, 15, 43))] + self.draw.randbytes(size)

    def truncated(self) -> bytes:
        packet = self.real()
        return packet[: self.draw.randrange(len(packet))]

    def flipped(self) -> bytes:
        packet = bytearray(self.real())
        for _ in range(self.draw.choice((1, 1, 2, 9))):
            packet[self.draw.randrange(len(packet))] ^= 1 << self.draw.randrange(8)
        return bytes(packet)

    def oversized(self, part: bytes = b"") -> bytes:
        """Return a packet of maximum size: one part repeated, of an unknown kind, empty, or meaningless."""
        message = oracle.encode(("GOSSIP", {"sender's id": self.id()}, []))
        room = self.draw.choice(LARGEST_DATAGRAMS) - 19 - len(message)
        part = part or self.draw.choice((b"\x63\x00\x00", b"\x06\x00\x00", b"\xff"))
        message += (part * (room // len(part)))[:room]
        return oracle.wrap_plain(message, self.cluster, self.cluster_id)

    def foreign(self) -> bytes:
        """Return a packet of another cluster, protocol or key that is valid otherwise."""
        message = oracle.encode(self.message())
        match self.draw.randrange(5):
            case 0:
                return oracle.wrap_plain(message, "other", self.cluster_id)
            case 1:
                return oracle.wrap_plain(message, self.cluster, self.draw.randbytes(8))
            case 2:
                packet = oracle.wrap_plain(message, self.cluster, self.cluster_id)
                return packet[:1] + bytes((self.draw.choice((0, 2, 255)),)) + packet[2:]
            case 3:
                packet = oracle.wrap_plain(message, self.cluster, self.cluster_id)
                return packet[:2] + bytes((self.draw.choice((2, 128, 255)),)) + packet[3:]
        secret, session, counter = self.draw.randbytes(32), self.draw.randbytes(16), self.draw.randrange(1, 1 << 40)
        return oracle.wrap_sealed(
            message, self.cluster, self.cluster_id, secret=secret, session=session, counter=counter
        )

    def forged(self) -> bytes:
        """Return a plain packet that is valid but lies, or a cut or changed packet with a matching checksum."""
        match self.draw.randrange(40):
            case 0:
                return self.oversized(oracle.encode_part(self.part()))
            case 1 | 2 | 3 | 4:
                message = self.truncated()[19:]
            case 5 | 6 | 7 | 8:
                message = self.flipped()[19:]
            case _:
                message = oracle.encode(self.message())
        return oracle.wrap_plain(message, self.cluster, self.cluster_id)

    # The fields of a lie.

    def id(self) -> bytes:
        return self.draw.choice((member_id(self.name()), member_id(self.name()), self.draw.randbytes(8)))

    def name(self) -> str:
        return self.draw.choice(self.draw.choice((self.names, self.invented)))

    def number(self) -> int:
        """Return a small, plausible or large number, but not the largest, which would use up a name."""
        return self.draw.choice((0, 1, 2, 3, self.draw.randrange(300), 1 << self.draw.randrange(62)))

    def epoch(self) -> int:
        """Return an epoch, mostly a member's current or next one."""
        return self.draw.choice((*self.epochs, *self.epochs, self.draw.choice(self.epochs) + 1, self.number()))

    def address(self) -> tuple[bytes, int]:
        ip = self.draw.choice((bytes((10, 0, 0, 1)), bytes((192, 0, 2, self.draw.randrange(256))), bytes(16)))
        return ip, self.draw.choice((7000 + self.draw.randrange(8), self.draw.randrange(65536), 0))

    def fields(self, table: oracle.Table) -> oracle.Fields:
        told: oracle.Fields = {}
        for size, field in table:
            match size:
                case "1":
                    told[field] = self.draw.randrange(4)
                case "4":
                    told[field] = self.draw.choice((0, 1, 2, self.draw.randrange(FULL), FULL - 1, FULL))
                case "8":
                    told[field] = self.id() if field.endswith("id") else self.draw.randbytes(8)
                case "16":
                    told[field] = self.draw.choice(self.names).encode().ljust(16, b"-")
                case "number":
                    told[field] = self.epoch() if field == "epoch" else self.number()
                case "address":
                    told[field] = self.address()
                case "text":
                    told[field] = self.name()
        return told

    def part(self) -> oracle.Part:
        name = self.draw.choice(list(oracle.PARTS))
        _, table, repeated = oracle.PARTS[name]
        told = self.fields(table)
        if repeated:
            told["each"] = [self.fields(repeated) for _ in range(self.draw.randrange(4))]
        if name == "DELTA":
            self.agree(told)
        return name, told

    def agree(self, delta: oracle.Fields) -> None:
        """Make the versions consistent in most cases, so that the delta is processed."""
        for one in delta["each"]:
            one["kind"] = self.draw.choice((1, 1, 2))
            one["version minus since"] = self.draw.randrange(1, 9)
            one["path"] = self.draw.choice(("", "a", "a/b", "a//b", "/", "\0", "nodes/1@10.0.0.1:7000", "x" * 300))
            one["value"] = self.draw.randbytes(self.draw.choice((0, 1, 50, 5000)))
        if self.draw.random() < 0.9:
            delta["each"].sort(key=lambda one: one["version minus since"])
            for place, one in enumerate(delta["each"]):
                one["version minus since"] += place
            since = delta["since"] = self.draw.choice((0, 1, 5, delta["since"]))
            steps = [one["version minus since"] for one in delta["each"]]
            delta["reach"] = since + max(steps, default=0) + self.draw.choice((0, 1))
            delta["target"] = delta["reach"] + self.draw.choice((0, 0, 3, 1 << 40))
            delta["floor"] = self.draw.choice((0, since))

    def message(self) -> oracle.Message:
        name = self.draw.choice(list(oracle.HEADS))
        parts = [self.part() for _ in range(self.draw.choice((0, 1, 1, 2, 5)))]
        return name, self.fields((oracle.SENDER[1], *oracle.HEADS[name][1])), parts
