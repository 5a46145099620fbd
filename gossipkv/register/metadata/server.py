"""A node's part in all decisions: its store's space, its registers, and the maps of their heads.

One object serves the catalogue and all tables, and answers other nodes (requests to its acceptor, for pages, and for
transactions). For each map it stores the head that a quorum has shown last (`known`), so that reads work also after a
restart without a quorum. Gossip is only a hint: it causes a quorum read, and nothing else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import BadRequest, GossipKVError, NotReady, Overloaded, ProtocolError, UnknownDatabase
from gossipkv.register.messages import REGISTER_BYTES, decode_request
from gossipkv.register.metadata import partitions, tables
from gossipkv.register.metadata.head import FUNCTIONS, decode_head
from gossipkv.register.metadata.known import KNOWN, Heads, KnownMap, known_of
from gossipkv.register.metadata.ledger import MAX_PINS, RegisterLedger
from gossipkv.register.metadata.operations import ask, is_dead
from gossipkv.register.metadata.transactions import Transactions
from gossipkv.register.metadata.tree import LIFE, ChangedPages, MapTree
from gossipkv.register.shell import Registers
from gossipkv.register.space import MAP, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from random import Random

    from gossipkv.register.configuration import AcceptorId, Acceptors
    from gossipkv.register.messages import RegisterRequest
    from gossipkv.register.metadata.ledger import AskNode, Beside, Offer
    from gossipkv.register.metadata.operations import Functions, Operation, OperationAnswer
    from gossipkv.register.metadata.pages import OperationOutcome
    from gossipkv.register.metadata.tree import MapKind
    from gossipkv.register.shell import AskAcceptor
    from gossipkv.register.store import RegisterStore

MANY_PINS: Final = MAX_PINS // 2  # Many undecided roots: the head should be read.
MAX_UNNAMED: Final = 256  # Maps of tables that are being created, or whose creation was lost.
FETCH_S: Final = 0.8  # A proposer stops waiting for this acceptor after somewhat more.


class OtherServers(Protocol):
    """Access to other nodes, and to worker threads."""

    @property
    def beside(self) -> Beside: ...
    @property
    def ask(self) -> AskNode: ...
    @property
    def ask_acceptor(self) -> AskAcceptor: ...


class _Map(NamedTuple):
    """A map that this node serves or holds."""

    ledger: RegisterLedger
    transactions: Transactions


@final
class Metadata:
    """A node's part in the catalogue and all tables."""

    def __init__(
        self, store: RegisterStore, me: AcceptorId, servers: OtherServers, random: Random, catalogue: bytes
    ) -> None:
        """`catalogue`: its register. Raises ProtocolError, StorageError: the store's records cannot be read."""
        self.me = me
        self.catalogue = catalogue
        self.space = Space(store)
        self.registers = Registers(
            self.space, me, FUNCTIONS, holds=self._holds, ask=servers.ask_acceptor, random=random
        )
        self._servers = servers
        self._random = random
        self._maps: dict[bytes, _Map] = {}
        self.heads = Heads(self.space, self._hold_map, self._settle)
        self.known: Mapping[bytes, KnownMap] = self.heads.known  # The known heads, by register.
        # Called before the map of an ended table is forgotten.
        self.on_forgotten: Callable[[bytes], object] | None = None
        self._nursery: trio.Nursery | None = None
        self._fetching: set[bytes] = set()  # Registers of which the local acceptor lacks pages.
        self._unnamed: dict[bytes, int] = {}  # Maps without a table, and the catalogue's config id when that was found.
        self._looking: set[bytes] = set()  # Registers that this node is reading on its own.
        records: dict[bytes, list[tuple[bytes, bytes]]] = {}
        start = len(MAP)
        for key, value in self.space.scan(MAP):
            records.setdefault(key[start : start + REGISTER_BYTES], []).append((key[start + REGISTER_BYTES :], value))
        for register, theirs in records.items():
            self._map(register, theirs)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.space.run)
            await nursery.start(self.heads.run)
            nursery.start_soon(self.registers.run)
            for map_ in self._maps.values():
                nursery.start_soon(map_.transactions.run)
            task_status.started()

    # -- known heads ---------------------------------------------------------------------------------------------------

    def tree(self, register: bytes) -> MapTree:
        """Return the map of a register, as known here.

        Raises:
            UnknownDatabase: the table was dropped.
            NotReady: its head is not known yet, or a page is missing here.
        """
        known_map = self.known.get(register)
        if known_map is None:
            raise NotReady("this node does not know the state of this table yet")
        if known_map.head.ended:
            raise UnknownDatabase("the table was dropped")
        ledger = self._map(register).ledger
        return MapTree.opened(ledger.read, known_map.head.root, ledger.kind.name)

    async def quorum_read(self, register: bytes, hint: Acceptors | None = None) -> KnownMap:
        """Read a register by a quorum, store the head durably, and hold the map.

        Raises:
            Unavailable: no quorum answers.
            UnknownDatabase: the table was dropped.
            NotReady: a page cannot be fetched now, and the known head stays; or no node has named the register here.
        """
        transactions = (self._map(register) if hint is not None else self._part(register)).transactions
        before = self.heads.shown(register)
        chosen = await transactions.read(hint or (before.acceptors if before is not None else None))
        before = self.heads.shown(register)
        if chosen.head.ended:
            if before is not None and not before.head.ended:
                generation = max(before.generation, chosen.generation)
                ended = before._replace(head=before.head._replace(ended=True), generation=generation)
                await self.learn(register, ended)
            raise UnknownDatabase("the table was dropped")
        if before is not None and before.head.ended and chosen.generation < before.generation:
            raise UnknownDatabase("the table was dropped after a force that the answering acceptors do not know")
        return await self.learn(register, chosen)

    def is_behind(self, register: bytes) -> bool:
        """Return True if a full round has shown a newer head than the known one; then placement is not reported."""
        known_map, shown = self.known.get(register), self.heads.shown(register)
        return known_map is None or shown is None or known_map.place[:2] < shown.place[:2]

    async def learn(self, register: bytes, shown: KnownMap) -> KnownMap:
        """Store the head of a full round, or a newer one. Raises as `Heads.learn`."""
        return await self.heads.learn(register, shown)

    async def look(self, register: bytes, node: bytes = b"") -> KnownMap:
        """Take the head of `node`, which uses a newer map; read the register if that is no news, or there is no node.

        A full round has shown that head to the node, and its pages come from the node.

        Raises:
            GossipKVError: as `quorum_read`.
        """
        before = self.known.get(register)
        if node:
            with contextlib.suppress(GossipKVError):
                reply = await self._servers.ask(node, "metadata_head", [register], FETCH_S)
                known_map = known_of(reply if isinstance(reply, bytes) else b"")
                await self._part(register).ledger.fetch(known_map.head.root, known_map.head.config, [node])
                if (found := await self.learn(register, known_map)) != before:
                    return found
        return await self.quorum_read(register)

    async def _hold_map(self, register: bytes, known_map: KnownMap) -> None:
        map_, before = self._map(register), self.known.get(register)
        if map_.ledger.pins >= MANY_PINS:  # Make room before holding more: the shown head ends pins, held here or not.
            roots = known_map.head.roots | (frozenset() if before is None else before.head.roots)
            await map_.ledger.collect(known_map.head.config, roots | self._accepted(register))
        await map_.transactions.hold(known_map)

    async def _settle(self, register: bytes, known_map: KnownMap) -> None:
        """End the pins that no node can need any more, after a head became known."""
        ledger = self._map(register).ledger
        if known_map.head.ended:
            await ledger.discard()
        else:
            await ledger.collect(known_map.head.config, known_map.head.roots | self._accepted(register))

    def _accepted(self, register: bytes) -> frozenset[bytes]:
        """Return the roots that this acceptor's own record names."""
        record = self.registers.record(register)
        return frozenset() if record is None or record.value is None else decode_head(record.value.payload).roots

    async def let_go(self, named: AbstractSet[bytes], config: int) -> None:
        """Forget maps that no table has, by a catalogue of that config id.

        A first map that the catalogue lacks for long enough belongs to a lost creation: the operation that names it is
        too old. A map with a known head was named once. Such a map is forgotten if its register was ended, and stays if
        only its name was lost, as by a force of the catalogue.
        """
        for register in sorted(self._maps.keys() | self.known.keys()):
            known_map = self.known.get(register)
            if register in named or register == self.catalogue:
                self._unnamed.pop(register, None)
            elif known_map is None:
                # Wait twice the lifetime: the creator may have seen more of the catalogue than this node had then.
                if is_dead(self._unnamed.setdefault(register, config + LIFE), config):
                    await self._forget(register)
            elif known_map.head.ended or await self._is_ended(register):
                await self._forget(register)

    async def _is_ended(self, register: bytes) -> bool:
        try:
            await self.quorum_read(register)
        except UnknownDatabase:
            return True
        except GossipKVError:
            pass
        return False

    async def _forget(self, register: bytes) -> None:
        """Forget a map, except the record of the local acceptor.

        The shown head also stays if the acceptor has not heard of the force in which the map was ended. Else, with
        other such acceptors, it could form a quorum of the lost state, and the map would come back.
        """
        if self.on_forgotten is not None:
            self.on_forgotten(register)
        is_kept = self._is_outdone(register)
        map_ = self._maps.pop(register, None)
        self._unnamed.pop(register, None)
        self.heads.forget(register, but_shown=is_kept)
        self.registers.forget(register)
        if map_ is not None:
            map_.transactions.end()
            await map_.ledger.end()
        if not is_kept:
            await self.space.write({KNOWN + register: None})

    # -- requests of this node -----------------------------------------------------------------------------------------

    async def transact(
        self, register: bytes, operations: Sequence[Operation], timeout_s: float
    ) -> list[OperationAnswer]:
        """Run operations at this node, a server of the map; return the answers.

        Raises:
            NotReady: this node has no part in that map.
        """
        return await self._part(register).transactions.submit(operations, timeout_s)

    async def outcome(self, register: bytes, operation: bytes, base: int) -> OperationOutcome:
        """Return the present outcome of an operation of that base; its "no" is final. Raises as `quorum_read`."""
        known_map = await self.quorum_read(register)
        return ask(self.tree(register), operation, base, known_map.config)

    async def pin(self, register: bytes, first: ChangedPages, config: int) -> None:
        """Hold the first map of a register, made here. Raises `Unavailable`: the store is closed."""
        await self._map(register).ledger.pin(first.root, config, first.pages)

    def keeping(self, register: bytes, root: bytes) -> contextlib.AbstractContextManager[None]:
        """Protect a root that is held here while other nodes fetch its pages."""
        return self._map(register).ledger.keeping(root)

    # -- requests of other nodes ---------------------------------------------------------------------------------------

    async def hold(self, register: bytes, offer: Offer) -> list[int | bytes]:
        """Hold a transaction's change; return this acceptor's store, and the held root.

        Raises:
            BadRequest: the offer is no change of that root.
            NotReady: a page is missing, and its source has not provided it.
            Overloaded: too many unnamed or undecided maps are held here.
            Unavailable: the store is closed, or waits for room.
        """
        self.space.check_room()
        self._look_if_many(register)
        if register not in self._maps and len(self._maps) - len(self.known) >= MAX_UNNAMED:
            raise Overloaded(f"this node already holds {MAX_UNNAMED} maps of unknown tables")
        try:
            await self._map(register).ledger.take(offer)
        except ProtocolError as error:
            raise BadRequest(f"the change does not fit the map: {error.message}", error.details) from error
        return [self.me.store, offer.changed.root]

    def _look_if_many(self, register: bytes) -> None:
        """Read a register that other nodes change, if its head was not reported for a while."""
        if (map_ := self._maps.get(register)) is None or map_.ledger.pins < MANY_PINS:
            return

        async def look() -> None:
            try:
                await self.quorum_read(register)
            except GossipKVError:
                pass  # The next change to hold asks again.
            finally:
                self._looking.discard(register)

        if self._nursery is not None and register not in self._looking:
            self._looking.add(register)
            self._nursery.start_soon(look)

    def pages(self, register: bytes, names: Sequence[bytes]) -> list[bytes | None]:
        """Return the pages of a map by their names, None for each that is not here."""
        map_ = self._maps.get(register) or (self._map(register) if register in self.known else None)
        return [None] * len(names) if map_ is None else map_.ledger.pages(names)

    async def answer(self, data: bytes, seen: bytes | None = None) -> bytes:
        """Return the local acceptor's answer, after fetching pages that a value needs, if possible.

        `seen`: positions of stores that the asking node tells.

        Raises:
            ProtocolError, UnsupportedFormat: the data is no request, or for another store.
            Unavailable: the store is closed, or waits for room.
        """
        request = decode_request(data)
        if (payload := self.lacking(request)) is not None:
            with trio.move_on_after(FETCH_S):
                await self._fetch(request.register, payload, request.value.acceptors if request.value else None)
        return await self.registers.answer(data, seen)

    def lacking(self, request: RegisterRequest) -> bytes | None:
        """Return the payload of a request if its pages must be fetched first; else None."""
        register, payload = request.register, request.holding if request.value is None else request.value.payload
        if payload is None or not self._has_part(register) or self._is_here(register, payload):
            return None
        return payload

    def append(self, register: bytes, offer: Offer) -> None:
        """Append the data of a value to accept, in the order of arrival: each is the base of the next.

        Raises:
            Unavailable: the store is closed, or waits for room.
        """
        self.space.check_room()
        if not self._has_part(register):
            return
        self._look_if_many(register)
        ledger = self._map(register).ledger
        ledger.sources = [offer.source]
        with contextlib.suppress(GossipKVError):  # Missing pages are fetched later.
            ledger.append_checked(offer)

    def _holds(self, register: bytes, payload: bytes) -> bool:
        """Return True if all pages of a head are here; if not, fetch them for the next time.

        The proposer of this node needs that, too, since it asks the acceptor here without `answer`.
        """
        is_here = self._is_here(register, payload)
        if not is_here and self._nursery is not None and register not in self._fetching and self._has_part(register):
            self._fetching.add(register)
            self._nursery.start_soon(self._fetch, register, payload, None)
        return is_here

    def _is_here(self, register: bytes, payload: bytes) -> bool:
        try:
            head = decode_head(payload)
        except ProtocolError:
            return False
        if head.ended:  # An ended head has no readers, and its pages are gone.
            return True
        return self._has_part(register) and self._map(register).ledger.has(head.root)

    async def _fetch(self, register: bytes, payload: bytes, acceptors: Acceptors | None) -> None:
        """Fetch the pages of a head from the nodes that should have them, if possible."""
        try:
            head, ledger = decode_head(payload), self._map(register).ledger
            members = acceptors or self.registers.proposer(register).acceptors
            nodes = (
                sorted({acceptor.node for acceptor in members.everyone} - {self.me.node}) if members is not None else []
            )
            self._random.shuffle(nodes)
            sources, ledger.sources = [*ledger.sources, *nodes], []  # A silent source is not the first the next time.
            await ledger.fetch(head.root, head.config, sources)
        except GossipKVError:
            pass  # The pages are not available, or the payload is no head.
        finally:
            self._fetching.discard(register)

    # -- internals -----------------------------------------------------------------------------------------------------

    def _has_part(self, register: bytes) -> bool:
        """Return True if a trusted source has named a register here; a stranger's question must leave no trace."""
        return (
            register in self._maps
            or register in self.known
            or register == self.catalogue
            or (self.registers.record(register) is not None and not self._is_outdone(register))
        )

    def _is_outdone(self, register: bytes) -> bool:
        """Return True if a full round has shown a later force than the local acceptor knows."""
        shown, record = self.heads.shown(register), self.registers.record(register)
        return shown is not None and record is not None and record.promise.generation < shown.generation

    def _part(self, register: bytes) -> _Map:
        if not self._has_part(register):
            raise NotReady("this node does not serve the map")
        return self._map(register)

    def _map(self, register: bytes, records: Iterable[tuple[bytes, bytes]] = ()) -> _Map:
        map_ = self._maps.get(register)
        if map_ is None:
            kind: MapKind = tables.CATALOGUE if register == self.catalogue else partitions.MAP
            functions: Functions = (tables if register == self.catalogue else partitions).OPERATIONS
            ledger = RegisterLedger(
                register, kind, self.space, self._servers.ask, beside=self._servers.beside, records=records
            )
            transactions = Transactions(ledger, functions, self.registers, self.heads, self._random)
            map_ = self._maps[register] = _Map(ledger, transactions)
            if self._nursery is not None:
                self._nursery.start_soon(transactions.run)
        return map_
