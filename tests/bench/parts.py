"""The parts of the benchmark: the measuring function of each, its rows, and its sizes for a quick run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import building, engines, goals
from tests.bench.clients import columns, feast
from tests.bench.clients import reading as clients
from tests.bench.cluster import idle, scans, versions
from tests.bench.datasets import parquet, sequence_files, spark, switching, two_lanes
from tests.bench.http import generator
from tests.bench.http import node as node_by_http
from tests.bench.http.servers import nginx_missing
from tests.bench.memory import cgroup, library
from tests.bench.memory import node as larger_node
from tests.bench.network import one_core, pings, secured, several_pumps
from tests.bench.register import sustained
from tests.bench.store import overwriting, writing
from tests.bench.store import reading as store
from tests.bench.tables import (
    backups,
    by_map,
    catching,
    copies,
    expiring,
    feeds,
    imports,
    many_ranges,
    moves,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.measurement import Row

MIB = 1 << 20


@dataclass(frozen=True)
class Part:
    """`measure(bench, **sizes)` gives these rows figures; its own defaults are the sizes of a real run."""

    measure: Callable[..., None]
    rows: tuple[Row, ...]
    quick: dict[str, object]
    missing: Callable[[], str | None]  # Returns the name of a required package that is missing.


def part(
    measure: Callable[..., None],
    *rows: Row | Iterable[Row],
    needs: Callable[[], str | None] = lambda: None,
    **quick: object,
) -> Part:
    """Make a part of rows, or of groups of rows."""
    found = tuple(each for row in rows for each in ([row] if isinstance(row, str) else row))
    return Part(measure, found, quick, needs)


PARTS = {
    # Sorted files beside the engines that users would choose instead.
    "small": part(
        engines.small, goals.GET_HIT_SMALL, goals.GET_MISS_SMALL, goals.GET_MANY_SMALL, goals.SCAN, goals.RANGE,
        goals.GET_NEIGHBOURS, goals.GET_SORTED, goals.GET_COMPRESSED, goals.BUILD_SMALL, goals.SIZE,
        keys=20_000, rounds=2, build_rounds=1,
    ),
    "large": part(
        engines.large, goals.GET_HIT_LARGE, goals.GET_MANY_LARGE, goals.BUILD_LARGE,
        keys=20_000, rounds=2, build_rounds=1,
    ),
    # The records suffice for cold ones beside the minimum memory of a process.
    "larger-library": part(
        library.measure, goals.LARGER_GET, goals.LARGER_GET_PAGES, goals.LARGER_ZIPF, goals.LARGER_ZIPF_PAGES,
        goals.LARGER_MANY, goals.LARGER_SCAN, goals.LARGER_LZ4, goals.LARGER_LZ4_PAGES, goals.LARGER_LZ4_ZIPF,
        goals.LARGER_LZ4_ZIPF_PAGES,
        needs=cgroup.missing, records=300_000, warm_s=0.3, turn_s=0.2, rounds=1,
    ),
    "larger-node": part(
        larger_node.measure, goals.LARGER_NODE, goals.LARGER_NODE_PAGES, goals.LARGER_HOT,
        needs=cgroup.missing, records=300_000, connections=8, cold_rate=200, warm_s=0.5, turn_s=0.3, rounds=1,
    ),
    # Builds of datasets, and reads during builds.
    "build-memory": part(building.measure_memory, goals.BUILD_MEMORY, sorted_bytes=16 * MIB),
    "sequence": part(sequence_files.measure, goals.SEQUENCES, short=20_000, long=10_000, rounds=1),
    # The records suffice for two lanes.
    "lanes": part(two_lanes.measure, goals.LANES, goals.LANES_MEMORY, records=400_000, rounds=1),
    "parquet": part(
        parquet.measure, goals.PARQUET, goals.PARQUET_ROWS, needs=parquet.missing, records=20_000, rounds=1
    ),
    "spark": part(spark.measure, goals.SPARK_WRITE, needs=spark.missing, records=20_000, rounds=1),
    "switching": part(switching.measure, goals.SWITCH, keys=1_000, warming_s=0.1, before_s=0.3, rounds=1),
    # One node on one core.
    "network-hot": part(
        one_core.hot, goals.NETWORK_ONE, goals.NETWORK_PIPELINED, goals.NETWORK_BATCHED,
        keys=1_000, run_s=0.05, rounds=1,
    ),
    "network-cold": part(
        one_core.cold, goals.NETWORK_COLD_PIPELINED, goals.NETWORK_COLD_BATCHED, keys=2_000, run_s=0.05, rounds=1
    ),
    "network-connections": part(
        one_core.connections, goals.NETWORK_MEMORY, goals.NETWORK_CONNECTIONS,
        keys=1_000, counts=(20, 30, 40), run_s=0.05, rounds=1,
    ),
    "network-round-trip": part(
        one_core.round_trip, goals.NETWORK_ROUND_TRIP, goals.NETWORK_BUSY_POLL, goals.NETWORK_ROUND_TRIP_CPU,
        goals.NETWORK_BUSY_POLL_CPU, goals.NETWORK_FEW_CPU,
        keys=1_000, run_s=0.05, chunks=2, chunk_requests=20, rounds=1,
    ),
    "network-lone": part(one_core.lone, goals.NETWORK_LONE, keys=1_000, idle_s=1.2, rounds=1),
    "network-pings": part(
        pings.measure, goals.NETWORK_PINGS, keys=1_000, batches=(4, 100), gets=(4, 20), scans=(2, 2), rounds=1
    ),
    "network-forwarded": part(
        one_core.forwarded, goals.NETWORK_FORWARDED_ONE, goals.NETWORK_FORWARDED_PIPELINED,
        goals.NETWORK_FORWARDED_BATCHED,
        keys=1_000, run_s=0.05, rounds=1,
    ),
    "resp": part(
        one_core.resp, goals.RESP_ONE, goals.RESP_PIPELINED, goals.RESP_BATCHED, keys=1_000, run_s=0.05, rounds=1
    ),
    "http": part(node_by_http.gets, goals.HTTP_NODE, keys=1_000, run_s=0.1, rounds=1),
    "tls-gets": part(
        secured.gets, goals.TLS_ONE, goals.TLS_PIPELINED, keys=1_000, connections=8, run_s=0.05, rounds=1
    ),
    "tls-handshakes": part(
        secured.handshakes, goals.TLS_HANDSHAKE, goals.TLS_RESUMED, needs=nginx_missing, count=5, rounds=1
    ),
    "pumps": part(several_pumps.measure, *goals.PUMPS, keys=1_000, run_s=0.05, rounds=1),
    # Clients, and the load test.
    "clients": part(
        clients.measure, goals.CLIENT_GET, goals.CLIENT_GET_MANY, goals.CLIENT_THREADS, goals.CLIENT_TASKS,
        goals.CLIENT_TASK, goals.CLIENT_AIO_TASKS, goals.CLIENT_AIO_TASK,
        needs=clients.missing, keys=1_000, gets=200, batches=20, concurrent_gets=640, rounds=1,
    ),
    "columns": part(columns.measure, goals.COLUMNS_SCAN, goals.COLUMNS_MANY, records=20_000, batches=2, rounds=1),
    "feast": part(
        feast.measure, goals.FEAST_P50, goals.FEAST_CPU, needs=feast.missing, entities=200, reads=2, rounds=1
    ),
    "load-generator": part(
        generator.measure, goals.LOAD_DRIVES, goals.LOAD_COSTS, keys=1_000, run_s=0.1, requests=2_000, rounds=1
    ),
    "load-lateness": part(generator.lateness, goals.LOAD_LATENESS, keys=1_000, run_s=0.1, rounds=1),
    # Several nodes with datasets.
    "cluster-scan": part(scans.measure, goals.CLUSTER_SCAN, records=5_000, rounds=1),
    "cluster-built": part(versions.built, goals.CLUSTER_BUILT, records=5_000, rounds=1),
    "cluster-idle": part(
        idle.measure, goals.CLUSTER_IDLE, count=2, records=500, settle_s=0.1, idle_s=0.5, rounds=1
    ),
    # The store under the tables.
    "store-puts": part(
        writing.durable, goals.STORE_PUT, goals.STORE_PUT_BATCH, goals.STORE_PUT_WRITERS,
        keys=5_000, puts=50, batches=5, writers=8, writer_puts=5, rounds=1,
    ),
    "store-gets": part(
        store.gets, goals.STORE_GET, goals.STORE_GET_YOUNG, goals.STORE_MISS_YOUNG,
        keys=9_000, queries=1_000, rounds=1,
    ),
    "store-scans": part(store.scans, goals.STORE_SCAN, goals.STORE_RANGE, keys=9_000, queries=1_000, whole=1, rounds=1),
    "store-amplification": part(
        overwriting.measure, goals.STORE_AMPLIFICATION, goals.STORE_SPACE, goals.STORE_SPACE_MERGING,
        memtable_bytes=1 * MIB, memtables=4, overwrites=1,
    ),
    # Tables.
    "metadata": part(
        sustained.measure, goals.SUSTAINED_P50, goals.SUSTAINED_CPU, goals.SUSTAINED_SHOWN, transactions=20, rounds=1
    ),
    "tables": part(
        records.measure, goals.TABLE_GET, goals.TABLE_GET_PIPELINED, goals.TABLE_GET_TOKEN, goals.TABLE_GET_MANY,
        goals.TABLE_SCAN, goals.TABLE_TWO_PUMPS, goals.TABLE_RESP_GET, goals.TABLE_HTTP_GET, goals.TABLE_RESP_SET,
        goals.PUT_ORIGIN, goals.PUT_TARGET, goals.PUT_ALL, goals.PUT_TIME, goals.PUT_ORIGIN_PIPELINED,
        goals.PUT_TARGET_PIPELINED, goals.PUT_ALONE, goals.PUT_BYTES, goals.GET_BESIDE, goals.GET_BESIDE_SYNCS,
        goals.RANGES_IDLE,
        keys=2_000, records=5_000, run_s=0.1, many=200, alone=10, ranges=100, idle_s=0.5, rounds=1,
    ),
    "tables-by-map": part(
        by_map.measure, goals.BY_MAP, goals.BY_MAP_CLIENT, goals.BY_MAP_MANY, goals.BY_MAP_PUT,
        keys=500, gets=500, puts=100, rounds=1,
    ),
    "tables-expiry": part(
        expiring.measure, goals.EXPIRING_PUT, goals.EXPIRED_SPACE, goals.EXPIRED_SPACE_WRITTEN,
        puts=2_000, memtable_bytes=1 * MIB, memtables=4, rounds=1,
    ),
    "tables-import": part(
        imports.measure, goals.IMPORT, goals.DELETE_RANGE, goals.DELETE_BESIDE, records=2_000, run_s=0.1, rounds=1
    ),
    "tables-backups": part(
        backups.measure, goals.BACKUP, goals.RESTORE, goals.BACKUP_BESIDE, records=2_000, run_s=0.1, rounds=1
    ),
    "tables-copies": part(
        copies.measure, goals.COPIES_START, goals.COPIES_MEMORY, goals.COPIES_IDLE,
        partitions=64, idle_s=0.5, rounds=1,
    ),
    "tables-catch-up": part(
        catching.measure, goals.CATCH_UP.values(), goals.CATCH_UP_GETS.values(), most=2_000, before_s=0.5
    ),
    "tables-feed": part(
        feeds.measure, goals.FEEDS_IDLE, goals.FEEDING, feeds=10, idle_s=0.5, puts=2_000, rounds=1
    ),
    "tables-moves": part(
        moves.measure, goals.MOVED_BYTES.values(), goals.MOVED_P99.values(), goals.MOVED_TIME.values(),
        records=5_000, partitions=16, copying_s=2.0, before_s=2.0, rounds=1,
    ),
    "ranges-split": part(
        many_ranges.split, goals.SPLIT_MANY, goals.SPLIT_SHOWN, goals.SPLIT_FETCHED, ranges=500, splits=2
    ),
    "ranges-fourth": part(many_ranges.fourth, goals.FOURTH, goals.FOURTH_CPU, ranges=40, measured_s=1.0),
    "ranges-memory": part(many_ranges.memory, goals.RANGES_MEMORY, ranges=100, settle_s=0.5, rounds=1),
    "ranges-route": part(many_ranges.route, goals.ROUTE, partitions=500, gets=500, rounds=1),
}  # fmt: skip
