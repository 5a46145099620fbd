"""The program that builds versions beside the node: `python -m gossipkv.dataset.build.build_child`.

A build in a thread raised the median read from 20 µs to 5 ms; a low-priority process does not.  This module imports no
Trio, to start quickly.  The program forks one process for each order, so builds share imports but no memory or
niceness.

    standard input   a line (`BuildOrder`) for each build; until the build ends, lines with its bytes per second
    standard output  lines of JSON.  The build: {"started": its process}, {"progress": [...]} at most ten times a
                     second, then {"done": VmHWM} or {"error": ...}; the program: {"ended": exit status, or -signal}
    the leash        a pipe without data; only the node holds its other end

The program dies with the node at once, even when stopped (`processes.leash`), and the build dies with the program.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from gossipkv.dataset.build.job import BuildOrder
from gossipkv.dataset.build.memory import share_for_columns, share_of_lanes, share_of_one
from gossipkv.dataset.build.steps import BuildResources, Lanes, perform, with_format
from gossipkv.dataset.formats.detect import load
from gossipkv.dataset.source.remote import RemoteFiles
from gossipkv.environment.real_files import BuildFiles, RealFiles
from gossipkv.errors import GossipKVError, SourceError
from gossipkv.processes import leash
from gossipkv.processes.leash import run_apart
from gossipkv.processes.pace import RateLimit
from gossipkv.processes.program import ProgramLines, read_order, say, say_json
from gossipkv.processes.usage import peak_bytes

if TYPE_CHECKING:
    from gossipkv.dataset.build.job import BuildJob, BuildProgress
    from gossipkv.dataset.source.files import SourceFiles

REPORT_EVERY_NS = 100_000_000


class _Reporter:
    def __init__(self) -> None:
        self._next_ns = 0

    def __call__(self, progress: BuildProgress) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + REPORT_EVERY_NS
            say_json({
                "progress": [
                    progress.read_bytes, progress.source_bytes, progress.read_records, progress.written_records,
                ]
            })  # fmt: skip


class _ParentLines:
    """Lines of standard input, read without waiting for them."""

    def __init__(self) -> None:
        self._lines = ProgramLines()
        self._whole: list[bytes] = []

    def order(self) -> bytes | None:
        """Wait for the next order and return it; None once standard input has ended."""
        os.set_blocking(0, True)
        while True:
            while not self._whole:
                part = os.read(0, 1 << 16)
                if not part:
                    return None
                self._whole += self._lines.feed(part)
            line = self._whole.pop(0)
            if not line.isdigit():  # A digit line is a pace that came too late for its build.
                os.set_blocking(0, False)
                return line

    def last(self) -> bytes | None:
        """Return the last whole line since the previous call, if any."""
        with contextlib.suppress(BlockingIOError):
            self._whole += self._lines.feed(os.read(0, 1 << 16))
        last = self._whole[-1] if self._whole else None
        self._whole.clear()
        return last


class _Throttle:
    """Paces reading to the bytes per second that the node last allowed."""

    def __init__(self, orders: _ParentLines, bytes_per_second: int) -> None:
        self._orders = orders
        self._pace = RateLimit(bytes_per_second)
        self._lock = Lock()

    def wait(self, size_bytes: int) -> None:
        """Wait until any thread may use `size_bytes` more bytes."""
        with self._lock:
            line = self._orders.last()
            if line is not None:
                self._pace.rate = int(line)
            seconds = self._pace.take(size_bytes, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)


def _connect(job: BuildJob) -> SourceFiles:
    if job.remote is None:
        return RealFiles()
    origin = RemoteFiles(job.remote)
    origin.announce(job.files)
    with contextlib.suppress(OSError):  # The reader names the unreadable file in its error.
        origin.stat(job.files[0].path)
    return origin


def main() -> int:
    """Perform the builds ordered on standard input, one after the other, until it ends."""
    orders = _ParentLines()
    gc.freeze()  # Imports stay shared with the builds: their garbage collections do not write to these pages.
    while (line := orders.order()) is not None:
        order = read_order(line, BuildOrder)
        leash.wear(order.leash)
        status = run_apart(partial(build, order, orders))
        say(b"")  # End the line in which the build may have been killed.
        say_json({"ended": status})
    return 0


def build(order: BuildOrder, orders: _ParentLines) -> int:
    """Perform the order in a process of its own; return 0 when done, 1 when an error was reported."""
    say_json({"started": os.getpid()})
    try:
        _build(order, orders)
    except GossipKVError as error:
        say_json({"error": [type(error).__name__, error.message, error.details]})
        return 1
    say_json({"done": peak_bytes()})
    return 0


def _build(order: BuildOrder, orders: _ParentLines) -> None:
    # Import before memory is measured: the packages of stores and of some formats are large.
    origin = _connect(order.job)
    job = with_format(order.job, origin)
    with contextlib.suppress(ImportError):  # The reader names the package, and a file.
        load(job.format or "")
    process_bytes = peak_bytes()
    alone = share_of_one(job, order.memory_bytes, process_bytes=process_bytes)
    shared = share_of_lanes(job, order.memory_bytes, process_bytes=process_bytes, most_lanes=order.most_lanes)
    lanes = None if shared is None else Lanes(shared.lanes, shared.builders_bytes, shared.reading)
    pace = _Throttle(orders, order.bytes_per_second).wait
    resources = BuildResources(alone.builders_bytes, lanes, on_progress=_Reporter(), pace=pace)
    try:
        perform(replace(job, reading=alone.reading), BuildFiles(), resources, origin=origin)
    except SourceError as error:
        needed_bytes = error.details.get("columns_bytes")
        if not isinstance(needed_bytes, int):
            raise
        again = share_for_columns(job, order.memory_bytes, process_bytes=process_bytes, columns_bytes=needed_bytes)
        if again is None:
            raise
        resources = replace(resources, memory_bytes=again.builders_bytes, lanes=None)
        perform(replace(job, reading=again.reading), BuildFiles(), resources, origin=origin)


if __name__ == "__main__":
    sys.exit(main())
