"""Clients that write and read a table while nodes die; a judge compares their answers with the final content.

Every value is written once, so a value that was read identifies its write.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Self

import trio

import gossipkv
from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, NotReady, Overloaded, TimedOut, Unavailable, Unknown
from tests.ci.cluster.table_nodes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gossipkv.client.table import Table
    from gossipkv.launcher import Cluster

TABLE = "records"
OPTIONS = {"kind": "hash", "partitions": 16, "replication": 3}
SHARED = [f"shared/{number}".encode() for number in range(40)]
SHARES = 0.3  # This share of the writes has keys that all clients write.
CLIENTS = 4  # Per kind.
DELETES = 0.1  # The share of deletes in all writes.
READS = 0.5  # The share of reads in all requests.
TIMEOUT_MS = 20_000  # A live node answers much sooner, even on a busy machine.
PAUSE_S = 0.002
DONE, OPEN, REFUSED = "done", "open", "refused"
SAME_TIME_S = 0.002  # Within a record's millisecond, the order of two nodes is not that of the clock.
TROUBLE = ("Traceback", "internal_error", "callback_defect", "invariant_broken")


class Write(NamedTuple):
    """A request and its outcome: done, open (unknown), or refused (not applied)."""

    key: bytes
    value: bytes | None  # None is a delete.
    end: str
    began_s: float
    ended_s: float
    error: str = ""  # Why the write was not acknowledged.


class Read(NamedTuple):
    """The result of a read; `error` says why it has no value."""

    key: bytes
    value: bytes | None
    began_s: float
    ended_s: float
    error: str = ""


@dataclass(frozen=True)
class Judged:
    faults: list[str]  # Violations of the promises.
    writes: dict[str, int]  # The number of writes by outcome.
    reads: int
    failed: list[Read]


def judge(writes: Sequence[Write], reads: Sequence[Read], ends: Mapping[str, Mapping[bytes, bytes | None]]) -> Judged:
    """Compare the final content of each node and all reads with the writes."""
    by_key: dict[bytes, list[Write]] = {}
    for write in writes:
        by_key.setdefault(write.key, []).append(write)
    faults = []
    for read in reads:
        seen = [write for write in by_key.get(read.key, ()) if write.value == read.value and write.end != REFUSED]
        if read.value is not None and not any(write.began_s <= read.ended_s for write in seen):
            faults.append(f"from nowhere: {read}")
    for key in sorted({key for end in ends.values() for key in end} | by_key.keys()):
        found = {node: end.get(key) for node, end in ends.items()}
        if len({*found.values()}) != 1:
            faults.append(f"unequal: {key!r} {found}")
        for node, value in found.items():
            faults += _final_faults(node, key, value, by_key.get(key, []))
    counts = {end: sum(write.end == end for write in writes) for end in (DONE, OPEN, REFUSED)}
    return Judged(faults, counts, sum(not read.error for read in reads), [read for read in reads if read.error])


def _final_faults(node: str, key: bytes, value: bytes | None, writes: list[Write]) -> Iterator[str]:
    """Report a final value that was not written, or whose writes all precede an acknowledged one."""
    never = [Write(key, None, DONE, -inf, -inf)]
    of_it = [write for write in never + writes if write.value == value and write.end != REFUSED]
    if not of_it:
        yield f"from nowhere: {node} has {key!r}: {value!r}"
        return
    latest_s = max(inf if write.end == OPEN else write.ended_s for write in of_it)
    for write in writes:
        if write.end == DONE and write.began_s > latest_s + SAME_TIME_S:
            yield f"lost: {write}, for which {node} has {value!r}"


class Request(NamedTuple):
    """A method of a table's handle with its arguments."""

    method: str
    key: bytes
    value: bytes | None = None

    @property
    def params(self) -> tuple[bytes, ...]:
        return (self.key,) if self.value is None else (self.key, self.value)


