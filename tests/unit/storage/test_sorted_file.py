"""The reader answers every question like the oracle, on files of the oracle and of the builder."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, LimitExceeded
from gossipkv.storage import sorted_file
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile, prefix_end
from tests.oracle import sorted_file as oracle
from tests.unit.storage.records import COMPRESSIONS, KEYS, RECORDS, built, edge_cases, many, misses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


Record = tuple[bytes, bytes]

BOUNDS = st.one_of(st.none(), KEYS)
QUESTIONS = st.fixed_dictionaries(
    {
        "start": BOUNDS,
        "end": BOUNDS,
        "prefix": st.one_of(st.none(), KEYS.map(lambda key: key[:3])),
        "reverse": st.booleans(),
        "limit": st.one_of(st.none(), st.integers(0, 5)),
    }
)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        (b"", None),
        (b"a", b"b"),
        (b"a\x7f", b"a\x80"),
        (b"a\xfe", b"a\xff"),
        (b"a\xff", b"b"),
        (b"a\xff\xff", b"b"),
        (b"\0\xff\xff\xff", b"\1"),
        (b"a\xff\xff\0", b"a\xff\xff\1"),
        (b"\xff", None),
        (b"\xff\xff", None),
    ],
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes | None) -> None:
    """The end is the least key above the prefix: the last byte below ff is raised, and the rest dropped."""
    assert prefix_end(prefix) == end


def test_prefixes_that_end_in_ff() -> None:
    """Such a prefix gives its own keys, and not those after the shorter prefix."""
    keys = [b"", b"a", b"a\xfe", b"a\xff", b"a\xff\xff", b"a\xff\xff\xff", b"b", b"b\0", b"\xff\xff\1"]
    records = [(key, b"value") for key in keys]
    file = SortedFile(built(records))
    for prefix in [key + count * b"\xff" for key in keys for count in range(4)]:
        for reverse in (False, True):
            assert list(file.scan(prefix=prefix, reverse=reverse)) == oracle.select(
                records, prefix=prefix, reverse=reverse
            )


def written(records: Sequence[Record], compression: str, metadata: bytes = b"") -> bytes:
    return oracle.write(records, compression=COMPRESSIONS.index(compression), metadata=metadata)


def check_answers(file: SortedFile, records: Sequence[Record]) -> None:
    """Check every record and many misses, by every way of asking."""
    held = dict(records)
    in_order = sorted(held.items())
    asked = [*held, *misses(held.items())]
    random.Random(len(asked)).shuffle(asked)
    expected = [held.get(key) for key in asked]
    assert len(file) == len(held)
    assert [file.get(key) for key in asked] == expected
    assert file.get_many(asked) == expected
    assert file.get_many(tuple(asked * 2)) == expected * 2
    assert [key in file for key in asked] == [value is not None for value in expected]
    assert list(file.scan()) == in_order
    assert list(file.scan(reverse=True)) == in_order[::-1]
    file.verify()


def check_scans(file: SortedFile, records: Sequence[Record], turns: int) -> None:
    """Check ranges around present and absent keys, both ways, with and without a limit."""
    source = random.Random(turns)
    in_order = sorted(dict(records).items())
    keys = [key for key, _ in in_order] + misses(records)
    for _ in range(turns):
        question = {
            "start": source.choice([None, source.choice(keys)]),
            "end": source.choice([None, source.choice(keys)]),
            "prefix": source.choice([None, None, source.choice(keys)[: source.randrange(80)]]),
            "reverse": source.random() < 0.5,
            "limit": source.choice([None, 1, 7]),
        }
        assert list(file.scan(**question)) == oracle.select(in_order, **question), question


@pytest.mark.parametrize(
    "make", [written, lambda records, way: built(records, compression=way)], ids=["oracle", "builder"]
)
@pytest.mark.parametrize(
    "records",
    [
        [],
        [(b"", b"")],
        [(b"", b"empty key"), (b"empty value", b"")],
        [(b"x" * 65_535, b"y" * 70_000)],
        edge_cases(),
        many(11, 1000),
        many(12, 400, keys=30),
        [(b"%05d" % number, b"v" * (number % 240)) for number in range(1500)],  # Past each partial decompression.
    ],
    ids=["nothing", "one empty", "two empty", "one large", "edges", "many", "duplicates", "lengths"],
)
def test_every_answer(records: list[Record], make, way: str) -> None:
    with SortedFile(make(records, way)) as file:
        check_answers(file, records)
        check_scans(file, records, 100)


@pytest.mark.parametrize("cache_bytes", [0, 8192])
def test_questions_in_between(way: str, cache_bytes: int) -> None:
    """Many scans advance in turns, with lookups between their steps; the cache holds at most two blocks."""
    source = random.Random(14)
    records = edge_cases() + many(15, 600, value_bytes=400)
    held = dict(records)
    in_order = sorted(held.items())
    keys = [*held, *misses(records)]
    with SortedFile(written(records, way), cache_bytes=cache_bytes) as file:
        walks = []
        for _ in range(2000):
            turn = source.random()
            if turn < 0.3:
                key = source.choice(keys)
                assert file.get(key) == held.get(key)
            elif turn < 0.4:
                some = source.choices(keys, k=source.randrange(70))
                assert file.get_many(some) == [held.get(key) for key in some]
            elif turn < 0.45 and len(walks) < 6:
                question = {"start": source.choice(keys), "reverse": source.random() < 0.5}
                walks.append((file.scan(**question), iter(oracle.select(in_order, **question))))
            elif walks:
                number = source.randrange(len(walks))
                found, expected = (next(walk, None) for walk in walks[number])
                assert found == expected
                if found is None:
                    del walks[number]
        for found, expected in walks:
            assert list(found) == list(expected)


def test_batches_of_every_size(way: str) -> None:
    """The sizes are around the number of lookups in flight at once; hits and misses are mixed."""
    records = edge_cases()
    held = dict(records)
    asked = [*held, *misses(records)]
    random.Random(21).shuffle(asked)
    with SortedFile(written(records, way)) as file:
        for size in [*range(70), 95, 96, 97, 127, 128, 129]:
            assert file.get_many(asked[:size]) == [held.get(key) for key in asked[:size]]
        assert file.get_many([asked[0]] * 100) == [held.get(asked[0])] * 100


@given(records=RECORDS, question=QUESTIONS, compression=st.sampled_from(COMPRESSIONS), by_oracle=st.booleans())
def test_any_records_and_question(records: list[Record], question, compression: str, *, by_oracle: bool) -> None:
    make = written if by_oracle else lambda found, way: built(found, compression=way)
    with SortedFile(make(records, compression)) as file:
        check_answers(file, records)
        assert list(file.scan(**question)) == oracle.select(sorted(dict(records).items()), **question)


@given(records=RECORDS, question=QUESTIONS, bound=st.integers(0, 59), other=st.integers(0, 59))
def test_bounds_that_are_keys(records: list[Record], question, bound: int, other: int) -> None:
    """Ranges begin and end exactly at records."""
    keys = [key for key, _ in records] or [b""]
    question |= {"start": keys[bound % len(keys)], "end": keys[other % len(keys)]}
    for compression in COMPRESSIONS:
        with SortedFile(written(records, compression)) as file:
            assert list(file.scan(**question)) == oracle.select(sorted(dict(records).items()), **question)


def test_anchors_that_tie(way: str) -> None:
    """Anchors of several stretches have equal words, some with zeros that keys lack; only records tell them apart."""
    keys = [b"common" + b"w" * 8 + b"%04d" % number for number in range(90)]
    keys += [b"common" + bytes(size) for size in range(1, 30)]
    keys += [b"common" + b"x" + bytes(size) + b"y" for size in range(30)]
    records = [(key, b"v" * 1500) for key in keys]
    with SortedFile(written(records, way)) as file:
        check_answers(file, records)
        in_order = sorted(records)
        for key in [*keys, *misses(records)]:
            assert list(file.scan(start=key, limit=2)) == oracle.select(in_order, start=key, limit=2)
            assert list(file.scan(end=key, limit=2, reverse=True)) == oracle.select(
                in_order, end=key, limit=2, reverse=True
            )


def test_common_prefix_longer_than_the_footer_keeps(way: str) -> None:
    """Keys share 64 bytes and more; the bounds share fewer or differ."""
    records = [(b"s" * 80 + b"%03d" % number, b"v" * 100) for number in range(200)]
    with SortedFile(written(records, way)) as file:
        check_answers(file, records)
        in_order = sorted(records)
        for start in (b"", b"s", b"s" * 64, b"s" * 65, b"s" * 80, b"s" * 63 + b"r", b"s" * 63 + b"t", b"t", b"r" * 90):
            for reverse in (False, True):
                for bounds in ({"start": start}, {"end": start}, {"prefix": start}):
                    question = {**bounds, "reverse": reverse, "limit": 3}
                    assert list(file.scan(**question)) == oracle.select(in_order, **question)


def test_a_value_with_a_flag(way: str) -> None:
    """The format has room for a byte more than a build accepts; with two the record is refused."""
    most = (16 << 20) + 1
    key, compression = b"k", COMPRESSIONS.index(way)
    with SortedFile(oracle.write([(key, bytes(most))], compression=compression, crc=crc32c)) as file:
        assert file.get(key) == bytes(most)
        file.verify()
    too_long = oracle.write([(key, bytes(most + 1))], compression=compression, crc=crc32c)
    with SortedFile(too_long) as file, pytest.raises(Corrupt):
        file.get(key)
    with pytest.raises(LimitExceeded, match="at most 16,777,216 bytes, got 16,777,217"):
        built([(key, bytes(most))], compression=way)


@pytest.mark.parametrize("path_type", [str, lambda path: path], ids=["str", "PathLike"])
def test_from_a_path(tmp_path: Path, way: str, path_type) -> None:
    """A mapped file answers as a buffer does, and its name is its path."""
    path = tmp_path / "a file.gkv"
    records = edge_cases()
    path.write_bytes(written(records, way, b"mine"))
    with SortedFile(path_type(path)) as file:
        check_answers(file, records)
        assert file.name == os.fspath(path)
        assert file.metadata == b"mine"
        assert file.size_bytes == path.stat().st_size
        path.unlink()  # The map keeps the file alive.
        check_answers(file, records)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_from_a_buffer(kind, way: str) -> None:
    """Any contiguous buffer will do; its name is the caller's."""
    records = many(18, 100)
    with SortedFile(kind(written(records, way)), name="a name") as file:
        check_answers(file, records)
        assert file.name == "a name"


