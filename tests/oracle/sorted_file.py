"""The sorted file in plain Python: a writer and a reader of format 1, from `docs/development/sorted-file.md` alone.

The code is slow and is meant to be compared with the document by eye: whole regions as bytes, exact integers, no
caches. It imports nothing from the package; only lz4's block functions are not spelled out.

`write` makes a whole file. `seal` adds checksums and a footer to any body, so that a test can make a file that is
invalid and still has valid checksums.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import lz4.block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

HEADER_MAGIC = b"GKVSORT\n"
FOOTER_MAGIC = b"\nGKVEND\n"
FORMAT = 1
HEADER_BYTES = 64
PAGE = BLOCK = CHUNK = STRETCH = 4096
BUCKET = 64
SLOTS = 12
STORED_AS_IS = 1 << 63
NONE, LZ4 = 0, 1
PREFIX_LIMIT = 64
WORD = 2**64 - 1

K0, K1, K2, K3 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB

Record = tuple[bytes, bytes]


class Damaged(Exception):
    """The file breaks a rule of the format."""


def demand(holds: object, reason: str) -> None:
    if not holds:
        raise Damaged(reason)


# Numbers ------------------------------------------------------------------------------------------------------------


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        register = number
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
        table.append(register)
    return table


_CRC = _crc_table()


def crc32c(data: bytes | memoryview, start: int = 0) -> int:
    table = _CRC
    register = start ^ 0xFFFFFFFF
    for byte in bytes(data):
        register = register >> 8 ^ table[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def mix(a: int, b: int) -> int:
    """Fold both halves of the product over the factors."""
    product = a * b
    return (product ^ product >> 64 ^ a ^ b) & WORD


def hash64(key: bytes, seed: int = 0) -> int:
    """Hash a key by the steps of the document."""

    def number(part: bytes) -> int:
        return int.from_bytes(part, "little")

    size = len(key)
    h = seed ^ K0
    at = 0
    while size - at > 16:
        h = mix(number(key[at : at + 8]) ^ K1, number(key[at + 8 : at + 16]) ^ h)
        at += 16
    a = b = 0
    if size >= 17:
        a, b = number(key[-16:-8]), number(key[-8:])
    elif size >= 8:
        a, b = number(key[:8]), number(key[-8:])
    elif size >= 4:
        a = number(key[:4]) << 32 | number(key[-4:])
    elif size:
        a = key[0] << 16 | key[size // 2] << 8 | key[-1]
    h = mix(a ^ K1, b ^ h)
    return mix(h ^ K2, size ^ K3)


def seed_of(keys: Iterable[bytes]) -> int:
    """Return the seed of a build from these keys, replaced duplicates included."""
    hashes = [hash64(key) for key in keys]
    return mix(sum(hashes) & WORD, len(hashes))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    """Return a number of at most `most` bytes, and its end."""
    number = 0
    for turn in range(most):
        demand(at < len(data), "a varint leaves its region")
        number |= (data[at] & 0x7F) << 7 * turn
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise Damaged("a varint is too long")


def round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# Regions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Footer:
    """The words of the footer in their order, then the prefix, the format and the magic."""

    size_bytes: int
    body_bytes: int
    records: int
    positions_end: int
    records_end: int
    index: int
    buckets: int
    homes: int
    seed: int
    anchors: int
    anchor_count: int
    block_table: int
    blocks: int
    metadata: int
    metadata_bytes: int
    key_bytes: int
    value_bytes: int
    duplicates: int
    compression: int
    prefix_bytes: int
    chunks_crc: int
    prefix: bytes
    format: int = FORMAT
    magic: bytes = FOOTER_MAGIC

    LAYOUT = struct.Struct("<I18QBB2xI64s24x8s")  # After the checksum.
    SIZE = 256

    def pack(self, crc: Callable[[bytes], int] = crc32c) -> bytes:
        names = [field.name for field in dataclasses.fields(self)]
        words = [getattr(self, name) for name in names[: names.index("format")]]
        rest = self.LAYOUT.pack(self.format, *words, self.magic)
        return struct.pack("<I", crc(rest)) + rest

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the footer from its 256 bytes; only its own checksum, magic, format and zeros are checked."""
        form, *words, magic = cls.LAYOUT.unpack(data[4:])
        demand(magic == FOOTER_MAGIC, "the footer's magic is another")
        demand(form == FORMAT, "the footer's format is another")
        footer = cls(*words, format=form, magic=magic)
        demand(footer.pack() == data, "the footer's checksum or a zero in it does not hold")
        return footer


