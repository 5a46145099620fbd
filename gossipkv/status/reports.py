"""The reports of nodes: the answers of `report`, `status`, `info`, `members`, `databases` and `partitions` as records.

`docs/reference/methods.md` describes the answers.  `codec` decodes the records, so any field may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.codec import Record, decode, replace
from gossipkv.status.words import duration_text, plain, size_text, some_text
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value

RANGE: Final = "range"
KINDS: Final = ("hash", RANGE)  # Databases of these kinds are tables.
FEW_RUNS: Final = 8  # The most runs of partitions in a line.


# Datasets


class ReportedSet(Record):
    """A set of partitions: a bitmap, or its first runs."""

    count: int
    runs: str = ""
    bitmap: bytes | None = None

    def of(self, partitions: int) -> PartitionSet:
        """Return the set of a bitmap of `partitions`; empty if the bitmap is malformed."""
        try:
            return PartitionSet.from_bytes(partitions, self.bitmap or b"")
        except ValueError:
            return PartitionSet.empty(partitions)

    def first_runs(self, partitions: int) -> str:
        """Return the first runs in words."""
        if self.bitmap is not None:
            words = self.of(partitions).in_words(FEW_RUNS)
            return words.partition(" and ")[0] + (",..." if " and " in words else "")
        runs = self.runs.split(",")
        return ",".join([*runs[:FEW_RUNS], *(["..."] if len(runs) > FEW_RUNS else [])])


class BuildFault(Record):
    """The reason why a node cannot build a version."""

    message: str
    file: str | None  # The file at fault.
    again: bool  # The file may still change, and the build is repeated.


class BuildAdvance(Record):
    """The progress of a build, from 0 to 1."""

    done: float | None
    remaining_s: float | None


class StrayKey(Record):
    """The first key that voided the function of the files."""

    key: str | None
    file: str
    offset: int


class VersionScrub(Record):
    """The last reading back of a version from the disk."""

    running: bool
    last_s: int | None
    damaged_files: int
    bypassed_cache: bool


class SharedVersion(Record):
    """The partitions of a version at one of its owners."""

    node: str
    state: str
    ready: ReportedSet
    building: ReportedSet


class NameClash(Record):
    """One of several contents that have one version's name."""

    digest: str
    partition_count: str
    function: str
    regrouped: bool
    nodes: tuple[str, ...]


class FileDispute(Record):
    """Partitions for which the files of two owners differ."""

    nodes: tuple[str, ...]
    partitions: ReportedSet