class Load:
    """Clients of both kinds; each asks a random node, and other nodes after a failure, until the end of the block.

    `by_map`: every other client asks the owners of a key.
    """

    def __init__(self, addresses: Sequence[str], *, seed: int, by_map: bool = False) -> None:
        self._orders = [[*addresses[at:], *addresses[:at]] for at in range(len(addresses))]
        self._is_over = threading.Event()
        self._by_map = by_map
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.trouble: list[str] = []
        workers = [self._blocking] * CLIENTS + [self._under_trio]
        self._threads = [
            threading.Thread(target=self._run, args=(worker, random.Random(f"{seed} {number}"), f"{number}"))
            for number, worker in enumerate(workers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, least_s: float, least: int) -> None:
        """Return after this time, and this many acknowledged writes and reads that began from now on."""
        began_s, first_write, first_read = time.monotonic(), len(self.writes), len(self.reads)

        def counted() -> tuple[int, int]:
            writes = sum(one.end == DONE and one.began_s > began_s for one in self.writes[first_write:])
            return writes, sum(not one.error and one.began_s > began_s for one in self.reads[first_read:])

        time.sleep(least_s)
        until(counted, lambda counts: min(counts) >= least)

    def _run(self, work: Callable[[random.Random, str], None], chance: random.Random, name: str) -> None:
        try:
            work(chance, name)
        except BaseException as error:  # The test reports the error.
            self.trouble.append(repr(error))
            raise

    def _blocking(self, chance: random.Random, name: str) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(blocking.Client(order, timeout_ms=TIMEOUT_MS)) for order in self._orders]
            tables = [client.table(TABLE, by_map=self._by_map and int(name) % 2 == 1) for client in clients]
            for request in self._requests(chance, name):
                table, began_s = chance.choice(tables), time.monotonic()
                try:
                    self._note(request, began_s, getattr(table, request.method)(*request.params))
                except GossipKVError as error:
                    self._note(request, began_s, None, error)
                time.sleep(PAUSE_S)

    def _under_trio(self, chance: random.Random, name: str) -> None:
        trio.run(self._tasks, chance, name)

    async def _tasks(self, chance: random.Random, name: str) -> None:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(gossipkv.connect(order, timeout_ms=TIMEOUT_MS))
                for order in self._orders
            ]
            async with trio.open_nursery() as nursery:
                for number in range(CLIENTS):
                    by_map = self._by_map and number % 2 == 1
                    tables = [client.table(TABLE, by_map=by_map) for client in clients]
                    nursery.start_soon(self._task, random.Random(chance.random()), tables, f"{name}-{number}")

    async def _task(self, chance: random.Random, tables: list[Table], name: str) -> None:
        for request in self._requests(chance, name):
            table, began_s = chance.choice(tables), time.monotonic()
            try:
                self._note(request, began_s, await getattr(table, request.method)(*request.params))
            except GossipKVError as error:
                self._note(request, began_s, None, error)
            await trio.sleep(PAUSE_S)

    def _requests(self, chance: random.Random, name: str) -> Iterator[Request]:
        """Generate reads of earlier writes, and writes of shared keys and of keys that are written once."""
        number = 0
        while not self._is_over.is_set():
            number += 1
            drawn = chance.random()
            if drawn < READS and self.writes:
                yield Request("get", chance.choice(self.writes).key)
                continue
            key = chance.choice(SHARED) if chance.random() < SHARES else f"{name}/{number}".encode()
            yield Request("delete", key) if drawn > 1 - DELETES else Request("put", key, f"{name}: {number}".encode())

    def _note(self, request: Request, began_s: float, answer: bytes | None, error: GossipKVError | None = None) -> None:
        ended_s = time.monotonic()
        why = "" if error is None else repr(error)
        if request.method == "get":
            self.reads.append(Read(request.key, answer, began_s, ended_s, why))
            return
        if error is None:
            end = DONE
        elif isinstance(error, Unknown):
            end = OPEN
        # A request that is TimedOut was never sent.
        elif isinstance(error, (Unavailable, Overloaded, NotReady, TimedOut)):
            end = REFUSED
        else:
            raise error
        self.writes.append(Write(request.key, request.value, end, began_s, ended_s, why))


def held(cluster: Cluster, index: int, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """Return the values of these keys in a node's own replicas."""
    with cluster.connect(index, timeout_ms=TIMEOUT_MS) as client:
        found = client.call("get_many", TABLE, [*keys], {"local": True})[0]
    return dict(zip(keys, found, strict=True))


def settled(cluster: Cluster, indexes: Iterable[int], writes: Iterable[Write]) -> dict[str, dict[bytes, bytes | None]]:
    """Return these nodes' values of all written keys, once all are equal or the patience ends."""
    keys = sorted({write.key for write in writes})
    ends: list[dict[bytes, bytes | None]] = []

    def look() -> bool:
        ends[:] = [held(cluster, index, keys) for index in indexes]
        return all(end == ends[0] for end in ends)

    with contextlib.suppress(AssertionError):  # The judge reports differences.
        until(look, lambda are_same: are_same)
    return {f"n{index}": end for index, end in zip(indexes, ends, strict=True)}


def prepare(cluster: Cluster, **changed: int) -> None:
    """Return when all nodes write to a new table."""
    with cluster.connect(1, timeout_ms=TIMEOUT_MS) as client:
        client.call("create_table", TABLE, OPTIONS | changed)
    for node in cluster.status():
        with cluster.connect(node.index, timeout_ms=TIMEOUT_MS) as client:
            until(lambda client=client: client.table(TABLE).delete(b"first", level="all"), lambda _: True)


def lags(cluster: Cluster, index: int) -> dict[str, int]:
    """Return how many records each node lacks, according to a node's `status`."""
    with cluster.connect(index, timeout_ms=TIMEOUT_MS) as client:
        return {node["node"]: node["lag_records"] for node in client.status(TABLE)[TABLE]["nodes"]}


def check(cluster: Cluster, load: Load, indexes: Sequence[int]) -> Judged:
    """Check these nodes against all requests and answers, after the load has ended."""
    judged = judge(load.writes, load.reads, settled(cluster, indexes, load.writes))
    assert judged.faults == []
    assert judged.failed == []
    assert (load.trouble, trouble(cluster)) == ([], [])
    return judged


def trouble(cluster: Cluster) -> list[str]:
    """Return the lines of the nodes' logs that report a defect."""
    lines = [line for node in cluster.status() for line in cluster.log(node.index).splitlines()]
    return [line for line in lines if any(word in line for word in TROUBLE)]
