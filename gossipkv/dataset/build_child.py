"""The program that builds a version, in a process of its own beside the node: `python -m gossipkv.dataset.build_child`.

A thread beside the serving loop was measured to raise a read's median from 20 µs to 5 ms; a process of low priority
leaves it where it is.  This module imports no Trio, so that it starts quickly and small.

    standard input   one line: the order (`Order`); later lines: the bytes it may read a second
    standard output  lines of JSON: {"progress": [...]}, ten a second at most; last {"done": VmHWM} or {"error": ...}
    the leash        a pipe that nobody writes to, and whose other end only the node holds

The child dies with the node, at once and whatever it is doing: when the last writer of the leash goes, the kernel sends
SIGIO, whose default is to end the process.  PR_SET_PDEATHSIG would not do: it follows the *thread* that started the
child, which here is a worker thread that ends when it has idled for some seconds.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.dataset.build_job import BuildJob, Progress, perform, reader_bytes
from gossipkv.dataset.formats.reading import MAX_VALUE_BYTES, Reading
from gossipkv.dataset.lanes import builders_bytes, fitting_lanes, useful_lanes
from gossipkv.dataset.remote import RemoteFiles
from gossipkv.environment import RealFiles
from gossipkv.errors import ConfigError, GossipKVError
from gossipkv.storage.builder import MIN_MEMORY_BYTES

if TYPE_CHECKING:

    from gossipkv.dataset.source import SourceFiles

# Reads come first: beside a busy reader, a process of this niceness gets about a thirtieth of a core.
NICENESS = 15
REPORT_EVERY_NS = 100_000_000
# What the allocator keeps for itself, and the manifest.
SLACK_BYTES = 4 << 20
# A block that says it becomes more than a thousand times its file is refused; but zstd wants a window of 8 MiB read.
MOST_EXPANSION = 1_000
LEAST_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """What the node tells its child."""

    job: BuildJob
    memory_bytes: int  # for the whole process
    bytes_per_second: int  # 0: as fast as it goes
    leash: int  # a descriptor

    def to_line(self) -> bytes:
        """One line of JSON."""
        order = [self.job.to_json(), self.memory_bytes, self.bytes_per_second, self.leash]
        return json.dumps(order).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Back from `to_line`."""
        job, memory_bytes, bytes_per_second, leash = json.loads(line)
        return cls(BuildJob.from_json(job), memory_bytes, bytes_per_second, leash)


