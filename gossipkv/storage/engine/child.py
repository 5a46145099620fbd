"""The merging program, in a process of its own: `python -m gossipkv.storage.engine.child`.

Sorting and writing beside the serving loop would delay reads. It does not import Trio, so it starts quickly.

    standard input   one line: the `MergeOrder` and the leash; then lines with a new write rate, in bytes a second
    standard output  lines of JSON: {"progress": bytes so far}, then {"done": [replaced, files, end]} of its
                     `MergeOutput`, {"damaged": [file, offset, reason, expected, got]} or {"error": reason}
    the leash        as of a build
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Final, NamedTuple, final

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, LocalError
from gossipkv.processes import leash
from gossipkv.processes.pace import RateLimit
from gossipkv.processes.program import ProgramLines, read_order, say_json
from gossipkv.storage import sigbus
from gossipkv.storage.engine.manifest import RunFile, SortedRun, run_json, run_of
from gossipkv.storage.engine.merge import MergeOutput, merge
from gossipkv.storage.typed import typed

MODULE: Final = "gossipkv.storage.engine.child"
STDIN: Final = 0
PART_BYTES: Final = 65_536
LONGEST_SLEEP_S: Final = 60.0  # The system limits the timeout of `select`; longer waits sleep again.


class MergeProgress(NamedTuple):
    """The progress of the merge."""

    worked_bytes: int  # Read and written.


class MergeRefused(NamedTuple):
    """The child gave up: the system refused, or a limit was exceeded."""

    reason: str


def understand(line: bytes) -> MergeProgress | MergeOutput | Corrupt | MergeRefused:
    """Decode a line of the child.

    Raises:
        ValueError: the line is invalid.
    """
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("a message of a merge process is nested too deeply") from error
    match message:
        case {"progress": int(worked)}:
            return MergeProgress(worked)
        case {"done": [list(replaced), files, str() | None as end]}:
            made = run_of(typed(tuple[RunFile, ...], files)).files
            return MergeOutput(tuple(map(str, replaced)), made, None if end is None else bytes.fromhex(end))
        case {"damaged": [str(file), int(offset), str(reason), expected, got]}:
            return Corrupt(file, offset, reason, expected=expected, got=got)
        case {"error": str(reason)}:
            return MergeRefused(reason)
    raise ValueError(f"{line!r} is not a message of a merge process")


def main() -> int:
    """Merge as ordered on standard input; returns 0 if it was done."""
    heard = ChildInput()
    line = heard.first_line()
    if line is None:
        return 1
    order, worn = read_order(line, tuple)
    leash.wear(worn)
    sigbus.install()
    heard.pace = RateLimit(order.bytes_per_second)
    try:
        output = merge(RealFiles(), order, lambda worked: say_json({"progress": worked}), wait=heard.wait)
    except Corrupt as damage:
        expected, got = damage.details.get("expected"), damage.details.get("got")
        say_json({"damaged": [damage.file, damage.offset, damage.reason, expected, got]})
        return 1
    except OSError as error:
        say_json({"error": f"{error.filename or order.directory}: {error.strerror}"})
        return 1
    except LocalError as error:
        say_json({"error": error.message})
        return 1
    end = None if output.end is None else output.end.hex()
    say_json({"done": [output.replaced, run_json(SortedRun(output.files)), end]})
    return 0


@final
class ChildInput:
    """The lines of standard input: the order, then write rates, each effective when it arrives."""

    def __init__(self, descriptor: int = STDIN) -> None:
        self.pace = RateLimit(0)
        self._descriptor = descriptor
        self._lines = ProgramLines()
        self._waiting: list[bytes] = []
        self._has_ended = False

    def first_line(self) -> bytes | None:
        """Return the first line, or None if there is none."""
        while not self._waiting:
            if not self._read():
                return None
        return self._waiting.pop(0)

    def wait(self, size_bytes: int) -> None:
        """Return when as many bytes may be written again, or when another rate has arrived."""
        self._hear(0)
        end = time.monotonic() + self.pace.take(size_bytes, time.monotonic())
        while (left := end - time.monotonic()) > 0:
            if self._hear(min(left, LONGEST_SLEEP_S)):
                return

    def _hear(self, timeout_s: float) -> bool:
        """Return True if another rate has arrived, or arrives within the timeout."""
        if self._has_ended:
            time.sleep(timeout_s)
        elif not self._waiting and select.select([self._descriptor], [], [], timeout_s)[0]:
            self._read()
        if not self._waiting:
            return False
        self.pace = RateLimit(int(self._waiting[-1]))
        self._waiting.clear()
        return True

    def _read(self) -> bool:
        part = os.read(self._descriptor, PART_BYTES)
        self._has_ended = not part
        self._waiting += self._lines.feed(part)
        return bool(part)


if __name__ == "__main__":
    sys.exit(main())
