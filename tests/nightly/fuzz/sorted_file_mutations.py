"""Mutated sorted files through the reader, in a separate process that may crash; a number fixes each case.

    python -m tests.nightly.fuzz.sorted_file_mutations FIRST COUNT [PLACE]

The program tries cases FIRST to FIRST + COUNT - 1, keeps the number of the current case at PLACE, and prints the count
of each outcome. In every tenth thousand lz4 runs by its Python functions.

Some mutations get new checksums, since checksums catch all plain ones. Such a file may answer anything, since it is a
valid file of other content; but crashes, other errors and endless loops are failures.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import struct
import sys
from collections import Counter
from typing import TYPE_CHECKING

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage import compression
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.examination import WrongAnswer, nested

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20_010_002
FOOTER_BYTES = oracle.Footer.SIZE
# The words behind the sizes that `seal` sets.
WORDS = [field.name for field in dataclasses.fields(oracle.Footer)][2:20]
ODD = [0, 1, 7, 8, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 4097, 2**16, 2**31, 2**32, 2**35, 2**60, 2**63, 2**64]
INSANE_SIZES = [b"\xff\xff\xff\xff", b"\xff\xff\x03\x80", b"\x80\x80\x04\0", b"\0\xff\xff\xff"]
NAME = "mutated.gkv"
LIMIT = 80  # Records of a scan: more than the files have.


class Base:
    """A good file, its questions and their answers."""

    def __init__(self, compression: int, seed: int) -> None:
        source = random.Random(seed)
        records = [nested(b"nested %02d" % number, source.randbytes(5), 2) for number in range(18)]
        records += [(b"same" * 4 + bytes(number), b"") for number in range(5)] + [(b"", b"empty")]
        records += [(b"noise %d" % number, source.randbytes(source.randrange(200))) for number in range(6)]
        records += [(b"long", b"long " * 900 if compression else source.randbytes(900))]
        if compression:
            records += [(b"text %d" % number, b"some text " * 60 + source.randbytes(9)) for number in range(12)]
        self.image = oracle.write(records, compression=compression, metadata=b"metadata", seed=seed)
        self.footer = oracle.Footer.unpack(self.image[-FOOTER_BYTES:])
        self.body = self.image[: self.footer.body_bytes]
        held = dict(records)
        in_order = sorted(held.items())
        keys = list(held)
        source.shuffle(keys)
        asked = [*keys[:8], b"missing", *keys[8:12], b"text", b"\xff"]
        self.questions: list[tuple[Callable[[SortedFile], object], object]] = [
            (lambda file: [file.get(key) for key in asked], [held.get(key) for key in asked]),
            (lambda file: file.get_many(keys[:20]), [held[key] for key in keys[:20]]),
            (lambda file: file.get_many(asked), [held.get(key) for key in asked]),
            (lambda file: list(file.scan(limit=LIMIT)), in_order),
            (lambda file: list(file.scan(reverse=True, limit=LIMIT)), in_order[::-1]),
            *(
                (
                    lambda file, question=question: list(file.scan(**question, limit=LIMIT)),
                    oracle.select(in_order, **question),
                )
                for question in (
                    {"start": b"nested 07"},
                    {"end": keys[3], "reverse": True},
                    {"prefix": b"same", "reverse": True},
                    {"prefix": b"n", "start": keys[5], "end": b"nested 15"},
                )
            ),
            (lambda file: file.metadata, b"metadata"),
        ]


BASES = [Base(compression, seed) for seed in (1, 2) for compression in (oracle.NONE, oracle.LZ4)]


def odd(draw: random.Random, near: int) -> int:
    """Return a boundary number, or a neighbour of the original one."""
    number = draw.choice([near, near, draw.choice(ODD), draw.getrandbits(draw.choice([8, 16, 32, 64]))])
    return (number + draw.choice([-64, -8, -1, 0, 0, 1, 8, 64, 4096])) % 2**64


def mutate_plainly(draw: random.Random, image: bytes) -> bytes:
    """Apply flips, zeros, noise, cuts, repetitions and moves, as disks, cables and copies do."""
    found = bytearray(image)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        at, size = draw.randrange(len(found) + 1), draw.choice([1, 2, 4, 8, 64, 512])
        match draw.randrange(9):
            case 0 | 1 | 2:
                found[min(at, len(found) - 1)] ^= 1 << draw.randrange(8)
            case 3:
                found[at : at + size] = bytes(len(found[at : at + size]))
            case 4:
                found[at : at + size] = draw.randbytes(len(found[at : at + size]))
            case 5:
                del found[max(at, 1) :]
            case 6:
                del found[at : at + size][1:]
            case 7:
                found[at:at] = found[at : at + size]
            case _:
                other = draw.randrange(len(found))
                found[at : at + size] = found[other : other + size]
    return bytes(found)


def mutate_record(draw: random.Random, body: bytearray, footer: oracle.Footer) -> None:
    """Write wrong sizes where a record may begin; in an lz4 file, stored bytes that decompress to something else."""
    at = 64 + draw.randrange(max(1, (footer.records_end - 64) // 8)) * 8
    match draw.randrange(4):
        case 0:
            body[at : at + 4] = draw.choice(INSANE_SIZES)
        case 1:
            body[at] = odd(draw, body[at]) & 255
        case 2:
            place = draw.randrange(64, footer.records_end)
            body[place] = odd(draw, body[place]) & 255
        case _:
            body[at : at + 8] = draw.randbytes(8)


def mutate_index(draw: random.Random, body: bytearray, footer: oracle.Footer) -> None:
    bucket = footer.index + 64 * draw.randrange(footer.buckets)
    match draw.randrange(3):
        case 0:
            at = bucket + 16 + 4 * draw.randrange(12)
            near = struct.unpack_from("<I", body, at)[0]
            struct.pack_into("<I", body, at, odd(draw, near) % 2**32)
        case 1:
            body[bucket + 12 + draw.randrange(4)] = draw.choice([0, 255, draw.randrange(256)])
        case _:
            body[bucket + draw.randrange(12)] = draw.randrange(256)


def mutate_words(draw: random.Random, body: bytearray, start: int, end: int) -> None:
    """Change a word or half a word of a table."""
    size, form = draw.choice([(8, "<Q"), (4, "<I")])
    if end - start >= size:
        at = start + size * draw.randrange((end - start) // size)
        near = struct.unpack_from(form, body, at)[0]
        if draw.random() < 0.2:
            near ^= oracle.STORED_AS_IS
        struct.pack_into(form, body, at, odd(draw, near) % 2 ** (8 * size))


def mutate_with_new_checksums(draw: random.Random, base: Base) -> bytes:
    """Change content and footer, and make all checksums match."""
    body, was, footer = bytearray(base.body), base.footer, base.footer
    for _ in range(draw.choice([1, 1, 2, 3])):
        match draw.randrange(6):
            case 0:
                mutate_record(draw, body, was)
            case 1:
                mutate_index(draw, body, was)
            case 2:
                mutate_words(draw, body, was.anchors, was.block_table)
            case 3 if was.blocks:
                mutate_words(draw, body, was.block_table, was.metadata)
            case _:
                name = draw.choice(WORDS)
                most = 256 if name in {"compression", "prefix_bytes"} else 2**64
                changed = odd(draw, getattr(was, draw.choice([name, name, draw.choice(WORDS)])))
                footer = dataclasses.replace(footer, **{name: changed % most})
    return oracle.seal(bytes(body), footer, crc32c)


def met(file: SortedFile, ask: Callable[[SortedFile], object], expected: object, *, exact: bool) -> bool:
    """True if the question met damage; raise `WrongAnswer` if `exact` and the answer has changed."""
    try:
        found = ask(file)
    except Corrupt:
        return True
    if exact and found != expected:
        raise WrongAnswer(f"expected {expected!r:.300}, got {found!r:.300}")
    return False


def attempt(case: int) -> str:
    draw = random.Random(SEED * 2**32 + case)
    base = BASES[case % len(BASES)]
    exact = draw.random() < 0.3
    image = mutate_plainly(draw, base.image) if exact else mutate_with_new_checksums(draw, base)
    kind = "plain" if exact else "resealed"
    found = 0
    file = None
    for ask, expected in draw.sample(base.questions, 5):
        try:
            if file is None or draw.random() < 0.5:
                file = SortedFile(image, name=NAME)
        except (Corrupt, UnsupportedFormat):
            return f"{kind}: refused"
        found += met(file, ask, expected, exact=exact)
    found += met(file, lambda file: file.verify(), None, exact=exact)
    return f"{kind}: met" if found else f"{kind}: answered"


def main(attempt: Callable[[int], str], first: int, count: int, place: str = os.devnull) -> None:
    """Try all cases, keep the current number at `place`, and print the count of each outcome."""
    counts: Counter[str] = Counter()
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT)
    native = None
    for case in range(first, first + count):
        if native is not (wanted := case // 1000 % 10 != 9):
            native = wanted
            compression.install(native=native)
        os.pwrite(descriptor, b"%12d" % case, 0)
        counts[attempt(case)] += 1
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main(attempt, int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
