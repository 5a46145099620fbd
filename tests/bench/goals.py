"""Every row of the benchmark: its unit, and the greatest permitted ratio to a peer, or figure for GossipKV itself."""

from __future__ import annotations

from tests.bench.measurement import ITSELF, OURS, Row

# Yardsticks that are no store or server of other projects.
BUDGET = "the budget"
BEFORE, AT_REST = "before", "at rest"
INFLATE_AND_COPY = "ISA-L + a copy, new memory"
ONE_CORE = "one core"
BOTH_CORES, ONE_PUMP = "what two cores can do", "one pump"
FLOOR = "constant in C"
OBJECTS, COLUMNS = "as objects", "as columns"
HALF, WHOLE = "half elsewhere", "all here"
ALONE = "a node alone, twice"
ELSEWHERE, ON_TWO = f"{OURS}, elsewhere", f"{OURS}, on two others"
PLAIN = "the same, plain"
ONE_COLUMN = "a single column"
PLAIN_PUT, PRESENT = "a plain put", "its present records"
LIVE_BYTES, TWICE_LIVE_BYTES = "1.5 x live bytes + a file", "2 x live bytes + a file"
SYNCS_AND_TRIPS, TWICE_THE_RECORD = "2 syncs + 2 round trips + 0.3 ms", "the record and its head, twice"
DATASET = "a dataset's"
TOLD_OWNERS, ANY_NODE = "a client's that is told all owners", "a client's that knows one node"
IDEAL, COPYING = "its share", "copying at `table_transfer`"
FEW_RANGES = "16 ranges"
WRITING = "writing it"
PUT_MANY = "writers of put_many"
DISK_1, DISK_16 = "C loop, depth 1", "C loop, depth 16"
HOT_BESIDE = "beside hot ones"
GENERATOR = "load generator"
MESSAGEPACK = f"{OURS}, MessagePack-RPC"

# Stores, servers and clients of other projects.
REDIS, REDIS_WAITAOF, REDIS_BENCHMARK = "redis-server", "three redis-server, WAITAOF", "redis-benchmark"
REDIS_PY, REDIS_ASYNCIO = "redis-py, hiredis", "redis.asyncio, uvloop"
COREDIS, ETCD_CLIENT = "coredis, uvloop", "etcd3, etcd"
NGINX = "nginx"
ROCKSDB, ROCKSDB_THREADS = "RocksDB", "RocksDB, threads"
ETCD = "etcd"
DUCKDB, DUCKDB_PLAIN = "DuckDB, Snappy", "DuckDB, uncompressed"
SPARK_PARQUET = "df.sort(key).write.parquet"
FEAST_REDIS = "Feast's Redis store"

GET_HIT_SMALL = Row("random get, hit, 100 B", "ns", {"LMDB": 0.45, "tinycdb": 0.70, "dict": 0.70, "RocksDB": 0.17})
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
GET_MANY_LARGE = Row("get_many of 100, per key, 1 KiB", "ns", {"LMDB": 0.20})
BUILD_LARGE = Row("build from unsorted records, 1 KiB", "s", {"LMDB": 0.9, "RocksDB": 0.8})
BUILD_MEMORY = Row("peak memory of a build of 10 times its budget", "MiB", {BUDGET: 1.0})

