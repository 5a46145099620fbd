from __future__ import annotations

import lz4.block
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, MAX_NAME_BYTES, Member, MemberState, member_id
from gossipkv.gossip.packets import compression, fields, messages
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.fields import FieldReader, Malformed
from gossipkv.gossip.packets.key_ring import key
from gossipkv.gossip.packets.prefix import DroppedPacket, version_of
from gossipkv.gossip.packets.sealing import Sealing
from gossipkv.protocol import PROTOCOL_MAX, PROTOCOL_MIN, ProtocolVersions
from tests.oracle import packets as oracle
from tests.unit.gossip.packets import packet_forms as forms

# Both ways -----------------------------------------------------------------------------------------------------------


@given(forms.heads(), st.lists(forms.parts, max_size=4))
def test_messages_are_written_as_the_oracle_writes_them(head, parts) -> None:
    name, told = head
    written = forms.write_head(name, told) + b"".join(map(forms.write_part, parts))
    assert written == oracle.encode((name, told, [forms.part_form(part) for part in parts]))


@given(forms.heads(), st.lists(forms.parts, max_size=4))
def test_messages_are_read_as_they_were_written(head, parts) -> None:
    name, told = head
    expected = [forms.part_form(part) for part in parts]
    written = oracle.encode((name, told, expected))
    read_name, read, begin = forms.read_head(written)
    assert (read_name, read) == (name, told) == oracle.decode_head(written)[:2]
    if begin is not None:
        assert begin == oracle.decode_head(written)[2]
        assert list(messages.read_parts(written, begin)) == parts
        assert forms.read_parts(written, begin) == (expected, True) == oracle.decode_parts(written, begin)


# Damages to a message, with places modulo its length at that moment. All are drawn before anything is read: if bounds
# of a draw depended on earlier results, Hypothesis would report unequal draws instead of the failure.
places = st.integers(0, 2**16)
octets = st.sampled_from((0, 1, 2, 3, 127, 128, 255)) | st.integers(0, 255)
damages = st.lists(
    st.tuples(st.just("overwrite"), places, octets)
    | st.tuples(st.just("delete"), places, st.integers(1, 3))
    | st.tuples(st.just("double"), places, st.integers(1, 9))
    | st.tuples(st.just("cut"), places, st.none())
    | st.tuples(st.just("flip"), places, st.integers(0, 7)),
    min_size=1,
    max_size=3,
)


def spoiled(data: bytes, damage: list[tuple[str, int, int]]) -> bytes:
    """Return the data with a few bytes changed, left out, doubled or cut off."""
    out = bytearray(data)
    for name, place, operand in damage:
        at = place % (len(out) + 1)
        match name:
            case "overwrite":
                out[at : at + 1] = bytes((operand,))
            case "delete":
                del out[at : at + operand]
            case "double":
                out[at:at] = out[at : at + operand]
            case "cut":
                del out[at:]
            case "flip" if at < len(out):
                out[at] ^= 1 << operand
    return bytes(out)


@given(forms.heads(), st.lists(forms.parts, min_size=1, max_size=4), damages, places)
def test_damaged_messages_are_read_alike(head, parts, damage, place) -> None:
    """Package and oracle read the same from any bytes, or both refuse at the same part."""
    name, told = head
    data = spoiled(oracle.encode((name, told, [forms.part_form(part) for part in parts])), damage)
    try:
        expected = oracle.decode_head(data)
    except oracle.Broken:
        if data[:1] and data[0] in range(1, 10):
            with pytest.raises(Malformed):
                forms.read_head(data)
    else:
        read_name, read, begin = forms.read_head(data)
        assert (read_name, read) == expected[:2]
        assert begin in {None, expected[2]}
    begin = place % (len(data) + 1)
    assert forms.read_parts(data, begin) == oracle.decode_parts(data, begin)


@given(st.binary(max_size=200))
@example(b"\x01\xff\xff")
@example(b"\x03\x00\x00")
def test_any_bytes_are_read_alike(data) -> None:
    assert forms.read_parts(data, 0) == oracle.decode_parts(data, 0)


