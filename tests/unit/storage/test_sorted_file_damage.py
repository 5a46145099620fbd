"""Small files of each kind, changed, cut and doubled at every byte, and foreign files.

A file is refused, damage is found, or all answers stay right; a wrong answer is never permitted. `verify` must notice
every changed byte; other questions must notice the damage that they touch.
"""

from __future__ import annotations

import dataclasses
import gzip
import random
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.examination import MET, NAME, REFUSED, UNHARMED, Examination, nested, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable


FOOTER = oracle.Footer.SIZE
PAGE = oracle.PAGE


@dataclass(frozen=True)
class Sample:
    image: bytes
    examine: Examination

    @property
    def footer(self) -> oracle.Footer:
        return oracle.Footer.unpack(self.image[-FOOTER:])


def sample(compression: int) -> Sample:
    """Return two pages and more: records with records inside, a crowded index, tied anchors, a long record."""
    noise = random.Random(30)
    records = [nested(b"nested %02d" % number, noise.randbytes(8), 3) for number in range(40)]
    records += [(b"noise %d" % number, noise.randbytes(150)) for number in range(14)]
    records += [(b"same" * 4, b""), (b"same" * 5, b"tie"), (b"", b"empty"), (b"zeros\0\0", bytes(300))]
    if compression == oracle.LZ4:
        records += [nested(b"text %02d" % number, b"text " * 30, 4) for number in range(20)]
        records += [(b"long", b"long " * 900 + noise.randbytes(100)), (b"raw", noise.randbytes(4000))]
    else:
        records.append((b"long", noise.randbytes(2500)))
    metadata = b"metadata"
    # A seed that crowds buckets, so that keys overflow and are found in the next bucket.
    for seed in range(1000):
        image = oracle.write(records, compression=compression, metadata=metadata, seed=seed)
        file = oracle.File(image)
        carried_on = sum(any(file.index[at + 12 : at + 16]) for at in range(0, len(file.index), 64))
        if carried_on >= 2 and file.footer.buckets > file.footer.homes:
            break
    else:
        pytest.fail("no seed crowds the index")
    asked = [key + b"!" for key, _ in records[::4]] + [key[:-1] for key, _ in records[::5] if key]
    return Sample(image, Examination(records, sorted(set(asked) - set(dict(records))), metadata))


SAMPLES = {"none": sample(oracle.NONE), "lz4": sample(oracle.LZ4)}


@pytest.fixture(params=SAMPLES)
def whole(request: pytest.FixtureRequest) -> Sample:
    return SAMPLES[request.param]


def changed(image: bytes, at: int, byte: int) -> bytes:
    return image[:at] + bytes([byte]) + image[at + 1 :]


def outcomes(whole: Sample, images: Iterable[bytes]) -> Counter[str]:
    return Counter(whole.examine(image) for image in images)


def verify(image: bytes) -> None:
    with SortedFile(image, name=NAME) as file:
        file.verify()


def test_the_samples_are_worth_it(whole: Sample) -> None:
    """The samples are small, have several pages and every feature of a file, and are unharmed."""
    footer = whole.footer
    assert 9000 < len(whole.image) < 14_000
    assert footer.records_end > PAGE
    assert (footer.index - 1) // PAGE != footer.anchors // PAGE or footer.index // PAGE >= 2
    assert footer.anchor_count >= 2
    assert whole.examine(whole.image) == UNHARMED
    verify(whole.image)
    file = oracle.File(whole.image)
    file.check()
    if footer.compression == oracle.LZ4:
        kinds = Counter(entry >= oracle.STORED_AS_IS for entry in file.table)
        assert kinds[True] >= 1
        assert kinds[False] >= 3
        assert max(len(contents) for _, contents in file.units()) > PAGE


