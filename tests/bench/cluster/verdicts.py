"""What a verdict costs over a hundred members, where nothing is wrong and where one is dead; what is told for it."""

from __future__ import annotations

from time import process_time_ns
from typing import TYPE_CHECKING

import msgpack

from gossipkv import blocking
from gossipkv.status.judging.judge import judge
from gossipkv.status.verdict import ATTENTION, WELL, Said
from tests.bench import data, goals
from tests.bench.processes import process, serve, wait_for_records
from tests.bench.sources import write_database

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

MILLISECOND_NS = 1e6
KIB = 1024
DEAD = 7  # The member that is.


def measure(bench: Bench, *, nodes: int = 100, databases: int = 100, partitions: int = 4_096, rounds: int = 5) -> None:
    """Merge and judge what members say, read from MessagePack; and what a real node says of as many databases."""
    names = [f"node-{number:03}.example.internal" for number in range(nodes)]
    for row, is_wrong in ((goals.CLUSTER_VERDICT, False), (goals.CLUSTER_VERDICT_DEAD, True)):
        packed = {name: msgpack.packb(_report(names, databases, partitions, is_wrong=is_wrong)) for name in names}
        if is_wrong:
            del packed[names[DEAD % nodes]]

        def judged(packed: dict[str, bytes] = packed, *, is_wrong: bool = is_wrong) -> float:
            before_ns = process_time_ns()
            reports = {name: msgpack.unpackb(report) for name, report in packed.items()}
            made = judge(Said(names[0], dict.fromkeys(names, "alive"), reports, {}))
            took_ms = (process_time_ns() - before_ns) / MILLISECOND_NS
            assert (made.level, made.databases) == (ATTENTION if is_wrong else WELL, databases), made.reasons
            assert len(made.reasons) == (databases + 1 if is_wrong else 0)
            return took_ms

        bench.compare(row, {row.ours: judged}, rounds)
    _told(bench, databases)
    bench.notes.append(
        f"the verdict: {nodes} members that say how each of {databases} databases of {partitions:,} partitions is, one "
        "of them dead in the second row; from MessagePack to the verdict, in the benchmark's process; a real node's "
        f"own report of {databases} databases, which is as long whatever number of partitions and members there are"
    )


def _report(names: list[str], databases: int, partitions: int, *, is_wrong: bool) -> dict[str, object]:
    """What a member says: that it serves everything, and with somebody dead which partitions have a copy less."""
    away, entry = names[DEAD % len(names)], {"kind": "dataset", "active": "2026-11-20"}
    few = range(0, partitions, max(1, partitions // 80))
    version = {
        "under_replicated": {"count": len(few), "runs": ",".join(map(str, few))},
        "replication": 2, "reassign_after_ms": 60_000, "away": [away], "partition_count": partitions,
        "switched_ms": None, "at_source": True,
    }  # fmt: skip
    told = entry | ({"versions": {"2026-11-20": version}} if is_wrong else {})
    return {
        "databases": {f"database-{number:03}": told for number in range(databases)},
        **({"away": {away: "dead"}} if is_wrong else {}),
    }


def _told(bench: Bench, databases: int) -> None:
    """How much a real node says of itself that serves so many."""
    records, place = data.make(100).records, bench.directory / "told"
    names = [f"database-{number:03}" for number in range(databases)]
    for name in names:
        write_database(place / "source", name, records)
    with process(serve(place / "data", source=place / "source")) as (_, ready):
        address = ready.split()[1]
        wait_for_records(address, [(name, records[0]) for name in names])
        with blocking.connect(address, timeout_ms=10_000) as client:
            told = client.call("report")
        assert isinstance(told, dict)
        assert len(told["databases"]) == databases, told
        bench.add(goals.CLUSTER_REPORT, len(msgpack.packb(told)) / KIB)
