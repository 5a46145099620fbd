"""The core of replication: all replicas of a node, without I/O.

Nodes send each other two requests. Each goes over the connection that the sender dialled (a *link*; the sender draws a
random number for each):

    replica_tell   [uuid, link, whole, rows]    status of the sender's replicas; the answer is the receiver's status
    replica_feed   [uuid, link, entries]        entries of the sender's log; answered once the accepted ones are synced

The module `messages` defines rows and entries.
"""

from __future__ import annotations

from functools import partial
from itertools import islice, repeat
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import GossipKVError, NotReady, ProtocolError
from gossipkv.replication._replication import clock_of, entries_of, hear_counters, hear_rows, pack_entries, sync_entries
from gossipkv.replication.own_writes import OwnWrites
from gossipkv.replication.replica.acks import AckTracker
from gossipkv.replication.replica.dirty import DirtyReplicas
from gossipkv.replication.replica.hlc import MAX_MS, MAX_TIME, ClockSkew
from gossipkv.replication.replica.replica import NO_RULES, NOTHING, Replica
from gossipkv.replication.replica.spaces import Spaces, first_batch
from gossipkv.replication.replica.status import ReplicaStatus, SpanEnds, is_served
from gossipkv.replication.snapshot.transfer import BulkLoader
from gossipkv.replication.stream.cursors import OutgoingEntries
from gossipkv.replication.stream.log_tail import Beginnings, LogTail, by_children
from gossipkv.replication.stream.messages import ReplicaState, ends_of_span, state_of, status_row_of, unpacked
from gossipkv.replication.stream.peer import ReplicaPeer, answer_row, rows_of
from gossipkv.replication.stream.receiver import LogReceiver
from gossipkv.replication.stream.sender import LogSender
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.ports import OnNewer, ReplicationLimits, ReplicationPorts
    from gossipkv.replication.replica.keys import ReplicaIdentity
    from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
    from gossipkv.wire.rpc import Raw, Value

    _Hear = Callable[[Value], object]  # Applies an answer; what is returned is true if the peer must be looked at.

ASK_OWN_S: Final = 1.0  # A restarted node waits so long for reports of its records that others have.
ANSWER_S: Final = 10.0  # A link without an answer for so long is restarted.
CLOCK_S: Final = 20.0  # An otherwise silent peer is asked for its time this often, or CLOCK_STEP_S later.
CLOCK_STEP_S: Final = 5.0  # Peers are asked at multiples of it: several of them share a wake.
NOTED_WITHIN: Final = 1 / 8  # Part of the relay time within which senders note entries that others send.
MAX_REPORTED: Final = 256  # Per status report, unless the link is new: encoding more would delay other peers.
BARRED: Final = "another node has later records of this replica: the store here is an older copy"