class Pace:
    """Says how long to wait so that no more than so many bytes a second are read; a burst is one chunk."""

    def __init__(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Seconds to wait before `size_bytes` are used."""
        if self.bytes_per_second <= 0:
            self._free_at = now
            return 0.0
        wait = max(0.0, self._free_at - now)
        self._free_at = now + wait + size_bytes / self.bytes_per_second
        return wait


def obey_leash(leash: int) -> None:
    """From now on this process ends when the other end of the pipe is closed."""
    fcntl.fcntl(leash, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(leash, 0)
    if poll.poll(0):  # It was closed before the kernel was told.
        signal.raise_signal(signal.SIGKILL)


def peak_bytes() -> int:
    """The most memory that this process has had (VmHWM)."""
    with Path("/proc/self/status").open("rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    raise ConfigError("/proc/self/status has no VmHWM: builds need Linux with /proc mounted")


def limits(job: BuildJob, memory_bytes: int) -> Reading:
    """How the job is to be read: the longest value and the largest block are an eighth of the memory.

    Else a process of 64 MiB would have to keep half of it free for a value that hardly any source has.  Nothing in a
    small file is taken for large: what says that it expands a thousandfold is a bomb.
    """
    largest = max((file.size_bytes for file in job.files), default=0)
    most = min(memory_bytes // 8, max(LEAST_BLOCK_BYTES, largest * MOST_EXPANSION))
    return replace(job.reading, max_value_bytes=min(MAX_VALUE_BYTES, most), max_block_bytes=most)


def builder_bytes(order: Order, baseline_bytes: int) -> int:
    """What the sorter may use so that the whole process stays within `memory_bytes`.

    Raises:
        ConfigError: nothing useful is left.
    """
    left = _left_bytes(order.job, order.memory_bytes, baseline_bytes)
    if left < MIN_MEMORY_BYTES:
        enough = range(order.memory_bytes, 1 << 40)
        needed = enough[
            bisect.bisect_left(enough, MIN_MEMORY_BYTES, key=lambda m: _left_bytes(order.job, m, baseline_bytes))
        ]
        raise ConfigError(
            f"build_memory of {order.memory_bytes:,} bytes is too little: this build needs at least {needed:,}",
            {"limit": order.memory_bytes, "needed_bytes": needed},
        )
    return left


def share_of_lanes(order: Order, baseline_bytes: int) -> tuple[int, int]:
    """How many lanes the memory is enough for, and what all their builders may use together.

    Every lane is a process like this one, and reads as it would.

    Raises:
        ConfigError: it is not even enough for one.
    """
    job = order.job
    process_bytes = baseline_bytes + SLACK_BYTES
    reading_bytes = reader_bytes(job, limits(job, order.memory_bytes))
    most = useful_lanes([file.size_bytes for file in job.files], job.lanes)
    lanes = fitting_lanes(order.memory_bytes, most=most, process_bytes=process_bytes, reading_bytes=reading_bytes)
    if lanes == 1:
        return 1, builder_bytes(order, baseline_bytes)
    return lanes, builders_bytes(
        order.memory_bytes, lanes=lanes, process_bytes=process_bytes, reading_bytes=reading_bytes
    )


def _left_bytes(job: BuildJob, memory_bytes: int, baseline_bytes: int) -> int:
    """Grows with the memory: of each byte more, at most a quarter goes to reading."""
    return memory_bytes - baseline_bytes - reader_bytes(job, limits(job, memory_bytes)) - SLACK_BYTES


class _Reporter:
    """Lines of progress, not too many."""

    def __init__(self) -> None:
        self._next_ns = 0

    def __call__(self, progress: Progress) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + REPORT_EVERY_NS
            _say({
                "progress": [
                    progress.read_bytes, progress.source_bytes, progress.read_records, progress.written_records,
                ]
            })  # fmt: skip


class _Orders:
    """Standard input: lines as they come, without waiting for them."""

    def __init__(self) -> None:
        self._waiting = b""

    def first(self) -> bytes:
        """The first line; waits for it."""
        while b"\n" not in self._waiting:
            part = os.read(0, 1 << 16)
            if not part:
                raise EOFError("the order ends before its line does")
            self._waiting += part
        line, _, self._waiting = self._waiting.partition(b"\n")
        os.set_blocking(0, False)
        return line

    def last(self) -> bytes | None:
        """The last whole line that has come since, if any."""
        with contextlib.suppress(BlockingIOError):
            self._waiting += os.read(0, 1 << 16)
        *lines, self._waiting = self._waiting.split(b"\n")
        return lines[-1] if lines else None


class _Throttle:
    """The bytes a second that may be read, as they were told last."""

    def __init__(self, orders: _Orders, bytes_per_second: int) -> None:
        self._orders = orders
        self._pace = Pace(bytes_per_second)

    def bytes_per_second(self) -> int:
        """For lanes, which share it."""
        line = self._orders.last()
        if line is not None:
            self._pace.bytes_per_second = int(line)
        return self._pace.bytes_per_second

    def wait(self, size_bytes: int) -> None:
        """For this process alone: sleeps until so much may be used."""
        self.bytes_per_second()
        seconds = self._pace.take(size_bytes, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)


def _say(message: object) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _connect(job: BuildJob) -> SourceFiles:
    """What the source is read with."""
    if job.remote is None:
        return RealFiles()
    origin = RemoteFiles(job.remote)
    with contextlib.suppress(OSError):  # The reader says better which file cannot be read.
        origin.stat(job.files[0].path)
    return origin


def main() -> int:
    """Builds what standard input orders; 0 when it is done, 1 when an error was reported."""
    orders = _Orders()
    order = Order.from_line(orders.first())
    obey_leash(order.leash)
    os.nice(NICENESS)
    try:
        origin = _connect(order.job)  # Before memory is measured: packages of stores are large.
        lanes, memory_bytes = share_of_lanes(order, peak_bytes())
        throttle = _Throttle(orders, order.bytes_per_second)
        perform(
            replace(order.job, reading=limits(order.job, order.memory_bytes), lanes=lanes),
            RealFiles(),
            origin=origin,
            memory_bytes=memory_bytes,
            on_progress=_Reporter(),
            pace=throttle.wait,
            bytes_per_second=throttle.bytes_per_second,
        )
    except GossipKVError as error:
        _say({"error": [type(error).__name__, error.message, error.details]})
        return 1
    _say({"done": peak_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
