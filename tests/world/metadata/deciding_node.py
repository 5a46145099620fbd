"""A node that takes part in METADATA transactions: its lives, and its other work.

It does the work of `table.participant.participant` and `table.rpc.peer_rpc` over a simulated network: it answers other
nodes, gossips the servers of the catalogue, follows maps, reads maps of which it hears newer ones, and grows and tends
the catalogue.  Some gossip names a map's config id, as requests for records do.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from gossipkv.errors import BadRequest, GossipKVError, Unavailable, Unknown
from gossipkv.register.configuration import AcceptorId, Acceptors, members_of
from gossipkv.register.maps import position_of
from gossipkv.register.messages import decode_request
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.register.metadata.operations import decode_operation
from gossipkv.register.metadata.server import Metadata
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.register.seen import AcceptorReply
from gossipkv.table.participant.map_watcher import LOOK_S
from tests.world.metadata.chance import happens
from tests.world.metadata.network import Question
from tests.world.metadata.store import Mood, SimulatedStore
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value
    from tests.world.metadata.network import Network, OnAnswer
    from tests.world.metadata.store import Disk
    from tests.world.metadata.witness import Witness

CATALOGUE: Final = b"clusteridclustei"  # The register's id.
STEP_S: Final = 0.5
TEND_S: Final = 3.0
HEARD_S: Final = 4.0  # A node that is silent for so long counts as dead.
ANSWER_S: Final = 3.0
NAMED: Final = 0.05  # The share of gossip that names a map's config id.
LIE: Final = (1 << 48) - 1  # A config id that no map reaches.

_Result = TypeVar("_Result")


@final
class Life:
    """One life of a node: from its start to a crash."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node.uuid
        self.is_up = self.is_over = False
        self._of = node
        self._network = node.network
        streams = Streams(node.random.getrandbits(64))
        self._random = streams["life"]
        self.store = SimulatedStore(node.disk, node.mood, streams["store"], node.witness, self._strike)
        me = AcceptorId(node.uuid, node.disk.store)
        self.metadata = Metadata(self.store, me, self, streams["metadata"], CATALOGUE)
        self.catalogue = Catalogue(self.metadata, self, self, streams["catalogue"], most_copies=5)
        self.metadata.on_edits = self._edited
        self.number = number
        self._nursery: trio.Nursery | None = None
        self._heard: dict[bytes, float] = {}  # When each node was last heard.
        self._reading: set[bytes] = set()  # Registers that are read because of other nodes' statements.
        self._asked_at_s: dict[bytes, float] = {}  # By register: the time of the last such read.

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if self.is_over:
                return
            await nursery.start(self.metadata.run)
            self.is_up = True
            self._network.lives[self.node] = self
            self._look_at_itself()
            if self._of.is_busy:
                nursery.start_soon(self._tend)
                nursery.start_soon(self._gossip)
                nursery.start_soon(self.catalogue.follower.run)

    def end(self) -> None:
        self.is_over = self.store.is_over = True
        self._of.witness.forgets(self.store.disk)
        self._network.lives.pop(self.node, None)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def have(self, do: Callable[[Life], Awaitable[_Result]]) -> _Result:
        """Run `do` on this node.

        Raises:
            GossipKVError: the error of `do`; `Unknown` if this life ends first.
        """
        done = trio.Event()
        results: list[_Result] = []
        errors: list[GossipKVError] = []

        async def run() -> None:
            try:
                results.append(await do(self))
            except GossipKVError as error:
                errors.append(error)
            finally:
                done.set()

        if self._nursery is None or self.is_over:
            raise Unavailable("the node is down")
        self._nursery.start_soon(run)
        await done.wait()
        self._look_at_itself()
        if errors:
            raise errors[0]
        if not results:
            raise Unknown("the node crashed")
        return results[0]

    # # -- requests to other nodes
    # --------------------------------------------------------------------------------------

    async def ask(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        return await self._network.ask(self, node, Question(method, params, timeout_s))

    async def beside(self, do: Callable[[], _Result]) -> _Result:
        await trio.sleep(self._random.uniform(0, 0.05))
        return do()

    def ask_acceptor(self, to: AcceptorId, request: bytes, seen: bytes, complete: Completion[AcceptorReply]) -> None:
        def told(value: Value, error: GossipKVError | None) -> None:
            self._look_at_itself()
            match value:
                case [bytes(reply), bytes(theirs)]:
                    self._of.witness.heard(self.store.disk, theirs)
                    complete(AcceptorReply(reply, theirs))
                case bytes():
                    complete(AcceptorReply(value))
                case _:
                    complete(error or Unavailable("closed"))

        self._network.tell(self, to.node, Question("register", [request, seen], ANSWER_S), told)

    def alive(self) -> Sequence[bytes]:
        """Return the uuids of nodes that seem to be alive, see `Members`."""
        now_s = trio.current_time()
        return sorted([self.node, *(node for node, at_s in self._heard.items() if at_s > now_s - HEARD_S)])

    def present(self) -> dict[bytes, tuple[str, bool]]:
        return {node: (node.hex(), True) for node in self.alive()}

    def has_settled(self) -> bool:
        return True

    async def describe(self, node: bytes) -> NamedNode:
        """Return a node's description of itself, see `Members`."""
        return NamedNode(node.hex(), "", 1)

    async def invite(self, node: bytes) -> AcceptorId:
        store = self.store.disk.store if node == self.node else await self.ask(node, "metadata_invite", [], 2.0)
        if not isinstance(store, int):
            raise Unavailable("no answer to an invitation")
        return AcceptorId(node, store)

    # # -- requests of other nodes
    # --------------------------------------------------------------------------------------

    def answer(self, method: str, params: list[Value], told: OnAnswer) -> None:
        async def run() -> None:
            try:
                value = await self._answer(method, params)
            except GossipKVError as error:
                told(None, error)
            except trio.Cancelled:
                told(None, Unknown("the node went away"))
                raise
            else:
                self._look_at_itself()
                told(value, None)

        if self._nursery is not None:
            self._nursery.start_soon(run)

    async def _answer(self, method: str, params: list[Value]) -> Value:
        match method, params:
            case "register", [bytes(request)]:
                return await self.metadata.answer(request)
            case "register", [bytes(request), bytes(seen)]:
                self._of.witness.heard(self.store.disk, seen)
                reply = await self.metadata.answer(request, seen)
                return [reply, self.metadata.registers.tell(decode_request(request).register)]
            case "map_changes", [list(rows), int(wait_ms)]:
                return await self.metadata.maps.changes(dict(map(position_of, rows)), wait_ms / 1000)
            case "map_page", [bytes(register), bytes(start)]:
                return self.metadata.maps.page(register, start)
        return await self._decide(method, params)

    async def _decide(self, method: str, params: list[Value]) -> Value:
        match method, params:
            case "metadata_transact", [bytes(register), list(sent), int(timeout_ms)]:
                operations = [decode_operation(one) for one in sent if isinstance(one, bytes)]
                answers = await self.metadata.transact(register, operations, timeout_ms / 1000)
                return [[one.operation, int(one.outcome), one.code, one.message] for one in answers]
            case "metadata_look", [bytes(register)]:
                await self.metadata.quorum_read(register)
                return None
            case "metadata_invite", []:
                return self.store.disk.store
            case "gossip", [bytes(source), list(servers), list(rows)]:
                self._hear(source, servers, rows)
                return None
        raise BadRequest(f"{method}: {params!r:.80}")

    # # -- its own tasks
    # ------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        tend_at_s = trio.current_time() + self._random.uniform(0, TEND_S)
        while True:
            with contextlib.suppress(GossipKVError):
                if self._of.may_found and CATALOGUE not in self.metadata.known:
                    await self.catalogue.found()
                if CATALOGUE in self.metadata.known:
                    with contextlib.suppress(GossipKVError):
                        await self.catalogue.grow()
                    if trio.current_time() >= tend_at_s:
                        tend_at_s = trio.current_time() + TEND_S
                        await self.catalogue.tend()
                        for name in self.catalogue.tables():
                            with contextlib.suppress(GossipKVError):
                                await self.catalogue.tend_table(name)
            await trio.sleep(STEP_S)

    async def _gossip(self) -> None:
        while True:
            await trio.sleep(self._random.uniform(STEP_S / 2, STEP_S))
            known = self.metadata.known.get(CATALOGUE)
            servers: list[Value] = [] if known is None else [[one.node, one.store] for one in known.acceptors.new]
            rows: list[Value] = []
            for register, map_ in self.metadata.known.items():
                if not map_.ended and happens(self._random, NAMED):
                    rows.append([register, LIE if self._of.lies else map_.config])
            for node in self._of.others:
                self._network.tell(self, node, Question("gossip", [self.node, servers, rows], 1.0), _ignore)

    def _hear(self, source: bytes, servers: list[Value], rows: list[Value]) -> None:
        if source not in self.alive():
            self._heard[source] = trio.current_time()
            self.catalogue.follower.look()
        self._heard[source] = trio.current_time()
        if servers and CATALOGUE not in self.metadata.known:
            hint = Acceptors.of(members_of(servers))
            self._read_soon(CATALOGUE, lambda: self.metadata.quorum_read(CATALOGUE, hint))
        for row in rows:
            match row:
                case [bytes(register), int(config)]:
                    known = self.metadata.known.get(register)
                    if known is not None and known.config < config:
                        self._read_soon(register, partial(self.metadata.look, register, source))

    def _read_soon(self, register: bytes, read: Callable[[], Awaitable[KnownMap]]) -> None:
        """Read a register of which a newer map was seen, one at a time, as `MapWatcher` does."""

        async def run() -> None:
            with contextlib.suppress(GossipKVError):
                await read()
            self._reading.discard(register)

        now_s = trio.current_time()
        is_soon = now_s < self._asked_at_s.get(register, -math.inf) + LOOK_S
        if register not in self._reading and not is_soon and self._nursery is not None:
            self._reading.add(register)
            self._asked_at_s[register] = now_s
            self._nursery.start_soon(run)

    def _edited(self, register: bytes, _edits: Sequence[Edit] | None) -> None:
        self.catalogue.follower.look_at(register)
        if register == CATALOGUE:
            self.catalogue.follower.look()
        self._look_at_itself()

    def _look_at_itself(self) -> None:
        if not self.is_over:
            self._of.witness.shown(self.store.disk, self.metadata)

    def _strike(self, when: str) -> None:
        if not self.is_over and happens(self._of.random, self._of.crashes):
            self._of.witness.counts[f"crash {when}"] += 1
            self.end()


def _ignore(value: Value, error: GossipKVError | None) -> None:
    """Do nothing: no task waits for the answer."""


@final
class Node:
    """A node: a disk, and its lives on it."""

    def __init__(self, uuid: bytes, disk: Disk, network: Network, witness: Witness, random: Random) -> None:
        self.uuid = uuid
        self.disk = disk
        self.mood = Mood()
        self.network = network
        self.witness = witness
        self.random = random
        self.others: list[bytes] = []
        self.is_busy = True  # True if it tends, listens and gossips.
        self.may_found = False
        self.lies = False
        self.crashes = 0.0  # The chance of a crash at each side of a sync.
        self._present: Life | None = None
        self.lives = 0
        self.is_wanted = True  # True if it should be up.
        self._wanted = trio.Event()

    async def run(self) -> None:
        while True:
            if not self.is_wanted:
                self._wanted = trio.Event()
                await self._wanted.wait()
            self.lives += 1
            self._present = Life(self, self.lives)
            await self._present.run()
            self._present = None
            await trio.sleep(self.random.uniform(0.05, 1.0))

    @property
    def life(self) -> Life | None:
        """The present life, once it has started: before, a node answers nobody."""
        return self._present if self._present is not None and self._present.is_up else None

    def crash(self) -> None:
        if self._present is not None:
            self._present.end()

    def stop(self) -> None:
        self.is_wanted = False
        self.crash()

    def start(self) -> None:
        self.is_wanted = True
        self._wanted.set()
