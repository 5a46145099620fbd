"""Machines on a simulated network, each with a whole node, and clients that ask them.

    async def scenario(cluster: SimulatedCluster) -> None:
        a, b, c = cluster.machines
        await a.start()
        ...
        assert await cluster.ask(a, "ping") == "pong"

    run = simulate(scenario, seed, machines=3)

`@simulated(3)` turns such a scenario into a test, whose first parameter is the cluster.

The same scenario and seed give the same `run.trace`, in any process.  A defect of a node (any
error but a GossipKVError; a log line `internal_error` or `invariant_broken`) ends the run and is raised.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import update_wrapper
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, final
from unittest.mock import patch

import trio

from gossipkv.address import DEFAULT_PORT, Address
from gossipkv.errors import TimedOut, Unavailable
from gossipkv.node.gossip import Gossiping
from gossipkv.node.methods import Handlers
from gossipkv.settings.config import Config
from gossipkv.wire import rpc
from gossipkv.wire.frames import FrameReader
from tests.world.logs import heard_by
from tests.world.nodes import scheduling
from tests.world.nodes.machine import SPEAKER, NodeMachine, speaker
from tests.world.nodes.network import SimulatedNetwork, connect
from tests.world.nodes.sockets import SimulatedStream
from tests.world.nodes.trace import Trace
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from gossipkv.environment.seam import Datagrams, Environment
    from gossipkv.gossip.packets.sealing import Sealing
    from gossipkv.node.directory import DataDirectory
    from gossipkv.serving._serving import GatheredWrites
    from gossipkv.wire.rpc import Response, Value


@final
class Connection:
    def __init__(self, stream: SimulatedStream, address: Address) -> None:
        self._stream = stream
        self._address = address
        self._reader = FrameReader()
        self.sent = 0

    async def send(self, method: str, *params: Value) -> None:
        self.sent += 1
        await self.send_bytes(rpc.request(self.sent, method, params))

    async def send_bytes(self, frames: bytes) -> None:
        await self._stream.send_all(frames)

    async def close(self) -> None:
        await self._stream.aclose()

    async def read(self) -> Response:
        """Return the next answer.

        Raises:
            Unavailable: the connection ended before the answer.
            OSError: the connection broke.
        """
        while True:
            for frame in self._reader:
                return rpc.decode_response(frame)
            data = await self._stream.receive_some(65_536)
            if not data:
                raise Unavailable(f"{self._address}: the connection ended before the answer")
            self._reader.feed(data)


@asynccontextmanager
async def _connected(network: SimulatedNetwork, host: str, address: Address) -> AsyncIterator[Connection]:
    """Connect from the machine `host`.

    Raises:
        OSError: the connection failed.
    """
    stream = SimulatedStream(await connect(network, host, address))
    try:
        yield Connection(stream, address)
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()


async def _ask(
    network: SimulatedNetwork, host: str, address: Address, method: str, *params: Value, timeout_s: float = 10.0
) -> Value:
    """Return the answer of the node at `address` to the machine `host`.

    Raises:
        GossipKVError: the node's error, or that the node is unreachable or late.
    """
    try:
        with trio.fail_after(timeout_s):
            async with _connected(network, host, address) as connection:
                await connection.send(method, *params)
                response = await connection.read()
    except trio.TooSlowError:
        raise TimedOut(f"{address}: no answer within {timeout_s} s") from None
    except OSError as error:
        raise Unavailable(f"{address}: {error.strerror}") from error
    if response.error is not None:
        raise response.error
    return response.result


P = ParamSpec("P")

LIMIT_S: Final = 3600.0
CLIENT: Final = "10.1.0.1"  # The machine of the clients.


# Clocks differ by hours, and nodes must still accept writes.
USUAL: Final = Config(
    data=Path("/data"), backup_roots=("/backups",), cluster="simulated", max_clock_skew=86_400_000, pumps=1
)


class Defect(Exception):
    """A node has logged a defect of its own."""


class Violation(AssertionError):
    """A node has shown a forbidden state."""


class WholeRun(NamedTuple):
    trace: str  # Equal runs have equal traces.
    lines: list[str]  # The last lines of the trace.
    struck: Counter[str]  # The strikes of each fault; and how many writes loops gathered, and lives had no fast path.
    virtual_s: float


@final
class SimulatedCluster:
    def __init__(self, seed: int, nursery: trio.Nursery, trace: Trace, configs: Sequence[Config]) -> None:
        self.streams = Streams(seed)
        self.chance = self.streams["scenario"]
        self.trace = trace
        self.struck: Counter[str] = Counter()
        self.network = SimulatedNetwork(self.streams, self.struck, trace)
        self.network.running.add(CLIENT)
        self.machines = [
            NodeMachine(self.network, config, self.streams[f"node/{config.node}"], nursery) for config in configs
        ]

    async def ask(self, machine: NodeMachine, method: str, *params: Value, timeout_s: float = 10.0) -> Value:
        """Return a node's answer to a client.

        Raises:
            GossipKVError: the node's error, or that the node is unreachable or late.
        """
        return await _ask(self.network, CLIENT, machine.address, method, *params, timeout_s=timeout_s)

    def connected(self, machine: NodeMachine) -> AbstractAsyncContextManager[Connection]:
        """Open a client's connection to a node.  Raises `OSError`."""
        return _connected(self.network, CLIENT, machine.address)

    async def until(self, holds: Callable[[], Awaitable[bool]], *, within_s: float, every_s: float = 0.25) -> float:
        """Wait until `holds` is true; return the seconds that took.

        Raises:
            AssertionError: it was not true within `within_s`.
        """
        began_s = trio.current_time()
        while not await holds():
            if trio.current_time() - began_s >= within_s:
                raise AssertionError(f"after {within_s} s it does not hold: {holds.__doc__ or holds.__name__}")
            await trio.sleep(every_s)
        return trio.current_time() - began_s


