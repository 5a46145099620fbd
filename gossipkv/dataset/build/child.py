"""The program that builds a version, in a process of its own beside the node: `python -m gossipkv.dataset.build.child`.

A thread beside the serving loop was measured to raise a read's median from 20 µs to 5 ms; a process of low priority
leaves it where it is.  This module imports no Trio, so that it starts quickly and small.

    standard input   one line: the order (`Order`); later lines: the bytes it may read a second
    standard output  lines of JSON: {"progress": [...]}, ten a second at most; last {"done": VmHWM} or {"error": ...}
    the leash        a pipe that nobody writes to, and whose other end only the node holds

The child dies with the node, at once, whatever it is doing and also when it is stopped (`processes.leash`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.build.job import BuildJob, Progress
from gossipkv.dataset.build.memory import share_of_lanes, share_of_one
from gossipkv.dataset.build.steps import Lanes, Means, perform, with_format
from gossipkv.dataset.formats.detect import load
from gossipkv.dataset.source.remote import RemoteFiles
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError
from gossipkv.processes import leash
from gossipkv.processes.pace import Pace
from gossipkv.processes.peak_memory import peak_bytes
from gossipkv.processes.talk import Lines, say

if TYPE_CHECKING:
    from gossipkv.dataset.source.files import SourceFiles

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
        """Return what `to_line` was called on."""
        job, *means = json.loads(line)
        return cls(BuildJob.from_json(job), *means)


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


class _ParentLines:
    """Standard input: lines as they come, without waiting for them."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._whole: list[bytes] = []

    def first(self) -> bytes:
        """Return the first line; waits for it."""
        while not self._whole:
            part = os.read(0, 1 << 16)
            if not part:
                raise EOFError("the order ends before its line does")
            self._whole += self._lines.feed(part)
        os.set_blocking(0, False)
        return self._whole.pop(0)

    def last(self) -> bytes | None:
        """Return the last whole line that has come since, if any."""
        with contextlib.suppress(BlockingIOError):
            self._whole += self._lines.feed(os.read(0, 1 << 16))
        last = self._whole[-1] if self._whole else None
        self._whole.clear()
        return last


class _Throttle:
    """The bytes a second that the node allows, by its newest word."""

    def __init__(self, orders: _ParentLines, bytes_per_second: int) -> None:
        self._orders = orders
        self._pace = Pace(bytes_per_second)

    def bytes_per_second(self) -> int:
        """What may be read; 0: as fast as it goes."""
        line = self._orders.last()
        if line is not None:
            self._pace.bytes_per_second = int(line)
        return self._pace.bytes_per_second

    def wait(self, size_bytes: int) -> None:
        """Wait until so many bytes more may be used."""
        self.bytes_per_second()
        seconds = self._pace.take(size_bytes, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)


def _say(message: object) -> None:
    say(json.dumps(message).encode())


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
    orders = _ParentLines()
    order = Order.from_line(orders.first())
    leash.wear(order.leash)
    try:
        lanes_bytes = _build(order, orders)
    except GossipKVError as error:
        _say({"error": [type(error).__name__, error.message, error.details]})
        return 1
    _say({"done": peak_bytes() + lanes_bytes})
    return 0


def _build(order: Order, orders: _ParentLines) -> int:
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