SEQUENCES = SEQUENCE_SHORT, SEQUENCE_LONG, SEQUENCE_SHORT_SORTED, SEQUENCE_LONG_SORTED = [
    Row(name, "us", {INFLATE_AND_COPY: 2.4})
    for name in (
        "build from SequenceFiles, CPU per record, 31 B",
        "build from SequenceFiles, CPU per record, 116 B",
        "the same in key order, 31 B",
        "the same in key order, 116 B",
    )
]
LANES = LANES_BY_HASH, LANES_MIXED = [
    Row(f"build from 8 files {how}, two lanes", "s", {ONE_CORE: 0.556})  # 1.8 times the rate of one core.
    for how in ("by hash", "in no order")
]
LANES_MEMORY = Row("peak memory of a build in two lanes", "MiB", {BUDGET: 1.0})
PARQUET = Row("build from DuckDB's Parquet, 100 B, CPU", "s", {DUCKDB: 1.0, DUCKDB_PLAIN: 1.0})
PARQUET_ROWS = Row("the same, two columns as JSON rows, CPU", "s", {ONE_COLUMN: 2.0})
SPARK_WRITE = Row("gossipkv.spark.write, 100 B, time", "s", {SPARK_PARQUET: 1.5})
SWITCH = Row("get while 10 databases switch in turn, p99", "us", {BEFORE: 2.0})

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
NETWORK_PINGS = (
    Row("ping behind 64 get_many of 3,600, CPU before it", "ms", 2.0),
    Row("ping behind 64 x 500 gets, CPU before it", "ms", 2.0),
    Row("ping behind 32 x 8 scans of 1,000, CPU before it", "ms", 2.0),
    Row("ping behind all of these, CPU before it", "ms", 2.0),
)
NETWORK_FORWARDED_ONE = Row("forwarded get, 64 connections, CPU", "us", {REDIS: 1.0}, ours=ELSEWHERE)
NETWORK_FORWARDED_PIPELINED = Row(
    "forwarded get, 64 connections, 16 in flight, CPU", "us", {REDIS: 0.7}, ours=ELSEWHERE
)
NETWORK_FORWARDED_BATCHED = Row("forwarded get_many of 100, 16 connections, CPU", "us", {REDIS: 0.6}, ours=ON_TWO)
RESP_ONE = Row("GET by RESP, 64 connections, CPU", "us", {MESSAGEPACK: 1.05, REDIS: 0.95})
RESP_PIPELINED = Row("GET by RESP, 64 connections, 16 in flight, CPU", "us", {MESSAGEPACK: 1.05, REDIS: 0.55})
RESP_BATCHED = Row("MGET of 100 by RESP, 16 connections, CPU", "us", {REDIS: 0.35})
PUMPS = tuple(
    (
        Row(f"two pumps, two cores: {what}, time a request", "us", {BOTH_CORES: 1.11}),
        Row(f"two pumps, two cores: {what}, CPU of the node", "us", {ONE_PUMP: 1.05}),
    )
    for what in ("get, 64 connections", "get, 64 connections, 16 in flight", "get_many of 100, 16 connections")
)
TLS_ONE = Row("get by TLS, 64 connections, CPU", "us", {PLAIN: 1.6, REDIS: 0.9})
TLS_PIPELINED = Row("get by TLS, 64 connections, 16 in flight, CPU", "us", {PLAIN: 1.3, REDIS: 0.5})
TLS_HANDSHAKE = Row("connection with a full handshake, CPU", "us", {NGINX: 1.1})
TLS_RESUMED = Row("connection with a ticket, CPU", "us", {NGINX: 1.1})
HTTP_NODE = Row("HTTP get of a node, 64 connections, CPU", "us", {MESSAGEPACK: 1.3, NGINX: 1.2})
LOAD_DRIVES = (
    Row("load generator, 64 connections, CPU", "us", {OURS: 1.0}, ours=GENERATOR),
    # 1.2 times the server's rate.
    Row("load generator, 64 connections, 16 in flight, CPU", "us", {OURS: 0.833}, ours=GENERATOR),
)
LOAD_COSTS = (
    Row("load generator with redis-server, 64 connections, CPU", "us", {REDIS_BENCHMARK: 1.0}, ours=GENERATOR),
    Row("the same with 16 in flight", "us", {REDIS_BENCHMARK: 1.0}, ours=GENERATOR),
)
LOAD_LATENESS = Row("open loop at half of capacity, lateness, p99.9", "us", 200.0, ours=GENERATOR)
CLIENT_GET = Row("blocking get, time", "us", {REDIS_PY: 0.75, ETCD_CLIENT: 0.5})
CLIENT_GET_MANY = Row("blocking get_many of 100, time", "us", {REDIS_PY: 0.50})
# Six times the peer's operations for the same time.
CLIENT_THREADS = Row("blocking get, 16 threads share a client, time", "us", {REDIS_PY: 0.667})  # 1.5 times as many.
CLIENT_TASKS = Row("get under Trio, 64 tasks, CPU", "us", {REDIS_ASYNCIO: 0.167})
CLIENT_TASK = Row("get under Trio, one task, time", "us", {REDIS_ASYNCIO: 0.9})
CLIENT_AIO_TASKS = Row("get under asyncio, 100 tasks, CPU", "us", {REDIS_ASYNCIO: 0.5, COREDIS: 0.5})
CLIENT_AIO_TASK = Row("get under asyncio, one task, CPU", "us", {REDIS_ASYNCIO: 0.7, COREDIS: 0.7})
# Three times the rate.
COLUMNS_SCAN = Row("scan of 10M records into columns, a record", "ns", {OBJECTS: 0.333}, ours=COLUMNS)
COLUMNS_MANY = Row("get_many of 10,000 into a column, a key, CPU of the client", "ns", {OBJECTS: 0.5}, ours=COLUMNS)

