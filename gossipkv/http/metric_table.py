"""The table of all metrics: name, kind, help, and source in the node's `info`, to which `metrics` adds a verdict.

A *source* is one or more dotted paths into `info`; the numbers of several are added.  In a path `*` stands for any key
and `name_*` for keys with that beginning; its text becomes a label value.  A constant label value follows `=`, and
comes first.  The path with the longest exact beginning wins.  Before the paths, `?` tests for presence and `#` takes a
length; behind them, `/1000` converts to base units.  `LEFT_OUT` lists the parts of `info` without metric, and the
reasons; a test checks both against a real node.  `make reference` writes docs/reference/metrics.md.

Names follow Prometheus: base units, `_total` for counters, no type.  Past times are timestamps, which stay right.  No
metric is by partition or key.  Process metrics have the names of Prometheus' clients, and describe the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple

from gossipkv.http.answers import STATUS_BY_CODE

Path = tuple[str, ...]


class MetricKind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    TEXT = "info"  # The value in `info` is the last label; the number is 1.


COUNTER, GAUGE, HISTOGRAM, TEXT = MetricKind


class MetricPlace(NamedTuple):
    """The place of a metric: keys from the top of `info`, and constant label values."""

    path: Path
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """One metric; label names and values are words separated by spaces.

    Attributes:
        name: As scraped, without suffixes that a kind adds (`_info`, `_bucket`, `_sum`, `_count`).
        shown_values: Values of the only label reported as 0 if `info` lacks them, so that a first event is growth.
    """

    name: str
    kind: MetricKind
    help: str
    source: str
    label_names: str = ""
    shown_values: str = ""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the names of its labels."""
        return tuple(self.label_names.split())

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """Return the label values that are reported from the start."""
        return tuple(self.shown_values.split())

    @cached_property
    def places(self) -> tuple[MetricPlace, ...]:
        """Return the places in `info`."""
        split = (place.partition("=") for place in self.source.partition("/")[0].lstrip("?#").split())
        return tuple(MetricPlace(tuple(path.split(".")), (value,) if value else ()) for path, _, value in split)

    @cached_property
    def measure(self) -> str:
        """Return the conversion to a number: `?`, `#`, or empty if it is one."""
        return self.source[0] if self.source[0] in "?#" else ""

    @cached_property
    def per(self) -> int:
        """Return the divisor that converts the number to base units."""
        return int(self.source.partition("/")[2] or 1)

    @cached_property
    def is_code(self) -> bool:
        """True if its label is a code of the wire, in capitals."""
        return self.labels == ("code",)


def _counter(name: str, *about: str) -> Metric:
    return Metric(f"gossipkv_{name}_total", COUNTER, *about)


def _gauge(name: str, *about: str) -> Metric:
    return Metric(f"gossipkv_{name}", GAUGE, *about)


