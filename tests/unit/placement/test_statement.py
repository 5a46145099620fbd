"""Statements of nodes in the tree: decoded as they were encoded, or not at all."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.gossip.tree.limits import MAX_BRANCH_BYTES, TreeLimits, item_bytes
from gossipkv.keyspace.partitioner import FUNCTIONS
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.orders import MAX_STAMP, RollbackOrder
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import (
    MAX_PARTITIONS,
    MAX_PIECE_BYTES,
    MAX_REFUTED,
    PIECE_PARTITIONS,
    DatabaseStatement,
    Named,
    Statement,
    decode,
    decode_database,
    encode,
    encode_database,
)
from gossipkv.settings.databases import MAX_NAME_CHARACTERS
from tests.nightly.fuzz.test_documents import mutated
from tests.oracle import placement as oracle

UUID = bytes(range(16))
NAMES = st.text("-_azAZ09", min_size=1, max_size=9)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
FUZZED = 20_000


def statement(partitions: int, ready: PartitionSet | None = None, building: PartitionSet | None = None) -> Statement:
    """Return a statement about a version of so many partitions."""
    identity = VersionIdentity("geo", "2026-01", "0d" * 32, partitions, "sequins", regrouped=True)
    none = PartitionSet.empty(partitions)
    return Statement(identity, 1_700_000_000_123, 37, ready or none, building or none, UUID)


@st.composite
def sets(draw: st.DrawFn, partitions: int) -> PartitionSet:
    bits = draw(st.integers(0, (1 << partitions) - 1)) if draw(st.booleans()) else 0
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(0, partitions - 1))
        bits ^= ((1 << draw(st.integers(0, partitions - first))) - 1) << first
    return PartitionSet(partitions, bits)


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    partitions = draw(st.integers(1, 40) | st.integers(PIECE_PARTITIONS - 2, 2 * PIECE_PARTITIONS + 9))
    identity = VersionIdentity(
        draw(NAMES), draw(NAMES), draw(DIGESTS), partitions, draw(st.sampled_from(FUNCTIONS)), draw(st.booleans())
    )
    return Statement(
        identity,
        draw(st.integers(0, 1 << 45)),
        draw(st.integers(0, 100)),
        draw(sets(partitions)),
        draw(sets(partitions)),
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.none() | st.sets(st.integers(0, partitions - 1), min_size=1, max_size=32).map(
            lambda some: PartitionSet.of(partitions, some)
        )),
    )  # fmt: skip


@given(statements(), st.randoms(use_true_random=False))
def test_it_is_read_as_it_was_written(said: Statement, chance: random.Random) -> None:
    """The order of the pieces makes no difference; the oracle finds the same partitions in the bytes."""
    pieces = encode(said)
    assert len(pieces) == -(-said.identity.partitions // PIECE_PARTITIONS)
    assert oracle.partitions_of(pieces, "ready") == set(said.ready)
    assert oracle.partitions_of(pieces, "building") == set(said.building)
    chance.shuffle(pieces)
    assert decode(pieces) == said


GOLDEN_PIECE = bytes.fromhex(
    "8da6666f726d617401a86461746162617365a367656fa776657273696f6ea7323032362d3031a6646967657374c4200d0d0d"
    "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0daa706172746974696f6e7314a866756e6374696f6e"
    "a773657175696e73a9726567726f75706564c3a9736f757263655f6d73cf0000018bcfe5687ba870726f677265737325a475"
    "756964c410000102030405060708090a0b0c0d0e0fa5666972737400a57265616479920308a86275696c64696e67c4035555"
    "01"
)
GOLDEN_ENTRY = bytes.fromhex(
    "87a6666f726d617401a661637469766592a7323032362d3031c410000102030405060708090a0b0c0d0e0fa46e657874c0a6"
    "6e6577657374a7323032362d3032a4686f6c64a7323032362d3031a7726566757465649193c4200d0d0d0d0d0d0d0d0d0d0d"
    "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0da773657175696e73a6737472696e67a4746f6c64c3"
)


def test_the_bytes_of_format_1_never_change() -> None:
    """Nodes of several releases read each other."""
    runs, scattered = PartitionSet.of(20, range(3, 11)), PartitionSet.of(20, range(0, 17, 2))
    said = statement(20, runs, scattered)
    assert (encode(said), decode([GOLDEN_PIECE])) == ([GOLDEN_PIECE], said)
    active = Named("2026-01", bytes(range(16)))
    told = DatabaseStatement(active, None, "2026-02", "2026-01", {"0d" * 32: ("sequins", "string")}, is_complete=True)
    assert (encode_database(told), decode_database(GOLDEN_ENTRY)) == (GOLDEN_ENTRY, told)


@pytest.mark.parametrize(
    ("some", "told"),
    [
        (PartitionSet.empty(64), []),
        (PartitionSet.whole(64), [0, 64]),
        (PartitionSet.of(64, range(3, 61)), [3, 58]),
        (PartitionSet.of(64, range(0, 64, 2)), b"\x55" * 8),
        (PartitionSet.of(64, range(0, 30, 2)), b"\x55" * 3 + b"\x15"),
    ],
)
def test_the_shorter_form_is_taken(some: PartitionSet, told: object) -> None:
    """A few runs are encoded as runs, anything else as a bitmap without trailing zeros."""
    (piece,) = encode(statement(64, some))
    assert msgpack.unpackb(piece)["ready"] == told
    assert decode([piece]) == statement(64, some)


@given(st.data(), st.integers(1, 300))
def test_the_shorter_form_is_the_oracle_s(data: st.DataObject, partitions: int) -> None:
    """The oracle encodes both forms; runs win a tie."""
    some = data.draw(sets(partitions))
    bitmap, runs = oracle.forms(set(some), partitions)
    (piece,) = encode(statement(partitions, some))
    told = runs if len(msgpack.packb(runs)) <= len(msgpack.packb(bitmap)) else bitmap
    assert msgpack.unpackb(piece)["ready"] == told


def worst(partitions: int = MAX_PARTITIONS) -> Statement:
    """Return the largest statement: no runs, the longest names."""
    longest = "n" * MAX_NAME_CHARACTERS
    identity = VersionIdentity(longest, longest, "ff" * 32, partitions, max(FUNCTIONS, key=len), regrouped=True)
    scattered = PartitionSet.of(partitions, range(1, partitions, 2))
    return Statement(identity, 1 << 45, 100, scattered, scattered, UUID, scattered)


def test_it_fits_the_tree() -> None:
    """A piece fits an entry, and 65,536 partitions fit an eighth of a branch, as the module's docstring says."""
    said = worst()
    owner = str(Address("h" * 253, 65_535))
    paths = [f"partitions/{said.identity.database}/{said.identity.version}/{owner}+{number}" for number in range(8)]
    pieces = encode(said)
    told = decode(pieces)
    assert replace(told, differing=said.differing) == said
    assert [len(told.differing.runs()), told.differing - said.differing] == [8 * 32, PartitionSet.empty(MAX_PARTITIONS)]
    assert max(map(len, pieces)) <= 2930
    assert max(map(len, paths)) <= 676
    items = list(zip(paths, pieces, strict=True))
    assert max(len(path) + len(piece) for path, piece in items) <= TreeLimits().max_entry_bytes
    assert sum(item_bytes(path, piece) for path, piece in items) <= 30 << 10 < MAX_BRANCH_BYTES // 8
    assert MAX_PIECE_BYTES >= 32 << 10  # The longest entry that the settings allow.
    regular = statement(MAX_PARTITIONS, PartitionSet.of(MAX_PARTITIONS, range(PIECE_PARTITIONS, 3 * PIECE_PARTITIONS)))
    assert max(map(len, encode(regular))) < 256


