"""A node's part in METADATA transactions: when it begins, and who founds the catalogue.

A node takes part once there is a catalogue: the node is pinned to its cluster, makes a store, and then runs
`register.metadata`. Until there is a catalogue, the node that drew the cluster's id says so in the tree, so that the
first `create_table` finds that node.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment.ticks import QUIET_S, rest
from gossipkv.errors import GossipKVError, NotReady, Unavailable
from gossipkv.log import Log
from gossipkv.placement.shard_claim import NODES
from gossipkv.replication.replica.hlc import ClockSkew
from gossipkv.settings.databases import HIDDEN
from gossipkv.table.participant.map_watcher import MapWatcher
from gossipkv.table.participant.node_directory import NodeDirectory
from gossipkv.table.participant.register_poll import RegisterPoll
from gossipkv.table.peers.hints import TABLES, HintBoard
from gossipkv.table.peers.peer_client import PeerClient
from gossipkv.table.peers.words import Words
from gossipkv.table.ports import may_not_found
from gossipkv.table.service import TableService
from gossipkv.table.store import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.environment.seam import Environment
    from gossipkv.gossip.member import Member
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.settings.config import Config
    from gossipkv.table.ports import ClusterView, NodeIdentity, PeerLinks
    from gossipkv.table.store import TableStore

STEP_S: Final = 1.0  # Interval between steps while this node does not take part, or has to try again.
BREATH_S: Final = 0.1  # Steps are at least this far apart.
PATIENCE_S: Final = 3.0  # Time for a new node to join its cluster and to see the hint of the founder.


@final
class MetadataParticipant:
    """The METADATA participant of a node, beside the parts through which it sees the cluster and its own tables."""

    def __init__(
        self,
        settings: Config,
        identity: NodeIdentity,
        cluster: ClusterView,
        tables: TableStore,
        *,
        peers: PeerLinks,
        environment: Environment,
        knows_peers: bool = False,
        on_names: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_names` is called when `table_names` has changed; `knows_peers`: peers must prove their identity."""
        self._identity = identity
        self._cluster = cluster
        self._tables = tables
        self._on_names = on_names
        skew = ClockSkew(trio.current_time, environment.clock.wall_ms, settings.max_clock_skew / 1000)
        self.peers = PeerClient(cluster, peers, environment.threads, skew.deadline)
        self.words = Words(environment.random, cluster.members_known, knows_peers=knows_peers)
        self.board = HintBoard(cluster, identity.record.node)
        self.service = TableService(
            settings,
            identity,
            tables,
            environment,
            peers=self.peers,
            words=self.words,
            hints=self.board,
            skew=skew,
        )
        self.service.ring, cluster.on_keys = cluster.ring, self.service.use_keys
        peers.watch(begun=self.service.met, ended=self.service.lost)
        self.directory = NodeDirectory(
            settings, identity, cluster, peers=self.peers, service=self.service, take_part=self.take_part
        )
        self.watcher = MapWatcher(self.board, self.service, self.directory, self._wake)
        self.poll = RegisterPoll(self.service, self.directory)
        self.table_names: frozenset[str] = frozenset()  # By the local catalogue.
        self._members: Sequence[Member] = ()  # Those of the last step.
        self._nursery: trio.Nursery | None = None
        self._founding = trio.Lock()
        self._ended = trio.Event()
        self._news = trio.Event()
        self._log = Log("gossipkv.node")

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part once there is a catalogue, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._tables.on_settled = self._wake
                self.watcher.begin(nursery)
                # Until this node is pinned, it may still take the id of another cluster.
                if self._tables.state == OPEN and self._identity.record.pinned:
                    with contextlib.suppress(GossipKVError):  # Requests report the error.
                        await self._begin()
                task_status.started()
                await self._go_on()
        finally:
            self._nursery = None
            self.watcher.begin(None)
            self._ended.set()

    async def end(self) -> None:
        """Take no part any more; return when all writes have ended. Requires: `run` was begun, and no read follows."""
        if (replication := self.service.replication) is not None:
            with contextlib.suppress(GossipKVError):  # The store is closed, or full.
                replication.keep_places(is_read=True)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._ended.wait()

    async def take_part(self) -> tuple[Metadata, Catalogue]:
        """Pin this node, make its store, and take part from now on.

        Raises:
            NotReady: this node is of no cluster yet.
            Unavailable: the store is closed, or the node is about to end.
        """
        if self.service.metadata is None:
            await self._cluster.pin()
            await self._tables.create()
            await self._begin()
        metadata, catalogue = self.service.taking_part()
        metadata.space.check_open()
        return metadata, catalogue

    async def _begin(self) -> None:
        if self._nursery is None:
            raise Unavailable("this node is starting or stopping")
        begin = self.service.begin
        if await begin(self._nursery, self.directory, look_at=self.watcher.look_at, on_known=self._wake):
            self.poll.begin(self._nursery)
            with contextlib.suppress(NotReady):  # The catalogue is yet to come.
                self._look_at_names()
            self._wake()

    def _look_at_names(self) -> None:
        """Call `on_names` if the names of tables have changed. Raises NotReady."""
        catalogue = self.service.catalogue
        names = self.table_names if catalogue is None else {name.removeprefix(HIDDEN) for name in catalogue.tables()}
        if names != self.table_names:
            if self.table_names - names:
                self.poll.soon()  # The poll deletes dropped tables from disk.
            self.table_names = frozenset(names)
            self._on_names()

    def _look_at_members(self) -> None:
        """Wake the tasks that depend on the members if these have changed."""
        members = self._cluster.members_known()
        if members is not self._members:
            self._members = members
            self.service.wake()
            self.poll.pause.end()

    def _wake(self) -> None:
        self._news.set()

    async def _go_on(self) -> None:
        watch, nodes = self._cluster.watch(TABLES, self._wake), self._cluster.watch(NODES, self._wake)
        why = ""
        while True:
            self._news = trio.Event()
            watch.look()
            nodes.look()
            self._look_at_members()
            try:
                if self.service.metadata is not None and self._tables.state == OPEN and self.service.has_ended():
                    await self._begin()  # The state comes from the disk, as after a restart.
                if self.service.metadata is None and self.service.is_founded and self._identity.silence is None:
                    await self.take_part()
                self.watcher.look_for_catalogue()
                self._look_at_names()
                why = ""
            except GossipKVError as error:
                if error.message != why:  # Log a reason once: the state may last for days.
                    self._log.info("decisions_wait", reason=error.message)
                why = error.message
            metadata, register = self.service.metadata, self.service.register
            known_map = None if metadata is None else metadata.known.get(register)
            me = None if metadata is None else metadata.me
            self.board.publish(register, known_map, me, founds=self.may_not_found() is None)
            breath_at = trio.current_time() + BREATH_S
            is_quiet = known_map is not None and not why
            await rest(QUIET_S if is_quiet else STEP_S, self._news)
            if trio.current_time() < breath_at:
                await trio.sleep_until(breath_at)

    # -- founding ----------------------------------------------------------------------------------------------------

    def may_not_found(self) -> str | None:
        """Return the reason why this node may not found the catalogue; None: it may."""
        record = self._identity.record
        if not record.cluster_id:
            return "this node does not belong to a cluster yet"
        return may_not_found(record, record.cluster_id)

    async def found(self, patience_s: float = PATIENCE_S) -> None:
        """Take part in the catalogue; found it if no node has, and if this node may.

        `patience_s`: the longest wait for a node that has the catalogue or may found it, such as a restarting node.

        Raises:
            Unavailable: there is no catalogue, and another node has to found it; `details` names that node, if known.
        """
        service = self.service
        if service.metadata is not None and service.metadata.known.get(service.register) is not None:
            return
        founder = None
        with trio.move_on_after(patience_s):
            while self.may_not_found() is not None and not service.is_founded:
                if (founder := self.watcher.founder()) is not None:  # It is asked even if it seems dead a moment later.
                    break
                await trio.sleep(STEP_S / 10)
        if service.is_founded or await self.others_know():
            await self.take_part()
            await self.informed()
            return
        why = self.may_not_found()
        if why is None:
            async with self._founding:
                _, catalogue = await self.take_part()
                why = self.may_not_found()  # Before it was pinned, the node may have changed its cluster.
                if why is None:
                    await catalogue.found()
                    self._wake()
                    return
        raise Unavailable(f"there is no catalogue of tables yet: {why}", {"founder": founder} if founder else {})

    async def informed(self) -> tuple[Metadata, Catalogue]:
        """Return as `taking_part`, after a short wait for the catalogue. Raises NotReady: this node takes no part."""
        metadata, catalogue = self.service.taking_part()
        with trio.move_on_after(PATIENCE_S):
            while self.service.register not in metadata.known:
                self.watcher.look_for_catalogue()
                await trio.sleep(STEP_S / 10)
        return metadata, catalogue

    async def others_know(self) -> bool:
        """Ask the live members for a catalogue; if one knows its acceptors, read the register and return True."""
        for node in self.directory.alive():
            if node.hex() == self._identity.record.uuid:
                continue
            with contextlib.suppress(GossipKVError):
                news = await self.peers.known(node, self.service.register, 1.0)
                if news is not None:
                    metadata, _ = await self.take_part()
                    await metadata.quorum_read(self.service.register, news.acceptors)
                    return True
        return False

    async def invited(self, cluster_id: bytes) -> int:
        """Take part at the request of a node of that cluster; return the id of this node's store.

        Raises:
            NotReady: this node is of another cluster, or of none.
            Unavailable: the store is closed, or has no room for more.
        """
        own = bytes.fromhex(self._identity.record.cluster_id)  # The cluster id may change until the node is pinned.
        if own != cluster_id or (own := await self._cluster.pin()) != cluster_id:
            of = f"the cluster {own.hex()}" if own else "no cluster yet"
            raise NotReady(f"this node belongs to {of}, not to the cluster {cluster_id.hex()}")
        metadata, _ = await self.take_part()
        metadata.space.check_free()
        return metadata.me.store