# fmt: off
METRICS: Final = (
    # Databases: their reads and versions.
    _counter("read_requests", "Reads that this node answered, from its own files or from other nodes.",
        "by_database.*.requests", "database"),
    _counter("read_requests_forwarded", "Reads that other nodes answered for this node.", "by_database.*.forwarded",
        "database"),
    _counter("read_hits", "Read keys that exist.", "by_database.*.hits", "database"),
    _counter("read_misses", "Read keys that do not exist.", "by_database.*.misses", "database"),
    _counter("read_value_bytes", "Bytes of read values.", "by_database.*.value_bytes", "database"),
    _counter("read_errors", "Reads that were answered with an error.", "by_database.*.errors", "database"),
    _gauge("databases", "Databases that this node knows.", "databases"),
    _gauge("versions", "Versions by the state of their copy on this node.", "by_database.*.versions.*",
        "database state"),
    Metric("gossipkv_active_version", TEXT, "Active version, as a label.",
        "by_database.*.version", "database version"),
    _gauge("active_version_timestamp_seconds",
        "Newest modification time of the active version's source files, in seconds since 1970.",
        "by_database.*.time/1000", "database"),
    _gauge("missing_partitions", "Partitions of the active version without a live owner.",
        "by_database.*.missing_partitions", "database"),
    _gauge("under_replicated_partitions", "Partitions of the active version with fewer live owners than `replication`.",
        "by_database.*.under_replicated_partitions", "database"),
    # Requests.  The loop refuses some with an error itself, and Python the others.
    _counter("requests", "Requests that the serving loop answered, by method.",
        "counters.gets=get counters.get_manys=get_many counters.scans=scan counters.pings=ping", "method"),
    _counter("handed_off_requests", "Requests handed to Python.", "counters.handed_off"),
    _counter("handed_off_replies", "Answers of Python given to a connection.", "counters.replies"),
    _counter("handed_off_replies_dropped", "Answers of Python for connections that had ended.",
        "counters.replies_dropped"),
    _counter("errors", "Requests that this node answered with an error, by the code of the wire.",
        "counters.errors_* counters.bad_requests=BAD_REQUEST counters.duplicate_ids=BAD_REQUEST "
        "counters.overloaded=OVERLOADED counters.replies_too_large=TOO_LARGE", "code", " ".join(STATUS_BY_CODE)),
    _counter("keys_read", "Keys that were looked up here.", "counters.keys_read"),
    _counter("scan_slices", "Slices of work of scans.", "counters.scan_slices"),
    _counter("scanned_records", "Records that scans read.", "counters.records_scanned"),
    _counter("searched_partitions", "Partitions that scans searched.", "counters.partitions_searched"),
    _counter("notifications_ignored", "Notifications received (messages without answer).",
        "counters.notifications_ignored"),
    Metric("gossipkv_request_duration_seconds", HISTOGRAM,
        "Time from the receipt of a request until its answer was given to the socket, by origin: the loop's own "
        "files, another node, or Python.",
        "latency.local=local latency.forwarded=forwarded latency.handed_off=handed_off", "path"),
    # Connections, and the disk reads for them.
    _gauge("connections", "Connections to this node that are open.", "counters.connections"),
    _gauge("peer_connections", "Connections of this node to others that are open.", "counters.peers"),
    _gauge("in_flight_requests", "Requests in progress, without polls for maps.", "counters.in_flight"),
    _gauge("held_bytes", "Bytes of input, output and scans held for connections.", "counters.held_bytes"),
    _gauge("waiting_bytes", "Requests and answers that wait for Python.", "counters.waiting_bytes"),
    _counter("connections_accepted", "Connections that were accepted.", "counters.connections_accepted"),
    _counter("tls_handshakes", "TLS handshakes.", "counters.tls_handshakes"),
    _counter("tls_handshakes_resumed", "TLS handshakes that a ticket shortened.", "counters.tls_resumed"),
    _counter("connections_refused", "Connections refused over a limit: of all connections, or of one address.",
        "counters.connections_refused=all counters.connections_refused_by_address=address", "limit"),
    _counter("connections_closed", "Ended connections, by reason.", "counters.closed_*", "reason",
        "by_peer reset bad_frame bad_message unasked_response frame_timeout output_timeout idle memory drained cut "
        "bad_answer abandoned unauthorized handshake"),
    _counter("accept_pauses", "Pauses of accepting for lack of descriptors.", "counters.accept_pauses"),
    _counter("http_connections_detached",
        "HTTP connections passed to the gateway, since they asked for more than a plain read.",
        "counters.http_detached"),
    _counter("http_connections_unserved",
        "HTTP connections answered with 503, since the gateway did not take them in time.", "counters.http_unserved"),
    _counter("frames_refused", "Frames refused unread, by reason.", "counters.frames_*", "reason",
        "too_large too_deep too_many_elements malformed"),
    _counter("read_pauses", "Pauses of reading from a connection, by the limit that it reached.",
        "counters.paused_for_output=output counters.paused_for_hand_offs=hand_offs", "reason"),
    _counter("received_bytes", "Bytes received over TCP.", "counters.bytes_received"),
    _counter("sent_bytes", "Bytes sent over TCP.", "counters.bytes_sent"),
    _counter("busy_polls", "Polls for the next request without sleep.", "counters.busy_polls"),
    _counter("busy_poll_hits", "Polls that met a request.", "counters.busy_poll_hits"),
    _counter("cold_reads", "Reads that waited for pages not in memory.", "counters.cold_reads"),
    _counter("cold_pages", "Pages read from disk for such reads.", "counters.cold_pages"),
    _counter("cold_pages_failed", "Pages for such reads that could not be read.", "counters.cold_pages_failed"),
    _counter("cold_reads_refused", "Reads that failed because the disk was too slow.", "counters.cold_refused"),
    # Forwarded reads.
    _counter("forwarded_reads", "Reads of partitions of other nodes; a batch counts once.", "counters.forwarded"),
    _counter("forwarded_reads_failed", "Forwarded reads that no node answered.", "counters.forward_failed"),
    _counter("forward_attempts", "Requests to owners for forwarded reads.", "counters.forward_attempts"),
    _counter("forward_answers", "Answers of other nodes, including refusals.", "counters.forward_answers"),
    _counter("forward_rounds", "Rounds in which all owners were asked again.", "counters.forward_rounds"),
    _counter("forward_fates",
        "Owners that gave no record in time, by reason: the code of a refusal, no connection, a full queue, silence "
        "for a stage, or a late answer.",
        "counters.forward_not_served=not_served counters.forward_not_ready=not_ready "
        "counters.forward_unknown_version=unknown_version counters.forward_corrupt=corrupt "
        "counters.forward_overloaded=overloaded counters.forward_refused=refused "
        "counters.forward_unconnected=unconnected counters.forward_queue_full=queue_full "
        "counters.forward_silences=silent counters.forward_answers_late=late", "fate"),
    _counter("scans_gathered", "Pages of scans requested from other nodes.", "counters.scans_gathered"),
    _counter("scans_unanswered", "Pages of scans that failed.", "counters.scans_unanswered"),
    _counter("scan_questions", "Requests to owners for scans.", "counters.scan_questions"),
    _counter("scan_fates", "Owners that gave no records to a scan in time, by reason.",
        "counters.scan_silences=silent counters.scan_bad_answers=bad_answer", "fate"),
    # Builds, and reading back built versions.
    _counter("builds_begun", "Begun builds of versions.", "counters.builds_begun"),
    _counter("builds_done", "Completed builds of versions.", "counters.builds_done"),
    _counter("builds_failed", "Failed builds of versions.", "counters.builds_failed"),
    _counter("builds_stopped", "Cancelled builds of versions.", "counters.builds_stopped"),
    _counter("built_bytes", "Bytes of built sorted files.", "counters.built_bytes"),
    _counter("built_source_bytes", "Bytes of source files that builds read.", "counters.built_source_bytes"),
    _counter("scrubbed_versions", "Versions read back from the disk.", "counters.scrubbed_versions"),
    _counter("scrubbed_bytes", "Bytes read back from the disk.", "counters.scrubbed_bytes"),
    _counter("scrub_damaged_files", "Files found damaged when read back.", "counters.scrub_damaged_files"),
    _gauge("source_unreadable", "1 if the source as a whole cannot be read.", "?source_error"),
    # The cluster.  Reasons of drops are those of the envelope, of sealing, and of the inbox.
    _gauge("members", "Members that this node knows, including itself.", "members_by_state.*", "state"),
    _gauge("verdict", "Verdict of this node on the cluster, made for the scrape: 0 well, 1 attention, 2 trouble.",
        "verdict.number"),
    _gauge("isolated", "1 if this node hears from none of the other members.", "isolated"),
    _gauge("silent", "1 if this node is silent, because its disk cannot be written.", "?silent"),
    _gauge("certificate_expiry_timestamp_seconds",
        "Expiry of the TLS certificate, in seconds since 1970; absent without a certificate.", "certificate_expires_s"),
    _gauge("publish_refused", "1 if the tree has no room for all entries of this node.", "?publish_error"),
    _gauge("names_claimed_twice", "Names that two members share.", "#claimed_twice"),
    _gauge("epoch", "Number of starts of this node.", "epoch"),
    _counter("gossip_dropped", "Dropped datagrams and requests of gossip, by reason.", "counters.gossip_dropped_*",
        "reason",
        "short checksum malformed kind request not_for_me oversized no_keys not_sealed replayed not_authentic own "
        "unknown_key"),
    _counter("gossip_lost_datagrams", "Datagrams dropped because the socket's buffer was full.",
        "counters.gossip_lost_by_system"),
    _counter("gossip_send_failures", "Datagrams that the system did not send, by reason.",
        "counters.gossip_send_failed_*", "reason"),
    _counter("gossip_receive_failures", "Receives that the system refused, by reason.",
        "counters.gossip_receive_failed_*", "reason"),
    _counter("gossip_ask_failures", "Failed gossip requests over TCP, by the system's reason.",
        "counters.gossip_asks_failed_*", "reason"),
    _counter("gossip_events", "Other counters of gossip, by name.", "counters.gossip_*", "event",
        "asks_dropped asks_refused asks_timed_out bad_reply branch_invented branch_refused claim_refused "
        "cluster_id_refused dead_forgotten_for_room defects epoch_at_its_end epochs_renewed members_full not_for_me "
        "probes_saved_by_tcp refutations relays_full stalls verdict_about_unknown verdicts"),
    # Tables and their store, if there is one, since it was opened.
    _gauge("tables_closed", "1 if the table store is closed: no writes of tables here, and perhaps no reads.",
        "?tables.why"),
    _gauge("tables_log_damaged", "1 if log kept for lagging replicas was dropped after damage since the start.",
        "?tables.log_damage"),
    _gauge("catalogue_acceptors", "Acceptors of the catalogue of tables.", "tables.catalogue.acceptors"),
    _gauge("catalogue_acceptors_alive", "Those that seem to live; a majority is needed to decide.",
        "tables.catalogue.acceptors_alive"),
    _gauge("table_acceptors", "Acceptors of a table's map.", "tables.by_table.*.acceptors", "table"),
    _gauge("table_acceptors_alive", "Those that seem to live; a majority is needed to decide.",
        "tables.by_table.*.acceptors_alive", "table"),
    _gauge("table_partitions", "Partitions of a table.", "tables.by_table.*.partitions", "table"),
    _gauge("table_partitions_without_majority",
        "Partitions of a table with too few live replicas for a write at `majority`.",
        "tables.by_table.*.without_majority", "table"),
    _gauge("table_missing_replicas", "Wanted replicas of a table that no live node has.",
        "tables.by_table.*.missing_replicas", "table"),
    _counter("table_writes_failed", "Clients' writes of tables that failed at replicas, by the code of the error.",
        "tables.writes_failed.*", "code", "UNAVAILABLE UNKNOWN OVERLOADED"),
    _gauge("tombstone_holders", "Nodes that lack deletes, so that tombstones are kept for them.",
        "tables.tombstone_holders"),
    _gauge("backup_timestamp_seconds",
        "Beginning of the last complete backup of a table that this node made, in seconds since 1970.",
        "backups_ms.*/1000", "table"),
    _gauge("table_copies", "Table partitions with a replica on this node.", "tables.copies"),
    _gauge("table_copies_aside", "Replicas on this node that refuse writes permanently.", "tables.copies_aside"),
    _gauge("tables_refuse_writes", "1 if the table store refuses writes now: it is full, closed, or late with merges.",
        "?tables.refusal"),
    _gauge("table_lag_records", "Records on this node that another node lacks.", "tables.lag_records.*.*",
        "table node"),
    _gauge("table_lag_seconds", "Minimum age of the oldest record on this node that another node lacks.",
        "tables.lag_s.*.*", "table node"),
    _gauge("table_waiting_requests", "Waiting reads and writes of tables.", "tables.waiting"),
    _gauge("table_waiting_held_bytes", "Bytes held by waiting reads and writes of tables.", "tables.waiting_bytes"),
    _gauge("table_waiting_limit_bytes", "Limit of bytes for waiting reads and writes of tables.",
        "tables.waiting_limit"),
    _gauge("table_smeared_waiting", "Smeared puts that wait to be forwarded.", "tables.smeared_waiting"),
    _gauge("table_smeared_held_bytes", "Bytes of smeared puts that wait to be forwarded.", "tables.smeared_bytes"),
    _counter("table_smeared", "Accepted smeared puts.", "tables.smeared"),
    _counter("table_smeared_forwarded", "Forwarded smeared puts.", "tables.smeared_forwarded"),
    _counter("table_smeared_dropped", "Smeared puts dropped with their table.", "tables.smeared_dropped"),
    _counter("store_batches", "Written and synced batches.", "tables.counters.batches"),
    _counter("store_batches_refused", "Batches refused for lack of room.", "tables.counters.refused"),
    _counter("store_user_bytes", "Bytes of written batches.", "tables.counters.user_bytes"),
    _counter("store_groups", "Writes of the log, each with all waiting batches.", "tables.counters.groups"),
    _counter("store_syncs", "Synced writes of the log.", "tables.counters.syncs"),
    _counter("store_sync_seconds", "Total time until writes of the log were synced.",
        "tables.counters.sync_ns/1000000000"),
    _counter("store_log_bytes", "Bytes written to the log.", "tables.counters.log_bytes"),
    _counter("store_merged_bytes", "Bytes of runs written by merges.", "tables.counters.merged_bytes"),
    _gauge("store_memtable_bytes", "Memory of records that are not merged.", "tables.counters.memtable_bytes"),
    _gauge("store_young_runs", "Runs but the oldest; a read may look into each.", "tables.counters.young_runs"),
    _gauge("store_debt_bytes", "Bytes of young runs and dropped data that wait for merges.",
        "tables.counters.debt_bytes"),
    _gauge("store_log_kept_bytes", "Bytes of the log on the disk.", "tables.counters.log_kept_bytes"),
    _gauge("store_run_bytes", "Bytes of all runs on the disk.", "tables.counters.run_bytes"),
    # Memory.
    _gauge("mapped_bytes", "Sorted files that are mapped, without compressed ones.", "memory.mapped_bytes"),
    _gauge("mapped_active_bytes", "Mapped sorted files of active versions, without compressed ones.",
        "memory.active_bytes"),
    _gauge("mapped_compressed_bytes", "Compressed sorted files that are mapped.", "memory.compressed_bytes"),
    _gauge("mapped_room_bytes", "Memory available for mapped files.", "memory.room_bytes"),
    Metric("gossipkv_resident_versions", TEXT,
        "Resident versions, as a label: all, active or none.", "memory.resident", "resident"),
    # The node and its process.
    _gauge("disk_free_bytes", "Free bytes of the data directory's file system.", "disk.free_bytes"),
    _gauge("disk_size_bytes", "Size of the data directory's file system.", "disk.size_bytes"),
    _gauge("joined", "1 if this node has joined its cluster.", "ready.joined"),
    _gauge("opened", "1 if this node has opened its data.", "ready.opened"),
    _gauge("draining", "1 if this node is about to end.", "ready.draining"),
    Metric("process_cpu_seconds_total", COUNTER, "Processor time of the node.", "process.cpu_s"),
    Metric("process_resident_memory_bytes", GAUGE, "Memory of the node, including mapped files.",
        "process.resident_bytes"),
    _gauge("peak_memory_bytes", "Peak memory of the node.", "process.peak_bytes"),
    Metric("process_open_fds", GAUGE, "Open descriptors of the node.", "process.descriptors"),
    Metric("process_max_fds", GAUGE, "Limit of open descriptors of the node.", "process.descriptor_limit"),
    Metric("process_threads", GAUGE, "Threads of the node.", "process.threads"),
    Metric("process_start_time_seconds", GAUGE, "Start time of the node, in seconds since 1970.",
        "process.started_ms/1000"),
)
# fmt: on

