"""The program of one lane of a build: `python -m gossipkv.dataset.build.lane`; `lanes` draws what is said.

It reads its files, and then does as it is told until it is told to end.  It dies with the process that directs it.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import astuple
from typing import TYPE_CHECKING, Protocol

from gossipkv.dataset.build.child import REPORT_EVERY_NS
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.lanes import LaneOrder, WriteOrder, error_to_json, to_body
from gossipkv.dataset.build.reading_in import counters_of, job_and_rule, take_in
from gossipkv.dataset.source.remote import files_of
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError, StorageError
from gossipkv.processes import leash
from gossipkv.processes.pace import Pace
from gossipkv.processes.peak_memory import peak_bytes
from gossipkv.processes.talk import Lines, say
from gossipkv.storage.builder import LaneBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.lanes import Message
    from gossipkv.storage.document import Json


class ReadFiles(Protocol):
    """How some files get into a builder; the same for one lane and for many."""

    def __call__(
        self,
        reading: str,
        which: range,
        builder: LaneBuilder,
        *,
        pace: Callable[[int], None],
        on_records: Callable[[int], None],
    ) -> Json:
        """Adds all records of the files at these places, in that order; returns what it has counted, as JSON can say.

        `reading` is `LaneTask.reading`.  `pace` is called with the size of each piece before it is used, and may
        sleep; `on_records` with the number of records so far.
        """
        ...


def run(reader: ReadFiles) -> int:
    """Does what standard input orders; 0 when that is done, 1 when an error was reported."""
    orders = _Orders()
    order = LaneOrder.from_json(orders.next("order"))
    leash.wear(order.leash)
    try:
        try:
            _build(order, orders, reader)
        except OSError as error:
            where = str(error.filename or order.task.directory)
            message = f"{where}: cannot build: {error.strerror}"
            raise StorageError(message, {"file": where, "errno": error.errno}) from error
    except GossipKVError as error:
        _say("error", error_to_json(error))
        return 1
    return 0


def _build(order: LaneOrder, orders: _Orders, reader: ReadFiles) -> None:
    task = order.task
    progress = _PacedProgress(orders, order.bytes_per_second)
    with LaneBuilder(
        task.directory,
        task.names,
        memory_bytes=order.memory_bytes,
        compression=task.compression,
        metadata=[text.encode("latin-1") for text in task.metadata],
        on_progress=progress.written,
        lane=order.lane,
    ) as builder:
        which = range(order.first_file, order.end_file)
        counters = reader(task.reading, which, builder, pace=progress.pace, on_records=progress.read)
        progress.say()
        _say("read", json.dumps([to_body(builder.totals()), counters]))
        _write(builder, orders, progress)
        orders.next("end")  # The others need no more of what this one has put aside.
        builder.close()


def _write(builder: LaneBuilder, orders: _Orders, progress: _PacedProgress) -> None:
    if orders.next_is("aside"):
        orders.next("aside")
        _say("runs", json.dumps([astuple(run) for run in builder.put_aside()]))
    order = WriteOrder.from_json(orders.next("write"))
    if order.runs:
        groups = range(order.groups[0], order.groups[-1] + 1) if order.groups else range(0)
        reports = builder.write_shared(order.totals, groups, order.runs)
    else:
        reports = builder.write(order.totals, order.groups)
    progress.say()
    _say("written", json.dumps([[astuple(report) for report in reports], peak_bytes()]))


class _Orders:
    """Standard input, line by line; the newest pace is taken out of it as it comes."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._messages: list[Message] = []
        self._pace: int | None = None
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def next_is(self, word: str) -> bool:
        """Whether the next order is this one; waits for it."""
        while not self._messages:
            self._take()
        return self._messages[0][0] == word

    def next(self, word: str) -> str:
        """What stands behind the word of the next order, which is this one; waits for it."""
        assert self.next_is(word), f"expected {word}, got {self._messages[0][0]}"
        return self._messages.pop(0)[1]

    def new_pace(self, wait_s: float = 0.0) -> int | None:
        """The pace, if another one was told; waits so long for it."""
        while self._poll.poll(1000 * wait_s):
            self._take()
            wait_s = 0.0
        pace, self._pace = self._pace, None
        return pace

    def _take(self) -> None:
        part = os.read(0, 1 << 16)
        if not part:
            raise EOFError("the orders end before the build does")
        for line in self._lines.feed(part):
            word, _, rest = line.decode().partition(" ")
            if word == "pace":
                self._pace = int(rest)
            else:
                self._messages.append((word, rest))


class _PacedProgress:
    """How far this lane is, told now and then, and no faster than it may."""

    def __init__(self, orders: _Orders, bytes_per_second: int) -> None:
        self._orders = orders
        self._pace = Pace(bytes_per_second)
        self._next_ns = 0
        self._read_bytes = self._read_records = self._written_records = 0

    def pace(self, size_bytes: int) -> None:
        """So much more is read, after a while if need be."""
        self._follow(self._orders.new_pace())
        wait_s = self._pace.take(size_bytes, time.monotonic())
        if wait_s > 0:
            # A new pace counts at once: how long to wait was computed by the old one, and may be hours.
            self._follow(self._orders.new_pace(wait_s))
        self._read_bytes += size_bytes
        self._say_at_times()

    def read(self, records: int) -> None:
        """So many records were read."""
        self._read_records = records

    def written(self, records: int, _: int) -> None:
        """So many were written."""
        self._written_records = records
        self._say_at_times()

    def say(self) -> None:
        """The state as it is now."""
        _say("progress", json.dumps([self._read_bytes, self._read_records, self._written_records]))

    def _follow(self, rate: int | None) -> None:
        if rate is not None:
            self._pace = Pace(rate)

    def _say_at_times(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + REPORT_EVERY_NS
            self.say()


def _say(word: str, rest: str) -> None:
    say(f"{word} {rest}".encode())


def read_files(
    reading: str, which: range, builder: LaneBuilder, *, pace: Callable[[int], None], on_records: Callable[[int], None]
) -> Json:
    """The files of a job, by a rule."""
    line, rule = job_and_rule(reading)
    job = BuildJob.from_json(line)
    origin = files_of(job.remote, RealFiles())
    return counters_of(take_in(job, which, rule, builder, origin, pace=pace, on_records=on_records))


if __name__ == "__main__":
    sys.exit(run(read_files))
