"""The ways from the tables of a node to other nodes, by uuid: who asks with a task, and who is called back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, ProtocolError, Unavailable, Unknown, from_wire
from gossipkv.table.hints import decode_hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Threads
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.shell import OnReply
    from gossipkv.replication.shell import OnAnswer
    from gossipkv.table.hints import Hint
    from gossipkv.table.host import Cluster, Peers
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

ANSWER_MS: Final = 3000  # Until an acceptor that has not answered counts as silent; its disk may be slow.
SPEAKS_OF_SEEN: Final = 2  # Who reads so much is told with each request what was seen of stores,
SPEAKS_OF_OFFERS: Final = 3  # and who reads so much, what belongs to a value; who does not fetches it.
SPEAKS_OF_RECORDS: Final = 4  # Who reads so much has tables with records,
SPEAKS_OF_MOVES: Final = 5  # who reads so much, what the catalogue and maps say of nodes that come and go,
SPEAKS_OF_RANGES: Final = 6  # who reads so much, goes on with the children of a range that was divided,
SPEAKS_OF_TIME: Final = 7  # and who reads so much, takes what was smeared, of tables that have a time key.
WAITING: Final = 2  # What a node speaks that can be asked to wait.
WAIT_PART: Final = 0.8  # Of the time in which it is to answer.
CONNECT_S: Final = 1.0  # Who has just come is seen before there is a connection to it.


@final
class Asking:
    """The ways to other nodes, by uuid."""

    def __init__(self, cluster: Cluster, peers: Peers, threads: Threads) -> None:
        self._cluster = cluster
        self._peers = peers
        self._threads = threads
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
        self._peers.ask_unread(name, method, params, max(1, int(timeout_s * 1000)), on_answer)

    async def known(self, node: bytes, register: bytes, timeout_s: float, *, config: int = 0) -> Hint | None:
        """What a node knows of a register, once that is at least of that config id; None: nothing.

        Who cannot wait answers at once, and so does everybody when the time is nearly over: `Hint.config` tells.

        Raises:
            GossipKVError: as `ask`.
            ProtocolError: it answered something else.
        """
        params: list[Value] = [register]
        if config and self._peers.speaks(self._name(node)) >= WAITING:
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
                case bytes():
                    on_reply(reply, "")
                case [bytes(data), bytes(theirs)]:
                    on_reply(data, "", theirs)
                case _:
                    on_reply(None, "does not answer" if error is None else _error_of(error, name).message)

        try:
            name = self._name(to.node)
        except Unavailable as unknown:
            on_reply(None, unknown.message)
            return
        speaks = self._peers.speaks(name)
        params: list[Value] = [request]
        if speaks >= SPEAKS_OF_SEEN:
            params.append(seen)
        if speaks >= SPEAKS_OF_OFFERS and offer is not None:
            from gossipkv.register.metadata.ledger import Offer  # noqa: PLC0415  # As `_begin` does.

            assert isinstance(offer, Offer), offer
            params += offer.values()
        self._peers.ask_unread(name, "register", params, ANSWER_MS, on_answer)

    def is_connected(self, name: str) -> bool:
        """Whether there is a connection to a member that reads what replication asks."""
        return self._peers.speaks(name) >= SPEAKS_OF_RECORDS

    def check_speaks(self, form: int, what: str) -> None:
        """See that all members that live read messages of that form; `what` a release does that reads them.

        Raises:
            Unavailable: they do not.
        """
        if self._cluster.speaks() < form:
            raise Unavailable(f"not all nodes run a release that {what}: upgrade them first")

    def check_divides(self) -> None:
        """See that all members that live go on with the children of a range that was divided.  Raises Unavailable."""
        self.check_speaks(SPEAKS_OF_RANGES, "divides ranges")

    def _name(self, node: bytes) -> str:
        for member in self._cluster.members_known():
            if member.uuid == node:
                return member.name
        raise Unavailable(f"no member {node.hex()} is known")


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