# One metric with constants of the running node; its labels are keys of `info`.
IDENTITY_NAME: Final = "gossipkv_node"
IDENTITY_HELP: Final = "Identity of the node, as labels; the value is always 1."
IDENTITY: Final = ("node", "cluster", "version", "protocol", "shard_id")

# Parts of `info` without a metric, with everything below them.  Such a part is written like a place.
LEFT_OUT: Final[dict[Path, str]] = {
    ("name",): "the same for every node",
    ("memory", "residency"): "a setting",
    ("source",): "settings",
    ("memory", "limit"): "the place of a limit; `gossipkv_mapped_room_bytes` has the remaining bytes",
    ("speaks",): "the releases that run, which matter during an upgrade only; `status` has them",
    ("unreadable",): "names of values that an older release cannot read during an upgrade; `status` has them",
    ("tables", "lost"): "`gossipkv_tables_closed` has the state; the verdict has the action",
    ("tables", "state"): "`gossipkv_tables_closed` has the state",
    ("tables", "store"): "an id, which says nothing over time",
    ("tables", "life"): "how often the store was opened; `gossipkv_epoch` tells of starts",
    ("uptime_s",): "an age; `process_start_time_seconds` is the time itself",
    ("resp",): "an address",
    ("pumps",): "the parts of the sums in `counters`",
}
