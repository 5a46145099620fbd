"""The parts of a run, group by group: what measures each, its rows, and its sizes when it only shows that it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import building, engines, goals, serving
from tests.bench.clients import reading as clients
from tests.bench.cluster import deadlines, faults, local_gets, scans, suspicion, verdicts, versions
from tests.bench.datasets import queued_builds, restart, scrub, sequence_files, switching, two_lanes
from tests.bench.gossip import figures as gossip
from tests.bench.http import gateway, generator, numbers
from tests.bench.http import node as node_by_http
from tests.bench.http import servers as http_servers
from tests.bench.memory import cgroup, library
from tests.bench.memory import node as larger_node
from tests.bench.network import one_core, pings, secured, several_pumps
from tests.bench.network.servers import redis_missing
from tests.bench.register import changes, growth, outages, runs, sustained, transactions
from tests.bench.store import following, memory, merging, opening, overwriting, simulated, writing
from tests.bench.store import reading as store
from tests.bench.tables import by_map, catching, clocks, copies, cutting, gets, many_ranges, moves, outage, puts, ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.measurement import Row

MIB = 1 << 20


@dataclass(frozen=True)
class Part:
    """`measure(bench, **sizes)` gives these rows figures; its own defaults are the sizes of a real run."""

    measure: Callable[..., None]
    rows: frozenset[Row]
    quick: dict[str, object]
    missing: Callable[[], str | None]  # What this machine has to have before there is anything to measure.


def part(
    measure: Callable[..., None],
    rows: Iterable[Row],
    *,
    needs: Callable[[], str | None] = lambda: None,
    **quick: object,
) -> Part:
    """One of them."""
    return Part(measure, frozenset(rows), quick, needs)


ENGINES = {
    "small": part(
        engines.small,
        [
            goals.GET_HIT_SMALL, goals.GET_MISS_SMALL, goals.GET_MANY_SMALL, goals.SCAN, goals.RANGE,
            goals.GET_NEIGHBOURS, goals.GET_SORTED, goals.GET_COMPRESSED, goals.BUILD_SMALL, goals.SIZE,
        ],
        keys=20_000, rounds=2, build_rounds=1,
    ),
    "large": part(
        engines.large,
        [goals.GET_HIT_LARGE, goals.GET_MISS_LARGE, goals.GET_MANY_LARGE, goals.BUILD_LARGE],
        keys=20_000, rounds=2, build_rounds=1,
    ),
    "memory": part(building.measure_memory, [goals.BUILD_MEMORY], sorted_bytes=16 * MIB),
    "serving": part(
        serving.measure, [goals.SERVING, goals.SERVING_SMALL, goals.ROUND_TRIP],
        served_records=2_000, built_bytes=4 * MIB, small_builds=2, idle_s=0.3, rounds=1,
    ),
}  # fmt: skip
DATASETS = {
    "sequence": part(
        sequence_files.measure, [*goals.SEQUENCES, goals.SEQUENCE_START], short=20_000, long=10_000, rounds=1
    ),
    "lanes": part(
        two_lanes.measure,
        [*goals.LANES, *goals.LANES_CPU.values(), *goals.LANES_LOOPS.values(), goals.LANES_MEMORY],
        records=400_000, loop=2_000_000, rounds=1,  # Enough for lanes to be started at all.
    ),
    "queue": part(queued_builds.measure, [goals.QUEUE, goals.QUEUE_TIME], builds=2, rounds=1),
    "restart": part(
        restart.measure, [goals.RESTART_READY, goals.RESTART, goals.RESTART_COLD],
        databases=2, total_bytes=8 * MIB, rounds=1,
    ),
    "switching": part(
        switching.measure,
        [*(row for rows in goals.SWITCH_ROWS for row in rows.values()), goals.SWITCH_FAILED, goals.SWITCH_BACK],
        keys=1_000, warming_s=0.1, before_s=0.3, rounds=1,
    ),
    "scrub": part(
        scrub.measure, [goals.SCRUB_P99, goals.SCRUB_GET, goals.SCRUB_SCAN],
        total_bytes=16 * MIB, run_s=0.3, rounds=1, records=2_000, short_rounds=1,
    ),
}  # fmt: skip
NETWORK = {
    "network-behind": part(one_core.behind, [goals.NETWORK_BEHIND], keys=1_000, chunks=2, rounds=1),
    "network-hot": part(
        one_core.hot, [goals.NETWORK_ONE, goals.NETWORK_PIPELINED, goals.NETWORK_BATCHED],
        keys=1_000, run_s=0.05, rounds=1,
    ),
    "network-cold": part(
        one_core.cold, [goals.NETWORK_COLD_PIPELINED, goals.NETWORK_COLD_BATCHED], keys=2_000, run_s=0.05, rounds=1
    ),
    "network-forwarded": part(
        one_core.forwarded,
        [goals.NETWORK_FORWARDED_ONE, goals.NETWORK_FORWARDED_PIPELINED, goals.NETWORK_FORWARDED_BATCHED],
        keys=1_000, run_s=0.05, rounds=1,
    ),
    "network-connections": part(
        one_core.connections, [goals.NETWORK_MEMORY, *goals.NETWORK_CONNECTIONS],
        keys=1_000, counts=(20, 30, 40), run_s=0.05, rounds=1,
    ),
    "network-round-trip": part(
        one_core.round_trip,
        [
            goals.NETWORK_ROUND_TRIP, goals.NETWORK_BUSY_POLL, goals.NETWORK_ROUND_TRIP_CPU,
            goals.NETWORK_BUSY_POLL_CPU, goals.NETWORK_FEW_CPU,
        ],
        keys=1_000, run_s=0.05, chunks=2, chunk_requests=20, rounds=1,
    ),
    "network-thread": part(
        one_core.thread, [goals.NETWORK_THREAD, goals.NETWORK_THREAD_PYTHON], keys=1_000, run_s=0.05, rounds=1
    ),
    "network-lone": part(one_core.lone, [goals.NETWORK_LONE], keys=1_000, idle_s=1.2, rounds=1),
    "network-pings": part(
        pings.measure, goals.NETWORK_PINGS, keys=1_000, batches=(4, 100), gets=(4, 20), scans=(2, 2), rounds=1
    ),
    "network-handed-off": part(
        one_core.handed_off, [goals.NETWORK_HANDED_OFF, goals.NETWORK_DATABASES], run_s=0.05, rounds=1
    ),
}  # fmt: skip
RESP = {
    "resp-gets": part(
        one_core.resp, [goals.RESP_ONE, goals.RESP_PIPELINED, goals.RESP_BATCHED], keys=1_000, run_s=0.05, rounds=1
    ),
}
TLS = {
    "tls-gets": part(
        secured.gets, [goals.TLS_ONE, goals.TLS_PIPELINED], keys=1_000, connections=8, run_s=0.05, rounds=1
    ),
    "tls-handshakes": part(
        secured.handshakes,
        [goals.TLS_HANDSHAKE, goals.TLS_RESUMED],
        needs=http_servers.nginx_missing,
        count=5,
        rounds=1,
    ),
    "tls-pings": part(pings.beside_handshakes, [goals.TLS_PING], count=20, rounds=1),
    "tls-memory": part(secured.memory, [goals.TLS_MEMORY], connections=20),
}  # fmt: skip
HTTP_OF_NODES = {"http-node": part(node_by_http.gets, [goals.HTTP_NODE], keys=1_000, run_s=0.1, rounds=1)}
PUMPS = {
    "several-pumps": part(
        several_pumps.measure, [*(row for rows in goals.PUMPS for row in rows), goals.PUMPS_REST, goals.PUMPS_MEMORY],
        keys=1_000, run_s=0.05, rounds=1, idle_s=0.2,
    ),
    "pumps-pings": part(pings.of_pumps, [goals.PUMPS_PING], keys=1_000, batches=(4, 100), pings=2, rounds=1),
    "pumps-switching": part(
        switching.of_pumps, [goals.PUMPS_SWITCH, goals.PUMPS_SWITCH_FAILED, goals.PUMPS_SWITCH_BACK],
        keys=1_000, databases=2, warming_s=0.1, rounds=1,
    ),
}  # fmt: skip
CLIENTS = {
    "clients": part(
        clients.measure, [goals.CLIENT_GET, goals.CLIENT_GET_MANY, goals.CLIENT_TASKS, goals.CLIENT_TASK],
        needs=clients.missing, keys=1_000, gets=200, batches=20, concurrent_gets=640, rounds=1,
    )
}  # fmt: skip
# What rows there are depends on the sizes.
GOSSIP = {
    "gossip-deaths": part(gossip.deaths, [], counts={8: 3, 16: 2}, local={8: 3}, departures=(16, 2)),
    "gossip-changes": part(gossip.spreading, [], counts={8: (10, 5), 16: (5, 2)}, lost={8: (10, 5)}),
    "gossip-rest": part(gossip.resting, [], sizes=(8, 16), rest_s=10),
    "gossip-wronged": part(
        gossip.wronged, [], starved=((1, 4), (2, 4)), members=16, runs=1, day_hours=0.01, day_members=8
    ),
    "gossip-healing": part(gossip.healed, [], apart_s=(5,), members=4, crashed_s=(5,), crashed_runs=2),
    "gossip-simulator": part(gossip.simulator, [], sizes=(8, 16), speed_s=2, rounds=1),
}
# A busy machine is no fault of a node: times are long.
CLUSTER = {
    "cluster-local": part(
        local_gets.measure, [goals.CLUSTER_LOCAL, goals.CLUSTER_LOCAL_PIPELINED],
        partitions=(1_024, 512), here=16, keys=1_000, run_s=0.05, rounds=1,
    ),
    "cluster-deadlines": part(
        deadlines.measure, [goals.CLUSTER_DEADLINES], keys=1_000, run_s=0.3, rounds=1, least=0.01
    ),
    "cluster-scan": part(scans.measure, [goals.CLUSTER_SCAN, goals.CLUSTER_PAGES], records=5_000, rounds=1),
    "cluster-frozen": part(
        faults.frozen, [goals.CLUSTER_FROZEN_FIRST, goals.CLUSTER_FROZEN_LATER, goals.CLUSTER_FROZEN_FAILED],
        keys=1_000, connections=2, proxy_timeout_ms=20_000, stage_ms=100, warming_s=0.1, before_s=0.3, later_s=0.5,
        rounds=1,
    ),
    "cluster-killed": part(
        faults.killed, [goals.CLUSTER_KILLED_FAILED],
        keys=1_000, connections=2, proxy_timeout_ms=20_000, warming_s=0.1, killed_s=1.5, rounds=1,
    ),
    "cluster-switched": part(
        versions.switched,
        [goals.CLUSTER_SWITCH_FAILED, goals.CLUSTER_SWITCH_BACK, goals.CLUSTER_SWITCH_BACK_ACROSS],
        databases=2, keys=1_000, proxy_timeout_ms=20_000, before_s=0.3, rounds=1,
    ),
    "cluster-built": part(versions.built, [goals.CLUSTER_BUILT], records=5_000, rounds=1),
    "cluster-suspected": part(suspicion.measure, [goals.CLUSTER_SUSPECTED], rest_s=0.1, rounds=1),
    "cluster-verdict": part(
        verdicts.measure, [goals.CLUSTER_VERDICT, goals.CLUSTER_VERDICT_DEAD, goals.CLUSTER_REPORT],
        nodes=3, databases=2, partitions=100, rounds=1,
    ),
}  # fmt: skip
HTTP = {
    "http-get": part(gateway.gets, [goals.HTTP_GET], keys=1_000, run_s=0.1, rounds=1),
    "http-beside": part(gateway.beside, [goals.HTTP_BESIDE], keys=1_000, run_s=0.1, rounds=1),
    "http-metrics": part(
        numbers.scrapes, [goals.HTTP_METRICS, goals.HTTP_METRICS_BESIDE], databases=3, scrapes=3, run_s=0.3, rounds=1
    ),
    "http-page": part(numbers.page, [goals.HTTP_PAGE, goals.HTTP_PAGE_SIZE], nodes=3, partitions=300, rounds=1),
    "load-generator": part(
        generator.measure, [*goals.LOAD_DRIVES, *goals.LOAD_COSTS], keys=1_000, run_s=0.1, requests=2_000, rounds=1
    ),
    "load-lateness": part(generator.lateness, [goals.LOAD_LATENESS], keys=1_000, run_s=0.1, rounds=1),
}
STORE = {
    "store-puts": part(
        writing.durable, [goals.STORE_PUT, goals.STORE_PUT_BATCH, goals.STORE_PUT_WRITERS],
        keys=5_000, puts=50, batches=5, writers=8, writer_puts=5, rounds=1,
    ),
    "store-gets": part(
        store.gets, [goals.STORE_GET, goals.STORE_GET_YOUNG, goals.STORE_MISS_YOUNG],
        keys=9_000, queries=1_000, rounds=1,
    ),
    "store-scans": part(
        store.scans, [goals.STORE_SCAN, goals.STORE_RANGE], keys=9_000, queries=1_000, whole=1, rounds=1
    ),
    "store-merging": part(
        merging.measure, [goals.STORE_MERGING_GET, goals.STORE_MERGING_PUT],
        merged_bytes=12 * MIB, segment_bytes=2 * MIB, rest_s=0.3, rounds=1,
    ),
    "store-amplification": part(
        overwriting.measure, [goals.STORE_AMPLIFICATION, goals.STORE_SPACE, goals.STORE_SPACE_MERGING],
        memtable_bytes=1 * MIB, memtables=4, overwrites=1,
    ),
    "store-opening": part(
        opening.measure, [goals.STORE_OPENING],
        log_bytes=12 * MIB, unmerged_bytes=3 * MIB, segment_bytes=2 * MIB, rounds=1,
    ),
    "store-memory": part(
        memory.measure, [goals.STORE_MEMORY, goals.STORE_MEMORY_CHILD],
        written_bytes=200 * MIB, segment_bytes=16 * MIB,
    ),
    "store-following": part(
        following.measure, [goals.STORE_FOLLOWERS, goals.STORE_FOLLOWER_MEMORY],
        before_bytes=1 * MIB, log_bytes=4 * MIB, segment_bytes=2 * MIB, turns=10, rounds=1,
    ),
    "store-simulated": part(simulated.measure, [goals.STORE_SIMULATED], rounds=1),
}  # fmt: skip
REGISTER = {
    "register-changes": part(
        changes.measure,
        [
            goals.REGISTER_SYNC, goals.REGISTER_P50, goals.REGISTER_ONE, goals.REGISTER_STAYS_P50, goals.REGISTER_KEYS,
            goals.REGISTER_KEYS_STAYS, goals.REGISTER_CPU, goals.REGISTER_CPU_STAYS, goals.REGISTER_BATCHED,
            goals.REGISTER_CROWDED, goals.REGISTER_STARVED, goals.REGISTER_ENTERED,
        ],
        syncs=5, changes=10, keys=4, keyed=20, batched=40, contended_s=0.5, rounds=1,
    ),
    "register-outage": part(
        outages.measure, [goals.REGISTER_KILLED, goals.REGISTER_STOPPED], before_s=0.2, out_s=1.5, rounds=1
    ),
    "metadata-transactions": part(
        transactions.measure, [row.of(count) for row in goals.METADATA for count in goals.TRANSACTION_SYNCS],
        syncs=5, operations=5, burst=40, rounds=1,
    ),
    "metadata-stream": part(
        sustained.measure, [goals.SUSTAINED_P50, goals.SUSTAINED_CPU, goals.SUSTAINED_SHOWN], transactions=20, rounds=1
    ),
    "catalogue-growth": part(growth.measure, [goals.CATALOGUE_GROWN, goals.CATALOGUE_FAILED], rounds=1),
    "register-runs": part(
        runs.measure, [goals.REGISTER_RUNS, goals.REGISTER_RUNS_STORE], ideal=3, stored=1, rounds=1
    ),
}  # fmt: skip
# Enough records for something to be cold beside the least memory that a process can have.
LARGER = {
    "larger-library": part(
        library.measure,
        [
            goals.LARGER_GET, goals.LARGER_GET_P99, goals.LARGER_GET_PAGES, goals.LARGER_ZIPF, goals.LARGER_ZIPF_P99,
            goals.LARGER_ZIPF_PAGES, goals.LARGER_MANY, goals.LARGER_SCAN, goals.LARGER_LZ4, goals.LARGER_LZ4_P99,
            goals.LARGER_LZ4_PAGES, goals.LARGER_LZ4_ZIPF, goals.LARGER_LZ4_ZIPF_PAGES,
        ],
        needs=cgroup.missing, records=300_000, warm_s=0.3, turn_s=0.2, rounds=1,
    ),
    "larger-node": part(
        larger_node.measure,
        [
            goals.LARGER_NODE, goals.LARGER_NODE_CPU, goals.LARGER_NODE_PAGES, goals.LARGER_NODE_ZIPF,
            goals.LARGER_HOT, goals.LARGER_PING, goals.LARGER_NODE_LZ4, goals.LARGER_NODE_LZ4_CPU,
            goals.LARGER_NODE_LZ4_PAGES, *goals.LARGER_P50.values(), *goals.LARGER_P99.values(),
        ],
        needs=cgroup.missing, records=300_000, connections=8, cold_rate=200, warm_s=0.5, turn_s=0.3, rounds=1,
    ),
}  # fmt: skip
TABLES = {
    "tables-clocks": part(
        clocks.measure,
        [row.of(size) for rows in (goals.CLOCKS, goals.CLOCKS_IN_PYTHON) for row in rows.values()
         for size in goals.CLOCK_SIZES],
        calls=200, rounds=1,
    ),
    "tables-put": part(puts.alone, [goals.PUT_ALONE, goals.PUT_SYNC, goals.PUT_TRIP], puts=10, rounds=1),
    "tables-puts": part(
        puts.many, [goals.PUT_ORIGIN, goals.PUT_TARGET, goals.PUT_MANY, goals.PUT_BYTES],
        needs=redis_missing, puts=200, rounds=1,
    ),
    "tables-get": part(gets.measure, [goals.TABLE_GET], keys=500, run_s=0.1, rounds=1),
    "tables-outage": part(
        outage.measure, [goals.OUTAGE_FAILED, goals.OUTAGE_LOST, goals.OUTAGE_GAP, goals.OUTAGE_TOLD],
        before_s=0.5, dead_s=1.0, rounds=1,
    ),
    "tables-catch-up": part(
        catching.measure, [*goals.CATCH_UP.values(), *goals.CATCH_UP_GETS.values()], most=2_000, before_s=0.5,
    ),
    "tables-cut": part(cutting.measure, [goals.CUT_P99], needs=cutting.missing, run_s=1.0, rounds=1),
    "tables-copies": part(
        copies.measure, [goals.COPIES_START, goals.COPIES_MEMORY, goals.COPIES_IDLE],
        partitions=64, idle_s=0.5, rounds=1,
    ),
}  # fmt: skip
MOVES = {
    "moves-under-load": part(
        moves.measure, [goals.MOVED_LOST, *(row for rows in goals.MOVED for row in rows.values())],
        records=5_000, partitions=16, copying_s=2.0, before_s=2.0,
    ),
    "moves-by-map": part(by_map.measure, [goals.BY_MAP], keys=500, gets=500, rounds=1),
}  # fmt: skip
RANGES = {
    "ranges-under-load": part(
        ranges.measure, [
            goals.DIVIDED_READS, goals.DIVIDED_WRITES, goals.DIVIDED_P99, goals.DIVIDED_SECOND, goals.DIVIDED_COPIED,
            goals.DIVIDED_GET, goals.DIVIDED_SCAN,
        ],
        records=5_000, splits=3, before_s=2.0, rounds=1,
    ),
    "ranges-spread": part(
        ranges.spread, [goals.SPREAD_SCAN, goals.SPREAD_PAGE], records=5_000, ranges=4, rounds=1,
    ),
    "ranges-planned": part(ranges.planned, [goals.PLANNED], partitions=500, many=10, rounds=1),
    "ranges-route": part(ranges.route, [goals.ROUTE], partitions=500, gets=500, rounds=1),
    "ranges-many": part(
        many_ranges.split, [goals.SPLIT_MANY, goals.SPLIT_SHOWN, goals.SPLIT_FETCHED], ranges=500, splits=2,
    ),
    "ranges-memory": part(many_ranges.memory, [goals.RANGES_MEMORY], ranges=100, settle_s=0.5, rounds=1),
}  # fmt: skip
GROUPS = {
    "engines": ENGINES, "datasets": DATASETS, "network": NETWORK, "pumps": PUMPS, "resp": RESP, "tls": TLS,
    "http-node": HTTP_OF_NODES, "clients": CLIENTS, "gossip": GOSSIP, "cluster": CLUSTER, "http": HTTP, "store": STORE,
    "register": REGISTER, "tables": TABLES, "moves": MOVES, "ranges": RANGES,
    "larger-than-memory": LARGER,
}  # fmt: skip
PARTS = {name: part for parts in GROUPS.values() for name, part in parts.items()}
