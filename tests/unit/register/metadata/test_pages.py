"""Pages survive encoding, and malformed pages are refused."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError, UnsupportedFormat
from gossipkv.register.metadata import pages
from gossipkv.register.metadata.pages import (
    IdsReference,
    Judged,
    KeptOutcome,
    MapEntry,
    MissingPage,
    OperationOutcome,
    PageReference,
    Root,
    config_id,
    decode_branch,
    decode_ids,
    decode_leaf,
    decode_root,
    encode_branch,
    encode_ids,
    encode_leaf,
    encode_root,
    generation_of,
    name_of,
    sequence_of,
    unpack,
)

NAME, OTHER = b"n" * 32, b"o" * 32
LEAF = PageReference(b"a", NAME, 2, 100, 5)
IDS = IdsReference(3, 5, OTHER)
ROOT = Root("any", 9, 7, b"meta", 0, (LEAF, LEAF._replace(first=b"b", name=b"p" * 32)), (IDS,))
KEPT = {bytes([at]) * 20: KeptOutcome(OperationOutcome(1 + at % 3), b"%04d" % at) for at in range(5)}
ROW = Judged.of(3, KEPT)


def read(decode, page):
    """Decode a page under its own name."""
    return decode(name_of(page), page)


@given(st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 48) - 1))
def test_a_config_id_is_two_numbers(generation, sequence):
    config = config_id(generation, sequence)
    assert (generation_of(config), sequence_of(config)) == (generation, sequence)
    assert config < 1 << 64


def test_pages_are_read_as_they_were_written():
    assert read(decode_root, encode_root(ROOT)) == ROOT
    assert read(decode_branch, encode_branch(ROOT.below)) == ROOT.below
    entries = [MapEntry(b"", 0, b""), MapEntry(b"k" * 255, (1 << 64) - 1, b"r" * 8192)]
    assert read(decode_leaf, encode_leaf(entries)) == tuple(entries)
    rows = [ROW, ROW._replace(config=4)]
    assert read(decode_ids, encode_ids(rows)) == tuple(rows)
    assert ROW.kept == KEPT


@pytest.mark.parametrize(
    "page", [encode_root(ROOT), encode_leaf([MapEntry(b"k", 1, b"r")]), encode_ids([ROW]), encode_branch([LEAF])]
)
def test_each_byte_counts(page):
    """A page with a byte changed, cut or added does not match its name, and kinds are told apart."""
    decoders = (decode_root, decode_leaf, decode_ids, decode_branch)
    right = decoders[page[1] - 1]
    name = name_of(page)
    for at in range(len(page)):
        for other in (page[:at] + bytes((page[at] ^ 1,)) + page[at + 1 :], page[:at], page + page[at : at + 1]):
            with pytest.raises(ProtocolError, match="do not match its name"):
                right(name, other)
    for decode in set(decoders) - {right}:
        with pytest.raises(ProtocolError, match="not of kind"):
            decode(name, page)


@pytest.mark.parametrize(
    "page", [encode_root(ROOT), encode_leaf([MapEntry(b"k", 1, b"r")]), encode_ids([ROW]), encode_branch([LEAF])]
)
def test_another_format_is_refused_by_its_number(page):
    """The format number alone causes the refusal."""
    for number, writer in ((2, "a newer GossipKV"), (0, "an older GossipKV")):
        packed = msgpack.packb([page[1], number, "what nobody knows here"])
        with pytest.raises(UnsupportedFormat, match=f"format {number}, and this program reads format 1: {writer}"):
            read((decode_root, decode_leaf, decode_ids, decode_branch)[page[1] - 1], packed)


def test_pages_are_at_most_64_kib():
    """A longer page is refused before decoding."""
    entries = [MapEntry(b"%d" % number, 1, b"r" * 8000) for number in range(9)]
    assert len(encode_leaf(entries)) > pages.MAX_PAGE_BYTES
    with pytest.raises(ProtocolError, match="at most 65536 are allowed"):
        read(decode_leaf, encode_leaf(entries))


@pytest.mark.parametrize(
    "root",
    [
        ROOT._replace(kind=3), ROOT._replace(kind="k" * 33), ROOT._replace(meta="text"),
        ROOT._replace(meta=b"m" * 4097),
        ROOT._replace(config=-1), ROOT._replace(config=1.5), ROOT._replace(config=True, version=0, below=(), ids=()),
        ROOT._replace(version=10), ROOT._replace(version=None), ROOT._replace(below=None), ROOT._replace(ids=3),
        ROOT._replace(below=(LEAF, LEAF._replace(name=b"p" * 32))), ROOT._replace(below=(ROOT.below[1], LEAF)),
        ROOT._replace(below=(LEAF._replace(first="a"),)), ROOT._replace(below=(LEAF._replace(first=b"a" * 256),)),
        ROOT._replace(below=(LEAF._replace(name=b"short"),)), ROOT._replace(below=(LEAF._replace(newest=10),)),
        ROOT._replace(below=(LEAF._replace(size_bytes=(32 << 20) + 1),)), ROOT._replace(below=(LEAF[:4],)),
        ROOT._replace(below=(LEAF._replace(entries=-1),)), ROOT._replace(below=(LEAF._replace(name=OTHER),)),
        ROOT._replace(ids=(IDS._replace(first=6),)), ROOT._replace(ids=(IDS._replace(last=10),)),
        ROOT._replace(ids=(IDS, IDS._replace(name=b"q" * 32))), ROOT._replace(ids=(IDS._replace(name=b"short"),)),
        ROOT._replace(ids=(IDS, IDS._replace(first=5, last=6, name=b"q" * 32))), (*ROOT, 1), ROOT[:6],
        ROOT._replace(height=9), ROOT._replace(height=True), ROOT._replace(height=1, below=()),
        ROOT._replace(below=(LEAF._replace(size_bytes=32 << 20), ROOT.below[1])),
    ],
)  # fmt: skip
def test_what_is_no_root(root):
    """Fields of other types, out of range, out of order, repeated or extra are refused."""
    with pytest.raises(ProtocolError):
        read(decode_root, msgpack.packb((pages.ROOT, 1, *root)))


@pytest.mark.parametrize(
    "rows",
    [
        [], [(b"k", 1)], [("k", 1, b"r")], [(b"k", -1, b"r")], [(b"k", True, b"r")], [(b"k", 1, None)], None, [3],
        [(b"b", 1, b"r"), (b"a", 1, b"r")], [(b"a", 1, b"r"), (b"a", 2, b"r")], [(b"k" * 256, 1, b"r")],
        [(b"k", 1, b"r" * 8193)],
    ],
)  # fmt: skip
def test_what_is_no_leaf(rows):
    """Empty leaves, other types, unsorted or repeated keys and too large fields are refused."""
    with pytest.raises(ProtocolError):
        read(decode_leaf, msgpack.packb((pages.LEAF, 1, rows)))


@pytest.mark.parametrize(
    "rows",
    [
        [], [(3, b"")], [(3, b"1" * 25)], [(3, b"1" * 24 + b"\0")], [(3, b"1" * 24 + b"\4")], [(3, b"1" * 24)],
        [(-3, ROW.rows)], [(3, "text")], [ROW, ROW], [(4, ROW.rows), (3, ROW.rows)], [(3, ROW.rows, 0)],
        [(3, ROW.rows + ROW.rows)], [(3, b"".join(b"%24d\1" % number for number in range(49)))],
        [(config, b"".join(b"%24d\1" % number for number in range(48))) for config in range(14)],
    ],
)  # fmt: skip
def test_what_is_no_page_of_ids(rows):
    """Empty pages, unknown outcomes, repeated operations, more than 48, no order or excess size are refused."""
    with pytest.raises(ProtocolError):
        read(decode_ids, msgpack.packb((pages.IDS, 1, rows)))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x91", b"\x01\x01", b"\xcc\x01", b"\xd9\x01a", b"\xdc\x00\x01\x01", b"\xc5\x00\x01a",
        b"\xa1\xff",
        b"\x91" * 2000 + b"\x01", b"\x82\xa1a\x01\xa1a\x02", b"\x81\x01\x02", b"\x81\x91\x01\x02", b"\xd6\xff\0\0\0",
        b"\xc7\x0c\xff" + b"\xff" * 12, b"\xde\x00\x01\xa1a\x01",
    ],
)  # fmt: skip
def test_one_value_has_one_encoding(data):
    """Truncated, extended, overlong and foreign encodings are refused."""
    with pytest.raises(ProtocolError):
        unpack(data, 1 << 20)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(data):
    """No other error is raised, and a value encodes to the bytes that it came from."""
    try:
        value = unpack(data, 100)
    except ProtocolError:
        return
    assert len(data) <= 100
    assert pages.pack(value) == data


def test_a_missing_page_says_which():
    assert MissingPage(NAME).name == NAME
