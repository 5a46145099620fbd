"""The packets of gossip in plain Python, from `docs/development/gossip-packets.md` alone: a writer and a reader.

This module imports nothing from the package. The tables below are the page's, word by word, and everything else follows
from them; a test compares the two. A message is `(kind, fields, parts)` and a part `(kind, fields)`, fields by the
page's names; repeated fields are in the list `each`. AES-GCM and LZ4 are not spelled out.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import zlib

import lz4.block
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Value = bytes | int | str | tuple[bytes, int] | None
Fields = dict[str, object]
Table = tuple[tuple[str, str], ...]  # Size and name: a row of the page.

HEADS: dict[str, tuple[int, Table]] = {
    "PING": (1, (("4", "sequence"), ("8", "target's id"), ("8", "state hash"))),
    "ACK": (2, (("4", "sequence"), ("8", "state hash"))),
    "NACK": (3, (("4", "sequence"),)),
    "PING_REQUEST": (4, (("4", "sequence"), ("8", "target's id"), ("address", "target's address"))),
    "GOSSIP": (5, ()),
    "SYNC": (6, (("8", "state hash"), ("1", "flags"))),
    "WHO": (7, (("4", "sequence"), ("16", "uuid"), ("number", "epoch"), ("number", "age in ms"))),
    "ME": (8, (("4", "sequence"), ("16", "uuid"), ("number", "epoch"), ("number", "age in ms"))),
    "REFUSAL": (9, (("text", "cluster's name"),)),
}
SENDER: Table = (("1", "kind"), ("8", "sender's id"))  # Before the fields of every head.

KNOWN: Table = (
    ("8", "id"), ("1", "state"), ("4", "incarnation"),
    ("number", "epoch"), ("number", "version"), ("number", "age in s"),
)  # fmt: skip
CHANGE: Table = (("number", "version minus since"), ("1", "kind"), ("text", "path"), ("text", "value"))

# Kind, fields, and the fields that repeat up to the end of the part.
PARTS: dict[str, tuple[int, Table, Table]] = {
    "RECORD": (
        1,
        (
            ("1", "state"), ("4", "incarnation"), ("16", "uuid"), ("number", "epoch"),
            ("address", "address"), ("text", "name"),
        ),
        (),
    ),
    "VERDICT": (
        2,
        (("8", "id"), ("1", "state"), ("4", "incarnation"), ("number", "epoch"), ("8", "accuser's id")),
        (),
    ),
    "DELTA": (
        3,
        (
            ("8", "owner's id"), ("1", "flags"), ("number", "epoch"), ("number", "floor"), ("number", "since"),
            ("number", "reach"), ("number", "target"),
        ),
        CHANGE,
    ),
    "HEAD": (4, (("8", "owner's id"), ("number", "epoch"), ("number", "version")), ()),
    "DIGEST": (5, (("8", "first id"), ("8", "last id")), KNOWN),
    "WANT": (6, (), KNOWN),
}  # fmt: skip

STATES = range(4)
PUT, TOMBSTONE = 1, 2
MOST = {"name": 64, "path": 1024, "value": 32 * 1024, "cluster's name": 255}
LARGEST_NUMBER = (1 << 63) - 1

Part = tuple[str, Fields]
Message = tuple[str, Fields, list[Part]]


class Broken(Exception):
    """The bytes break a rule of the page."""


def demand(holds: object, reason: str) -> None:
    if not holds:
        raise Broken(reason)


# Writing ------------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """Encode a number: seven bits a byte, the lowest first; the top bit says that more follow."""
    octets = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(octet | 0x80 for octet in octets[:-1]), octets[-1]])


def write_field(size: str, value: Value) -> bytes:
    if size == "number":
        assert isinstance(value, int)
        return number(value)
    if size == "address":
        assert isinstance(value, tuple)
        ip, port = value
        return {4: b"\x04", 16: b"\x06"}[len(ip)] + ip + bytes((port >> 8, port & 0xFF))
    if size == "text":
        octets = value.encode() if isinstance(value, str) else value
        assert isinstance(octets, bytes)
        return number(len(octets)) + octets
    if isinstance(value, int):
        return bytes(value >> 8 * place & 0xFF for place in reversed(range(int(size))))
    assert isinstance(value, bytes)
    assert len(value) == int(size)
    return value


def write_fields(table: Table, fields: Fields) -> bytes:
    """Write fields one after the other; a tombstone has no value."""
    return b"".join(
        write_field(size, fields[name]) for size, name in table if not (name == "value" and fields["kind"] == TOMBSTONE)
    )


def encode_part(part: Part) -> bytes:
    name, fields = part
    kind, table, repeated = PARTS[name]
    body = write_fields(table, fields) + b"".join(write_fields(repeated, one) for one in fields.get("each", []))
    return bytes((kind, len(body) >> 8, len(body) & 0xFF)) + body


def encode(message: Message) -> bytes:
    name, fields, parts = message
    kind, table = HEADS[name]
    return write_fields(SENDER + table, {"kind": kind, **fields}) + b"".join(map(encode_part, parts))


# Reading ------------------------------------------------------------------------------------------------------------


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and its end."""
    value = 0
    for place in range(9):
        demand(at + place < len(data), "cut short")
        octet = data[at + place]
        value += (octet & 0x7F) << 7 * place
        if not octet & 0x80:
            return value, at + place + 1
    raise Broken("a number of more than 63 bits")


