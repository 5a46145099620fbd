"""The table of all metrics: name, kind, help, and source in the node's `info`.

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


# fmt: off
METRICS: Final = (
    # Databases: their reads and versions.
    Metric("gossipkv_read_requests_total", COUNTER,
           "Reads that this node answered, from its own files or from other nodes.", "by_database.*.requests",
           "database"),
    Metric("gossipkv_read_requests_forwarded_total", COUNTER, "Reads that other nodes answered for this node.",
           "by_database.*.forwarded", "database"),
    Metric("gossipkv_read_hits_total", COUNTER, "Read keys that exist.", "by_database.*.hits", "database"),
    Metric("gossipkv_read_misses_total", COUNTER, "Read keys that do not exist.",
           "by_database.*.misses", "database"),
    Metric("gossipkv_read_value_bytes_total", COUNTER, "Bytes of read values.",
           "by_database.*.value_bytes", "database"),
    Metric("gossipkv_read_errors_total", COUNTER, "Reads that were answered with an error.",
           "by_database.*.errors", "database"),
    Metric("gossipkv_databases", GAUGE, "Databases that this node knows.", "databases"),
    Metric("gossipkv_versions", GAUGE, "Versions by the state of their copy on this node.",
           "by_database.*.versions.*", "database state"),
    Metric("gossipkv_active_version", TEXT,
           "Active version, as a label; the value is always 1.",
           "by_database.*.version", "database version"),
    Metric("gossipkv_active_version_timestamp_seconds", GAUGE,
           "Newest modification time of the active version's source files, in seconds since 1970.",
           "by_database.*.time/1000", "database"),
    Metric("gossipkv_missing_partitions", GAUGE, "Partitions of the active version without a live owner.",
           "by_database.*.missing_partitions", "database"),
    Metric("gossipkv_under_replicated_partitions", GAUGE,
           "Partitions of the active version with fewer live owners than `replication`.",
           "by_database.*.under_replicated_partitions", "database"),
    # Requests.  The loop refuses some with an error itself, and Python the others.
    Metric("gossipkv_requests_total", COUNTER, "Requests that the serving loop answered, by method.",
           "counters.gets=get counters.get_manys=get_many counters.scans=scan counters.pings=ping", "method"),
    Metric("gossipkv_handed_off_requests_total", COUNTER, "Requests handed to Python.",
           "counters.handed_off"),
    Metric("gossipkv_handed_off_replies_total", COUNTER, "Answers of Python given to a connection.",
           "counters.replies"),
    Metric("gossipkv_handed_off_replies_dropped_total", COUNTER, "Answers of Python for connections that had ended.",
           "counters.replies_dropped"),
    Metric("gossipkv_errors_total", COUNTER, "Requests that this node answered with an error, by the code of the wire.",
           "counters.errors_* counters.bad_requests=BAD_REQUEST counters.duplicate_ids=BAD_REQUEST "
           "counters.overloaded=OVERLOADED counters.replies_too_large=TOO_LARGE",
           "code",
           " ".join(STATUS_BY_CODE)),
    Metric("gossipkv_keys_read_total", COUNTER, "Keys that were looked up here.", "counters.keys_read"),
    Metric("gossipkv_scan_slices_total", COUNTER, "Slices of work of scans.", "counters.scan_slices"),
    Metric("gossipkv_scanned_records_total", COUNTER, "Records that scans read.", "counters.records_scanned"),
    Metric("gossipkv_searched_partitions_total", COUNTER, "Partitions that scans searched.",
           "counters.partitions_searched"),
    Metric("gossipkv_notifications_ignored_total", COUNTER, "Notifications received (messages without answer).",
           "counters.notifications_ignored"),
    Metric("gossipkv_request_duration_seconds", HISTOGRAM,
           "Time from the receipt of a request until its answer was given to the socket, by origin: the "
           "loop's own files, another node, or Python.",
           "latency.local=local latency.forwarded=forwarded latency.handed_off=handed_off", "path"),
    # Connections, and the disk reads for them.
    Metric("gossipkv_connections", GAUGE, "Connections to this node that are open.", "counters.connections"),
    Metric("gossipkv_peer_connections", GAUGE, "Connections of this node to others that are open.", "counters.peers"),
    Metric("gossipkv_in_flight_requests", GAUGE, "Requests in progress.", "counters.in_flight"),
    Metric("gossipkv_held_bytes", GAUGE, "Bytes of input, output and scans held for connections.",
           "counters.held_bytes"),
    Metric("gossipkv_waiting_bytes", GAUGE, "Requests and answers that wait for Python.",
           "counters.waiting_bytes"),
    Metric("gossipkv_connections_accepted_total", COUNTER, "Connections that were accepted.",
           "counters.connections_accepted"),
    Metric("gossipkv_tls_handshakes_total", COUNTER, "TLS handshakes.", "counters.tls_handshakes"),
    Metric("gossipkv_tls_handshakes_resumed_total", COUNTER, "TLS handshakes that a ticket shortened.",
           "counters.tls_resumed"),
    Metric("gossipkv_connections_refused_total", COUNTER,
           "Connections refused over a limit: of all connections, or of one address.",
           "counters.connections_refused=all counters.connections_refused_by_address=address", "limit"),
    Metric("gossipkv_connections_closed_total", COUNTER, "Ended connections, by reason.",
           "counters.closed_*",
           "reason",
           "by_peer reset bad_frame bad_message unasked_response frame_timeout output_timeout idle memory drained cut "
           "bad_answer abandoned unauthorized handshake"),
    Metric("gossipkv_accept_pauses_total", COUNTER, "Pauses of accepting for lack of descriptors.",
           "counters.accept_pauses"),
    Metric("gossipkv_http_connections_detached_total", COUNTER,
           "HTTP connections passed to the gateway, since they asked for more than a plain read.",
           "counters.http_detached"),
    Metric("gossipkv_http_connections_unserved_total", COUNTER,
           "HTTP connections answered with 503, since the gateway did not take them in time.",
           "counters.http_unserved"),
    Metric("gossipkv_frames_refused_total", COUNTER, "Frames refused unread, by reason.",
           "counters.frames_*", "reason", "too_large too_deep too_many_elements malformed"),
    Metric("gossipkv_read_pauses_total", COUNTER,
           "Pauses of reading from a connection, by the limit that it reached.",
           "counters.paused_for_output=output counters.paused_for_hand_offs=hand_offs", "reason"),
    Metric("gossipkv_received_bytes_total", COUNTER, "Bytes received over TCP.", "counters.bytes_received"),
    Metric("gossipkv_sent_bytes_total", COUNTER, "Bytes sent over TCP.", "counters.bytes_sent"),
    Metric("gossipkv_busy_polls_total", COUNTER, "Polls for the next request without sleep.", "counters.busy_polls"),
    Metric("gossipkv_busy_poll_hits_total", COUNTER, "Polls that met a request.", "counters.busy_poll_hits"),
    Metric("gossipkv_cold_reads_total", COUNTER, "Reads that waited for pages not in memory.",
           "counters.cold_reads"),
    Metric("gossipkv_cold_pages_total", COUNTER, "Pages read from disk for such reads.", "counters.cold_pages"),
    Metric("gossipkv_cold_pages_failed_total", COUNTER, "Pages for such reads that could not be read.",
           "counters.cold_pages_failed"),
    Metric("gossipkv_cold_reads_refused_total", COUNTER, "Reads that failed because the disk was too slow.",
           "counters.cold_refused"),
    # Forwarded reads.
    Metric("gossipkv_forwarded_reads_total", COUNTER, "Reads of partitions of other nodes; a batch counts once.",
           "counters.forwarded"),
    Metric("gossipkv_forwarded_reads_failed_total", COUNTER, "Forwarded reads that no node answered.",
           "counters.forward_failed"),
    Metric("gossipkv_forward_attempts_total", COUNTER, "Requests to owners for forwarded reads.",
           "counters.forward_attempts"),
    Metric("gossipkv_forward_answers_total", COUNTER, "Answers of other nodes, including refusals.",
           "counters.forward_answers"),
    Metric("gossipkv_forward_rounds_total", COUNTER, "Rounds in which all owners were asked again.",
           "counters.forward_rounds"),
    Metric("gossipkv_forward_fates_total", COUNTER,
           "Owners that gave no record in time, by reason: the code of a refusal, no connection, a full "
           "queue, silence for a stage, or a late answer.",
           "counters.forward_not_served=not_served counters.forward_not_ready=not_ready "
           "counters.forward_unknown_version=unknown_version counters.forward_corrupt=corrupt "
           "counters.forward_overloaded=overloaded counters.forward_refused=refused "
           "counters.forward_unconnected=unconnected counters.forward_queue_full=queue_full "
           "counters.forward_silences=silent counters.forward_answers_late=late",
           "fate"),
    Metric("gossipkv_scans_gathered_total", COUNTER, "Pages of scans requested from other nodes.",
           "counters.scans_gathered"),
    Metric("gossipkv_scans_unanswered_total", COUNTER, "Pages of scans that failed.",
           "counters.scans_unanswered"),
    Metric("gossipkv_scan_questions_total", COUNTER, "Requests to owners for scans.", "counters.scan_questions"),
    Metric("gossipkv_scan_fates_total", COUNTER, "Owners that gave no records to a scan in time, by reason.",
           "counters.scan_silences=silent counters.scan_bad_answers=bad_answer", "fate"),
    # Builds, and reading back built versions.
    Metric("gossipkv_builds_begun_total", COUNTER, "Begun builds of versions.", "counters.builds_begun"),
    Metric("gossipkv_builds_done_total", COUNTER, "Completed builds of versions.", "counters.builds_done"),
    Metric("gossipkv_builds_failed_total", COUNTER, "Failed builds of versions.", "counters.builds_failed"),
    Metric("gossipkv_builds_stopped_total", COUNTER, "Cancelled builds of versions.",
           "counters.builds_stopped"),
    Metric("gossipkv_built_bytes_total", COUNTER, "Bytes of built sorted files.", "counters.built_bytes"),
    Metric("gossipkv_built_source_bytes_total", COUNTER, "Bytes of source files that builds read.",
           "counters.built_source_bytes"),
    Metric("gossipkv_scrubbed_versions_total", COUNTER, "Versions read back from the disk.",
           "counters.scrubbed_versions"),
    Metric("gossipkv_scrubbed_bytes_total", COUNTER, "Bytes read back from the disk.", "counters.scrubbed_bytes"),
    Metric("gossipkv_scrub_damaged_files_total", COUNTER, "Files found damaged when read back.",
           "counters.scrub_damaged_files"),
    Metric("gossipkv_source_unreadable", GAUGE, "1 if the source as a whole cannot be read.", "?source_error"),
    # The cluster.  Reasons of drops are those of the envelope, of sealing, and of the inbox.
    Metric("gossipkv_members", GAUGE, "Members that this node knows, including itself.",
           "members_by_state.*", "state"),
    Metric("gossipkv_verdict", GAUGE,
           "Last verdict of this node on the cluster: 0 well, 1 attention, 2 trouble.",
           "verdict.number"),
    Metric("gossipkv_verdict_timestamp_seconds", GAUGE,
           "Time of the last verdict, in seconds since 1970; reading the metric renews an old verdict.",
           "verdict.at_s"),
    Metric("gossipkv_isolated", GAUGE, "1 if this node hears from none of the other members.", "isolated"),
    Metric("gossipkv_silent", GAUGE, "1 if this node is silent, because its disk cannot be written.",
           "?silent"),
    Metric("gossipkv_certificate_expiry_timestamp_seconds", GAUGE,
           "Expiry of the TLS certificate, in seconds since 1970; absent without a certificate.",
           "certificate_expires_s"),
    Metric("gossipkv_publish_refused", GAUGE, "1 if the tree has no room for all entries of this node.",
           "?publish_error"),
    Metric("gossipkv_names_claimed_twice", GAUGE, "Names that two members share.", "#claimed_twice"),
    Metric("gossipkv_epoch", GAUGE, "Number of starts of this node.", "epoch"),
    Metric("gossipkv_gossip_dropped_total", COUNTER, "Dropped datagrams and requests of gossip, by reason.",
           "counters.gossip_dropped_*",
           "reason",
           "short checksum malformed kind request not_for_me oversized no_keys not_sealed replayed not_authentic own "
           "unknown_key"),
    Metric("gossipkv_gossip_lost_datagrams_total", COUNTER, "Datagrams dropped because the socket's buffer was full.",
           "counters.gossip_lost_by_system"),
    Metric("gossipkv_gossip_send_failures_total", COUNTER, "Datagrams that the system did not send, by reason.",
           "counters.gossip_send_failed_*", "reason"),
    Metric("gossipkv_gossip_receive_failures_total", COUNTER, "Receives that the system refused, by reason.",
           "counters.gossip_receive_failed_*", "reason"),
    Metric("gossipkv_gossip_ask_failures_total", COUNTER,
           "Failed gossip requests over TCP, by the system's reason.",
           "counters.gossip_asks_failed_*", "reason"),
    Metric("gossipkv_gossip_events_total", COUNTER, "Other counters of gossip, by name.",
           "counters.gossip_*",
           "event",
           "asks_dropped asks_refused asks_timed_out bad_reply branch_invented branch_refused claim_refused "
           "cluster_id_refused dead_forgotten_for_room defects epoch_at_its_end epochs_renewed members_full not_for_me "
           "probes_saved_by_tcp refutations relays_full stalls verdict_about_unknown verdicts"),
    # Tables and their store, if there is one, since it was opened.
    Metric("gossipkv_tables_closed", GAUGE,
           "1 if the table store is closed, so that tables cannot be read or written here.",
           "?tables.why"),
    Metric("gossipkv_tables_log_damaged", GAUGE,
           "1 if log kept for lagging replicas was dropped after damage since the start.",
           "?tables.log_damage"),
    Metric("gossipkv_table_copies", GAUGE, "Table partitions with a replica on this node.", "tables.copies"),
    Metric("gossipkv_table_copies_aside", GAUGE, "Replicas on this node that refuse writes for good.",
           "tables.copies_aside"),
    Metric("gossipkv_tables_refuse_writes", GAUGE,
           "1 if the table store refuses writes now: it is full, closed, or late with merges.",
           "?tables.refusal"),
    Metric("gossipkv_table_lag_records", GAUGE, "Records on this node that another node lacks.",
           "tables.lag_records.*.*", "table node"),
    Metric("gossipkv_table_lag_seconds", GAUGE,
           "Minimum age of the oldest record on this node that another node lacks.",
           "tables.lag_s.*.*", "table node"),
    Metric("gossipkv_table_waiting_requests", GAUGE, "Waiting reads and writes of tables.", "tables.waiting"),
    Metric("gossipkv_table_waiting_held_bytes", GAUGE,
           "Bytes held by waiting reads and writes of tables.", "tables.waiting_bytes"),
    Metric("gossipkv_table_waiting_limit_bytes", GAUGE,
           "Limit of bytes for waiting reads and writes of tables.", "tables.waiting_limit"),
    Metric("gossipkv_table_smeared_waiting", GAUGE,
           "Smeared puts that wait to be forwarded.", "tables.smeared_waiting"),
    Metric("gossipkv_table_smeared_held_bytes", GAUGE,
           "Bytes of smeared puts that wait to be forwarded.", "tables.smeared_bytes"),
    Metric("gossipkv_table_smeared_total", COUNTER, "Accepted smeared puts.",
           "tables.smeared"),
    Metric("gossipkv_table_smeared_forwarded_total", COUNTER, "Forwarded smeared puts.", "tables.smeared_forwarded"),
    Metric("gossipkv_table_smeared_dropped_total", COUNTER,
           "Smeared puts dropped with their table.", "tables.smeared_dropped"),
    Metric("gossipkv_store_batches_total", COUNTER, "Written and synced batches.", "tables.counters.batches"),
    Metric("gossipkv_store_batches_refused_total", COUNTER, "Batches refused for lack of room.",
           "tables.counters.refused"),
    Metric("gossipkv_store_user_bytes_total", COUNTER, "Bytes of written batches.",
           "tables.counters.user_bytes"),
    Metric("gossipkv_store_groups_total", COUNTER, "Writes of the log, each with all waiting batches.",
           "tables.counters.groups"),
    Metric("gossipkv_store_syncs_total", COUNTER, "Synced writes of the log.", "tables.counters.syncs"),
    Metric("gossipkv_store_sync_seconds_total", COUNTER, "Total time until writes of the log were synced.",
           "tables.counters.sync_ns/1000000000"),
    Metric("gossipkv_store_log_bytes_total", COUNTER, "Bytes written to the log.",
           "tables.counters.log_bytes"),
    Metric("gossipkv_store_merged_bytes_total", COUNTER, "Bytes of runs written by merges.",
           "tables.counters.merged_bytes"),
    Metric("gossipkv_store_memtable_bytes", GAUGE, "Memory of records that are not merged.",
           "tables.counters.memtable_bytes"),
    Metric("gossipkv_store_young_runs", GAUGE, "Runs besides the oldest; a read may look into each.",
           "tables.counters.young_runs"),
    Metric("gossipkv_store_debt_bytes", GAUGE,
           "Bytes of young runs and dropped data that wait for merges.",
           "tables.counters.debt_bytes"),
    Metric("gossipkv_store_log_kept_bytes", GAUGE, "Bytes of the log on the disk.",
           "tables.counters.log_kept_bytes"),
    Metric("gossipkv_store_run_bytes", GAUGE, "Bytes of all runs on the disk.", "tables.counters.run_bytes"),
    # Memory.
    Metric("gossipkv_mapped_bytes", GAUGE, "Sorted files that are mapped, without compressed ones.",
           "memory.mapped_bytes"),
    Metric("gossipkv_mapped_active_bytes", GAUGE,
           "Mapped sorted files of active versions, without compressed ones.", "memory.active_bytes"),
    Metric("gossipkv_mapped_compressed_bytes", GAUGE, "Compressed sorted files that are mapped.",
           "memory.compressed_bytes"),
    Metric("gossipkv_mapped_room_bytes", GAUGE, "Memory available for mapped files.", "memory.room_bytes"),
    Metric("gossipkv_resident_versions", TEXT,
           "Resident versions, as a label: all, active or none; the value is always 1.",
           "memory.resident", "resident"),
    # The node and its process.
    Metric("gossipkv_joined", GAUGE, "1 if this node has joined its cluster.", "ready.joined"),
    Metric("gossipkv_opened", GAUGE, "1 if this node has opened its data.", "ready.opened"),
    Metric("gossipkv_draining", GAUGE, "1 if this node is about to end.", "ready.draining"),
    Metric("process_cpu_seconds_total", COUNTER, "Processor time of the node.", "process.cpu_s"),
    Metric("process_resident_memory_bytes", GAUGE,
           "Memory of the node, including mapped files.", "process.resident_bytes"),
    Metric("gossipkv_peak_memory_bytes", GAUGE, "Peak memory of the node.", "process.peak_bytes"),
    Metric("process_open_fds", GAUGE, "Open descriptors of the node.", "process.descriptors"),
    Metric("process_max_fds", GAUGE, "Limit of open descriptors of the node.", "process.descriptor_limit"),
    Metric("process_threads", GAUGE, "Threads of the node.", "process.threads"),
    Metric("process_start_time_seconds", GAUGE,
           "Start time of the node, in seconds since 1970.", "process.started_ms/1000"),
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
    ("verdict", "level"): "a word; `gossipkv_verdict` is its number",
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
