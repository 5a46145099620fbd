"""The program that builds a version, in a process of its own beside the node: `python -m gossipkv.dataset.build.child`.

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

from gossipkv.dataset.build.job import BuildJob, Progress
from gossipkv.dataset.build.memory import share_of_lanes, share_of_one
from gossipkv.dataset.build.steps import Lanes, Means, perform, with_format
from gossipkv.dataset.formats.detect import load
from gossipkv.dataset.source.remote import RemoteFiles
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import ConfigError, GossipKVError

if TYPE_CHECKING:
    from gossipkv.dataset.source.listing import SourceFiles

# Reads come first: beside a busy reader, a process of this niceness gets about a thirtieth of a core.
NICENESS = 15
REPORT_EVERY_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Order:
    """What the node tells its child."""

    job: BuildJob
    memory_bytes: int  # for the whole process
    bytes_per_second: int  # 0: as fast as it goes
    leash: int  # a descriptor
    most_lanes: int = 1

    def to_line(self) -> bytes:
        """One line of JSON."""
        order = [self.job.to_json(), self.memory_bytes, self.bytes_per_second, self.leash, self.most_lanes]
        return json.dumps(order).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Back from `to_line`."""
        job, *means = json.loads(line)
        return cls(BuildJob.from_json(job), *means)


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


def give_way(process: int) -> None:
    """From now on, others come before this process.

    A kernel that schedules session against session (sched(7), autogroup) heeds a process's niceness only within its
    session; there the session has a niceness, too.  A node starts a build in a session of its own, and does this at
    once: to start an interpreter is half of the work of a small build.
    """
    os.setpriority(os.PRIO_PROCESS, process, max(NICENESS, os.getpriority(os.PRIO_PROCESS, process)))
    if os.getsid(process) == process:
        with contextlib.suppress(OSError):  # Such a kernel is not this one, or it was asked a moment ago.
            Path(f"/proc/{process}/autogroup").write_text(str(NICENESS))


def peak_bytes() -> int:
    """The most memory that this process has had (VmHWM)."""
    with Path("/proc/self/status").open("rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    raise ConfigError("/proc/self/status has no VmHWM: builds need Linux with /proc mounted")


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
    """The bytes a second that the node allows, by its newest word."""

    def __init__(self, orders: _Orders, bytes_per_second: int) -> None:
        self._orders = orders
        self._pace = Pace(bytes_per_second)

    def bytes_per_second(self) -> int:
        """What may be read; 0: as fast as it goes."""
        line = self._orders.last()
        if line is not None:
            self._pace.bytes_per_second = int(line)
        return self._pace.bytes_per_second

    def wait(self, size_bytes: int) -> None:
        """Until so many bytes more may be used."""
        self.bytes_per_second()
        seconds = self._pace.take(size_bytes, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)


def write_out(data: bytes) -> None:
    """All of it to standard output, at once."""
    while data:
        data = data[os.write(1, data) :]


def _say(message: object) -> None:
    write_out(json.dumps(message).encode() + b"\n")


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
    give_way(os.getpid())
    try:
        lanes_bytes = _build(order, orders)
    except GossipKVError as error:
        _say({"error": [type(error).__name__, error.message, error.details]})
        return 1
    _say({"done": peak_bytes() + lanes_bytes})
    return 0


def _build(order: Order, orders: _Orders) -> int:
    """Returns the most memory that lanes have had."""
    # Before memory is measured: the packages of stores and of some formats are large.
    origin = _connect(order.job)
    job = with_format(order.job, origin)
    load(job.format or "")
    process_bytes = peak_bytes()
    throttle = _Throttle(orders, order.bytes_per_second)
    lanes_bytes = [0]
    alone = share_of_one(job, order.memory_bytes, process_bytes=process_bytes)
    shared = share_of_lanes(job, order.memory_bytes, process_bytes=process_bytes, most_lanes=order.most_lanes)
    lanes = None
    if shared is not None:
        lanes = Lanes(
            shared.lanes, shared.builders_bytes, shared.reading, throttle.bytes_per_second, lanes_bytes.append
        )
    means = Means(alone.builders_bytes, lanes, on_progress=_Reporter(), pace=throttle.wait)
    perform(replace(job, reading=alone.reading), RealFiles(), means, origin=origin)
    return max(lanes_bytes)


if __name__ == "__main__":
    sys.exit(main())
