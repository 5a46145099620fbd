"""The rows about backups: a backup of tables and a restore, beside gets of another table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from gossipkv.settings.tables import TableSettings
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.network import rows
from tests.bench.processes import connect
from tests.bench.tables import writing
from tests.load import Load, RpcDialect, Traffic

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.bench.measurement import Bench

VALUE_BYTES = 1 << 10
BATCH = 500
READ = 10_000
GETS_A_SECOND = 500
GET_CONNECTIONS = 64


def measure(bench: Bench, *, records: int = 1_000_000, run_s: float = 4.0, rounds: int = 3) -> None:
    """Back up a table of three replicas, and restore it under another name; compare with the rate that is permitted."""
    place, read = bench.directory / "backups", data.make(READ).records
    size_bytes = sum(len(key) + len(value) for key, value in [next(data.numbered(1, VALUE_BYTES))]) * records
    copying_s = size_bytes / TableSettings().table_transfer
    with ExitStack() as stack:
        asked = stack.enter_context(
            writing.tables(bench.directory / "cluster", writing.PARTITIONS, backup_roots=str(place))
        )
        addresses = nodes.addresses(asked.cluster)
        with connect(addresses[0]) as client:
            batch: list[data.Record] = []
            for record in data.numbered(records, VALUE_BYTES):
                batch.append(record)
                if len(batch) == BATCH:
                    client.table(writing.TABLE).put_many(batch)
                    batch = []
            client.table(writing.TABLE).put_many(batch)
        writing.make(asked, writing.PARTITIONS, "others")
        with connect(addresses[1]) as client:
            client.table("others").put_many(read)
        load = Load(connections=GET_CONNECTIONS, rate=GETS_A_SECOND, timeout_s=rows.TIMEOUT_S, seed=data.SEED)
        gets = stack.enter_context(Traffic(addresses[1], RpcDialect("others", read), load))

        def job(*words: str) -> float:
            command = [sys.executable, "-m", "gossipkv", *words, "--json", "--node", str(addresses[0])]
            begin_s = perf_counter()
            told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=rows.TIMEOUT_S * 60)
            took_s = perf_counter() - begin_s
            answer: dict[str, Value] = json.loads(told.stdout)
            if answer["records"] != records + 1:  # `writing.make` puts one.
                raise WrongAnswerError(f"{' '.join(words)}: {answer}, of {records + 1:,} records")
            return took_s

        for number in range(rounds):
            machine.say(f"  {goals.BACKUP}")
            shutil.rmtree(place, ignore_errors=True)
            create = partial(job, "backup", "create", str(place), "--table", writing.TABLE)
            bench.add(goals.BACKUP, create())
            bench.add(goals.BACKUP, copying_s, goals.COPYING)
            machine.say(f"  {goals.RESTORE}")
            name = f"restored-{number}"
            bench.add(goals.RESTORE, job("restore", str(place), "--table", writing.TABLE, "--as", name))
            bench.add(goals.RESTORE, copying_s, goals.COPYING)
            with connect(addresses[0]) as client:
                client.call("drop_table", name)
            machine.say(f"  {goals.BACKUP_BESIDE}")
            rows.p99_beside(bench, goals.BACKUP_BESIDE, gets, run_s, create)
    bench.notes.append(
        f"Backups: {records:,} records of {VALUE_BYTES} B in a table of three replicas on three nodes; the time of "
        f"the command, to a directory of the first node; copying: the records' bytes at the default "
        f"`table_transfer`. Gets: {GETS_A_SECOND} a second at another node, of another table. All share the cores"
    )
