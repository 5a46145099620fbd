"""A node's part in all decisions: its store's space, its registers, and the maps of METADATA in them.

One object serves the catalogue and all tables, and answers other nodes: requests to its acceptor, for transactions, and
for its maps. Reads use the known map of a register (`known`), which is decided and synced here.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, Unavailable, UnknownDatabase
from gossipkv.register.edits import decode_value
from gossipkv.register.maps import Maps, Peers
from gossipkv.register.messages import RequestKind, decode_request
from gossipkv.register.metadata import partitions, tables
from gossipkv.register.metadata.known import KnownMap, generation_of
from gossipkv.register.metadata.operations import LIFE, ask, is_dead
from gossipkv.register.metadata.transactions import Transactions
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.shell import Registers
from gossipkv.register.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from random import Random

    from gossipkv.register.configuration import AcceptorId, Acceptors, Value
    from gossipkv.register.edits import Edit
    from gossipkv.register.messages import RegisterRequest
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.operations import Functions, Operation, OperationAnswer, OperationOutcome
    from gossipkv.register.shell import AskAcceptor
    from gossipkv.register.store import RegisterStore

MAX_UNNAMED: Final = 256  # Maps of tables that are being created, or whose creation was lost.
FETCH_S: Final = 0.8  # A proposer stops waiting for this acceptor after somewhat more.
ROUND_S: Final = 3.0


class OtherServers(Peers, Protocol):
    """Access to other nodes and their acceptors, and to worker threads."""

    @property
    def ask_acceptor(self) -> AskAcceptor: ...


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
        self.maps = Maps(self.space, me, servers, random, self._edited)
        self.registers = Registers(self.space, me, self.maps, ask=servers.ask_acceptor, random=random)
        self.known: dict[bytes, KnownMap] = {register: KnownMap(base) for register, base in self.maps.known.items()}
        self._servers = servers
        self._random = random
        self._transactions: dict[bytes, Transactions] = {}
        # Called with each map that became known, and with its edits; None: all of it may have changed.
        self.on_edits: Callable[[bytes, Sequence[Edit] | None], object] = lambda _register, _edits: None
        # Called before the map of an ended table is forgotten.
        self.on_forgotten: Callable[[bytes], object] | None = None
        self._nursery: trio.Nursery | None = None
        self._reading: set[bytes] = set()  # Registers that are read since nothing was heard of a decision.
        self.maps.on_undecided = self._read_soon
        self._unnamed: dict[bytes, int] = {}  # Maps without a table, and the catalogue's config id when that was found.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.space.run)
            await nursery.start(self.maps.run)
            nursery.start_soon(self.registers.run)
            task_status.started()

    # -- known maps ----------------------------------------------------------------------------------------------------

    def _edited(self, register: bytes, edits: Sequence[Edit] | None) -> None:
        base = self.maps.known.get(register)
        if base is None:
            self.known.pop(register, None)
        else:
            self.known[register] = KnownMap(base)
        self.on_edits(register, edits)

    def view(self, register: bytes) -> MapView:
        """Return the map of a register, as known here.

        Raises:
            UnknownDatabase: the table was dropped.
            NotReady: its map is not known yet.
        """
        known_map = self.known.get(register)
        if known_map is None:
            raise NotReady("this node does not know the state of this table yet")
        if known_map.ended:
            raise UnknownDatabase("the table was dropped")
        return known_map.view

    async def quorum_read(self, register: bytes, hint: Acceptors | None = None) -> KnownMap:
        """Read a register by a quorum; return its map once that is known here.

        Raises:
            Unavailable: no quorum answers.
            UnknownDatabase: the table was dropped.
            NotReady: the map cannot be fetched now, and the known map stays; or no node has named the register here.
        """
        if hint is None and not self._has_part(register):
            raise NotReady("this node does not serve the map")
        if hint is None and (known_map := self.known.get(register)) is not None:
            hint = known_map.acceptors
        outcome = await self.registers.read(register, timeout_s=ROUND_S, hint=hint)
        if outcome.end is not ChangeEnd.DONE or outcome.value is None or outcome.ballot is None:
            raise Unavailable(f"the state of this table cannot be read: {outcome.message}")
        value, ballot = outcome.value, outcome.ballot
        sequence = decode_value(value.payload).sequence
        before = self.maps.shown.get(register, (0, 0))
        if (ballot.generation, sequence) < before and register in self.known and self.known[register].ended:
            raise UnknownDatabase("the table was dropped after a force that the answering acceptors do not know")
        if not self.maps.decided(register, value, ballot):
            await self.maps.fetch(register, value)
            self.maps.decided(register, value, ballot)
        position = self.maps.position(register)
        if position[:2] < (ballot.generation, sequence):
            raise NotReady("this node cannot read the newest map from any of its servers yet")
        base = await self.maps.reached(register, position)
        if base.ended:
            raise UnknownDatabase("the table was dropped")
        return self.known[register]

    def _read_soon(self, register: bytes) -> None:
        async def read() -> None:
            try:
                await self.quorum_read(register)
            except GossipKVError:
                pass  # It is read again.
            finally:
                self._reading.discard(register)

        if self._nursery is not None and register not in self._reading:
            self._reading.add(register)
            self._nursery.start_soon(read)

    def is_behind(self, register: bytes) -> bool:
        """Return True if a decided map is newer than the known one; then placement is not reported."""
        base = self.maps.known.get(register)
        return base is None or base.place < self.maps.shown.get(register, base.place)

    async def look(self, register: bytes, node: bytes = b"") -> KnownMap:
        """Take the map of `node`, which uses a newer one; read the register if that is no news, or there is no node.

        Raises:
            GossipKVError: as `quorum_read`.
        """
        before = self.known.get(register)
        if node and self._has_part(register):
            with contextlib.suppress(GossipKVError):
                await self.maps.pull(register, node)
                base = await self.maps.reached(register, self.maps.position(register))
                if not base.ended and (found := self.known[register]) != before:
                    return found
        return await self.quorum_read(register)

    async def let_go(self, named: AbstractSet[bytes], config: int) -> None:
        """Forget maps that no table has, by a catalogue of that config id.

        A map whose register was ended is forgotten. One that the catalogue lacks for long enough belongs to a lost
        creation: the operation that names it is too old. But after a force of the catalogue, a map may have lost its
        name only, and stays.
        """
        for register in sorted(self.maps.registers()):
            if register in named or register == self.catalogue:
                self._unnamed.pop(register, None)
            elif await self._is_ended(register) or self._is_lost(register, config):
                await self._forget(register)

    def _is_lost(self, register: bytes, config: int) -> bool:
        """Return True if a map without a name will get none."""
        if register in self.known and generation_of(config):
            return False
        # Wait twice the lifetime: the creator may have seen more of the catalogue than this node had then.
        return is_dead(self._unnamed.setdefault(register, config + LIFE), config)

    async def _is_ended(self, register: bytes) -> bool:
        known_map = self.known.get(register)
        if known_map is None or known_map.ended:
            return known_map is not None
        try:
            await self.quorum_read(register)
        except UnknownDatabase:
            return True
        except GossipKVError:
            pass
        return False

    async def _forget(self, register: bytes) -> None:
        """Forget a map, except the record of the local acceptor.

        The end of the map also stays if the acceptor has not heard of the force in which the map was ended. Else, with
        other such acceptors, it could form a quorum of the lost state, and the map would come back.
        """
        if self.on_forgotten is not None:
            self.on_forgotten(register)
        transactions = self._transactions.pop(register, None)
        if transactions is not None:
            transactions.end()
        self._unnamed.pop(register, None)
        self.registers.forget(register)
        await self.maps.forget(register, but_end=self._is_outdone(register))

    # -- requests ------------------------------------------------------------------------------------------------------

    async def transact(
        self, register: bytes, operations: Sequence[Operation], timeout_s: float
    ) -> list[OperationAnswer]:
        """Run operations at this node, a server of the map; return the answers.

        Raises:
            NotReady: this node has no part in that map.
        """
        if not self._has_part(register):
            raise NotReady("this node does not serve the map")
        transactions = self._transactions.get(register)
        if transactions is None:
            functions: Functions = (tables if register == self.catalogue else partitions).OPERATIONS
            transactions = Transactions(register, functions, self.registers, self.maps, self._random)
            self._transactions[register] = transactions
            assert self._nursery is not None, "the node does not run"
            self._nursery.start_soon(transactions.run)
        return await transactions.submit(operations, timeout_s)

    async def outcome(self, register: bytes, operation: bytes, base: int) -> OperationOutcome:
        """Return the present outcome of an operation of that base; its "no" is final. Raises as `quorum_read`."""
        known_map = await self.quorum_read(register)
        return ask(known_map.view, operation, base)

    async def answer(self, data: bytes, seen: bytes | None = None) -> bytes:
        """Return the local acceptor's answer, after fetching the transactions that a value needs, if possible.

        `seen`: positions of stores that the asking node tells.

        Raises:
            ProtocolError, UnsupportedFormat: the data is no request, or for another store.
            Unavailable: the store is closed, or waits for room.
        """
        request = decode_request(data)
        if (value := self.lacking(request)) is not None:
            with trio.move_on_after(FETCH_S):
                await self.maps.fetch(request.register, value)
        return await self.registers.answer(data, seen)

    def lacking(self, request: RegisterRequest) -> Value | None:
        """Return the value of a request if its map must be fetched first; else None.

        Raises:
            Unavailable: the request begins a map, and the store has no room for more.
            Overloaded: the request begins a map, and too many maps of no table are here.
        """
        if request.kind is RequestKind.CREATE and not self._has_part(request.register):
            self.space.check_free()
            catalogue = self.known.get(self.catalogue)
            named = 0 if catalogue is None or catalogue.ended else len(catalogue.view)  # It names nodes as well.
            if len(self.maps.registers()) - named > MAX_UNNAMED:
                raise Overloaded(f"this node already has {MAX_UNNAMED} maps of unknown tables")
        value = request.value or request.holding
        if value is None or self.maps.holds(request.register, value.payload) or self._has_ended(request):
            return None
        return value if request.holding is not None or self._has_part(request.register) else None

    def _has_ended(self, request: RegisterRequest) -> bool:
        """Return True if the local acceptor has accepted the end of the request's map: it needs no more of it."""
        record = self.registers.record(request.register)
        if record is None or record.accepted is None or record.value is None or request.ballot is None:
            return False
        is_later = request.ballot.generation > record.accepted.generation  # A force may have lost the end.
        return not is_later and bool(decode_value(record.value.payload).ended)

    # -- internals -----------------------------------------------------------------------------------------------------

    def _has_part(self, register: bytes) -> bool:
        """Return True if a trusted source has named a register here; a stranger's question must leave no trace."""
        return (
            self.maps.has(register)
            or register == self.catalogue
            or (self.registers.record(register) is not None and not self._is_outdone(register))
        )

    def _is_outdone(self, register: bytes) -> bool:
        """Return True if a later force was decided than the local acceptor knows."""
        shown, record = self.maps.shown.get(register), self.registers.record(register)
        return shown is not None and record is not None and record.promise.generation < shown[0]