@given(st.binary(max_size=60), st.binary(min_size=8, max_size=8), st.integers(1, 2**64 - 1))
def test_envelopes_are_as_the_oracle_makes_them(message, cluster_id, counter) -> None:
    """Plain and sealed packets are equal byte for byte, and each side opens the other's."""
    secret, session = bytes(range(32)), bytes(range(16))
    plain = Envelope("one", cluster_id)
    assert plain.wrap(message) == oracle.wrap_plain(message, "one", cluster_id)
    assert oracle.unwrap(plain.wrap(message), "one", cluster_id) == message
    sealing = Sealing([key(secret)], session)
    sealing._counter = counter - 1
    sealed = Envelope("one", cluster_id, sealing, Seal.REQUIRE).wrap(message)
    assert sealed == oracle.wrap_sealed(message, "one", cluster_id, secret=secret, session=session, counter=counter)
    assert oracle.unwrap(sealed, "one", cluster_id, secret) == message
    other = Envelope("one", cluster_id, Sealing([key(secret)], bytes(16)), Seal.REQUIRE)
    assert other.unwrap(sealed) == message


@given(st.lists(forms.parts, max_size=4), st.integers(0, 15), st.sampled_from([0, 1, 30]))
def test_packed_parts_are_what_the_oracle_unpacks(parts, flags, times) -> None:
    """Short parts stay plain, long ones become an LZ4 block; the other flags stay."""
    body = b"".join(map(forms.write_part, parts)) * times
    message = compression.pack(bytes(8), b"\x01" * 8, flags, body)
    assert compression.unpack(message) == oracle.unpack(message) == body
    assert messages.read_sync(message) == (b"\x01" * 8, flags | (messages.PACKED if len(body) >= 1024 else 0))


@given(st.binary(max_size=300), damages)
def test_damaged_packs_are_read_alike(body, damage) -> None:
    message = compression.pack(bytes(8), bytes(8), 0, body * 40)
    damaged = message[:18] + spoiled(message[18:], damage)
    try:
        expected = oracle.unpack(damaged)
    except oracle.Broken:
        with pytest.raises(Malformed):
            compression.unpack(damaged)
    else:
        assert compression.unpack(damaged) == expected


def test_a_pack_that_would_be_too_large_is_refused_unread() -> None:
    """The size comes first, so no memory is reserved; a false size yields no more than it states."""
    head = messages.sync(bytes(8), bytes(8), messages.PACKED)
    bomb = lz4.block.compress(bytes(20 << 20), store_size=False)
    for size in (compression.MAX_UNPACKED_BYTES + 1, 0xFFFFFFFF, 1000):
        with pytest.raises(Malformed):
            compression.unpack(head + size.to_bytes(4, "big") + bomb)


# Numbers, texts, addresses -------------------------------------------------------------------------------------------


@given(forms.numbers)
def test_numbers(value) -> None:
    """The oracle writes the same bytes, and reading leaves none over."""
    assert fields.varint(value) == oracle.number(value)
    reader = FieldReader(fields.varint(value))
    assert reader.varint() == value
    assert reader.left == 0


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 8, b"\xff" * 9 + b"\x00"])
def test_numbers_without_an_end(data) -> None:
    """A number that is cut short or over 63 bits is refused after nine bytes at most."""
    with pytest.raises(Malformed):
        FieldReader(data).varint()


def test_the_largest_number() -> None:
    """Nine bytes hold 63 bits."""
    assert fields.varint(oracle.LARGEST_NUMBER) == b"\xff" * 8 + b"\x7f"
    assert FieldReader(b"\xff" * 8 + b"\x7f").varint() == oracle.LARGEST_NUMBER


def test_a_reader_stays_in_its_part() -> None:
    """A part that is too short does not borrow from the next one."""
    reader = FieldReader(b"\x00\x01\x02\x03", 1, 3)
    assert reader.take(2) == b"\x01\x02"
    with pytest.raises(Malformed, match="a field at byte 3 needs 1 bytes, and 0 are left"):
        reader.take(1)


# Limits --------------------------------------------------------------------------------------------------------------


def test_a_long_name_of_a_cluster_is_cut() -> None:
    """A refusal carries 255 bytes of the name for a person to read; a letter cut in two is marked."""
    assert messages.read_refusal(messages.refusal(bytes(8), "ü" * 128)) == "ü" * 127 + "\ufffd"
    assert messages.read_refusal(messages.refusal(bytes(8), "n" * 300)) == "n" * 255
    with pytest.raises(Malformed):
        messages.read_refusal(messages.refusal(bytes(8), "")[:9] + b"\x80\x02" + bytes(256))