def test_what_is_not_there_says_nothing() -> None:
    """The partitions of a missing piece are neither ready nor being built."""
    partitions = 3 * PIECE_PARTITIONS
    said = statement(partitions, PartitionSet.whole(partitions), PartitionSet.whole(partitions))
    pieces = encode(said)
    found = decode([pieces[2], pieces[0]])
    assert found is not None
    absent = PartitionSet.of(partitions, range(PIECE_PARTITIONS, 2 * PIECE_PARTITIONS))
    assert found == replace(said, ready=said.ready - absent, building=said.building - absent)


def test_pieces_that_do_not_belong_together_are_none() -> None:
    """Pieces of two identities or two nodes, a repeated piece, too many and none are refused."""
    said = statement(2 * PIECE_PARTITIONS)
    pieces = encode(said)
    relied = encode(replace(said, identity=replace(said.identity, regrouped=False)))
    other = encode(replace(said, uuid=bytes(16)))
    for wrong in ([pieces[0], relied[1]], [pieces[0], other[1]], [pieces[0], pieces[0]], [], pieces * 5):
        assert decode(wrong) is None
    assert decode(pieces) == said


def changed(piece: bytes, **fields: object) -> bytes:
    whole: bytes = msgpack.packb(msgpack.unpackb(piece) | fields)
    return whole


