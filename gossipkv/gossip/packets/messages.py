"""The messages inside an envelope, byte by byte.

A message is a head and then parts; whole numbers are big-endian, `number` is LEB128 (`fields.py`).

    head        1 kind, 8 sender's id, then by kind
    PING        4 sequence, 8 target's id, 8 state hash
    ACK         4 sequence, 8 state hash
    NACK        4 sequence
    PING_REQUEST  4 sequence, 8 target's id, target's address
    GOSSIP      nothing
    SYNC        8 state hash, 1 flags (1: more than fits, come over TCP; 2: a reply, which asks for none; about the
                sender if cluster ids meet: 4: it knows no other member, 8: it may not take another cluster id, 32: it
                was told to join the other; over TCP 16: the parts follow as 4 bytes size and an LZ4 block)
    WHO         4 sequence, 16 uuid, number epoch, number age in ms: asks for the node at the address
    ME          as WHO: I am
    REFUSAL     text cluster's name: the asker is of another cluster (over TCP, in an envelope of this cluster)

    part        1 kind, 2 length, body
    RECORD      a member: 1 state, 4 incarnation, 16 uuid, number epoch, address, name behind its length (then oldest
                and newest protocol version, a byte each, unless the member speaks version one alone)
    VERDICT     a finding about a member: 8 id, 1 state, 4 incarnation, number epoch, 8 accuser's id
    DELTA       changes of a branch: 8 owner's id, 1 flags (1: a reset), numbers epoch, floor, since, reach, target,
                then per change: number version minus `since`, 1 kind (1 put, 2 tombstone), path and value behind
                their lengths (a tombstone has no value)
    HEAD        position of a branch: 8 owner's id, numbers epoch and version
    DIGEST      all members that the sender knows, with ids from 8 first to 8 last: per member 8 id, 1 state,
                4 incarnation, numbers epoch, branch's version, seconds since the owner was last heard, or found dead
                or gone (the ranges of one message ascend; a range that overlaps earlier ones is not compared)
    WANT        as DIGEST without a range: the sender has this and wants newer state (the last of a member counts)

Nodes with equal state hashes have equal knowledge (`anti_entropy/state_hash.py`).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.gossip.member import ID_BYTES, MAX_EPOCH, MAX_NAME_BYTES, UUID_BYTES, Member, MemberState, member_id
from gossipkv.gossip.packets import fields
from gossipkv.gossip.packets.fields import MAX_VARINT_BYTES, FieldReader, Malformed, varint
from gossipkv.protocol import FIRST, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gossipkv.address import Address

PING, ACK, NACK, PING_REQUEST, GOSSIP, SYNC, WHO, ME, REFUSAL = range(1, 10)
RECORD, VERDICT, DELTA, HEAD, DIGEST, WANT = range(1, 7)

HASH_BYTES = 8
PART_HEAD_BYTES = 3
MAX_PART_BYTES = 0xFFFF

MORE, REPLY, LONE, PINNED, PACKED, TOLD = 1, 2, 4, 8, 16, 32  # Flags of SYNC.
RESET = 1  # Flag of DELTA.
PUT, TOMBSTONE = 1, 2

_KEPT_PARTS = 8192  # Bounds the decoded RECORDs and VERDICTs that are cached: 3 MiB of each kind at most.
MAX_RECORD_BYTES = 1 + 4 + UUID_BYTES + MAX_VARINT_BYTES + 1 + 16 + 2 + 1 + MAX_NAME_BYTES + 2
MAX_VERDICT_BYTES = ID_BYTES + 1 + 4 + MAX_VARINT_BYTES + ID_BYTES
MAX_CLUSTER_BYTES = 255  # Bounds a cluster name in a refusal.
MAX_PATH_BYTES = 1024
MAX_VALUE_BYTES = 32 * 1024

_PING = struct.Struct(f">B{ID_BYTES}sI{ID_BYTES}s{HASH_BYTES}s")
_ACK = struct.Struct(f">B{ID_BYTES}sI{HASH_BYTES}s")
_NACK = struct.Struct(f">B{ID_BYTES}sI")
_SYNC = struct.Struct(f">B{ID_BYTES}s{HASH_BYTES}sB")

PING_BYTES, ACK_BYTES, NACK_BYTES, SYNC_BYTES = _PING.size, _ACK.size, _NACK.size, _SYNC.size
GOSSIP_BYTES = 1 + ID_BYTES

# Positions of fields in PING and ACK, for the one path on which function calls would be noticeable.
KIND, SENDER, SEQUENCE = slice(0, 1), slice(1, 9), slice(9, 13)
TARGET, PING_HASH, ACK_HASH = slice(13, 21), slice(21, 29), slice(13, 21)


class Who(NamedTuple):
    """Identity of a node, sent to a node that may have the same name."""

    sequence: int
    uuid: bytes
    epoch: int
    age_ms: int  # Time since the node announced itself; 0 if it has not.


class MemberVerdict(NamedTuple):
    """A finding about a member, and its accuser."""

    id: bytes
    state: MemberState
    incarnation: int
    epoch: int
    accuser: bytes


class BranchChange(NamedTuple):
    """One change of a branch; `value` is None for a tombstone."""

    version: int
    path: str
    value: bytes | None


class Delta(NamedTuple):
    """Changes of one branch after version `since` up to `reach`, a step to the state at `target`.

    Tombstones up to `floor` were dropped. So either `since >= floor`, or `reset` is set and `since` counts from an
    empty branch.
    """

    owner: bytes
    epoch: int
    floor: int
    since: int
    reach: int
    target: int
    reset: bool
    changes: tuple[BranchChange, ...]


class BranchHead(NamedTuple):
    """Position of a branch."""

    owner: bytes
    epoch: int
    version: int


class KnownMember(NamedTuple):
    """Knowledge of one member: its rank, the local version of its branch, and when it was heard last."""

    id: bytes
    state: MemberState
    incarnation: int
    epoch: int
    version: int
    age_s: int


class MemberDigest(NamedTuple):
    """All members that a node knows with ids from `first` to `last`, both included; ordered by id."""

    first: bytes
    last: bytes
    entries: tuple[KnownMember, ...]


class Want(NamedTuple):
    """State that a node has, and of which it wants a newer one."""

    entries: tuple[KnownMember, ...]


Part = Member | MemberVerdict | Delta | BranchHead | MemberDigest | Want


# Heads


def ping(sender: bytes, sequence: int, target: bytes, state_hash: bytes) -> bytes:
    """Return a PING, the probe of a member."""
    return _PING.pack(PING, sender, sequence, target, state_hash)


def read_ping(message: bytes) -> tuple[int, bytes, bytes]:
    """Return sequence, target's id and state hash."""
    _, _, sequence, target, state_hash = _PING.unpack_from(_whole(message, PING_BYTES))
    return sequence, target, state_hash


