"""All serving loops of a node: they publish the same data, learn the same peers, and are counted together.

The first loop accepts, and lives on Trio's thread; each other loop has a thread of its own (`loop/core_lock.pyx`).
Data changes for all loops at one moment: a *generation* is published while no loop is in a step. So a client that has
seen a new version on one connection never meets an older one on another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar, final

import trio

from gossipkv.environment.cores import cores
from gossipkv.log import Log
from gossipkv.replication.replica.calm import CalmTable
from gossipkv.serving.loop import Loop, make_core, make_loop_group
from gossipkv.serving.published import Published
from gossipkv.serving.pump import Pump
from gossipkv.wire.latency import LatencyHistogram
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from gossipkv.environment.seam import ByteStream, Environment, SocketListener
    from gossipkv.serving.loop import Caller, Core, Tls
    from gossipkv.serving.pump import Answers, DetachedSink, MakeTransport, PumpPeers
    from gossipkv.settings.config import Config
    from gossipkv.wire.arguments import Arguments

_Each = TypeVar("_Each")

MAX_ID = (1 << 32) - 1  # The largest id of a request in MessagePack-RPC.

# At most one line per minute and reason is logged.
REPORT_PERIOD_S = 60.0

# Counters that an operator should hear of.
TROUBLES = (
    "connections_refused",
    "connections_refused_by_address",
    "accept_pauses",
    "replies_dropped",
    "replies_too_large",
    "notifications_ignored",
    "duplicate_ids",
    "bad_requests",
    "closed_reset",
    "overloaded",
    "frames_too_large",
    "frames_too_deep",
    "frames_too_many_elements",
    "frames_malformed",
    "closed_bad_message",
    "closed_handshake",
    "closed_unproven",
    "closed_unasked_response",
    "closed_frame_timeout",
    "closed_output_timeout",
    "closed_memory",
    "closed_bad_answer",
    "closed_unauthorized",
    "closed_abandoned",
    "forward_failed",
)


def polls(busy_poll: str, cores_here: int | None = None, pumps: int = 1) -> bool:
    """True if serving loops may busy-poll instead of sleeping: without a spare core they would hinder the clients."""
    return busy_poll == "on" or (busy_poll == "auto" and (cores() if cores_here is None else cores_here) > pumps)


@final
class Pumps:
    """The `count` serving loops of a node; `seed` gives each loop its seed for the order in which it asks other nodes.

    `readable` returns by user the readable ones of these databases, and `wants_tokens` returns True if clients without
    a token may do nothing, both as `Core.let_read` takes them. `user_named` maps a certificate's name to a user number.
    `is_dataset` returns True for names that go before a table of that name.
    """

    def __init__(
        self,
        config: Config,
        count: int,
        *,
        seed: Callable[[], int],
        node: str,
        readable: Callable[[Sequence[str]], list[bytes | None]] = lambda _databases: [],
        wants_tokens: Callable[[], bool] = lambda: False,
        user_named: Callable[[str], int] = lambda _name: 0,
        is_dataset: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        group = make_loop_group(config, count)
        self._cores = [make_core(config, seed=seed(), node=node, group=group, pump=number) for number in range(count)]
        self._locks = [core.lock or nullcontext() for core in self._cores]
        self._tables = [Published().table() for _ in self._cores]
        self._readable, self._wants_tokens, self._user_named = readable, wants_tokens, user_named
        self._is_dataset = is_dataset
        self._published, self._calm = Published(), list[CalmTable]()
        self._databases: list[str] = []
        self._loops: list[Loop] = []
        self._pumps: list[Pump] = []
        self._max_polls = max(1, config.max_in_flight // 2)
        self._log = Log("gossipkv.node")

    # State set on all loops

    @property
    def guards(self) -> Sequence[object]:
        """For each loop after the first, the guard of its twins of files."""
        return [core.lock for core in self._cores if core.lock is not None]

    def serve_tables(self, tables: Iterable[CalmTable]) -> None:
        """Read the calm replicas of these tables from now on, on all loops."""
        self._calm = [*tables]
        self.publish(self._published)

    def expire_from(self, least_ms: int, most_ahead_ms: int) -> None:
        """Let records of tables expire by that time of day at least, if it is at most so far ahead of the clock."""
        for core in self._in_turns(self._cores):
            core.expire_from(least_ms, most_ahead_ms)

    def begin_writes(self) -> None:
        """Begin the writes that were left with the loops."""
        for pump in self._pumps:
            pump.begin_writes()

    def publish(self, published: Published) -> None:
        """Serve this data from now on, on all loops."""
        calm = [table for table in self._calm if not self._is_dataset(table.name)]
        self._published = published
        self._databases = [*published.databases, *(table.name for table in calm)]
        tables = [published.table(core.lock, calm) for core in self._cores]
        bitmaps = self._readable(self._databases)
        with self._all_turns():
            for core, table in zip(self._cores, tables, strict=True):
                core.publish(table)
                core.let_read(bitmaps, wants_tokens=self._wants_tokens())
        self._tables = tables

    def users_changed(self, invalid: Sequence[int]) -> None:
        """Apply the present rights of users, and end the connections of removed ones."""
        bitmaps = self._readable(self._databases)
        for core in self._in_turns(self._cores):
            core.let_read(bitmaps, wants_tokens=self._wants_tokens())
        for pump in self._pumps:
            pump.end_those_of(invalid)

    def know_types(self, usual: str, by_database: dict[str, str]) -> None:
        """Set the media types of values over HTTP: by database, and `usual` for the others."""
        for core in self._in_turns(self._cores):
            core.know_types(usual, by_database)

    def set_holder(self, wire_id: bytes, partitions: int, column: int, bitmap: bytes) -> None:
        """Record which of an identity's partitions a peer holds."""
        for core in self._in_turns(self._cores):
            core.set_holder(wire_id, partitions, column, bitmap)

    def release(self) -> None:
        """Release every file, after the last request."""
        for table in self._tables:
            table.release()

    # Counts

    def count(self, database: str, version: str, *, by_name: bool) -> None:
        """Count a request that Python answered."""
        self._tables[0].count(database, version, by_name)

    def requests_of(self, database: str, version: str) -> int:
        """Return requests so far that this version answered."""
        return sum(table.requests_of(database, version) for table in self._in_turns(self._tables))

    def reads(self) -> dict[str, dict[str, int]]:
        """Return the counts since the start: `{database: {name: count}}`."""
        totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for table in self._in_turns(self._tables):
            for database, counts in table.reads().items():
                totals[database].update(counts)
        return {database: dict(counts) for database, counts in totals.items()}

    def counters(self) -> dict[str, int]:
        """Return every counter, and the current levels."""
        totals: Counter[str] = Counter()
        for counters in self.counters_by_loop():
            totals.update(counters)
        return dict(totals)

    def counters_by_loop(self) -> list[dict[str, int]]:
        """Return the counters of each loop; polls for maps are no requests in progress."""
        counted = [core.counters() for core in self._in_turns(self._cores)]
        for counts, pump in zip(counted, self._pumps, strict=False):  # There are no pumps before the start.
            counts["in_flight"] -= pump.map_polls
        return counted

    def latency(self) -> dict[str, LatencyHistogram]:
        """Return histograms of answer times, over all loops."""
        totals: defaultdict[str, LatencyHistogram] = defaultdict(LatencyHistogram)
        for core in self._in_turns(self._cores):
            for name, histogram in core.latency().items():
                totals[name].add(histogram)
        return dict(totals)

    # Life of the loops

    def open(
        self,
        make_transport: MakeTransport,
        listener: SocketListener,
        *beside: SocketListener | None,
        polls: bool,
    ) -> None:
        """Make a loop for each core. The first loop accepts, also from the listeners `beside` for RESP and HTTP."""
        first, *further = self._cores
        self._loops.append(Loop(first, make_transport(listener, *beside, polls=polls)))
        for core in further:
            self._loops.append(Loop(core, make_transport(None, polls=polls)))

    def use_tls(self, tls: Tls) -> None:
        """Use TLS on new connections to the listeners that `tls` names."""
        for loop in self._in_turns(self._loops):
            loop.use_tls(tls, self._user_named)

    def serve_gateway(self, descriptor: int) -> None:
        """Serve this node's own gateway at that end of a socket pair, which the loop closes."""
        with self._locks[0]:
            self._loops[0].serve_gateway(descriptor)

    def proven(self) -> bytes | tuple[str, ...] | None:
        """Return the uuid or the names that the certificate of the node now being answered proves; None: none."""
        for loop in self._loops:
            if (proven := loop.proven) is not None:
                return proven
        return None

    async def run(
        self,
        environment: Environment,
        answers: Answers,
        peers: Sequence[PumpPeers],
        *,
        gateway: DetachedSink | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until drained or cancelled; each loop has its own one of `peers`, and all share `gateway`."""
        make_pump = partial(Pump, max_polls=self._max_polls, threads=environment.threads, gateway=gateway)
        for core, loop, theirs in zip(self._cores, self._loops, peers, strict=True):
            self._pumps.append(make_pump(core, loop, environment.sockets, answers, theirs))
        async with trio.open_nursery() as beside:
            beside.start_soon(self._report)
            async with trio.open_nursery() as nursery:
                for pump in self._pumps:
                    await nursery.start(pump.run)
                task_status.started()
            beside.cancel_scope.cancel()

    async def drain(self, timeout_s: float) -> bool:
        """End politely. Return True if all received requests were answered within the time."""
        done: list[bool] = []

        async def drain(pump: Pump) -> None:
            done.append(await pump.drain(timeout_s))

        if self._loops:
            # The accepting loop refuses first, so that a client of another loop is refused rather than cut off.
            self._loops[0].drain()
        async with trio.open_nursery() as nursery:
            for pump in self._pumps:
                nursery.start_soon(drain, pump)
        return all(done)

    async def pass_round(self) -> None:
        """Return once each loop has completed a round that begins from now on."""
        for pump in self._pumps:
            await pump.pass_round()

    def cancel(self, arguments: Arguments, caller: Caller) -> Later:
        """Answer `cancel [request]`: answer that request of the same connection now, if it waits.

        This is done once all earlier requests of the connection have begun, also if they came in the same packet.
        """
        msgid = arguments.whole("request", MAX_ID)
        arguments.end()
        return Later(partial(self._pumps[caller.pump].cancel, caller.handle, msgid))

    @property
    def are_running(self) -> bool:
        """True if the loops serve, or have served."""
        return bool(self._pumps)

    async def _report(self) -> None:
        """Log one line a minute for each reason that has occurred."""
        before = self.counters()
        while True:
            await trio.sleep(REPORT_PERIOD_S)
            now = self.counters()
            for name in TROUBLES:
                if now[name] > before[name]:
                    self._log.warning("connection_trouble", reason=name, count=now[name] - before[name])
            before = now

    def ways(self, number: int) -> Ways:
        """Return the peer interface of one loop."""
        return Ways(self._cores[number], self._locks[number], lambda: self._loops[number])

    def __len__(self) -> int:
        return len(self._cores)

    @contextmanager
    def _all_turns(self) -> Iterator[None]:
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)
            yield

    def _in_turns(self, items: Iterable[_Each]) -> Iterator[_Each]:
        """Yield each loop's item while holding the loop's core lock."""
        for lock, item in zip(self._locks, items, strict=True):
            with lock:
                yield item


@final
class Ways:
    """The peer interface of one serving loop; each call takes the core lock."""

    def __init__(self, core: Core, lock: AbstractContextManager[object], loop: Callable[[], Loop]) -> None:
        self._core, self._lock, self._loop = core, lock, loop

    def set_peer(self, column: int, name: str, state: int) -> None:
        """Record a member under that column with its state: 0 ALIVE, 1 SUSPECT, 2 DEAD."""
        with self._lock:
            self._core.set_peer(column, name, state)

    def end_peer(self, column: int) -> None:
        """End the connection to the member."""
        with self._lock:
            self._core.end_peer(column)

    def forget_peer(self, column: int) -> None:
        """Forget the member, and end its connection."""
        with self._lock:
            self._core.forget_peer(column)

    def ask(self, column: int, method: bytes, params: bytes, timeout_ms: int) -> int:
        """Send a request in the next step. Return the token of its answer, or 0 if the peer cannot be asked now."""
        with self._lock:
            return self._core.ask(column, method, params, timeout_ms)

    def adopt(self, column: int, stream: ByteStream) -> None:
        """Use this connection, on which `hello` is done, for requests to the peer from now on."""
        with self._lock:
            self._loop().adopt(column, stream.detach())

    def wake(self) -> None:
        """Start a step that sends the waiting requests."""
        with self._lock:
            self._loop().wake()
