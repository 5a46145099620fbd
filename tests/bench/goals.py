"""What is aimed at: every row, its unit, and the ratio to a peer, or figure of our own, that it must not exceed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.measurement import OURS, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

# What stands beside ours, and is no store or server of others.
BUDGET = "the budget"
TWO_MISSES = "two misses"
IDLE, BEFORE, AT_REST = "idle", "before", "at rest"
INFLATE_AND_PASS, INFLATE_AND_PASS_AGAIN = "ISA-L + a copy, new memory", "ISA-L + a copy"
ONE_CORE = "one core"
BOTH_CORES, ONE_PUMP = "what two cores can do", "one pump"
MEMCACHED = "memcached, 2 threads"
ONE_EACH = "a child each"
FLOOR = "constant in C"
WITHOUT = "without"
FIRST = "nothing before it"
NOBODY = "the same table, nobody else"
HALF, WHOLE = "half elsewhere", "all here"
STAGE, HEALTHY = "one stage + 3 x healthy", "healthy"
ALONE = "a node alone, twice"
FEW = "with 16 partitions"
ELSEWHERE, ON_TWO = f"{OURS}, elsewhere", f"{OURS}, on two others"
PLAIN = "the same, plain"
LIVE_BYTES, TWICE_LIVE_BYTES = "1.5 x live bytes + a file", "2 x live bytes + a file"
MEMTABLES = "memtables + 64 MiB"
SYNCS = "3 ms + 2 syncs"
DICTIONARIES = "loop over dictionaries"
SYNCS_AND_TRIPS, TWICE_THE_RECORD = "2 syncs + 2 round trips + 1 ms", "the record and its head, twice"
WHOLE_NET = "all links whole"
DATASET, FEW_COPIES = "a dataset's", "with one"
TRANSACTION_SYNCS = {4_096: "15 ms + 4 syncs", 100_000: "50 ms + 4 syncs"}
DISK_1, DISK_8, DISK_16 = (f"C loop, depth {depth}" for depth in (1, 8, 16))
HOT_BESIDE = "beside hot ones"
GATEWAY, GENERATOR = "gateway", "load generator"
IDEAL, COPYING = "its share", "copying at `table_transfer`"

# Stores and servers of others.
REDIS, REDIS_BENCHMARK = "redis-server", "redis-benchmark"
REDIS_PY, REDIS_ASYNCIO = "redis-py, hiredis", "redis.asyncio, uvloop"
QUART, NGINX, FASTAPI = "quart-trio, hypercorn", "nginx", "FastAPI, uvicorn"
ROCKSDB, ROCKSDB_GROUPS, ROCKSDB_THREADS = "RocksDB", "RocksDB, group commit", "RocksDB, C interface"
ETCD = "etcd"

GET_HIT_SMALL = Row(
    "random get, hit, 100 B", "ns", {"LMDB": 0.45, "tinycdb": 0.70, TWO_MISSES: 1.8, "dict": 0.70, "RocksDB": 0.17}
)
GET_MISS_SMALL = Row("random get, miss, 100 B", "ns", {"LMDB": 0.17})
GET_MANY_SMALL = Row("get_many of 100, per key, 100 B", "ns", {"LMDB": 0.08})
SCAN = Row("ordered scan, per record, 100 B", "ns", {"LMDB": 0.40})
RANGE = Row("range of 10, 100 B", "ns", {"LMDB": 0.50})
GET_NEIGHBOURS = Row("gets in key order, every key, 100 B", "ns", {"LMDB": 0.65})
GET_SORTED = Row("gets in key order, a sample of the keys, 100 B", "ns", {"LMDB": 0.55})
GET_COMPRESSED = Row(
    "random get, lz4 in 4 KiB blocks, 100 B", "ns", {"LMDB": 1.25, "RocksDB lz4": 0.20}, ours=f"{OURS} lz4"
)
BUILD_SMALL = Row("build from unsorted records, 100 B", "s", {"RocksDB": 0.35})
SIZE = Row("file size over raw data, per record, 100 B", "B", 10.5)
GET_HIT_LARGE = Row("random get, hit, 1 KiB", "ns", {"LMDB": 0.55, "tinycdb": 1.0})
GET_MISS_LARGE = Row("random get, miss, 1 KiB", "ns")
GET_MANY_LARGE = Row("get_many of 100, per key, 1 KiB", "ns", {"LMDB": 0.20})
BUILD_LARGE = Row("build from unsorted records, 1 KiB", "s", {"LMDB": 0.9, "RocksDB": 1.2})
BUILD_MEMORY = Row("peak memory of a build of 10 times its budget", "MiB", {BUDGET: 1.0})
SERVING = Row("get from a node during a build, p99", "us", {IDLE: 3.0})
SERVING_SMALL = Row("get from a node during small builds, p99", "us", {IDLE: 3.0})
ROUND_TRIP = Row("get from an idle node, one connection, p50", "us")

SEQUENCE_SHORT, SEQUENCE_LONG, SEQUENCE_SHORT_SORTED, SEQUENCE_LONG_SORTED = SEQUENCES = [
    Row(name, "us", {INFLATE_AND_PASS: 2.4})
    for name in (
        "build from SequenceFiles, CPU per record, 31 B",
        "build from SequenceFiles, CPU per record, 116 B",
        "the same in key order, 31 B",
        "the same in key order, 116 B",
    )
]
SEQUENCE_START = Row("build of one record, CPU", "ms")
LANES_BY_HASH, LANES_MIXED = LANES = [
    Row(f"build from 8 files {how}, two lanes", "s", {ONE_CORE: 0.556})  # 1.8 times its rate.
    for how in ("by hash", "in no order")
]
LANES_CPU = {row: Row(f"{row}: processor time", "s") for row in LANES}
LANES_LOOPS = {row: Row(f"{row}: plain loops in two processes", "s") for row in LANES}
LANES_MEMORY = Row("peak memory of a build in two lanes", "MiB", {BUDGET: 1.0})
QUEUE = Row("small builds in a queue, CPU each", "ms", {ONE_EACH: 0.25})
QUEUE_TIME = Row(f"{QUEUE}: time", "ms")
RESTART_READY = Row("restart, to the ready line", "s")
RESTART = Row("restart, to an answer of every partition", "s", 3.0)
RESTART_COLD = Row("restart, to an answer of every partition, cold", "s", 3.0)
SWITCH_ROWS = [
    {share: Row(f"{what}, {name}", "us", limit) for share, name, limit in shares}
    for what in ("get while 10 databases switch in turn", "the same with more clients than cores")
    for shares in [((0.99, "p99", {BEFORE: 2.0}), (0.5, "p50", None), (0.999, "p99.9", None))]
]
SWITCH_FAILED = Row("gets that failed meanwhile", "", 0.0)
SWITCH_BACK = Row("gets that stepped back meanwhile", "", 0.0)
SCRUB_P99 = Row("get while its version is read back, p99", "us", {WITHOUT: 1.2})
SCRUB_GET = Row("random get, slices forgotten", "us", {WITHOUT: 1.01})
SCRUB_SCAN = Row("scan of 1,000, per record, slices forgotten", "us", {WITHOUT: 1.01})

MESSAGEPACK = f"{OURS}, MessagePack-RPC"
RESP_ONE = Row("GET by RESP, 64 connections, CPU", "us", {MESSAGEPACK: 1.05, REDIS: 0.95})
RESP_PIPELINED = Row("GET by RESP, 64 connections, 16 in flight, CPU", "us", {MESSAGEPACK: 1.05, REDIS: 0.55})
RESP_BATCHED = Row("MGET of 100 by RESP, 16 connections, CPU", "us", {REDIS: 0.35})

CLIENT_GET = Row("blocking get, time", "us", {REDIS_PY: 0.75})
CLIENT_GET_MANY = Row("blocking get_many of 100, time", "us", {REDIS_PY: 0.50})
CLIENT_TASKS = Row("get under Trio, 64 tasks, CPU", "us", {REDIS_ASYNCIO: 0.167})  # Six times its operations for that.
CLIENT_TASK = Row("get under Trio, one task, time", "us", {REDIS_ASYNCIO: 0.9})

NETWORK_ONE = Row("get, 64 connections, CPU", "us", {REDIS: 0.88, FLOOR: 1.08})
NETWORK_PIPELINED = Row("get, 64 connections, 16 in flight, CPU", "us", {REDIS: 0.60, FLOOR: 1.5})
NETWORK_BATCHED = Row("get_many of 100, 16 connections, CPU", "us", {REDIS: 0.25})
NETWORK_COLD_PIPELINED = Row("get, 2M keys, 64 connections, 16 in flight, CPU", "us", {REDIS: 0.35})
NETWORK_COLD_BATCHED = Row("get_many of 100, 2M keys, 16 connections, CPU", "us", {REDIS: 0.2})
NETWORK_CONNECTIONS = (
    Row("get, 256 connections, CPU", "us", {REDIS: 0.9}),
    Row("get, 1,000 connections, CPU", "us", {REDIS: 0.75, FLOOR: 1.15}),
    Row("get, 10,000 connections, CPU", "us", {REDIS: 0.75}),
)
NETWORK_MEMORY = Row("memory of an idle connection", "KiB", 0.35)
NETWORK_ROUND_TRIP = Row("get, one connection, no busy-poll, time", "us", {REDIS: 1.05})
NETWORK_BUSY_POLL = Row("get, one connection, busy-poll, time", "us", {REDIS: 0.50})
NETWORK_ROUND_TRIP_CPU = Row("get, one connection, no busy-poll, CPU", "us", {REDIS: 1.2})
NETWORK_BUSY_POLL_CPU = Row("get, one connection, busy-poll, CPU", "us", {REDIS: 1.0})
NETWORK_FEW_CPU = Row("get, 8 connections, no busy-poll, CPU", "us", {REDIS: 0.85})
NETWORK_LONE = Row("CPU of an idle node without others, a second", "ms", 1.0)  # A thousandth of a core.
NETWORK_THREAD = Row("get, one connection, beside a thread that computes, p99", "ms", 1.0)
NETWORK_THREAD_PYTHON = Row("`databases`, one connection, beside a thread that computes, p99", "ms")
NETWORK_PINGS = (
    Row("ping behind 64 get_many of 3,600, CPU before it", "ms", 2.0),
    Row("ping behind 64 x 500 gets, CPU before it", "ms", 2.0),
    Row("ping behind 32 x 8 scans of 1,000, CPU before it", "ms", 2.0),
    Row("ping behind all of these, CPU before it", "ms", 2.0),
)
PUMPS = tuple(
    (
        Row(f"two pumps, two cores: {what}, time a request", "us", {BOTH_CORES: 1.11, **beside}),
        Row(f"two pumps, two cores: {what}, CPU of the node", "us", {ONE_PUMP: 1.05}),
    )
    for what, beside in (
        ("get, 64 connections", {MEMCACHED: 0.909}),  # 1.1 times its requests a second,
        ("get, 64 connections, 16 in flight", {}),
        ("get_many of 100, 16 connections", {MEMCACHED: 0.4}),  # and 2.5 times.
    )
)
PUMPS_PING = Row("ping behind 64 get_many of 3,600, two pumps, p99", "us", {ONE_PUMP: 0.5})
PUMPS_SWITCH = Row("get while 8 databases switch in turn, two pumps, 64 connections, p99", "us", {ONE_PUMP: 2.0})
PUMPS_SWITCH_FAILED = Row("gets that failed meanwhile, of one pump or two", "", 0.0)
PUMPS_SWITCH_BACK = Row("gets that stepped back meanwhile, over all connections of a process", "", 0.0)
PUMPS_REST = Row("a node of two pumps that nobody asks, a second", "ms", {ONE_PUMP: 1.1})
PUMPS_MEMORY = Row("memory of a further pump", "MiB", 8.0)
TLS_ONE = Row("get by TLS, 64 connections, CPU", "us", {PLAIN: 1.6, REDIS: 0.9})
TLS_PIPELINED = Row("get by TLS, 64 connections, 16 in flight, CPU", "us", {PLAIN: 1.3, REDIS: 0.5})
TLS_HANDSHAKE = Row("connection with a full handshake, CPU", "us", {NGINX: 1.1})
TLS_RESUMED = Row("connection with a ticket, CPU", "us", {NGINX: 1.1})
TLS_PING = Row("ping beside 1,000 handshakes at once, CPU before it, p99", "ms", 5.0)
TLS_MEMORY = Row("memory of an idle connection of TLS", "KiB", 24.0)
NETWORK_HANDED_OFF = Row("answered by Python, 64 connections, 16 in flight, CPU", "us", 1.3)
NETWORK_DATABASES = Row("`databases`, 64 connections, 16 in flight, CPU", "us")
NETWORK_FORWARDED_ONE = Row("forwarded get, 64 connections, CPU", "us", {REDIS: 1.0}, ours=ELSEWHERE)
NETWORK_FORWARDED_PIPELINED = Row(
    "forwarded get, 64 connections, 16 in flight, CPU", "us", {REDIS: 0.7}, ours=ELSEWHERE
)
NETWORK_FORWARDED_BATCHED = Row("forwarded get_many of 100, 16 connections, CPU", "us", {REDIS: 0.6}, ours=ON_TWO)
NETWORK_BEHIND = Row("forwarded get behind a value of 8 MiB, time", "ms", ours=ELSEWHERE)

CLUSTER_LOCAL = Row("get of what is here, 100,000 partitions, most elsewhere, CPU", "us", {WITHOUT: 1.03})
CLUSTER_LOCAL_PIPELINED = Row("the same with 16 in flight", "us", {WITHOUT: 1.03})
CLUSTER_DEADLINES = Row(
    "get of what is here, beside 10,000 deadlines a second, CPU", "us", {WITHOUT: 1.031}  # 0.97 of the rate.
)  # fmt: skip
CLUSTER_SCAN = Row("scan, half of it elsewhere, a record", "ns", {WHOLE: 2.0}, ours=HALF)  # Half the rate.
CLUSTER_PAGES = Row("the same, pages alone", "ns", ours=HALF)
CLUSTER_FROZEN_FIRST = Row("get while one of three owners is stopped, first second, p99", "us", {STAGE: 1.0})
CLUSTER_FROZEN_LATER = Row("the same after a second, p99", "us", {HEALTHY: 3.0})
CLUSTER_FROZEN_FAILED = Row("gets that failed meanwhile, one of three owners stopped", "", 0.0)
CLUSTER_KILLED_FAILED = Row("gets that failed after kill -9 of 2 of 5 nodes at once", "", 0.0)
CLUSTER_SWITCH_FAILED = Row("gets that failed while 10 databases switch on 5 nodes", "", 0.0)
CLUSTER_SWITCH_BACK = Row("gets that stepped back on a node", "", 0.0)
CLUSTER_SWITCH_BACK_ACROSS = Row("gets that stepped back across nodes, with `min_version`", "", 0.0)
CLUSTER_BUILT = Row("1M records switched on 3 nodes, 2 copies, CPU of all", "s", {ALONE: 1.5})
CLUSTER_SUSPECTED = Row("a member with 65,536 partitions suspected, CPU of the serving thread", "ms", 5.0)
CLUSTER_VERDICT = Row("verdict over 100 nodes x 100 databases x 4,096 partitions, CPU", "ms", 100.0)
CLUSTER_VERDICT_DEAD = Row("the same, one of them dead", "ms", 100.0)
CLUSTER_REPORT = Row("what a node says for it of 100 databases that are well", "KiB", 64.0)

HTTP_NODE = Row("HTTP get of a node, 64 connections, CPU", "us", {MESSAGEPACK: 1.3, NGINX: 1.2, FASTAPI: 0.15})
HTTP_GET = Row("HTTP get, 64 connections, CPU of the gateway", "us", {QUART: 0.33}, ours=GATEWAY)
HTTP_BESIDE = Row("get while HTTP is at its limit on the other core, p99", "us", {WITHOUT: 1.5})
HTTP_METRICS = Row("`/metrics` of 100 databases, CPU of the gateway", "ms", 20.0, ours=GATEWAY)
HTTP_METRICS_BESIDE = Row("get while `/metrics` and the page are read twice a second, p99 moved by", "ms", 1.0)
HTTP_PAGE = Row("page of 100 nodes x 4,096 partitions, CPU", "ms", 100.0, ours=GATEWAY)
HTTP_PAGE_SIZE = Row("page of 100 nodes x 4,096 partitions, size", "MiB", 1.0, ours=GATEWAY)
LOAD_DRIVES = (
    Row("load generator, 64 connections, CPU", "us", {OURS: 1.0}, ours=GENERATOR),
    Row("load generator, 64 connections, 16 in flight, CPU", "us", {OURS: 0.833}, ours=GENERATOR),  # 1.2 times.
)
LOAD_COSTS = (
    Row("load generator with redis-server, 64 connections, CPU", "us", {REDIS_BENCHMARK: 1.0}, ours=GENERATOR),
    Row("the same with 16 in flight", "us", {REDIS_BENCHMARK: 1.0}, ours=GENERATOR),
)
LOAD_LATENESS = Row("open loop at half of capacity, lateness, p99.9", "us", 200.0, ours=GENERATOR)

STORE_PUT = Row("durable put, one writer, time", "us", {ROCKSDB: 2.5})
STORE_PUT_BATCH = Row("durable batches of 100, a put, time", "us", {ROCKSDB: 0.8})
STORE_PUT_WRITERS = Row("durable put, 64 writers, time", "us", {ROCKSDB_GROUPS: 1.0, ROCKSDB_THREADS: 0.8})
STORE_GET = Row("random get from a store, one run", "ns", {"LMDB": 0.6})
STORE_GET_YOUNG = Row("random get from a store, memtable and 8 young runs", "ns", {"LMDB": 1.2})
STORE_MISS_YOUNG = Row("the same, miss", "ns", {"LMDB": 1.0})
STORE_SCAN = Row("full scan of a store, one run, a record", "ns", {"LMDB": 0.8})
STORE_RANGE = Row("range of 10 of a store, one run", "ns", {"LMDB": 0.8})
STORE_MERGING_GET = Row("get while 1 GiB is merged, p99", "us", {AT_REST: 3.0})
STORE_MERGING_PUT = Row("durable put while 1 GiB is merged, p99", "us", {AT_REST: 10.0})
STORE_AMPLIFICATION = Row("written to the disk for each byte put, uniform overwrites", "B", {ROCKSDB: 1.0})
STORE_SPACE = Row("space of runs at rest", "MiB", {LIVE_BYTES: 1.0})
STORE_SPACE_MERGING = Row("space of runs while merging, most", "MiB", {TWICE_LIVE_BYTES: 1.0})
STORE_OPENING = Row("opening after a kill, 128 MiB unmerged, 1 GiB of log", "s", 3.0)
STORE_FOLLOWERS = Row("a batch read from the log by two followers, one batch apart, CPU of both", "us", 200.0)
STORE_FOLLOWER_MEMORY = Row("anonymous memory that a follower takes, 1 GiB behind", "MiB", 4.0)
STORE_MEMORY = Row("anonymous memory with 10 GiB written, node, most", "MiB", {MEMTABLES: 1.0})
STORE_MEMORY_CHILD = Row("the same, child that merges", "MiB", {BUDGET: 1.0})
STORE_SIMULATED = Row("a simulated second of writes, segments of 64 MiB, CPU", "s", 1.0)

_LARGER_PEERS = {"LMDB": 1.0, "RocksDB": 1.0, "tinycdb": 1.0}
LARGER_GET = Row("get, data 3 x memory, uniform", "us", {**_LARGER_PEERS, DISK_1: 1.25})  # 0.8 of its reads.
LARGER_GET_P99 = Row("get, data 3 x memory, uniform, p99", "us")
LARGER_GET_PAGES = Row("pages read for it", "pages", 1.0)
LARGER_ZIPF = Row("get, data 3 x memory, zipf", "us", _LARGER_PEERS)
LARGER_ZIPF_P99 = Row("get, data 3 x memory, zipf, p99", "us")
LARGER_ZIPF_PAGES = Row("pages read for it, zipf", "pages", 1.0)
LARGER_MANY = Row("get_many of 100, per key, data 3 x memory", "us", _LARGER_PEERS)
LARGER_SCAN = Row("scan of 10,000, per record, data 3 x memory", "us", _LARGER_PEERS)
_LZ4 = f"{OURS} lz4"
LARGER_LZ4 = Row("get, lz4, data 3 x memory, uniform", "us", {"RocksDB lz4": 1.0}, ours=_LZ4)
LARGER_LZ4_P99 = Row("get, lz4, data 3 x memory, uniform, p99", "us", ours=_LZ4)
LARGER_LZ4_PAGES = Row("pages read for it, lz4", "pages", 2.0, ours=_LZ4)
LARGER_LZ4_ZIPF = Row("get, lz4, data 3 x memory, zipf", "us", {"RocksDB lz4": 1.0}, ours=_LZ4)
LARGER_LZ4_ZIPF_PAGES = Row("pages read for it, lz4, zipf", "pages", 2.0, ours=_LZ4)
LARGER_NODE = Row("get from a node, 64 connections, data 3 x memory, uniform", "us", {DISK_16: 1.25})
LARGER_NODE_CPU = Row("CPU of the node for it", "us")
LARGER_NODE_PAGES = Row("pages read for it by a node", "pages", 1.0)
LARGER_NODE_ZIPF = Row("get from a node, 64 connections, data 3 x memory, zipf", "us")
LARGER_NODE_LZ4 = Row("get from a node, 64 connections, lz4, data 3 x memory, uniform", "us")
LARGER_NODE_LZ4_CPU = Row("CPU of the node for it, lz4", "us")
LARGER_NODE_LZ4_PAGES = Row("pages read for it by a node, lz4", "pages", 2.0)
LARGER_P50, LARGER_P99 = (
    {row: Row(f"{row}, {name}", "us") for row in (LARGER_NODE, LARGER_NODE_ZIPF, LARGER_NODE_LZ4)}
    for name in ("p50", "p99")
)
LARGER_HOT = Row("get of a hot key beside 10,000 cold gets a second, p99", "us", {HOT_BESIDE: 2.0})
LARGER_PING = Row("ping beside 10,000 cold gets a second, p99", "us", 2000.0)

REGISTER_SYNC = Row("sync of the disk, one after the other", "ms")
REGISTER_P50 = Row("change of a register, synced, two rounds, p50", "ms", {SYNCS: 1.0})
REGISTER_ONE = Row("changes of one register, two rounds each", "ms", 3.333)  # 300 a second.
REGISTER_STAYS_P50 = Row("change of a register, synced, one round, p50", "ms")
REGISTER_KEYS = Row("changes over 64 registers, two rounds each", "us", 1000.0)  # 1,000 a second.
REGISTER_KEYS_STAYS = Row("changes over 64 registers, one round each", "us", 500.0)  # 2,000 a second.
REGISTER_CPU = Row("CPU of an acceptor for a change, two rounds", "us")
REGISTER_CPU_STAYS = Row("CPU of an acceptor for a change, one round", "us")
REGISTER_BATCHED = Row("changes of one register, 64 in flight", "us")
REGISTER_CROWDED = Row("changes of one register by 8 proposers", "ms", 20.0)  # 50 a second.
REGISTER_STARVED = Row("the longest wait of any of them", "s", 5.0)
REGISTER_ENTERED = Row("a change of acceptors meanwhile", "s")
REGISTER_KILLED = Row("no commit after an acceptor was killed", "s", 1.0)
REGISTER_STOPPED = Row("no commit after an acceptor was stopped", "s", 1.0)
CATALOGUE_GROWN = Row("catalogue of five new nodes, grown to five", "s", 10.0)
CATALOGUE_FAILED = Row("tables refused or lost meanwhile", "", 0.0)
REGISTER_RUNS = Row("CPU of a simulated run of a register, ideal disk", "ms", 10.0)  # 100 in a second.
REGISTER_RUNS_STORE = Row("CPU of a simulated run of a register, with the store", "ms", 200.0)  # 5 in a second.


@dataclass(frozen=True)
class Family:
    """Rows of one form: of so many members, partitions or seconds; limits by those, with a share where there is one."""

    form: str
    unit: str
    limits: Mapping[object, float | Mapping[str, float]] = field(default_factory=dict)

    def of(self, *numbers: int, share: str = "") -> Row:
        """The row with these numbers; `share` is p50 or p99."""
        name = self.form.format(*numbers) + (share and f", {share}")
        limits = self.limits.get((*numbers, share) if share else numbers)
        return Row(name, self.unit, limits)


METADATA_P50 = Family(
    "transaction on {:,} partitions, p50", "ms", {(count,): {name: 1.0} for count, name in TRANSACTION_SYNCS.items()}
)
METADATA_WRITTEN = Family(
    "written by a server for it, {:,} partitions", "KiB", {(count,): 256.0 for count in TRANSACTION_SYNCS}
)
METADATA_BURST = Family(
    "transactions of 1,000 operations at once, {:,} partitions", "", {(count,): 20.0 for count in TRANSACTION_SYNCS}
)
METADATA_BURST_TIME = Family("time of each of those, {:,} partitions", "us")
SUSTAINED_P50 = Row("transaction, thousands one after another, p50", "ms", {ETCD: 3.0})
SUSTAINED_CPU = Row("CPU of all servers for it", "us", {ETCD: 4.0})
SUSTAINED_SHOWN = Row("until all servers show the last of them", "s", 1.0)
METADATA = (METADATA_P50, METADATA_WRITTEN, METADATA_BURST, METADATA_BURST_TIME)

CLOCK_SIZES = {8: 1 / 15, 64: 1 / 50}  # Entries, and our time to that of a loop over dictionaries.
CLOCKS = {
    name: Family(form, "ns", {(size,): {DICTIONARIES: ratio} for size, ratio in CLOCK_SIZES.items()})
    for name, form in (
        ("compare", "two clocks of {} entries compared"),
        ("covers", "a clock of {} entries held against another"),
        ("merge", "two clocks of {} entries merged"),
    )
}
CLOCKS_IN_PYTHON = {name: Family(f"{family.form}, from Python", "ns") for name, family in CLOCKS.items()}

PUT_ALONE = Row("put at a majority of three, one writer, p50", "ms", {SYNCS_AND_TRIPS: 1.0})
PUT_SYNC = Row("sync of the disk meanwhile", "ms")
PUT_TRIP = Row("ping of a node meanwhile", "ms")
PUT_ORIGIN = Row("put at a majority of three, 64 connections, CPU of the node that is asked", "us", {REDIS: 15.0})
PUT_TARGET = Row("the same, CPU of another", "us", {REDIS: 6.0})
PUT_MANY = Row("the same, time", "us")
PUT_BYTES = Row("bytes between nodes for a put, three asked at once", "B", {TWICE_THE_RECORD: 1.2})
TOLD_OWNERS, ANY_NODE = "a client's that is told all owners", "a client's that knows one node"
BY_MAP = Row("get by a table's map, 64 tasks, CPU of client and nodes", "us", {TOLD_OWNERS: 1.1, ANY_NODE: 1.0})
TABLE_GET = Row("get from a table, 64 connections, CPU", "us", {DATASET: 6.0})
OUTAGE_FAILED = Row("reads that failed, one of three killed under load", "", 0.0)
OUTAGE_LOST = Row("acknowledged writes that were lost", "", 0.0)
OUTAGE_GAP = Row("no write acknowledged at those that live, longest", "ms", 200.0)
OUTAGE_TOLD = Row("writes that were at the dead, until their clients were told, longest", "ms", 1000.0)
CUT_P99 = Row("put at a majority, one link of three cut, p99", "us", {WHOLE_NET: 1.5})
ADDED, REPLACED = "a node added to four", "a dead node replaced"
MOVED_READS = {how: Row(f"reads that failed, {how}", "", 0.0) for how in (ADDED, REPLACED)}
MOVED_WRITES = {how: Row(f"writes at a majority that failed, {how}", "", 0.0) for how in MOVED_READS}
MOVED_BYTES = {how: Row(f"bytes that moved, {how}", "MB", {IDEAL: 1.25}) for how in MOVED_READS}
MOVED_P99 = {how: Row(f"put at a majority, {how}, p99", "us", {BEFORE: 3.0}) for how in MOVED_READS}
MOVED_TIME = {how: Row(f"until all has moved, {how}", "s", {COPYING: 2.0}) for how in MOVED_READS}
MOVED = (MOVED_READS, MOVED_WRITES, MOVED_BYTES, MOVED_P99, MOVED_TIME)
UNDIVIDED, FEW_RANGES = "never divided", "16 ranges"
DIVIDED_READS = Row("reads that failed, a range divided under load", "", 0.0)
DIVIDED_WRITES = Row("writes at a majority that failed, a range divided under load", "", 0.0)
DIVIDED_P99 = Row("put at a majority, a range divided, p99", "us", {BEFORE: 1.5})
DIVIDED_SECOND = Row("put at a majority, in the second of a division, p99", "us", {BEFORE: 3.0})
DIVIDED_COPIED = Row("copies that were loaded by divisions", "", 0.0)
DIVIDED_GET = Row("get of one of nine ranges in one space, CPU of the node", "us", {UNDIVIDED: 1.03})
DIVIDED_SCAN = Row("scan over nine ranges, a record", "us", {UNDIVIDED: 2.0})
ROUTE = Row("the range of a key among 100,000", "us", {FEW_RANGES: 1.2})
ONE_RANGE = "one range"
SPREAD_SCAN = Row("scan over 16 ranges on 3 nodes, a record", "us", {ONE_RANGE: 2.0})
SPREAD_PAGE = Row("its first page of 1,000 records", "us", {ONE_RANGE: 2.0})
PLANNED = Row("plan of 100,000 ranges on 100 nodes", "s", 2.0)
SPLIT_MANY = Row("split of one of 100,000 ranges, 3 metadata servers", "ms", 100.0)
SPLIT_SHOWN = Row("until each node's map has it", "s", 5.0)
SPLIT_FETCHED = Row("pages fetched for it by a node that is no metadata server", "KiB", 300.0)
RANGES_MEMORY = Row("memory of a copy of a range at rest, of 10,000", "KiB", 1.5)
MOVED_LOST = Row("records lost, after that another killed with its disk", "", 0.0)
CATCH_UP = {
    16: Row("catch-up of a node that was away, 16 partitions, a record", "us", 1e6 / 60_000),
    4_096: Row("catch-up of a node that was away, 4,096 partitions, a record", "us", 1e6 / 50_000),
}
CATCH_UP_GETS = {
    partitions: Row(f"get at another meanwhile, {partitions:,} partitions, p99", "us", {BEFORE: 3.0})
    for partitions in CATCH_UP
}
COPIES_START = Row("start with 4,096 copies, to an answer, more than with one", "s", 1.0)
COPIES_MEMORY = Row("memory of a copy at rest, of 4,096", "KiB", 1.5)
COPIES_IDLE = Row("CPU of an idle node with 4,096 copies, a second, more than with one", "ms", 0.3)

_SIZES = (8, 64, 256, 1024)
FIRST_DEAD = Family(
    "crash to first DEAD verdict, {} members", "s",
    {(8, "p50"): 6, (8, "p99"): 9, (64, "p50"): 10, (64, "p99"): 15, (256, "p50"): 12, (256, "p99"): 17,
     (1024, "p50"): 14.5, (1024, "p99"): 18},
)  # fmt: skip
FIRST_DEAD_LOCAL = Family(
    "the same with a probe each 0.5 s, {} members", "s",
    {(16, "p50"): 3.6, (16, "p99"): 5.5, (256, "p50"): 6, (256, "p99"): 9},
)  # fmt: skip
DEAD_SPREAD = Family("first DEAD to everyone, {} members", "s", {(size, "p99"): 0.8 for size in _SIZES})
KEYS_GONE = Family("first DEAD to keys gone everywhere, {} members, longest", "s", {(size,): 0.8 for size in _SIZES})
LEFT = Row("leave to keys gone everywhere, longest", "s", 1.5)
CHANGE = Family(
    "a change to everyone, {} members", "rounds",
    {(size, "p50"): 0.5 * math.log2(size) + 0.5 for size in _SIZES}
    | {(size, "p99"): math.log2(size) + 1 for size in _SIZES},
)  # fmt: skip
CHANGE_LOSSY = Family("the same at 30 % loss, {} members, longest", "s", {(size,): 5 for size in _SIZES})
CHANGE_LOST = Family(
    "changes that rumours alone never bring at 10 % loss, {} members", "per mille", {(size,): 1 for size in _SIZES}
)
CHANGE_LATE = Family("changes missing after 10 s at 10 % loss, {} members", "", {(size,): 0 for size in _SIZES})
SENT_MEMBERSHIP = Family("sent at rest for membership, {} members", "B/s", {(size,): 200 for size in _SIZES})
SENT_EXCHANGE = Family(
    "sent at rest for anti-entropy, {} members", "B/s", {(8,): 300, (64,): 300, (256,): 300, (1024,): 1000}
)
SENT_ALL = Family("sent at rest in all, {} members", "B/s", {(8,): 500, (64,): 500, (256,): 500, (1024,): 1200})
WRONG_STARVED = Family(
    "healthy called dead, I/O of {} of {} starved {} s of each and 1", "",
    {(1, 128, 16): 0, (2, 128, 16): 0, (4, 128, 16): 0, (16, 128, 32): {WITHOUT: 0.01}},
)  # fmt: skip
WRONG_DAY = Row("healthy called dead in 24 h of 128 members at 1 % loss", "", 0)
HEALED = Family(
    "the same view everywhere after {} s apart", "s", {(apart_s,): 35 for apart_s in (5, 20, 30, 600, 3600, 24 * 3600)}
)
HEALED_CRASHED = Family(
    "the same when a member crashed meanwhile, {} s apart, longest", "s", {(apart_s,): 35 for apart_s in (5, 12, 20)}
)
SIMULATED = Family(
    "CPU of a simulated node-hour, {} members", "ms", {(8,): 50, (64,): 67}  # Twenty and fifteen of them a second.
)  # fmt: skip
SIMULATED_RUNS = Row("CPU of a simulated run of a minute", "ms")
