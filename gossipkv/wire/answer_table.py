"""The fields of answers, for docs/reference/methods.md; tests compare them with the answers of a real node."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class WireField(NamedTuple):
    """Fields of an answer: their names, separated by commas."""

    names: str
    meaning: str


# fmt: off
FIELDS: Final[Mapping[str, tuple[WireField, ...]]] = MappingProxyType({
    "databases": (
        WireField(
            "name, kind",
            "the database; `dataset`, `hash` or `range`, as [this node knows it](../users/tables.md#names). A table "
            "with a time key adds `time_key` and `smear`, one whose records or ranges end `ttl_ms` or `retention_ms`. "
            "All other keys are of datasets",
        ),
        WireField("version", "the active version, or nil"),
        WireField("partitions", "the number of its partitions, or nil"),
        WireField(
            "time",
            "newest modification time of the version's source files, in milliseconds since 1970, or nil while "
            "unknown",
        ),
        WireField("times", "map of readable versions to their `time`, without unknown ones"),
        WireField("states", "map of versions that this node knows to their [state](../operators/life-of-a-version.md)"),
    ),
    "a partition map": (
        WireField("kind", "`hash`, `range` or `dataset`"),
        WireField("table, config", "of a table: its id, and the config id of this map"),
        WireField(
            "partitions",
            "of a table: list of maps, in order: `id`, `start` (first key; of a shard its number in 4 bytes, "
            "big-endian), `assignments` (maps of `node`, `slot`, `state`, `id` in 16 hexadecimal digits). Of a "
            "dataset: their number",
        ),
        WireField("addresses", "of a table: map of live nodes to addresses"),
        WireField(
            "next",
            "of a table with more partitions: the `start` of the next request. The parts are of one map if `config` "
            "is equal",
        ),
        WireField("replication", "of a table: replicas of each partition"),
        WireField(
            "partitioner, partition_count, groups",
            "of a hash table: the hash, the number of shards, and the groups of nodes (names); shard s is on nodes "
            "of group s modulo their number, or without groups on any nodes",
        ),
        WireField("time_key, smear", "of a table with a time key"),
        WireField("ttl_ms", "of a table whose records expire by default"),
        WireField("retention_ms", "of a table whose ranges are dropped when their times are older"),
        WireField("owners", "of a dataset, beside `partitioner`: the known owners of partitions"),
    ),
    "a register": (
        WireField("table", "the table's name; nil: the catalogue of all tables"),
        WireField(
            "generation, sequence, root",
            "the latest decision: the two parts of its config id, and its SHA-256; nil if this node knows only the "
            "first acceptors",
        ),
        WireField(
            "old, new",
            "the acceptors, as lists of maps `node`, `store` (hexadecimal digits), `answers` (boolean), `why` (the "
            "reason if not, or nil). The lists differ only during a change of acceptors, in which majorities of "
            "both decide",
        ),
    ),
    "a plan": (
        WireField("table", "name"),
        WireField(
            "moves, moves_count",
            "at most 4,096 maps: `partition`, `slot`, `from` (or nil), `to`, `bytes` (nil: unknown), `why` (of a "
            "range table, else nil); and the number of all",
        ),
        WireField("bytes, unknown", "their total size, and the number of moves without a known size"),
        WireField("splits, splits_count", "ranges that the planner would divide: `partition`, `why`"),
        WireField("resting", "replicas that moved lately and stay for `for_s` seconds: `partition`, `slot`, `for_s`"),
        WireField("warning", "fewer isolation groups than replicas, or nil"),
    ),
    "a verdict": (
        WireField("node", "the asked node"),
        WireField("level", "`well`; `attention`: all can be read, and an operator should look; `trouble`"),
        WireField("text", "a summary in one line"),
        WireField(
            "reasons, reasons_not_told",
            "at most 256 maps, most urgent first, and the number of others: `level`, `text`, and if any `database` "
            "and `advice`",
        ),
        WireField(
            "coming",
            "map of databases to the version that does not serve on all nodes yet: `version` (empty: unknown), "
            "`state` (`comes` or `stuck`), `done` and `remaining_s` of the slowest builder, `builders` (number), "
            "`waits` (a sentence for each cause), `is_first` (nothing of the database is readable before)",
        ),
        WireField("databases", "their number, with tables"),
        WireField("silent", "map of members that did not answer within a second to the reason"),
        WireField("acceptors", "map of the acceptors of tables to true if they answer"),
        WireField("certificates", "map of nodes with a certificate to its end, in seconds since 1970"),
    ),
    "info": (
        WireField(
            "name, version, protocol",
            "`\"gossipkv\"`, the package's version, and the newest protocol version that all members announce",
        ),
        WireField("cluster, node, epoch", "names; the epoch grows with each start and is kept in the data directory"),
        WireField("shard_id", "the node's place in the ring, a string, or nil"),
        WireField(
            "certificate_expires_s",
            "end of the node's [certificate](../operators/security.md#tls), in seconds since 1970, or nil",
        ),
        WireField("isolated", "true if the node hears no other member: its knowledge is stale"),
        WireField("publish_error", "the reason if the [tree](../operators/gossip.md) is full for this node, or nil"),
        WireField("speaks", "the oldest and the newest protocol version of this node"),
        WireField("unreadable", "names of members of a later release whose entries this node cannot read"),
        WireField("claimed_twice", "names that [two nodes have](../operators/gossip.md#two-nodes-of-one-name)"),
        WireField(
            "silent",
            "the reason if the node hides itself and builds nothing ([its disk cannot be "
            "written](../operators/running.md#a-disk-that-is-full-or-read-only)), or nil",
        ),
        WireField(
            "members_by_state", "numbers of members, with this node: `alive`, `suspect`, `dead`, `left`, `silent`",
        ),
        WireField(
            "ready",
            "three booleans for a load balancer: `joined` (the list of members has settled), `opened` (the data on "
            "its disk is open), `draining`",
        ),
        WireField("resp", "the address for [clients of Redis](../users/redis.md), or nil"),
        WireField("uptime_s", "seconds since the start"),
        WireField(
            "process",
            "`cpu_s` (processor time, without builds), `resident_bytes`, `peak_bytes`, `threads`, `descriptors`, "
            "`descriptor_limit`, `started_ms` (since 1970)",
        ),
        WireField("databases", "the number of known ones"),
        WireField("by_database", "map of names to [counts](#fields-of-by_database)"),
        WireField("source", "`root` of the source, without secrets, and `require_success_file`; nil without a source"),
        WireField("source_error", "the reason if the source cannot be read, or nil"),
        WireField(
            "memory",
            "[resident versions](../operators/running.md#memory): `residency` (the setting), `resident` (`all`, "
            "`active` or `none`), `mapped_bytes`, of which `active_bytes`; `compressed_bytes` (always paged), "
            "`room_bytes`, and the `limit` that leaves so little room, or nil",
        ),
        WireField(
            "tables",
            "the store of this node's tables: `state` (`none`, `open`, `closed`), `why` it is closed or nil, `lost` "
            "([only its former data can open it](../operators/running.md#lost-tables)), `store` (id or nil), `life` "
            "(number of openings). While open: `log_damage` (damage in the log that is kept for followers, or nil) "
            "and `counters`. Since opening: `batches`, `refused` (no room), `user_bytes`, `groups` (writes of the "
            "log), `syncs`, `sync_ns`, `log_bytes`, `merged_bytes`. At present: `memtable_bytes`, `young_runs`, "
            "`debt_bytes`, `log_kept_bytes`, `run_bytes`. Write amplification is (`log_bytes` + `merged_bytes`) / "
            "`user_bytes`. Of [smeared puts](../users/tables.md#smeared-puts): `smeared_waiting`, `smeared_bytes`; "
            "since opening `smeared`, `smeared_forwarded`, `smeared_dropped`. `catalogue`: its `acceptors` and, of "
            "these, `acceptors_alive`; `by_table`: the same for each table's map, with `partitions`, those "
            "`without_majority` of live replicas, and `missing_replicas`. `writes_failed`: numbers of clients' writes "
            "by code; `tombstone_holders`: the number of nodes for which tombstones are kept",
        ),
        WireField("disk", "of the data directory's file system: `free_bytes`, `size_bytes`"),
        WireField(
            "backups_ms",
            "tables to the time, since 1970, at which the last complete backup that this node made of them began",
        ),
        WireField(
            "counters",
            "map of names to numbers, since the start of the node; [metrics](metrics.md) explain them, and those that "
            "begin with `gossip_` are [below](#fields-of-gossip-counters)",
        ),
        WireField(
            "pumps",
            "for each [serving](settings.md) thread `connections`, `in_flight`, `held_bytes`, `bytes_received`, "
            "`bytes_sent`",
        ),
        WireField(
            "latency",
            "`local` (answered by the serving loop), `forwarded` (answered by other nodes) and `handed_off` "
            "(answered by Python), from receiving a request to sending its answer: `count`, `mean_us`, `p50_us`, "
            "`p90_us`, `p99_us`, `p999_us`, `max_us`, `sum_us`, and `buckets`: `[[bound in µs, number of faster "
            "requests], …]`, cumulative, with the same bounds everywhere: powers of two in nanoseconds from 8.192 "
            "µs to 17.2 s",
        ),
    ),
    "by_database": (
        WireField("version, time", "as in `databases`"),
        WireField("versions", "map of states to the number of versions"),
        WireField(
            "missing_partitions, under_replicated_partitions",
            "partitions of `version` without a live owner, and with fewer owners than `replication`",
        ),
        WireField(
            "requests",
            "reads, each `get`, `get_many` and page of a `scan` one, with those that other nodes forwarded to this "
            "one",
        ),
        WireField(
            "forwarded",
            "those for which this node asked others. The sum of `requests` less `forwarded` over all nodes is about "
            "the number of client requests",
        ),
        WireField(
            "hits, misses",
            "keys of `get` and `get_many` that were found and not found, here or by other nodes; not those of scans",
        ),
        WireField("value_bytes", "length of the values of the hits"),
        WireField(
            "errors",
            "failed reads of this database. Those of unknown databases (`errors_unknown_database`) and refused ones "
            "(`overloaded`, `bad_requests`) are in `counters`",
        ),
    ),
    "status": (
        WireField("kind", "`dataset`, or `hash` or `range` for tables"),
        WireField("active", "the version that clients get, or nil"),
        WireField(
            "hold, held_by", "the held version, and the source of the order: `settings`, this `node`, or the `cluster`",
        ),
        WireField("error", "an error of the whole database, or a held version that is nowhere"),
        WireField("isolated", "this node hears from no other, so its view of them is stale"),
        WireField(
            "silent",
            "this node [cannot write](../operators/running.md#a-disk-that-is-full-or-read-only), so it builds and "
            "switches nothing",
        ),
        WireField("replication, min_replication", "the settings of this node"),
        WireField(
            "nodes, nodes_not_named",
            "members that have not left: `node`, `state` (`alive`, `suspect`, `dead`), `active`. At most 64, and the "
            "number of others",
        ),
        WireField("versions", "map of names to the two tables below"),
    ),
    "status: a version on this node": (
        WireField("state", "one [word](../operators/life-of-a-version.md#one-word-for-both)"),
        WireField("error", "`message`, and if known `file`, `offset`, `line`, `reason`"),
        WireField("waited_s", "seconds since a version to build was first seen or found damaged"),
        WireField("waiting_for, needed_bytes, free_bytes", "the source, or room; then also the needed and free bytes"),
        WireField(
            "withheld",
            "the reason for which an AVAILABLE version [does not become "
            "active](../operators/life-of-a-version.md#a-version-that-shrinks)",
        ),
        WireField(
            "progress",
            "of a build: `done` (0 to 1), `remaining_s`, `read_bytes`, `read_records`, `written_records`",
        ),
        WireField(
            "scrub",
            "`last_s` (seconds since the last complete [scrub](../operators/life-of-a-version.md#the-scrub)), "
            "`bypassed_cache`, `damaged_files`, `running`; nil before the first",
        ),
        WireField("paged", "some files are [read page by page](../operators/running.md#memory)"),
        WireField(
            "source_files, source_bytes, source_differs",
            "the size at the source; true if the source differs from the one that was built",
        ),
        WireField("format, compression, digest", "of the source, of the files, of the contents"),
        WireField("warnings", "doubts about the source, if any"),
        WireField("function, alike", "the partition function of the version; all functions that fit every key"),
        WireField(
            "voided, strays, first_stray",
            "a function that keys refuted, their number, and the first: `key`, `file`, `offset`",
        ),
        WireField("records, duplicates, size_bytes", "totals"),
        WireField("partitions", "local partitions: `partition`, `state`, `records`, `duplicates`, `size_bytes`"),
    ),
    "status: a version on all nodes": (
        WireField("partition_count", "the number of its partitions"),
        WireField(
            "owners, owners_not_named",
            "`node`, `state`, and `ready` and `building`, each with `count` and `runs` such as `0-5,9`. At most 64, "
            "and the number of others",
        ),
        WireField("missing", "partitions that no alive or suspect node has ready: `count` and `runs`"),
        WireField(
            "under_replicated, single_owner", "partitions with fewer than `replication` such nodes; with exactly one",
        ),
        WireField(
            "waits_until",
            "the condition that the next version waits for, such as `every partition has an owner: 3 of 8 have none "
            "(2, 5-6)`",
        ),
        WireField(
            "conflicts",
            "different contents use this version's name: for each `digest`, `partition_count`, `function`, "
            "`regrouped` and `nodes`",
        ),
        WireField(
            "disputes",
            "two `nodes` with different files for the same `partitions` ([the "
            "rule](../operators/datasets-on-a-cluster.md#when-files-differ))",
        ),
        WireField("unpublished", "other nodes do not learn everything that this node has. Raise `max_branch`"),
        WireField("kept_by", "nodes for which a RETIRING version is kept here"),
        WireField("digest, function, regrouped", "of the other nodes' copies, if none is here"),
        WireField("refuted", "functions that keys refuted for the files here"),
    ),
    "gossip counters": (
        WireField(
            "dropped_…",
            "datagrams and requests not meant for this node, by the [reasons of the "
            "envelope](../development/gossip-packets.md)",
        ),
        WireField("dropped_oversized", "datagrams of 4 KiB or more"),
        WireField(
            "dropped_malformed, dropped_kind, dropped_request",
            "invalid messages, unknown kinds, and messages that are no requests",
        ),
        WireField("dropped_not_for_me, not_for_me", "messages for a former member at this address"),
        WireField("bad_reply", "invalid replies over TCP"),
        WireField("lost_by_system", "datagrams for which the socket had no room"),
        WireField("send_failed_…, receive_failed_…", "system errors, by name (`eagain`, `enetunreach`, `emsgsize`)"),
        WireField(
            "asks_failed_…, asks_refused, asks_timed_out, asks_dropped",
            "TCP requests without a reply: system error, refusal, timeout, too many at once",
        ),
        WireField("defects", "messages that met a defect of this program; the log has the traceback. Report it"),
        WireField("stalls", "pauses of this process longer than a probe interval"),
        WireField("refutations", "suspicions against this node that it refuted"),
        WireField(
            "verdicts, verdict_about_unknown",
            "members that this node found dead; verdicts about unknown members",
        ),
        WireField("probes_saved_by_tcp", "members silent over UDP that answered over TCP: check firewalls for UDP"),
        WireField(
            "epochs_renewed, epoch_at_its_end",
            "epochs raised because the name was known under a higher one; no higher epoch exists",
        ),
        WireField("cluster_id_refused", "contacts with another cluster of the same name"),
        WireField(
            "members_full, dead_forgotten_for_room, relays_full",
            "new members beyond `max_members`; dead members forgotten early for them; relayed probes beyond the limit",
        ),
        WireField(
            "branch_invented",
            "keys of this node at others that it never published; it continues in a new epoch",
        ),
        WireField("claim_refused", "claims of a shard id without room in the branch; retried"),
        WireField("branch_refused", "publications of others that break the limits"),
    ),
})
# fmt: on


def fields_of(answer: str) -> frozenset[str]:
    """Return the names of the fields of an answer."""
    return frozenset(name for field in FIELDS[answer] for name in field.names.split(", "))