def read_octets(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    demand(at + size <= len(data), "cut short")
    return data[at : at + size], at + size


def read_text(name: str, data: bytes, at: int) -> tuple[Value, int]:
    """Return the text that begins at `at`, and its end: values are any bytes, cluster names are for people to read."""
    length, at = read_number(data, at)
    demand(length <= MOST[name], "too long")
    octets, at = read_octets(data, at, length)
    if name == "value":
        return octets, at
    try:
        return octets.decode(errors="replace" if name == "cluster's name" else "strict"), at
    except UnicodeDecodeError:
        raise Broken("not UTF-8") from None


def read_field(size: str, name: str, data: bytes, at: int) -> tuple[Value, int]:
    """Return the field that begins at `at`, and its end."""
    if size == "number":
        return read_number(data, at)
    if size == "address":
        family, at = read_octets(data, at, 1)
        demand(family in {b"\x04", b"\x06"}, "no such address family")
        ip, at = read_octets(data, at, 4 if family == b"\x04" else 16)
        port, at = read_octets(data, at, 2)
        return (ip, port[0] << 8 | port[1]), at
    if size == "text":
        return read_text(name, data, at)
    octets, at = read_octets(data, at, int(size))
    if int(size) > 4:
        return octets, at
    value = 0
    for octet in octets:
        value = value << 8 | octet
    demand(name != "state" or value in STATES, "no such state")
    return value, at


def read_fields(table: Table, data: bytes, at: int) -> tuple[Fields, int]:
    """Return consecutive fields, and their end."""
    fields: Fields = {}
    for size, name in table:
        if name == "value" and fields["kind"] == TOMBSTONE:
            break
        fields[name], at = read_field(size, name, data, at)
        demand(table is not CHANGE or name != "path" or fields["kind"] in {PUT, TOMBSTONE}, "no such kind of change")
    return fields, at


def decode_head(data: bytes) -> tuple[str, Fields, int]:
    """Return the head of a message: its kind, its fields, the offset of its parts."""
    by_kind = {kind: name for name, (kind, _) in HEADS.items()}
    demand(data[:1] and data[0] in by_kind, "no such kind of message")
    name = by_kind[data[0]]
    fields, at = read_fields(SENDER + HEADS[name][1], data, 0)
    del fields["kind"]
    return name, fields, at


def decode_parts(data: bytes, at: int) -> tuple[list[Part], bool]:
    """Return the parts from `at`, and True if all are sound; parts of an unknown kind are skipped."""
    by_kind = {kind: name for name, (kind, _, _) in PARTS.items()}
    parts: list[Part] = []
    while at < len(data):
        try:
            head, at = read_octets(data, at, 3)
            body, at = read_octets(data, at, head[1] << 8 | head[2])
            if head[0] in by_kind:
                name = by_kind[head[0]]
                parts.append((name, decode_body(name, body)))
        except Broken:
            return parts, False
    return parts, True


def unpack(message: bytes) -> bytes:
    """Return the parts of a SYNC as they would follow a head without flag 16."""
    if not message[17] & 16:
        return message[18:]
    size, at = read_octets(message, 18, 4)
    demand(int.from_bytes(size, "big") <= 2 << 20, "too large")
    try:
        parts = lz4.block.decompress(message[at:], uncompressed_size=int.from_bytes(size, "big"))
    except lz4.block.LZ4BlockError:
        raise Broken("no LZ4 block") from None
    demand(len(parts) == int.from_bytes(size, "big"), "another size than was said")
    return parts


def decode_body(name: str, body: bytes) -> Fields:
    """Return the fields of one part. Bytes after the fields of a part in which nothing repeats are skipped."""
    _, table, repeated = PARTS[name]
    fields, at = read_fields(table, body, 0)
    if repeated:
        each: list[Fields] = []
        while at < len(body):
            one, at = read_fields(repeated, body, at)
            each.append(one)
        fields["each"] = each
    if name == "RECORD":
        demand(fields["name"], "no name")
    if name == "DELTA":
        check_delta(fields)
    return fields


def check_delta(fields: Fields) -> None:
    """Check the relations between the numbers of a delta."""
    floor, since, reach, target = (fields[name] for name in ("floor", "since", "reach", "target"))
    steps = [0, *(one["version minus since"] for one in fields["each"])]
    demand(all(one < other for one, other in itertools.pairwise(steps)), "versions do not ascend")
    demand(since + steps[-1] <= reach <= target, "beyond its reach")
    demand(floor <= target, "floor above target")
    demand(fields["flags"] & 1 or floor <= since, "a gap below the floor")


# Envelopes ----------------------------------------------------------------------------------------------------------


def prefix(form: int, cluster: str, cluster_id: bytes) -> bytes:
    return b"G\x01" + bytes((form,)) + hashlib.blake2b(cluster.encode(), digest_size=4).digest() + cluster_id


def wrap_plain(message: bytes, cluster: str, cluster_id: bytes) -> bytes:
    before = prefix(0, cluster, cluster_id)
    return before + zlib.crc32(before + message).to_bytes(4, "big") + message


def key_id(secret: bytes) -> bytes:
    """Return the four bytes that name a key of the ring."""
    return hashlib.blake2b(secret, digest_size=4, person=b"gossipkv key").digest()


def session_key(secret: bytes, session: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256 (RFC 5869): extract, then the first block of expand."""
    extracted = hmac.digest(session, secret, "sha256")
    return hmac.digest(extracted, b"gossipkv packets 1\x01", "sha256")


def wrap_sealed(
    message: bytes, cluster: str, cluster_id: bytes, *, secret: bytes, session: bytes, counter: int
) -> bytes:
    before = prefix(1, cluster, cluster_id) + key_id(secret) + session + counter.to_bytes(8, "big")
    return before + AESGCM(session_key(secret, session)).encrypt(counter.to_bytes(12, "big"), message, before)


class Gate:
    """Admits packets or gives the reason against; keeps every counter in a set."""

    def __init__(
        self, cluster: str, cluster_id: bytes, *, secret: bytes | None = None, plain: bool = True, session: bytes = b""
    ) -> None:
        self.cluster, self.cluster_id = cluster, cluster_id
        self.secret, self.plain, self.session = secret, plain, session
        self.opened: dict[bytes, set[int]] = {}

    def reason(self, packet: bytes, *, any_cluster: bool = False) -> str | None:
        expected = prefix(0, self.cluster, self.cluster_id)
        checks = (
            (len(packet) >= 19, "short"),
            (packet[:1] == b"G", "foreign"),
            (packet[1:2] == b"\x01", "protocol_version"),
            (packet[3:7] == expected[3:7], "cluster_name"),
            (packet[2:3] in {b"\x00", b"\x01"}, "form"),
            (any_cluster or packet[7:15] == expected[7:], "cluster_id"),
        )
        for holds, why in checks:
            if not holds:
                return why
        if packet[2] == 1:
            return self._sealed(packet)
        if not self.plain:
            return "not_sealed"
        return None if zlib.crc32(packet[:15] + packet[19:]) == int.from_bytes(packet[15:19], "big") else "checksum"

    def _sealed(self, packet: bytes) -> str | None:
        if self.secret is None:
            return "no_keys"
        sender, counter = packet[15:35], int.from_bytes(packet[35:43], "big")
        opened = self.opened.get(sender, set())
        checks = (
            (len(packet) >= 59, "short"),
            (sender[4:] != self.session, "own"),
            (sender[:4] == key_id(self.secret), "unknown_key"),
            (counter not in opened and counter > max(opened, default=0) - 4096, "replayed"),
        )
        for holds, why in checks:
            if not holds:
                return why
        try:
            unwrap(packet, self.cluster, packet[7:15], self.secret)
        except Broken:
            return "not_authentic"
        self.opened.setdefault(sender, set()).add(counter)
        return None


def unwrap(packet: bytes, cluster: str, cluster_id: bytes, secret: bytes | None = None) -> bytes:
    if packet[:15] == prefix(0, cluster, cluster_id):
        demand(len(packet) >= 19, "cut short")
        demand(zlib.crc32(packet[:15] + packet[19:]) == int.from_bytes(packet[15:19], "big"), "damaged")
        return packet[19:]
    demand(packet[:15] == prefix(1, cluster, cluster_id), "not ours")
    demand(len(packet) >= 59, "cut short")
    demand(secret is not None and packet[15:19] == key_id(secret), "another key")
    try:
        return AESGCM(session_key(secret, packet[19:35])).decrypt(bytes(4) + packet[35:43], packet[43:], packet[:43])
    except InvalidTag:
        raise Broken("not authentic") from None
