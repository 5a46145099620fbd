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
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from gossipkv.storage.engine.options import Options
from tests.bench import goals, machine
from tests.bench.measurement import Measurement
from tests.bench.store import ours
from tests.bench.store.overwriting import BATCH, KEY_BYTES, VALUE_BYTES, Values, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
CHECKED: Final = 10_000
WRITE, OPEN = "write", "open"


@dataclass(frozen=True)
class Load:
    """How much was written in all, how much of it is in no run, and how often it is opened."""

    log_bytes: int = 1024 * MIB
    unmerged_bytes: int = 120 * MIB  # Of payload: two memtables, which refuse what is more.
    segment_bytes: int = 64 * MIB
    rounds: int = 5

    @property
    def merged_puts(self) -> int:
        """Records that are in runs."""
        return (self.log_bytes - self.unmerged_bytes) // (KEY_BYTES + VALUE_BYTES)

    @property
    def puts(self) -> int:
        """All records."""
        return self.log_bytes // (KEY_BYTES + VALUE_BYTES)


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Write, be killed, and open."""
    numbers = [str(each) for each in (load.merged_puts, load.puts, load.segment_bytes)]
    command = [sys.executable, "-m", __name__]
    _killed([*command, WRITE, str(directory), *numbers])
    took = []
    for _ in range(load.rounds):
        machine.say("    opening")
        took.append(json.loads(_killed([*command, OPEN, str(directory), *numbers])))
    yield Measurement(goals.STORE_OPENING, "s", ours.NAME, {ours.NAME: [each["seconds"] for each in took]})
    notes.append(
        f"Opening: {load.puts:,} records in the log, the last {load.puts - load.merged_puts:,} in no run; "
        f"from the call to the first answer; afterwards {CHECKED:,} values compared"
    )


def _killed(command: list[str]) -> bytes:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def _write(store: ours.Blocking, merged_puts: int, puts: int) -> None:
    values = Values()
    for first in range(0, puts, BATCH):
        last = min(puts, first + BATCH)
        store.write_batch([(key_of(number), values.of(number)) for number in range(first, last)])
        if first < merged_puts:
            store.maintain()


def _open(directory: Path, options: Options, puts: int) -> None:
    values = Values()
    begin = perf_counter()
    store = ours.Blocking(directory, options)
    newest = store.get(key_of(puts - 1))
    seconds = perf_counter() - begin
    for number in [puts - 1, *range(0, puts, max(1, puts // CHECKED))]:
        if store.get(key_of(number)) != values.of(number):
            raise RuntimeError(f"a wrong value of {key_of(number)!r}")
    assert newest == values.of(puts - 1)
    print(json.dumps({"seconds": seconds}), flush=True)


def main() -> None:
    """One process, until it kills itself."""
    what, directory, *numbers = sys.argv[1:]
    merged_puts, puts, segment_bytes = map(int, numbers)
    options = Options(segment_bytes=segment_bytes)
    place = Path(directory) / "store"
    if what == WRITE:
        _write(ours.Blocking(place, options), merged_puts, puts)
    else:
        _open(place, options, puts)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