def ack(sender: bytes, sequence: int, state_hash: bytes) -> bytes:
    """Return an ACK, the answer to a PING."""
    return _ACK.pack(ACK, sender, sequence, state_hash)


def read_ack(message: bytes) -> tuple[int, bytes]:
    """Return sequence and state hash."""
    _, _, sequence, state_hash = _ACK.unpack_from(_whole(message, ACK_BYTES))
    return sequence, state_hash


def nack(sender: bytes, sequence: int) -> bytes:
    """Return a NACK: the helper has no answer of the target yet."""
    return _NACK.pack(NACK, sender, sequence)


def read_nack(message: bytes) -> int:
    """Return the sequence."""
    sequence: int = _NACK.unpack_from(_whole(message, NACK_BYTES))[2]
    return sequence


def ping_request(sender: bytes, sequence: int, target: bytes, address: Address) -> bytes:
    """Return a PING_REQUEST, which asks a helper to reach `target`."""
    return _NACK.pack(PING_REQUEST, sender, sequence) + target + fields.address(address)


def read_ping_request(message: bytes) -> tuple[int, bytes, Address, int]:
    """Return sequence, target's id and address, and the offset of the parts."""
    reader = FieldReader(message, NACK_BYTES)
    target, address = reader.take(ID_BYTES), reader.address()
    return read_nack(message), target, address, len(message) - reader.left


def gossip(sender: bytes) -> bytes:
    """Return the head of a message that has nothing but parts."""
    return bytes((GOSSIP,)) + sender


def sync(sender: bytes, state_hash: bytes, flags: int) -> bytes:
    """Return the head of a message of an exchange."""
    return _SYNC.pack(SYNC, sender, state_hash, flags)


