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
    Metric("gossipkv_read_requests_total", COUNTER, "Reads that this node answered, from here or elsewhere.",
           "by_database.*.requests", "database"),
    Metric("gossipkv_read_requests_forwarded_total", COUNTER, "Reads of these that others answered.",
           "by_database.*.forwarded", "database"),
    Metric("gossipkv_read_hits_total", COUNTER, "Keys that were read and found.", "by_database.*.hits", "database"),
    Metric("gossipkv_read_misses_total", COUNTER, "Keys that were read and do not exist.",
           "by_database.*.misses", "database"),
    Metric("gossipkv_read_value_bytes_total", COUNTER, "Bytes of the values that were read.",
           "by_database.*.value_bytes", "database"),
    Metric("gossipkv_read_errors_total", COUNTER, "Reads that were answered with an error.",
           "by_database.*.errors", "database"),
    Metric("gossipkv_databases", GAUGE, "Databases that this node knows.", "databases"),
    Metric("gossipkv_versions", GAUGE, "Versions by the state of their copy on this node.",
           "by_database.*.versions.*", "database state"),
    Metric("gossipkv_active_version", TEXT,
           "Version that answers reads which name none; 1 always, the version is a label.",
           "by_database.*.version", "database version"),
    Metric("gossipkv_active_version_timestamp_seconds", GAUGE,
           "Newest modification time among the source files of the active version, since the epoch.",
           "by_database.*.time/1000", "database"),
    Metric("gossipkv_missing_partitions", GAUGE, "Partitions of the active version that no live node has ready.",
           "by_database.*.missing_partitions", "database"),
    Metric("gossipkv_under_replicated_partitions", GAUGE,
           "Partitions of the active version that fewer live nodes than `replication` have ready.",
           "by_database.*.under_replicated_partitions", "database"),
    # Requests.  The loop refuses some with an error itself, and Python the others.
    Metric("gossipkv_requests_total", COUNTER, "Requests that the serving loop answered, by method.",
           "counters.gets=get counters.get_manys=get_many counters.scans=scan counters.pings=ping", "method"),
    Metric("gossipkv_handed_off_requests_total", COUNTER, "Requests that were handed to Python.",
           "counters.handed_off"),
    Metric("gossipkv_handed_off_replies_total", COUNTER, "Answers of Python that were given to a connection.",
           "counters.replies"),
    Metric("gossipkv_handed_off_replies_dropped_total", COUNTER, "Answers of Python whose connection had ended.",
           "counters.replies_dropped"),
    Metric("gossipkv_errors_total", COUNTER, "Requests that this node answered with an error, by the code of the wire.",
           "counters.errors_* counters.bad_requests=BAD_REQUEST counters.duplicate_ids=BAD_REQUEST "
           "counters.overloaded=OVERLOADED counters.replies_too_large=TOO_LARGE",
           "code",
           " ".join(STATUS_BY_CODE)),
    Metric("gossipkv_keys_read_total", COUNTER, "Keys that were looked up here.", "counters.keys_read"),
    Metric("gossipkv_scan_slices_total", COUNTER, "Slices of work that scans were made in.", "counters.scan_slices"),
    Metric("gossipkv_scanned_records_total", COUNTER, "Records that scans read.", "counters.records_scanned"),
    Metric("gossipkv_searched_partitions_total", COUNTER, "Partitions that scans searched.",
           "counters.partitions_searched"),
    Metric("gossipkv_notifications_ignored_total", COUNTER, "Messages that want no answer.",
           "counters.notifications_ignored"),
    Metric("gossipkv_request_duration_seconds", HISTOGRAM,
           "Time from the receive that brought a request until its answer was given to the socket, by who answered: "
           "the loop from its own files, another node, or Python.",
           "latency.local=local latency.forwarded=forwarded latency.handed_off=handed_off", "path"),
    # Connections, and the disk reads for them.
    Metric("gossipkv_connections", GAUGE, "Connections to this node that are open.", "counters.connections"),
    Metric("gossipkv_peer_connections", GAUGE, "Connections of this node to others that are open.", "counters.peers"),
    Metric("gossipkv_in_flight_requests", GAUGE, "Requests that are being worked on.", "counters.in_flight"),
    Metric("gossipkv_held_bytes", GAUGE, "Input, output and scans that are held for connections.",
           "counters.held_bytes"),
    Metric("gossipkv_waiting_bytes", GAUGE, "Requests and answers that wait for their turn in Python.",
           "counters.waiting_bytes"),
    Metric("gossipkv_connections_accepted_total", COUNTER, "Connections that were accepted.",
           "counters.connections_accepted"),
    Metric("gossipkv_tls_handshakes_total", COUNTER, "Handshakes of TLS that were done.", "counters.tls_handshakes"),
    Metric("gossipkv_tls_handshakes_resumed_total", COUNTER, "Handshakes of these that a ticket made short.",
           "counters.tls_resumed"),
    Metric("gossipkv_connections_refused_total", COUNTER,
           "Connections over a limit, by which: all, or those of one address.",
           "counters.connections_refused=all counters.connections_refused_by_address=address", "limit"),
    Metric("gossipkv_connections_closed_total", COUNTER, "Connections that ended, by why.",
           "counters.closed_*",
           "reason",
           "by_peer reset bad_frame bad_message unasked_response frame_timeout output_timeout idle memory drained cut "
           "bad_answer abandoned unauthorized handshake"),
    Metric("gossipkv_accept_pauses_total", COUNTER, "Pauses for want of descriptors.", "counters.accept_pauses"),
    Metric("gossipkv_http_connections_detached_total", COUNTER,
           "Connections of HTTP that asked for more than a plain read, and went to the gateway.",
           "counters.http_detached"),
    Metric("gossipkv_http_connections_unserved_total", COUNTER,
           "Those of them that it could not take in time: they were answered 503.",
           "counters.http_unserved"),
    Metric("gossipkv_frames_refused_total", COUNTER, "Frames that were refused unread, by why.",
           "counters.frames_*", "reason", "too_large too_deep too_many_elements malformed"),
    Metric("gossipkv_read_pauses_total", COUNTER,
           "Times that a connection was not read for a while, by what it had too much of.",
           "counters.paused_for_output=output counters.paused_for_hand_offs=hand_offs", "reason"),
    Metric("gossipkv_received_bytes_total", COUNTER, "Bytes received over TCP.", "counters.bytes_received"),
    Metric("gossipkv_sent_bytes_total", COUNTER, "Bytes sent over TCP.", "counters.bytes_sent"),
    Metric("gossipkv_busy_polls_total", COUNTER, "Look-outs for a next request without sleep.", "counters.busy_polls"),
    Metric("gossipkv_busy_poll_hits_total", COUNTER, "Look-outs that met a request.", "counters.busy_poll_hits"),
    Metric("gossipkv_cold_reads_total", COUNTER, "Stops of reads for pages that were not in memory.",
           "counters.cold_reads"),
    Metric("gossipkv_cold_pages_total", COUNTER, "Pages that were read for them.", "counters.cold_pages"),
    Metric("gossipkv_cold_pages_failed_total", COUNTER, "Pages of these that could not be read.",
           "counters.cold_pages_failed"),
    Metric("gossipkv_cold_reads_refused_total", COUNTER, "Reads that the disk did not answer in time.",
           "counters.cold_refused"),
    # Forwarded reads.
    Metric("gossipkv_forwarded_reads_total", COUNTER, "Reads whose partition other nodes hold; a batch is one.",
           "counters.forwarded"),
    Metric("gossipkv_forwarded_reads_failed_total", COUNTER, "Forwarded reads that nobody answered.",
           "counters.forward_failed"),
    Metric("gossipkv_forward_attempts_total", COUNTER, "Requests to owners for forwarded reads.",
           "counters.forward_attempts"),
    Metric("gossipkv_forward_answers_total", COUNTER, "Answers of other nodes, refusals among them.",
           "counters.forward_answers"),
    Metric("gossipkv_forward_rounds_total", COUNTER, "Times that all owners were asked anew.",
           "counters.forward_rounds"),
    Metric("gossipkv_forward_fates_total", COUNTER,
           "Owners that gave no record in time, by why: the code that they refused with, no connection, a full queue, "
           "silence for a stage, an answer when nobody waited any more.",
           "counters.forward_not_served=not_served counters.forward_not_ready=not_ready "
           "counters.forward_unknown_version=unknown_version counters.forward_corrupt=corrupt "
           "counters.forward_overloaded=overloaded counters.forward_refused=refused "
           "counters.forward_unconnected=unconnected counters.forward_queue_full=queue_full "
           "counters.forward_silences=silent counters.forward_answers_late=late",
           "fate"),
    Metric("gossipkv_scans_gathered_total", COUNTER, "Pages of scans that other nodes were asked for.",
           "counters.scans_gathered"),
    Metric("gossipkv_scans_unanswered_total", COUNTER, "Pages of scans that were given up.",
           "counters.scans_unanswered"),
    Metric("gossipkv_scan_questions_total", COUNTER, "Requests to owners for scans.", "counters.scan_questions"),
    Metric("gossipkv_scan_fates_total", COUNTER, "Owners that gave no records to a scan in time, by why.",
           "counters.scan_silences=silent counters.scan_bad_answers=bad_answer", "fate"),
    # Builds, and reading back built versions.
    Metric("gossipkv_builds_begun_total", COUNTER, "Builds of versions that were begun.", "counters.builds_begun"),
    Metric("gossipkv_builds_done_total", COUNTER, "Builds of versions that came to their end.", "counters.builds_done"),
    Metric("gossipkv_builds_failed_total", COUNTER, "Builds of versions that failed.", "counters.builds_failed"),
    Metric("gossipkv_builds_stopped_total", COUNTER, "Builds of versions that came to nothing by nobody's fault.",
           "counters.builds_stopped"),
    Metric("gossipkv_built_bytes_total", COUNTER, "Bytes of sorted files that were built.", "counters.built_bytes"),
    Metric("gossipkv_built_source_bytes_total", COUNTER, "Bytes of source files that builds read.",
           "counters.built_source_bytes"),
    Metric("gossipkv_scrubbed_versions_total", COUNTER, "Versions read back from the disk.",
           "counters.scrubbed_versions"),
    Metric("gossipkv_scrubbed_bytes_total", COUNTER, "Bytes read back from the disk.", "counters.scrubbed_bytes"),
    Metric("gossipkv_scrub_damaged_files_total", COUNTER, "Files that were damaged when they were read back.",
           "counters.scrub_damaged_files"),
    Metric("gossipkv_source_unreadable", GAUGE, "Whether the source as a whole cannot be read.", "?source_error"),
    # The cluster.  Reasons of drops are those of the envelope, of sealing, and of the inbox.
    Metric("gossipkv_members", GAUGE, "Members that this node knows, itself among them.",
           "members_by_state.*", "state"),
    Metric("gossipkv_verdict", GAUGE,
           "Whether the cluster is well, as this node judged last: 0 well, 1 something deserves attention, 2 trouble.",
           "verdict.number"),
    Metric("gossipkv_verdict_timestamp_seconds", GAUGE, "When that was; reading this has an old one made anew.",
           "verdict.at_s"),
    Metric("gossipkv_isolated", GAUGE, "Whether this node hears from none of the others it knows.", "isolated"),
    Metric("gossipkv_silent", GAUGE, "Whether no other hears of this node, since its disk cannot be written.",
           "?silent"),
    Metric("gossipkv_certificate_expiry_timestamp_seconds", GAUGE,
           "Until when the certificate for TLS holds, since the epoch; nothing without one.",
           "certificate_expires_s"),
    Metric("gossipkv_publish_refused", GAUGE, "Whether the tree takes not all that this node has to tell.",
           "?publish_error"),
    Metric("gossipkv_names_claimed_twice", GAUGE, "Names of members by which two nodes go.", "#claimed_twice"),
    Metric("gossipkv_epoch", GAUGE, "Number of this node's start: it grows with each.", "epoch"),
    Metric("gossipkv_gossip_dropped_total", COUNTER, "Datagrams and requests of gossip that were dropped, by why.",
           "counters.gossip_dropped_*",
           "reason",
           "short checksum malformed kind request not_for_me oversized no_keys not_sealed replayed not_authentic own "
           "unknown_key"),
    Metric("gossipkv_gossip_lost_datagrams_total", COUNTER, "Datagrams that the socket had no room for.",
           "counters.gossip_lost_by_system"),
    Metric("gossipkv_gossip_send_failures_total", COUNTER, "Datagrams that the system did not send, by its reason.",
           "counters.gossip_send_failed_*", "reason"),
    Metric("gossipkv_gossip_receive_failures_total", COUNTER, "Receives that the system refused, by its reason.",
           "counters.gossip_receive_failed_*", "reason"),
    Metric("gossipkv_gossip_ask_failures_total", COUNTER,
           "Requests of gossip over TCP that failed, by the system's reason.",
           "counters.gossip_asks_failed_*", "reason"),
    Metric("gossipkv_gossip_events_total", COUNTER, "What else gossip counts, by its name there.",
           "counters.gossip_*",
           "event",
           "asks_dropped asks_refused asks_timed_out bad_reply branch_invented branch_refused claim_refused "
           "cluster_id_refused dead_forgotten_for_room defects epoch_at_its_end epochs_renewed members_full not_for_me "
           "probes_saved_by_tcp refutations relays_full stalls verdict_about_unknown verdicts"),
    # Tables and their store, if there is one, since it was opened.
    Metric("gossipkv_tables_closed", GAUGE,
           "Whether the store of the tables stays closed, so that nobody can read or write them here.",
           "?tables.why"),
    Metric("gossipkv_tables_log_damaged", GAUGE,
           "Whether log that the tables keep for its readers alone was let go of for damage since the start.",
           "?tables.log_damage"),
    Metric("gossipkv_table_copies", GAUGE, "Partitions of tables that this node has a replica of.", "tables.copies"),
    Metric("gossipkv_table_copies_aside", GAUGE, "Of these those that take no writes, for good.",
           "tables.copies_aside"),
    Metric("gossipkv_tables_refuse_writes", GAUGE,
           "Whether the store takes no writes now: it is full, closed, or behind with merging.",
           "?tables.refusal"),
    Metric("gossipkv_table_lag_records", GAUGE, "Records here that another node is known to lack.",
           "tables.lag_records.*.*", "table node"),
    Metric("gossipkv_table_lag_seconds", GAUGE, "Age of the oldest of these, at least.",
           "tables.lag_s.*.*", "table node"),
    Metric("gossipkv_table_waiting_requests", GAUGE, "Reads and writes of tables that wait.", "tables.waiting"),
    Metric("gossipkv_table_waiting_held_bytes", GAUGE, "What these hold.", "tables.waiting_bytes"),
    Metric("gossipkv_table_waiting_limit_bytes", GAUGE, "What these may hold.", "tables.waiting_limit"),
    Metric("gossipkv_table_smeared_waiting", GAUGE, "Puts that wait here to be forwarded.", "tables.smeared_waiting"),
    Metric("gossipkv_table_smeared_held_bytes", GAUGE, "What these take.", "tables.smeared_bytes"),
    Metric("gossipkv_table_smeared_total", COUNTER, "Puts that were accepted here, to be forwarded later.",
           "tables.smeared"),
    Metric("gossipkv_table_smeared_forwarded_total", COUNTER, "Those that were.", "tables.smeared_forwarded"),
    Metric("gossipkv_table_smeared_dropped_total", COUNTER, "Those whose table was dropped.", "tables.smeared_dropped"),
    Metric("gossipkv_store_batches_total", COUNTER, "Batches that were written and synced.", "tables.counters.batches"),
    Metric("gossipkv_store_batches_refused_total", COUNTER, "Batches for which there was no room.",
           "tables.counters.refused"),
    Metric("gossipkv_store_user_bytes_total", COUNTER, "Bytes of the batches that were written.",
           "tables.counters.user_bytes"),
    Metric("gossipkv_store_groups_total", COUNTER, "Writes of the log, each of all batches that waited.",
           "tables.counters.groups"),
    Metric("gossipkv_store_syncs_total", COUNTER, "Writes of the log that were synced.", "tables.counters.syncs"),
    Metric("gossipkv_store_sync_seconds_total", COUNTER, "Time that these took until they were synced, all together.",
           "tables.counters.sync_ns/1000000000"),
    Metric("gossipkv_store_log_bytes_total", COUNTER, "Bytes that were written to the log.",
           "tables.counters.log_bytes"),
    Metric("gossipkv_store_merged_bytes_total", COUNTER, "Bytes of runs that merges have written.",
           "tables.counters.merged_bytes"),
    Metric("gossipkv_store_memtable_bytes", GAUGE, "Memory that records take until merged.",
           "tables.counters.memtable_bytes"),
    Metric("gossipkv_store_young_runs", GAUGE, "Runs beside the oldest; a read may ask each.",
           "tables.counters.young_runs"),
    Metric("gossipkv_store_debt_bytes", GAUGE,
           "Bytes of young runs and of what was dropped, which merges have yet to take.",
           "tables.counters.debt_bytes"),
    Metric("gossipkv_store_log_kept_bytes", GAUGE, "Bytes that the log takes on the disk.",
           "tables.counters.log_kept_bytes"),
    Metric("gossipkv_store_run_bytes", GAUGE, "Bytes that all runs take on the disk.", "tables.counters.run_bytes"),
    # Memory.
    Metric("gossipkv_mapped_bytes", GAUGE, "Sorted files that are mapped, without compressed ones.",
           "memory.mapped_bytes"),
    Metric("gossipkv_mapped_active_bytes", GAUGE, "Those of active versions.", "memory.active_bytes"),
    Metric("gossipkv_mapped_compressed_bytes", GAUGE, "Compressed sorted files that are mapped.",
           "memory.compressed_bytes"),
    Metric("gossipkv_mapped_room_bytes", GAUGE, "What memory there is for mapped files.", "memory.room_bytes"),
    Metric("gossipkv_resident_versions", TEXT,
           "Which versions are resident: all, active ones or none; 1 always, the answer is a label.",
           "memory.resident", "resident"),
    # The node and its process.
    Metric("gossipkv_joined", GAUGE, "Whether this node has met its cluster.", "ready.joined"),
    Metric("gossipkv_opened", GAUGE, "Whether this node has opened what it holds.", "ready.opened"),
    Metric("gossipkv_draining", GAUGE, "Whether this node is about to end.", "ready.draining"),
    Metric("process_cpu_seconds_total", COUNTER, "Processor time of the node.", "process.cpu_s"),
    Metric("process_resident_memory_bytes", GAUGE, "Memory of the node, mapped files too.", "process.resident_bytes"),
    Metric("gossipkv_peak_memory_bytes", GAUGE, "Most memory that the node had so far.", "process.peak_bytes"),
    Metric("process_open_fds", GAUGE, "Descriptors that the node has open.", "process.descriptors"),
    Metric("process_max_fds", GAUGE, "Descriptors that the node may have open.", "process.descriptor_limit"),
    Metric("process_threads", GAUGE, "Threads of the node.", "process.threads"),
    Metric("process_start_time_seconds", GAUGE, "Start of the node, since the epoch.", "process.started_ms/1000"),
)
# fmt: on

