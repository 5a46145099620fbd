"""Files with valid checksums and invalid content, as a program with a bug or an attacker may write.

A checksum only proves that bytes are as they were written, so each size, place and offset in a file is distrusted: no
crash, no endless loop, and `Corrupt` if a region is left.
"""

from __future__ import annotations

import dataclasses
import struct
from functools import partial
from typing import TYPE_CHECKING

import lz4.block
import pytest

from gossipkv.errors import Corrupt
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from collections.abc import Callable


RECORDS = [(b"key %03d" % number, b"value %d " % number * 9) for number in range(120)]
KEYS = [key for key, _ in RECORDS]
LAST = KEYS[-1]

QUESTIONS: dict[str, Callable[[SortedFile], object]] = {
    "get": lambda file: [file.get(key) for key in KEYS],
    "get_many": lambda file: file.get_many(KEYS),
    "misses": lambda file: [file.get(key + b"!") for key in KEYS],
    "scan": lambda file: list(file.scan()),
    "reverse": lambda file: list(file.scan(reverse=True)),
    "start": lambda file: [next(file.scan(start=start), None) for key in KEYS for start in (key, key + b"!")],
    "end": lambda file: [next(file.scan(end=key, reverse=True), None) for key in KEYS],
    "verify": lambda file: file.verify(),
    "len": len,
    "describe": lambda file: file.describe(),
}


@dataclasses.dataclass
class Forgery:
    """The parts of a good file, to be changed and sealed again."""

    footer: oracle.Footer
    body: bytearray

    @classmethod
    def of(cls, compression: int, records: list[tuple[bytes, bytes]] = RECORDS) -> Forgery:
        image = oracle.write(records, compression=compression, metadata=b"metadata")
        footer = oracle.Footer.unpack(image[-256:])
        return cls(footer, bytearray(image[: footer.body_bytes]))

    def poke(self, at: int, data: bytes) -> Forgery:
        self.body[at : at + len(data)] = data
        return self

    def image(self, **fields: int) -> bytes:
        return oracle.seal(bytes(self.body), dataclasses.replace(self.footer, **fields))


def refused_at_opening(image: bytes) -> None:
    with pytest.raises(Corrupt) as refusal:
        SortedFile(image, name="insane.gkv")
    assert 0 <= refusal.value.offset <= len(image)


def met(ask: Callable[[], object]) -> Corrupt | None:
    try:
        ask()
    except Corrupt as error:
        return error
    return None


def refused(image: bytes, *questions: str) -> list[str]:
    """Check that these questions find the forgery and the others end without a crash; return the reasons given."""
    reasons = []
    for name, ask in QUESTIONS.items():
        with SortedFile(image, name="insane.gkv") as file:
            damage = met(partial(ask, file))
        assert damage or name not in questions, f"{name} did not notice"
        if damage:
            assert damage.file == "insane.gkv"
            reasons.append(damage.reason)
    return reasons


# The footer ---------------------------------------------------------------------------------------------------------

BEYOND = [2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 4096]


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_regions_of_a_footer(compression: int) -> None:
    """Regions overlap, leave the body, or are not aligned."""
    forged = Forgery.of(compression)
    f = forged.footer
    for fields in (
        {"index": 0},
        {"index": f.index - 64},
        {"index": f.index + 1},
        {"index": f.index + 64},
        {"buckets": f.buckets + 1},
        {"buckets": 0},
        {"homes": 0},
        {"homes": f.buckets + 1},
        {"anchors": f.anchors - 8},
        {"anchors": f.anchors + 4},
        {"anchor_count": f.anchor_count + 8},
        {"block_table": f.block_table - 8},
        {"metadata": f.metadata - 64},
        {"metadata": f.body_bytes + 8},
        {"metadata_bytes": f.metadata_bytes + 1},
        {"records_end": 0},
        {"records_end": 56},
        {"records_end": f.index + 8},
        {"positions_end": f.positions_end + 8 * 4096},
        {"prefix_bytes": 65},
        {"prefix_bytes": 255},
        {"compression": 2},
        {"compression": 255},
        *({name: value} for name in ("index", "anchors", "block_table", "metadata", "records_end") for value in BEYOND),
        *({name: value} for name in ("buckets", "homes", "anchor_count", "metadata_bytes") for value in BEYOND),
        *({"positions_end": value} for value in BEYOND),
    ):
        image = forged.image(**fields)
        try:
            refused_at_opening(image)
        except pytest.fail.Exception as accepted:
            raise AssertionError(f"accepted: {fields}") from accepted


