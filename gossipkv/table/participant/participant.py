"""A node's part in METADATA transactions: when it begins, and which nodes and registers it asks.

A node takes part once there is a catalogue: the node is pinned to its cluster, makes a store, and then runs
`register.metadata`. Until there is a catalogue, the node that drew the cluster's id says so in the tree, so that the
first `create_table` finds that node. Hints in the tree only cause reads of registers (`hints`).
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Unavailable, no_table
from gossipkv.gossip.member import MemberState
from gossipkv.log import Log
from gossipkv.register.configuration import AcceptorId
from gossipkv.replication.replica.hlc import ClockSkew
from gossipkv.table.peers.hints import TABLES, HintBoard, encode_hint, encode_named, is_hint
from gossipkv.table.peers.peer_client import PeerClient
from gossipkv.table.peers.words import Words
from gossipkv.table.ports import may_not_found
from gossipkv.table.session.token import EndedTables
from gossipkv.table.store import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gossipkv.environment.seam import Environment
    from gossipkv.gossip.member import Member
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedNode
    from gossipkv.replication.replica.replica import RecordWrite
    from gossipkv.replication.shell import Replication
    from gossipkv.settings.config import Config
    from gossipkv.table.controllers.smear_buffer import Forward, OnForwarded, SmearBuffer
    from gossipkv.table.controllers.smear_schedule import SmearedPut
    from gossipkv.table.controllers.supervisor import Controllers
    from gossipkv.table.peers.hints import MapHint
    from gossipkv.table.ports import ClusterView, NodeIdentity, PeerLinks
    from gossipkv.table.store import TableStore
    from gossipkv.table.stores import OpenStore

STEP_S: Final = 1.0  # Longest interval between steps; news in gossip causes a step at once,
BREATH_S: Final = 0.1  # but steps are at least this far apart.
TELL_S: Final = 0.4  # Shortest interval between hints: each hint costs all nodes, and a map may change all the time.
POLL_S: Final = 30.0  # Interval between reads of a register without new hints.
RETRY_S: Final = 3.0  # Delay until a register that could not be read is read again.
MAX_LOOKS: Final = 16  # Registers per step: a thousand tables are all read within about a minute.
PATIENCE_S: Final = 3.0  # Time for a new node to join its cluster and to see the hint of the founder.
UUID_DIGITS: Final = re.compile("[0-9a-f]{32}")
CATALOGUE: Final = ""  # The owner of hints from the catalogue; other hints have the name of a node.
INVITE_S: Final = 10.0  # Time for a node to be pinned and to make a store.


@final
class MetadataParticipant:
    """The METADATA participant of a node, and the owner of all objects that use its open store."""

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
        """`on_names` is called when `table_names` has changed; `knows_peers`: see `Words`."""
        self._settings = settings
        self._identity = identity
        self._cluster = cluster
        self._tables = tables
        self._random = environment.random
        self.skew = ClockSkew(trio.current_time, environment.clock.wall_ms, settings.max_clock_skew / 1000)
        self.asking = PeerClient(cluster, peers, environment.threads, self.skew.deadline)
        self.words = Words(environment.random, cluster.members_known, knows_peers=knows_peers)
        peers.watch(begun=self._met, ended=self._lost)
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()  # The scope of the controllers of the present store.
        self._beginning = trio.Lock()
        self._founding = trio.Lock()
        self._ended = trio.Event()
        self._environment = environment
        self.replication: Replication | None = None
        self._works: Controllers | None = None
        self._store: OpenStore | None = None  # The store of `replication`, `_works`, `metadata` and `catalogue`.
        self.forward: Forward = _not_yet  # Forwards smeared puts; set by the owner of the methods.
        self.metadata: Metadata | None = None
        self.catalogue: Catalogue | None = None
        self._hints = HintBoard(cluster, identity.record.node, branch_bytes=settings.max_branch)
        self._forget_at = math.inf  # The time at which all hints count as new again.
        self._poll_at = -math.inf  # The time of the next poll, whatever the hints.
        self._looked_at: dict[str, float] = {}  # By table name: the time of the last poll of its register.
        self._news = trio.Event()
        self._looking: set[bytes] = set()  # Registers that are being read.
        self._asked_at: dict[bytes, float] = {}  # By register: the start of the last read for `look_at`.
        self._ended_tables = EndedTables()
        self._on_names = on_names
        self.table_names: frozenset[str] = frozenset()  # By the local catalogue.
        self._log = Log("gossipkv.node")

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part once there is a catalogue, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                # A store that a backup was put back as may be of any cluster, until this node is of one for good.
                if self._tables.state == OPEN and self._identity.record.pinned:
                    with contextlib.suppress(GossipKVError):  # Requests report the error.
                        await self._begin()
                task_status.started()
                await self._go_on()
        finally:
            self._nursery = None
            self._ended.set()

    async def end(self) -> None:
        """Take no part any more; return when all writes have ended. Requires: `run` was begun."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._ended.wait()

    async def take_part(self) -> tuple[Metadata, Catalogue]:
        """Pin this node, make its store, and take part from now on.

        Raises:
            NotReady: this node is of no cluster yet.
            Unavailable: the store is closed, or the node is about to end.
        """
        if self.metadata is None or self.catalogue is None:
            await self._cluster.pin()
            await self._tables.create()
            await self._begin()
        metadata, catalogue = self.taking_part()
        metadata.space.check_open()
        return metadata, catalogue

    def taking_part(self, table: str | None = None) -> tuple[Metadata, Catalogue]:
        """Return the objects with which this node takes part; `table`: the requested table.

        Raises:
            NotReady: this node does not take part.
            UnknownDatabase: a table was requested, and no table was ever made here.
        """
        if self.metadata is None or self.catalogue is None:
            if not self._tables.closed:
                self.check_knows()
                if table is not None:
                    raise no_table(table)
            why = self._tables.closed or "no table was ever made here"
            raise NotReady(f"this node takes no part in deciding on tables: {why}")
        return self.metadata, self.catalogue

    @property
    def can_answer(self) -> bool:
        """True if the local replicas can be read and written, or if there are none."""
        return self.replication is None or self.replication.replicas.can_answer

    @property
    def has_just_come(self) -> bool:
        """True if other nodes hint at a catalogue that this node does not know yet."""
        is_known = self.metadata is not None and self.register in self.metadata.known
        return not is_known and self._founded(self._hints.heard())

    @property
    def shut(self) -> str | None:
        """The reason why the store is closed since the start, if other nodes take part and can answer; else None."""
        return self._tables.closed if self.metadata is None and self.participants() else None

    def participants(self) -> list[bytes]:
        """Return the other live nodes that publish a hint about a map; no node repeats the hint of another."""
        said = {name for hints in self._hints.heard().values() for name, hint in hints.items() if is_hint(hint)}
        return [node for node in self.alive() if self.name_of(node) in said]

    def check_knows(self) -> None:
        """Raise `NotReady` if this node has just come and does not know the catalogue yet."""
        if self.has_just_come:
            raise NotReady("this node has just come, and does not know yet which tables there are", {"coming": True})

    async def _begin(self) -> None:
        # A node without tables does not load these modules. `stores` has loaded them beside the loop.
        from gossipkv.register.metadata.catalogue import Catalogue  # noqa: PLC0415  # See above.
        from gossipkv.register.metadata.server import Metadata  # noqa: PLC0415  # See above.
        from gossipkv.replication.replica_set import ReplicationLimits  # noqa: PLC0415  # See above.
        from gossipkv.replication.shell import Replication  # noqa: PLC0415  # See above.
        from gossipkv.table.controllers.supervisor import Controllers  # noqa: PLC0415  # See above.

        async with self._beginning:
            if self.metadata is not None and not self._has_ended():
                return
            if self._nursery is None:
                raise Unavailable("this node is about to begin, or to end")
            assert self._identity.record.pinned, self._identity.record
            store = self._tables.opened()
            me = AcceptorId(bytes.fromhex(self._identity.record.uuid), store.manifest.store)
            metadata = Metadata(store, me, self.asking, self._random, self.register)
            self.words.use(metadata.registers)
            replication = Replication(
                store,
                self.asking.ask_soon,
                self._environment,
                metadata.me.node,
                ReplicationLimits(
                    relay_s=self._settings.relay_after / 1000,
                    max_waiting_bytes=self._settings.max_queued_total,
                    stall_s=self._settings.move_stall / 1000,
                    transfer=self._settings.table_transfer,
                ),
                skew=self.skew,
            )
            catalogue = Catalogue(metadata, self, self.asking, self._random, most_copies=self._settings.metadata_copies)
            replication.replicas.on_newer, replication.replicas.is_up = self.look_at, self.asking.is_up
            works = Controllers(
                metadata,
                catalogue,
                replication,
                self.asking,
                alive=self.alive,
                look_at=self.look_at,
                settings=self._settings,
                random=self._random,
                forward=self.forward,
            )

            def knows() -> None:
                works.wake()
                self._hear()

            metadata.heads.on_known = knows
            ended, self._scope = self._scope, trio.CancelScope()
            await self._nursery.start(works.run, self._scope)
            ended.cancel()  # The former store has failed; its waiters have got the error.
            self.catalogue, self.replication = catalogue, replication
            self._works, self._store = works, store
            for node, name in self.names().items():
                if self.asking.is_connected(name):
                    replication.connected(node)
            if self.metadata is None:  # `_tend` survives a reopening of the store.
                self._nursery.start_soon(self._tend)
            self.metadata = metadata
            metadata.space.on_closed(self._check_behind)
            self._check_behind()
            with contextlib.suppress(NotReady):  # A page of the catalogue is yet to come.
                self._look_at_names()
            self._hear()

    def _has_ended(self) -> bool:
        """Return True if the present objects belong to a store that has failed or was reopened."""
        return self._store is not self._tables.opened() or (
            self.metadata is not None and self.metadata.space.closed is not None
        )

    def _look_at_names(self) -> None:
        """Call `on_names` if the names of tables have changed. Raises NotReady."""
        if self.catalogue is not None and (names := frozenset(self.catalogue.tables())) != self.table_names:
            if self.table_names - names:
                self._poll_at = trio.current_time()  # The poll deletes dropped tables from disk.
            self.table_names = names
            self._on_names()

    def _met(self, name: str, uuid: bytes) -> None:
        if self.replication is not None and self.asking.is_connected(name):
            self.replication.connected(uuid)

    def _lost(self, _name: str, uuid: bytes) -> None:
        if self.replication is not None:
            self.replication.disconnected(uuid)

    def replicating(self, table: str | None = None) -> Replication:
        """Return the replicas of this node. Raises as `taking_part`."""
        if self.replication is None:
            self.taking_part(table)
            raise NotReady("this node is about to open its tables")
        return self.replication

    def works(self) -> Controllers:
        """Return the controllers of this node. Raises as `taking_part`."""
        if self._works is None:
            self.taking_part()
            raise NotReady("this node is about to open its tables")
        return self._works

    @property
    def accepting(self) -> SmearBuffer | None:
        """The smear buffer of this node; None: the store was not opened yet."""
        return None if self._works is None else self._works.accepting

    def note(self, table: bytes, writes: Iterable[RecordWrite]) -> None:
        """Count writes that this node originated in its statistics of the last hour."""
        if self._works is not None:
            self._works.last_hour.note(table, writes, trio.current_time())

    def members(self) -> Sequence[Member]:
        """Return the members that gossip knows."""
        return self._cluster.members_known()

    def _check_behind(self) -> None:
        if self.metadata is not None and self.metadata.registers.behind:
            self._tables.refuse(self.metadata.registers.behind)

    async def _tend(self) -> None:
        """Grow the catalogue, and poll all registers; a task of its own, so that news in gossip do not wait."""
        while True:
            assert self.catalogue is not None  # The attribute changes when the store is reopened.
            if self.known_of(self.register):
                with contextlib.suppress(GossipKVError):  # The next step tries again.
                    await self.catalogue.grow()
                if trio.current_time() >= self._poll_at:
                    self._poll_at = trio.current_time() + POLL_S
                    self._hints.forget()
                    self._ended_tables.begin_read()
                    with contextlib.suppress(GossipKVError):
                        await self.catalogue.tend()
                        self._ended_tables.end_read()
                with contextlib.suppress(GossipKVError):
                    await self._look_at_some()
            await trio.sleep(STEP_S)

    async def _go_on(self) -> None:
        watch = self._cluster.watch(TABLES, self._hear)
        why = ""
        say_at = trio.current_time()
        while True:
            self._news = trio.Event()
            watch.look()
            is_late = trio.current_time() < say_at  # Hints wait for their interval.
            heard = self._hints.heard()
            try:
                if self.metadata is not None and self._tables.state == OPEN and self._has_ended():
                    await self._begin()  # The state comes from the disk, as after a restart.
                await self._heed(heard)
                self._look_at_names()
                why = ""
            except GossipKVError as error:
                if error.message != why:  # Log a reason once: the state may last for days.
                    self._log.info("decisions_wait", reason=error.message)
                why = error.message
            if not is_late and self._say(heard):
                say_at = trio.current_time() + TELL_S
            breath_at = trio.current_time() + BREATH_S
            with trio.move_on_at(say_at if is_late else trio.current_time() + STEP_S):
                await self._news.wait()
            await trio.sleep_until(breath_at)

    async def _look_at_some(self) -> None:
        """Poll the registers of the tables that were polled longest ago."""
        assert self.catalogue is not None
        now, tables = trio.current_time(), self.catalogue.tables()
        self._looked_at = {name: self._looked_at.get(name, now) for name in tables}
        due = sorted((at, name) for name, at in self._looked_at.items() if at + POLL_S <= now)
        for _, name in due[:MAX_LOOKS]:
            self._looked_at[name] = now
            with contextlib.suppress(GossipKVError):
                await self.catalogue.tend_table(name)

    # -- hints -------------------------------------------------------------------------------------------------------

    @property
    def register(self) -> bytes:
        """The register of the catalogue of this node's cluster."""
        return 2 * bytes.fromhex(self._identity.record.cluster_id)

    def _say(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> bool:
        """Publish hints; return True if a hint is new."""
        metadata = self.metadata
        founds = self.register if self.register and self.may_not_found() is None else None
        if metadata is None:
            return self._hints.say({}, None, founds, heard)
        return self._hints.say(metadata.known, metadata.me, founds, heard, open_=self._looking)

    async def _heed(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> None:
        """Start reads of registers with hints that are new to this node."""
        if self.metadata is None and self._founded(heard) and self._identity.silence is None:
            await self.take_part()
        if self.metadata is None or self.catalogue is None:
            return
        said = {self.register: heard.get(self.register, {})}
        for table in self.catalogue.tables().values():
            said[table.id] = heard.get(table.id, {})
            if table.id not in self.metadata.known:  # The creator may have gone before any node has read the map.
                said[table.id] = {**said[table.id], CATALOGUE: encode_named(table)}
        for register, by_owner in said.items():
            if register in self._looking:
                continue
            hints = self._hints.news(register, by_owner, self.metadata.known.get(register))
            if hints and self._nursery is not None:
                self._looking.add(register)
                self._nursery.start_soon(self._look, self.metadata, register, hints)
        if trio.current_time() >= self._forget_at:
            self._forget_at = math.inf
            self._hints.forget()

    def look_at(self, register: bytes, node: bytes = b"") -> None:
        """Start a read of a register of which a newer map was seen: one at a time, and at most one a second.

        `node`: a node that knows the newer map; it is asked if too few servers answer.
        """
        metadata, now = self.metadata, trio.current_time()
        if metadata is None or self._nursery is None or register in self._looking:
            return
        if now >= self._asked_at.get(register, -math.inf) + STEP_S:
            self._asked_at[register] = now
            self._looking.add(register)
            self._nursery.start_soon(self._read, metadata, register, node)

    async def _read(self, metadata: Metadata, register: bytes, node: bytes) -> None:
        with contextlib.suppress(GossipKVError):  # The requests that need the map ask again.
            await metadata.look(register, node)
        self._looking.discard(register)
        self._hear()

    async def _look(self, metadata: Metadata, register: bytes, hints: Sequence[MapHint]) -> None:
        """Read a register with new hints; a task of its own, so that an unreadable register delays no other."""
        for hint in hints:
            if hint.is_news_to(metadata.known.get(register)):  # The first read answers most hints.
                try:
                    await metadata.quorum_read(register, hint.acceptors)
                except GossipKVError:  # For example, a page has not arrived yet.
                    self._forget_at = min(self._forget_at, trio.current_time() + RETRY_S)
        self._looking.discard(register)
        self._hear()

    def _founded(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> bool:
        return any(is_hint(value) for value in heard.get(self.register, {}).values())

    def _hear(self) -> None:
        self._news.set()

    # -- founding ----------------------------------------------------------------------------------------------------

    def may_not_found(self) -> str | None:
        """Return the reason why this node may not found the catalogue; None: it may."""
        record = self._identity.record
        if not record.cluster_id:
            return "this node is of no cluster yet"
        return may_not_found(record, record.cluster_id)

    async def found(self, patience_s: float = PATIENCE_S) -> None:
        """Take part in the catalogue; found it if no node has, and if this node may.

        `patience_s`: the longest wait for a node that has the catalogue or may found it, such as a restarting node.

        Raises:
            Unavailable: there is no catalogue, and another node has to found it; `details` names that node, if known.
        """
        if self.metadata is not None and self.metadata.known.get(self.register) is not None:
            return
        with trio.move_on_after(patience_s):
            while True:
                if self.may_not_found() is None or self._founder() or self._founded(self._hints.heard()):
                    break
                await trio.sleep(STEP_S / 10)
        if self._founded(self._hints.heard()) or await self.others_know():
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
                    self._hear()
                    return
        raise Unavailable(f"there is no catalogue of tables yet: {why}", {**self._founder()})

    async def informed(self) -> tuple[Metadata, Catalogue]:
        """Return as `taking_part`, after a short wait for the catalogue. Raises NotReady if it does not take part."""
        metadata, catalogue = self.taking_part()
        with trio.move_on_after(PATIENCE_S):
            while self.register not in metadata.known:
                self._hints.forget()  # An earlier hint may be readable by now.
                await self._heed(self._hints.heard())
                await trio.sleep(STEP_S / 10)
        return metadata, catalogue

    def _founder(self) -> dict[str, str]:
        """Return the name of a live node that may found the catalogue under `founder`, or an empty dict."""
        said, alive = self._hints.heard().get(self.register, {}), {*map(self.names().get, self.alive())}
        founders = [owner for owner, value in said.items() if not value and owner in alive]  # Dead nodes' hints stay.
        return {"founder": founders[0]} if founders else {}

    async def others_know(self) -> bool:
        """Ask the live members for a catalogue; if one knows its acceptors, read the register and return True."""
        for node in self.alive():
            if node.hex() == self._identity.record.uuid:
                continue
            with contextlib.suppress(GossipKVError):
                hint = await self.asking.known(node, self.register, 1.0)
                if hint is not None:
                    metadata, _ = await self.take_part()
                    await metadata.quorum_read(self.register, hint.acceptors)
                    return True
        return False

    def known_of(self, register: bytes) -> bytes:
        """Return this node's hint about a register; empty: it knows none, or the table was dropped."""
        known = None if self.metadata is None else self.metadata.known.get(register)
        return b"" if known is None or known.head.ended else encode_hint(known)

    # -- other nodes, for the catalogue ------------------------------------------------------------------------------

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, in their order, this one among them."""
        return sorted(member.uuid for member in self.members() if member.state is MemberState.ALIVE)

    async def invite(self, node: bytes) -> AcceptorId:
        """Make a node take part, and return its acceptor id. Raises GossipKVError."""
        if node.hex() == self._identity.record.uuid:
            metadata, _ = await self.take_part()
            return metadata.me
        cluster_id = self._identity.record.cluster_id
        answer = await self.asking.ask(node, "metadata_invite", [bytes.fromhex(cluster_id)], INVITE_S)
        if not isinstance(answer, int) or not answer:
            raise Unavailable(f"{self.name_of(node)} does not say under which store it takes part")
        return AcceptorId(node, answer)

    async def describe(self, node: bytes) -> NamedNode:
        """Return a node's record for the catalogue, by its own words. Raises Unavailable if it does not answer."""
        from gossipkv.register.metadata.tables import decode_node  # noqa: PLC0415  # See `_begin`.

        if node.hex() == self._identity.record.uuid:
            return decode_node(self.described())
        answer = await self.asking.ask(node, "metadata_describe", [], INVITE_S)
        return decode_node(answer if isinstance(answer, bytes) else b"")

    def described(self) -> bytes:
        """Return the encoded catalogue record of this node."""
        from gossipkv.register.metadata.tables import NamedNode  # noqa: PLC0415  # See `_begin`.

        return NamedNode(self._identity.record.node, self._settings.isolation_group, self._settings.weight).encode()

    async def invited(self, cluster_id: bytes) -> int:
        """Take part at the request of a node of that cluster; return the id of this node's store.

        Raises:
            NotReady: this node is of another cluster, or of none.
            Unavailable: the store is closed, or has no room for more.
        """
        own = bytes.fromhex(self._identity.record.cluster_id)  # The cluster id may change until the node is pinned.
        if own != cluster_id or (own := await self._cluster.pin()) != cluster_id:
            of = f"the cluster {own.hex()}" if own else "no cluster yet"
            raise NotReady(f"this node is of {of}, not of {cluster_id.hex()}")
        metadata, _ = await self.take_part()
        metadata.space.check_free()
        return metadata.me.store

    def uuid_of(self, name: str) -> bytes:
        """Return the uuid of a node by its name or digits, the inverse of `name_of`. Raises Unavailable if unknown."""
        for uuid, known in self.known_names().items():
            if known == name:
                return uuid
        if UUID_DIGITS.fullmatch(name):
            return bytes.fromhex(name)
        raise Unavailable(f"no member {name} is known", {"node": name})

    def has_ended(self, table: bytes) -> bool:
        """Return True if a table is known to be dropped."""
        if self.catalogue is None or any(named.id == table for named in self.catalogue.tables().values()):
            return False
        return self._ended_tables.has(table)

    def name_of(self, uuid: bytes) -> str:
        """Return the name of a node, or the digits of its uuid if the name is unknown."""
        return self.known_names().get(uuid) or uuid.hex()

    def known_names(self) -> dict[bytes, str]:
        """Return the names of all members, and of former members with tables, unless another node has the name."""
        names = self.names()
        with contextlib.suppress(NotReady):  # A page of the catalogue is yet to come.
            return names if self.catalogue is None else self.catalogue.nodes.names_beside(names) | names
        return names

    def names(self) -> dict[bytes, str]:
        """Return the names of all known members, by uuid."""
        return {member.uuid: member.name for member in self._cluster.members_known()}


def _not_yet(_table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded) -> None:
    on_forwarded(puts, NotReady("this node is about to begin"))
