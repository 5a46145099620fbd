"""What people and programs who look at a node cost it: `/metrics` of many databases, the page of many nodes."""

from __future__ import annotations

import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import process_time_ns
from typing import TYPE_CHECKING

from gossipkv.http.page.rendering import page as render
from gossipkv.http.page.survey import Survey
from gossipkv.http.page.view import view
from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.measurement import Measurement
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape
from tests.bench.serving import Client, node_get, node_value, wait_for
from tests.bench.sources import write_database
from tests.unit.http.page.nodes import large

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.network.servers import Server

MILLISECOND_NS = 1e6
MIB = 1 << 20
READERS = 4
LOOKS = ("/metrics", "/")
LOOK_PERIOD_S = 0.5


@dataclass(frozen=True)
class Load:
    """How much there is to tell of, and how often."""

    databases: int = 100
    nodes: int = 100
    partitions: int = 4_096
    scrapes: int = 20
    run_s: float = 3.0
    rounds: int = 5


def scrapes(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What a scrape costs the gateway, and what scrapes and looks at the page cost reads."""
    cores = servers.Cores.of_this_machine()
    records = data.make(1_000, data.SMALL_VALUE_BYTES).records
    source = directory / "node" / "source"
    source.mkdir(parents=True)
    names = [servers.DATABASE, *(f"db-{number:03}" for number in range(1, load.databases))]
    for name in names:
        write_database(source, name, iter(records))
    rendered: list[float] = []
    moved: list[float] = []
    with http.gateway(directory / "node", records, cores) as (node, gateway):
        _wait_for_all(node, names, records[0])
        with (
            machine.pinned(cores.load),
            rows.open_traffic(node, Shape(goals.HTTP_METRICS_BESIDE, READERS, run_s=load.run_s)) as traffic,
        ):
            for number in range(load.rounds + 1):
                cost_ms = _scrape(gateway, load.scrapes, len(names))
                quiet = rows.run(node, traffic, load.run_s)
                with _looked_at(gateway):
                    watched = rows.run(node, traffic, load.run_s)
                if number > 0:
                    rendered.append(cost_ms)
                    moved.append((watched.p99_us - quiet.p99_us) / 1e3)
                    machine.say(
                        f"    {cost_ms:.1f} ms a scrape; p99 {quiet.p99_us:.0f}, watched {watched.p99_us:.0f} us"
                    )
    yield Measurement(goals.HTTP_METRICS, "ms", http.GATEWAY, {http.GATEWAY: rendered})
    yield Measurement(goals.HTTP_METRICS_BESIDE, "ms", servers.NODE, {servers.NODE: moved})
    notes.append(
        f"`/metrics`: {load.databases} databases on one node, {load.scrapes} scrapes a round, of each the processor "
        f"time of the gateway's process; p99 of {READERS} connections to the node in a closed loop while "
        f"{' and '.join(LOOKS)} are read every {LOOK_PERIOD_S:g} s each, less that without"
    )


def _wait_for_all(node: Server, names: list[str], record: Record) -> None:
    client = Client(node.address.host, node.address.port)
    for name in names:
        wait_for(lambda name=name: client.exchange(node_get(name, record[0]), node_value) == record[1], name)
    client.close()


def _get(gateway: Server, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{gateway.address}{path}", timeout=rows.TIMEOUT_S) as answer:
        body: bytes = answer.read()
        return body


def _scrape(gateway: Server, times: int, databases: int) -> float:
    """Milliseconds of the gateway's processor time a scrape, each of which tells of every database."""
    before_ns = gateway.cpu_ns()
    for _ in range(times):
        told = _get(gateway, "/metrics")
        assert told.count(b"gossipkv_read_hits_total{") == databases, told[:2000]
    return (gateway.cpu_ns() - before_ns) / MILLISECOND_NS / times


@contextmanager
def _looked_at(gateway: Server) -> Iterator[None]:
    """Read all that can be looked at, again and again, in a thread."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_PERIOD_S):
            for path in LOOKS:
                _get(gateway, path)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def page(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What the page of a large cluster takes to make, and how large it is."""
    del directory
    said = large(load.nodes, load.partitions)
    survey = Survey(0.0, said["info"], said["members"], said["status"])
    took_ms, sizes_mib = [], []
    for _ in range(load.rounds + 1):
        before_ns = process_time_ns()
        body = render(view(survey, [], None))
        took_ms.append((process_time_ns() - before_ns) / MILLISECOND_NS)
        sizes_mib.append(len(body) / MIB)
    machine.say(f"    {median(took_ms[1:]):.1f} ms, {sizes_mib[0] * 1024:.0f} KiB")
    yield Measurement(goals.HTTP_PAGE, "ms", http.GATEWAY, {http.GATEWAY: took_ms[1:]})
    yield Measurement(goals.HTTP_PAGE_SIZE, "MiB", http.GATEWAY, {http.GATEWAY: sizes_mib[1:]})
    notes.append(
        f"the page: a database of {load.partitions:,} partitions, two copies of each, on {load.nodes} nodes, as "
        "`status` tells it; processor time from that to HTML, in the process of the benchmark"
    )
