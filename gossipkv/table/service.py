"""The objects of this node's tables that live as long as one opening of the store.

They are made once there is a catalogue, and anew from the disk when the store was reopened after a failure. By then,
requests that waited on the failed opening have got its error.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady, no_table
from gossipkv.gossip.packets.key_ring import key
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.register.metadata.known import keys_of
from gossipkv.register.metadata.server import Metadata
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.replica.token_keys import token_keys
from gossipkv.replication.shell import Replication
from gossipkv.table.calm import CalmTables, OpenedTables
from gossipkv.table.controllers.local_tables import LocalTables
from gossipkv.table.controllers.supervisor import Controllers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.environment.seam import Environment
    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.nodes import NodeList
    from gossipkv.replication.replica.hlc import ClockSkew
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.token_keys import TokenKeys
    from gossipkv.settings.config import Config
    from gossipkv.table.controllers.smear_buffer import Forward, OnForwarded, SmearBuffer
    from gossipkv.table.controllers.smear_schedule import SmearedPut
    from gossipkv.table.peers.hints import HintBoard
    from gossipkv.table.peers.peer_client import PeerClient
    from gossipkv.table.peers.words import Words
    from gossipkv.table.ports import LookAt, NodeIdentity, OpenStore
    from gossipkv.table.store import TableStore

WITHOUT_KEY: Final = "an older version founded the catalogue, without a secret for tokens; set key_ring on all nodes"


@final
class TableService:
    """The maps, replicas and controllers of the open store."""

    def __init__(
        self,
        settings: Config,
        identity: NodeIdentity,
        store: TableStore,
        environment: Environment,
        *,
        peers: PeerClient,
        words: Words,
        hints: HintBoard,
        skew: ClockSkew,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self.store = store
        self._environment = environment
        self._peers = peers
        self._words = words
        self._hints = hints
        self.skew = skew
        self.forward: Forward = _not_yet  # Forwards smeared puts; set by the owner of the methods.
        self._beginning = trio.Lock()
        self._scope = trio.CancelScope()  # The scope of the controllers of the present store.
        self._opened: OpenStore | None = None  # The store of the following objects.
        self.metadata: Metadata | None = None
        self.catalogue: Catalogue | None = None
        self.replication: Replication | None = None
        self._controllers: Controllers | None = None
        self._calm: CalmTables | None = None
        self._waiting: ParkedRequests | None = None  # Those of all openings of the store.
        self._reported: set[bytes] = set()  # Tables of which another node has reported settled entries.
        self.ring: Callable[[], Sequence[Key]] = tuple  # The keys of the key ring in use; none without one.
        self._secret = 0, b""  # The secret of the catalogue, by its generation.
        self._keys: tuple[tuple[bytes, Sequence[Key]], TokenKeys] | None = None  # For tokens, with their origin.
        self._present_keys: TokenKeys | None = None  # None: the origin may have changed.

    async def begin(
        self, nursery: trio.Nursery, members: NodeList, *, look_at: LookAt, on_known: Callable[[], object]
    ) -> bool:
        """Make the objects of the open store, unless they are there; return True if they are new.

        `look_at` is called to read a register with a newer map; `on_known` when a newer map is known.

        Raises:
            Unavailable: the store is closed, or there is none.
        """
        async with self._beginning:
            if self.metadata is not None and not self.has_ended():
                return False
            assert self._identity.record.pinned, self._identity.record
            store, settings, random = self.store.opened(), self._settings, self._environment.random
            me = AcceptorId(bytes.fromhex(self._identity.record.uuid), store.manifest.store)
            metadata = Metadata(store, me, self._peers, random, self.register)
            self._words.use(metadata.registers)
            limits = ReplicationLimits(
                relay_s=settings.relay_after / 1000,
                stall_s=settings.move_stall / 1000,
                transfer=settings.table_transfer,
            )
            if self._waiting is None:
                self._waiting = ParkedRequests(settings.max_queued_total)
                nursery.start_soon(self._waiting.run)
            replication = Replication(
                store, self._peers.ask_soon, self._environment, me.node, limits, waiting=self._waiting, skew=self.skew
            )
            catalogue = Catalogue(metadata, members, self._peers, random, most_copies=settings.metadata_copies)
            replication.replicas.on_newer, replication.replicas.is_up = look_at, self._peers.is_up
            ask, beside, alive = self._peers.ask, self._peers.beside, members.alive
            tables = LocalTables(
                metadata, catalogue, replication, settings, random, ask, beside, alive, look_at, self._hints.restored
            )
            controllers = Controllers(tables, self.forward)

            def edited(register: bytes, edits: Sequence[Edit] | None) -> None:
                keys = keys_of(edits)
                if keys != [] and self._calm is not None:
                    self._calm.map_changed(register)
                controllers.edited(register, keys)
                catalogue.follower.look_at(register)
                if register == self.register:
                    self.use_keys()
                    catalogue.follower.look()  # Tables may have come or gone.
                    on_known()

            metadata.on_edits = edited
            ended, self._scope = self._scope, trio.CancelScope()
            await nursery.start(controllers.run, self._scope)
            ended.cancel()  # The former store has failed; its waiters have got the error.
            self.metadata, self.catalogue, self.replication = metadata, catalogue, replication
            self._controllers, self._opened = controllers, store
            if self._calm is not None:
                self._calm.end()
            if self.store.loops is not None:
                opened = OpenedTables(store, metadata, catalogue, replication, lambda: self.token_keys)
                self._calm = CalmTables(self.store.loops, opened, self._reported)
                controllers.reconciler.on_looked = self._look  # The former store's may call it once more.
                controllers.reconciler.wake()
            for node in self._peers.connected():
                replication.connected(node)
            metadata.space.on_closed(self._check_behind)
            self._check_behind()
            return True

    @property
    def token_keys(self) -> TokenKeys:
        """The keys of the tokens of clients. Raises NotReady: this node does not know the catalogue yet."""
        if self._present_keys is None:
            origin = self.register, self.ring() or (self._catalogue_key(),)
            if self._keys is None or self._keys[0] != origin:
                self._keys = origin, token_keys(*origin)
            self._present_keys = self._keys[1]
        return self._present_keys

    def _catalogue_key(self) -> Key:
        """Return the secret that the catalogue keeps, as a key."""
        self.check_knows()
        metadata, _ = self.taking_part()
        known_map = metadata.known.get(self.register)
        if known_map is None or known_map.generation != self._secret[0] or not self._secret[1]:
            tree = metadata.view(self.register)
            self._secret = metadata.known[self.register].generation, tree.meta
        if not self._secret[1]:
            raise NotReady(WITHOUT_KEY)
        return key(self._secret[1])

    def use_keys(self) -> None:
        """Seal and verify tokens by the keys that the key ring or the catalogue has now, also in the serving loops."""
        self._present_keys = None
        with contextlib.suppress(GossipKVError):  # Tables that the loops serve come after the catalogue.
            if self._calm is not None:
                self._calm.use_keys(self.token_keys)

    def has_ended(self) -> bool:
        """Return True if the objects belong to a store that has failed or was reopened. Raises Unavailable."""
        return self._opened is not self.store.opened() or (
            self.metadata is not None and self.metadata.space.closed is not None
        )

    def _check_behind(self) -> None:
        if self.metadata is not None and self.metadata.registers.behind:
            self.store.refuse(self.metadata.registers.behind)

    def wake(self) -> None:
        """Start the next round of the controllers soon, since the members have changed."""
        if self._controllers is not None and self.catalogue is not None:
            self._controllers.wake()
            self.catalogue.follower.look()

    def met(self, name: str, uuid: bytes) -> None:
        """Replicate to a member to which a connection has begun."""
        if self.replication is not None and self._peers.is_connected(name):
            self.replication.connected(uuid)

    def lost(self, _name: str, uuid: bytes) -> None:
        """Stop replicating to a member whose connection has ended."""
        if self.replication is not None:
            self.replication.disconnected(uuid)

    # -- requests for the objects --------------------------------------------------------------------------------------

    def taking_part(self, table: str | None = None) -> tuple[Metadata, Catalogue]:
        """Return the objects with which this node takes part; `table`: the requested table.

        Raises:
            NotReady: this node does not take part.
            UnknownDatabase: a table was requested, and no table was ever made here.
        """
        if self.metadata is None or self.catalogue is None:
            if not self.store.closed:
                self.check_knows()
                if table is not None:
                    raise no_table(table)
            why = self.store.closed or "no table was ever created here"
            raise NotReady(f"this node takes no part in decisions on tables: {why}")
        return self.metadata, self.catalogue

    def replicating(self, table: str | None = None) -> Replication:
        """Return the replicas of this node. Raises as `taking_part`."""
        if self.replication is None:
            self.taking_part(table)
            raise NotReady("this node is about to open its tables")
        return self.replication

    def controllers(self) -> Controllers:
        """Return the controllers of this node. Raises as `taking_part`."""
        if self._controllers is None:
            self.taking_part()
            raise NotReady("this node is about to open its tables")
        return self._controllers

    @property
    def smear_buffer(self) -> SmearBuffer | None:
        """The smear buffer of this node; None: the store was not opened yet."""
        return None if self._controllers is None else self._controllers.smear_buffer

    def note(self, table: bytes, writes: Iterable[RecordWrite]) -> None:
        """Count writes that this node originated in its statistics of the last hour."""
        if self._controllers is not None:
            self._controllers.last_hour.note(table, writes, trio.current_time())

    def hold_writes(self) -> None:
        """Let serving loops hold their gathered writes until the store has written the group under way."""
        assert self._calm is not None, "a loop has gathered writes of calm replicas"
        self._calm.hold_writes()

    def _look(self) -> None:
        if self._calm is not None:
            self._calm.look()

    def note_reports(self, table: bytes) -> None:
        """Note that another node has reported settled entries of a table."""
        self._reported.add(table)
        if self._calm is not None:
            self._calm.note_reports(table)

    @property
    def can_answer(self) -> bool:
        """True if the local replicas can be read and written, or if there are none."""
        return self.replication is None or self.replication.replicas.can_answer

    # -- the catalogue -------------------------------------------------------------------------------------------------

    @property
    def register(self) -> bytes:
        """The register of the catalogue of this node's cluster; empty: the node is of no cluster yet."""
        return 2 * bytes.fromhex(self._identity.record.cluster_id)

    @property
    def is_founded(self) -> bool:
        """True if other nodes serve a catalogue."""
        return bool(self._hints.servers(self.register))

    @property
    def has_just_come(self) -> bool:
        """True if other nodes serve a catalogue that this node does not know yet."""
        return not self.knows_catalogue and self.is_founded

    def check_knows(self) -> None:
        """Raise `NotReady` if this node has just come and does not know the catalogue yet."""
        if self.has_just_come:
            raise NotReady("this node has just joined, and does not know the tables yet", {"coming": True})

    @property
    def knows_catalogue(self) -> bool:
        """True if this node knows the catalogue."""
        return self.metadata is not None and self.register in self.metadata.known


def _not_yet(_table: bytes, puts: Sequence[SmearedPut], on_forwarded: OnForwarded) -> None:
    on_forwarded(puts, NotReady("this node is starting"))
