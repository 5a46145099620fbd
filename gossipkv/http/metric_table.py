"""Every metric: its name, kind and help, and where in the node's `info` it is found.

A *place* is a path into `info`; in it `*` stands for any key and `name_*` for any that begins so, and what a star stood
for is a value of the metric's labels, in their order.  Of several places that fit a path, the one with the longest
exact beginning is meant.  Several places may feed one sample: they are added up.

What `info` has and no metric tells stands in `LEFT_OUT` with its reason; a test holds both to a real node.

Names follow Prometheus' rules: base units (seconds, bytes), `_total` for what only grows, no type in the name.  Times
of the past are timestamps and not ages, so that they are right whenever they are looked at.  No metric is told by
partition or key.  What each process has is named as Prometheus' own clients name it (`process_…`), so that common
dashboards and alerts find it; it is the node's, not the gateway's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from gossipkv.http.answers import STATUS_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping

Path = tuple[str, ...]


class Kind(Enum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    TEXT = "info"  # The value at its place is the last label; the number is 1.


class Measure(Enum):
    """How a value of `info` becomes a number."""

    NUMBER = "number"
    PRESENCE = "presence"  # 0: nil; 1: there is something.
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a metric is found.

    Attributes:
        path: Keys from the top of `info`; the last characters of a key may be a star.
        labels: Label values that are always the same, before those that stars stand for.
    """

    path: Path
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: As it is scraped, but for what a kind adds by itself (`_info`, `_bucket`, `_sum`, `_count`).
        labels: Names of its labels.
        places: Where it is found.
        measure: How what is found becomes a number.
        per: What that number is divided by, to be in base units.
        shown: Values of the only label that are told as 0 where `info` has none yet, so that a first event is seen
            as growth.
        is_code: Whether that label is a code of the wire, in capitals.
    """

    name: str
    kind: Kind
    help: str
    places: tuple[Place, ...]
    labels: tuple[str, ...] = ()
    measure: Measure = Measure.NUMBER
    per: int = 1
    shown: tuple[str, ...] = ()
    is_code: bool = False


def _counter(name: str, text: str, *counters: str) -> Metric:
    """One number of `counters`, or the sum of several."""
    return Metric(name=name, kind=Kind.COUNTER, help=text, places=tuple(Place(("counters", each)) for each in counters))


def _of_store(name: str, text: str, counter: str, *, per: int = 1) -> Metric:
    """What the store of the tables counts."""
    return Metric(name=name, kind=Kind.COUNTER, help=text, places=(Place(("tables", "counters", counter)),), per=per)


def _of_tables(name: str, text: str, counter: str) -> Metric:
    """What is counted of tables beside their store."""
    return Metric(name=name, kind=Kind.COUNTER, help=text, places=(Place(("tables", counter)),))


def _by(name: str, text: str, label: str, counters: Mapping[str, str]) -> Metric:
    """Numbers of `counters` with a label each: value of the label by name of the counter."""
    places = tuple(Place(("counters", counter), (value,)) for counter, value in counters.items())
    return Metric(name=name, kind=Kind.COUNTER, help=text, labels=(label,), places=places)


def _each(name: str, text: str, label: str, pattern: str, shown: tuple[str, ...] = ()) -> Metric:
    """All of `counters` whose names begin alike; the rest of the name is the label."""
    place = Place(("counters", pattern))
    return Metric(name=name, kind=Kind.COUNTER, help=text, labels=(label,), places=(place,), shown=shown)


def _by_database(name: str, text: str, field: str) -> Metric:
    """Counter of `by_database`."""
    place = Place(("by_database", "*", field))
    return Metric(name=name, kind=Kind.COUNTER, help=text, labels=("database",), places=(place,))


def _gauge(name: str, text: str, path: str, *labels: str, measure: Measure = Measure.NUMBER, per: int = 1) -> Metric:
    """Number of the moment; the path is written with dots."""
    place = Place(tuple(path.split(".")))
    return Metric(name=name, kind=Kind.GAUGE, help=text, labels=labels, places=(place,), measure=measure, per=per)


_DATABASES: Final = (
    _by_database("gossipkv_read_requests_total", "Reads that this node answered, from here or elsewhere.", "requests"),
    _by_database("gossipkv_read_requests_forwarded_total", "Reads of these that others answered.", "forwarded"),
    _by_database("gossipkv_read_hits_total", "Keys that were read and found.", "hits"),
    _by_database("gossipkv_read_misses_total", "Keys that were read and do not exist.", "misses"),
    _by_database("gossipkv_read_value_bytes_total", "Bytes of the values that were read.", "value_bytes"),
    _by_database("gossipkv_read_errors_total", "Reads that were answered with an error.", "errors"),
    _gauge("gossipkv_databases", "Databases that this node knows.", "databases"),
    _gauge(
        "gossipkv_versions",
        "Versions by the state of their copy on this node.",
        "by_database.*.versions.*",
        "database",
        "state",
    ),
    Metric(
        name="gossipkv_active_version",
        kind=Kind.TEXT,
        help="Version that answers reads which name none; 1 always, the version is a label.",
        labels=("database", "version"),
        places=(Place(("by_database", "*", "version")),),
    ),
    _gauge(
        "gossipkv_active_version_timestamp_seconds",
        "Newest modification time among the source files of the active version, since the epoch.",
        "by_database.*.time",
        "database",
        per=1000,
    ),
    _gauge(
        "gossipkv_missing_partitions",
        "Partitions of the active version that no live node has ready.",
        "by_database.*.missing_partitions",
        "database",
    ),
    _gauge(
        "gossipkv_under_replicated_partitions",
        "Partitions of the active version that fewer live nodes than `replication` have ready.",
        "by_database.*.under_replicated_partitions",
        "database",
    ),
)

# What a request may be answered with that is no result.  The loop refuses some requests itself and Python the others.
_ERRORS: Final = Metric(
    name="gossipkv_errors_total",
    kind=Kind.COUNTER,
    help="Requests that this node answered with an error, by the code of the wire.",
    labels=("code",),
    places=(
        Place(("counters", "errors_*")),
        Place(("counters", "bad_requests"), ("BAD_REQUEST",)),
        Place(("counters", "duplicate_ids"), ("BAD_REQUEST",)),
        Place(("counters", "overloaded"), ("OVERLOADED",)),
        Place(("counters", "replies_too_large"), ("TOO_LARGE",)),
    ),
    shown=tuple(STATUS_BY_CODE),
    is_code=True,
)

_REQUESTS: Final = (
    _by(
        "gossipkv_requests_total",
        "Requests that the serving loop answered, by method.",
        "method",
        {"gets": "get", "get_manys": "get_many", "scans": "scan", "pings": "ping"},
    ),
    _counter("gossipkv_handed_off_requests_total", "Requests that were handed to Python.", "handed_off"),
    _counter("gossipkv_handed_off_replies_total", "Answers of Python that were given to a connection.", "replies"),
    _counter(
        "gossipkv_handed_off_replies_dropped_total", "Answers of Python whose connection had ended.", "replies_dropped"
    ),
    _ERRORS,
    _counter("gossipkv_keys_read_total", "Keys that were looked up here.", "keys_read"),
    _counter("gossipkv_scan_slices_total", "Slices of work that scans were made in.", "scan_slices"),
    _counter("gossipkv_scanned_records_total", "Records that scans read.", "records_scanned"),
    _counter("gossipkv_searched_partitions_total", "Partitions that scans searched.", "partitions_searched"),
    _counter("gossipkv_notifications_ignored_total", "Messages that want no answer.", "notifications_ignored"),
    Metric(
        name="gossipkv_request_duration_seconds",
        kind=Kind.HISTOGRAM,
        help="Time from the receive that brought a request until its answer was given to the socket, by who answered: "
        "the loop from its own files, another node, or Python.",
        labels=("path",),
        places=tuple(Place(("latency", path), (path,)) for path in ("local", "forwarded", "handed_off")),
    ),
)

_CLOSED: Final = (
    *("by_peer", "reset", "bad_frame", "bad_message", "unasked_response", "frame_timeout", "output_timeout", "idle"),
    *("memory", "drained", "cut", "bad_answer", "abandoned", "unauthorized", "handshake"),
)
_CONNECTIONS: Final = (
    _gauge("gossipkv_connections", "Connections to this node that are open.", "counters.connections"),
    _gauge("gossipkv_peer_connections", "Connections of this node to others that are open.", "counters.peers"),
    _gauge("gossipkv_in_flight_requests", "Requests that are being worked on.", "counters.in_flight"),
    _gauge("gossipkv_held_bytes", "Input, output and scans that are held for connections.", "counters.held_bytes"),
    _gauge(
        "gossipkv_waiting_bytes", "Requests and answers that wait for their turn in Python.", "counters.waiting_bytes"
    ),
    _counter("gossipkv_connections_accepted_total", "Connections that were accepted.", "connections_accepted"),
    _counter("gossipkv_tls_handshakes_total", "Handshakes of TLS that were done.", "tls_handshakes"),
    _counter("gossipkv_tls_handshakes_resumed_total", "Handshakes of these that a ticket made short.", "tls_resumed"),
    _by(
        "gossipkv_connections_refused_total",
        "Connections over a limit, by which: all, or those of one address.",
        "limit",
        {"connections_refused": "all", "connections_refused_by_address": "address"},
    ),
    _each("gossipkv_connections_closed_total", "Connections that ended, by why.", "reason", "closed_*", _CLOSED),
    _counter("gossipkv_accept_pauses_total", "Pauses for want of descriptors.", "accept_pauses"),
    _counter(
        "gossipkv_http_connections_detached_total",
        "Connections of HTTP that asked for more than a plain read, and went to the gateway.",
        "http_detached",
    ),
    _counter(
        "gossipkv_http_connections_unserved_total",
        "Those of them that it could not take in time: they were answered 503.",
        "http_unserved",
    ),
    _each(
        "gossipkv_frames_refused_total",
        "Frames that were refused unread, by why.",
        "reason",
        "frames_*",
        ("too_large", "too_deep", "too_many_elements", "malformed"),
    ),
    _by(
        "gossipkv_read_pauses_total",
        "Times that a connection was not read for a while, by what it had too much of.",
        "reason",
        {"paused_for_output": "output", "paused_for_hand_offs": "hand_offs"},
    ),
    _counter("gossipkv_received_bytes_total", "Bytes received over TCP.", "bytes_received"),
    _counter("gossipkv_sent_bytes_total", "Bytes sent over TCP.", "bytes_sent"),
    _counter("gossipkv_busy_polls_total", "Look-outs for a next request without sleep.", "busy_polls"),
    _counter("gossipkv_busy_poll_hits_total", "Look-outs that met a request.", "busy_poll_hits"),
    _counter("gossipkv_cold_reads_total", "Stops of reads for pages that were not in memory.", "cold_reads"),
    _counter("gossipkv_cold_pages_total", "Pages that were read for them.", "cold_pages"),
    _counter("gossipkv_cold_pages_failed_total", "Pages of these that could not be read.", "cold_pages_failed"),
    _counter("gossipkv_cold_reads_refused_total", "Reads that the disk did not answer in time.", "cold_refused"),
)

_FORWARDS: Final = (
    _counter("gossipkv_forwarded_reads_total", "Reads whose partition other nodes hold; a batch is one.", "forwarded"),
    _counter("gossipkv_forwarded_reads_failed_total", "Forwarded reads that nobody answered.", "forward_failed"),
    _counter("gossipkv_forward_attempts_total", "Requests to owners for forwarded reads.", "forward_attempts"),
    _counter("gossipkv_forward_answers_total", "Answers of other nodes, refusals among them.", "forward_answers"),
    _counter("gossipkv_forward_rounds_total", "Times that all owners were asked anew.", "forward_rounds"),
    _by(
        "gossipkv_forward_fates_total",
        "Owners that gave no record in time, by why: the code that they refused with, no connection, a full queue, "
        "silence for a stage, an answer when nobody waited any more.",
        "fate",
        {
            **{f"forward_{code}": code for code in ("not_served", "not_ready", "unknown_version", "corrupt")},
            **{f"forward_{why}": why for why in ("overloaded", "refused", "unconnected", "queue_full")},
            "forward_silences": "silent",
            "forward_answers_late": "late",
        },
    ),
    _counter("gossipkv_scans_gathered_total", "Pages of scans that other nodes were asked for.", "scans_gathered"),
    _counter("gossipkv_scans_unanswered_total", "Pages of scans that were given up.", "scans_unanswered"),
    _counter("gossipkv_scan_questions_total", "Requests to owners for scans.", "scan_questions"),
    _by(
        "gossipkv_scan_fates_total",
        "Owners that gave no records to a scan in time, by why.",
        "fate",
        {"scan_silences": "silent", "scan_bad_answers": "bad_answer"},
    ),
)

_BUILDS: Final = (
    _counter("gossipkv_builds_begun_total", "Builds of versions that were begun.", "builds_begun"),
    _counter("gossipkv_builds_done_total", "Builds of versions that came to their end.", "builds_done"),
    _counter("gossipkv_builds_failed_total", "Builds of versions that failed.", "builds_failed"),
    _counter(
        "gossipkv_builds_stopped_total", "Builds of versions that came to nothing by nobody's fault.", "builds_stopped"
    ),
    _counter("gossipkv_built_bytes_total", "Bytes of sorted files that were built.", "built_bytes"),
    _counter("gossipkv_built_source_bytes_total", "Bytes of source files that builds read.", "built_source_bytes"),
    _counter("gossipkv_scrubbed_versions_total", "Versions read back from the disk.", "scrubbed_versions"),
    _counter("gossipkv_scrubbed_bytes_total", "Bytes read back from the disk.", "scrubbed_bytes"),
    _counter(
        "gossipkv_scrub_damaged_files_total",
        "Files that were damaged when they were read back.",
        "scrub_damaged_files",
    ),
    _gauge(
        "gossipkv_source_unreadable",
        "Whether the source as a whole cannot be read.",
        "source_error",
        measure=Measure.PRESENCE,
    ),
)

# Reasons of the envelope, of sealing, and of the inbox.
_DROPPED: Final = (
    *("short", "checksum", "malformed", "kind", "request", "not_for_me", "oversized"),
    *("no_keys", "not_sealed", "replayed", "not_authentic", "own", "unknown_key"),
)
_EVENTS: Final = (
    *("asks_dropped", "asks_refused", "asks_timed_out", "bad_reply", "branch_invented", "branch_refused"),
    *("claim_refused", "cluster_id_refused", "dead_forgotten_for_room", "defects", "epoch_at_its_end"),
    *("epochs_renewed", "members_full", "not_for_me", "probes_saved_by_tcp", "refutations", "relays_full", "stalls"),
    *("verdict_about_unknown", "verdicts"),
)
_CLUSTER: Final = (
    _gauge("gossipkv_members", "Members that this node knows, itself among them.", "members_by_state.*", "state"),
    _gauge(
        "gossipkv_verdict",
        "Whether the cluster is well, as this node judged last: 0 well, 1 something deserves attention, 2 trouble.",
        "verdict.number",
    ),
    _gauge(
        "gossipkv_verdict_timestamp_seconds",
        "When that was; reading this has an old one made anew.",
        "verdict.at_s",
    ),
    _gauge("gossipkv_isolated", "Whether this node hears from none of the others it knows.", "isolated"),
    _gauge(
        "gossipkv_silent",
        "Whether no other hears of this node, since its disk cannot be written.",
        "silent",
        measure=Measure.PRESENCE,
    ),
    _gauge(
        "gossipkv_certificate_expiry_timestamp_seconds",
        "Until when the certificate for TLS holds, since the epoch; nothing without one.",
        "certificate_expires_s",
    ),
    _gauge(
        "gossipkv_publish_refused",
        "Whether the tree takes not all that this node has to tell.",
        "publish_error",
        measure=Measure.PRESENCE,
    ),
    _gauge(
        "gossipkv_names_claimed_twice",
        "Names of members by which two nodes go.",
        "claimed_twice",
        measure=Measure.LENGTH,
    ),
    _gauge("gossipkv_epoch", "Number of this node's start: it grows with each.", "epoch"),
    _each(
        "gossipkv_gossip_dropped_total",
        "Datagrams and requests of gossip that were dropped, by why.",
        "reason",
        "gossip_dropped_*",
        _DROPPED,
    ),
    _counter(
        "gossipkv_gossip_lost_datagrams_total", "Datagrams that the socket had no room for.", "gossip_lost_by_system"
    ),
    _each(
        "gossipkv_gossip_send_failures_total",
        "Datagrams that the system did not send, by its reason.",
        "reason",
        "gossip_send_failed_*",
    ),
    _each(
        "gossipkv_gossip_receive_failures_total",
        "Receives that the system refused, by its reason.",
        "reason",
        "gossip_receive_failed_*",
    ),
    _each(
        "gossipkv_gossip_ask_failures_total",
        "Requests of gossip over TCP that failed, by the system's reason.",
        "reason",
        "gossip_asks_failed_*",
    ),
    _each("gossipkv_gossip_events_total", "What else gossip counts, by its name there.", "event", "gossip_*", _EVENTS),
)

# Of the store under the tables, where there is one: what it counts since it was opened, and how it stands.
_TABLES: Final = (
    _gauge(
        "gossipkv_tables_closed",
        "Whether the store of the tables stays closed, so that nobody can read or write them here.",
        "tables.why",
        measure=Measure.PRESENCE,
    ),
    _gauge(
        "gossipkv_tables_log_damaged",
        "Whether log that the tables keep for its readers alone was let go of for damage since the start.",
        "tables.log_damage",
        measure=Measure.PRESENCE,
    ),
    _gauge("gossipkv_table_copies", "Partitions of tables that this node has a replica of.", "tables.copies"),
    _gauge("gossipkv_table_copies_aside", "Of these those that take no writes, for good.", "tables.copies_aside"),
    _gauge(
        "gossipkv_tables_refuse_writes",
        "Whether the store takes no writes now: it is full, closed, or behind with merging.",
        "tables.refusal",
        measure=Measure.PRESENCE,
    ),
    _gauge(
        "gossipkv_table_lag_records",
        "Records here that another node is known to lack.",
        "tables.lag_records.*.*",
        "table",
        "node",
    ),
    _gauge("gossipkv_table_lag_seconds", "Age of the oldest of these, at least.", "tables.lag_s.*.*", "table", "node"),
    _gauge("gossipkv_table_waiting_requests", "Reads and writes of tables that wait.", "tables.waiting"),
    _gauge("gossipkv_table_waiting_held_bytes", "What these hold.", "tables.waiting_bytes"),
    _gauge("gossipkv_table_waiting_limit_bytes", "What these may hold.", "tables.waiting_limit"),
    _gauge("gossipkv_table_smeared_waiting", "Puts that wait here to be forwarded.", "tables.smeared_waiting"),
    _gauge("gossipkv_table_smeared_held_bytes", "What these take.", "tables.smeared_bytes"),
    _of_tables("gossipkv_table_smeared_total", "Puts that were accepted here, to be forwarded later.", "smeared"),
    _of_tables("gossipkv_table_smeared_forwarded_total", "Those that were.", "smeared_forwarded"),
    _of_tables("gossipkv_table_smeared_dropped_total", "Those whose table was dropped.", "smeared_dropped"),
    _of_store("gossipkv_store_batches_total", "Batches that were written and synced.", "batches"),
    _of_store("gossipkv_store_batches_refused_total", "Batches for which there was no room.", "refused"),
    _of_store("gossipkv_store_user_bytes_total", "Bytes of the batches that were written.", "user_bytes"),
    _of_store("gossipkv_store_groups_total", "Writes of the log, each of all batches that waited.", "groups"),
    _of_store("gossipkv_store_syncs_total", "Writes of the log that were synced.", "syncs"),
    _of_store(
        "gossipkv_store_sync_seconds_total",
        "Time that these took until they were synced, all together.",
        "sync_ns",
        per=1_000_000_000,
    ),
    _of_store("gossipkv_store_log_bytes_total", "Bytes that were written to the log.", "log_bytes"),
    _of_store("gossipkv_store_merged_bytes_total", "Bytes of runs that merges have written.", "merged_bytes"),
    _gauge("gossipkv_store_memtable_bytes", "Memory that records take until merged.", "tables.counters.memtable_bytes"),
    _gauge("gossipkv_store_young_runs", "Runs beside the oldest; a read may ask each.", "tables.counters.young_runs"),
    _gauge(
        "gossipkv_store_debt_bytes",
        "Bytes of young runs and of what was dropped, which merges have yet to take.",
        "tables.counters.debt_bytes",
    ),
    _gauge("gossipkv_store_log_kept_bytes", "Bytes that the log takes on the disk.", "tables.counters.log_kept_bytes"),
    _gauge("gossipkv_store_run_bytes", "Bytes that all runs take on the disk.", "tables.counters.run_bytes"),
)

_MEMORY: Final = (
    _gauge("gossipkv_mapped_bytes", "Sorted files that are mapped, without compressed ones.", "memory.mapped_bytes"),
    _gauge("gossipkv_mapped_active_bytes", "Those of active versions.", "memory.active_bytes"),
    _gauge("gossipkv_mapped_compressed_bytes", "Compressed sorted files that are mapped.", "memory.compressed_bytes"),
    _gauge("gossipkv_mapped_room_bytes", "What memory there is for mapped files.", "memory.room_bytes"),
    Metric(
        name="gossipkv_resident_versions",
        kind=Kind.TEXT,
        help="Which versions are resident: all, active ones or none; 1 always, the answer is a label.",
        labels=("resident",),
        places=(Place(("memory", "resident")),),
    ),
)

_PROCESS: Final = (
    _gauge("gossipkv_joined", "Whether this node has met its cluster.", "ready.joined"),
    _gauge("gossipkv_opened", "Whether this node has opened what it holds.", "ready.opened"),
    _gauge("gossipkv_draining", "Whether this node is about to end.", "ready.draining"),
    Metric(
        name="process_cpu_seconds_total",
        kind=Kind.COUNTER,
        help="Processor time of the node.",
        places=(Place(("process", "cpu_s")),),
    ),
    _gauge("process_resident_memory_bytes", "Memory of the node, mapped files too.", "process.resident_bytes"),
    _gauge("gossipkv_peak_memory_bytes", "Most memory that the node had so far.", "process.peak_bytes"),
    _gauge("process_open_fds", "Descriptors that the node has open.", "process.descriptors"),
    _gauge("process_max_fds", "Descriptors that the node may have open.", "process.descriptor_limit"),
    _gauge("process_threads", "Threads of the node.", "process.threads"),
    _gauge("process_start_time_seconds", "Start of the node, since the epoch.", "process.started_ms", per=1000),
)

METRICS: Final = (
    *_DATABASES,
    *_REQUESTS,
    *_CONNECTIONS,
    *_FORWARDS,
    *_BUILDS,
    *_CLUSTER,
    *_TABLES,
    *_MEMORY,
    *_PROCESS,
)

# One metric with what never changes while the node runs; its labels are keys of `info`.
IDENTITY_NAME: Final = "gossipkv_node"
IDENTITY_HELP: Final = "Who answers; 1 always, the rest is in the labels."
IDENTITY: Final = ("node", "cluster", "version", "protocol", "shard_id")

# What `info` has and no metric tells, with all that is below it.  Written like places.
LEFT_OUT: Final[dict[Path, str]] = {
    ("name",): "the same for every node",
    ("memory", "residency"): "a setting",
    ("memory", "limit"): "where a limit stands; `gossipkv_mapped_room_bytes` has what it leaves",
    ("verdict", "level"): "a word; `gossipkv_verdict` is its number",
    ("speaks",): "the releases that run, which whoever upgrades looks at",
    ("unreadable",): "names, of a moment in which two releases run; `status` tells them",
    ("tables", "state"): "`gossipkv_tables_closed` tells the state that matters",
    ("tables", "store"): "an id, which says nothing over time",
    ("tables", "life"): "how often the store was opened; `gossipkv_epoch` tells of starts",
    ("uptime_s",): "an age; `process_start_time_seconds` is the time itself",
    ("resp",): "an address",
    ("pumps",): "the parts of what `counters` sums up",
    ("latency", "answered"): "percentiles since the start, which tell nothing of the last minutes; `local` has buckets",
}
