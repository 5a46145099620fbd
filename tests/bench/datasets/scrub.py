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
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING

from gossipkv.dataset.scrub.scrub import MOST_SLICES
from gossipkv.storage.sorted_file import SortedFile
from tests.bench import data, goals, machine
from tests.bench.asking import Client, Reader, node_get, percentile
from tests.bench.measurement import OURS
from tests.bench.processes import call, serve, serving, wait_for, wait_for_records
from tests.bench.sources import write_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gossipkv.address import Address
    from tests.bench.data import Record
    from tests.bench.measurement import Bench

SERVED = "served"
WEEK_S = 7 * 86_400
QUESTIONS = 50_000
FORGOTTEN_PERIOD_S = 86.4
SCAN_RECORDS = 1000


def measure(
    bench: Bench,
    *,
    total_bytes: int = 2_000_000_000,
    run_s: float = 5.0,
    rounds: int = 9,
    records: int = 200_000,
    short_rounds: int = 51,
) -> None:
    """Beside a scrub, then with what it makes reads check, of so many records read in a round."""
    source, built, other = (bench.directory / name for name in ("source", "data", "other"))
    count = total_bytes // (data.KEY_BYTES + data.LARGE_VALUE_BYTES)
    write_database(source, SERVED, data.numbered(count, data.LARGE_VALUE_BYTES))
    asked = list(islice(data.numbered(count, data.LARGE_VALUE_BYTES), QUESTIONS))
    with serving(serve(built, source=source)) as builder:
        wait_for_records(builder.address, [(SERVED, asked[0])])
    shutil.copytree(built, other)
    for manifest in built.rglob("_MANIFEST"):
        os.utime(manifest, (time.time() - WEEK_S,) * 2)
    with ExitStack() as stack:
        scrubbed = stack.enter_context(serving(serve(built, source=source)))
        plain = stack.enter_context(serving(serve(other, "--scrub-period", "off", source=source)))
        stack.enter_context(machine.uncollected())
        wait_for(lambda: _is_running(scrubbed.address), "the scrub")
        sides = {}
        for name, node in ((OURS, scrubbed), (goals.WITHOUT, plain)):
            reader = _reader(stack.enter_context(closing(Client(node.address))), asked)
            sides[name] = lambda reader=reader: percentile(reader.read_for(run_s), 0.99)
        bench.compare(goals.SCRUB_P99, sides, rounds)
        ran = "all the while" if _is_running(scrubbed.address) else "which ended before the measurement did"
    size_bytes = sum(path.stat().st_size for path in built.rglob("*.gkv"))
    bench.notes.append(f"{goals.SCRUB_P99}: {size_bytes:,} bytes of built files, read back at 4 MiB/s, {ran}")
    _check_again(bench, next(built.rglob("*.gkv")), dict(asked), records, short_rounds)


def _reader(client: Client, asked: list[Record]) -> Reader:
    return Reader(client, [(node_get(SERVED, key), value) for key, value in asked])


def _is_running(address: Address) -> bool:
    (entry,) = call(address, "status").values()
    return all(version["scrub"]["running"] for version in entry["versions"].values())


def _check_again(bench: Bench, path: Path, values: dict[bytes, bytes], records: int, rounds: int) -> None:
    with SortedFile(path) as file:
        held = [key for key in values if key in file]
        chance = random.Random(data.SEED)
        asked = [chance.choices(held, k=SCAN_RECORDS) for _ in range(records // SCAN_RECORDS)]

        def gets(keys: list[bytes]) -> None:
            for key in keys:
                file.get(key)

        def scan(keys: list[bytes]) -> None:
            for _ in file.scan(start=keys[0], limit=SCAN_RECORDS):
                pass

        assert all(file.get(key) == values[key] for key in held)
        for row, work in ((goals.SCRUB_GET, gets), (goals.SCRUB_SCAN, scan)):
            file.verify()
            ways = {OURS: _Slices(file.forget_checks), goals.WITHOUT: _Slices(lambda *_: None)}
            sides = {name: partial(_record_us, work, asked, slices.forget_due) for name, slices in ways.items()}
            bench.compare(row, sides, rounds)


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


def _record_us(work: Callable[[list[bytes]], None], asked: list[list[bytes]], between: Callable[[], None]) -> float:
    begin = thread_time()
    for keys in asked:
        between()
        work(keys)
    return (thread_time() - begin) / len(asked) / SCAN_RECORDS * 1e6
