"""The program that builds versions, in processes beside the node: `python -m gossipkv.dataset.build.build_child`.

A thread beside the serving loop was measured to raise a read's median from 20 µs to 5 ms; a process of low priority
leaves it where it is.  This module imports no Trio, so that it starts quickly and small.

The program itself builds nothing: for each order it forks a process that does, and waits for its end.  So a build finds
everything imported, and neither memory nor niceness nor a defect of one comes to the next.

    standard input   for each build a line, the order (`Order`); until it ends, lines: the bytes it may read a second
    standard output  lines of JSON.  The build: {"started": its process}, {"progress": [...]}, ten a second at most, and
                     last {"done": VmHWM} or {"error": ...}; then the program: {"ended": its exit status, or -signal}
    the leash        a pipe that nobody writes to, and whose other end only the node holds

The program dies with the node, at once, whatever it is doing and also when it is stopped (`processes.leash`), and the
build with the program.  Rejected: one process that builds several versions.  It would have to be thrown away whenever a
build was large, was made nice (which nobody but root takes back) or has failed; and a peak would be that of all before.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from gossipkv.dataset.build.job import Order
from gossipkv.dataset.build.memory import share_of_lanes, share_of_one
from gossipkv.dataset.build.steps import BuildResources, Lanes, perform, with_format
from gossipkv.dataset.formats.detect import load
from gossipkv.dataset.source.remote import RemoteFiles
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError
from gossipkv.processes import leash
from gossipkv.processes.leash import run_apart
from gossipkv.processes.pace import Pace
from gossipkv.processes.program import Lines, say
from gossipkv.processes.usage import peak_bytes

if TYPE_CHECKING:
    from gossipkv.dataset.build.job import BuildJob, Progress
    from gossipkv.dataset.source.files import SourceFiles

REPORT_EVERY_NS = 100_000_000


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

    def order(self) -> bytes | None:
        """Return the next order; waits for it.  None: there is none any more."""
        os.set_blocking(0, True)
        while True:
            while not self._whole:
                part = os.read(0, 1 << 16)
                if not part:
                    return None
                self._whole += self._lines.feed(part)
            line = self._whole.pop(0)
            if not line.isdigit():  # A pace came too late for its build.
                os.set_blocking(0, False)
                return line

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
        self._taking = Lock()

    def wait(self, size_bytes: int) -> None:
        """Wait until so many bytes more may be used, by whichever thread."""
        with self._taking:
            line = self._orders.last()
            if line is not None:
                self._pace.bytes_per_second = int(line)
            seconds = self._pace.take(size_bytes, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)


def _say(message: object) -> None:
    say(json.dumps(message).encode())


def _connect(job: BuildJob) -> SourceFiles:
    if job.remote is None:
        return RealFiles()
    origin = RemoteFiles(job.remote)
    with contextlib.suppress(OSError):  # The reader says better which file cannot be read.
        origin.stat(job.files[0].path)
    return origin


def main() -> int:
    """Builds what standard input orders, one after the other, until that ends."""
    orders = _ParentLines()
    gc.freeze()  # What is imported stays shared with the builds: no collection of theirs writes to it.
    while (line := orders.order()) is not None:
        order = Order.from_line(line)
        leash.wear(order.leash)
        status = run_apart(partial(build, order, orders))
        say(b"")  # Ends a line in which it was killed.
        _say({"ended": status})
    return 0


def build(order: Order, orders: _ParentLines) -> int:
    """Does what was ordered, in a process that does nothing else; 0 when it is done, 1 when an error was reported."""
    _say({"started": os.getpid()})
    try:
        _build(order, orders)
    except GossipKVError as error:
        _say({"error": [type(error).__name__, error.message, error.details]})
        return 1
    _say({"done": peak_bytes()})
    return 0


def _build(order: Order, orders: _ParentLines) -> None:
    # Before memory is measured: the packages of stores and of some formats are large.
    origin = _connect(order.job)
    job = with_format(order.job, origin)
    load(job.format or "")
    process_bytes = peak_bytes()
    alone = share_of_one(job, order.memory_bytes, process_bytes=process_bytes)
    shared = share_of_lanes(job, order.memory_bytes, process_bytes=process_bytes, most_lanes=order.most_lanes)
    lanes = None if shared is None else Lanes(shared.lanes, shared.builders_bytes, shared.reading)
    pace = _Throttle(orders, order.bytes_per_second).wait
    resources = BuildResources(alone.builders_bytes, lanes, on_progress=_Reporter(), pace=pace)
    perform(replace(job, reading=alone.reading), RealFiles(), resources, origin=origin)


if __name__ == "__main__":
    sys.exit(main())
