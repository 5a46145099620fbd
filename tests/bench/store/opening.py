"""The row about opening a store after a kill: what is in no run is read from its log, and the cut segment written anew.

One process writes until the log has its size and the youngest part of it is in no run, and is killed by SIGKILL.
Others open what is left, one after the other, each timed from the call to the first right answer; they are killed too,
before they merge anything, so that the next one finds as much.  The files are in the page cache, as they are when a
process was killed and its machine was not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from gossipkv.storage.engine.options import Options
from tests.bench import goals
from tests.bench.data import RECORD_BYTES, Noise, key_of
from tests.bench.measurement import WrongAnswerError
from tests.bench.store import ours

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

MIB = 1 << 20
BATCH: Final = 1_000
CHECKED: Final = 10_000
WRITE, OPEN = "write", "open"


def measure(
    bench: Bench,
    *,
    log_bytes: int = 1024 * MIB,
    unmerged_bytes: int = 120 * MIB,
    segment_bytes: int = 64 * MIB,
    rounds: int = 5,
) -> None:
    """Write, be killed, and open; in no run are two memtables of payload, which refuse what is more."""
    merged_puts, puts = (log_bytes - unmerged_bytes) // RECORD_BYTES, log_bytes // RECORD_BYTES
    numbers = [str(each) for each in (merged_puts, puts, segment_bytes)]
    command = [sys.executable, "-m", __name__, str(bench.directory / "store"), *numbers]
    _killed([*command, WRITE])
    for _ in range(rounds):
        bench.add(goals.STORE_OPENING, json.loads(_killed([*command, OPEN])))
    bench.notes.append(
        f"Opening: {puts:,} records in the log, the last {puts - merged_puts:,} in no run; "
        f"from the call to the first answer; afterwards {CHECKED:,} values compared"
    )


def _killed(command: list[str]) -> bytes:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def _write(store: ours.Blocking, merged_puts: int, puts: int) -> None:
    values = Noise()
    for first in range(0, puts, BATCH):
        last = min(puts, first + BATCH)
        store.write_batch([(key_of(number), values.of(number)) for number in range(first, last)])
        if first < merged_puts:
            store.maintain()


def _open(place: Path, options: Options, puts: int) -> None:
    values = Noise()
    begin = perf_counter()
    store = ours.Blocking(place, options)
    newest = store.get(key_of(puts - 1))
    seconds = perf_counter() - begin
    assert newest == values.of(puts - 1)
    for number in range(0, puts, max(1, puts // CHECKED)):
        if store.get(key_of(number)) != values.of(number):
            raise WrongAnswerError(f"a wrong value of {key_of(number)!r}")
    print(json.dumps(seconds), flush=True)


def main() -> None:
    """One process, until it kills itself."""
    place, *numbers, what = sys.argv[1:]
    merged_puts, puts, segment_bytes = map(int, numbers)
    options = Options(segment_bytes=segment_bytes)
    if what == WRITE:
        _write(ours.Blocking(Path(place), options), merged_puts, puts)
    else:
        _open(Path(place), options, puts)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
