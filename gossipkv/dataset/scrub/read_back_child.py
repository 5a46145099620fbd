"""The program that reads a version back, in a process of its own: `python -m gossipkv.dataset.scrub.read_back_child`.

Checksums of a disk's content beside the serving loop would hold up reads.  It imports no Trio, so that it starts
quickly.

    standard input   one line: the order (`Order`)
    standard output  lines of JSON: {"damaged": [file, offset, reason, expected, got]} for each file that is, then
                     {"done": [files, bytes, whether the cache was passed by]} or {"error": ...}
    the leash        as of a build
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, final

from gossipkv.dataset.scrub.read_back import Job, Outcome, read_back
from gossipkv.environment.direct_files import DirectFiles
from gossipkv.processes import leash
from gossipkv.processes.pace import Pace
from gossipkv.processes.talk import say

if TYPE_CHECKING:
    from gossipkv.errors import Corrupt


@final
@dataclass(frozen=True, slots=True)
class Order:
    """What the node tells its child."""

    job: Job
    leash: int  # a descriptor

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps([*astuple(self.job), self.leash]).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Return what `to_line` was called on."""
        *job, worn = json.loads(line)
        return cls(Job(*job), worn)


def main() -> int:
    """Read back what standard input orders; 0 when it was read to its end, whatever was found."""
    order = Order.from_line(sys.stdin.buffer.readline())
    leash.wear(order.leash)
    files = DirectFiles()
    pace = Pace(order.job.bytes_per_second)

    def wait(size_bytes: int) -> None:
        time.sleep(pace.take(size_bytes, time.monotonic()))

    try:
        counts = read_back(files, order.job, wait=wait, on_damage=_tell)
    except OSError as error:
        _say({"error": f"{error.filename or order.job.directory}: {error.strerror}"})
        return 1
    _say({"done": astuple(Outcome(*counts, files.bypasses_cache))})
    return 0


def _tell(damage: Corrupt) -> None:
    expected, got = damage.details.get("expected"), damage.details.get("got")
    _say({"damaged": [damage.file, damage.offset, damage.reason, expected, got]})


def _say(message: object) -> None:
    say(json.dumps(message).encode())


if __name__ == "__main__":
    sys.exit(main())
