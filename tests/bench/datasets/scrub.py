"""The rows about the scrub: what reads notice of a version that is read back, and of checks that are forgotten.

Two nodes serve the same files, one with a scrub and one without; they are asked in turn.  The version of the one was
built a week ago by the clock of its manifest, so it is read back all the while, as fast as one is in production.  What
checking again costs is counted where the time goes, in the reader: gets and scans of a file of which slices are
forgotten a thousand times as often as by default; in processor time, which others on the machine do not change.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING

import msgpack

from gossipkv.dataset.scrub.scrub import MOST_SLICES
from gossipkv.storage.sorted_file import SortedFile
from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.serving import Client, Reader, node, node_get, node_value, percentile, wait_for
from tests.bench.sources import bulk, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SERVED = "served"
WEEK_S = 7 * 86_400
QUESTIONS = 50_000
FORGOTTEN_PERIOD_S = 86.4
SCAN_RECORDS = 1000


@dataclass(frozen=True)
class Load:
    """How much is served, for how long it is read."""

    total_bytes: int = 2_000_000_000
    run_s: float = 5.0
    rounds: int = 9
    records: int = 200_000  # read in a round, in each way
    short_rounds: int = 51  # of those


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Beside a scrub, then with what it makes reads check."""
    source, built, other = directory / "source", directory / "data", directory / "other"
    source.mkdir()
    write_database(source, SERVED, bulk(load.total_bytes, data.LARGE_VALUE_BYTES, SERVED))
    records = list(islice(bulk(load.total_bytes, data.LARGE_VALUE_BYTES, SERVED), QUESTIONS))
    machine.say("    building")
    with node(source, built) as address:
        client = Client(*address)
        wait_for(lambda: client.exchange(node_get(SERVED, records[0][0]), node_value) is not None, SERVED)
        client.close()
    shutil.copytree(built, other)
    for manifest in built.rglob("_MANIFEST"):
        os.utime(manifest, (time.time() - WEEK_S,) * 2)
    size_bytes = sum(path.stat().st_size for path in built.rglob("*.gkv"))
    with ExitStack() as stack:
        scrubbed = stack.enter_context(node(source, built))
        plain = stack.enter_context(node(source, other, "--scrub-period", "off"))
        clients = [Client(*address) for address in (scrubbed, plain)]
        for client in clients:
            stack.callback(client.close)
        questions = [(node_get(SERVED, key), value) for key, value in records]
        readers = [Reader(client, questions, node_value, random.Random(data.SEED)) for client in clients]
        stack.enter_context(machine.uncollected())
        yield _beside(readers, load, notes, size_bytes)
    yield from _checked_again(next(built.rglob("*.gkv")), [key for key, _ in records], load)


def _is_running(client: Client) -> bool:
    (entry,) = client.exchange(msgpack.packb([0, 1, "status", []]), msgpack.unpackb)[3].values()
    return all(version["scrub"]["running"] for version in entry["versions"].values())


def _beside(readers: list[Reader], load: Load, notes: list[str], size_bytes: int) -> Measurement:
    scrubbed = readers[0].client
    wait_for(lambda: _is_running(scrubbed), "the scrub")
    rounds: dict[str, list[float]] = {"GossipKV": [], goals.WITHOUT: []}
    gets = 0
    for number in range(load.rounds + 1):
        for name, reader in zip(rounds, readers, strict=True):
            samples = reader.read_for(load.run_s)
            gets += len(samples)
            if number:  # In the first, everything is touched for the first time.
                rounds[name].append(percentile(samples, 0.99))
    ran = "all the while" if _is_running(scrubbed) else "which ended before the measurement did"
    notes.append(f"{goals.SCRUB_P99}: {size_bytes:,} bytes of built files, {gets:,} gets; read back at 4 MiB/s, {ran}")
    return Measurement(goals.SCRUB_P99, "us", "GossipKV", rounds)


def _checked_again(path: Path, keys: list[bytes], load: Load) -> Iterator[Measurement]:
    with SortedFile(path) as file:
        held = [key for key in keys if key in file]
        chance = random.Random(data.SEED)
        asked = [chance.choices(held, k=SCAN_RECORDS) for _ in range(load.records // SCAN_RECORDS)]

        def gets(keys: list[bytes]) -> None:
            for key in keys:
                file.get(key)

        def scan(keys: list[bytes]) -> None:
            for _ in file.scan(start=keys[0], limit=SCAN_RECORDS):
                pass

        for row, work in ((goals.SCRUB_GET, gets), (goals.SCRUB_SCAN, scan)):
            file.verify()
            samples: dict[str, list[float]] = {"GossipKV": [], goals.WITHOUT: []}
            ways = {"GossipKV": _Slices(file.forget_checks), goals.WITHOUT: _Slices(lambda *_: None)}
            for number in range(load.short_rounds + 1):
                for name in list(ways)[:: (-1) ** number]:  # Neither always first.
                    took_us = _time(work, asked, ways[name].forget_due)
                    if number:
                        samples[name].append(took_us)
            yield Measurement(row, "us", "GossipKV", samples)


class _Slices:
    """Forgets slices as time goes by, or only looks at the time."""

    def __init__(self, forget: Callable[[int, int], None]) -> None:
        self._forget = forget
        self._begin = thread_time()
        self._done = 0

    def forget_due(self) -> None:
        """All slices whose time has come."""
        while thread_time() - self._begin >= self._done * FORGOTTEN_PERIOD_S / MOST_SLICES:
            self._forget(self._done % MOST_SLICES, MOST_SLICES)
            self._done += 1


def _time(work: Callable[[list[bytes]], None], asked: list[list[bytes]], between: Callable[[], None]) -> float:
    """Microseconds of one record."""
    begin = thread_time()
    for keys in asked:
        between()
        work(keys)
    return (thread_time() - begin) / len(asked) / SCAN_RECORDS * 1e6
