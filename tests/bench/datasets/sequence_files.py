"""The rows about SequenceFiles: read, sorted, written and synced, against the minimum work of any program.

The yardstick is physical: ISA-L inflates the blocks of the same files, and their bytes are copied once. A build needs
the first, and has to keep every record until it has seen the last one. The copy goes into memory that the process has
not touched before, as that of a build. The yardstick runs in a warm process and writes nothing. The build is charged
the processor time of all its processes, from the start of the interpreter.
"""

from __future__ import annotations

import compileall
import mmap
import random
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

from isal import isal_zlib

import gossipkv
from tests.bench import data, goals, sources
from tests.bench.building import remove
from tests.bench.datasets import build_process
from tests.bench.measurement import OURS, WrongAnswerError
from tests.oracle import sequence_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

MICROSECONDS = 1e6

# A consonant and a vowel, spelled as in the CMU Pronouncing Dictionary.
CONSONANTS = b"B D F G K L M N P R S T V W Y Z".split()
VOWELS = {b"a": b"AE1", b"e": b"EH0", b"i": b"IH2", b"o": b"OW1", b"u": b"UW0"}
SYLLABLES = [(c.lower() + letter, c + b" " + sound) for c in CONSONANTS for letter, sound in VOWELS.items()]
SYLLABLES_IN_WORD = 4


def words(count: int) -> list[Record]:
    """Return words and their pronunciations, 8 and 23 bytes, in random order."""
    base = len(SYLLABLES)
    found = []
    for number in random.Random(data.SEED).sample(range(base**SYLLABLES_IN_WORD), count):
        rest, spoken = number, []
        for _ in range(SYLLABLES_IN_WORD):
            rest, which = divmod(rest, base)
            spoken.append(SYLLABLES[which])
        found.append((b"".join(letters for letters, _ in spoken), b" ".join(sound for _, sound in spoken)))
    return found


def measure(bench: Bench, *, short: int = 2_000_000, long: int = 1_000_000, rounds: int = 5) -> None:
    """Measure rows for short records (of 31 bytes) and long ones (of 116), in random order and in key order."""
    compileall.compile_dir(gossipkv.__path__[0], quiet=1)  # pip compiles the package too, so no build should have to.
    spoken, objects = words(short), data.make(long).records
    for row, truth in zip(goals.SEQUENCES, (spoken, objects, sorted(spoken), sorted(objects)), strict=True):
        _measure(bench, row, truth, rounds)


def _measure(bench: Bench, row: Row, truth: list[Record], rounds: int) -> None:
    place = bench.directory / row
    paths = sources.write_sequence_files(place / "source" / "words" / "1", truth, sources.FILES)
    packed = [each for path in paths for each in _compressed(path.read_bytes())]
    sizes = [len(isal_zlib.decompress(each)) for each in packed]
    bench.notes.append(
        f"{row}: {len(truth):,} records in {len(paths)} files, {sum(map(len, packed)):,} bytes in "
        f"{len(packed):,} zlib streams, {sum(sizes):,} inflated"
    )
    if {each for path in paths for each in sequence_file.read(path.read_bytes())} != set(truth):
        raise WrongAnswerError("the oracle does not read what it wrote")
    _build_s(place, truth)  # The built files are checked once.
    ways = {
        OURS: partial(_build_s, place),
        goals.INFLATE_AND_COPY: partial(_inflate_s, packed, sizes),
    }
    each = {name: lambda way=way: way() * MICROSECONDS / len(truth) for name, way in ways.items()}
    bench.compare(row, each, rounds)
    remove(place)


def _build_s(place: Path, truth: list[Record] | None = None) -> float:
    target = place / "built"
    cost = build_process.run(build_process.job_of(place / "source", "words", target))
    if truth is not None:
        sources.check_all(target, truth)
    remove(target)
    return cost.cpu_s


def _inflate_s(packed: list[bytes], sizes: list[int]) -> float:
    begin = process_time()
    room = memoryview(mmap.mmap(-1, sum(sizes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    at = 0
    for each, size in zip(packed, sizes, strict=True):
        room[at : at + size] = isal_zlib.decompress(each, bufsize=size)
        at += size
    return process_time() - begin


def _compressed(content: bytes) -> Iterator[bytes]:
    cursor = sequence_file.Cursor(content, sequence_file.read_header(content).end)
    while cursor.at < len(content):
        cursor.integer()
        cursor.take(sequence_file.SYNC_BYTES)
        cursor.vint()
        for _ in range(4):
            yield cursor.take(cursor.vint())