@pytest.mark.parametrize("blocks", [0, 2, 5, *BEYOND])
def test_number_of_blocks(blocks: int) -> None:
    """There are more blocks than words in the table, or too few for the positions."""
    refused_at_opening(Forgery.of(oracle.LZ4).image(blocks=blocks))


@pytest.mark.parametrize("records", [2**63, 2**64 - 1, 2**40])
def test_number_of_records(records: int) -> None:
    """The positions have no room for so many records, and `len` could not return the number."""
    refused_at_opening(Forgery.of(oracle.NONE).image(records=records))


def test_sizes_of_the_body() -> None:
    """The footer's sizes put the page and chunk checksums at a wrong place."""
    forged = Forgery.of(oracle.NONE)
    whole = forged.image()
    for delta in (-4096, -1, 1, 4, 4096, 2**63, -forged.footer.body_bytes):
        footer = dataclasses.replace(oracle.Footer.unpack(whole[-256:]))
        size = (footer.body_bytes + delta) % 2**64
        refused_at_opening(whole[:-256] + dataclasses.replace(footer, body_bytes=size).pack())
        size = (footer.size_bytes + delta) % 2**64
        refused_at_opening(whole[:-256] + dataclasses.replace(footer, size_bytes=size).pack())


# Records --------------------------------------------------------------------------------------------------------------


INSANE_SIZES = {
    "key one over the limit": oracle.varint(65_536),
    "key of three full bytes": b"\xff\xff\xff",
    "key without end": b"\xff" * 8,
    "value one over the limit": oracle.varint(7) + oracle.varint((16 << 20) + 1),
    "value of four full bytes": oracle.varint(7) + b"\xff\xff\xff\x7f",
    "value without end": oracle.varint(7) + b"\xff" * 7,
    "value beyond the records": oracle.varint(7) + oracle.varint(16 << 20),
    "key beyond the records": oracle.varint(65_535) + b"\0",
}


@pytest.mark.parametrize("sizes", INSANE_SIZES.values(), ids=INSANE_SIZES)
@pytest.mark.parametrize("number", [0, 60, 119])
def test_insane_sizes_of_records(sizes: bytes, number: int) -> None:
    """The first, a middle or the last record leaves its region or breaks a limit."""
    forged = Forgery.of(oracle.NONE)
    positions, _, _ = oracle.lay_out(RECORDS, oracle.NONE)
    image = forged.poke(64 + positions[number], sizes).image()
    reasons = refused(image, "get", "get_many", "scan", "reverse", "verify")
    assert set(reasons) == {"a record is longer than its file or than the limit"}


@pytest.mark.parametrize("sizes", INSANE_SIZES.values(), ids=INSANE_SIZES)
def test_insane_sizes_of_compressed_records(sizes: bytes) -> None:
    """The record is in a block, compressed or not."""
    for as_is in (False, True):
        refused(with_units([(sizes + RECORDS_BYTES[len(sizes) :], as_is)]), *READ)