def read_sync(message: bytes) -> tuple[bytes, int]:
    """Return state hash and flags."""
    _, _, state_hash, flags = _SYNC.unpack_from(_whole(message, SYNC_BYTES))
    return state_hash, flags


def who(kind: int, sender: bytes, asked: Who) -> bytes:
    """Return a WHO or ME."""
    return _NACK.pack(kind, sender, asked.sequence) + asked.uuid + varint(asked.epoch) + varint(asked.age_ms)


def read_who(message: bytes) -> Who:
    """Return the content of a WHO or ME."""
    reader = FieldReader(message, NACK_BYTES)
    return Who(read_nack(message), reader.take(UUID_BYTES), reader.varint(), reader.varint())


def refusal(sender: bytes, cluster: str) -> bytes:
    """Return a REFUSAL: the asker is of another cluster than `cluster`."""
    return bytes((REFUSAL,)) + sender + fields.text(cluster.encode()[:MAX_CLUSTER_BYTES])


def read_refusal(message: bytes) -> str:
    """Return the cluster's name, for display only."""
    reader = FieldReader(message, 1 + ID_BYTES)
    return reader.text(MAX_CLUSTER_BYTES).decode(errors="replace")


def _whole(message: bytes, size: int) -> bytes:
    if len(message) < size:
        raise Malformed(f"a message of kind {message[:1].hex()} has {len(message)} bytes, at least {size} are needed")
    return message


# Parts


def part(kind: int, body: bytes) -> bytes:
    """Return a part as it stands in a message."""
    assert len(body) <= MAX_PART_BYTES
    return bytes((kind,)) + len(body).to_bytes(2, "big") + body


@lru_cache(maxsize=_KEPT_PARTS)
def record(member: Member) -> bytes:
    """Return the part RECORD."""
    return part(
        RECORD,
        bytes((member.state,))
        + member.incarnation.to_bytes(4, "big")
        + member.uuid
        + varint(member.epoch)
        + fields.address(member.address)
        + fields.text(member.name.encode())
        + (b"" if member.versions == FIRST else bytes(member.versions)),
    )


def verdict(finding: MemberVerdict) -> bytes:
    """Return the part VERDICT."""
    head = finding.id + bytes((finding.state,)) + finding.incarnation.to_bytes(4, "big")
    return part(VERDICT, head + varint(finding.epoch) + finding.accuser)


def delta(sent: Delta) -> bytes:
    """Return the part DELTA."""
    numbers = (sent.epoch, sent.floor, sent.since, sent.reach, sent.target)
    head = sent.owner + bytes((RESET if sent.reset else 0,)) + b"".join(map(varint, numbers))
    return part(DELTA, head + b"".join(change(item, sent.since) for item in sent.changes))


def change(item: BranchChange, since: int) -> bytes:
    """Return one change as it stands in a DELTA."""
    version, path = varint(item.version - since), fields.text(item.path.encode())
    if item.value is None:
        return version + bytes((TOMBSTONE,)) + path
    return version + bytes((PUT,)) + path + fields.text(item.value)


def head(where: BranchHead) -> bytes:
    """Return the part HEAD."""
    return part(HEAD, where.owner + varint(where.epoch) + varint(where.version))


def known_member(entry: KnownMember) -> bytes:
    """Return one member as it stands in a DIGEST or a WANT."""
    fixed = entry.id + bytes((entry.state,)) + entry.incarnation.to_bytes(4, "big")
    return fixed + varint(entry.epoch) + varint(entry.version) + varint(entry.age_s)


def digest(first: bytes, last: bytes, members: Sequence[bytes]) -> bytes:
    """Return the part DIGEST, with members as `known_member` encodes them."""
    return part(DIGEST, first + last + b"".join(members))


def want(members: Sequence[bytes]) -> bytes:
    """Return the part WANT, with members as `known_member` encodes them."""
    return part(WANT, b"".join(members))


def read_parts(message: bytes, begin: int) -> Iterator[Part]:
    """Yield the parts of a message; skip parts of kinds that this version does not know.

    Raises:
        Malformed: the rest of the message cannot be read.
    """
    end = len(message)
    while begin < end:
        if begin + PART_HEAD_BYTES > end:
            raise Malformed("a part is cut short")
        kind = message[begin]
        body = begin + PART_HEAD_BYTES
        begin = body + int.from_bytes(message[begin + 1 : body], "big")
        if begin > end:
            raise Malformed("a part is cut short")
        reading = _READ.get(kind)
        if reading is not None:
            yield reading(message[body:begin])


