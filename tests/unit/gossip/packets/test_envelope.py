from __future__ import annotations

import itertools
import zlib

import pytest

from gossipkv.gossip.packets.envelope import HEADER_BYTES, Envelope, Seal
from gossipkv.gossip.packets.key_ring import key
from gossipkv.gossip.packets.prefix import NO_CLUSTER, REASONS, DroppedPacket, cluster_id_of, cluster_mark
from gossipkv.gossip.shell.key_file import sealing
from gossipkv.protocol import PROTOCOL_MAX

ID, OTHER_ID = b"cluster1", b"cluster2"
KEY = key(bytes(32))
MESSAGE = b"any message"


def sealed(seal: Seal = Seal.REQUIRE, session: int = 1, name: str = "one", cluster_id: bytes = ID) -> Envelope:
    """Return an envelope with a key ring of one key."""
    return Envelope(name, cluster_id, sealing([KEY], session.to_bytes(16, "big")), seal)


def reason(receiver: Envelope, packet: bytes, *, any_cluster: bool = False) -> str:
    with pytest.raises(DroppedPacket) as dropped:
        receiver.unwrap(packet, any_cluster=any_cluster)
    return dropped.value.reason


def changed(packet: bytes, at: int, value: int) -> bytes:
    """Return the packet with one byte replaced."""
    return packet[:at] + bytes((value,)) + packet[at + 1 :]


def test_a_plain_packet_is_as_drawn() -> None:
    """The packet has letter, version, form, mark of the name, cluster id, CRC of all else, and message."""
    mark = cluster_mark("one")
    before = b"\x47\x01\x00" + mark + ID
    packet = before + zlib.crc32(before + MESSAGE).to_bytes(4, "big") + MESSAGE
    assert Envelope("one", ID).wrap(MESSAGE) == packet
    assert Envelope("one", ID).unwrap(packet) == MESSAGE
    assert cluster_id_of(packet) == ID


@pytest.mark.parametrize("make", [lambda: Envelope("one", ID), sealed], ids=["plain", "sealed"])
def test_what_wrap_adds_is_told(make) -> None:
    """A core that leaves `overhead` free makes packets that fit."""
    one = make()
    assert len(one.wrap(MESSAGE)) == len(MESSAGE) + one.overhead
    assert len(one.wrap(b"")) == one.overhead


def test_any_flipped_bit_of_a_plain_packet_is_seen() -> None:
    """Each flip gets a reason; beyond the prefix the reason is the checksum."""
    one = Envelope("one", ID)
    packet = one.wrap(MESSAGE)
    for bit in range(8 * len(packet)):
        got = reason(one, changed(packet, bit // 8, packet[bit // 8] ^ 1 << bit % 8))
        assert got == "checksum" or bit < 8 * 15
        assert got in REASONS


REASONS_BY_BYTE = [
    (0, 0x48, "foreign"),
    (1, PROTOCOL_MAX + 1, "protocol_version"),
    (2, 2, "form"),
    (3, 0, "cluster_name"),
]


@pytest.mark.parametrize(("at", "value", "why"), [*REASONS_BY_BYTE, (7, 0, "cluster_id")])
@pytest.mark.parametrize("make", [lambda: Envelope("one", ID), sealed], ids=["plain", "sealed"])
def test_each_field_of_the_prefix_has_its_reason(make, at: int, value: int, why: str) -> None:
    """Another protocol, version, form, name or id has its own reason, with keys and without."""
    assert reason(make(), changed(Envelope("one", ID).wrap(MESSAGE), at, value)) == why


def test_short_packets_are_dropped() -> None:
    """Every proper prefix of a packet's fields is too short."""
    plain, other = Envelope("one", ID), sealed(session=2)
    for size in range(HEADER_BYTES):
        assert reason(plain, plain.wrap(MESSAGE)[:size]) == "short"
    for size in range(other.overhead):
        assert reason(sealed(), other.wrap(MESSAGE)[:size]) == "short"


@pytest.mark.parametrize("make", [lambda i: Envelope("one", i), lambda i: sealed(cluster_id=i, session=i[-1])])
def test_ids_meet_where_any_cluster_is_let_in(make) -> None:
    """A request over TCP may carry another id or none, which the receiver learns; the name still counts."""
    for theirs in (OTHER_ID, NO_CLUSTER):
        packet = make(theirs).wrap(MESSAGE)
        assert reason(make(ID), packet) == "cluster_id"
        assert make(ID).unwrap(packet, any_cluster=True) == MESSAGE
        assert cluster_id_of(packet) == theirs
    assert reason(make(ID), Envelope("two", ID).wrap(MESSAGE), any_cluster=True) == "cluster_name"


def test_any_cluster_still_checks_the_sum() -> None:
    """A packet of another cluster id must be undamaged too, including the id."""
    packet = Envelope("one", OTHER_ID).wrap(MESSAGE)
    for at in range(7, len(packet)):
        assert reason(Envelope("one", ID), changed(packet, at, packet[at] ^ 1), any_cluster=True) == "checksum"


@pytest.mark.parametrize("make", [lambda i: Envelope("one", i), lambda i: sealed(cluster_id=i, session=i[-1])])
def test_adopting_an_id_changes_both_ways(make) -> None:
    """After adoption packets carry the new id, and packets of the old id are dropped."""
    joiner, member = make(NO_CLUSTER), make(ID)
    assert reason(joiner, member.wrap(MESSAGE)) == "cluster_id"
    joiner.adopt(ID)
    assert joiner.cluster_id == ID
    assert joiner.unwrap(member.wrap(MESSAGE)) == MESSAGE
    assert member.unwrap(joiner.wrap(MESSAGE)) == MESSAGE


# Sender, receiver: the fate of the packet.
LET_IN = {
    (None, None): "in", (None, "accept"): "in", (None, "send"): "in", (None, "require"): "not_sealed",
    ("accept", None): "in", ("accept", "accept"): "in", ("accept", "send"): "in", ("accept", "require"): "not_sealed",
    ("send", None): "no_keys", ("send", "accept"): "in", ("send", "send"): "in", ("send", "require"): "in",
    ("require", None): "no_keys", ("require", "accept"): "in", ("require", "send"): "in", ("require", "require"): "in",
}  # fmt: skip


@pytest.mark.parametrize(("sender", "receiver"), LET_IN)
def test_who_opens_whose_packets(sender: str | None, receiver: str | None) -> None:
    def make(step: str | None, session: int) -> Envelope:
        return Envelope("one", ID) if step is None else sealed(Seal(step), session)

    expected = LET_IN[sender, receiver]
    packet = make(sender, 1).wrap(MESSAGE)
    if expected == "in":
        assert make(receiver, 2).unwrap(packet) == MESSAGE
    else:
        assert reason(make(receiver, 2), packet) == expected


def test_neighbouring_steps_understand_each_other() -> None:
    """The table above allows a rolling change, one node after the other, in either direction."""
    steps = [None, "accept", "send", "require"]
    for one, next_one in itertools.pairwise(steps):
        assert LET_IN[one, next_one] == LET_IN[next_one, one] == "in"
