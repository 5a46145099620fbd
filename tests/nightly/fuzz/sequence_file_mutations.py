"""Mutated SequenceFiles through the reader, in a separate process that may crash; a number fixes each case.

    python -m tests.nightly.fuzz.sequence_file_mutations FIRST COUNT [PLACE]

The program tries cases FIRST to FIRST + COUNT - 1, keeps the number of the current case at PLACE, and prints the count
of each outcome. A file is read or refused, without any other error, and the oracle agrees on the records or the
refusal.

Half of the mutations of compressed files precede the compression, since most others only show that codecs have
checksums.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
import sys
from collections import Counter
from pathlib import Path

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sequence_file import batches
from gossipkv.errors import SourceError
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.readers import MemoryReader
from tests.unit.dataset.formats.sequence_files import CODECS, short

SEED = 20_030_003
READING = FileReading(max_value_bytes=1 << 16, max_block_bytes=1 << 20)
RECORDS = [(b"", b""), (b"key", b"value"), (b"k" * 130, b"v" * 300), (b"caf\xc3\xa9", bytes(20)), (b"z", b"\xff" * 129)]
MARK = struct.pack(">i", -1)
EDGES = [
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    65_540,
    65_541,
    2**16 + 6,
    2**24,
    2**31 - 1,
    -(2**31),
]


class WrongOutcome(Exception):
    """The reader and the oracle disagree."""


def every_kind() -> list[oracle.Kind]:
    """Return all kinds: plain files as often as each compression; classes, versions and pieces in turn."""
    found = []
    for number, codec in enumerate(CODECS * 4):
        for compression in (oracle.NONE, oracle.RECORD, oracle.BLOCK):
            key_class, value_class = ((oracle.TEXT, oracle.BYTES)[number // by % 2] for by in (1, 2))
            metadata = ((b"name", b"value"),) if number % 3 else ()
            version = 6 if metadata else 5
            pieces = 1 + number // 4 % 2
            found.append(
                oracle.Kind(version, key_class, value_class, compression, codec, metadata, pieces, 3, sync_every=2)
            )
    return found


KINDS = every_kind()
FILES = [oracle.write(RECORDS, kind) for kind in KINDS]


def odd(draw: random.Random, near: int) -> int:
    """Return a boundary number, or a neighbour of the original one."""
    number = draw.choice([near, near, draw.choice(EDGES), draw.getrandbits(draw.choice([4, 7, 8, 16, 31]))])
    return max(-(2**31), min(2**31 - 1, number + draw.choice([-8, -1, 0, 1, 1, 8])))


def mutate(draw: random.Random, data: bytes) -> bytes:
    """Apply flips, zeros, noise, cuts, repetitions, moves and wrong numbers, as disks, cables, copies and liars do."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if not found:
            break
        at, size = draw.randrange(len(found)), draw.choice([1, 2, 4, 8, 20, 64])
        match draw.randrange(10):
            case 0 | 1:
                found[at] ^= 1 << draw.randrange(8)
            case 2 | 3:
                held = len(found[at : at + size])
                found[at : at + size] = draw.choice([bytes(held), draw.randbytes(held)])
            case 4:
                del found[at:]
            case 5:
                del found[at : at + size]
            case 6:
                found[at:at] = found[at : at + size]
            case 7:
                other = draw.randrange(len(found))
                found[at : at + size] = found[other : other + size]
            case 8:
                near = int.from_bytes(found[at : at + 4], "big", signed=True)
                found[at : at + 4] = struct.pack(">i", odd(draw, max(-(2**31), min(2**31 - 1, near))))
            case _:
                found[at : at + 1] = wide_vint(draw, odd(draw, found[at]))
    return bytes(found)


def wide_vint(draw: random.Random, number: int) -> bytes:
    """Encode a number of WritableUtils, sometimes in more bytes than needed."""
    if draw.random() < 0.7:
        return oracle.vint(number)
    size = draw.randrange(4, 9)
    first = (-120 if number < 0 else -112) - size
    return bytes([first & 255]) + (~number if number < 0 else number).to_bytes(size, "big")


def mutate_numbers(draw: random.Random, kind: oracle.Kind, data: bytes) -> bytes:
    """Change the lengths of one record or of one block."""
    mark = MARK + kind.sync
    if kind.compression == oracle.BLOCK:
        at = draw.choice([found.end() for found in re.finditer(re.escape(mark), data)])
        count, end = oracle.read_vint(data, at)
        if draw.random() < 0.5:
            return data[:at] + wide_vint(draw, odd(draw, count)) + data[end:]
        for _ in range(draw.randrange(4)):
            size, end = oracle.read_vint(data, end)
            end += size
        size, behind = oracle.read_vint(data, end)
        return data[:end] + wide_vint(draw, odd(draw, size)) + data[behind:]
    places = []
    at = oracle.read_header(data).end
    while at < len(data):
        if data.startswith(mark, at):
            at += len(mark)
            continue
        size, key_size = struct.unpack_from(">ii", data, at)
        places += [at, at + 4, at + 8, at + 8 + key_size]
        at += 8 + size
    at = draw.choice([place for place in places if place + 4 <= len(data)])
    number = odd(draw, struct.unpack_from(">i", data, at)[0])
    return data[:at] + struct.pack(">i", number) + data[at + 4 :]


