"""The row about gets: from a node's own replica of a table, and from a dataset's file, under the same load."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine, processes
from tests.bench.measurement import OURS
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores, pin, serve, serving
from tests.bench.tables import writing
from tests.load import RpcDialect

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.bench.measurement import Bench

PARTITIONS = 16


def measure(bench: Bench, *, keys: int = 20_000, run_s: float = 1.0, rounds: int = 9) -> None:
    """Measure one node each, alone, on its own core."""
    cores, records = Cores.of_this_machine(), [*data.numbered(keys)]
    with ExitStack() as stack:
        command = serve(bench.directory / "table", *processes.MANY_CONNECTIONS, "--refresh-period", "off")
        table = stack.enter_context(serving(command, dialect=RpcDialect(writing.TABLE, records)))
        with processes.connect(table.address) as client:
            options: Value = {"kind": "hash", "partitions": PARTITIONS, "replication": 1}
            client.call("create_table", writing.TABLE, options)
            processes.wait_for(lambda: client.call("put", writing.TABLE, b"first", b"") is not None, "a first put")
            client.table(writing.TABLE).put_many(records)
        pin(table.pid, cores.server)
        dataset = stack.enter_context(processes.node(bench.directory / "dataset", records, cores))
        stack.enter_context(machine.pinned(cores.load))
        rows.compare(
            bench, goals.TABLE_GET, [table, replace(dataset, name=goals.DATASET)], Shape(64, run_s=run_s), rounds
        )
        assert table.name == OURS
    bench.notes.append(
        f"{goals.TABLE_GET}: {keys:,} records of {data.RECORD_BYTES} B, one in flight, every value checked"
    )
