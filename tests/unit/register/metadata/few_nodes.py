"""Nodes that decide together over stores in memory; a test can silence nodes and close stores."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

import trio

from gossipkv.errors import GossipKVError, Overloaded, StorageError, Unavailable
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.messages import decode_request
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.operations import Operation, decode_operation
from gossipkv.register.metadata.pages import name_of
from gossipkv.register.metadata.server import Metadata
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.register.metadata.tree import ChangedPages
from gossipkv.register.seen import AcceptorReply
from gossipkv.wire.results import NotReached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from gossipkv.wire.results import Completion

CATALOGUE = b"catalogue's name"


class FakeBatch:
    """The operations of a batch, as a list."""

    def __init__(self) -> None:
        self.operations: list[tuple[bytes, bytes | None]] = []

    def put(self, space: int, key: bytes, value: bytes) -> None:
        del space
        self.operations.append((key, value))

    def delete(self, space: int, key: bytes) -> None:
        del space
        self.operations.append((key, None))

    def new_space(self, space: int) -> None:
        pass


class MemoryStore:
    """A store of one space; its syncs can be held up, and it can be closed."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.first_space: int | None = None
        self.closed = False
        self.full = False
        self.gate: trio.Event | None = None  # Syncs wait for this event.

    @property
    def lack(self) -> str | None:
        return "the disk is full" if self.full else None

    def get(self, space: int, key: bytes) -> bytes | None:
        del space
        return self.records.get(key)

    def scan(
        self, space: int, start: bytes | None = None, end: bytes | None = None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        del space
        found = sorted(item for item in self.records.items() if (start or b"") <= item[0] < (end or b"\xff"))
        return found, None

    def reserve_space(self) -> int:
        return 1

    async def write(self, batch: FakeBatch) -> int:
        await trio.sleep(0.001)
        if self.gate is not None:
            await self.gate.wait()
        if self.closed:
            raise StorageError("the disk is gone")
        if self.full:
            raise Overloaded("full")
        self.first_space = 1
        for key, value in batch.operations:
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value
        return 1


class FewNodes:
    """Nodes by their uuids, each a letter repeated 16 times."""

    def __init__(self, letters: str = "abc", seed: int = 1) -> None:
        self.random = Random(seed)
        self.nodes: dict[bytes, OneNode] = {}
        self.silent: set[bytes] = set()  # These nodes do not answer.
        self.on_ask: Callable[[bytes, str], None] = lambda node, method: None  # May raise GossipKVError.
        for letter in letters:
            self.nodes[16 * letter.encode()] = OneNode(self, letter)

    def __getitem__(self, letter: str) -> OneNode:
        return self.nodes[16 * letter.encode()]

    def alive(self) -> Sequence[bytes]:
        return sorted(self.nodes.keys() - self.silent)

    def present(self) -> dict[bytes, tuple[str, bool]]:
        return {node: (chr(node[0]), node not in self.silent) for node in self.nodes}

    def has_settled(self) -> bool:
        return True

    async def describe(self, node: bytes) -> NamedNode:
        return NamedNode(node.hex(), "", 1)

    async def invite(self, node: bytes) -> AcceptorId:
        self.on_ask(node, "metadata_invite")
        if node in self.silent:
            raise NotReached("the node is dead")
        return self.nodes[node].metadata.me

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FewNodes]:
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                await nursery.start(node.metadata.run)
            yield self
            nursery.cancel_scope.cancel()


class OneNode:
    def __init__(self, world: FewNodes, letter: str, store: MemoryStore | None = None, store_id: int = 7) -> None:
        self.world = world
        self.store = store or MemoryStore()
        me = AcceptorId(16 * letter.encode(), store_id)
        self.metadata = Metadata(self.store, me, self, Random(f"{letter} {world.random.random()}"), CATALOGUE)
        self.catalogue = Catalogue(self.metadata, world, self, Random(letter), most_copies=5)

    @property
    def uuid(self) -> bytes:
        return self.metadata.me.node

    async def beside(self, do: Callable[[], object]) -> object:
        return do()

    async def ask(self, node: bytes, method: str, params: list, timeout_s: float) -> object:
        self.world.on_ask(node, method)
        await trio.sleep(0.001)
        other = self.world.nodes.get(node)
        if other is None or node in self.world.silent or self.uuid in self.world.silent:
            await trio.sleep(timeout_s)
            raise Unavailable("silent")
        metadata = other.metadata
        match method:
            case "register":
                request, *offer = params
                if offer:
                    metadata.append(decode_request(request).register, offered(*offer))
                return await metadata.answer(request)
            case "metadata_hold":
                register, *offer = params
                return await metadata.hold(register, offered(*offer))
            case "metadata_pages":
                return metadata.pages(*params)
            case "metadata_head":
                return metadata.known[params[0]].encode()
            case "metadata_look":
                return await metadata.quorum_read(params[0])
            case "metadata_transact":
                answers = await metadata.transact(
                    params[0], [decode_operation(one) for one in params[1]], params[2] / 1000
                )
                return [[one.operation, int(one.outcome), one.code, one.message] for one in answers]
        raise AssertionError(method)

    def ask_acceptor(
        self,
        to: AcceptorId,
        request: bytes,
        seen: bytes,
        complete: Completion[AcceptorReply],
        *,
        offer: Offer | None = None,
    ) -> None:
        async def carry() -> None:
            try:
                reply = await self.ask(to.node, "register", [request, *(offer.values() if offer else [])], 3)
            except GossipKVError as error:
                complete(error)
            else:
                complete(AcceptorReply(reply))

        assert self.metadata._nursery is not None
        self.metadata._nursery.start_soon(carry)

    async def on(self, register: bytes, name: str, *argument: object, base: int | None = None) -> object:
        """Return the answer of this server to one operation."""
        at = self.metadata.known[register].head.config if base is None else base
        operation = Operation(self.world.random.randbytes(20), at, name, 1, tuple(argument))
        (answer,) = await self.metadata.transact(register, [operation], 5)
        return answer


def offered(source: bytes, base: bytes | None, root: bytes, config: int, pages: list[bytes]) -> Offer:
    """Return the offer of a request, as the door for other nodes reads it."""
    return Offer(source, base, ChangedPages(root, {name_of(page): page for page in pages}), config)


async def founded(world: FewNodes) -> None:
    first, *others = world.nodes.values()
    await first.catalogue.found()
    if others:
        members = [node.metadata.me for node in world.nodes.values()]
        hint = first.metadata.known[CATALOGUE].acceptors
        for node in others:
            await node.metadata.quorum_read(CATALOGUE, hint)
        await first.catalogue.reconfigure(CATALOGUE, members)
        for node in others:
            await node.metadata.quorum_read(CATALOGUE, Acceptors.of(members))
