"""What people and programs who look at a node cost it: `/metrics` of many databases, the page of many nodes."""

from __future__ import annotations

import threading
import urllib.request
from contextlib import contextmanager
from time import process_time_ns
from typing import TYPE_CHECKING

from gossipkv.http.page.rendering import page as render
from gossipkv.http.page.survey import Survey
from gossipkv.http.page.view import view
from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import DATABASE, Cores, wait_for_records
from tests.bench.sources import write_database
from tests.unit.http.page.nodes import judged, large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.measurement import Bench, Row
    from tests.bench.processes import Server

MILLISECOND_NS = 1e6
MIB = 1 << 20
READERS = 4
LOOKS = ("/metrics", "/")
LOOK_PERIOD_S = 0.5


def scrapes(bench: Bench, *, databases: int = 100, scrapes: int = 20, run_s: float = 3.0, rounds: int = 5) -> None:
    """What a scrape costs the gateway, and what scrapes and looks at the page cost reads."""
    cores = Cores.of_this_machine()
    records = data.make(1_000).records
    names = [DATABASE, *(f"db-{number:03}" for number in range(1, databases))]
    for name in names:
        write_database(bench.directory / "node" / "source", name, records)
    with http.gateway(bench.directory / "node", records, cores) as (node, gateway):
        wait_for_records(node.address, [(name, records[0]) for name in names])
        with machine.pinned(cores.load), rows.open_traffic(node, Shape(READERS)) as traffic:
            for _ in range(rounds):
                bench.add(goals.HTTP_METRICS, _scrape(gateway, scrapes, len(names)))
                quiet = rows.run(node, traffic, run_s)
                with _looked_at(gateway):
                    watched = rows.run(node, traffic, run_s)
                bench.add(goals.HTTP_METRICS_BESIDE, (watched.p99_us - quiet.p99_us) / 1e3)
    bench.notes.append(
        f"`/metrics`: {databases} databases on one node, {scrapes} scrapes a round; p99 of {READERS} connections in a "
        f"closed loop while {' and '.join(LOOKS)} are read every {LOOK_PERIOD_S:g} s each, less that without"
    )


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


def page(bench: Bench, *, nodes: int = 100, partitions: int = 4_096, rounds: int = 5) -> None:
    """What the page of a large cluster takes to make, and how large it is."""
    said = large(nodes, partitions)
    survey = Survey(0.0, said["info"], said["members"], said["status"], judged(said))

    def rendered() -> dict[Row, float]:
        before_ns = process_time_ns()
        body = render(view(survey, [], None))
        took_ms = (process_time_ns() - before_ns) / MILLISECOND_NS
        return {goals.HTTP_PAGE: took_ms, goals.HTTP_PAGE_SIZE: len(body) / MIB}

    bench.compare(goals.HTTP_PAGE, {goals.GATEWAY: rendered}, rounds)
    bench.notes.append(
        f"the page: a database of {partitions:,} partitions, two copies of each, on {nodes} nodes, as "
        "`status` and the verdict tell it; processor time from that to HTML, in the process of the benchmark"
    )
