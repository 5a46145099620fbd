"""A node that takes part in METADATA transactions: its lives, and its other work.

It does the work of `table.participant.participant` and `table.rpc.peer_rpc` over a simulated network: it answers other
nodes, gossips the config id of each map, reads maps of which it hears newer ones, and grows and tends the catalogue.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

import trio

from gossipkv.errors import BadRequest, GossipKVError, Unavailable, Unknown
from gossipkv.register.configuration import AcceptorId, Acceptors, members_of
from gossipkv.register.messages import decode_request
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.operations import decode_operation
from gossipkv.register.metadata.pages import name_of
from gossipkv.register.metadata.server import Metadata
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.register.metadata.tree import ChangedPages
from gossipkv.register.seen import AcceptorReply
from gossipkv.table.participant.hint_watcher import RETRY_S
from tests.world.metadata.chance import happens
from tests.world.metadata.network import Question
from tests.world.metadata.store import Mood, SimulatedStore
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

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
LIE: Final = (1 << 48) - 1  # A sequence that no map reaches.

_Result = TypeVar("_Result")


class Heard(NamedTuple):
    """Another node's statement about a map."""

    place: tuple[int, int]  # The generation of its ballot, and its config id.
    acceptors: Acceptors

    def is_news_to(self, known: KnownMap | None) -> bool:
        if known is None:
            return True
        return self.place > known.place[:2] or (self.place == known.place[:2] and self.acceptors != known.acceptors)


