"""The rows about many records at once: `table import` beside writers of `put_many`, and `table delete-range`."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import rows
from tests.bench.processes import connect
from tests.bench.tables import writing
from tests.load import Load, RpcDialect, Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.address import Address
    from tests.bench.data import Record
    from tests.bench.measurement import Bench

WRITERS = 8  # An import has as many.
BATCH = 250
READ = 10_000
GETS_A_SECOND = 500
GET_CONNECTIONS = 64
SPAN = "0", "fg"  # All keys of `data.numbered`.
MICROSECOND_NS = 1e3


def measure(bench: Bench, *, records: int = 200_000, run_s: float = 4.0, rounds: int = 5) -> None:
    """Import a file and put the same records, into new tables of three copies; delete each table's records again."""
    path, read = bench.directory / "records.tsv", data.make(READ).records
    with path.open("wb") as file:
        file.writelines(b"%s\t%s\n" % record for record in data.numbered(records))
    numbers = count()
    with ExitStack() as stack:
        asked = stack.enter_context(writing.tables(bench.directory / "cluster", writing.PARTITIONS))
        addresses = nodes.addresses(asked.cluster)
        with connect(addresses[1]) as client:
            client.table(writing.TABLE).put_many(read)
        load = Load(connections=GET_CONNECTIONS, rate=GETS_A_SECOND, timeout_s=rows.TIMEOUT_S, seed=data.SEED)
        gets = stack.enter_context(Traffic(addresses[1], RpcDialect(writing.TABLE, read), load))
        filled = list[str]()

        def filled_us(how: str) -> float:
            name = f"{how}-{next(numbers)}"
            writing.make(asked, writing.PARTITIONS, name)
            took_ns = _import(addresses, name, path) if how == "import" else _put(addresses, name, records)
            filled.append(name)
            return took_ns / records / MICROSECOND_NS

        def delete(name: str) -> float:
            begin_ns = perf_counter_ns()
            told = _run("table", "delete-range", name, *SPAN, "--json", "--node", str(addresses[0]))
            if json.loads(told)["deleted"] != records:
                raise WrongAnswerError(f"delete-range of {records:,} records: {told}")
            return (perf_counter_ns() - begin_ns) / records / MICROSECOND_NS

        sides = {OURS: partial(filled_us, "import"), goals.PUT_MANY: partial(filled_us, "put")}
        bench.compare(goals.IMPORT, sides, rounds)
        machine.say(f"  {goals.DELETE_RANGE}")
        for name in filled[::2]:
            bench.add(goals.DELETE_RANGE, delete(name))
        machine.say(f"  {goals.DELETE_BESIDE}")
        for name in filled[1::2]:
            rows.p99_beside(bench, goals.DELETE_BESIDE, gets, run_s, partial(delete, name))
    bench.notes.append(
        f"{goals.IMPORT}: {records:,} records of {data.RECORD_BYTES} B from one file of TSV, by a process of its own "
        f"from its start to its end, three nodes asked; beside it {WRITERS} threads with a blocking client each, which "
        f"put batches of {BATCH} records that were made before, at a majority; every record counted by its deletion. "
        f"Gets: {GETS_A_SECOND} a second at another node while a deletion begins; all share the cores"
    )


def _run(*words: str) -> str:
    command = [sys.executable, "-m", "gossipkv", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=rows.TIMEOUT_S * 60).stdout


def _import(addresses: list[Address], name: str, path: Path) -> float:
    asked = [part for address in addresses for part in ("--node", str(address))]
    begin_ns = perf_counter_ns()
    _run("table", "import", name, str(path), "--format", "tsv", *asked)
    return perf_counter_ns() - begin_ns


def _put(addresses: list[Address], name: str, records: int) -> float:
    whole = [*data.numbered(records)]
    batches = [whole[begin : begin + BATCH] for begin in range(0, records, BATCH)]
    with ThreadPoolExecutor(WRITERS) as pool:
        begin_ns = perf_counter_ns()
        writers = [
            pool.submit(_write, addresses[number % len(addresses)], name, batches[number::WRITERS])
            for number in range(WRITERS)
        ]
        for writer in writers:
            writer.result()
        return perf_counter_ns() - begin_ns


def _write(address: Address, name: str, batches: list[list[Record]]) -> None:
    with connect(address) as client:
        table = client.table(name)
        for batch in batches:
            table.put_many(batch)