@pytest.mark.parametrize("record", [(b"k" * 65_536, b""), (b"k", bytes((16 << 20) + 2))], ids=["key", "value"])
@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_whole_records_over_a_limit(record: tuple[bytes, bytes], compression: int) -> None:
    """A record lies whole in its file, but is longer than a reader has room for."""
    image = oracle.write([(b"a", b"b"), record, (b"z", b"")], compression=compression, crc=crc32c)
    with SortedFile(image) as file:
        assert file.get_many([b"a", b"z"]) == [b"b", b""]
        assert met(partial(file.get, record[0])) is not None
        assert met(partial(file.get_many, [record[0]])) is not None
        assert met(partial(list, file.scan())) is not None
        assert met(partial(list, file.scan(reverse=True))) is not None
        assert met(file.verify) is not None


def test_records_that_end_between_words() -> None:
    """No record can end there: within the last record's padding, or before its sizes."""
    for less in range(1, 8):
        forged = Forgery.of(oracle.NONE)
        end = forged.footer.positions_end - less
        image = forged.image(positions_end=end, records_end=64 + end)
        refused(image)
    for keep in range(1, 8):
        forged = Forgery.of(oracle.NONE)
        positions, _, _ = oracle.lay_out(RECORDS, oracle.NONE)
        end = positions[-1] + keep
        refused(forged.image(positions_end=end, records_end=64 + end), "get", "scan", "verify")


