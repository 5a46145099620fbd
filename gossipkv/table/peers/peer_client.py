"""The ways from the tables of a node to other nodes, by uuid: who asks with a task, and who is called back.

What changes something goes `within` a deadline, a hybrid time by the asked node's own clock: a node that was frozen, or
was cut off, does it in time or not at all.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, NotReady, ProtocolError, Unavailable, Unknown, from_wire
from gossipkv.gossip.member import REACHABLE
from gossipkv.table.peers.hints import decode_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.environment.seam import Threads
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.shell import OnReply
    from gossipkv.replication.shell import OnAnswer
    from gossipkv.table.peers.hints import MapHint
    from gossipkv.table.ports import ClusterView, PeerLinks
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

ANSWER_MS: Final = 3000  # Until an acceptor that has not answered counts as silent; its disk may be slow.
WAIT_PART: Final = 0.8  # Of the time in which it is to answer.
CHANGES: Final = frozenset(
    {
        *("create_table", "delete", "drop_table", "metadata_force", "metadata_transact"),
        *("put", "put_many", "quarantine_drop", "table_divide"),
    }
)
UP_S: Final = 0.1  # Between two looks at who may live.
CONNECT_S: Final = 1.0  # Who has just come is seen before there is a connection to it.


@final
class PeerClient:
    """The ways to other nodes, by uuid."""

    def __init__(
        self, cluster: ClusterView, peers: PeerLinks, threads: Threads, deadline: Callable[[bytes, float], int]
    ) -> None:
        """`deadline`: the hybrid time of a node's clock at which so many seconds are over."""
        self._cluster = cluster
        self._deadline = deadline
        self._peers = peers
        self._threads = threads
        self._up, self._up_until = set[bytes](), 0.0  # Who may live, as gossip knew a moment ago.
        self._connected = trio.Event()  # Another connection has begun.
        peers.watch(begun=self._begun)

    def _begun(self, _name: str, _uuid: bytes) -> None:
        connected, self._connected = self._connected, trio.Event()
        connected.set()

    async def beside(self, do: Callable[[], T]) -> T:
        """Do in a worker thread what takes long."""
        return await self._threads.run(do)

    async def ask(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        """Ask the node of that uuid.

        Raises:
            GossipKVError: as it answers; `Unavailable` when it was not asked, `Unknown` when it has not answered.
        """
        answered, told = trio.Event(), []

        def on_reply(result: Value, error: GossipKVError | None) -> None:
            told.append((result, error))
            answered.set()

        name = self._name(node)
        with trio.move_on_after(min(timeout_s, CONNECT_S)):
            while self._peers.store(name) is None:
                await self._connected.wait()
        self.ask_soon(node, method, params, timeout_s, on_reply)
        await answered.wait()
        result, error = told[0]
        if error is not None:
            raise error
        return result

    async def ask_any(self, nodes: Iterable[bytes], method: str, params: list[Value], timeout_s: float) -> Value:
        """Ask one node after the other in `within`, as long as nothing was done.

        Raises:
            GossipKVError: as one answers; `Unavailable` when none takes it.
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
        raise Unavailable("; ".join(f"{name}: {why}" for name, why in refusals.items()) or "none is alive")

    def ask_soon(
        self,
        node: bytes,
        method: str,
        params: list[Value],
        timeout_s: float,
        on_reply: OnAnswer,
    ) -> None:
        """Ask the node of that uuid without a task; `on_reply` is called once, with what `ask` returns or raises."""

        def on_answer(result: bytes | None, error: bytes | None, epoch: int | None) -> None:
            failed: GossipKVError | None = None
            value: Value = None
            try:
                if error is not None:
                    failed = _error_of(error, name)
                elif result is None:
                    not_asked = epoch is None
                    failed = Unavailable(f"{name} is not reached") if not_asked else Unknown(f"{name} has not answered")
                else:
                    value = _read(result, name)
            except ProtocolError as damaged:
                failed = damaged
            on_reply(value, failed)

        try:
            name = self._name(node)
        except Unavailable as unknown:
            on_reply(None, unknown)
            return
        if method in CHANGES:
            method, params = "within", [self._deadline(node, timeout_s), method, msgpack.packb(params)]
        self._peers.ask_unread(name, method, params, max(1, int(timeout_s * 1000)), on_answer)

    async def known(self, node: bytes, register: bytes, timeout_s: float, *, config: int = 0) -> MapHint | None:
        """What a node knows of a register, once that is at least of that config id; None: nothing.

        When the time is nearly over it answers with what it knows: `MapHint.config` tells.

        Raises:
            GossipKVError: as `ask`.
            ProtocolError: it answered something else.
        """
        params: list[Value] = [register]
        if config:
            params.append({"config": config, "wait_ms": int(timeout_s * 1000 * WAIT_PART)})
        answer = await self.ask(node, "metadata_known", params, timeout_s)
        return decode_hint(answer) if isinstance(answer, bytes) and answer else None

    def ask_acceptor(
        self, to: AcceptorId, request: bytes, seen: bytes, on_reply: OnReply, *, offer: object = None
    ) -> None:
        """Ask an acceptor, and tell it what was seen and what belongs to a value; `on_reply` is called once."""

        def on_answer(result: bytes | None, error: bytes | None, epoch: int | None) -> None:
            del epoch
            try:
                reply = None if result is None else _read(result, name)
            except ProtocolError:
                reply = None
            match reply:
                case [bytes(data), bytes(theirs)]:
                    on_reply(data, "", theirs)
                case _:
                    on_reply(None, "does not answer" if error is None else _error_of(error, name).message)

        try:
            name = self._name(to.node)
        except Unavailable as unknown:
            on_reply(None, unknown.message)
            return
        params: list[Value] = [request, seen]
        if offer is not None:
            from gossipkv.register.metadata.ledger import Offer  # noqa: PLC0415  # As `_begin` does.

            assert isinstance(offer, Offer), offer
            params += offer.values()
        self._peers.ask_unread(name, "register", params, ANSWER_MS, on_answer)

    def is_up(self, node: bytes) -> bool:
        """Whether gossip has not found out that a node is dead, or has left, a moment ago: each write asks."""
        if (now := trio.current_time()) >= self._up_until:
            members, self._up_until = self._cluster.members_known(), now + UP_S
            self._up = {member.uuid for member in members if member.state in REACHABLE}
        return node in self._up

    def is_connected(self, name: str) -> bool:
        """Whether there is a connection to a member."""
        return self._peers.store(name) is not None

    def check_speaks(self, form: int, what: str) -> None:
        """Refuse what needs messages of that form until all members that live read them; `what` names it.

        Raises:
            Unavailable: some do not; the message names them.
        """
        if behind := [name for name, newest in self._cluster.spoken().items() if newest < form]:
            raise Unavailable(
                f"{what} needs revision {form} of what nodes tell each other, and {', '.join(sorted(behind))} "
                "read an older one: upgrade them first",
                {"revision": form, "nodes": [*sorted(behind)]},
            )

    def _name(self, node: bytes) -> str:
        for member in self._cluster.members_known():
            if member.uuid == node:
                return member.name
        raise Unavailable("it is no member that is known here", {"uuid": node.hex()})


def _read(data: bytes, name: str) -> Value:
    try:
        value: Value = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{name} answered with what is no MessagePack: {error}") from error
    return value


def _error_of(error: bytes, name: str) -> GossipKVError:
    with contextlib.suppress(ProtocolError):
        match _read(error, name):
            case [str(code), str(message), dict(details)]:
                return from_wire(code, message, details)
    return Unavailable(f"{name} answered with what is no error")
