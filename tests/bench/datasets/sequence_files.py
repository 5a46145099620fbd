"""The rows about SequenceFiles: read, sorted, written and synced by us, against only read by the oracle's reader.

The oracle's reader (`tests/oracle/sequence_file.py`) is plain Python whose codecs are C's, which is what most people
have who read such files without Java.  Both sides are charged processor time, ours with all processes that a build
starts, from the start of the interpreter to its end; the oracle's reading starts in a warm process.
"""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import random
from collections import deque
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.building import remove
from tests.bench.datasets import build_process, records
from tests.bench.measurement import Measurement
from tests.oracle import sequence_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record

FILES = 4
MICROSECONDS = 1e6
PROFILE_LINES = 8
PROFILED_RECORDS = 200_000
ORACLE = goals.ORACLE

# A consonant and a vowel, spelled as in the CMU Pronouncing Dictionary.
CONSONANTS = b"B D F G K L M N P R S T V W Y Z".split()
VOWELS = {b"a": b"AE1", b"e": b"EH0", b"i": b"IH2", b"o": b"OW1", b"u": b"UW0"}
SYLLABLES = [(c.lower() + letter, c + b" " + sound) for c in CONSONANTS for letter, sound in VOWELS.items()]
SYLLABLES_IN_WORD = 4


@dataclass(frozen=True)
class Load:
    """How many records, how often."""

    short: int = 2_000_000  # of 31 bytes
    long: int = 1_000_000  # of 116 bytes
    rounds: int = 5


def words(count: int) -> list[Record]:
    """Words and how they sound, 8 and 23 bytes, in random order."""
    base = len(SYLLABLES)
    found = []
    for number in random.Random(data.SEED).sample(range(base**SYLLABLES_IN_WORD), count):
        rest, spoken = number, []
        for _ in range(SYLLABLES_IN_WORD):
            rest, which = divmod(rest, base)
            spoken.append(SYLLABLES[which])
        found.append((b"".join(letters for letters, _ in spoken), b" ".join(sound for _, sound in spoken)))
    return found


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """A row for short records and one for long ones."""
    yield _measure(goals.SEQUENCE_SHORT, directory / "short", words(load.short), load.rounds, notes)
    yield _measure(
        goals.SEQUENCE_LONG,
        directory / "long",
        data.make(load.long, data.SMALL_VALUE_BYTES).records,
        load.rounds,
        notes,
    )


def _measure(row: str, directory: Path, truth: list[Record], rounds: int, notes: list[str]) -> Measurement:
    paths = records.write_sequence_files(directory / "source" / "words" / "1", truth, FILES)
    if {record for path in paths for record in sequence_file.read(path.read_bytes())} != set(truth):
        raise RuntimeError("the oracle does not read what it wrote")
    samples: dict[str, list[float]] = {"GossipKV": [], ORACLE: []}
    rng = random.Random(f"{data.SEED} {row}")
    for number in range(rounds + 1):
        for name in rng.sample(sorted(samples), 2):
            cpu_s = _build(directory, truth if number == 0 else None) if name == "GossipKV" else _read(paths)
            if number > 0:
                samples[name].append(cpu_s * MICROSECONDS / len(truth))
    size_bytes = sum(path.stat().st_size for path in paths)
    machine.say(f"    {len(truth):,} records in {size_bytes:,} bytes")
    notes.append(
        f"{ORACLE.capitalize()}, {row}: {len(truth):,} records in {FILES} files, {size_bytes:,} bytes in blocks of "
        f"{records.BLOCK_BYTES:,} raw ones, zlib; its profile over {min(len(truth), PROFILED_RECORDS):,} records, "
        f"under which it is slower:\n\n{_profile(paths[0])}\n"
    )
    remove(directory)
    return Measurement(row, "us", "GossipKV", samples)


def _build(directory: Path, truth: list[Record] | None) -> float:
    target = directory / "built"
    cost = build_process.run(build_process.job_of(directory / "source", "words", target))
    if truth is not None:
        records.check_all(target, truth)
    remove(target)
    return cost.cpu_s


def _read(paths: list[Path]) -> float:
    os.sync()
    begin = process_time()
    for path in paths:
        deque(sequence_file.read(path.read_bytes()), maxlen=0)
    return process_time() - begin


def _profile(path: Path) -> str:
    """The lines of cProfile that take the most time by themselves."""
    profile = cProfile.Profile()
    content = path.read_bytes()
    with profile:
        for _ in zip(range(PROFILED_RECORDS), sequence_file.read(content), strict=False):
            pass
    told = io.StringIO()
    pstats.Stats(profile, stream=told).strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)
    lines = [line.strip() for line in told.getvalue().splitlines() if line.strip()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("ncalls"))
    return "\n".join(f"      {line}" for line in lines[begin:])