FEAST_P50 = Row("Feast: 100 entities x 10 features, p50", "ms", {FEAST_REDIS: 0.8})
FEAST_CPU = Row("Feast: 100 entities x 10 features, CPU of the client", "ms", {FEAST_REDIS: 0.8})

CLUSTER_SCAN = Row("scan, half of it elsewhere, a record", "ns", {WHOLE: 2.0}, ours=HALF)  # Half the rate.
CLUSTER_IDLE = Row("CPU of an idle node of 20, ten databases, a second", "ms", 3.0)
CLUSTER_BUILT = Row("1M records switched on 3 nodes, 2 copies, CPU of all", "s", {ALONE: 1.5})

STORE_PUT = Row("durable put, one writer, time", "us", {ROCKSDB: 2.5})
STORE_PUT_BATCH = Row("durable batches of 100, a put, time", "us", {ROCKSDB: 0.8})
STORE_PUT_WRITERS = Row("durable put, 64 writers, time", "us", {ROCKSDB_THREADS: 0.8})
STORE_GET = Row("random get from a store, one run", "ns", {"LMDB": 0.6})
STORE_GET_YOUNG = Row("random get from a store, memtable and 8 young runs", "ns", {"LMDB": 1.2})
STORE_MISS_YOUNG = Row("the same, miss", "ns", {"LMDB": 1.0})
STORE_SCAN = Row("full scan of a store, one run, a record", "ns", {"LMDB": 0.8})
STORE_RANGE = Row("range of 10 of a store, one run", "ns", {"LMDB": 0.8})
STORE_AMPLIFICATION = Row("written to the disk for each byte put, uniform overwrites", "B", {ROCKSDB: 1.0})
STORE_SPACE = Row("space of runs at rest", "MiB", {LIVE_BYTES: 1.0})
STORE_SPACE_MERGING = Row("space of runs while merging, most", "MiB", {TWICE_LIVE_BYTES: 1.0})