def mutate_inside(draw: random.Random, kind: oracle.Kind) -> bytes:
    key_field, value_field = oracle.WRITE_FIELD[kind.key_class], oracle.WRITE_FIELD[kind.value_class]
    fields = [(key_field(key), value_field(value)) for key, value in RECORDS]
    mark = MARK + kind.sync
    if kind.compression == oracle.BLOCK:
        keys, values = zip(*fields, strict=True)
        buffers = [b"".join(map(oracle.vint, map(len, keys))), b"".join(keys)]
        buffers += [b"".join(map(oracle.vint, map(len, values))), b"".join(values)]
        for _ in range(draw.choice([1, 1, 2])):
            which = draw.choice([0, 2, draw.randrange(4)])
            buffers[which] = mutate(draw, buffers[which])
        count = len(fields) if draw.random() < 0.8 else odd(draw, len(fields))
        stored = [oracle.COMPRESS[kind.codec](buffer, kind.pieces) for buffer in buffers]
        content = mark + oracle.vint(count) + b"".join(oracle.vint(len(part)) + part for part in stored)
        return oracle.write_header(kind) + content
    parts = [oracle.write_header(kind)]
    for key, value in fields:
        changed = mutate(draw, value) if draw.random() < 0.3 else value
        stored_value = oracle.COMPRESS[kind.codec](changed, kind.pieces)
        if draw.random() < 0.2:
            stored_value = mutate(draw, stored_value)
        parts += [struct.pack(">ii", len(key) + len(stored_value), len(key)), key, stored_value]
    return b"".join(parts)


def splice(draw: random.Random, first: bytes, second: bytes) -> bytes:
    """Join the head of one file and the tail of another."""
    return first[: draw.randrange(len(first) + 1)] + second[draw.randrange(len(second) + 1) :]


def case_of(number: int) -> tuple[str, bytes]:
    """Return the name of the case's kind, and its file."""
    draw = random.Random(SEED * 2**32 + number)
    index = number % len(KINDS)
    kind, data = KINDS[index], FILES[index]
    name = kind.compression if kind.compression == oracle.NONE else f"{kind.compression} {short(kind.codec)}"
    inside = kind.compression != oracle.NONE and draw.random() < 0.5
    if inside:
        return f"{name} inside", mutate_inside(draw, kind)
    match draw.randrange(8):
        case 0:
            return name, splice(draw, data, draw.choice(FILES))
        case 1 | 2 | 3:
            return name, mutate_numbers(draw, kind, data)
        case _:
            return name, mutate(draw, data)


# zlib refuses reserved flags and unused codes, which ISA-L accepts; the checksum holds for both.
FORGIVEN = ("unknown header flags set", "invalid distances set")


def attempt(number: int) -> str:
    name, data = case_of(number)
    try:
        expected = list(oracle.read(data, max_value_bytes=READING.max_value_bytes))
    except oracle.Malformed as error:
        expected, why = None, str(error)
    try:
        found = [record for batch in batches(MemoryReader(data), READING) for record in batch]
    except SourceError as error:
        offset = error.details["offset"]
        if type(error) is not SourceError or not isinstance(offset, int) or not 0 <= offset <= len(data):
            raise
        if expected is not None:
            raise WrongOutcome(f"{error}, and the oracle reads {expected!r:.200}") from error
        return f"{name}: refused"
    if expected is None and any(reason in why for reason in FORGIVEN):
        return f"{name}: read"
    if expected is None:
        raise WrongOutcome(f"the oracle says {why}, and the reader finds {found!r:.200}")
    if found != expected:
        raise WrongOutcome(f"expected {expected!r:.300}, found {found!r:.300}")
    return f"{name}: read"


def peak_bytes() -> int:
    (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) * 1024


def main(first: int, count: int, place: str = os.devnull) -> None:
    counts: Counter[str] = Counter()
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT)
    before = peak_bytes()
    for number in range(first, first + count):
        os.pwrite(descriptor, b"%12d" % number, 0)
        counts[attempt(number)] += 1
    sys.stdout.write(json.dumps({"counts": counts, "peak_bytes": peak_bytes() - before}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
