"""The rows about change feeds: feeds that wait, and one that follows writes, in processor time of all nodes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING

import trio

import gossipkv
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import rows
from tests.bench.processes import cpu_ns, wait_for
from tests.bench.tables import writing
from tests.load import Load, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.address import Address
    from gossipkv.client.changes import Change
    from gossipkv.client.scan import Scan
    from tests.bench.measurement import Bench

PARTITIONS = 64
CLIENTS = 4
LOAD = Load(connections=64, in_flight=16, rate=20_000, timeout_s=rows.TIMEOUT_S, seed=data.SEED)
SETTLE_S = 5.0


class Followers:
    """Feeds of a table by a few clients, in a thread."""

    def __init__(self, address: Address, feeds: int) -> None:
        self.changes, self.begun = 0, 0
        self._address, self._feeds = address, feeds
        self._cancel = trio.CancelScope()

    def run(self) -> None:
        trio.run(self._run)

    def end(self) -> None:
        self._token.run_sync_soon(self._cancel.cancel)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._cancel:
            async with trio.open_nursery() as nursery:
                for number in range(min(CLIENTS, self._feeds)):
                    nursery.start_soon(self._client, len(range(number, self._feeds, CLIENTS)))

    async def _client(self, feeds: int) -> None:
        async with gossipkv.connect(str(self._address)) as client, trio.open_nursery() as nursery:
            for _ in range(feeds):
                match await client.call("changes", writing.TABLE, {}):
                    case [[], bytes(token)]:
                        self.begun += 1
                        nursery.start_soon(self._follow, client.table(writing.TABLE).changes(token=token))
                    case answer:
                        raise WrongAnswerError(f"a feed from now on begins with {answer!r}")

    async def _follow(self, feed: Scan[Change]) -> None:
        async for _ in feed:
            self.changes += 1


@contextmanager
def following(address: Address, feeds: int) -> Iterator[Followers]:
    """Follow the table by so many feeds at a node."""
    followers = Followers(address, feeds)
    thread = threading.Thread(target=followers.run)
    thread.start()
    try:
        wait_for(lambda: followers.begun == feeds, "the feeds begin")
        yield followers
    finally:
        followers.end()
        thread.join()


def measure(bench: Bench, *, feeds: int = 1_000, idle_s: float = 120.0, puts: int = 100_000, rounds: int = 3) -> None:
    with writing.tables(bench.directory / "cluster", PARTITIONS) as asked:
        address, numbers = nodes.addresses(asked.cluster)[0], nodes.processes(asked.cluster)

        def used_ns() -> int:
            return sum(map(cpu_ns, numbers))

        def idle_ms() -> float:
            """Return the milliseconds of a second."""
            sleep(min(SETTLE_S, idle_s))
            before_ns = used_ns()
            sleep(idle_s)
            return (used_ns() - before_ns) / 1e6 / idle_s

        machine.say(f"  {goals.FEEDING}")
        with Traffic(address, writing.puts(0), LOAD) as traffic:

            def written_us(followers: Followers | None = None) -> float:
                before_ns, shown = used_ns(), 0 if followers is None else followers.changes
                rows.checked(traffic.run(requests=puts), OURS)
                if followers is not None:
                    wait_for(lambda: followers.changes - shown >= puts, "all changes are fed")
                return (used_ns() - before_ns) / 1e3 / puts

            for number in range(1 + rounds):
                alone_us = written_us()
                with following(address, 1) as followers:
                    fed_us = written_us(followers) - alone_us
                if number:  # The first round warms up.
                    bench.add(goals.FEEDING, fed_us)
                    bench.add(goals.FEEDING, alone_us, goals.WRITING)
        machine.say(f"  {goals.FEEDS_IDLE}")
        for _ in range(rounds):
            without_ms = idle_ms()
            with following(address, feeds):
                bench.add(goals.FEEDS_IDLE, idle_ms() - without_ms)
    bench.notes.append(
        f"Feeds: {PARTITIONS} partitions of three replicas on three nodes, followed at one node; {feeds:,} feeds over "
        f"{CLIENTS} connections for {idle_s:g} s, less the same nodes without feeds; {puts:,} puts a round, "
        f"{LOAD.rate:,} a second over {LOAD.connections} connections, with one feed, less those without"
    )