@final
class Life:
    """One life of a node: from its start to a crash."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node.uuid
        self.is_over = False
        self._of = node
        self._network = node.network
        streams = Streams(node.random.getrandbits(64))
        self._random = streams["life"]
        self.store = SimulatedStore(node.disk, node.mood, streams["store"], node.witness, self._strike)
        me = AcceptorId(node.uuid, node.disk.store)
        self.metadata = Metadata(self.store, me, self, streams["metadata"], CATALOGUE)
        self.catalogue = Catalogue(self.metadata, self, self, streams["catalogue"], most_copies=5)
        self.number = number
        self._nursery: trio.Nursery | None = None
        self._heard: dict[bytes, float] = {}  # When each node was last heard.
        self._said: dict[bytes, dict[bytes, Heard]] = {}  # By register and node.
        self._heeded: dict[tuple[bytes, bytes], Heard] = {}
        self._forget_at_s = math.inf  # When all statements are to be looked at again.
        self._looking: set[bytes] = set()  # Registers that are read because of other nodes' statements.
        self._news = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if self.is_over:
                return
            await nursery.start(self.metadata.run)
            self._network.lives[self.node] = self
            self._look_at_itself()
            if self._of.is_busy:
                nursery.start_soon(self._tend)
                nursery.start_soon(self._listen)
                nursery.start_soon(self._gossip)

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

    def ask_acceptor(
        self, to: AcceptorId, request: bytes, seen: bytes, complete: Completion[AcceptorReply], *, offer: object = None
    ) -> None:
        params: list[Value] = [request, seen]
        if isinstance(offer, Offer):
            params += offer.values()

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

        self._network.tell(self, to.node, Question("register", params, ANSWER_S), told)

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
                if refused is not None:
                    raise refused
                value = await self._answer(method, params)
            except GossipKVError as error:
                told(None, error)
            except trio.Cancelled:
                told(None, Unknown("the node went away"))
                raise
            else:
                self._look_at_itself()
                told(value, None)

        refused: GossipKVError | None = None
        if self._nursery is not None:
            try:
                self._take(method, params)
            except GossipKVError as why:
                refused = why
            self._nursery.start_soon(run)

    def _take(self, method: str, params: list[Value]) -> None:
        """Take a request's offer in the order of arrival, as the peer requests' handler of a node does."""
        match method, params:
            case "register", [bytes(request), bytes(), *offer] if offer:
                self.metadata.append(decode_request(request).register, _offer(offer))

    async def _answer(self, method: str, params: list[Value]) -> Value:
        match method, params:
            case "register", [bytes(request)]:
                return await self.metadata.answer(request)
            case "register", [bytes(request), bytes(seen), *_]:
                self._of.witness.heard(self.store.disk, seen)
                reply = await self.metadata.answer(request, seen)
                return [reply, self.metadata.registers.tell(decode_request(request).register)]
            case "gossip", [bytes(source), list(rows)]:
                self._hear(source, rows)
                return None
            case "metadata_invite", []:
                return self.store.disk.store
            case "metadata_pages", [bytes(register), list(names)]:
                return [*self.metadata.pages(register, [name for name in names if isinstance(name, bytes)])]
        return await self._decide(method, params)

    async def _decide(self, method: str, params: list[Value]) -> Value:
        match method, params:
            case "metadata_hold", [bytes(register), *offer]:
                return [*await self.metadata.hold(register, _offer(offer))]
            case "metadata_transact", [bytes(register), list(sent), int(timeout_ms)]:
                operations = [decode_operation(one) for one in sent if isinstance(one, bytes)]
                answers = await self.metadata.transact(register, operations, timeout_ms / 1000)
                return [[one.operation, int(one.outcome), one.code, one.message] for one in answers]
            case "metadata_look", [bytes(register)]:
                await self.metadata.quorum_read(register)
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
                        self._heeded.clear()
                        await self.catalogue.tend()
                        for name in self.catalogue.tables():
                            with contextlib.suppress(GossipKVError):
                                await self.catalogue.tend_table(name)
            await trio.sleep(STEP_S)

    async def _listen(self) -> None:
        while True:
            self._news = trio.Event()
            with contextlib.suppress(GossipKVError):
                self._heed()
            with trio.move_on_after(STEP_S):
                await self._news.wait()
            await trio.sleep(STEP_S / 20)

    async def _gossip(self) -> None:
        while True:
            await trio.sleep(self._random.uniform(STEP_S / 2, STEP_S))
            rows: list[Value] = []
            for register, known in self.metadata.known.items():
                if not known.head.ended:
                    place: list[Value] = [0, LIE] if self._of.lies else [known.generation, known.head.config]
                    rows.append([register, place, [[one.node, one.store] for one in known.acceptors.new]])
            for node in self._of.others:
                self._network.tell(self, node, Question("gossip", [self.node, rows], 1.0), _ignore)

    def _hear(self, source: bytes, rows: list[Value]) -> None:
        self._heard[source] = trio.current_time()
        for row in rows:
            match row:
                case [bytes(register), [int(generation), int(config)], list(servers)]:
                    heard = Heard((generation, config), Acceptors.of(members_of(servers)))
                    known = self.metadata.known.get(register)
                    if self._said.get(register, {}).get(source) == heard:
                        continue
                    self._said.setdefault(register, {})[source] = heard
                    if heard.is_news_to(known):
                        self._news.set()

    def _heed(self) -> None:
        named = self.catalogue.tables().values() if CATALOGUE in self.metadata.known else ()
        hints: dict[bytes, list[Acceptors]] = {CATALOGUE: []}
        for table in named:
            hints[table.id] = [] if table.id in self.metadata.known else [Acceptors.of(table.acceptors)]
        for register, found in hints.items():
            for source, heard in self._said.get(register, {}).items():
                is_news = heard.is_news_to(self.metadata.known.get(register))
                if self._heeded.get((register, source)) != heard and is_news and register not in self._looking:
                    self._heeded[register, source] = heard
                    found.append(heard.acceptors)
            if found and register not in self._looking and self._nursery is not None:
                self._looking.add(register)
                self._nursery.start_soon(self._look, register, found)
        if trio.current_time() >= self._forget_at_s:
            self._forget_at_s = math.inf
            self._heeded.clear()

    async def _look(self, register: bytes, hints: list[Acceptors]) -> None:
        for hint in hints:
            try:
                await self.metadata.quorum_read(register, hint)
            except GossipKVError:
                self._forget_at_s = min(self._forget_at_s, trio.current_time() + RETRY_S)
        self._looking.discard(register)
        self._news.set()

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
        self.life: Life | None = None
        self.lives = 0
        self.is_wanted = True  # True if it should be up.
        self._wanted = trio.Event()

    async def run(self) -> None:
        while True:
            if not self.is_wanted:
                self._wanted = trio.Event()
                await self._wanted.wait()
            self.lives += 1
            self.life = Life(self, self.lives)
            await self.life.run()
            self.life = None
            await trio.sleep(self.random.uniform(0.05, 1.0))

    def stop(self) -> None:
        self.is_wanted = False
        if self.life is not None:
            self.life.end()

    def start(self) -> None:
        self.is_wanted = True
        self._wanted.set()


def _offer(values: list[Value]) -> Offer:
    """Decode the offer that a request carries."""
    match values:
        case [bytes(source), None | bytes() as base, bytes(root), int(config), list(pages)]:
            changed = ChangedPages(root, {name_of(page): page for page in pages if isinstance(page, bytes)})
            return Offer(source, base, changed, config)
    raise BadRequest(f"no offer: {values!r:.80}")
