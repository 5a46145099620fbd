"""A load process: gets orders on standard input, and reports on standard output.

Messages are lines of JSON.  The parent sends a task first (`plan_text.Task`), then one run after the other:

    {"stages": [[rate or 0, nanoseconds], ...], "begun_ns": ...}      by the machine's monotonic clock, shared by all
    {..., "walk": "records" or "check"}    write every record once, or read again what was written, for as long at most
    {"version": ..., "file": ...}       a new version; its records (`truth.main`) are right from now on

The process sends `ready` once its connections are up, `news` four times a second, `done` at the end of each run, or
`failed` with an error.  SIGINT ends a run; the end of standard input, or of the parent, ends the process.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, monotonic_ns, process_time, sleep
from types import EllipsisType
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gossipkv.client.sockets import open_socket
from gossipkv.client.tables import NODE_SHARE
from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.loadtest._loadtest import (
    Generator,
    HttpDialect,
    KeyChooser,
    RedisDialect,
    RpcDialect,
    Schedule,
    Writes,
    shuffled,
)
from gossipkv.loadtest.plan import KINDS, PlanError
from gossipkv.loadtest.plan_text import SEEDS_APART, Task, targets_of
from gossipkv.loadtest.truth import made_records, place_of_versions, read_truth
from gossipkv.processes import leash
from gossipkv.processes.program import read_order

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.loadtest._loadtest import Dialect, LateTable, Records, Tally
    from gossipkv.loadtest.plan import LoadPlan, LoadTarget
    from gossipkv.loadtest.result import Json
    from gossipkv.loadtest.truth import Truth
    from gossipkv.serving.loop import TlsClient

Order: TypeAlias = tuple[list[tuple[float, int]], int, str]  # An order has stages, their start, and a walk or "".
Wrong: TypeAlias = "tuple[bytes | None, bytes | EllipsisType | None, bytes | None, int]"

NEWS_NS: Final = 250_000_000
SLICE_NS: Final = 50_000_000  # Time without the GIL; a signal waits this long.
AWAIT_NS: Final = 2_000_000_000  # After Ctrl-C, requests in flight may still be answered while the user waits.
MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
SETTLE_NS: Final = 10_000_000_000  # Acknowledged writes reach every replica in this time after the load.
WALK: Final = 100  # Records that are loaded, or read again, with one request.
PASS_NS: Final = 100_000_000  # The pause before what was not read rightly is read again.
FAULTS: Final = {
    "never_written": "was never written",
    "went_back": "is older than the session had seen before",
    "lost_write": "was read at the end, although a later write was acknowledged",
}
SHOWN_BYTES: Final = 64  # A message shows this many bytes of an expected value.


def dialect(
    target: LoadTarget, plan: LoadPlan, records: Records, token: str | None, writes: Writes | None = None
) -> Dialect:
    """Return the dialect for a target."""
    if target.scheme == "redis":
        database = target.redis_database
        return RedisDialect(records, database=database, token=token, writes=writes, ttl_ms=plan.ttl_ms)
    level, ttl_ms = plan.level, plan.ttl_ms
    if target.scheme == "http":
        host = str(target.address)
        return HttpDialect(plan.database, host, records, token=token, writes=writes, level=level, ttl_ms=ttl_ms)
    # The node answers before the connection is given up.
    timeout_ms = max(1, round(plan.timeout_s * 1000 * NODE_SHARE))
    return RpcDialect(
        plan.database, records, token=token, writes=writes, level=level, ttl_ms=ttl_ms, timeout_ms=timeout_ms
    )


def writes_of(plan: LoadPlan, truth: Truth, connections: int) -> Writes | None:
    """Return what a process that has so many connections writes; the others' values have another run."""
    if not plan.is_written:
        return None
    # One user more than requests at a time makes users go from connection to connection.
    users = connections * plan.pipeline + 1 if plan.sessions else 0
    run = int.from_bytes(os.urandom(8), "big")
    is_ours, ttl_ms = plan.records > 0, plan.ttl_ms or 0
    return Writes(len(truth.keys), run=run, sizes=plan.value_bytes, sessions=users, ours=is_ours, ttl_ms=ttl_ms)


