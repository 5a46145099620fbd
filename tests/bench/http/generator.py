"""The cost and the punctuality of the load generator, beside GossipKV's server and beside redis-benchmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from time import process_time_ns
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import OURS
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape
from tests.bench.processes import DATABASE, NO_POLLING, Cores, children_cpu_s, node

if TYPE_CHECKING:
    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server
    from tests.load import Traffic

CONNECTIONS = 64
DEPTHS = (1, 16)
MICROSECOND_NS = 1e3


def measure(bench: Bench, *, keys: int = 100_000, requests: int = 300_000, run_s: float = 1.5, rounds: int = 5) -> None:
    """Measure the generator's processor time per request, beside that of its server and of redis-benchmark."""
    cores = Cores.of_this_machine()
    records = _records(keys)
    with ExitStack() as stack:
        ours = stack.enter_context(node(bench.directory / "node", records, cores, *NO_POLLING))
        stack.enter_context(machine.pinned(cores.load))
        for row, depth in zip(goals.LOAD_DRIVES, DEPTHS, strict=True):
            with rows.open_traffic(ours, Shape(CONNECTIONS, depth)) as traffic:
                for _ in range(rounds):
                    generator_us, server_us = _used_us(ours, traffic, run_s)
                    bench.add(row, generator_us)
                    bench.add(row, server_us, OURS)
        if not bench.takes_part(goals.REDIS_BENCHMARK, benchmark_missing()):
            return
        redis = stack.enter_context(servers.redis(records, cores.server))
        for row, depth in zip(goals.LOAD_COSTS, DEPTHS, strict=True):
            command = [
                "taskset",
                "-c",
                str(cores.load),
                goals.REDIS_BENCHMARK,
                "-p",
                str(redis.address.port),
                "-t",
                "get",
            ]
            command += ["-c", str(CONNECTIONS), "-P", str(depth), "-r", str(keys), "-n", str(requests), "-q"]

            def theirs_us(command: list[str] = command) -> float:
                before_s = children_cpu_s()
                subprocess.run(command, check=True, capture_output=True)
                return (children_cpu_s() - before_s) * rows.MICROSECONDS / requests

            with rows.open_traffic(redis, Shape(CONNECTIONS, depth)) as traffic:
                own = {goals.GENERATOR: lambda traffic=traffic: _used_us(redis, traffic, run_s)[0]}
                bench.compare(row, own | {goals.REDIS_BENCHMARK: theirs_us}, rounds)
    bench.notes.append(
        f"load generator: {CONNECTIONS} connections, a core of its own, every value checked; beside redis-benchmark, "
        f"which checks nothing, with the same keys and redis-server ({requests:,} requests a run)"
    )


def benchmark_missing() -> str | None:
    """Return the package that redis-benchmark needs here, or None."""
    return servers.redis_missing() or (None if shutil.which(goals.REDIS_BENCHMARK) else "apt-get install redis-tools")


def _records(count: int) -> list[Record]:
    """Return keys as redis-benchmark draws them, with distinct values."""
    return [(b"key:%012d" % number, data.object_of(number)) for number in range(count)]


def _used_us(server: Server, traffic: Traffic, run_s: float) -> tuple[float, float]:
    """Return the processor time per request of the generator in this process, and of the server."""
    before_ns = process_time_ns()
    figure = rows.run(server, traffic, run_s)
    return (process_time_ns() - before_ns) / MICROSECOND_NS / figure.requests, figure.cpu_us


def lateness(bench: Bench, *, keys: int = 100_000, run_s: float = 1.5, rounds: int = 5) -> None:
    """Measure the lateness of requests of an open loop, at half of the rate of a closed one."""
    cores = Cores.of_this_machine()
    records = _records(keys)
    truth = bench.directory / "truth.tsv"
    truth.write_bytes(b"".join(b"%s\t%s\n" % record for record in records))
    with node(bench.directory / "node", records, cores, *NO_POLLING) as server:
        with machine.pinned(cores.load), rows.open_traffic(server, Shape(CONNECTIONS)) as traffic:
            rate = int(rows.MICROSECONDS / rows.run(server, traffic, run_s).wall_us / 2)
        command = ["taskset", "-c", str(cores.load), sys.executable, "-m", "gossipkv", "loadtest", "--json"]
        command += ["--node", str(server.address), "--db", DATABASE, "--truth", str(truth)]
        command += ["--connections", str(CONNECTIONS), "--rate", str(rate), "--duration", f"{run_s:g}s"]

        def late_us() -> float:
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            return json.loads(said)["lateness"]["percentiles"]["99.9"]

        bench.compare(goals.LOAD_LATENESS, {goals.GENERATOR: late_us}, rounds)
    bench.notes.append(f"open loop: `gossipkv loadtest --rate {rate}`, {CONNECTIONS} connections, on a core of its own")