# One metric with constants of the running node; its labels are keys of `info`.
IDENTITY_NAME: Final = "gossipkv_node"
IDENTITY_HELP: Final = "Who answers; 1 always, the rest is in the labels."
IDENTITY: Final = ("node", "cluster", "version", "protocol", "shard_id")

# Parts of `info` without a metric, with everything below them.  Such a part is written like a place.
LEFT_OUT: Final[dict[Path, str]] = {
    ("name",): "the same for every node",
    ("memory", "residency"): "a setting",
    ("source",): "settings",
    ("memory", "limit"): "where a limit stands; `gossipkv_mapped_room_bytes` has what it leaves",
    ("verdict", "level"): "a word; `gossipkv_verdict` is its number",
    ("speaks",): "the releases that run, which whoever upgrades looks at",
    ("unreadable",): "names, of a moment in which two releases run; `status` tells them",
    ("tables", "lost"): "`gossipkv_tables_closed` tells the state that matters; the verdict tells what to do",
    ("tables", "state"): "`gossipkv_tables_closed` tells the state that matters",
    ("tables", "store"): "an id, which says nothing over time",
    ("tables", "life"): "how often the store was opened; `gossipkv_epoch` tells of starts",
    ("uptime_s",): "an age; `process_start_time_seconds` is the time itself",
    ("resp",): "an address",
    ("pumps",): "the parts of what `counters` sums up",
}
