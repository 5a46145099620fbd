"""The methods about records, by name: for clients to read and write, and for nodes to exchange records."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, NotServed
from gossipkv.register.configuration import UUID_BYTES
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import TIME_BYTES, TOMBSTONE
from gossipkv.replication.replica_set import ANSWER_S
from gossipkv.replication.snapshot.transfer import LoadPage, serve
from gossipkv.settings.tables import MAX_KEY_BYTES, MAX_VALUE_BYTES
from gossipkv.storage.engine.shell import KEY_LIMIT, VALUE_LIMIT
from gossipkv.table.controllers.move_step import report_of
from gossipkv.table.records.changes import TableChanges
from gossipkv.table.records.forward import RecordServices
from gossipkv.table.records.gathered import begin_writes
from gossipkv.table.records.range_deletion import RangeDeletions
from gossipkv.table.records.read import TableReads
from gossipkv.table.records.request import WAITS_BYTES
from gossipkv.table.records.router import Router
from gossipkv.table.records.scan import TableScans
from gossipkv.table.records.token_compaction import TokenCompactor
from gossipkv.table.records.token_survey import settled_here
from gossipkv.table.records.verify import Verifier
from gossipkv.table.records.write import TableWrites
from gossipkv.table.session.readiness import ReplicaReadiness
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import Replication
    from gossipkv.settings.config import Config
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion, DeferredResult
    from gossipkv.wire.rpc import Value

GIVES_WITHIN_S: Final = ANSWER_S / 2  # Longest throttling of a page: after ANSWER_S the peer aborts the load.
MAX_LINK: Final = (1 << 64) - 1
MAX_ROWS: Final = 1 << 20
assert KEY_LIMIT - len(TOMBSTONE) - TIME_BYTES == MAX_KEY_BYTES, "a tombstone stands under its time and key"
assert MAX_VALUE_BYTES == VALUE_LIMIT - (64 << 10) - 64, "a record has a head and dependencies beside it"


@final
class RecordMethods:
    """All methods about records, by name."""

    def __init__(self, participant: MetadataParticipant, random: Random, limits: Config) -> None:
        self.routing = Router(participant, random)
        self._service = service = participant.service
        self._services = services = RecordServices(
            service,
            self.routing,
            ReplicaReadiness(service.replicating, participant.watcher.look_at),
            TokenCompactor(self.routing, participant, limits.max_token),
            participant.directory.name_of,
            stage_s=limits.stage_timeout / 1000,
            most_key=min(limits.max_key, MAX_KEY_BYTES),
            most_value=min(limits.max_value, MAX_VALUE_BYTES),
            scan_limit=limits.scan_limit,
            writes_failed=Counter(),
        )
        self.writes_failed = services.writes_failed
        reads, scans, writes = TableReads(services), TableScans(services), TableWrites(services)
        deletions, feeds = RangeDeletions(services), TableChanges(services, limits.max_feeds)
        self.forward = writes.forward
        self.begin_writes = partial(begin_writes, services)
        self.reads: dict[bytes, Callable[[Arguments], Value | Later]] = {
            b"get": reads.get,
            b"get_many": reads.get_many,
            b"scan": scans.scan,
            b"changes": feeds.changes,
        }
        verifying = Verifier(participant, self.routing)
        self.methods: dict[bytes, Callable[[Arguments], Value | Later | DeferredResult]] = {
            b"put": writes.put,
            b"delete": writes.delete,
            b"put_many": writes.put_many,
            b"delete_many": writes.delete_many,
            b"delete_range": deletions.delete_range,
            b"table_write": writes.write,
            b"table_accepted": writes.write_accepted,
            b"table_delete_range": deletions.delete_here,
            b"table_get": reads.get_here,
            b"table_scan": scans.scan_here,
            b"table_changes": feeds.changes_here,
            b"table_changed": feeds.changed_here,
            b"table_settled": partial(settled_here, services),
            b"verify_table": verifying.verify,
            b"table_digest": verifying.digest,
            b"replica_tell": self._tell,
            b"replica_feed": self._feed,
            b"replica_load": self._load,
            b"replica_report": self._report,
            b"replica_digest": self._digest,
        }

    def _tell(self, arguments: Arguments) -> Value:
        node, link = _peer(arguments)
        whole, rows = arguments.whole("whole", 1), arguments.packed_rows("rows", MAX_ROWS)
        arguments.end()
        return self._service.replicating().replicas.take_report(node, link, rows, whole=bool(whole))

    def _feed(self, arguments: Arguments) -> Later:
        node, link = _peer(arguments)
        entries = arguments.packed_rows("entries", MAX_ROWS)
        arguments.end()
        return Later(partial(self._service.replicating().replicas.take_entries, node, link, entries))

    def _load(self, arguments: Arguments) -> Later:
        replication, replica = self._replica_of(arguments)
        space, position = arguments.whole("space", MAX_LINK), arguments.whole("position", MAX_LINK)
        page = LoadPage(space, position, arguments.blob("key"), arguments.blob_or_nil("since", optional=True) or b"")
        arguments.end()
        clock.check(page.since)
        return Later(_LoadGiving(replication, replica, page).begin)

    def _report(self, arguments: Arguments) -> Value:
        arguments.blob("node")
        table, partitions = arguments.blob("table"), arguments.packed_rows("partitions", MAX_ROWS)
        arguments.end()
        replicas = self._service.replicating().replicas.by_partition
        asked = [(table, partition) for partition in partitions if isinstance(partition, int)]
        packed: bytes = msgpack.packb([[key[1], *report_of(replicas[key])] for key in asked if key in replicas])
        return packed

    def _digest(self, arguments: Arguments) -> Value:
        replication, replica = self._replica_of(arguments)
        at, at_ms = arguments.blob("clock"), arguments.whole("time", MAX_LINK)
        arguments.end()
        clock.check(at)
        return replication.digests.digest(replica, at, at_ms)

    def _replica_of(self, arguments: Arguments) -> tuple[Replication, Replica]:
        arguments.blob("node")
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_LINK)
        replication = self._service.replicating()
        replica = replication.replicas.by_partition.get((table, partition))
        if replica is None:
            raise NotServed("the node does not hold the partition", {"partition": partition})
        return replication, replica


@final
class _LoadGiving:
    """A page of a bulk load for another node, given at the limited rate."""

    def __init__(self, replication: Replication, replica: Replica, page: LoadPage) -> None:
        self._replication, self._replica, self._page = replication, replica, page
        self._complete: Completion[Value]

    def begin(self, complete: Completion[Value]) -> None:
        """Give the page, now or when there is room in the rate."""
        self._complete, replication = complete, self._replication
        now = replication.now()
        if wait_s := min(replication.gives.wait_s(now), GIVES_WITHIN_S):
            replication.waiting.begin(now + wait_s, WAITS_BYTES, self._give)
        else:
            self._give()

    def _give(self) -> None:
        replication, replica = self._replication, self._replica
        try:
            if replica not in replication.replicas.acks:
                raise NotServed("the node no longer holds the partition", {"partition": replica.partition[1]})
            serve(replication, replica, self._page, self._given)
        except GossipKVError as error:
            self._complete(error)

    def _given(self, result: Value | GossipKVError) -> None:
        match result:
            case [_, _, _, bytes(packed), _]:
                self._replication.gives.took(len(packed), self._replication.now())
        self._complete(result)


def _peer(arguments: Arguments) -> tuple[bytes, int]:
    node = arguments.blob("node")
    if len(node) != UUID_BYTES:
        raise BadRequest(f"{arguments.method}: the node must be {UUID_BYTES} bytes, not {len(node)}")
    return node, arguments.whole("link", MAX_LINK)