_LARGER_PEERS = {"LMDB": 1.0, "RocksDB": 1.0, "tinycdb": 1.0}
LARGER_GET = Row("get, data 3 x memory, uniform", "us", {**_LARGER_PEERS, DISK_1: 1.25})  # 0.8 of the loop's reads.
LARGER_GET_PAGES = Row("pages read for it", "pages", 1.0)
LARGER_ZIPF = Row("get, data 3 x memory, zipf", "us", _LARGER_PEERS)
LARGER_ZIPF_PAGES = Row("pages read for it, zipf", "pages", 1.0)
LARGER_MANY = Row("get_many of 100, per key, data 3 x memory", "us", {"LMDB": 1.0, "RocksDB": 1.0})
LARGER_SCAN = Row("scan of 10,000, per record, data 3 x memory", "us", {"LMDB": 1.0, "RocksDB": 1.0})
_LZ4 = f"{OURS} lz4"
LARGER_LZ4 = Row("get, lz4, data 3 x memory, uniform", "us", {"RocksDB lz4": 1.0}, ours=_LZ4)
LARGER_LZ4_PAGES = Row("pages read for it, lz4", "pages", 2.0, ours=_LZ4)
LARGER_LZ4_ZIPF = Row("get, lz4, data 3 x memory, zipf", "us", {"RocksDB lz4": 1.0}, ours=_LZ4)
LARGER_LZ4_ZIPF_PAGES = Row("pages read for it, lz4, zipf", "pages", 2.0, ours=_LZ4)
LARGER_NODE = Row("get from a node, 64 connections, data 3 x memory, uniform", "us", {DISK_16: 1.25})
LARGER_NODE_PAGES = Row("pages read for it by a node", "pages", 1.0)
LARGER_HOT = Row("get of a hot key beside 10,000 cold gets a second, p99", "us", {HOT_BESIDE: 2.0})

SUSTAINED_P50 = Row("transaction, thousands one after another, p50", "ms", {ETCD: 2.0})
SUSTAINED_CPU = Row("CPU of all servers for it", "us", {ETCD: 2.0})
SUSTAINED_SHOWN = Row("until all servers show the last of them", "s", 1.0)