def test_describe(way: str) -> None:
    """The description has the footer's numbers and the metadata."""
    records = many(19, 500, keys=400)
    held = dict(records)
    image = written(records, way, b"\0meta")
    footer = oracle.Footer.unpack(image[-256:])
    with SortedFile(image, name="x.gkv") as file:
        assert file.describe() == {
            "file": "x.gkv",
            "format": 1,
            "records": len(held),
            "duplicates": 500 - len(held),
            "size_bytes": len(image),
            "key_bytes": sum(map(len, held)),
            "value_bytes": sum(map(len, held.values())),
            "records_bytes": footer.records_end - 64,
            "index_bytes": footer.buckets * 64,
            "compression": way,
            "common_prefix": b"user:000",
            "metadata": b"\0meta",
        }


@pytest.mark.parametrize("metadata", [b"", b"m", b"m" * 10_000])
def test_metadata(metadata: bytes, way: str) -> None:
    """Metadata of any size are returned, whatever their pages."""
    with SortedFile(written([(b"k", b"v")], way, metadata)) as file:
        assert file.metadata == metadata
        file.verify()


def test_wrong_questions() -> None:
    """Wrong types of keys, limits and sequences are refused, and the file stays usable."""
    file = SortedFile(written([(b"k", b"v")], "none"))
    for wrong in ("k", None, 5, bytearray(b"k")):
        for ask in (file.get, file.__contains__, lambda key: file.get_many([b"k", key])):
            with pytest.raises(TypeError):
                ask(wrong)
    with pytest.raises(TypeError, match=r"keys\[40\] must be bytes, not str"):
        file.get_many([b"k"] * 40 + ["k"])
    with pytest.raises(TypeError, match="sequence of bytes"):
        file.get_many(5)
    for wrong in ({"start": "k"}, {"end": 5}, {"prefix": "k"}, {"limit": "5"}):
        with pytest.raises(TypeError):
            file.scan(**wrong)
    with pytest.raises(ValueError, match="limit must not be negative, got -1"):
        file.scan(limit=-1)
    assert file.get(b"k") == b"v"
    file.close()


def test_suffix() -> None:
    assert sorted_file.SUFFIX == ".gkv"
    assert sorted_file.__all__ == [
        "DEFAULT_CACHE_BYTES", "FORMAT", "HEADER_MAGIC", "SUFFIX", "FileScan", "SortedFile", "prefix_end", "pretend",
    ]  # fmt: skip