# The same bytes of a rumour come a dozen times, from all sides, so decoded parts are cached. A newer version may append
# fields to a body; a body longer than the maximum of this version is decoded each time.


def _read_record(body: bytes) -> Member:
    return _record(body) if len(body) <= MAX_RECORD_BYTES else _record.__wrapped__(body)


def _read_verdict(body: bytes) -> MemberVerdict:
    return _verdict(body) if len(body) <= MAX_VERDICT_BYTES else _verdict.__wrapped__(body)


@lru_cache(maxsize=_KEPT_PARTS)
def _record(body: bytes) -> Member:
    reader = FieldReader(body)
    state, incarnation, uuid = _read_state(reader), reader.number(4), reader.take(UUID_BYTES)
    epoch, address, name = _read_epoch(reader), reader.address(), _read_text(reader, MAX_NAME_BYTES)
    if not name:
        raise Malformed("a member has no name")
    versions = versions_of([*reader.take(2)]) if reader.left > 1 else None
    return Member(member_id(name), name, uuid, address, epoch, incarnation, state, versions or FIRST)


@lru_cache(maxsize=_KEPT_PARTS)
def _verdict(body: bytes) -> MemberVerdict:
    reader = FieldReader(body)
    id_, state, incarnation = reader.take(ID_BYTES), _read_state(reader), reader.number(4)
    return MemberVerdict(id_, state, incarnation, _read_epoch(reader), reader.take(ID_BYTES))


def _read_delta(body: bytes) -> Delta:
    reader = FieldReader(body)
    owner, flags, epoch = reader.take(ID_BYTES), reader.byte(), _read_epoch(reader)
    floor, since, reach, target = (reader.varint() for _ in range(4))
    reset = bool(flags & RESET)
    changes: list[BranchChange] = []
    version = since
    while reader.left:
        item = _read_change(reader, since)
        if item.version <= version:
            raise Malformed("changes of a branch are not in the order of their versions")
        version = item.version
        changes.append(item)
    if not (since <= version <= reach <= target and floor <= target and (reset or floor <= since)):
        raise Malformed("the versions of a delta contradict each other")
    return Delta(owner, epoch, floor, since, reach, target, reset, tuple(changes))


def _read_change(reader: FieldReader, since: int) -> BranchChange:
    version, kind, path = since + reader.varint(), reader.byte(), _read_text(reader, MAX_PATH_BYTES)
    if kind == TOMBSTONE:
        return BranchChange(version, path, None)
    if kind != PUT:
        raise Malformed(f"a change has the unknown kind {kind}")
    return BranchChange(version, path, reader.text(MAX_VALUE_BYTES))


def _read_head(body: bytes) -> BranchHead:
    reader = FieldReader(body)
    return BranchHead(reader.take(ID_BYTES), _read_epoch(reader), reader.varint())


def _read_digest(body: bytes) -> MemberDigest:
    reader = FieldReader(body)
    first, last = reader.take(ID_BYTES), reader.take(ID_BYTES)
    return MemberDigest(first, last, tuple(_read_known(reader)))


def _read_known(reader: FieldReader) -> Iterator[KnownMember]:
    while reader.left:
        id_, state, incarnation = reader.take(ID_BYTES), _read_state(reader), reader.number(4)
        yield KnownMember(id_, state, incarnation, _read_epoch(reader), reader.varint(), reader.varint())


def _read_state(reader: FieldReader) -> MemberState:
    try:
        return MemberState(reader.byte())
    except ValueError as error:
        raise Malformed(str(error)) from None


def _read_epoch(reader: FieldReader) -> int:
    epoch = reader.varint()
    if epoch > MAX_EPOCH:
        raise Malformed("an epoch is too large")
    return epoch


def _read_text(reader: FieldReader, most: int) -> str:
    try:
        return reader.text(most).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


_READ: Final[Mapping[int, Callable[[bytes], Part]]] = {
    RECORD: _read_record,
    VERDICT: _read_verdict,
    DELTA: _read_delta,
    HEAD: _read_head,
    DIGEST: _read_digest,
    WANT: lambda body: Want(tuple(_read_known(FieldReader(body)))),
}
