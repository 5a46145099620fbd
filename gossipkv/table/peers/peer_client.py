"""Requests from the tables of a node to other nodes, by uuid, for tasks and with callbacks.

A request that changes something is sent `within` a deadline, a hybrid time by the asked node's own clock. So a node
that was frozen or cut off executes the request in time or not at all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, NotReady, ProtocolError, Unavailable, Unknown
from gossipkv.gossip.member import REACHABLE
from gossipkv.register.maps import news_of
from gossipkv.register.seen import AcceptorReply
from gossipkv.wire.results import NotAnswered, NotReached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.environment.seam import Threads
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.maps import MapNews
    from gossipkv.table.ports import ClusterView, PeerLinks
    from gossipkv.wire.results import Completion, NodeAnswer
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

ANSWER_MS: Final = 3000  # An acceptor counts as silent after this time; its disk may be slow.
CHANGES: Final = frozenset(
    {
        *("create_table", "delete", "delete_many", "delete_range", "drop_table", "metadata_force"),
        *("metadata_transact", "put", "put_many", "quarantine_drop", "table_divide"),
    }
)
UP_S: Final = 0.1  # Interval between reads of the live members.
CONNECT_S: Final = 1.0  # Longest wait for a connection: gossip shows a new member before there is one.


@final
class PeerClient:
    """Sends requests to other nodes, by uuid."""

    def __init__(
        self, cluster: ClusterView, peers: PeerLinks, threads: Threads, deadline: Callable[[bytes, float], int]
    ) -> None:
        """`deadline(node, seconds)`: the hybrid time of the node's clock at which that time is over."""
        self._cluster = cluster
        self._deadline = deadline
        self._peers = peers
        self._threads = threads
        self._up, self._up_until = set[bytes](), 0.0  # Nodes that may be alive, up to UP_S old.
        self._connected = trio.Event()  # Set, and replaced, when a connection begins.
        self._names: dict[bytes, str] = {}  # By uuid: members with a connection.
        peers.watch(begun=self._begun, ended=self._ended)

    def _begun(self, name: str, uuid: bytes) -> None:
        self._names[uuid] = name
        connected, self._connected = self._connected, trio.Event()
        connected.set()

    def _ended(self, _name: str, uuid: bytes) -> None:
        self._names.pop(uuid, None)
        self._up_until = 0.0  # The node may have died.

    async def beside(self, do: Callable[[], T]) -> T:
        """Run a slow function in a worker thread."""
        return await self._threads.run(do)

    async def ask(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        """Ask the node of that uuid.

        Raises:
            GossipKVError: the node's answer; `Unavailable` if it was not asked, `Unknown` if it has not answered.
        """
        name = self._names.get(node) or self._name(node)
        with trio.move_on_after(min(timeout_s, CONNECT_S if self.is_up(node) else 0.0)):
            while self._peers.store(name) is None:
                await self._connected.wait()
        return await awaited(partial(self.ask_soon, node, method, params, timeout_s))

    async def ask_any(self, nodes: Iterable[bytes], method: str, params: list[Value], timeout_s: float) -> Value:
        """Send a request `within` the timeout to one node after the other, while nothing was done.

        Raises:
            GossipKVError: a node's answer; `Unavailable` if no node takes the request.
        """
        refusals: dict[str, str] = {}
        names = {member.uuid: member.name for member in self._cluster.members_known()}
        until = trio.current_time() + timeout_s
        for node in nodes:
            left_s = max(0.001, until - trio.current_time())
            within: list[Value] = [self._deadline(node, left_s), method, msgpack.packb(params)]
            try:
                return await self.ask(node, "within", within, left_s)
            except (NotReady, Unavailable) as error:
                refusals[names.get(node, node.hex())] = error.message
        raise Unavailable("; ".join(f"{name}: {why}" for name, why in refusals.items()) or "no other node is alive")

    def ask_soon(
        self, node: bytes, method: str, params: list[Value], timeout_s: float, complete: Completion[Value]
    ) -> None:
        """Ask the node of that uuid without a task; `complete` is called once, with what `ask` returns or raises."""
        try:
            name = self._names.get(node) or self._name(node)
        except Unavailable as unknown:
            complete(unknown)
            return
        if method in CHANGES:
            method, params = "within", [self._deadline(node, timeout_s), method, msgpack.packb(params)]
        timeout_ms = max(1, int(timeout_s * 1000))
        self._peers.ask(name, method, params, timeout_ms, partial(_complete, complete, name))

    async def known(self, node: bytes, register: bytes, timeout_s: float) -> MapNews | None:
        """Ask a node for the position of its map of a register; None: it has none.

        Raises:
            GossipKVError: as `ask`.
            ProtocolError: the answer is malformed.
        """
        rows = await self.ask(node, "map_changes", [[[register, 0, -1, None]], 0], timeout_s)
        return news_of(rows[0]) if isinstance(rows, list) and rows else None

    def ask_acceptor(
        self,
        to: AcceptorId,
        request: bytes,
        seen: bytes,
        complete: Completion[AcceptorReply],
    ) -> None:
        """Send a request and seen positions to an acceptor; `complete` is called once."""
        self.ask_soon(to.node, "register", [request, seen], ANSWER_MS / 1000, partial(_complete_acceptor, complete))

    def is_up(self, node: bytes) -> bool:
        """Return True if another node may answer, by gossip; cached for UP_S, since each write asks."""
        if (now := trio.current_time()) >= self._up_until:
            members = () if self._cluster.is_cut_off else self._cluster.members_known()
            self._up_until = now + UP_S
            self._up = {member.uuid for member in members if member.state in REACHABLE}
        return node in self._up

    def is_connected(self, name: str) -> bool:
        """Return True if there is a connection to a member."""
        return self._peers.store(name) is not None

    def connected(self) -> list[bytes]:
        """Return the uuids of the members to which there is a connection."""
        names = {member.uuid: member.name for member in self._cluster.members_known()}
        return [uuid for uuid, name in names.items() if self.is_connected(name)]

    def _name(self, node: bytes) -> str:
        for member in self._cluster.members_known():
            if member.uuid == node:
                return member.name
        raise Unavailable("the node is not a known member of this cluster", {"uuid": node.hex()})


async def awaited(begin: Callable[[Completion[T]], object]) -> T:
    """Begin a request that calls back, and return its result.  Raises GossipKVError: its error."""
    answered = trio.Event()
    answers: list[T | GossipKVError] = []

    def complete(answer: T | GossipKVError) -> None:
        answers.append(answer)
        answered.set()

    begin(complete)
    if not answers:
        await answered.wait()
    (answer,) = answers
    if isinstance(answer, GossipKVError):
        raise answer
    return answer


def _complete(complete: Completion[Value], name: str, answer: NodeAnswer | GossipKVError) -> None:
    """Complete a request with a node's answer, decoded."""
    result: Value | GossipKVError
    try:
        result = _named(answer, name) if isinstance(answer, GossipKVError) else _read(answer.data, name)
    except ProtocolError as damaged:
        result = damaged
    complete(result)


def _named(error: GossipKVError, name: str) -> GossipKVError:
    """Return another node's error in which "this node" is called by its name."""
    if not isinstance(error, NotReached | NotAnswered):  # These are this node's own.
        error.message = error.message.replace("this node", name)
    return error


def _complete_acceptor(complete: Completion[AcceptorReply], answer: Value | GossipKVError) -> None:
    match answer:
        case [bytes(data), bytes(seen)]:
            complete(AcceptorReply(data, seen))
        case GossipKVError() if not isinstance(answer, NotReached | NotAnswered | ProtocolError):
            complete(answer)
        case _:
            complete(Unknown("does not answer"))


def _read(data: bytes, name: str) -> Value:
    try:
        value: Value = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the answer of {name} is not MessagePack: {error}") from error
    return value
