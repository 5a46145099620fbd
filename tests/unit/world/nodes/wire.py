"""A network that runs in virtual time, for the tests of simulated networks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio

from tests.world.nodes import scheduling
from tests.world.nodes.network import SimulatedNetwork
from tests.world.nodes.trace import Trace
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

A, B = "10.0.0.1", "10.0.0.2"


def on_network(check: Callable[[SimulatedNetwork], Awaitable[None]], seed: int = 1) -> SimulatedNetwork:
    """Run `check` on a network with the machines A and B; return the network for its counters."""

    async def main() -> SimulatedNetwork:
        network = SimulatedNetwork(Streams(seed), Counter(), Trace())
        network.running |= {A, B}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(network.run)
            await check(network)
            nursery.cancel_scope.cancel()
        return network

    return scheduling.run(main, seed, limit_s=10_000)
