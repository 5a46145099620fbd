"""What the load generator costs, and how punctual it is: beside our own server, and beside redis-benchmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time_ns
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.network.servers import Cores, Server

CONNECTIONS = 64
DEPTHS = (1, 16)
GENERATOR, REDIS_BENCHMARK = "load generator", "redis-benchmark"
MICROSECOND_NS = 1e3


@dataclass(frozen=True)
class Load:
    """How much is asked, and how often."""

    keys: int = 100_000
    requests: int = 300_000  # Of one run of redis-benchmark.
    run_s: float = 1.5
    rounds: int = 5


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Processor time a request of the generator, beside that of the server it drives, and of redis-benchmark."""
    cores = servers.Cores.of_this_machine()
    records = _records(load.keys)
    with ExitStack() as stack:
        node = stack.enter_context(servers.node(directory / "node", records, cores, "--busy-poll", "off"))
        redis = stack.enter_context(servers.redis(records, cores))
        stack.enter_context(machine.pinned(cores.load))
        for row, depth in zip(goals.LOAD_DRIVES, DEPTHS, strict=True):
            yield _beside_its_server(row, node, depth, load)
        if redis is not None and shutil.which(REDIS_BENCHMARK):
            for row, depth in zip(goals.LOAD_COSTS, DEPTHS, strict=True):
                yield _beside_redis_benchmark(row, redis, depth, load, cores)
    notes.append(
        f"load generator: {CONNECTIONS} connections, a core of its own, every value checked; its processor time a "
        "request beside that of the node which it drives (less than one: it drives more than the node answers), and "
        f"beside redis-benchmark, which checks nothing, with the same keys and redis-server ({load.requests:,} "
        "requests a run)"
    )


def _records(count: int) -> list[Record]:
    """Keys as redis-benchmark draws them, and values of their own."""
    values = data.make(count, data.SMALL_VALUE_BYTES).records
    return [(b"key:%012d" % number, value) for number, (_, value) in enumerate(values)]


def _beside_its_server(row: str, node: Server, depth: int, load: Load) -> Measurement:
    machine.say(f"  {row}")
    shape = Shape(row, CONNECTIONS, depth, run_s=load.run_s)
    samples: dict[str, list[float]] = {GENERATOR: [], servers.NODE: []}
    with rows.open_traffic(node, shape) as traffic:
        for number in range(load.rounds + 1):
            before_ns = process_time_ns()
            figure = rows.run(node, traffic, load.run_s)
            used_us = (process_time_ns() - before_ns) / MICROSECOND_NS / figure.requests
            if number > 0:
                samples[GENERATOR].append(used_us)
                samples[servers.NODE].append(figure.cpu_us)
    return _said(Measurement(row, "us", GENERATOR, samples))


def _beside_redis_benchmark(row: str, redis: Server, depth: int, load: Load, cores: Cores) -> Measurement:
    machine.say(f"  {row}")
    shape = Shape(row, CONNECTIONS, depth, run_s=load.run_s)
    command = ["taskset", "-c", str(cores.load), REDIS_BENCHMARK, "-p", str(redis.address.port), "-t", "get"]
    command += ["-c", str(CONNECTIONS), "-P", str(depth), "-r", str(load.keys), "-n", str(load.requests), "-q"]
    samples: dict[str, list[float]] = {GENERATOR: [], REDIS_BENCHMARK: []}
    with rows.open_traffic(redis, shape) as traffic:
        for number in range(load.rounds + 1):
            before_ns = process_time_ns()
            figure = rows.run(redis, traffic, load.run_s)
            ours_us = (process_time_ns() - before_ns) / MICROSECOND_NS / figure.requests
            before_s = _children_s()
            subprocess.run(command, check=True, capture_output=True)
            theirs_us = (_children_s() - before_s) * rows.MICROSECONDS / load.requests
            if number > 0:
                samples[GENERATOR].append(ours_us)
                samples[REDIS_BENCHMARK].append(theirs_us)
    return _said(Measurement(row, "us", GENERATOR, samples))


def _children_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _said(measurement: Measurement) -> Measurement:
    for name in measurement.samples:
        machine.say(f"    {name:16} CPU {measurement.typical(name):8.3f} us")
    return measurement


def lateness(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """How late requests of an open loop go out, at half of what the node answers in a closed one."""
    cores = servers.Cores.of_this_machine()
    records = _records(load.keys)
    truth = directory / "truth.tsv"
    truth.write_bytes(b"".join(b"%s\t%s\n" % record for record in records))
    samples: list[float] = []
    with servers.node(directory / "node", records, cores, "--busy-poll", "off") as node:
        with machine.pinned(cores.load), rows.open_traffic(node, Shape("capacity", CONNECTIONS)) as traffic:
            rate = int(rows.MICROSECONDS / rows.run(node, traffic, load.run_s).wall_us / 2)
        command = ["taskset", "-c", str(cores.load), sys.executable, "-m", "gossipkv", "loadtest", "--json"]
        command += ["--node", str(node.address), "--db", servers.DATABASE, "--truth", str(truth)]
        command += ["--connections", str(CONNECTIONS), "--rate", str(rate), "--duration", f"{load.run_s:g}s"]
        for number in range(load.rounds + 1):
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            if number > 0:
                samples.append(_late_us(json.loads(said)))
    yield Measurement(goals.LOAD_LATENESS, "us", GENERATOR, {GENERATOR: samples})
    notes.append(
        f"open loop: `gossipkv loadtest --rate {rate}`, {CONNECTIONS} connections, half of what the node answers in a "
        "closed loop, on a core of its own; how much later than due a request went out, of each run the p99.9"
    )


def _late_us(result: dict[str, dict[str, dict[str, float]]]) -> float:
    return result["lateness"]["percentiles"]["99.9"]
