"""Golden packets keep their meaning for ever: a newer version reads the packets of an older one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipkv.address import Address
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import key
from gossipkv.gossip.packets.messages import (
    BranchChange,
    BranchHead,
    Delta,
    KnownMember,
    MemberDigest,
    MemberVerdict,
    Want,
    Who,
)
from gossipkv.gossip.packets.sealing import Sealing
from tests.unit.gossip.packets import packet_forms as forms

FILE = Path(__file__).parents[3] / "vectors" / "gossip_packets.txt"
GOLDEN = dict(line.split() for line in FILE.read_text().splitlines() if not line.startswith("#"))

A, B = member_id("a"), member_id("b")
HASH, UUID = bytes(range(0xF0, 0xF8)), bytes(range(16))
V4, V6 = Address("10.1.2.3", 7070), Address("2001:db8::1", 65535)

HEADS = {
    "ping": messages.ping(A, 0x01020304, B, HASH),
    "ack": messages.ack(B, 0xFFFFFFFF, HASH),
    "nack": messages.nack(A, 0),
    "ping_request": messages.ping_request(A, 5, B, V4),
    "ping_request_6": messages.ping_request(A, 5, B, V6),
    "gossip": messages.gossip(A),
    "sync": messages.sync(A, HASH, messages.MORE | messages.REPLY),
    "who": messages.who(messages.WHO, A, Who(9, UUID, 300, 86_400_000)),
    "refusal": messages.refusal(B, "produktion-ü"),
    "me": messages.who(messages.ME, B, Who(9, UUID, 2**63 - 1, 0)),
}
PARTS = {
    "record": Member(A, "a", UUID, V4, 128, 7, MemberState.ALIVE),
    "record_left": Member(member_id("ü-1"), "ü-1", UUID, V6, 1, 2**32 - 1, MemberState.LEFT),
    "verdict": MemberVerdict(A, MemberState.DEAD, 7, 128, B),
    "delta": Delta(
        A, 128, 2, 5, 300, 301, reset=False,
        changes=(BranchChange(6, "nodes/1@10.1.2.3:7070", b"value"), BranchChange(300, "gone", None)),
    ),
    "delta_reset": Delta(B, 1, 20, 0, 20, 20, reset=True, changes=(BranchChange(20, "p", b""),)),
    "head": BranchHead(A, 128, 2**40),
    "digest": MemberDigest(
        bytes(8),
        b"\xff" * 8,
        (KnownMember(A, MemberState.ALIVE, 0, 1, 2, 3), KnownMember(B, MemberState.SUSPECT, 9, 300, 0, 86_400)),
    ),
    "digest_empty": MemberDigest(A, B, ()),
    "want": Want((KnownMember(A, MemberState.DEAD, 1, 2, 3, 4),)),
}  # fmt: skip
SECRET, SESSION = bytes(range(32)), bytes(range(16))


def sealed(session: bytes = SESSION) -> Envelope:
    return Envelope("golden", HASH, Sealing([key(SECRET)], session), Seal.REQUIRE)


def made() -> dict[str, bytes]:
    return {
        **HEADS,
        **{name: forms.write_part(part) for name, part in PARTS.items()},
        "plain_packet": Envelope("golden", HASH).wrap(HEADS["ping"]),
        "sealed_packet": sealed().wrap(HEADS["ping"]),
    }


@pytest.mark.parametrize("name", made())
def test_packets_are_written_as_ever(name: str) -> None:
    assert made()[name].hex() == GOLDEN[name]


def test_nothing_was_forgotten() -> None:
    """The file has exactly these packets, and every kind is among them."""
    assert set(GOLDEN) == set(made())
    assert {int(GOLDEN[name][:2], 16) for name in HEADS} == set(range(1, 10))
    assert {int(GOLDEN[name][:2], 16) for name in PARTS} == set(range(1, 7))


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_read_as_ever(name: str) -> None:
    assert list(messages.read_parts(bytes.fromhex(GOLDEN[name]), 0)) == [PARTS[name]]


def test_packets_are_opened_as_ever() -> None:
    assert Envelope("golden", HASH).unwrap(bytes.fromhex(GOLDEN["plain_packet"])) == HEADS["ping"]
    assert sealed(bytes(16)).unwrap(bytes.fromhex(GOLDEN["sealed_packet"])) == HEADS["ping"]