@final
class ReplicaSet:
    """The replicas of a node."""

    def __init__(
        self,
        me: bytes,
        outside: ReplicationPorts,
        random: Random,
        position: int,
        limits: ReplicationLimits,
        *,
        skew: ClockSkew | None = None,
    ) -> None:
        """Begin with a log synced to `position`; `me`: this node's uuid."""
        self.me = me
        self.by_partition: dict[tuple[bytes, int], Replica] = {}
        self.acks: dict[Replica, AckTracker] = {}
        self.spaces = Spaces()
        self.dirty = DirtyReplicas()
        self.peers: dict[bytes, ReplicaPeer] = {}
        self.making: dict[tuple[bytes, int], Replica] = {}  # The first batch of these replicas is not synced yet.
        self.maps: dict[bytes, int] = {}  # By table: the config id of the placement that its local replicas follow.
        # Children, each with the time since when another node may have more of their records.
        self._unvouched: dict[Replica, float] = {}
        self.tail, self.beginnings = LogTail(position), Beginnings(position)
        self.places: dict[bytes, tuple[int, dict[int, int]]] = {}  # Saved log positions for nodes not met in this run.
        self.relay_s = limits.relay_s
        self.loader = BulkLoader(me, outside, self, relay_s=limits.relay_s, stall_s=limits.stall_s)
        self.loader.pace.rate = limits.transfer
        self.skew = skew or ClockSkew(outside.now, outside.now_ms)
        self.originate = OwnWrites(outside, self.skew, self._synced).originate
        self._receiver = LogReceiver(outside.get, self._append, outside.now)
        self._outside, self._random = outside, random
        self._of_origin: dict[int, Replica] | None = None
        self.watchers: list[tuple[Callable[[Replica], object], Iterable[Replica]]] = []  # Each with watched replicas.
        self.is_up: Callable[[bytes], bool] = lambda _: True  # False if gossip calls the node dead.
        self.on_newer: OnNewer = lambda _table, _node, _config: None  # Called when a node follows a newer placement.
        self._began = outside.now()
        self.due = 0.0  # The time of the next work for `pump` if nothing happens before; inf: never.

    # -- replicas ----------------------------------------------------------------------------------------------------

    def found(self, replica: Replica) -> None:
        """Add a replica that the store had already; its earlier changes are unknown."""
        self.dirty.moved(replica)
        self._add(replica)

    def _add(self, replica: Replica) -> None:
        self.by_partition[replica.partition] = replica
        self.spaces.add(replica)
        self.acks[replica] = AckTracker(replica)
        if replica.joining is not None:
            self.loader.joining[replica] = None

    def place(
        self, identity: ReplicaIdentity, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules = NO_RULES
    ) -> None:
        """Create or update a partition's replica by the adopted placement. Raises Overloaded, StorageError.

        An existing replica under another assignment stays until it is dropped.
        """
        replica = self.by_partition.get(identity[:2]) or self.making.get(identity[:2])
        if replica is None:
            space = self._outside.reserve_space()
            batch, state, joining = first_batch(space, identity, config, hosts, rules)
            replica = Replica(space, identity, state, self.tail.end, joining)
            replica.adopts(config, hosts, rules)
            self.dirty.placed(replica)
            self._outside.append(batch, partial(self._made, replica))
            self.making[identity[:2]] = replica
            return
        if replica.assignment != identity.assignment:
            return
        assert replica.bounds == identity.bounds, (replica.identity, identity)
        if config == replica.config and rules == replica.rules and tuple(sorted(hosts)) == replica.hosts:
            return
        if replica.is_frozen:
            self.loader.unplaced[replica] = identity, config, hosts, rules
            return
        batch_or_none = replica.adopting(config, hosts, rules)
        if batch_or_none is not None:
            position = self._outside.append(batch_or_none, partial(self.has_adopted, replica, config))
            self.dirty.moved(replica)
            self.beginnings.note(replica, replica.assigned, hosts, position)
        replica.adopts(config, hosts, rules)
        self.dirty.placed(replica)
        if replica in self.acks:
            self.acks[replica].look()
            self.adopted(replica)
            if batch_or_none is None:  # Otherwise the replica's status changes once the batch is synced.
                self._connect_sharers(replica)

    @property
    def of_origin(self) -> Mapping[int, Replica]:
        """The local replica of each present assignment's partition; built for the first token.

        Former assignments are left out: after a split several replicas share them, and each settles by itself.
        """
        if self._of_origin is None:
            self._of_origin = {origin: replica for replica in self.by_partition.values() for origin in replica.assigned}
        return self._of_origin

    def _made(self, replica: Replica) -> None:
        del self.making[replica.partition]
        self.making = self.making or {}  # Replacing or clearing an emptied dict frees its memory.
        self._add(replica)
        self._connect_sharers(replica)

    def has_adopted(self, replica: Replica, config: int) -> None:
        """Confirm that the batch by which a replica adopts a placement is synced."""
        replica.has_adopted(config)
        if replica in self.acks:
            self._connect_sharers(replica)
            self._receiver.retry()  # Peers that adopted earlier have sent entries.

    def adopted(self, replica: Replica) -> None:
        """Update the log senders after a replica adopted a placement or departed."""
        for peer in self.peers.values():
            peer.sender.adopted(replica, self._outside.now())
        self._look_at_all()

    def take_over(self, parent: Replica, children: Sequence[Replica]) -> None:
        """Replace a parent by its children in all local state; the store has them already."""
        # A node that reported the parent in this run had no children then. A node that did not may have children with
        # more records, if this store is an older copy.
        is_vouched = self.acks[parent].has_heard(parent.assigned)
        parent.lineage = parent.lineage._replace(children=tuple(children))
        for child in children:
            self.by_partition[child.partition] = child
            self.acks[child] = AckTracker(child)
            self.dirty.placed(child)
            self.dirty.moved(child)
            if not (is_vouched or parent.is_new):
                self._unvouched[child] = self._outside.now()
        for peer in self.peers.values():
            peer.sender.divided(parent, children)
        self.tail.forget()
        self.forget(parent, Batch())

    def _connect_sharers(self, replica: Replica) -> None:
        if self._of_origin is not None:
            self._of_origin |= dict.fromkeys(replica.assigned, replica)
        for node in replica.sharers:
            self._peer(node).changed((replica,), self._outside.now())
        self._outside.wake()

    def drop(self, replica: Replica, batch: Batch) -> None:
        """Drop a replica; the batch removes it from the store."""
        if self.forget(replica, batch):
            self.spaces.leaves(replica, batch)
        self.spaces.remove(replica, replica.space, replica.suffix)

    def moved(self, replica: Replica) -> None:
        """Call the watchers: more is synced, or the config is new."""
        for watcher, _ in self.watchers:
            watcher(replica)

    def forget(self, replica: Replica, batch: Batch) -> bool:
        """Forget a replica; return False if a finishing load is about to take its place in the store."""
        replica.leave_fast_path()
        is_there = self.loader.let_go(replica, batch)
        del self.by_partition[replica.partition], self.acks[replica]
        self._of_origin = None
        self._unvouched.pop(replica, None)
        self.beginnings.let_go(replica)
        self.tail.let_go(replica)
        self._receiver.let_go(replica)
        self.dirty.let_go(replica)
        for peer in self.peers.values():
            peer.let_go(replica)
        self.moved(replica)  # Requests parked on this replica are released.
        return is_there

    def may_originate(self, replica: Replica) -> bool:
        """Return True if the replica may assign counters: an older copy of a store must not reuse any."""
        if replica.is_frozen or replica.joining is not None or not replica.originates or self.refusal(replica):
            return False
        if self.acks[replica].has_heard(replica.assigned):
            self._unvouched.pop(replica, None)
            return True
        since = self._unvouched.get(replica)
        if since is None and replica.is_new:
            return True
        return self._outside.now() - (self._began if since is None else since) >= ASK_OWN_S

    def refusal(self, replica: Replica) -> str | None:
        """The reason why a replica originates nothing until an operator acts; None: it may."""
        if replica.time > MAX_TIME:
            return "a record has a time near the largest possible one, so new records cannot get a later time"
        return replica.barred or self.skew.refusal()

    def _append(self, batch: Batch, entries: Sequence[LogEntry], on_synced: Callable[[], object] | None = None) -> None:
        position = self._outside.append(batch, partial(self._synced, entries, on_synced))
        for entry in entries:
            entry.position = position
            entry.replica.appends_merged(entry)

    def _synced(self, entries: Sequence[LogEntry], on_synced: Callable[[], object] | None = None) -> None:
        here = sync_entries(by_children(entries), self.acks, NOTHING)
        self._feed(here)
        told: dict[tuple[bytes, ...], list[Replica]] = {}
        for entry in here:
            told.setdefault(entry.replica.sharers, []).append(entry.replica)
        for nodes, replicas in told.items():
            for node in nodes:
                self._peer(node).changed(replicas, self._outside.now() + self.relay_s / 2)
        self.dirty.synced(here)
        for entry in here:
            self.acks[entry.replica].look()
            if self.loader.loads:
                self.loader.synced(entry.replica)
            self.moved(entry.replica)
        if on_synced is not None:
            on_synced()
        is_urgent = any(map(self.dirty.goes_on, here)) or any(peer.sender.is_passing for peer in self.peers.values())
        self._look_at_all(0.0 if is_urgent else self._outside.now() + self.relay_s * NOTED_WITHIN)

    def _feed(self, entries: Sequence[LogEntry]) -> None:
        """Add synced entries to the end of the log that feeds other nodes; entries of incomplete replicas feed none."""
        fed = []
        for entry in entries:
            if entry.joining is None:
                fed.append(entry)
            elif entry.joining.is_over:
                # Its log begins here: a replica that lacks older records needs a bulk load.
                entry.replica.made_at = entry.position
                for peer in self.peers.values():
                    peer.sender.has_moved(entry.replica)
        if fed:
            self.tail.append(fed)

    # -- as `LoadPorts` ----------------------------------------------------------------------------------------------

    def host_statuses(self, replica: Replica) -> Iterable[tuple[bytes, ReplicaStatus]]:
        """Yield the last status of each connected host's replica."""
        for node in replica.sharers:
            if self.reaches(node) and (status := self.peers[node].sender.statuses.get(replica)) is not None:
                yield node, status

    def changes(self, replica: Replica) -> None:
        """Report a replica's changed status to its hosts soon."""
        self._connect_sharers(replica)
        self.moved(replica)

    def has_moved(self, replica: Replica, old_space: int, old_suffix: bytes) -> None:
        """Update all state after a bulk load put a replica into another space."""
        self.spaces.remove(replica, old_space, old_suffix)
        self.spaces.add(replica)
        for peer in self.peers.values():
            peer.sender.has_moved(replica)
        self.dirty.moved(replica)
        self.changes(replica)
        self.acks[replica].look()
        self._receiver.retry()

    # -- links -------------------------------------------------------------------------------------------------------

    def _peer(self, node: bytes) -> ReplicaPeer:
        peer = self.peers.get(node)
        if peer is None:
            place, cursors = self.places.pop(node, (0, {}))
            sender = LogSender(
                self.tail, place, relay_s=self.relay_s, is_broken=self._is_broken, beginnings=self.beginnings
            )
            sender.kept_positions = cursors
            peer = self.peers[node] = ReplicaPeer(node, sender)
        return peer

    def connected(self, node: bytes) -> None:
        """Start a link on a new connection to a node."""
        self.disconnected(node)
        self._greet(self._peer(node))

    def disconnected(self, node: bytes) -> None:
        """End the link to a node."""
        peer = self._peer(node)
        peer.end_link()
        peer.restart_at = None
        self._look_at_all()  # Senders no longer wait for this node to send its own records.

    def _look_at_all(self, at: float = 0.0) -> None:
        """Look at all peers by that time."""
        for peer in self.peers.values():
            peer.due = min(peer.due, at)
        if at <= self.due:
            self._outside.wake()

    def reaches(self, node: bytes) -> bool:
        """Return True if a node is connected and has reported its clocks."""
        peer = self.peers.get(node)
        return peer is not None and peer.greeted

    def confirms(self, node: bytes) -> bool:
        """Return True if a node can confirm a write: reached and not dead; the verdict uses the same rule."""
        peer = self.peers.get(node)
        return peer is not None and peer.greeted and self.is_up(node)

    @property
    def can_answer(self) -> bool:
        """True if each replica follows a placement and enough of its other hosts reported to allow writes."""
        has_waited = self._outside.now() - self._began >= ASK_OWN_S  # A majority is enough by then (`may_originate`).
        groups = {replica.sharers for replica in self.by_partition.values()}
        lacking = ((sum(not self.reaches(node) for node in nodes), len(nodes)) for nodes in groups)
        are_heard = all(2 * lacks < 1 + count if has_waited else not lacks for lacks, count in lacking)
        return are_heard and all(table in self.maps for table, _ in self.by_partition)

    def _is_broken(self, replica: Replica, origin: int) -> bool:
        role = replica.role_of(origin)
        return role is not None and role.node != self.me and not self.reaches(role.node)

    def _greet(self, peer: ReplicaPeer) -> None:
        link = self._random.getrandbits(63) | 1
        peer.begin_link(link)
        shared = [replica for replica in self.by_partition.values() if peer.node in replica.sharers]
        rows = rows_of(peer, shared)
        self._ask(peer, "replica_tell", [1, msgpack.packb(rows)], partial(self._greeted, peer))

    def _ask(self, peer: ReplicaPeer, method: str, params: list[Value], hear: _Hear) -> None:
        replied = partial(self._replied, peer, peer.link, self._outside.now(), hear)
        self._outside.ask(peer.node, method, [self.me, peer.link, *params], replied)

    def _replied(self, peer: ReplicaPeer, link: int, asked: float, hear: _Hear, answer: Value | GossipKVError) -> None:
        if peer.link != link:
            return
        peer.asked = asked
        try:
            if hear(unpacked(answer)):
                peer.due = 0.0
                self._outside.wake()
        except GossipKVError:  # An error in place of an answer ends here, too.
            peer.end_link()
            peer.restart_at = self._outside.now() + self.relay_s
            self._look_at_all()

    def _greeted(self, peer: ReplicaPeer, result: Value) -> bool:
        peer.greeted, peer.clock_at = True, self._outside.now() + CLOCK_S
        peer.report_at = min(peer.report_at, peer.clock_at)
        statuses = dict(self._hear_answer(peer, result))
        lower = {node for replica in statuses for node in replica.sharers if node < self.me and self.reaches(node)}
        peer.connected(statuses, self._outside.now(), goes_back=not lower - {peer.node})
        return True

    def _hear_answer(
        self, peer: ReplicaPeer, rows: Value, *, is_fed: bool = False
    ) -> list[tuple[Replica, ReplicaStatus]]:
        heard: list[tuple[Replica, ReplicaStatus]] = []
        for row in rows if isinstance(rows, list) else ():
            match row:
                case [int(number), [], 0, int(config), False] if 0 <= number < len(peer.numbered):
                    self._hear_none(peer, peer.numbered[number], config)
                case [int(number), list(counters), *rest] if 0 <= number < len(peer.numbered):
                    # The ids as numbered; the replica may have a newer number.
                    replica, ids = peer.numbered[number], peer.ids[number]
                    theirs, state = clock_of(ids, counters), state_of(rest) if rest else peer.states.get(number)
                    if state is None:
                        raise ProtocolError("a row of an answer has only counters, and no row before it had the state")
                    if is_fed and rest:
                        state = peer.states[number] = state.shared_with(replica)
                    if replica in self.acks:  # Dropped replicas are skipped.
                        span = ends_of_span(ids, rest[3:]) if rest else None
                        heard.append((replica, self._hear(peer, replica, theirs, state, span)))
                case int(time_ms) if 0 <= time_ms < MAX_MS:
                    self.skew.hears(peer.node, time_ms, peer.asked)
                case _:
                    raise ProtocolError("a row of an answer must be a time of day, or [number, counters, state, ...]")
        return heard

    def _hear_none(self, peer: ReplicaPeer, replica: Replica, config: int) -> None:
        """Handle a node's statement that it holds nothing of a partition, under a possibly newer config."""
        if config > replica.config and replica in self.acks:
            peer.lacks(replica)
        if config > self.maps.get(replica.partition[0], 0):
            self.on_newer(replica.partition[0], peer.node, config)

    def _hear(
        self, peer: ReplicaPeer, replica: Replica, theirs: bytes, state: ReplicaState, span: SpanEnds | None = None
    ) -> ReplicaStatus:
        """Apply a node's status of its replica; `span`: what an incomplete replica has merged of this log."""
        if theirs == replica.synced:
            theirs = replica.synced  # Share one clock among all nodes of a replica at rest.
        if replica.never_gave_out(theirs):
            replica.barred = BARRED
            self._outside.barred(replica)
        last = peer.sender.statuses.get(replica)
        if last is not None and (last.assignment, last.config) == state[:2]:
            assignment, config, is_available = last.assignment, last.config, last.available
        else:
            (assignment, config, _), is_available = state.shared_with(replica), is_served(state.assignment, replica)
        status = ReplicaStatus(assignment, theirs, config, state.can_take, is_available, span)
        if config > replica.config:
            self.on_newer(replica.partition[0], peer.node, config)
        peer.hears(replica, status, self._outside.now())
        self.acks[replica].confirms(status)
        return status

    # -- requests of peers -------------------------------------------------------------------------------------------

    def take_report(self, node: bytes, link: int, rows: Sequence[Raw], *, whole: bool) -> bytes:
        """Apply a node's status report; return the packed answer. Raises ProtocolError; NotReady: restart the link."""
        peer = self._asking(node, link, begins=whole)
        answer: list[Value] = [self._outside.now_ms()]
        if not self.loader.below:  # Otherwise the loader has to hear each row.
            rows = hear_rows(rows, peer, self.by_partition, self.acks, self._outside.now())
        for row in rows:
            report = status_row_of(row)
            reported = peer.row_of(report, self.by_partition)
            replica = None if reported is None else self.by_partition.get(reported.partition)
            if reported is not None and replica is not None:
                state = ReplicaState(reported.assignment, report.config, report.can_take)
                theirs = clock_of(reported.ids, report.counters)
                span = ends_of_span(reported.ids, report.span) if report.span else None
                self._hear(peer, replica, theirs, state, span)
                self.loader.hears(node, replica, below=report.is_below)
                if reported.is_new or replica in peer.unreported:  # Otherwise the peer has this status already.
                    reported.is_new = False
                    answer.append(answer_row(peer, report.number, reported, replica))
            elif reported is not None:
                answer += self._none_here(peer, report.number, report.config)
        peer.due = 0.0
        self._outside.wake()
        return msgpack.packb(answer)

    def _none_here(self, peer: ReplicaPeer, number: int, config: int) -> Iterable[Value]:
        table, _ = peer.rows[number].partition
        ours = self.maps.get(table, 0)
        if config > ours and table in self.maps:  # The node learns of an unknown table from the catalogue.
            self.on_newer(table, peer.node, config)
        is_divided = ours > config and table in self.spaces.ranges  # Shards are never split.
        return [[number, [], 0, ours, False]] if is_divided else []

    def _asking(self, node: bytes, link: int, *, begins: bool = False) -> ReplicaPeer:
        """Return the node that asks on its link. Raises NotReady: the node or link is unknown."""
        peer = self.peers.get(node)
        if peer is None:
            if all(node not in replica.sharers for replica in self.by_partition.values()):
                raise NotReady("this node has no connection to the asking node, and shares no partition with it")
            peer = self._peer(node)
        if begins:
            peer.hears_link(link)
            self._receiver.early.pop(peer, None)
        if link != peer.their_link:
            raise NotReady("this node does not know this link, or the link was begun again")
        return peer

    def take_entries(self, node: bytes, link: int, entries: Sequence[Raw], on_taken: Callable[[bytes], object]) -> None:
        """Take log entries; once synced, call `on_taken` with the packed answer. Raises as `take_report`."""
        peer = self._asking(node, link)
        # A malformed message is refused whole. The rows are kept: the link may restart before all is synced.
        read, replicas, news, lacking = entries_of(peer, self.by_partition, entries)
        none: list[Value] = []
        for at in lacking:
            none += self._none_here(peer, at, peer.newer.get(at, 0))
        waits = 1

        def synced() -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                rows = [answer_row(peer, at, row, replica, is_fed=True) for at, (replica, row) in replicas.items()]
                on_taken(msgpack.packb([rows + none, news]))

        now = self._outside.now()
        waits += self._receiver.take(peer, zip(repeat(now), read), synced)
        if self._receiver.early:
            self._receiver.retry()
            self._outside.wake()  # Early entries expire after the relay time.
        synced()

    # -- periodic work -----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do all work that is due now."""
        now = self._outside.now()
        if loads := not self.loader.rests:
            self.loader.look(now)
        if self._receiver.early:
            self._receiver.forget(now, self.relay_s)
        for peer in [*self.peers.values()]:
            if peer.due <= now:
                self._look_at(peer, now)
        self.due = min(map(attrgetter("due"), self.peers.values()), default=inf)
        if self._receiver.early:
            self.due = min(self.due, self._receiver.first_early + self.relay_s)
        if loads:
            self.due = min(self.due, self.loader.due)

    def _look_at(self, peer: ReplicaPeer, now: float) -> None:
        is_littered = peer.is_littered and peer.greeted and peer.sender.is_caught_up
        if is_littered or (peer.restart_at is not None and peer.restart_at <= now):
            self._greet(peer)
        while (do := peer.sender.next(now)) is not None:
            if isinstance(do, OutgoingEntries):
                self._ship(peer, do)
                break
            self._outside.look(peer.node, do)
        if peer.sender.turned:
            peer.changed([replica for replica in peer.sender.turned if replica in self.acks], now)
            peer.sender.turned.clear()
        if peer.greeted and peer.report_at <= now:
            if peer.unreported or peer.clock_at <= now:
                self._report(peer, [*islice(peer.unreported, MAX_REPORTED)])
                peer.clock_at = -(-now // CLOCK_STEP_S) * CLOCK_STEP_S + CLOCK_S
            peer.report_at = now if peer.unreported else peer.clock_at
        if not peer.unreported:
            peer.unreported.clear()  # Replacing or clearing an emptied dict frees its memory.
        if do is not None and peer.sender.has_more:
            peer.due = now  # Other tasks run before the next message.
        else:
            restart_at = inf if peer.restart_at is None else peer.restart_at
            peer.due = min(restart_at, peer.report_at if peer.greeted else inf, peer.sender.due(now))

    def _report(self, peer: ReplicaPeer, replicas: Iterable[Replica]) -> None:
        self._ask(peer, "replica_tell", [0, msgpack.packb(rows_of(peer, replicas))], partial(self._hear_answer, peer))

    def _ship(self, peer: ReplicaPeer, ship: OutgoingEntries) -> None:
        rows = pack_entries(ship.entries, peer.numbers, peer.ids)
        if rows is None:
            self._report(peer, {entry.replica: None for entry in ship.entries if not peer.is_named(entry.replica)})
            rows = pack_entries(ship.entries, peer.numbers, peer.ids)
        self._ask(peer, "replica_feed", [rows], partial(self._fed, peer, ship.number))

    def _fed(self, peer: ReplicaPeer, number: int, result: Value) -> bool:
        match result:
            case [list(heard), list(news)]:
                now = self._outside.now()
                self._hear_answer(peer, hear_counters(heard, peer, self.acks, now), is_fed=True)
                pairs: list[tuple[Replica, int]] = []
                for row in news:
                    match row:
                        case [int(of), int(origin)] if 0 <= of < len(peer.numbered):
                            pairs.append((peer.numbered[of], origin))
                peer.sender.answered(number, pairs, now)
                return peer.is_littered or not peer.sender.rests(now)
            case _:
                raise ProtocolError("the answer to a feed must be [rows, news]")

    def kept_places(self) -> Mapping[bytes, tuple[int, dict[int, int]]]:
        """The resume position and cursors of each log sender, to be saved."""
        return {node: (peer.sender.place, peer.sender.positions) for node, peer in self.peers.items()}