def own_keys(plan: LoadPlan, truth: Truth, turn: int) -> list[int]:
    """Return the keys of a process: where anything is written no two processes share one, so that each knows."""
    every = range(len(truth.keys)) if truth.population is None else [*dict.fromkeys(truth.population)]
    own = [*every[turn :: plan.processes]]
    if not own:
        raise PlanError(
            f"{plan.processes} processes need at least as many keys, but there are {len(every)}; use fewer processes"
        )
    return own


def secured(plan: LoadPlan) -> list[TlsClient] | None:
    """Return the TLS clients of the targets; None without TLS."""
    if plan.tls is None:
        return None
    from gossipkv.serving.loop import TlsClient  # noqa: PLC0415  # The module imports all of serving.

    files = [None if file is None else Path(file) for file in (plan.tls.ca, plan.tls.certificate, plan.tls.key)]
    return [TlsClient(target.address.host, *files) for target in plan.targets]


def dial(address: Address, timeout_s: float, number: int, connections: int) -> socket.socket:
    """Open connection `number` of `connections`, with TCP_NODELAY.

    Raises:
        Unavailable: the connection cannot be made.
    """
    try:
        connection = open_socket(address, monotonic() + timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError comes from a name that no name service can know.
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Unavailable(
            f"connection {number + 1} of {connections} to {address} cannot be opened: {reason}",
            {"address": str(address), "connection": number + 1},
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(0)
    return connection


def chooser(plan: LoadPlan, truth: Truth, turn: int) -> KeyChooser:
    """Return the chooser of a process's keys."""
    population, new = truth.population, 0
    shape = plan.distribution.shape
    first, stride = turn, plan.processes
    if plan.is_written:
        population = own_keys(plan, truth, turn)
        new = sum(key >= truth.present for key in population)
        first, stride = 0, 1
    if plan.distribution.scattered and shape in {"zipf", "hot"}:
        every = [*range(truth.present)] if population is None else population
        present = len(every) - new
        population = shuffled(every[:present], plan.seed) + every[present:]
    return KeyChooser(
        shape,
        (truth.present if population is None else len(population)) - new,
        seed=(plan.seed + turn * SEEDS_APART) % (1 << 64),
        population=population,
        theta=plan.distribution.theta,
        hot_requests=plan.distribution.hot_requests,
        hot_keys=plan.distribution.hot_keys,
        first=first,
        stride=stride,
        new=new,
        absent_first=truth.present,
        absent_count=len(truth.keys) - truth.present,
        misses=plan.misses,
    )


@final
class LoadChild:
    """The generator of one process, and its reports."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._is_stopped = False
        plan = task.plan
        truth = made_records(plan) if plan.records else read_truth(plan)
        has_versions = place_of_versions(plan) is not None
        self._records = truth.records(ordered=has_versions or plan.mix.get("scan", 0) > 0)
        self._late: SimpleQueue[LateTable] = SimpleQueue()
        targets = targets_of(plan, task.turn)
        self._writes = writes_of(plan, truth, len(targets))
        self._own = own_keys(plan, truth, task.turn) if plan.load else []
        self._generator = Generator(
            [dialect(target, plan, self._records, task.token, self._writes) for target in plan.targets],
            [
                dial(plan.targets[target].address, plan.timeout_s, number, len(targets))
                for number, target in enumerate(targets)
            ],
            in_flight=plan.pipeline,
            batch=plan.batch,
            timeout_ms=round(plan.timeout_s * 1000),
            seed=(plan.seed + task.turn * SEEDS_APART) % (1 << 64),
            writes=self._writes,
            walk=WALK if plan.is_written else 0,
            targets=targets,
            chooser=chooser(plan, truth, task.turn),
            mix=[plan.mix.get(kind, 0.0) for kind in KINDS],
            redial=True,
            tls=secured(plan),
        )
        if missing := self._generator.settle():
            raise Unavailable(
                f"{missing} of {len(targets)} connections failed to open: TLS, the token or a database was refused"
            )

    def stop(self) -> None:
        self._is_stopped = True

    def take_version(self, version: str, file: str) -> None:
        """Compare with the records of a new version after this slice; runs in a thread beside the load."""
        self._late.put(self._records.prepare(version, Path(file).read_bytes()))

    def run(self, stages: list[tuple[float, int]], begun_ns: int, walk: str) -> None:
        """Perform one run to its end, or until it is stopped."""
        schedule = Schedule(stages, turn=self._task.turn, share=self._task.plan.processes)
        sleep(max(0, begun_ns - monotonic_ns()) / SECOND_NS)
        cpu_s = process_time()
        missing = 0
        if not walk:
            self._generator.begin_stages(schedule, begun_ns=begun_ns)
            self._make(begun_ns)
        elif walk == "records":
            missing = self._load(schedule.duration_ns)
        else:
            missing = self._check(schedule.duration_ns)
        say(
            "done",
            {
                "unsent": self._generator.unsent,
                "duration_ns": self._generator.duration_ns,
                "cpu_s": process_time() - cpu_s,
                "is_stopped": self._is_stopped,
                "missing": missing,
            },
        )

    def _load(self, duration_ns: int) -> int:
        """Write every record; return how many were not acknowledged."""
        assert self._writes is not None
        own = [number for number in self._own if number < self._task.plan.records]
        self._generator.begin_walk(own, writes=True, duration_ns=duration_ns)
        self._make(monotonic_ns())
        return self._writes.unwritten(own)

    def _check(self, duration_ns: int) -> int:
        """Read what was written until all is right, for `SETTLE_NS` at most; return how many keys were not."""
        assert self._writes is not None
        until_ns = None
        while (left := self._writes.unconfirmed()) and not self._is_stopped:
            is_last = until_ns is not None and monotonic_ns() >= until_ns
            self._writes.begin_final(tells_lost=is_last)
            self._generator.begin_walk(left, duration_ns=duration_ns)
            self._make(monotonic_ns())
            if is_last:
                break
            until_ns = until_ns or monotonic_ns() + SETTLE_NS
            sleep(PASS_NS / SECOND_NS if self._writes.unconfirmed() else 0)
        return len(self._writes.unconfirmed())

    def _make(self, begun_ns: int) -> None:
        """Make the load that was begun, to its end or until it is stopped."""
        next_ns = begun_ns + NEWS_NS
        give_up_ns = None
        while give_up_ns is None or monotonic_ns() < give_up_ns:
            if self._is_stopped and give_up_ns is None:
                self._generator.stop()
                give_up_ns = monotonic_ns() + AWAIT_NS
            self._adopt_late()
            slice_ms = max(1, min(SLICE_NS, next_ns - monotonic_ns()) // MS_NS)
            if not self._generator.step(slice_ms):
                break
            if monotonic_ns() >= next_ns:
                self._say_news()
                next_ns = max(next_ns + NEWS_NS, monotonic_ns())
        self._say_news()

    def _adopt_late(self) -> None:
        with suppress(Empty):
            while True:
                self._records.adopt(self._late.get_nowait())

    def _fault(self, tally: Tally) -> dict[str, Json]:
        """Return the first wrong value of a load that writes, in words."""
        fault = self._writes.first_fault() if self._writes is not None and tally.wrong else None
        if fault is None:
            return {}
        name, number, read, floor = fault
        key, _ = self._records.record(number)
        what = f"write {read}" if read else "a value or an absence from before the run"
        behind = f" (write {floor} or a later one)" if floor else ""
        return {"first_wrong": f"{key!r}: {what} {FAULTS[name]}{behind}"}

    def _say_news(self) -> None:
        ledger = self._generator.ledger
        tallies: list[Json] = []
        for stage, target in ledger.touched():
            tally = ledger.tally_at(stage, target)
            news = tally.news()
            if news is not None:
                timings: Json = {str(kind): _listed(timing) for kind, timing in news[0].items()}
                late: Json = None if news[1] is None else _listed(news[1])
                tallies.append([stage, target, timings, late, {**counters(tally), **self._fault(tally)}])
        versions: list[Json] = [
            {name: list(counted) for name, counted in ledger.versions_at(target).items()}
            for target in range(len(self._task.plan.targets))
        ]
        say("news", {"at_ns": monotonic_ns(), "tallies": tallies, "versions": versions})


def _listed(timing: tuple[int, float, int, list[int]]) -> Json:
    count, total_ns, maximum_ns, pairs = timing
    return [count, total_ns, maximum_ns, list(pairs)]


def counters(tally: Tally) -> dict[str, Json]:
    """Return the counts since the run began."""
    return {
        "sent": tally.sent,
        "requests": tally.answered,
        "keys": tally.keys,
        "misses": tally.misses,
        "wrong": tally.wrong,
        "unchecked": tally.unchecked,
        "steps_back": tally.steps_back,
        "lost": tally.lost,
        "reconnects": tally.reconnects,
        "bytes_received": tally.bytes_received,
        "bytes_sent": tally.bytes_sent,
        "errors": {**tally.errors()},
        "broken": {**tally.broken()},
        "first_wrong": first_wrong(tally),
    }


def wrong_in_words(wrong: Wrong | None) -> str | None:
    """Describe a tally's wrong value."""
    if wrong is None:
        return None
    key, expected, got, size = wrong
    if key is None and got is None:
        return "an answer has more values than requested, or an element that is not a value"
    if key is None:
        return f"a scan returned a record that should not exist: {got!r}"
    shown = "no value" if got is None else f"{got!r} of {size} bytes"
    return f"{key!r}: expected {_short(expected)}, got {shown}"


def first_wrong(tally: Tally) -> str | None:
    """Describe the first wrong value of a tally, with its version."""
    words = wrong_in_words(tally.first_wrong())
    return f"{words} (version {tally.wrong_version})" if words and tally.wrong_version else words


def _short(value: bytes | EllipsisType | None) -> str:
    if value is None:
        return "no value"
    if isinstance(value, EllipsisType):
        return "anything"
    return f"{value[:SHOWN_BYTES]!r} of {len(value)} bytes"


def say(kind: str, value: Json) -> None:
    """Send a line to the parent."""
    sys.stdout.write(json.dumps([kind, value], separators=(",", ":")) + "\n")
    sys.stdout.flush()


def hear(child: LoadChild, orders: SimpleQueue[Order | None]) -> None:
    """Pass on orders from standard input; records of versions are prepared here, beside a run."""
    for line in sys.stdin.buffer:
        order = json.loads(line)
        if "version" not in order:
            stages = [(rate, duration_ns) for rate, duration_ns in order["stages"]]
            orders.put((stages, order["begun_ns"], order["walk"]))
            continue
        with suppress(FileNotFoundError):  # The parent has ended meanwhile, and so will this process.
            child.take_version(order["version"], order["file"])
    orders.put(None)


def main() -> None:
    """Perform the orders on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = read_order(sys.stdin.buffer.readline(), Task)
    leash.wear(task.worn)
    try:
        child = LoadChild(task)
    except GossipKVError as error:
        say("failed", [type(error).__name__, str(error)])
        return
    signal.signal(signal.SIGINT, lambda *_: child.stop())
    # A garbage collection of the records would be a pause in sending.
    gc.collect()
    gc.freeze()
    gc.disable()
    say("ready", None)
    orders: SimpleQueue[Order | None] = SimpleQueue()
    ear = threading.Thread(target=hear, args=(child, orders), name="orders")
    ear.start()
    while (order := orders.get()) is not None:
        child.run(*order)
    ear.join()


if __name__ == "__main__":
    main()
