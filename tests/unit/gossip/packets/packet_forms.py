"""Random packets in the forms of the package and of the oracle, and their conversion."""

from __future__ import annotations

import ipaddress

from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.packets import messages
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
from tests.oracle import packets as oracle

# Written by the package
# -------------------------------------------------------------------------------------------------


def write_head(name: str, fields: dict) -> bytes:
    """Return the package's encoding of an oracle head."""
    sender, *rest = fields.values()
    if name == "PING_REQUEST":
        rest[-1] = address_of(rest[-1])
    if name in {"WHO", "ME"}:
        return messages.who(getattr(messages, name), sender, Who(*rest))
    return getattr(messages, name.lower())(sender, *rest)


def write_part(part: messages.Part) -> bytes:
    match part:
        case Member():
            return messages.record(part)
        case MemberVerdict():
            return messages.verdict(part)
        case Delta():
            return messages.delta(part)
        case BranchHead():
            return messages.head(part)
        case MemberDigest():
            return messages.digest(part.first, part.last, [messages.known_member(one) for one in part.entries])
    assert isinstance(part, Want)
    return messages.want([messages.known_member(one) for one in part.entries])


# Read by the package, in the oracle's form
# ------------------------------------------------------------------------------


def read_head(message: bytes) -> tuple[str, dict, int | None]:
    """Return kind, fields and start of the parts (None where the package expects no parts)."""
    name, table = next((name, table) for name, (kind, table) in oracle.HEADS.items() if kind == message[0])
    begin: int | None = None
    match name:
        case "PING":
            values, begin = messages.read_ping(message), messages.PING_BYTES
        case "ACK":
            values, begin = messages.read_ack(message), messages.ACK_BYTES
        case "NACK":
            values, begin = (messages.read_nack(message),), messages.NACK_BYTES
        case "PING_REQUEST":
            sequence, target, address, begin = messages.read_ping_request(message)
            values = sequence, target, address_form(address)
        case "GOSSIP":
            if len(message) < messages.GOSSIP_BYTES:
                raise messages.Malformed
            values, begin = (), messages.GOSSIP_BYTES
        case "SYNC":
            values, begin = messages.read_sync(message), messages.SYNC_BYTES
        case "REFUSAL":
            values = (messages.read_refusal(message),)
        case _:
            values = messages.read_who(message)
    told = zip((field for _, field in table), values, strict=True)
    return name, {"sender's id": message[1:9], **dict(told)}, begin


def read_parts(message: bytes, begin: int) -> tuple[list[oracle.Part], bool]:
    """Return the parts in the oracle's form, and True if all were read without an error."""
    read: list[oracle.Part] = []
    try:
        read.extend(map(part_form, messages.read_parts(message, begin)))  # Parts before an error stay.
    except messages.Malformed:
        return read, False
    return read, True


def part_form(part: messages.Part) -> oracle.Part:
    match part:
        case Member():
            assert part.id == member_id(part.name)
            return "RECORD", {
                "state": int(part.state), "incarnation": part.incarnation, "uuid": part.uuid, "epoch": part.epoch,
                "address": address_form(part.address), "name": part.name,
            }  # fmt: skip
        case MemberVerdict():
            return "VERDICT", {
                "id": part.id, "state": int(part.state), "incarnation": part.incarnation, "epoch": part.epoch,
                "accuser's id": part.accuser,
            }  # fmt: skip
        case Delta():
            numbers = {name: getattr(part, name) for name in ("epoch", "floor", "since", "reach", "target")}
            each = [change_form(one, part.since) for one in part.changes]
            return "DELTA", {"owner's id": part.owner, "flags": int(part.reset), **numbers, "each": each}
        case BranchHead():
            return "HEAD", {"owner's id": part.owner, "epoch": part.epoch, "version": part.version}
        case MemberDigest():
            each = [known_form(one) for one in part.entries]
            return "DIGEST", {"first id": part.first, "last id": part.last, "each": each}
    assert isinstance(part, Want)
    return "WANT", {"each": [known_form(one) for one in part.entries]}


def known_form(one: KnownMember) -> dict:
    return {
        "id": one.id, "state": int(one.state), "incarnation": one.incarnation, "epoch": one.epoch,
        "version": one.version, "age in s": one.age_s,
    }  # fmt: skip


def change_form(one: BranchChange, since: int) -> dict:
    form = {"version minus since": one.version - since, "kind": 2 if one.value is None else 1, "path": one.path}
    return form if one.value is None else form | {"value": one.value}


def address_form(address: Address) -> tuple[bytes, int]:
    return ipaddress.ip_address(address.host).packed, address.port


def address_of(form: tuple[bytes, int]) -> Address:
    return Address(str(ipaddress.ip_address(form[0])), form[1])


# Drawn ---------------------------------------------------------------------------------------------------------------

ids, uuids = st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16)
numbers = st.one_of(st.integers(0, 300), st.integers(0, oracle.LARGEST_NUMBER))
words32 = st.integers(0, 2**32 - 1)
addresses = st.builds(Address, st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535))
states = st.sampled_from(MemberState)
names = st.text(min_size=1, max_size=16).filter(lambda text: 0 < len(text.encode()) <= 64)
paths = st.text(max_size=40)

knowns = st.builds(KnownMember, ids, states, words32, numbers, numbers, numbers)


@st.composite
def members(draw: st.DrawFn) -> Member:
    name = draw(names)
    return Member(member_id(name), name, draw(uuids), draw(addresses), draw(numbers), draw(words32), draw(states))


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    steps = draw(st.lists(st.integers(1, 1000), max_size=8))
    since = draw(st.integers(0, 2**62))
    versions = [since + sum(steps[: place + 1]) for place in range(len(steps))]
    reach = (versions[-1] if versions else since) + draw(st.integers(0, 1000))
    target = reach + draw(st.integers(0, 1000))
    reset = draw(st.booleans())
    floor = draw(st.integers(0, target if reset else since))
    values = st.none() | st.binary(max_size=50)
    changes = tuple(BranchChange(version, draw(paths), draw(values)) for version in versions)
    return Delta(draw(ids), draw(numbers), floor, since, reach, target, reset, changes)


parts = st.one_of(
    members(),
    st.builds(MemberVerdict, ids, states, words32, numbers, ids),
    deltas(),
    st.builds(BranchHead, ids, numbers, numbers),
    st.builds(MemberDigest, ids, ids, st.lists(knowns, max_size=5).map(tuple)),
    st.builds(Want, st.lists(knowns, max_size=5).map(tuple)),
)


@st.composite
def heads(draw: st.DrawFn) -> tuple[str, dict]:
    by_size = {
        "1": st.integers(0, 255), "4": words32, "8": ids, "16": uuids, "number": numbers,
        "address": addresses.map(address_form),
    }  # fmt: skip
    by_size["text"] = st.text(max_size=60)
    name = draw(st.sampled_from(sorted(oracle.HEADS)))
    table = (oracle.SENDER[1], *oracle.HEADS[name][1])
    return name, {field: draw(by_size[size]) for size, field in table}
