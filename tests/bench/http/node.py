"""The cost of a get by HTTP for a node, beside MessagePack-RPC and a constant by nginx."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores, free_port

if TYPE_CHECKING:
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

CONNECTIONS = 64


def gets(bench: Bench, *, keys: int = 100_000, run_s: float = 1.5, rounds: int = 5) -> None:
    """Measure the processor time per request of the node and of its gateway, which may get some requests."""
    cores = Cores.of_this_machine()
    records = data.make(keys).records
    with ExitStack() as stack:
        ours, itself = stack.enter_context(http.node_by_http(bench.directory / "node", records, cores))
        asked: list[Server] = [ours, replace(itself, name=goals.MESSAGEPACK)]
        if bench.takes_part(goals.NGINX, http.nginx_missing()):
            address = Address("127.0.0.1", free_port())
            command = http.nginx(bench.directory / "nginx", address)
            asked.append(stack.enter_context(http.peer(goals.NGINX, address, command, http.constants(records), cores)))
        stack.enter_context(machine.pinned(cores.load))
        rows.compare(bench, goals.HTTP_NODE, asked, Shape(CONNECTIONS, run_s=run_s), rounds)
    bench.notes.append(
        f"HTTP get of a node: {CONNECTIONS} connections, values of {data.SMALL_VALUE_BYTES} bytes, every one checked; "
        "the node and its gateway together, on a core that is theirs and each peer's in turn; nginx (one process) "
        "answers constant bytes"
    )