def test_what_a_later_version_adds_is_passed_over() -> None:
    said = statement(9, PartitionSet.of(9, [2, 3, 5]))
    (piece,) = encode(said)
    assert decode([changed(piece, seals=[{"a": 1.5}, None], more=b"x" * 20_000)]) == said
    told = DatabaseStatement(newest="7", is_complete=True)
    assert decode_database(changed(encode_database(told), later={"x": [1]})) == told


def test_what_is_too_long_is_none() -> None:
    """Valid content does not help; the size of a tree's entry is the limit."""
    (piece,) = encode(statement(9))
    entry = encode_database(DatabaseStatement())
    rest = MAX_PIECE_BYTES - len(changed(piece, more=b"x" * 30_000)) + 30_000
    assert decode([changed(piece, more=b"x" * rest)]) is not None
    assert decode([changed(piece, more=b"x" * (rest + 1))]) is None
    assert decode_database(changed(entry, more=b"x" * MAX_PIECE_BYTES)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2}, {"format": "1"}, {"format": True}, {"format": None},
        {"database": ""}, {"database": "a/b"}, {"database": "n" * 201}, {"database": b"geo"}, {"version": None},
        {"digest": b"d" * 31}, {"digest": "d" * 64}, {"partitions": 0}, {"partitions": 65_537}, {"partitions": True},
        {"partitions": 9.0}, {"partitions": 1 << 63}, {"partitions": 8}, {"function": "x" * 33}, {"function": 1},
        {"regrouped": 0}, {"regrouped": None}, {"source_ms": -1}, {"source_ms": (1 << 63) + 1}, {"progress": 101},
        {"uuid": b"u" * 15}, {"uuid": "u" * 16}, {"first": -8192},
        {"first": 1, "ready": [], "building": []}, {"first": PIECE_PARTITIONS},
        {"ready": b"\0\0\0"}, {"ready": b"\0\2"}, {"ready": [1]}, {"ready": [0, 10]}, {"ready": [5, 5]},
        {"ready": [-1, 2]}, {"ready": [0, True]}, {"ready": [0, 1.0]}, {"ready": [1 << 63, 1]}, {"ready": None},
        {"ready": [0, 0] * 6}, {"building": {"0": 1}}, {"building": "\1"}, {"building": [[0, 1]]},
    ],
    ids=str,
)  # fmt: skip
def test_malformed_is_none(wrong: dict[str, object]) -> None:
    (piece,) = encode(statement(9, PartitionSet.of(9, [2, 8])))
    assert decode([piece]) is not None
    assert decode([changed(piece, **wrong)]) is None


NAMED = st.builds(Named, NAMES, st.binary(min_size=16, max_size=16))
DATABASES = st.builds(
    DatabaseStatement,
    st.none() | NAMED,
    st.none() | NAMED,
    st.none() | NAMES,
    st.none() | NAMES,
    st.dictionaries(DIGESTS, st.lists(st.sampled_from(FUNCTIONS), unique=True).map(tuple), max_size=MAX_REFUTED),
    st.booleans(),
    st.none() | st.builds(RollbackOrder, st.integers(0, MAX_STAMP), st.none() | NAMES),
)


@given(DATABASES)
def test_a_database_is_read_as_it_was_written(said: DatabaseStatement) -> None:
    assert decode_database(encode_database(said)) == said