MEMBER = Member(member_id("n"), "n", bytes(16), Address("10.0.0.1", 7070), 1, 0, MemberState.ALIVE)

EMPTY = messages.Delta(bytes(8), epoch=1, floor=0, since=0, reach=0, target=0, reset=False, changes=())


@pytest.mark.parametrize(("name", "well"), [("n" * 64, True), ("n" * 65, False), ("", False)])
def test_the_length_of_a_name(name, well) -> None:
    """A name has 1 to 64 bytes."""
    written = messages.record(MEMBER._replace(name=name))
    assert forms.read_parts(written, 0)[1] is well


@pytest.mark.parametrize(("path", "value", "well"), [(1024, 32768, True), (1025, 0, False), (0, 32769, False)])
def test_the_length_of_paths_and_values(path, value, well) -> None:
    """A path has up to 1024 bytes, a value up to 32 KiB."""
    made = messages.BranchChange(1, "p" * path, bytes(value))
    written = messages.delta(EMPTY._replace(reach=1, target=1, changes=(made,)))
    assert forms.read_parts(written, 0)[1] is well


CONTRADICTIONS = [
    ({"since": 5, "reach": 4}, ()),  # The reach lies before the start.
    ({"reach": 5, "target": 4}, ()),  # The reach lies beyond the target.
    ({"reach": 2}, (3,)),  # A change lies beyond the reach.
    ({}, (3, 3)),  # A version occurs twice.
    ({}, (3, 2)),  # Versions are not in order.
    ({}, (0,)),  # `since` includes the change.
    ({"floor": 6, "since": 5}, (7,)),  # A gap: there are no tombstones up to 6 for a receiver at 5.
    ({"floor": 10, "flags": messages.RESET}, ()),  # The floor lies above the target.
]


@pytest.mark.parametrize(("numbers", "versions"), CONTRADICTIONS)
def test_deltas_that_contradict_themselves(numbers, versions) -> None:
    """Package and oracle refuse the whole delta."""
    told = {"owner's id": bytes(8), "flags": 0, "epoch": 1, "floor": 0, "since": 0, "reach": 9, "target": 9} | numbers
    each = [{"version minus since": version - told["since"], "kind": 2, "path": "p"} for version in versions]
    written = oracle.encode_part(("DELTA", {**told, "each": each}))
    with pytest.raises(Malformed, match=r"order|contradict"):
        list(messages.read_parts(written, 0))
    assert oracle.decode_parts(written, 0) == ([], False)


@pytest.mark.parametrize("kind", [0, 3, 255])
def test_a_change_is_a_put_or_a_tombstone(kind) -> None:
    """After a change of an unknown kind, the bytes behind the path could mean anything."""
    each = [{"version minus since": 1, "kind": kind, "path": "p", "value": b"v"}]
    numbers = {"epoch": 1, "floor": 0, "since": 0, "reach": 1, "target": 1}
    written = oracle.encode_part(("DELTA", {"owner's id": bytes(8), "flags": 0, **numbers, "each": each}))
    with pytest.raises(Malformed, match=f"the unknown kind {kind}"):
        list(messages.read_parts(written, 0))
    assert oracle.decode_parts(written, 0) == ([], False)


# Other versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 7, 100, 255])
@pytest.mark.parametrize("size", [0, 1, 300])
def test_parts_of_unknown_kinds_are_passed_over(kind, size) -> None:
    """A later version may send more kinds; the known parts are read."""
    strange = bytes((kind,)) + size.to_bytes(2, "big") + bytes(size)
    known = messages.head(messages.BranchHead(bytes(8), 1, 2))
    assert list(messages.read_parts(strange + known + strange, 0)) == [messages.BranchHead(bytes(8), 1, 2)]


@pytest.mark.parametrize(
    "part",
    [MEMBER, messages.MemberVerdict(bytes(8), MemberState.DEAD, 1, 2, bytes(8)), messages.BranchHead(bytes(8), 1, 2)],
    ids=["record", "verdict", "head"],
)
def test_further_fields_are_passed_over(part) -> None:
    """A later version may append fields to a part without repetition."""
    written = forms.write_part(part)
    longer = written[:1] + (len(written) - 3 + 5).to_bytes(2, "big") + written[3:] + b"later"
    assert list(messages.read_parts(longer, 0)) == [part]