def anchors_on_a_page_of_their_own(compression: int, part: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return a file whose anchors' words or places begin a page, so that no earlier read has checked the page."""
    records = [(b"key %04d" % number, b"value %d " % number * 3) for number in range(900)]
    noise = random.Random(36).randbytes(20_000)
    size = 0
    for _ in range(50):
        whole = [*records, (b"last", noise[:size])]
        image = oracle.write(whole, compression=compression, crc=crc32c)
        footer = oracle.Footer.unpack(image[-FOOTER:])
        if (too_far := (footer.anchors + (8 * footer.anchor_count if part == "places" else 0)) % PAGE) < 64:
            return image, whole
        size = (size + PAGE - too_far) % len(noise)  # A varint or an anchor may move it.
    raise AssertionError("it always fits after a few steps")


@pytest.mark.parametrize("part", ["words", "places"])
@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_every_bit_of_the_anchors(compression: int, part: str) -> None:
    """Walks that begin by the anchors alone start at the right record, or the anchors' own checksum refuses them."""
    image, records = anchors_on_a_page_of_their_own(compression, part)
    footer = oracle.Footer.unpack(image[-FOOTER:])
    between = [records[at][0] + b"\0" for at in range(50, 900, 250)]
    questions = [{"start": key, "limit": 1} for key in between]
    questions += [{"end": key, "limit": 1, "reverse": True} for key in between] + [{"reverse": True, "limit": 300}]
    asked = [(question, oracle.select(records, **question)) for question in questions]
    counts: Counter[str] = Counter()
    for at in range(footer.anchors, footer.block_table):
        for bit in range(8):
            damaged = changed(image, at, image[at] ^ 1 << bit)
            for question, expected in asked:
                try:
                    found = list(SortedFile(damaged, name=NAME).scan(**question))
                except Corrupt:
                    counts[MET] += 1
                else:
                    assert found == expected
                    counts[UNHARMED] += 1
    assert counts[MET] > counts.total() // 4
    assert counts.total() == len(questions) * 8 * (footer.block_table - footer.anchors)


def test_cut_everywhere(whole: Sample) -> None:
    image = whole.image
    assert outcomes(whole, (image[:at] for at in range(len(image)))) == {REFUSED: len(image)}


def test_tail_doubled_everywhere(whole: Sample) -> None:
    image = whole.image
    assert outcomes(whole, (image + image[at:] for at in range(len(image)))) == {REFUSED: len(image)}


def test_a_piece_missing_or_twice(whole: Sample) -> None:
    image, source = whole.image, random.Random(31)
    pieces = [sorted(source.sample(range(1, len(image)), 2)) for _ in range(3000)]
    assert outcomes(whole, (image[:at] + image[to:] for at, to in pieces)) == {REFUSED: 3000}
    assert outcomes(whole, (image[:to] + image[at:] for at, to in pieces)) == {REFUSED: 3000}


def test_pages_in_each_others_place(whole: Sample) -> None:
    """Page numbers are part of the checksums, so swapped and copied pages are noticed."""
    image = whole.image
    count = whole.footer.body_bytes // PAGE
    assert count >= 2
    images = []
    for one in range(count):
        for other in range(count):
            if one != other:
                pages = [image[at * PAGE : (at + 1) * PAGE] for at in range(count)]
                rest = image[count * PAGE :]
                images.append(b"".join([*pages[:one], pages[other], *pages[one + 1 :]]) + rest)
                pages[one], pages[other] = pages[other], pages[one]
                images.append(b"".join(pages) + rest)
    counts = outcomes(whole, images)
    assert counts[UNHARMED] == 0
    assert counts[MET] > 0
    for damaged in images:
        with pytest.raises((Corrupt, UnsupportedFormat)):
            verify(damaged)


def test_pages_of_another_file_with_their_checksums() -> None:
    """An older page with its own checksum is noticed by the checksum of the checksums."""
    records = [(b"key %03d" % number, b"new value %d" % number * 9) for number in range(150)]
    before = oracle.write([(key, value.replace(b"new", b"old")) for key, value in records])
    image = oracle.write(records)
    body = oracle.Footer.unpack(image[-FOOTER:]).body_bytes
    assert len(before) == len(image)
    examine = Examination(records, [b"missing"], b"")
    for page in range(body // PAGE):
        start, checksum = page * PAGE, body + 4 * page
        mixed = image[:start] + before[start : start + PAGE] + image[start + PAGE : checksum]
        mixed += before[checksum : checksum + 4] + image[checksum + 4 :]
        with pytest.raises(Corrupt, match="checksum of the page checksums does not match"):
            verify(mixed)
        assert examine(mixed) == MET
        mixed = mixed[: body + 4 * -(-body // PAGE)] + before[body + 4 * -(-body // PAGE) : -FOOTER] + image[-FOOTER:]
        with pytest.raises(Corrupt, match="checksum of the checksums does not match"):
            verify(mixed)


def test_damage_is_remembered_by_nobody(whole: Sample) -> None:
    """A damaged page is refused each time; other pages go on answering."""
    image = changed(whole.image, PAGE + 5, whole.image[PAGE + 5] ^ 1)
    file = SortedFile(image, name=NAME)
    told = []
    for _ in range(3):
        refused = set()
        for key in whole.examine.asked:
            try:
                file.get(key)
            except Corrupt as error:
                refused.add((key, error.offset, error.reason))
        told.append(refused)
    assert told[0] == told[1] == told[2]
    assert {(offset, reason) for _, offset, reason in told[0]} == {(PAGE, "a page's checksum does not match")}
    assert 0 < len(told[0]) < len(whole.examine.asked)


# Foreign files -------------------------------------------------------------------------------------------------------


FOREIGN = {
    "text": b"a line of text\n" * 400,
    "short text": b"x",
    "gzip": gzip.compress(bytes(range(256)) * 40),
    "elf": Path(sys.executable).read_bytes()[:20_000],
    "zeros": bytes(10_000),
    "almost our magic": b"GKVSORT\r\n" + bytes(5000),
    "our magic lower case": b"gkvsort\n" + bytes(5000),
    "its end first": oracle.FOOTER_MAGIC + bytes(5000) + oracle.FOOTER_MAGIC,
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files(foreign: bytes, tmp_path: Path) -> None:
    """The first bytes tell another kind of file, mapped or not."""
    path = tmp_path / NAME
    path.write_bytes(foreign)
    for source in (foreign, path):
        with pytest.raises(UnsupportedFormat, match="not a sorted file: it begins with") as refusal:
            SortedFile(source, name=NAME)
        assert place_of(refusal.value, len(foreign)) == 0


@pytest.mark.parametrize("size", [*range(8, 64), 64, 100, 319, 320, 400, 5000])
def test_only_the_header(size: int) -> None:
    """A header that is followed by nothing, little or zeros is reported as cut off."""
    header = SAMPLES["none"].image[:64]
    with pytest.raises(Corrupt, match="footer") as refusal:
        SortedFile(header.ljust(size, b"\0")[:size], name=NAME)
    place_of(refusal.value, size)


@pytest.mark.parametrize("size", range(1, 8))
def test_part_of_the_magic(size: int) -> None:
    with pytest.raises((Corrupt, UnsupportedFormat)) as refusal:
        SortedFile(SAMPLES["none"].image[:size], name=NAME)
    place_of(refusal.value, size)


def resealed(image: bytes, *, header_format: int = 1, **fields: object) -> bytes:
    """Return the same file with other fields in header and footer, and valid checksums."""
    footer = oracle.Footer.unpack(image[-FOOTER:])
    body = image[:8] + struct.pack("<I", header_format) + image[12 : footer.body_bytes]
    return oracle.seal(body, dataclasses.replace(footer, **fields))


@pytest.mark.parametrize("form", [0, 2, 3, 2**32 - 1])
def test_future_versions(form: int) -> None:
    """The error names the format, although all checksums hold."""
    writer = "a newer GossipKV" if form else "an older GossipKV"
    image = resealed(SAMPLES["none"].image, header_format=form, format=form)
    with pytest.raises(UnsupportedFormat, match=f"format {form}, .* {writer}") as refusal:
        SortedFile(image, name=NAME)
    assert place_of(refusal.value, len(image)) == 8


@pytest.mark.parametrize("form", [0, 2, 2**32 - 1])
def test_a_footer_of_another_format(form: int) -> None:
    """Header and footer each state the format; a footer of another one is refused, although its checksum holds."""
    with pytest.raises((Corrupt, UnsupportedFormat)):
        SortedFile(resealed(SAMPLES["none"].image, format=form), name=NAME)


def test_a_footer_that_never_was() -> None:
    """Zeros in place of the footer mean that the writer never finished."""
    image = SAMPLES["none"].image[:-FOOTER] + bytes(FOOTER)
    with pytest.raises(Corrupt, match="cut off or never finished"):
        SortedFile(image, name=NAME)