class VersionStatus(Record):
    """One version of a dataset, in `status` or in `report`."""

    state: str
    format: str | None
    function: str | None
    alike: tuple[str, ...]  # Functions that no key of the version tells apart.
    voided: str
    strays: int | None
    first_stray: StrayKey | None
    warnings: tuple[str, ...]  # Doubts about its source.
    records: int | None
    duplicates: int | None
    size_bytes: int | None
    source_files: int | None
    source_bytes: int | None
    source_differs: bool
    at_source: bool | None
    progress: BuildAdvance
    error: BuildFault | None
    waited_s: float | None
    waiting_for: str | None
    waits_until: str | None
    needed_bytes: int | None
    withheld: str | None  # The reason why nodes do not switch to it.
    nowhere: bool
    brought: bool  # Other nodes bring it.
    unpublished: bool
    scrub: VersionScrub
    partitions: object  # Those on the node: a list of maps, or a `ReportedSet`.
    partition_count: int | None
    replication: int | None
    reassign_after_ms: int
    repair_after_ms: int  # 0: no other node builds a lacking copy.
    switched_ms: int | None  # The time since the switch.
    owners: tuple[SharedVersion, ...]
    owners_not_named: int
    away: tuple[str, ...]  # Absent owners.
    kept_by: tuple[str, ...]  # The nodes that may still need a retiring version.
    missing: ReportedSet
    under_replicated: ReportedSet
    conflicts: tuple[NameClash, ...]
    disputes: tuple[FileDispute, ...]

    @property
    def total(self) -> int:
        """Return the number of partitions; 0 if unknown."""
        return self.partition_count or 0

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the grouping function, and those that no key tells apart from it."""
        return () if self.function is None else (*dict.fromkeys((self.function, *self.alike)),)

    @property
    def records_text(self) -> str:
        """Return the number of records; empty if it is not reported."""
        return "" if self.records is None else f"{self.records:,}"

    @property
    def size_text(self) -> str:
        """Return the size for people; empty if it is not reported."""
        return "" if self.size_bytes is None else size_text(self.size_bytes)

    @property
    def source_text(self) -> str:
        """Return the number of files at the source, and their size; empty if they are not reported."""
        files = self.source_files
        if files is None or self.source_bytes is None:
            return ""
        return f"{files:,} {'file' if files == 1 else 'files'}, {size_text(self.source_bytes)}"

    @property
    def owned(self) -> str:
        """Return the number of partitions, and of those with owners, in words; empty if it is not reported."""
        if self.partition_count is None:
            return ""
        missing = self.missing.count
        return f"{self.total - missing:,} of {self.total:,}" if missing else f"{self.total:,}"

    @property
    def partitions_here(self) -> str | None:
        """Return the number of local partitions in words; with the total, if they are not all."""
        here = len(self.partitions) if isinstance(self.partitions, list) else None
        if isinstance(self.partitions, dict):
            here = decode(ReportedSet, self.partitions).count
        if self.partition_count is None or here == self.partition_count:
            return None if here is None else str(here)
        return f"{here or 0:,} of {self.partition_count:,}"

    @property
    def scrubbed(self) -> str:
        """Return in words when the version was last read back from the disk, and if that runs now."""
        scrub, words = self.scrub, ["being scrubbed"] if self.scrub.running else []
        if scrub.last_s is not None:
            where = "" if scrub.bypassed_cache else ", through the cache"
            found = f", {scrub.damaged_files:,} files damaged" if scrub.damaged_files else ""
            words.append(f"scrubbed {duration_text(scrub.last_s)} ago{where}{found}")
        return "; ".join(words)


class MemberReport(Record):
    """A member, as another one knows it."""

    node: str
    state: str
    address: str = ""
    epoch: str = "-"
    incarnation: str = "-"
    claimed_twice: bool = False
    misfit: str | None = None


class DatasetReport(Record):
    """One dataset, in `status` or in `report`."""

    active: str | None
    awaits: str | None  # The version that should serve; empty: it is not known yet.
    hold: str | None
    held_by: str | None
    error: str | None
    nodes: tuple[MemberReport, ...]
    versions: dict[str, VersionStatus]


# Tables


class TableHolder(Record):
    """A node that holds partitions of a table."""

    node: str
    state: str
    partitions: int
    lag_records: int  # Records of the asked node that this one lacks.
    lag_s: float
    coming: int  # These partitions move to this node.
    leaving: int  # Partitions whose copy here goes once other nodes have all of it.

    @property
    def moves(self) -> str:
        """Return the moves at this node, in words."""
        counts = (self.coming, "coming"), (self.leaving, "leaving")
        return ", ".join(f"{count:,} {words}" for count, words in counts if count)

    @property
    def is_down(self) -> bool:
        """Return True if the node answers for none of its partitions."""
        return self.state not in {"alive", "suspect"}

    @property
    def here(self) -> int:
        """Return the number of partitions that the node can answer for."""
        return 0 if self.is_down else self.partitions

    @property
    def lag(self) -> str:
        """Return in words the replicas that are down, and the lag of this node."""
        replicas = "1 replica is down" if self.partitions == 1 else f"{self.partitions:,} replicas are down"
        records = f"{self.lag_records:,} records, for {self.lag_s:.1f} s" if self.lag_records else ""
        return "; ".join(filter(None, (replicas if self.is_down and self.partitions else "", records)))


class NotedPartition(Record):
    """A partition of a table, and why it is named."""

    partition: str
    why: str


class NodeLag(Record):
    """The records that a node lacks, and the age of the oldest."""

    records: int
    seconds: float


class QuarantinedCopies(Record):
    """The quarantined copies of a table at one node."""

    copies: int
    bytes_: int


class SmearedPuts(Record):
    """The puts that are only on the disk of one node until it forwards them."""

    puts: int
    until_s: float
    why: str | None  # The reason why they are late.


class TableReport(Record):
    """One table, in `status` or in `report`."""

    kind: str
    error: str | None
    pending: str | None
    warning: str | None
    partition_count: int
    replication: int
    nodes: tuple[TableHolder, ...]
    moving: dict[str, int]  # The number of moving copies by state.
    missing: int
    fewest: int  # Replicas of the partition that has fewest, if some are missing.
    absent: tuple[str, ...]  # Members that could have them.
    waits_for: tuple[str, ...]
    to_copy: dict[str, int]  # Bytes, by target.
    copied: int
    transfer: int | None  # Bytes a second.
    passed_over: dict[str, int]  # Seconds for which nothing moves to a node.
    aside: QuarantinedCopies
    smeared: SmearedPuts
    acceptors: tuple[str, ...]  # Nodes with acceptors of its map, unless all of them live.
    unwell: tuple[NotedPartition, ...]
    unwell_not_named: int
    lags: dict[str, NodeLag]
    away: dict[str, TableHolder]  # Absent nodes.

    @property
    def holders(self) -> list[tuple[str, TableHolder]]:
        """Return the holders of partitions with their names in words; nodes that differ only in the name are one."""
        found: list[tuple[list[str], TableHolder]] = []
        for holder in self.nodes:
            one = replace(holder, node="")
            names = next((names for names, other in found if other == one), None)
            if names is None:
                found.append(([holder.node], one))
            else:
                names.append(holder.node)
        return [(some_text(names), holder) for names, holder in found]


class PartitionHost(Record):
    """A node that holds a partition of a table, or will."""

    node: str
    slot: int
    state: str
    id: str = ""


class TablePartition(Record):
    """An entry of `partitions` or `partition_map`."""

    id: str
    start: bytes
    end: bytes | None
    hosts: tuple[PartitionHost, ...]
    assignments: tuple[PartitionHost, ...]
    bytes_: int | None
    rows: int | None
    rate: float | None

    def place(self, kind: str) -> tuple[str, ...]:
        """Return its id, and the bounds of a range or the number of a shard, in words."""
        if kind == RANGE:
            return self.id, shown(self.start), plain(self.end)
        return self.id, f"{int.from_bytes(self.start, 'big')}"

    def row(self, kind: str) -> tuple[str, ...]:
        """Return its place, hosts, size, rows and rate in words."""
        names = (host.node if host.state == "AVAILABLE" else f"{host.node}({host.state})" for host in self.hosts)
        return (
            *self.place(kind),
            " ".join(names),
            "-" if self.bytes_ is None else size_text(self.bytes_),
            "-" if self.rows is None else f"{self.rows:,}",
            "-" if self.rate is None else f"{self.rate:,.1f}",
        )


class TableMap(Record):
    """An answer of `partitions` or `partition_map`: the partitions of a table, or a page of them."""

    table: str
    kind: str
    config: int | None
    time_key: tuple[str, ...]
    smear: bool
    ttl_ms: int | None
    retention_ms: int | None
    replication: int
    replicas: int  # Those that each partition of a new table has.
    partition_count: int
    left_out: tuple[str, ...]  # Members that cannot hold a replica of a new table yet.
    partitions: tuple[TablePartition, ...]
    next: bytes | None  # The `start` of the next page.


class DatabaseSummary(Record):
    """An entry of `databases`."""

    name: str
    kind: str
    states: dict[str, str]  # The state of each version.
    times: dict[str, int]  # The time of each version's source, in milliseconds since 1970.


# Nodes


class NodeReport(Record):
    """A member's report about itself, for the verdict."""

    isolated: bool
    unreached: dict[str, str]  # Members that seem to live, and why this node does not reach them.
    silent: str | None
    source_error: str | None
    sourceless: bool
    publish_error: str | None
    claimed_twice: tuple[str, ...]
    unreadable: tuple[str, ...]
    misfits: dict[str, str]  # Nodes that share no protocol version with this one, by name or address, and why.
    draining: bool
    certificate_expires_s: int | None
    certificate_over: str | None
    certificate_close: str | None
    tables_lost: str | None
    tables_closed: str | None
    log_damage: str | None
    copies_aside: int
    acceptors: tuple[str, ...]
    removed: dict[str, bool]  # Nodes that tables have removed; True: lost for good.
    away: dict[str, str]
    databases: object  # A map, by name, of reports that `entry` decodes.