@pytest.mark.parametrize(
    "part", [MEMBER, messages.MemberVerdict(bytes(8), MemberState.DEAD, 1, 2, bytes(8))], ids=["record", "verdict"]
)
def test_what_is_remembered_of_parts_is_small(part) -> None:
    """Parts that were read once are cached, except overlong ones."""
    written = forms.write_part(part)
    for cache in (messages._record, messages._verdict):
        cache.cache_clear()
    for number in range(50):
        body = written[3:] + number.to_bytes(2, "big") + bytes(60_000)
        assert list(messages.read_parts(written[:1] + len(body).to_bytes(2, "big") + body, 0)) == [part]
    assert messages._record.cache_info().currsize == messages._verdict.cache_info().currsize == 0
    longest = longest_like(part)
    for _ in range(3):
        assert list(messages.read_parts(forms.write_part(longest), 0)) == [longest]
    assert messages._record.cache_info().hits + messages._verdict.cache_info().hits == 2


def longest_like(part):
    if isinstance(part, messages.MemberVerdict):
        return part._replace(epoch=MAX_EPOCH, incarnation=MAX_INCARNATION)
    name = "x" * MAX_NAME_BYTES
    address = Address("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 65_535)
    return part._replace(id=member_id(name), name=name, address=address, epoch=MAX_EPOCH, incarnation=MAX_INCARNATION)


def test_unknown_flags_are_passed_over() -> None:
    """Bits that this version does not know change nothing."""
    assert messages.read_sync(messages.sync(bytes(8), bytes(8), 0xFF))[1] & messages.MORE
    written = bytearray(messages.delta(EMPTY))
    written[11] = 0xFE
    assert list(messages.read_parts(bytes(written), 0)) == [EMPTY]


@pytest.mark.parametrize("version", [PROTOCOL_MIN - 1, PROTOCOL_MAX + 1, 255])
@pytest.mark.parametrize("sealing", [None, Sealing([key(bytes(32))], bytes(16))], ids=["plain", "sealed"])
def test_another_protocol_version_is_dropped(version, sealing) -> None:
    """Even if all else fits, the packet is dropped with that reason; the sender is known if the packet is whole."""
    packet = Envelope("one", sealing=sealing, seal=Seal.REQUIRE).wrap(messages.gossip(b"a sender"), version)
    reader = Envelope("one", sealing=sealing and Sealing(sealing.keys, bytes(15) + b"2"))
    for received, sender in ((packet, b"a sender"), (packet[:-1] + b"?", b"")):
        with pytest.raises(DroppedPacket) as dropped:
            reader.unwrap(received)
        assert (dropped.value.reason, dropped.value.sender) == ("protocol_version", sender)


def test_every_version_that_is_spoken_is_read() -> None:
    """A node writes the agreed version, and a reply in that of its request; it reads any version of its range."""
    one, other = (Envelope("one", versions=ProtocolVersions(1, 3)) for _ in range(2))
    one.use(2)
    written = [one.wrap(b"agreed"), one.wrap(b"reply", 3)]
    assert [version_of(packet) for packet in written] == [2, 3]
    assert [other.unwrap(packet) for packet in written] == [b"agreed", b"reply"]


@pytest.mark.parametrize("versions", [ProtocolVersions(1, 1), ProtocolVersions(1, 2), ProtocolVersions(7, 255)])
def test_the_versions_of_a_member(versions) -> None:
    """A record has the versions unless the member speaks the first alone; impossible ones count as the first."""
    written = messages.record(MEMBER._replace(versions=versions))
    assert list(messages.read_parts(written, 0)) == [MEMBER._replace(versions=versions)]
    body = messages.record(MEMBER)[messages.PART_HEAD_BYTES :]
    for more in (b"\2", b"\2\1", b"\0\1"):
        assert list(messages.read_parts(messages.part(messages.RECORD, body + more), 0)) == [MEMBER]


def test_an_error_costs_only_what_comes_after_it() -> None:
    """The parts before a damaged one have been read."""
    head = messages.head(messages.BranchHead(bytes(8), 1, 2))
    read = messages.read_parts(head + b"\x04\x00\x01\x00" + head, 0)
    assert next(read) == messages.BranchHead(bytes(8), 1, 2)
    with pytest.raises(Malformed):
        next(read)