def encode(key: bytes, value: bytes) -> bytes:
    body = varint(len(key)) + varint(len(value)) + key + value
    return body + bytes(-len(body) % 8)


def lay_out(records: Sequence[Record], compression: int) -> tuple[list[int], list[tuple[int, bytes]], int]:
    """Return the position of each record, the units as (position, contents), and the end of positions."""
    positions = []
    units: list[tuple[int, bytearray]] = []
    end = 0
    for key, value in records:
        record = encode(key, value)
        if compression == LZ4 and (not units or len(record) > units[-1][0] + BLOCK - end):
            end = round_up(end, BLOCK)
            units.append((end, bytearray()))
        elif not units:
            units.append((end, bytearray()))
        positions.append(end)
        units[-1][1].extend(record)
        end += len(record)
    return positions, [(start, bytes(contents)) for start, contents in units], end


def store(units: Sequence[tuple[int, bytes]]) -> tuple[bytes, list[int]]:
    """Return the units compressed one after the other, and the block table."""
    stored = bytearray()
    table = []
    for _, contents in units:
        packed = lz4.block.compress(contents, store_size=False)
        as_is = len(contents) <= len(packed)
        table.append(HEADER_BYTES + len(stored) | (STORED_AS_IS if as_is else 0))
        stored += contents if as_is else packed
        further = round_up(len(contents), BLOCK) // BLOCK - 1
        table += [HEADER_BYTES + len(stored)] * further
    table.append(HEADER_BYTES + len(stored))
    return bytes(stored), table