class NodeMemory(Record):
    """The memory of mapped files."""

    mapped_bytes: int
    compressed_bytes: int
    room_bytes: int | None
    resident: str
    residency: str
    limit: str


class TablesState(Record):
    """The store of the tables, and the copies in it."""

    state: str
    why: str | None  # The reason why the store is closed.
    lost: bool
    life: str
    log_damage: str | None
    copies_aside: int
    counters: dict[str, int]


class LatencyReport(Record):
    """A histogram since the node's start."""

    count: int
    sum_us: float
    buckets: tuple[tuple[float, int], ...]  # Upper bounds in microseconds, with cumulative counts.


class SourceReport(Record):
    """The source of a node."""

    root: str | None  # Without secrets; None: it has none.
    require_success_file: bool


class InfoReport(Record):
    """The answer of `info`."""

    node: str
    cluster: str
    version: str
    shard_id: str | None
    uptime_s: float
    source: SourceReport
    certificate_expires_s: int | None
    ready: dict[str, bool]
    memory: NodeMemory
    tables: TablesState
    counters: dict[str, int]
    latency: dict[str, LatencyReport]


class StatusReport(Record):
    """An answer of `status`, by name, in order."""

    datasets: dict[str, DatasetReport]
    tables: dict[str, TableReport]


def entry(value: object) -> DatasetReport | TableReport:
    """Decode the report of a database."""
    return decode(TableReport, value) if is_table(value) else decode(DatasetReport, value)


def is_table(value: object) -> bool:
    """Return True for the report of a table."""
    return isinstance(value, dict) and value.get("kind") in KINDS


def status_report(value: Value) -> StatusReport:
    """Decode an answer of `status`."""
    entries = {plain(name): entry(part) for name, part in value.items()} if isinstance(value, dict) else {}
    named = sorted(entries.items(), key=lambda pair: pair[0])
    return StatusReport(
        {name: report for name, report in named if isinstance(report, DatasetReport)},
        {name: report for name, report in named if isinstance(report, TableReport)},
    )