def test_places_of_the_index() -> None:
    """The places are after the last record, at the end, and as far as four bytes reach."""
    for compression in (oracle.NONE, oracle.LZ4):
        forged = Forgery.of(compression)
        end = forged.footer.positions_end
        for position in (end, end + 8, 2**31 * 8 - 8, (2**32 - 2) * 8):
            body = bytearray(forged.body)
            for bucket in range(forged.footer.index, forged.footer.anchors, 64):
                for slot in range(12):
                    at = bucket + 16 + 4 * slot
                    if any(body[at : at + 4]):
                        struct.pack_into("<I", body, at, position // 8 + 1)
            image = oracle.seal(bytes(body), forged.footer)
            reasons = refused(image, "get", "get_many", "verify")
            assert "the index points past the records" in reasons


def test_a_chain_of_buckets_without_end() -> None:
    """Every bucket claims an overflow, so a miss reaches the end of the index and raises."""
    forged = Forgery.of(oracle.NONE)
    for bucket in range(forged.footer.index, forged.footer.anchors, 64):
        forged.poke(bucket + 12, b"\xff" * 4)
    reasons = refused(forged.image(), "misses")
    assert set(reasons) == {"an index entry points past the end of the index"}


def test_no_bucket_says_that_it_overflows() -> None:
    """Overflowed keys are no longer found, and `verify` notices."""
    keys = [b"%d" % number for number in range(3000)]
    forged = Forgery.of(oracle.NONE, [(key, b"") for key in sorted(keys)])
    for bucket in range(forged.footer.index, forged.footer.anchors, 64):
        forged.poke(bucket + 12, bytes(4))
    with SortedFile(forged.image()) as file, pytest.raises(Corrupt, match="index does not find the key"):
        file.verify()


# Anchors ------------------------------------------------------------------------------------------------------------


def with_anchors(forged: Forgery, words: list[int], places: list[int]) -> bytes:
    """Return the file with other anchors, as many as before."""
    count = forged.footer.anchor_count
    assert len(words) == len(places) == count
    return forged.poke(forged.footer.anchors, struct.pack(f"<{count}Q{count}I", *words, *places)).image()


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_anchors_that_lead_away(compression: int) -> None:
    """The anchors point after the records, before them, in no order, or all to one place."""
    for place in (0, 2**32 - 1, 2**31):
        forged = Forgery.of(compression)
        count = forged.footer.anchor_count
        assert count == 3
        # Small words send every question to the last anchor, large words to none.
        for words in ([0] * count, [2**64 - 1] * count, [5, 2**64 - 1, 0]):
            refused(with_anchors(forged, words, [place] * count), "reverse")
        refused(with_anchors(forged, [0] * count, [1, 1, 1]))
        refused(with_anchors(forged, [0] * count, [9, 5, 1]))
        refused(with_anchors(forged, [0] * count, [1, place, 1]))


def test_no_anchors() -> None:
    """A file with records and no anchors cannot be scanned backwards."""
    for compression in (oracle.NONE, oracle.LZ4):
        forged = Forgery.of(compression)
        refused(forged.image(anchor_count=0), "reverse")


def test_more_records_in_a_stretch_than_fit() -> None:
    """A backward scan has room for one stretch, and refuses an anchor with more records."""
    for count, fits in ((512, True), (513, False), (20_000, False)):
        records = [(b"%05d" % number, b"") for number in range(count)]
        forged = Forgery.of(oracle.NONE, records)
        image = forged.poke(forged.footer.anchors, struct.pack("<QI", 0, 1)).image(anchor_count=1)
        with SortedFile(image, name="insane.gkv") as file:
            assert list(file.scan()) == records
            assert (met(partial(QUESTIONS["reverse"], file)) is None) == fits


def test_a_common_prefix_that_is_none() -> None:
    """Keys lack the common prefix: scans may start wrongly, and must end."""
    for prefix in (b"zzz", b"key 0\xff", bytes(64), b"\xff" * 64):
        forged = Forgery.of(oracle.NONE)
        refused(forged.image(prefix=prefix.ljust(64, b"\0"), prefix_bytes=len(prefix)))


# Blocks -------------------------------------------------------------------------------------------------------------

RECORDS_BYTES = b"".join(oracle.encode(key, value) for key, value in RECORDS[:40])
assert len(RECORDS_BYTES) < 4096


def with_units(
    units: list[tuple[bytes, bool]], table: list[int] | None = None, positions_end: int | None = None, **fields: int
) -> bytes:
    """Return an lz4 file with these units, (contents, stored as they are), or with another table."""
    stored, offsets = b"", []
    for contents, as_is in units:
        offsets.append(64 + len(stored) | (oracle.STORED_AS_IS if as_is else 0))
        stored += contents if as_is else lz4.block.compress(contents, store_size=False)
    offsets.append(64 + len(stored))
    return with_stored(stored, offsets if table is None else table, positions_end or len(RECORDS_BYTES), **fields)


def with_stored(stored: bytes, table: list[int], positions_end: int, **fields: int) -> bytes:
    """Return an lz4 file with these stored bytes and this block table, a block for each word but the last."""
    records = RECORDS[:40]
    keys = [key for key, _ in records]
    positions, _, _ = oracle.lay_out(records, oracle.LZ4)
    body = oracle.HEADER_MAGIC + struct.pack("<I", 1).ljust(56, b"\0") + stored
    records_end = len(body)
    body += bytes(-len(body) % 64)
    index_at, homes = len(body), oracle.home_count(len(keys))
    body += oracle.index(keys, positions, 5, homes)
    anchors_at = len(body)
    prefix = oracle.common_prefix(keys)
    anchors, count = oracle.anchors(keys, positions, len(prefix))
    body += anchors
    table_at = len(body)
    body += struct.pack(f"<{len(table)}Q", *table)
    footer = dataclasses.replace(
        Forgery.of(oracle.LZ4).footer,
        records=len(records),
        positions_end=positions_end,
        records_end=records_end,
        index=index_at,
        buckets=(anchors_at - index_at) // 64,
        homes=homes,
        seed=5,
        anchors=anchors_at,
        anchor_count=count,
        block_table=table_at,
        blocks=len(table) - 1,
        metadata=len(body),
        metadata_bytes=0,
        prefix=prefix.ljust(64, b"\0"),
        prefix_bytes=len(prefix),
    )
    return oracle.seal(body, dataclasses.replace(footer, **fields))


def test_the_forger_can_be_honest() -> None:
    """An unchanged forgery is readable, so the other tests' changes are the cause of refusals."""
    for as_is in (False, True):
        assert refused(with_units([(RECORDS_BYTES, as_is)])) == []
    assert refused(Forgery.of(oracle.NONE).image()) == []
    assert refused(Forgery.of(oracle.LZ4).image()) == []


READ = ("get", "get_many", "scan", "reverse", "verify")
SIZE = len(lz4.block.compress(RECORDS_BYTES, store_size=False))
RAW = oracle.STORED_AS_IS


@pytest.mark.parametrize(
    "table",
    [
        [64 + SIZE, 64],
        [64, 64],
        [0, 64 + SIZE],
        [63, 64 + SIZE],
        [64, 64 + SIZE + 1],
        [64, 2**63 - 1],
        [2**63 - 8, 2**63 - 1],
        [2**63 - 1, 64 + SIZE],
        [64 | RAW, 2**63 - 1],
        [2**64 - 1, 64 + SIZE],
        [64, 2**64 - 1],
        [10**6, 10**6 + 50],
    ],
)
def test_block_tables(table: list[int]) -> None:
    stored = lz4.block.compress(RECORDS_BYTES, store_size=False)
    reasons = refused(with_stored(stored, table, len(RECORDS_BYTES)), *READ)
    assert set(reasons) == {"an entry of the block table points past the records"}


@pytest.mark.parametrize(("blocks", "questions"), [(2, ()), (4113, ()), (4114, READ), (6000, READ)])
def test_a_unit_of_more_blocks_than_a_record_has(blocks: int, questions: tuple[str, ...]) -> None:
    """A unit may be as long as the longest record, and no longer."""
    stored = lz4.block.compress(RECORDS_BYTES, store_size=False)
    table = [64] + [64 + len(stored)] * blocks
    image = with_stored(stored, table, blocks * 4096)
    assert set(refused(image, *questions)) <= {"a compressed block cannot be decompressed"}


def test_blocks_that_are_no_lz4() -> None:
    """Stored bytes are invalid, or decompress to nothing, to too little, or to more than a block."""
    noise = bytes(range(256)) * 4
    for stored in (noise, b"\0", b"\x00" * 8, b"\xff" * 300, b"\x10k", lz4.block.compress(b"", store_size=False)):
        refused(with_stored(stored, [64, 64 + len(stored)], len(RECORDS_BYTES)), "get", "get_many", "verify")
    for contents in (RECORDS_BYTES[:-16], RECORDS_BYTES[:9], RECORDS_BYTES[:1]):
        refused(with_units([(contents, False)]), "get", "scan", "verify")
        refused(with_units([(contents, True)]), "get", "scan", "verify")
    for contents in (RECORDS_BYTES.ljust(4097, b"\0"), RECORDS_BYTES + bytes(10**6)):
        refused(with_units([(contents, True)]), *READ)
        refused(with_units([(contents, False)]))


def test_units_of_odd_sizes() -> None:
    """The contents are no multiple of a word, so the rest after the last record is too short for another."""
    end = len(RECORDS_BYTES) + 8
    for more in range(1, 8):
        for as_is in (False, True):
            refused(with_units([(RECORDS_BYTES[:-more], as_is)]))
            refused(with_units([(RECORDS_BYTES + b"\x01" * more, as_is)]))
            refused(with_units([(RECORDS_BYTES + b"\xff" * more, as_is)], positions_end=end), "scan")


def test_blocks_that_end_before_their_records() -> None:
    """Positions lie after the contents of a block, and in blocks after a long unit's end."""
    stored = lz4.block.compress(RECORDS_BYTES, store_size=False)
    end = 64 + len(stored)
    refused(with_stored(stored, [64, end], 4096))
    refused(with_stored(stored, [64, end, end], 8192))
    refused(with_stored(stored, [64, end, end, end], 3 * 4096))
    reasons = refused(with_stored(stored + stored, [64, end, end + len(stored)], 8192), "verify")
    assert any("ascend" in reason for reason in reasons)


# Offsets in errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "question"),
    [
        (with_stored(b"stored", [10**6, 10**6 + 50], len(RECORDS_BYTES)), "get"),
        (with_stored(b"stored", [64 + 10**9, 64], len(RECORDS_BYTES)), "scan"),
        (with_units([(RECORDS_BYTES, False), (RECORDS_BYTES, False)], positions_end=8192), "verify"),
        (with_anchors(Forgery.of(oracle.NONE), [0, 0, 0], [2**31] * 3), "start"),
    ],
    ids=["behind the file", "backwards", "virtual position", "place"],
)
def test_offsets_lie_in_the_file(image: bytes, question: str) -> None:
    """If the target is nowhere, the error names the place of the pointer."""
    with SortedFile(image) as file, pytest.raises(Corrupt) as refusal:
        QUESTIONS[question](file)
    assert 0 <= refusal.value.offset <= len(image)


