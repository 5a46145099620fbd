"""Processes that write to a store are killed repeatedly: every batch acknowledged to the test is in the store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import DirectoryInUse
from tests.nightly.crashes.writing_store import OPTIONS, SPACE, WRITERS, keys_of, newest_of, value_of
from tests.preload import preload
from tests.world.blocking_store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60
ROOT = Path(__file__).parents[3]
CLOCK = ROOT / "tests" / "ci" / "cluster" / "jumping_clock.c"
KILLS = 375  # Per sort of writers.


def write_and_die(command: list[str], newest: list[int], least: int, environ: dict[str, str]) -> list[int]:
    """Run a writing process and kill it some time after `least` acknowledgements; return each writer's last number."""
    first = [str(number + 1) for number in newest]
    program = [sys.executable, "-m", "tests.nightly.crashes.writing_store", *command, *first]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | environ) as process:
        said = b""
        while said.count(b"\n") < least:
            more = os.read(process.stdout.fileno(), 1 << 16)
            assert more, "it ended by itself"
            said += more
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()  # The output before the kill counts.
    acknowledged = list(newest)
    for line in said.split(b"\n")[:-1]:
        writer, number = map(int, line.split())
        assert number == acknowledged[writer] + 1
        acknowledged[writer] = number
    return acknowledged


def opened(directory: Path) -> Store:
    """Open the store, with retries while a forked child of the killed process still holds the lock."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Store.open(directory, options=OPTIONS)
        except DirectoryInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def look(directory: Path, acknowledged: list[int]) -> list[int]:
    """Open the store, check that all records come from the newest batches, and return each writer's newest number."""
    with opened(directory) as store:
        newest = [int(store.get(SPACE, newest_of(writer)) or b"-1") for writer in range(WRITERS)]
        expected = {}
        for writer, number in enumerate(newest):
            assert number >= acknowledged[writer], "a batch that was acknowledged is not there"
            for one in range(number + 1):
                expected.update(dict.fromkeys(keys_of(writer, one), value_of(one)))
                expected[newest_of(writer)] = b"%d" % one
        found, cursor = {}, None
        while True:
            page, cursor = store.scan(SPACE, cursor)
            found.update(page)
            if cursor is None:
                break
        assert found == expected
        return newest


def kill_writers(how: str, tmp_path: Path, kills: int) -> str:
    """Kill writers repeatedly, half of them with a jumping clock; every acknowledged batch must exist, in order.

    Returns a summary.
    """
    library = preload(CLOCK, tmp_path)
    chance, newest, untold = random.Random(1), [-1] * WRITERS, 0
    for turn in range(kills):
        least = chance.choice((1, 10, 50, 200))
        environ = {"LD_PRELOAD": str(library)} if turn % 2 else {}
        acknowledged = write_and_die([how, str(tmp_path / "store"), str(turn)], newest, least, environ)
        newest = look(tmp_path / "store", acknowledged)
        untold += sum(newest) - sum(acknowledged)
    return f"{sum(newest)} batches in {kills} lives; {untold} found that nobody was told of"


@pytest.mark.parametrize("how", ["alone", "together"])
def test_writers_that_are_killed(how: str, tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Writers in one thread, and concurrent writers with merging child processes, both lose no acknowledged batch."""
    record_property("measured", kill_writers(how, tmp_path, KILLS))