TABLE_GET = Row("get from a table, 64 connections, CPU", "us", {DATASET: 1.5})
TABLE_GET_PIPELINED = Row("get from a table, 64 connections, 16 in flight, CPU", "us", {DATASET: 2.0})
TABLE_GET_TOKEN = Row("get from a table with a token, 64 connections, CPU", "us", {DATASET: 1.7})
TABLE_GET_MANY = Row("get_many of 100 from a table, 16 connections, CPU", "us", {DATASET: 2.0})
TABLE_SCAN = Row("scan of a table, a record, CPU", "ns", {DATASET: 1.5})
TABLE_TWO_PUMPS = Row("get from a table, two pumps, two cores, CPU of the node", "us", {ONE_PUMP: 1.15})
TABLE_RESP_GET = Row("GET from a table by RESP, 64 connections, CPU", "us", {MESSAGEPACK: 1.1})
TABLE_HTTP_GET = Row("HTTP get from a table, 64 connections, CPU", "us", {MESSAGEPACK: 1.1})
TABLE_RESP_SET = Row("SET in a table of one copy by RESP, 64 connections, CPU", "us", {MESSAGEPACK: 1.1})
PUT_ORIGIN = Row(
    "put at a majority of three, 64 connections, CPU of the node that is asked", "us",
    {REDIS: 1.0, REDIS_WAITAOF: 1.0},
)  # fmt: skip
PUT_TARGET = Row("the same, CPU of another", "us", {REDIS: 0.5})
PUT_ALL = Row("the same, CPU of all three", "us", {REDIS_WAITAOF: 1.5})
PUT_TIME = Row("the same, time a put", "us", 50.0)  # 20,000 a second.
PUT_ORIGIN_PIPELINED = Row("the same, 16 in flight, CPU of the node that is asked", "us", {ITSELF: 15.0, REDIS: 0.7})
PUT_TARGET_PIPELINED = Row("the same, 16 in flight, CPU of another", "us", {ITSELF: 8.0, REDIS: 0.4})
PUT_ALONE = Row("put at a majority of three, one writer, p50", "ms", {SYNCS_AND_TRIPS: 1.0, ETCD: 1.0})
PUT_BYTES = Row("bytes between nodes for a put, three asked at once", "B", {TWICE_THE_RECORD: 1.2})
GET_BESIDE = Row("get from a table beside 64 writers, p99", "us", {AT_REST: 3.0})
GET_BESIDE_SYNCS = Row("the same while a sync takes 50 ms", "us", {AT_REST: 3.0})
RANGES_IDLE = Row("CPU of an idle node with 2,000 ranges, a second", "ms", 6.0)
BY_MAP = Row("get by a table's map, 64 tasks, CPU of client and nodes", "us", {TOLD_OWNERS: 1.1, ANY_NODE: 1.0})
BY_MAP_CLIENT = Row("get by a table's map, 64 tasks, CPU of the client", "us", {TOLD_OWNERS: 1.05})
BY_MAP_MANY = Row("get_many of 100 with a table's map, 64 tasks, CPU of the client", "us", {TOLD_OWNERS: 1.05})
BY_MAP_PUT = Row("put by a table's map, 64 tasks, CPU of the client", "us", {TOLD_OWNERS: 1.05})
EXPIRING_PUT = Row("put of a record that expires, CPU of all three nodes", "us", {PLAIN_PUT: 1.2})
EXPIRED_SPACE = Row("space of a table of which half expires each hour, most", "x", {PRESENT: 1.6})
EXPIRED_SPACE_WRITTEN = Row("the same while as many records are put", "x", {PRESENT: 1.6})
IMPORT = Row("import into a table of three copies, a record", "us", {PUT_MANY: 1.43})  # 0.7 times the rate.
DELETE_RANGE = Row("delete-range of a table of three copies, a record", "us", 1e6 / 40_000)
DELETE_BESIDE = Row("get from another table beside it, p99", "us", {BEFORE: 3.0})
BACKUP = Row("backup of a table of three replicas", "s", {COPYING: 1.43})  # 0.7 times the rate.
RESTORE = Row("restore of a table of three replicas", "s", {COPYING: 1.43})
BACKUP_BESIDE = Row("get from another table beside a backup, p99", "us", {BEFORE: 1.5})
CATCH_UP = {
    16: Row("catch-up of a node that was away, 16 partitions, a record", "us", 1e6 / 60_000),
    4_096: Row("catch-up of a node that was away, 4,096 partitions, a record", "us", 1e6 / 100_000),
}
CATCH_UP_GETS = {
    partitions: Row(f"get at another meanwhile, {partitions:,} partitions, p99", "us", {BEFORE: 3.0})
    for partitions in CATCH_UP
}
COPIES_START = Row("start with 4,096 copies, to an answer, more than with one", "s", 1.0)
COPIES_MEMORY = Row("memory of a copy at rest, of 4,096", "KiB", 1.5)
COPIES_IDLE = Row("CPU of an idle node with 4,096 copies, a second, more than with one", "ms", 0.3)
FEEDS_IDLE = Row("CPU of all nodes with 1,000 idle change feeds, a second, more than without", "ms", 10.0)
FEEDING = Row("feeding of a change to one feed, CPU of all nodes", "us", {WRITING: 0.3})
ADDED, REPLACED = "a node added to four", "a dead node replaced"
MOVED_BYTES = {how: Row(f"bytes that moved, {how}", "MB", {IDEAL: 1.25}) for how in (ADDED, REPLACED)}
MOVED_P99 = {how: Row(f"put at a majority, {how}, p99", "us", {BEFORE: 2.0}) for how in MOVED_BYTES}
MOVED_TIME = {how: Row(f"until all has moved, {how}", "s", {COPYING: 2.0}) for how in MOVED_BYTES}
ROUTE = Row("the range of a key among 100,000", "us", {FEW_RANGES: 2.5})
SPLIT_MANY = Row("split of one of 100,000 ranges, 3 metadata servers", "ms", 100.0)
SPLIT_SHOWN = Row("until each node's map has it", "s", 5.0)
SPLIT_FETCHED = Row("pages fetched for it by a node that is no metadata server", "KiB", 300.0)
FOURTH = Row("until a fresh fourth node has its quarter of 6,000 replicas of ranges", "s", 120.0)
FOURTH_CPU = Row("CPU of all nodes for each that moves", "ms", 20.0)
RANGES_MEMORY = Row("memory of a copy of a range at rest, of 10,000", "KiB", 1.5)