def test_the_latest_refutations_are_told() -> None:
    """The entry has room for the latest refutations, even with the longest names."""
    refuted = {f"{number:064x}": FUNCTIONS for number in range(MAX_REFUTED + 5)}
    longest = Named("n" * MAX_NAME_CHARACTERS, bytes(16))
    said = DatabaseStatement(longest, longest, longest.version, longest.version, refuted, is_complete=True)
    said = replace(said, order=RollbackOrder(MAX_STAMP, longest.version))
    entry = encode_database(said)
    found = decode_database(entry)
    assert found == replace(said, refuted=dict(list(refuted.items())[5:]))
    path = f"databases/{'n' * MAX_NAME_CHARACTERS}/{Address('h' * 253, 65_535)}"
    assert len(path) + len(entry) <= TreeLimits().max_entry_bytes


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2}, {"active": []}, {"active": ["1", b"short"]}, {"active": [b"1", bytes(16)]}, {"next": "1"},
        {"next": ["a/b", bytes(16)]}, {"newest": 1}, {"newest": ""}, {"hold": b"1"}, {"refuted": None},
        {"refuted": {}}, {"refuted": [[b"d" * 31]]}, {"refuted": [[b"d" * 32, 1]]}, {"refuted": [[b"d" * 32, ""]]},
        {"refuted": [b"d" * 32]}, {"refuted": [[b"d" * 32]] * 17}, {"told": None}, {"told": 1},
        {"order": []}, {"order": 7}, {"order": [7]}, {"order": [-1, None]}, {"order": [True, None]},
        {"order": [1 << 63, None]}, {"order": [7, b"1"]}, {"order": [7, "a/b"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_database_is_none(wrong: dict[str, object]) -> None:
    entry = encode_database(DatabaseStatement(Named("1", bytes(16))))
    assert decode_database(changed(entry, **wrong)) is None


def test_mutations_are_a_statement_or_none() -> None:
    """No mutation raises; a decoded statement can be encoded and decoded again."""
    chance = random.Random(15)
    sources = [
        *encode(statement(100, PartitionSet.of(100, range(0, 100, 7)), PartitionSet.of(100, range(40)))),
        *encode(statement(3, PartitionSet.whole(3))),
        encode_database(
            DatabaseStatement(Named("1", bytes(16)), None, "2", None, {"ab" * 32: ("text",)}, is_complete=True)
        ),
        encode_database(DatabaseStatement(order=RollbackOrder(1_700_000_000_000, "2"))),
    ]
    read = 0
    for _ in range(FUZZED):
        data = mutated(chance, chance.choice(sources))
        said, told = decode([data]), decode_database(data)
        assert said is None or decode(encode(said)) == said
        assert told is None or decode_database(encode_database(told)) == told
        read += said is not None or told is not None
    assert 0 < read < FUZZED


NUMBERS = st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats()
SAID = st.recursive(
    st.none() | NUMBERS | st.text(max_size=9) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [*msgpack.unpackb(encode(statement(9))[0]), *msgpack.unpackb(encode_database(DatabaseStatement()))]
ANYTHING = st.binary(max_size=100) | st.dictionaries(st.sampled_from(FIELDS), SAID).map(msgpack.packb)


@given(st.lists(ANYTHING, max_size=3))
def test_any_bytes_are_a_statement_or_none(pieces: list[bytes]) -> None:
    """The inputs include maps of anything under the names of fields."""
    said = decode(pieces)
    assert said is None or decode(encode(said)) == said
    for piece in pieces:
        told = decode_database(piece)
        assert told is None or decode_database(encode_database(told)) == told


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",  # An array of four billion.
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdd\x00\x10\x00\x00" + b"\xc0" * 2000,
        b"\x91" * 30_000,
        b"\x81\xa1a" * 10_000,
        b"\x81\xa6format" + b"\x91" * 600,
        bytes(MAX_PIECE_BYTES + 1),
        b"\x82\xa6format\x01\xa5ready\xdd\x7f\xff\xff\xff" + b"\x01" * 1000,
    ],
    ids=range(9),
)
def test_what_asks_for_memory_gets_none(data: bytes) -> None:
    """Absent elements, depth and length are refused before memory is allocated for them."""
    tracemalloc.start()
    try:
        assert decode([data] * 8) is None
        assert decode_database(data) is None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
