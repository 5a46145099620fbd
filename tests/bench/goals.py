"""What is aimed at: the ratio to a peer, or a figure of our own, that each row must not exceed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GET_HIT_SMALL = "random get, hit, 100 B"
GET_MISS_SMALL = "random get, miss, 100 B"
GET_HIT_LARGE = "random get, hit, 1 KiB"
GET_MISS_LARGE = "random get, miss, 1 KiB"
GET_MANY_SMALL = "get_many of 100, per key, 100 B"
GET_MANY_LARGE = "get_many of 100, per key, 1 KiB"
SCAN = "ordered scan, per record, 100 B"
RANGE = "range of 10, 100 B"
GET_NEIGHBOURS = "gets in key order, every key, 100 B"
GET_SORTED = "gets in key order, a sample of the keys, 100 B"
GET_COMPRESSED = "random get, lz4 in 4 KiB blocks, 100 B"
BUILD_SMALL = "build from unsorted records, 100 B"
BUILD_LARGE = "build from unsorted records, 1 KiB"
BUILD_MEMORY = "peak memory of a build of 10 times its budget"
SIZE = "file size over raw data, per record, 100 B"
SERVING = "get from a node during a build, p99"
SERVING_SMALL = "get from a node during small builds, p99"
ROUND_TRIP = "get from an idle node, one connection, p50"
SEQUENCE_SHORT = "build from SequenceFiles, CPU per record, 31 B"
SEQUENCE_LONG = "build from SequenceFiles, CPU per record, 116 B"
SEQUENCE_SHORT_SORTED = "the same in key order, 31 B"
SEQUENCE_LONG_SORTED = "the same in key order, 116 B"
SEQUENCE_START = "build of one record, CPU"
LANES_BY_HASH = "build from 8 files by hash, two lanes"
LANES_MIXED = "build from 8 files in no order, two lanes"
LANES_MEMORY = "peak memory of a build in two lanes"
QUEUE = "small builds in a queue, CPU each"
LOOPS = "plain loops in two processes"
RESTART_READY = "restart, to the ready line"
RESTART = "restart, to an answer of every partition"
RESTART_COLD = "restart, to an answer of every partition, cold"
SWITCH_P99 = "get while 10 databases switch in turn, p99"
SWITCH_P50 = "get while 10 databases switch in turn, p50"
SWITCH_P999 = "get while 10 databases switch in turn, p99.9"
SWITCH_CROWDED_P99 = "the same with more clients than cores, p99"
SWITCH_CROWDED_P50 = "the same with more clients than cores, p50"
SWITCH_CROWDED_P999 = "the same with more clients than cores, p99.9"
SWITCH_FAILED = "gets that failed meanwhile"
SWITCH_BACK = "gets that stepped back meanwhile"
SCRUB_P99 = "get while its version is read back, p99"
SCRUB_GET = "random get, slices forgotten"
SCRUB_SCAN = "scan of 1,000, per record, slices forgotten"
CLIENT_GET = "blocking get, time"
CLIENT_GET_MANY = "blocking get_many of 100, time"
CLIENT_TASKS = "get under Trio, 64 tasks, CPU"
CLIENT_TASK = "get under Trio, one task, time"
NETWORK_ONE = "get, 64 connections, CPU"
NETWORK_PIPELINED = "get, 64 connections, 16 in flight, CPU"
NETWORK_BATCHED = "get_many of 100, 16 connections, CPU"
NETWORK_COLD_PIPELINED = "get, 2M keys, 64 connections, 16 in flight, CPU"
NETWORK_COLD_BATCHED = "get_many of 100, 2M keys, 16 connections, CPU"
NETWORK_CONNECTIONS = ("get, 256 connections, CPU", "get, 1,000 connections, CPU", "get, 10,000 connections, CPU")
NETWORK_MEMORY = "memory of an idle connection"
NETWORK_ROUND_TRIP = "get, one connection, no busy-poll, time"
NETWORK_BUSY_POLL = "get, one connection, busy-poll, time"
NETWORK_ROUND_TRIP_CPU = "get, one connection, no busy-poll, CPU"
NETWORK_BUSY_POLL_CPU = "get, one connection, busy-poll, CPU"
NETWORK_FEW_CPU = "get, 8 connections, no busy-poll, CPU"
NETWORK_LONE = "CPU of an idle node without others, a second"
NETWORK_THREAD = "get, one connection, beside a thread that computes, p99"
NETWORK_THREAD_PYTHON = "`databases`, one connection, beside a thread that computes, p99"
PING_BATCHES = "ping behind 64 get_many of 3,600, CPU before it"
PING_GETS = "ping behind 64 x 500 gets, CPU before it"
PING_SCANS = "ping behind 32 x 8 scans of 1,000, CPU before it"
PING_MIX = "ping behind all of these, CPU before it"
NETWORK_PINGS = (PING_BATCHES, PING_GETS, PING_SCANS, PING_MIX)
NETWORK_HANDED_OFF = "answered by Python, 64 connections, 16 in flight, CPU"
NETWORK_FORWARDED_ONE = "forwarded get, 64 connections, CPU"
NETWORK_FORWARDED_PIPELINED = "forwarded get, 64 connections, 16 in flight, CPU"
NETWORK_FORWARDED_BATCHED = "forwarded get_many of 100, 16 connections, CPU"
NETWORK_BEHIND = "forwarded get behind a value of 8 MiB, time"
NETWORK_DATABASES = "`databases`, 64 connections, 16 in flight, CPU"
CLUSTER_LOCAL = "get of what is here, 100,000 partitions, most elsewhere, CPU"
CLUSTER_LOCAL_PIPELINED = "the same with 16 in flight"
CLUSTER_DEADLINES = "get of what is here, beside 10,000 deadlines a second, CPU"
CLUSTER_SCAN = "scan, half of it elsewhere, a record"
CLUSTER_PAGES = "the same, pages alone"
CLUSTER_FROZEN_FIRST = "get while one of three owners is stopped, first second, p99"
CLUSTER_FROZEN_LATER = "the same after a second, p99"
CLUSTER_FROZEN_FAILED = "gets that failed meanwhile, one of three owners stopped"
CLUSTER_KILLED_FAILED = "gets that failed after kill -9 of 2 of 5 nodes at once"
CLUSTER_SWITCH_FAILED = "gets that failed while 10 databases switch on 5 nodes"
CLUSTER_SWITCH_BACK = "gets that stepped back on a node"
CLUSTER_SWITCH_BACK_ACROSS = "gets that stepped back across nodes, with `min_version`"
CLUSTER_BUILT = "1M records switched on 3 nodes, 2 copies, CPU of all"
CLUSTER_SUSPECTED = "a member with 65,536 partitions suspected, CPU of the serving thread"
CLUSTER = (
    CLUSTER_LOCAL, CLUSTER_LOCAL_PIPELINED, CLUSTER_DEADLINES, CLUSTER_SCAN, CLUSTER_PAGES, CLUSTER_FROZEN_FIRST,
    CLUSTER_FROZEN_LATER, CLUSTER_FROZEN_FAILED, CLUSTER_KILLED_FAILED, CLUSTER_SWITCH_FAILED, CLUSTER_SWITCH_BACK,
    CLUSTER_SWITCH_BACK_ACROSS, CLUSTER_BUILT, CLUSTER_SUSPECTED,
)  # fmt: skip
HTTP_GET = "HTTP get, 64 connections, CPU of the gateway"
HTTP_BESIDE = "get while HTTP is at its limit on the other core, p99"
HTTP_METRICS = "`/metrics` of 100 databases, CPU of the gateway"
HTTP_METRICS_BESIDE = "get while `/metrics` and the page are read twice a second, p99 moved by"
HTTP_PAGE = "page of 100 nodes x 4,096 partitions, CPU"
HTTP_PAGE_SIZE = "page of 100 nodes x 4,096 partitions, size"
LOAD_DRIVES = ("load generator, 64 connections, CPU", "load generator, 64 connections, 16 in flight, CPU")
LOAD_COSTS = ("load generator with redis-server, 64 connections, CPU", "the same with 16 in flight")
LOAD_LATENESS = "open loop at half of capacity, lateness, p99.9"
HTTP = (
    HTTP_GET, HTTP_BESIDE, HTTP_METRICS, HTTP_METRICS_BESIDE, HTTP_PAGE, HTTP_PAGE_SIZE, *LOAD_DRIVES, *LOAD_COSTS,
    LOAD_LATENESS,
)  # fmt: skip
STORE_PUT = "durable put, one writer, time"
STORE_PUT_BATCH = "durable batches of 100, a put, time"
STORE_PUT_WRITERS = "durable put, 64 writers, time"
STORE_GET = "random get from a store, one run"
STORE_GET_YOUNG = "random get from a store, memtable and 8 young runs"
STORE_MISS_YOUNG = "the same, miss"
STORE_SCAN = "full scan of a store, one run, a record"
STORE_RANGE = "range of 10 of a store, one run"
STORE_MERGING_GET = "get while 1 GiB is merged, p99"
STORE_MERGING_PUT = "durable put while 1 GiB is merged, p99"
STORE_AMPLIFICATION = "written to the disk for each byte put, uniform overwrites"
STORE_SPACE = "space of runs at rest"
STORE_SPACE_MERGING = "space of runs while merging, most"
STORE_OPENING = "opening after a kill, 128 MiB unmerged, 1 GiB of log"
STORE_MEMORY = "anonymous memory with 10 GiB written, node, most"
STORE_MEMORY_CHILD = "the same, child that merges"
STORE_SIMULATED = "a simulated second of writes, segments of 64 MiB, CPU"
STORE = (
    STORE_PUT, STORE_PUT_BATCH, STORE_PUT_WRITERS, STORE_GET, STORE_GET_YOUNG, STORE_MISS_YOUNG, STORE_SCAN,
    STORE_RANGE, STORE_MERGING_GET, STORE_MERGING_PUT, STORE_AMPLIFICATION, STORE_SPACE, STORE_SPACE_MERGING,
    STORE_OPENING, STORE_MEMORY, STORE_MEMORY_CHILD, STORE_SIMULATED,
)  # fmt: skip
LARGER_GET = "get, data 3 x memory, uniform"
LARGER_GET_P99 = "get, data 3 x memory, uniform, p99"
LARGER_GET_PAGES = "pages read for it"
LARGER_ZIPF = "get, data 3 x memory, zipf"
LARGER_ZIPF_P99 = "get, data 3 x memory, zipf, p99"
LARGER_ZIPF_PAGES = "pages read for it, zipf"
LARGER_MANY = "get_many of 100, per key, data 3 x memory"
LARGER_SCAN = "scan of 10,000, per record, data 3 x memory"
LARGER_LZ4 = "get, lz4, data 3 x memory, uniform"
LARGER_LZ4_P99 = "get, lz4, data 3 x memory, uniform, p99"
LARGER_LZ4_PAGES = "pages read for it, lz4"
LARGER_LZ4_ZIPF = "get, lz4, data 3 x memory, zipf"
LARGER_LZ4_ZIPF_PAGES = "pages read for it, lz4, zipf"
LARGER_NODE = "get from a node, 64 connections, data 3 x memory, uniform"
LARGER_NODE_P50 = "get from a node, 64 connections, data 3 x memory, uniform, p50"
LARGER_NODE_P99 = "get from a node, 64 connections, data 3 x memory, uniform, p99"
LARGER_NODE_CPU = "CPU of the node for it"
LARGER_NODE_PAGES = "pages read for it by a node"
LARGER_NODE_ZIPF = "get from a node, 64 connections, data 3 x memory, zipf"
LARGER_NODE_ZIPF_P50 = "get from a node, 64 connections, data 3 x memory, zipf, p50"
LARGER_NODE_ZIPF_P99 = "get from a node, 64 connections, data 3 x memory, zipf, p99"
LARGER_NODE_LZ4 = "get from a node, 64 connections, lz4, data 3 x memory, uniform"
LARGER_NODE_LZ4_P50 = "get from a node, 64 connections, lz4, data 3 x memory, uniform, p50"
LARGER_NODE_LZ4_P99 = "get from a node, 64 connections, lz4, data 3 x memory, uniform, p99"
LARGER_NODE_LZ4_CPU = "CPU of the node for it, lz4"
LARGER_NODE_LZ4_PAGES = "pages read for it by a node, lz4"
LARGER_HOT = "get of a hot key beside 10,000 cold gets a second, p99"
LARGER_PING = "ping beside 10,000 cold gets a second, p99"
LARGER_LIBRARY = (
    LARGER_GET, LARGER_GET_P99, LARGER_GET_PAGES, LARGER_ZIPF, LARGER_ZIPF_P99, LARGER_ZIPF_PAGES, LARGER_MANY,
    LARGER_SCAN, LARGER_LZ4, LARGER_LZ4_P99, LARGER_LZ4_PAGES, LARGER_LZ4_ZIPF, LARGER_LZ4_ZIPF_PAGES,
)  # fmt: skip
LARGER_SERVED = (
    LARGER_NODE, LARGER_NODE_P50, LARGER_NODE_P99, LARGER_NODE_CPU, LARGER_NODE_PAGES, LARGER_NODE_ZIPF,
    LARGER_NODE_ZIPF_P50, LARGER_NODE_ZIPF_P99, LARGER_HOT, LARGER_PING, LARGER_NODE_LZ4, LARGER_NODE_LZ4_P50,
    LARGER_NODE_LZ4_P99, LARGER_NODE_LZ4_CPU, LARGER_NODE_LZ4_PAGES,
)  # fmt: skip
REGISTER_SYNC = "sync of the disk, one after the other"
REGISTER_P50 = "change of a register, synced, two rounds, p50"
REGISTER_ONE = "changes of one register, two rounds each"
REGISTER_STAYS_P50 = "change of a register, synced, one round, p50"
REGISTER_KEYS = "changes over 64 registers, two rounds each"
REGISTER_KEYS_STAYS = "changes over 64 registers, one round each"
REGISTER_BATCHED = "changes of one register, 64 in flight"
REGISTER_CPU = "CPU of an acceptor for a change, two rounds"
REGISTER_CPU_STAYS = "CPU of an acceptor for a change, one round"
REGISTER_CROWDED = "changes of one register by 8 proposers"
REGISTER_STARVED = "the longest wait of any of them"
REGISTER_ENTERED = "a change of acceptors meanwhile"
REGISTER_KILLED = "no commit after an acceptor was killed"
REGISTER_STOPPED = "no commit after an acceptor was stopped"
METADATA_P50 = "transaction on {partitions:,} partitions, p50"
METADATA_WRITTEN = "written by a server for it, {partitions:,} partitions"
METADATA_BURST = "transactions of 1,000 operations at once, {partitions:,} partitions"
METADATA_BURST_TIME = "time of each of those, {partitions:,} partitions"
CATALOGUE_GROWN = "catalogue of five new nodes, grown to five"
CATALOGUE_FAILED = "tables refused or lost meanwhile"
REGISTER_RUNS = "CPU of a simulated run of a register, ideal disk"
REGISTER_RUNS_STORE = "CPU of a simulated run of a register, with the store"
REGISTER_UNITS = {
    REGISTER_SYNC: "ms", REGISTER_P50: "ms", REGISTER_ONE: "ms", REGISTER_STAYS_P50: "ms", REGISTER_KEYS: "us",
    REGISTER_KEYS_STAYS: "us", REGISTER_CPU: "us", REGISTER_CPU_STAYS: "us", REGISTER_BATCHED: "us",
    REGISTER_CROWDED: "ms", REGISTER_STARVED: "s", REGISTER_ENTERED: "s",
}  # fmt: skip
PARTITIONS = (4_096, 100_000)
DATASETS = (
    SEQUENCE_SHORT, SEQUENCE_LONG, SEQUENCE_SHORT_SORTED, SEQUENCE_LONG_SORTED, SEQUENCE_START, LANES_BY_HASH,
    LANES_MIXED, LANES_MEMORY, QUEUE, RESTART, RESTART_COLD, SWITCH_P99,
    SWITCH_CROWDED_P99, SWITCH_FAILED, SWITCH_BACK, SCRUB_P99, SCRUB_GET, SCRUB_SCAN,
)  # fmt: skip
SWITCH_ROWS = (
    (SWITCH_P99, SWITCH_P50, SWITCH_P999),
    (SWITCH_CROWDED_P99, SWITCH_CROWDED_P50, SWITCH_CROWDED_P999),
)

FIRST_DEAD = "crash to first DEAD verdict, {members} members"
FIRST_DEAD_LOCAL = "the same with a probe each 0.5 s, {members} members"
DEAD_SPREAD = "first DEAD to everyone, {members} members"
KEYS_GONE = "first DEAD to keys gone everywhere, {members} members, longest"
LEFT = "leave to keys gone everywhere, longest"
CHANGE = "a change to everyone, {members} members"
CHANGE_LOSSY = "the same at 30 % loss, {members} members, longest"
CHANGE_LOST = "changes that rumours alone never bring at 10 % loss, {members} members"
CHANGE_LATE = "changes missing after 10 s at 10 % loss, {members} members"
SENT_MEMBERSHIP = "sent at rest for membership, {members} members"
SENT_EXCHANGE = "sent at rest for anti-entropy, {members} members"
SENT_ALL = "sent at rest in all, {members} members"
WRONG_STARVED = "healthy called dead, I/O of {starved} of {members} starved {starved_s} s of each and 1"
WRONG_DAY = "healthy called dead in 24 h of 128 members at 1 % loss"
HEALED = "the same view everywhere after {apart_s} s apart"
HEALED_CRASHED = "the same when a member crashed meanwhile, {apart_s} s apart, longest"
SIMULATED = "CPU of a simulated node-hour, {members} members"
SIMULATED_RUNS = "CPU of a simulated run of a minute"

ITSELF = ""  # A goal for our own figure rather than for a ratio.
BUDGET = "the budget"
TWO_MISSES = "two misses"
IDLE = "idle"
INFLATE_AND_PASS, INFLATE_AND_PASS_AGAIN = "ISA-L + a copy, new memory", "ISA-L + a copy"
ONE_CORE = "one core"
ONE_EACH = "a child each"
BEFORE = "before"
REDIS_PY, REDIS_ASYNCIO = "redis-py, hiredis", "redis.asyncio, uvloop"
REDIS = "redis-server"
FLOOR = "constant in C"
WITHOUT = "without"
FIRST = "nothing before it"
NOBODY = "the same table, nobody else"
PLAIN = "plain loop"
HALF, WHOLE = "half elsewhere", "all here"
STAGE, HEALTHY = "one stage + 3 x healthy", "healthy"
ALONE = "a node alone, twice"
FEW = "with 16 partitions"
QUART = "quart-trio, hypercorn"
AT_REST = "at rest"
LIVE_BYTES, TWICE_LIVE_BYTES = "1.5 x live bytes + a file", "2 x live bytes + a file"
MEMTABLES = "memtables + 64 MiB"
ROCKSDB_THREADS = "RocksDB, C interface"
SERVER, REDIS_BENCHMARK = "GossipKV", "redis-benchmark"
SYNCS = "3 ms + 2 syncs"
DISK_1, DISK_8, DISK_16 = (f"C loop, depth {depth}" for depth in (1, 8, 16))
HOT_BESIDE = "beside hot ones"
TRANSACTION_SYNCS = {4_096: "15 ms + 4 syncs", 100_000: "50 ms + 4 syncs"}


@dataclass(frozen=True)
class Goal:
    """The median ratio of `row` to `peer` is at most this."""

    row: str
    peer: str
    at_most: float


GOALS = (
    Goal(GET_HIT_SMALL, "LMDB", 0.45),
    Goal(GET_HIT_SMALL, "tinycdb", 0.70),
    Goal(GET_HIT_SMALL, TWO_MISSES, 1.8),
    Goal(GET_HIT_SMALL, "dict", 0.70),
    Goal(GET_HIT_SMALL, "RocksDB", 0.17),
    Goal(GET_MISS_SMALL, "LMDB", 0.17),
    Goal(GET_HIT_LARGE, "LMDB", 0.55),
    Goal(GET_HIT_LARGE, "tinycdb", 1.0),
    Goal(GET_MANY_SMALL, "LMDB", 0.08),
    Goal(GET_MANY_LARGE, "LMDB", 0.20),
    Goal(SCAN, "LMDB", 0.40),
    Goal(RANGE, "LMDB", 0.50),
    Goal(GET_NEIGHBOURS, "LMDB", 0.65),
    Goal(GET_SORTED, "LMDB", 0.55),
    Goal(GET_COMPRESSED, "LMDB", 1.25),
    Goal(GET_COMPRESSED, "RocksDB lz4", 0.20),
    Goal(BUILD_SMALL, "RocksDB", 0.35),
    Goal(BUILD_LARGE, "LMDB", 0.9),
    Goal(BUILD_LARGE, "RocksDB", 1.2),
    Goal(BUILD_MEMORY, BUDGET, 1.0),
    Goal(SIZE, ITSELF, 10.5),
    Goal(SERVING, IDLE, 3.0),
    Goal(SERVING_SMALL, IDLE, 3.0),
    *(
        Goal(row, INFLATE_AND_PASS, 2.4)
        for row in (SEQUENCE_SHORT, SEQUENCE_LONG, SEQUENCE_SHORT_SORTED, SEQUENCE_LONG_SORTED)
    ),
    Goal(LANES_BY_HASH, ONE_CORE, 0.556),  # 1.8 times its rate.
    Goal(LANES_MIXED, ONE_CORE, 0.556),
    Goal(LANES_MEMORY, BUDGET, 1.0),
    Goal(QUEUE, ONE_EACH, 0.25),
    Goal(RESTART, ITSELF, 3.0),
    Goal(RESTART_COLD, ITSELF, 3.0),
    Goal(SWITCH_P99, BEFORE, 2.0),
    Goal(SWITCH_CROWDED_P99, BEFORE, 2.0),
    Goal(SWITCH_FAILED, ITSELF, 0.0),
    Goal(SWITCH_BACK, ITSELF, 0.0),
    Goal(SCRUB_P99, WITHOUT, 1.2),
    Goal(SCRUB_GET, WITHOUT, 1.01),
    Goal(SCRUB_SCAN, WITHOUT, 1.01),
    Goal(CLIENT_GET, REDIS_PY, 0.75),
    Goal(CLIENT_GET_MANY, REDIS_PY, 0.50),
    Goal(CLIENT_TASKS, REDIS_ASYNCIO, 0.167),  # Six times its operations for the same processor time.
    Goal(CLIENT_TASK, REDIS_ASYNCIO, 0.9),
    Goal(NETWORK_ONE, REDIS, 0.88),
    Goal(NETWORK_PIPELINED, REDIS, 0.60),
    Goal(NETWORK_BATCHED, REDIS, 0.25),
    Goal(NETWORK_COLD_PIPELINED, REDIS, 0.35),
    Goal(NETWORK_COLD_BATCHED, REDIS, 0.2),
    Goal(NETWORK_CONNECTIONS[0], REDIS, 0.9),
    *(Goal(row, REDIS, 0.75) for row in NETWORK_CONNECTIONS[1:]),
    Goal(NETWORK_ONE, FLOOR, 1.08),
    Goal(NETWORK_PIPELINED, FLOOR, 1.5),
    Goal(NETWORK_CONNECTIONS[1], FLOOR, 1.15),
    Goal(NETWORK_MEMORY, ITSELF, 0.35),
    Goal(NETWORK_ROUND_TRIP, REDIS, 1.05),
    Goal(NETWORK_BUSY_POLL, REDIS, 0.50),
    Goal(NETWORK_ROUND_TRIP_CPU, REDIS, 1.2),
    Goal(NETWORK_FEW_CPU, REDIS, 0.85),
    Goal(NETWORK_BUSY_POLL_CPU, REDIS, 1.0),
    Goal(NETWORK_LONE, ITSELF, 1.0),  # A thousandth of a core.
    Goal(NETWORK_THREAD, ITSELF, 1.0),
    *(Goal(row, ITSELF, 2.0) for row in NETWORK_PINGS),
    Goal(NETWORK_HANDED_OFF, ITSELF, 1.3),
    Goal(NETWORK_FORWARDED_ONE, REDIS, 1.0),
    Goal(NETWORK_FORWARDED_PIPELINED, REDIS, 0.7),
    Goal(NETWORK_FORWARDED_BATCHED, REDIS, 0.6),
    Goal(CLUSTER_LOCAL, WITHOUT, 1.03),
    Goal(CLUSTER_LOCAL_PIPELINED, WITHOUT, 1.03),
    Goal(CLUSTER_DEADLINES, WITHOUT, 1.031),  # 0.97 of the rate.
    Goal(CLUSTER_SCAN, WHOLE, 2.0),  # Half the rate.
    Goal(CLUSTER_FROZEN_FIRST, STAGE, 1.0),
    Goal(CLUSTER_FROZEN_LATER, HEALTHY, 3.0),
    Goal(CLUSTER_FROZEN_FAILED, ITSELF, 0.0),
    Goal(CLUSTER_KILLED_FAILED, ITSELF, 0.0),
    Goal(CLUSTER_SWITCH_FAILED, ITSELF, 0.0),
    Goal(CLUSTER_SWITCH_BACK, ITSELF, 0.0),
    Goal(CLUSTER_SWITCH_BACK_ACROSS, ITSELF, 0.0),
    Goal(CLUSTER_BUILT, ALONE, 1.5),
    Goal(CLUSTER_SUSPECTED, ITSELF, 5.0),
    Goal(HTTP_GET, QUART, 0.33),
    Goal(HTTP_BESIDE, WITHOUT, 1.5),
    Goal(HTTP_METRICS, ITSELF, 20.0),
    Goal(HTTP_METRICS_BESIDE, ITSELF, 1.0),
    Goal(HTTP_PAGE, ITSELF, 100.0),
    Goal(HTTP_PAGE_SIZE, ITSELF, 1.0),
    Goal(LOAD_DRIVES[0], SERVER, 1.0),
    Goal(LOAD_DRIVES[1], SERVER, 0.833),  # It drives 1.2 times what the server answers.
    *(Goal(row, REDIS_BENCHMARK, 1.0) for row in LOAD_COSTS),
    Goal(LOAD_LATENESS, ITSELF, 200.0),
    Goal(STORE_PUT, "RocksDB", 2.5),
    Goal(STORE_PUT_BATCH, "RocksDB", 0.8),
    Goal(STORE_PUT_WRITERS, "RocksDB", 0.8),
    Goal(STORE_PUT_WRITERS, ROCKSDB_THREADS, 0.8),
    Goal(STORE_GET, "LMDB", 0.6),
    Goal(STORE_GET_YOUNG, "LMDB", 1.2),
    Goal(STORE_MISS_YOUNG, "LMDB", 1.0),
    Goal(STORE_SCAN, "LMDB", 0.8),
    Goal(STORE_RANGE, "LMDB", 0.8),
    Goal(STORE_MERGING_GET, AT_REST, 3.0),
    Goal(STORE_MERGING_PUT, AT_REST, 10.0),
    Goal(STORE_AMPLIFICATION, "RocksDB", 1.0),
    Goal(STORE_SPACE, LIVE_BYTES, 1.0),
    Goal(STORE_SPACE_MERGING, TWICE_LIVE_BYTES, 1.0),
    Goal(STORE_OPENING, ITSELF, 3.0),
    Goal(STORE_MEMORY, MEMTABLES, 1.0),
    Goal(STORE_MEMORY_CHILD, BUDGET, 1.0),
    Goal(STORE_SIMULATED, ITSELF, 1.0),
)


LARGER_THAN_MEMORY = (
    *(
        Goal(row, peer, 1.0)
        for row in (LARGER_GET, LARGER_ZIPF, LARGER_MANY, LARGER_SCAN)
        for peer in ("LMDB", "RocksDB", "tinycdb")
    ),
    Goal(LARGER_GET, DISK_1, 1.25),  # 0.8 of its reads.
    Goal(LARGER_GET_PAGES, ITSELF, 1.0),
    Goal(LARGER_ZIPF_PAGES, ITSELF, 1.0),
    Goal(LARGER_LZ4, "RocksDB lz4", 1.0),
    Goal(LARGER_LZ4_ZIPF, "RocksDB lz4", 1.0),
    Goal(LARGER_LZ4_PAGES, ITSELF, 2.0),
    Goal(LARGER_LZ4_ZIPF_PAGES, ITSELF, 2.0),
    Goal(LARGER_NODE, DISK_16, 1.25),
    Goal(LARGER_NODE_PAGES, ITSELF, 1.0),
    Goal(LARGER_NODE_LZ4_PAGES, ITSELF, 2.0),
    Goal(LARGER_HOT, HOT_BESIDE, 2.0),
    Goal(LARGER_PING, ITSELF, 2000.0),
)
GOALS += LARGER_THAN_MEMORY


def metadata(row: str, partitions: int) -> str:
    """The name of a row about a map of so many partitions."""
    return row.format(partitions=partitions)


REGISTER_GOALS = (
    Goal(REGISTER_P50, SYNCS, 1.0),
    Goal(REGISTER_ONE, ITSELF, 3.333),  # 300 a second.
    Goal(REGISTER_KEYS, ITSELF, 1000.0),  # 1,000 a second.
    Goal(REGISTER_KEYS_STAYS, ITSELF, 500.0),  # 2,000 a second.
    Goal(REGISTER_CROWDED, ITSELF, 20.0),  # 50 a second.
    Goal(REGISTER_STARVED, ITSELF, 5.0),
    Goal(REGISTER_KILLED, ITSELF, 1.0),
    Goal(REGISTER_STOPPED, ITSELF, 1.0),
    *(Goal(metadata(METADATA_P50, count), TRANSACTION_SYNCS[count], 1.0) for count in PARTITIONS),
    *(Goal(metadata(METADATA_WRITTEN, count), ITSELF, 256.0) for count in PARTITIONS),
    *(Goal(metadata(METADATA_BURST, count), ITSELF, 20.0) for count in PARTITIONS),
    Goal(CATALOGUE_GROWN, ITSELF, 10.0),
    Goal(CATALOGUE_FAILED, ITSELF, 0.0),
    Goal(REGISTER_RUNS, ITSELF, 10.0),  # 100 in a second.
    Goal(REGISTER_RUNS_STORE, ITSELF, 200.0),  # 5 in a second.
)
GOALS += REGISTER_GOALS


def gossip(row: str, members: int) -> str:
    """The name of a row about so many members."""
    return row.format(members=members)


def _gossip() -> Iterator[Goal]:
    """The goals of gossip, by size."""
    for members, p50, p99 in ((8, 6, 9), (64, 10, 15), (256, 12, 17), (1024, 14.5, 18)):
        rounds = math.log2(members)
        for row, middle, most in (
            (FIRST_DEAD, p50, p99),
            (DEAD_SPREAD, None, 0.8),
            (CHANGE, 0.5 * rounds + 0.5, rounds + 1),
        ):
            if middle is not None:
                yield Goal(f"{gossip(row, members)}, p50", ITSELF, middle)
            yield Goal(f"{gossip(row, members)}, p99", ITSELF, most)
        for row, limit in (
            (KEYS_GONE, 0.8),
            (CHANGE_LOSSY, 5),
            (CHANGE_LOST, 1),
            (CHANGE_LATE, 0),
            (SENT_MEMBERSHIP, 200),
            (SENT_EXCHANGE, 300 if members <= 256 else 1000),  # The goal's own bound.
            (SENT_ALL, 500 if members <= 256 else 1200),  # As above.
        ):
            yield Goal(gossip(row, members), ITSELF, limit)
    for members, p50, p99 in ((16, 3.6, 5.5), (256, 6, 9)):
        yield Goal(f"{gossip(FIRST_DEAD_LOCAL, members)}, p50", ITSELF, p50)
        yield Goal(f"{gossip(FIRST_DEAD_LOCAL, members)}, p99", ITSELF, p99)
    yield Goal(LEFT, ITSELF, 1.5)
    for starved in (1, 2, 4):
        yield Goal(WRONG_STARVED.format(starved=starved, starved_s=16, members=128), ITSELF, 0)
    yield Goal(WRONG_STARVED.format(starved=16, starved_s=32, members=128), WITHOUT, 0.01)
    yield Goal(WRONG_DAY, ITSELF, 0)
    for apart_s in (5, 20, 30, 600, 3600, 24 * 3600):
        yield Goal(HEALED.format(apart_s=apart_s), ITSELF, 35)
    for apart_s in (5, 12, 20):
        yield Goal(HEALED_CRASHED.format(apart_s=apart_s), ITSELF, 35)
    yield Goal(SIMULATED.format(members=8), ITSELF, 50)  # Twenty node-hours a second.
    yield Goal(SIMULATED.format(members=64), ITSELF, 67)  # Fifteen: records of each other leave the caches.


GOSSIP = tuple(_gossip())
GOALS += GOSSIP


def goal(row: str, peer: str) -> float | None:
    """The limit for this row against this peer, if there is one."""
    return next((each.at_most for each in GOALS if (each.row, each.peer) == (row, peer)), None)
