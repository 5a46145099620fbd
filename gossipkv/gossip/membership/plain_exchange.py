"""A stand-in until `exchange.py` is there: all records, over TCP."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, final

from gossipkv.gossip import packets
from gossipkv.gossip.member import Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.gossip.membership.members import Members


@final
class PlainExchange:
    def __init__(self, members: Members, told: Callable[[Member, int], None]) -> None:
        self._members = members
        self._told = told
        self.state_hash = bytes(8)

    def touch(self, id_: bytes) -> None:
        whole = sorted((m.id, m.epoch, m.incarnation, m.state >= 2) for m in self._members)
        self.state_hash = blake2b(repr(whole).encode(), digest_size=8).digest()

    def message(self, flags: int, *, own: bool = True) -> bytes:
        records = [packets.record(m) for m in self._members if own or m is not self._members.own]
        return packets.sync(self._members.own.id, self.state_hash, flags) + b"".join(records)

    def merge(self, message: bytes, now_ms: int) -> None:
        for part in packets.read_parts(message, packets.SYNC_BYTES):
            if isinstance(part, Member):
                self._told(part, now_ms)