# Forgeries that only `verify` can find -------------------------------------------------------------------------------


def test_anchors_and_prefixes_that_lie() -> None:
    good = Forgery.of(oracle.NONE)
    at, count = good.footer.anchors, good.footer.anchor_count
    numbers = struct.unpack_from(f"<{count}Q{count}I", good.body, at)
    words, places = list(numbers[:count]), list(numbers[count:])
    assert count > 1
    fewer = Forgery.of(oracle.NONE).poke(at, struct.pack(f"<{count - 1}Q{count - 1}I", *words[:-1], *places[:-1]))
    lies = {
        "does not point to the first record": with_anchors(
            Forgery.of(oracle.NONE), words, [*places[:-1], places[-1] - 4]
        ),
        "word does not match its key": with_anchors(Forgery.of(oracle.NONE), [*words[:-1], words[-1] ^ 1], places),
        "lacks the prefix in the footer": good.image(prefix=b"kez"),
        "the number of anchors does not match": fewer.image(anchor_count=count - 1),
    }
    with SortedFile(good.image()) as file:
        file.verify()
    for reason, image in lies.items():
        with SortedFile(image) as file, pytest.raises(Corrupt, match=reason) as refusal:
            file.verify()
        assert 0 <= refusal.value.offset <= len(image)


def test_keys_that_do_not_ascend() -> None:
    for records in (RECORDS[::-1], [*RECORDS, RECORDS[-1]], [RECORDS[1], RECORDS[0], *RECORDS[2:]]):
        positions, units, end = oracle.lay_out(records, oracle.NONE)
        forged = Forgery.of(oracle.NONE, sorted(dict(records).items()))
        keys = [key for key, _ in records]
        homes = oracle.home_count(len(records))
        index = oracle.index(keys, positions, forged.footer.seed, homes)
        body = bytes(forged.body[:64]) + units[0][1]
        records_end = len(body)
        body += bytes(-len(body) % 64)
        index_at = len(body)
        body += index
        anchors_at = len(body)
        anchors, count = oracle.anchors(keys, positions, 0)
        body += anchors
        image = oracle.seal(
            body,
            dataclasses.replace(
                forged.footer,
                positions_end=end,
                records_end=records_end,
                index=index_at,
                buckets=len(index) // 64,
                homes=homes,
                anchors=anchors_at,
                anchor_count=count,
                block_table=len(body),
                metadata=len(body),
                metadata_bytes=0,
                prefix=bytes(64),
                prefix_bytes=0,
            ),
        )
        assert any("keys do not ascend" in reason for reason in refused(image, "verify"))


@pytest.mark.parametrize("records", [0, 119, 121])
def test_another_number_of_records(records: int) -> None:
    image = Forgery.of(oracle.NONE).image(records=records)
    with SortedFile(image) as file, pytest.raises(Corrupt, match=rf"match the footer \(expected {records}, got 120\)"):
        file.verify()


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_a_record_that_the_index_does_not_know(compression: int) -> None:
    """`verify` looks up every key."""
    forged = Forgery.of(compression)
    at = forged.footer.index + 16
    while not any(forged.body[at : at + 4]):
        at += 64
    image = forged.poke(at, bytes(4)).image()
    assert any("the index does not find the key" in reason for reason in refused(image, "verify"))