def placed(config: Config, number: int) -> Config:
    """Return the config of the node `n<number>`, on a machine of its own."""
    place = Address(f"10.0.0.{number}", DEFAULT_PORT)
    return replace(config, listen=place, node=f"n{number}", insecure_gossip=config.key_ring is None)


def simulate(
    scenario: Callable[[SimulatedCluster], Awaitable[None]],
    seed: int,
    *,
    machines: int,
    limit_s: float = LIMIT_S,
    config: Config = USUAL,
    trace: Trace | None = None,
) -> WholeRun:
    """Run a scenario on `machines` nodes with this config, apart from their names and addresses.

    The events go into `trace`, so that a caller also has them of a run that fails.

    Raises:
        Exception: any error of the scenario; Defect: a node has logged a defect.
    """
    trace = Trace() if trace is None else trace

    async def main() -> WholeRun:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(
                seed, nursery, trace, [placed(config, number) for number in range(1, machines + 1)]
            )
            nursery.start_soon(cluster.network.run)
            await scenario(cluster)
            for machine in cluster.machines:
                machine.kill()
            nursery.cancel_scope.cancel()
        return WholeRun(trace.digest, list(trace.lines), cluster.struck, trio.current_time())

    with _lines_to(trace), _gossiping_known(), _gathered_counted():
        try:
            return scheduling.run(main, seed, limit_s=limit_s)
        except BaseExceptionGroup as group:
            raise gravest(group) from None


def simulated(
    machines: int, *, seed: int = 1, limit_s: float = LIMIT_S, config: Config = USUAL
) -> Callable[[Callable[Concatenate[SimulatedCluster, P], Awaitable[None]]], Callable[P, None]]:
    """Turn a scenario into a test: its first parameter is the cluster, the others are the test's own."""

    def decorate(scenario: Callable[Concatenate[SimulatedCluster, P], Awaitable[None]]) -> Callable[P, None]:
        def test(*args: P.args, **given: P.kwargs) -> None:
            def whole(cluster: SimulatedCluster) -> Awaitable[None]:
                return scenario(cluster, *args, **given)

            simulate(whole, seed, machines=machines, limit_s=limit_s, config=config)

        _, *parameters = signature(scenario).parameters.values()
        update_wrapper(test, scenario)
        test.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # Read by pytest.
        return test

    return decorate


def gravest(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most telling error: a defect, a violation, or any other; the rest become notes."""
    errors = sorted(_leaves(group), key=_gravity)
    for other in errors[1:]:
        errors[0].add_note(f"and {other!r}")
    return errors[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _gravity(error: BaseException) -> int:
    kinds = (Defect, Violation, AssertionError)
    return next((number for number, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


@contextmanager
def _gossiping_known() -> Iterator[None]:
    """Record on each machine the gossip of its node."""

    def make(
        config: Config,
        environment: Environment,
        directory: DataDirectory,
        *,
        datagrams: Datagrams,
        address: Address,
        sealing: Sealing | None,
    ) -> Gossiping:
        made = Gossiping(config, environment, directory, datagrams=datagrams, address=address, sealing=sealing)
        machine = SPEAKER.get()
        if machine is not None:
            machine.gossiping = made
        return made

    with patch("gossipkv.node.wiring.Gossiping", make):
        yield


@contextmanager
def _gathered_counted() -> Iterator[None]:
    """Count the writes that serving loops gather."""
    begin_writes = Handlers.begin_writes

    def count(self: Handlers, gathered: list[GatheredWrites], *, may_wait: bool) -> bool:
        is_over = begin_writes(self, gathered, may_wait=may_wait)
        machine = SPEAKER.get()
        if machine is not None:
            machine.struck["gathered"] += sum(len(writes.writes) for writes in gathered if writes.has_begun)
        return is_over

    with patch.object(Handlers, "begin_writes", count):
        yield


@contextmanager
def _lines_to(trace: Trace) -> Iterator[None]:
    """Write the nodes' logs into the trace."""

    def take(level: str, event: str, fields: Mapping[str, object], error: BaseException | None) -> None:
        whole = {**fields, "event": event}
        said = " ".join(f"{name}={whole[name]}" for name in sorted(whole))
        trace.note(speaker(), level, said)
        if event in {"internal_error", "invariant_broken"}:
            raise Defect(f"{speaker()}: {said}") from error

    with heard_by(take, "info"):
        yield