def home_count(records: int) -> int:
    return max(1, -(-records * 100 // 1080))


def home(key_hash: int, homes: int) -> int:
    """Return the first bucket in which a key is looked up."""
    return (key_hash >> 32) * homes >> 32


def carried_bit(key_hash: int) -> int:
    """Return the bit that a key sets in each bucket that it passes through."""
    return 1 << ((key_hash >> 8) & 31)


def index(keys: Sequence[bytes], positions: Sequence[int], seed: int, homes: int) -> bytes:
    waiting = []
    for key, position in zip(keys, positions, strict=True):
        key_hash = hash64(key, seed)
        waiting.append((key_hash >> 32, position, home(key_hash, homes), key_hash))
    waiting.sort()
    by_home: dict[int, list[tuple[int, int]]] = {}
    for _, position, bucket, key_hash in waiting:
        by_home.setdefault(bucket, []).append((key_hash, position // 8 + 1))
    out = bytearray()
    carried: list[tuple[int, int]] = []
    bucket = 0
    while bucket < homes or carried:
        at_home = by_home.get(bucket, [])
        here, left = at_home[:SLOTS], at_home[SLOTS:]
        free = SLOTS - len(here)
        here, carried = here + carried[:free], carried[free:] + left
        out += bytes(key_hash & 0xFF for key_hash, _ in here).ljust(SLOTS, b"\0")
        out += struct.pack("<I", sum({carried_bit(key_hash) for key_hash, _ in carried}))
        out += b"".join(struct.pack("<I", place) for _, place in here).ljust(4 * SLOTS, b"\0")
        bucket += 1
    return bytes(out)


def anchors(keys: Sequence[bytes], positions: Sequence[int], prefix_bytes: int) -> tuple[bytes, int]:
    """Return the words, places and padding of the anchors, and their number."""
    words, places = b"", b""
    stretch = -1
    for key, position in zip(keys, positions, strict=True):
        if position // STRETCH != stretch:
            stretch = position // STRETCH
            words += key[prefix_bytes : prefix_bytes + 8].ljust(8, b"\0")[::-1]
            places += struct.pack("<I", position // 8 + 1)
    both = words + places
    return both + bytes(-len(both) % 8), len(places) // 4


def common_prefix(keys: Sequence[bytes]) -> bytes:
    """Return the common prefix of all keys, at most 64 bytes."""
    if not keys:
        return b""
    first, last = min(keys), max(keys)
    size = 0
    while size < min(len(first), len(last), PREFIX_LIMIT) and first[size] == last[size]:
        size += 1
    return first[:size]


# Writing ------------------------------------------------------------------------------------------------------------


def seal(body: bytes, footer: Footer, crc: Callable[[bytes, int], int] = crc32c) -> bytes:
    """Return the body with checksums and a footer that fit its bytes; sizes and checksums are set here."""
    pages = b"".join(struct.pack("<I", crc(body[at : at + PAGE], at // PAGE)) for at in range(0, len(body), PAGE))
    chunks = b"".join(struct.pack("<I", crc(pages[at : at + CHUNK], at // CHUNK)) for at in range(0, len(pages), CHUNK))
    size = len(body) + len(pages) + len(chunks) + Footer.SIZE
    whole = dataclasses.replace(footer, size_bytes=size, body_bytes=len(body), chunks_crc=crc(chunks, 0))
    return body + pages + chunks + whole.pack(lambda data: crc(data, 0))


def write(
    given: Iterable[Record],
    *,
    compression: int = NONE,
    metadata: bytes = b"",
    seed: int | None = None,
    crc: Callable[[bytes, int], int] = crc32c,
) -> bytes:
    """Return the file of the records, given in any order; of equal keys the last is kept.

    Pass `seed` if these are not all records of the build; `crc` may be a faster form of the same function.
    """
    given = list(given)
    if seed is None:
        seed = seed_of(key for key, _ in given)
    records = sorted(dict(given).items())
    keys = [key for key, _ in records]
    positions, units, positions_end = lay_out(records, compression)
    if compression == LZ4:
        stored, table = store(units)
    else:
        stored, table = b"".join(contents for _, contents in units), []
    body = HEADER_MAGIC + struct.pack("<I", FORMAT).ljust(HEADER_BYTES - 8, b"\0") + stored
    records_end = len(body)
    body += bytes(-len(body) % BUCKET)
    index_at = len(body)
    homes = home_count(len(records))
    body += index(keys, positions, seed, homes)
    anchors_at = len(body)
    prefix = common_prefix(keys)
    anchor_bytes, anchor_count = anchors(keys, positions, len(prefix))
    body += anchor_bytes
    table_at = len(body)
    body += b"".join(struct.pack("<Q", entry) for entry in table)
    metadata_at = len(body)
    body += metadata
    footer = Footer(
        size_bytes=0,  # Set by `seal`.
        body_bytes=0,
        records=len(records),
        positions_end=positions_end,
        records_end=records_end,
        index=index_at,
        buckets=(anchors_at - index_at) // BUCKET,
        homes=homes,
        seed=seed,
        anchors=anchors_at,
        anchor_count=anchor_count,
        block_table=table_at,
        blocks=max(0, len(table) - 1),
        metadata=metadata_at,
        metadata_bytes=len(metadata),
        key_bytes=sum(len(key) for key, _ in records),
        value_bytes=sum(len(value) for _, value in records),
        duplicates=len(given) - len(records),
        compression=compression,
        prefix_bytes=len(prefix),
        chunks_crc=0,
        prefix=prefix,
    )
    return seal(body, footer, crc)


# Reading ------------------------------------------------------------------------------------------------------------


class File:
    """One file; the constructor verifies every checksum."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        demand(len(data) >= HEADER_BYTES + Footer.SIZE, "too short for header and footer")
        demand(data[:HEADER_BYTES] == (HEADER_MAGIC + struct.pack("<I", FORMAT)).ljust(HEADER_BYTES, b"\0"), "header")
        self.footer = footer = Footer.unpack(data[-Footer.SIZE :])
        demand(footer.size_bytes == len(data), "the size is another")
        body = data[: footer.body_bytes]
        demand(seal(body, footer) == data, "a checksum does not hold")
        self._check_regions()
        self.table = [struct.unpack_from("<Q", data, at)[0] for at in range(footer.block_table, footer.metadata, 8)]

    def _check_regions(self) -> None:
        """Check that the regions are in order and adjacent."""
        f = self.footer
        demand(f.compression in (NONE, LZ4), "unknown compression")
        demand(f.compression == LZ4 or f.records_end == HEADER_BYTES + f.positions_end, "end of records")
        demand(f.index == round_up(f.records_end, BUCKET), "offset of the index")
        demand(not any(self.data[f.records_end : f.index]), "zeros before the index")
        demand(f.anchors == f.index + f.buckets * BUCKET, "offset of the anchors")
        demand(f.block_table == round_up(f.anchors + 12 * f.anchor_count, 8), "offset of the block table")
        demand(f.blocks == (-(-f.positions_end // BLOCK) if f.compression == LZ4 else 0), "number of blocks")
        words = f.blocks + 1 if f.compression == LZ4 else 0
        demand(f.metadata == f.block_table + 8 * words, "offset of the metadata")
        demand(f.body_bytes == f.metadata + f.metadata_bytes, "size of the body")

    @property
    def metadata(self) -> bytes:
        return self.data[self.footer.metadata : self.footer.body_bytes]

    @property
    def index(self) -> bytes:
        return self.data[self.footer.index : self.footer.anchors]

    @property
    def anchors(self) -> bytes:
        return self.data[self.footer.anchors : self.footer.block_table]

    def units(self) -> Iterator[tuple[int, bytes]]:
        f = self.footer
        if f.compression == NONE:
            if f.positions_end:
                yield 0, self.data[HEADER_BYTES : f.records_end]
            return
        offsets = [entry & ~STORED_AS_IS for entry in self.table]
        demand(offsets[0] == HEADER_BYTES, "the first unit begins elsewhere")
        demand(offsets[-1] == f.records_end, "the last unit ends elsewhere")
        block = 0
        while block < f.blocks:
            behind = block + 1
            while behind < f.blocks and offsets[behind] == offsets[behind + 1]:
                behind += 1
            stored = self.data[offsets[block] : offsets[block + 1]]
            if self.table[block] & STORED_AS_IS:
                contents = stored
            else:
                contents = lz4.block.decompress(stored, uncompressed_size=(behind - block) * BLOCK)
            demand(len(contents) > (behind - block - 1) * BLOCK, "a unit is shorter than its blocks")
            yield block * BLOCK, contents
            block = behind

    def positions(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield every record as (position, key, value), and check its form."""
        for start, contents in self.units():
            at = 0
            while at < len(contents):
                begin = at
                key_bytes, at = read_varint(contents, at, 3)
                value_bytes, at = read_varint(contents, at, 4)
                end = at + key_bytes + value_bytes
                key, value = contents[at : at + key_bytes], contents[at + key_bytes : end]
                at = round_up(end, 8)
                demand(contents[begin:at] == encode(key, value), "a record has another form or leaves its region")
                yield start + begin, key, value

    def items(self) -> list[Record]:
        return [(key, value) for _, key, value in self.positions()]

    def get(self, key: bytes) -> bytes | None:
        f = self.footer
        at = {position: (found, value) for position, found, value in self.positions()}
        key_hash = hash64(key, f.seed)
        bucket = home(key_hash, f.homes)
        while True:
            lines = self.index[bucket * BUCKET : (bucket + 1) * BUCKET]
            demand(len(lines) == BUCKET, "a bucket chain leaves the index")
            places = struct.unpack("<12I", lines[16:])
            for fingerprint, place in zip(lines[:SLOTS], places, strict=True):
                if place and fingerprint == key_hash & 0xFF and at[(place - 1) * 8][0] == key:
                    return at[(place - 1) * 8][1]
            if not int.from_bytes(lines[12:16], "little") & carried_bit(key_hash):
                return None
            bucket += 1

    def check(self) -> None:
        """Check every rule about the contents: order, counts, index, anchors, prefix."""
        f = self.footer
        found = list(self.positions())
        keys = [key for _, key, _ in found]
        positions = [position for position, _, _ in found]
        demand(all(a < b for a, b in pairwise(keys)), "keys do not ascend")
        demand(f.records == len(found), "number of records")
        demand(f.key_bytes == sum(map(len, keys)), "bytes of keys")
        demand(f.value_bytes == sum(len(value) for _, _, value in found), "bytes of values")
        expected_positions, units, end = lay_out([(key, value) for _, key, value in found], f.compression)
        demand(positions == expected_positions, "a record lies elsewhere")
        demand(f.positions_end == end, "end of positions")
        demand(list(self.units()) == units, "units are divided otherwise")
        demand(f.homes == home_count(len(found)), "number of home buckets")
        demand(self.index == index(keys, positions, f.seed, f.homes), "the index is another")
        prefix = common_prefix(keys)
        demand(f.prefix == prefix.ljust(PREFIX_LIMIT, b"\0"), "common prefix")
        demand(f.prefix_bytes == len(prefix), "size of the common prefix")
        demand((self.anchors, f.anchor_count) == anchors(keys, positions, len(prefix)), "the anchors are others")


def select(  # The answer of a scan over a sorted list.
    records: Sequence[Record],
    start: bytes | None = None,
    end: bytes | None = None,
    *,
    prefix: bytes | None = None,
    reverse: bool = False,
    limit: int | None = None,
) -> list[Record]:
    """Return at most `limit` records from `start` up to but without `end` that begin with `prefix`."""
    found = [
        (key, value)
        for key, value in records
        if (start is None or key >= start) and (end is None or key < end) and key.startswith(prefix or b"")
    ]
    if reverse:
        found.reverse()
    return found if limit is None else found[:limit]
