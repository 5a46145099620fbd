"""The rows about reads: of a table and of a dataset with the same records at the same node, under the same load."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.http.servers import node_by_http
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import one_core, rows, several_pumps
from tests.bench.network.rows import Shape
from tests.bench.network.servers import protocols
from tests.bench.processes import (
    DATABASE,
    MANY_CONNECTIONS,
    NO_POLLING,
    Cores,
    connect,
    free_port,
    node,
    pin,
    serve,
    serving,
    wait_for,
)  # fmt: skip
from tests.bench.tables import writing
from tests.load import HttpDialect, RedisDialect, RpcDialect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

RESP_DATABASE = 1


def measure(bench: Bench, keys: int, scanned: int, run_s: float, rounds: int) -> None:
    cores, records = Cores.of_this_machine(), data.make(keys).records
    resp = Address("127.0.0.1", free_port())
    options = ("--resp-listen", str(resp), "--resp-databases", writing.TABLE)
    with ExitStack() as stack:
        by_http, dataset = stack.enter_context(node_by_http(bench.directory / "node", records, cores, *options))
        dataset = replace(dataset, name=goals.DATASET)
        writing.fill(dataset.address, records, writing.PARTITIONS)
        stack.enter_context(machine.pinned(cores.load))
        table = replace(dataset, name=OURS, dialect=RpcDialect(writing.TABLE, records))
        for row, shape in (
            (goals.TABLE_GET, Shape(64, run_s=run_s)),
            (goals.TABLE_GET_PIPELINED, Shape(64, 16, run_s=run_s)),
            (goals.TABLE_GET_MANY, Shape(16, 1, one_core.BATCH, run_s)),
        ):
            rows.compare(bench, row, [table, dataset], shape, rounds)
        token = _token_at_rest(table, records)
        with_token = replace(table, dialect=protocols().TokenDialect(writing.TABLE.encode(), records, token))
        rows.compare(bench, goals.TABLE_GET_TOKEN, [with_token, dataset], Shape(64, run_s=run_s), rounds)
        itself = replace(table, name=goals.MESSAGEPACK)
        by_resp = replace(table, address=resp, dialect=RedisDialect(records, database=RESP_DATABASE))
        rows.compare(bench, goals.TABLE_RESP_GET, [by_resp, itself], Shape(64, run_s=run_s), rounds)
        by_http = replace(by_http, dialect=HttpDialect(writing.TABLE, str(by_http.address), records))
        rows.compare(bench, goals.TABLE_HTTP_GET, [by_http, itself], Shape(64, run_s=run_s), rounds)
        _sets(bench, replace(table, address=resp), itself, run_s, rounds)
    _scans(bench, scanned, cores, rounds)
    _two_pumps(bench, keys, run_s, rounds)
    bench.notes.append(
        f"gets: {keys:,} records of {data.RECORD_BYTES} B, {writing.PARTITIONS} partitions, one node that has table "
        f"and dataset; the token is that of records at rest; scans: {scanned:,} records; every value checked"
    )


def _token_at_rest(table: Server, records: list[Record]) -> bytes:
    """Return the token of all gets, once all replicas have the records: it names only the config."""
    with connect(table.address) as client:

        def tokens() -> set[bytes]:
            return {client.call("get", writing.TABLE, key)[1] for key, _ in records[:1_000]}

        wait_for(lambda: len(tokens()) == 1, "the records to settle")
        return tokens().pop()


def _sets(bench: Bench, by_resp: Server, itself: Server, run_s: float, rounds: int) -> None:
    """Compare puts by both protocols, at the same node."""
    servers = [
        replace(by_resp, dialect=protocols().SetDialect(0, database=RESP_DATABASE)),
        replace(itself, dialect=writing.puts(1 << 40)),
    ]
    rows.compare(bench, goals.TABLE_RESP_SET, servers, Shape(64, run_s=run_s), rounds)
    for server in servers:
        first = 1 << 40 if server.name == goals.MESSAGEPACK else 0
        writing.wait_for_numbered(itself.address, range(first, server.dialect.next))


def _scans(bench: Bench, count: int, cores: Cores, rounds: int) -> None:
    records = data.make(count).records
    expected = sorted(records)
    with node(bench.directory / "scanned", records, cores, *NO_POLLING) as server, connect(server.address) as client:
        writing.fill(server.address, records, writing.PARTITIONS)
        client.call("delete", writing.TABLE, b"first")

        def record_ns(scan: Iterable[Record]) -> float:
            before_ns = server.cpu_ns()
            found = [tuple(record) for record in scan]
            used_ns = server.cpu_ns() - before_ns
            if found != expected:
                raise WrongAnswerError("a scan is not as it should be")
            return used_ns / count

        sides = {
            OURS: lambda: record_ns(client.table(writing.TABLE).scan()),
            goals.DATASET: lambda: record_ns(client.dataset(DATABASE).scan()),
        }
        bench.compare(goals.TABLE_SCAN, sides, rounds)


def _two_pumps(bench: Bench, keys: int, run_s: float, rounds: int) -> None:
    """Compare nodes with one loop and with two on both cores, which two clients share with them."""
    records = data.make(keys).records
    sides = {}
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(several_pumps.PUMPS, get_context("spawn")))
        for name, pumps in ((goals.ONE_PUMP, 1), (OURS, several_pumps.PUMPS)):
            place = bench.directory / f"pumps-{pumps}"
            command = serve(place, *MANY_CONNECTIONS, *NO_POLLING, "--refresh-period", "off", "--pumps", str(pumps))
            server = stack.enter_context(serving(command, name=name))
            pin(server.pid, None)
            writing.fill(server.address, records, writing.PARTITIONS)
            run = partial(several_pumps.run, pool, writing.TABLE, keys, server, Shape(64, run_s=run_s))
            sides[name] = lambda run=run: run().server_us
        bench.compare(goals.TABLE_TWO_PUMPS, sides, rounds)
