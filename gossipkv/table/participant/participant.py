"""A node's part in deciding on tables: from when it takes part, and whom it asks.

A node takes part once there is a catalogue: it is pinned to its cluster, has a store, and then `register.metadata`
decides with it.  The node that drew the cluster's id says so in the tree until there is a catalogue, so that the first
`create_table` finds it.  What others say in the tree causes looks, and nothing else (`hints`).
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

STEP_S: Final = 1.0  # Between two looks at what is to be done; what gossip tells is looked at when it comes,
BREATH_S: Final = 0.1  # though not without a breath.
TELL_S: Final = 0.4  # Between two hints: a map may change all the time, and what is told costs all nodes.
POLL_S: Final = 30.0  # Between two looks at a register of which nobody says anything new.
RETRY_S: Final = 3.0  # Until a register is looked at again that could not be read.
MAX_LOOKS: Final = 16  # In one step: of a thousand tables each has its turn within a minute or so.
PATIENCE_S: Final = 3.0  # Until who has just begun is of a cluster, and who may found the catalogue says so.
UUID_DIGITS: Final = re.compile("[0-9a-f]{32}")
CATALOGUE: Final = ""  # Says of tables who decides on them, as nodes do under their names.
INVITE_S: Final = 10.0  # To be pinned, and to make a store.


@final
class MetadataParticipant:
    """The part of a node that decides on tables, once it takes part."""

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
        self._scope = trio.CancelScope()  # Around what `metadata` does.
        self._beginning = trio.Lock()
        self._founding = trio.Lock()
        self._ended = trio.Event()
        self._environment = environment
        self.replication: Replication | None = None
        self._works: Controllers | None = None
        self._store: OpenStore | None = None  # With which all of these work.
        self.forward: Forward = _not_yet  # By which what was accepted here goes on; who has the methods says so.
        self.metadata: Metadata | None = None
        self.catalogue: Catalogue | None = None
        self._hints = HintBoard(cluster, identity.record.node, branch_bytes=settings.max_branch)
        self._forget_at = math.inf  # When all that is said is to be looked at again.
        self._poll_at = -math.inf  # When all is looked at again, whatever others say.
        self._looked_at: dict[str, float] = {}  # When, at a table's register, by its name.
        self._news = trio.Event()
        self._looking: set[bytes] = set()  # Registers that are read because of what others have said.
        self._asked_at: dict[bytes, float] = {}  # When a session had one read.
        self._ended_tables = EndedTables()
        self._on_names = on_names
        self.table_names: frozenset[str] = frozenset()  # As known here.
        self._log = Log("gossipkv.node")

    # -- its life ----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part when there is something to decide, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                # A store that a backup was put back as may be of any cluster, until this node is of one for good.
                if self._tables.state == OPEN and self._identity.record.pinned:
                    with contextlib.suppress(GossipKVError):  # It is said where it is asked for.
                        await self._begin()
                task_status.started()
                await self._go_on()
        finally:
            self._nursery = None
            self._ended.set()

    async def end(self) -> None:
        """Decide nothing more; returns when nothing is written any more.  Requires: `run` was begun."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._ended.wait()

    async def take_part(self) -> tuple[Metadata, Catalogue]:
        """Take part from now on: pinned, with a store.

        Raises:
            NotReady: this node is of no cluster yet.
            Unavailable: its store is closed, or it is about to end.
        """
        if self.metadata is None or self.catalogue is None:
            await self._cluster.pin()
            await self._tables.create()
            await self._begin()
        metadata, catalogue = self.taking_part()
        metadata.space.check_open()
        return metadata, catalogue

    def taking_part(self, table: str | None = None) -> tuple[Metadata, Catalogue]:
        """What this node decides with; `table`: about which table.

        Raises:
            NotReady: it does not take part.
            UnknownDatabase: no table was ever made here, and this one is asked for.
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
        """Whether the replicas here can be read and written; where there are none nothing is waited for."""
        return self.replication is None or self.replication.replicas.can_answer

    @property
    def has_just_come(self) -> bool:
        """Whether others say that there are tables, of which nothing is known here yet."""
        is_known = self.metadata is not None and self.register in self.metadata.known
        return not is_known and self._founded(self._hints.heard())

    @property
    def shut(self) -> str | None:
        """Why the tables' store has been closed since the start, where others take part: they answer."""
        return self._tables.closed if self.metadata is None and self.participants() else None

    def participants(self) -> list[bytes]:
        """The other nodes that seem to be alive, and say what is decided: each says what others do not."""
        said = {name for hints in self._hints.heard().values() for name, hint in hints.items() if is_hint(hint)}
        return [node for node in self.alive() if self.name_of(node) in said]

    def check_knows(self) -> None:
        """Raise `NotReady`: this node has just come."""
        if self.has_just_come:
            raise NotReady("this node has just come, and does not know yet which tables there are", {"coming": True})

    async def _begin(self) -> None:
        # What a node without tables does without.  `stores` has loaded it already, beside the loop.
        from gossipkv.register.metadata.catalogue import Catalogue  # noqa: PLC0415  # See above.
        from gossipkv.register.metadata.server import Metadata  # noqa: PLC0415  # See above.
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
                relay_s=self._settings.relay_after / 1000,
                most_waiting_bytes=self._settings.max_queued_total,
                stall_s=self._settings.move_stall / 1000,
                transfer=self._settings.table_transfer,
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
            ended.cancel()  # Its store has failed; who waited there was told.
            self.catalogue, self.replication = catalogue, replication
            self._works, self._store = works, store
            for node, name in self.names().items():
                if self.asking.is_connected(name):
                    replication.connected(node)
            if self.metadata is None:  # The first time.
                self._nursery.start_soon(self._tend)
            self.metadata = metadata
            metadata.space.on_closed(self._check_behind)
            self._check_behind()
            with contextlib.suppress(NotReady):  # A page of the catalogue is yet to come.
                self._look_at_names()
            self._hear()

    def _has_ended(self) -> bool:
        """Whether what this node decides with is of a store that has failed, though nothing was decided since."""
        return self._store is not self._tables.opened() or (
            self.metadata is not None and self.metadata.space.closed is not None
        )

    def _look_at_names(self) -> None:
        """Have it told when tables have other names.  Raises NotReady."""
        if self.catalogue is not None and (names := frozenset(self.catalogue.tables())) != self.table_names:
            if self.table_names - names:
                self._poll_at = trio.current_time()  # What was dropped leaves the disk now.
            self.table_names = names
            self._on_names()

    def _met(self, name: str, uuid: bytes) -> None:
        if self.replication is not None and self.asking.is_connected(name):
            self.replication.connected(uuid)

    def _lost(self, _name: str, uuid: bytes) -> None:
        if self.replication is not None:
            self.replication.disconnected(uuid)

    def replicating(self, table: str | None = None) -> Replication:
        """The copies of this node, as `taking_part`.  Raises `NotReady`: it has none."""
        if self.replication is None:
            self.taking_part(table)
            raise NotReady("this node is about to open its tables")
        return self.replication

    def works(self) -> Controllers:
        """What this node does for its tables by itself.  Raises `NotReady`: nothing."""
        if self._works is None:
            self.taking_part()
            raise NotReady("this node is about to open its tables")
        return self._works

    @property
    def accepting(self) -> SmearBuffer | None:
        """Who keeps puts here that are forwarded later; None: nobody yet."""
        return None if self._works is None else self._works.accepting

    def note(self, table: bytes, writes: Iterable[RecordWrite]) -> None:
        """These were originated here."""
        if self._works is not None:
            self._works.last_hour.note(table, writes, trio.current_time())

    def members(self) -> Sequence[Member]:
        """The members that are known."""
        return self._cluster.members_known()

    def _check_behind(self) -> None:
        if self.metadata is not None and self.metadata.registers.behind:
            self._tables.refuse(self.metadata.registers.behind)

    async def _tend(self) -> None:
        """Have the catalogue grow, and look at everything now and then; who hears of changes waits for none of it."""
        while True:
            assert self.catalogue is not None  # The present one: another comes when the store was opened again.
            if self.known_of(self.register):
                with contextlib.suppress(GossipKVError):  # The next time.
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
            is_late = trio.current_time() < say_at  # What is to be told waits for its time.
            heard = self._hints.heard()
            try:
                if self.metadata is not None and self._tables.state == OPEN and self._has_ended():
                    await self._begin()  # By what is on the disk, as after a restart.
                await self._heed(heard)
                self._look_at_names()
                why = ""
            except GossipKVError as error:
                if error.message != why:  # It may stay so for days.
                    self._log.info("decisions_wait", reason=error.message)
                why = error.message
            if not is_late and self._say(heard):
                say_at = trio.current_time() + TELL_S
            breath_at = trio.current_time() + BREATH_S
            with trio.move_on_at(say_at if is_late else trio.current_time() + STEP_S):
                await self._news.wait()
            await trio.sleep_until(breath_at)

    async def _look_at_some(self) -> None:
        """Look at those tables that were not looked at for longest."""
        assert self.catalogue is not None
        now, tables = trio.current_time(), self.catalogue.tables()
        self._looked_at = {name: self._looked_at.get(name, now) for name in tables}
        due = sorted((at, name) for name, at in self._looked_at.items() if at + POLL_S <= now)
        for _, name in due[:MAX_LOOKS]:
            self._looked_at[name] = now
            with contextlib.suppress(GossipKVError):
                await self.catalogue.tend_table(name)

    # -- what others are told, and tell ------------------------------------------------------------------------------

    @property
    def register(self) -> bytes:
        """The register of the catalogue of this node's cluster."""
        return 2 * bytes.fromhex(self._identity.record.cluster_id)

    def _say(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> bool:
        """Tell others what is known here; whether there was anything to tell."""
        metadata = self.metadata
        founds = self.register if self.register and self.may_not_found() is None else None
        if metadata is None:
            return self._hints.say({}, None, founds, heard)
        return self._hints.say(metadata.known, metadata.me, founds, heard, open_=self._looking)

    async def _heed(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> None:
        """Look at registers of which others say what this node does not know."""
        if self.metadata is None and self._founded(heard) and self._identity.silence is None:
            await self.take_part()
        if self.metadata is None or self.catalogue is None:
            return
        said = {self.register: heard.get(self.register, {})}
        for table in self.catalogue.tables().values():
            said[table.id] = heard.get(table.id, {})
            if table.id not in self.metadata.known:  # Who made it may have gone before anybody has read its map.
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
        """Read a register of which a newer map was seen: one look is under way, and one a second begins, at most.

        `node`: who goes by that map; it is asked if too few servers answer.
        """
        metadata, now = self.metadata, trio.current_time()
        if metadata is None or self._nursery is None or register in self._looking:
            return
        if now >= self._asked_at.get(register, -math.inf) + STEP_S:
            self._asked_at[register] = now
            self._looking.add(register)
            self._nursery.start_soon(self._read, metadata, register, node)

    async def _read(self, metadata: Metadata, register: bytes, node: bytes) -> None:
        with contextlib.suppress(GossipKVError):  # Whoever needs it asks again.
            await metadata.look(register, node)
        self._looking.discard(register)
        self._hear()

    async def _look(self, metadata: Metadata, register: bytes, hints: Sequence[MapHint]) -> None:
        """Read a register of which others say more than is known; one that cannot be read holds up no other."""
        for hint in hints:
            if hint.is_news_to(metadata.known.get(register)):  # One look answers most of them.
                try:
                    await metadata.quorum_read(register, hint.acceptors)
                except GossipKVError:  # Such as a page that has not come yet.
                    self._forget_at = min(self._forget_at, trio.current_time() + RETRY_S)
        self._looking.discard(register)
        self._hear()

    def _founded(self, heard: Mapping[bytes, Mapping[str, bytes]]) -> bool:
        return any(is_hint(value) for value in heard.get(self.register, {}).values())

    def _hear(self) -> None:
        self._news.set()

    # -- founding ----------------------------------------------------------------------------------------------------

    def may_not_found(self) -> str | None:
        """Why this node may not found the catalogue; None: it may."""
        record = self._identity.record
        if not record.cluster_id:
            return "this node is of no cluster yet"
        return may_not_found(record, record.cluster_id)

    async def found(self, patience_s: float = PATIENCE_S) -> None:
        """Have a catalogue, which this node founds if nobody has, and it may.

        `patience_s`: how long somebody is awaited who has it or may found it, such as one that has just begun again.

        Raises:
            Unavailable: there is none, and another node is to found it; `details` has its uuid, if it is known.
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
                why = self.may_not_found()  # It may have taken another cluster's id until it was pinned.
                if why is None:
                    await catalogue.found()
                    self._hear()
                    return
        raise Unavailable(f"there is no catalogue of tables yet: {why}", {**self._founder()})

    async def informed(self) -> tuple[Metadata, Catalogue]:
        """What this node decides with, once it knows of the catalogue, if others say that there is one.

        Raises:
            NotReady: it does not take part.
        """
        metadata, catalogue = self.taking_part()
        with trio.move_on_after(PATIENCE_S):
            while self.register not in metadata.known:
                self._hints.forget()  # What could not be read a moment ago may be by now.
                await self._heed(self._hints.heard())
                await trio.sleep(STEP_S / 10)
        return metadata, catalogue

    def _founder(self) -> dict[str, str]:
        """Who says that it may found the catalogue, under `founder`."""
        said, alive = self._hints.heard().get(self.register, {}), {*map(self.names().get, self.alive())}
        founders = [owner for owner, value in said.items() if not value and owner in alive]  # The dead said so, too.
        return {"founder": founders[0]} if founders else {}

    async def others_know(self) -> bool:
        """Whether another member knows of a catalogue; what it says of the acceptors is looked at."""
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
        """What this node would tell others of a register; empty: nothing."""
        known = None if self.metadata is None else self.metadata.known.get(register)
        return b"" if known is None or known.head.ended else encode_hint(known)

    # -- other nodes, for the catalogue ------------------------------------------------------------------------------

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, in their order, this one among them."""
        return sorted(member.uuid for member in self.members() if member.state is MemberState.ALIVE)

    async def invite(self, node: bytes) -> AcceptorId:
        """Have a node take part; who it is then.  Raises GossipKVError."""
        if node.hex() == self._identity.record.uuid:
            metadata, _ = await self.take_part()
            return metadata.me
        cluster_id = self._identity.record.cluster_id
        answer = await self.asking.ask(node, "metadata_invite", [bytes.fromhex(cluster_id)], INVITE_S)
        if not isinstance(answer, int) or not answer:
            raise Unavailable(f"{self.name_of(node)} does not say under which store it takes part")
        return AcceptorId(node, answer)

    async def describe(self, node: bytes) -> NamedNode:
        """What a node says of itself as one of tables.

        Raises:
            Unavailable: it does not say.
        """
        from gossipkv.register.metadata.tables import decode_node  # noqa: PLC0415  # As `_begin` does.

        if node.hex() == self._identity.record.uuid:
            return decode_node(self.described())
        answer = await self.asking.ask(node, "metadata_describe", [], INVITE_S)
        return decode_node(answer if isinstance(answer, bytes) else b"")

    def described(self) -> bytes:
        """What this node says of itself as one of tables: a record of the catalogue."""
        from gossipkv.register.metadata.tables import NamedNode  # noqa: PLC0415  # As `_begin` does.

        return NamedNode(self._identity.record.node, self._settings.isolation_group, self._settings.weight).encode()

    async def invited(self, cluster_id: bytes) -> int:
        """Take part, since a node of that cluster asks for it; the id of this node's store.

        Raises:
            NotReady: this node is of another cluster, or of none.
            Unavailable: its store is closed, or has no room for more.
        """
        own = bytes.fromhex(self._identity.record.cluster_id)  # It may become another one until it is pinned.
        if own != cluster_id or (own := await self._cluster.pin()) != cluster_id:
            of = f"the cluster {own.hex()}" if own else "no cluster yet"
            raise NotReady(f"this node is of {of}, not of {cluster_id.hex()}")
        metadata, _ = await self.take_part()
        metadata.space.check_free()
        return metadata.me.store

    def uuid_of(self, name: str) -> bytes:
        """The uuid of a node by its name, or by its digits, as `name_of` tells them.

        Raises:
            Unavailable: no such node is known.
        """
        for uuid, known in self.known_names().items():
            if known == name:
                return uuid
        if UUID_DIGITS.fullmatch(name):
            return bytes.fromhex(name)
        raise Unavailable(f"no member {name} is known", {"node": name})

    def has_ended(self, table: bytes) -> bool:
        """Whether a table is known to be no more."""
        if self.catalogue is None or any(named.id == table for named in self.catalogue.tables().values()):
            return False
        return self._ended_tables.has(table)

    def name_of(self, uuid: bytes) -> str:
        """The name of a node by its uuid, or the digits of that."""
        return self.known_names().get(uuid) or uuid.hex()

    def known_names(self) -> dict[bytes, str]:
        """The names of all members, and of nodes of tables that are none any more, unless another node has the name."""
        names = self.names()
        with contextlib.suppress(NotReady):  # A page of the catalogue is yet to come.
            return names if self.catalogue is None else self.catalogue.nodes.names_beside(names) | names
        return names

    def names(self) -> dict[bytes, str]:
        """The names of all members that are known, by their uuids."""
        return {member.uuid: member.name for member in self._cluster.members_known()}


def _not_yet(_table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded) -> None:
    on_forwarded(puts, NotReady("this node is about to begin"))
