"""Connections to the other nodes: which members are dialled, when again, and the questions that this node asks on them.

A connection begins with `hello` (`greeting`); then the serving loop owns it, and forwards reads on it without
Python. Each member has a *column*, a small number by which the loop knows the member. Live members are dialled as
soon as they are known, so that the first forwarded read finds a connection; dead ones only when a read wants them.

Gossip may be wrong of the dead, so a dead member keeps its connection while it answers a ping on it each second. If it
does not, the connection ends, and with it all requests that wait for this member: one that is frozen or cut off would
never end it. While this node is cut off, all members count as dead.

Questions (`ask`) use the same connections, so an answer proves that reads get through as well.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack
import trio

from gossipkv.errors import GossipKVError
from gossipkv.log import Log, Sparing
from gossipkv.wire.results import NodeAnswer, NotAnswered, NotReached
from gossipkv.wire.rpc import refusal_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gossipkv.address import Address
    from gossipkv.node.peers.greeting import Greeter
    from gossipkv.serving.pump import PeerEvent, PeerReply
    from gossipkv.serving.pumps import Ways
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    OnConnection = Callable[[str, bytes], object]  # Called when a connection to a member begins or ends; never raises.

DIAL_TIMEOUT_S: Final = 2.0  # A member that takes longer is away; a handshake on a busy machine takes a tenth of this.

# Pauses between two attempts at one member, doubling; a read that wants the member waits only for the first.
FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 5.0

PROOF_S: Final = 1.0  # A dead member that has not answered a ping after this time loses its connection.

LOST: Final = 2  # Members from this state on are dead or gone.


class NodePeer(NamedTuple):
    """A member that may be asked."""

    name: str
    uuid: bytes
    address: Address
    state: int  # 0: alive, 1: suspect, 2: dead or gone; decides which is asked first.
    epoch: int  # The newest known epoch of the member; 0: none is known.


class PeerEvents(NamedTuple):
    """Callbacks for events of the connections to members."""

    unreached: Callable[[str], None]  # A member's connection broke, or cannot be made.
    not_served: Callable[[], None]  # A member no longer serves a partition that it was asked for.
    damaged: Callable[[bytes], None]  # Other members should be asked for this `[database, key, version]`, MessagePack.


@final
class _PeerConnection:
    def __init__(self, peer: NodePeer, column: int) -> None:
        self.peer = peer
        self.column = column
        self.epoch: int | None = None  # The epoch in the other end's hello; None: not connected.
        self.store = 0, 0  # The id and the life of its tables' store, in the same hello.
        self.dialled_for = 0  # The newest epoch known of it when it was dialled.
        self.failure: str | None = None  # The reason why there is no connection.
        self.scope = trio.CancelScope()
        self._moved = trio.Event()

    @property
    def is_up(self) -> bool:
        """True if there is a connection, and not to an earlier life of the member.

        A machine that loses power ends no connection; a question on an old one would wait for its timeout.
        """
        return self.epoch is not None and self.peer.epoch <= max(self.epoch, self.dialled_for)

    def move(self) -> None:
        """Wake the member's task: the connection was lost, a read wants one, or the other end began anew."""
        self._moved.set()

    async def moved(self) -> None:
        """Return when `move` is called."""
        await self._moved.wait()
        self._moved = trio.Event()


@final
class NodePeers:
    """The connections to all other members, for one serving loop."""

    def __init__(
        self,
        greeter: Greeter,
        random: random.Random,
        ways: Ways,
        events: PeerEvents,
        beside: Sequence[NodePeers] = (),
    ) -> None:
        """Begin without members; `beside`: connections of further serving loops to the same members, managed here."""
        self._greeter = greeter
        self._random = random
        self._ways = ways
        self._events = events
        self._beside = beside
        self._lines: dict[str, _PeerConnection] = {}
        self._columns: list[_PeerConnection | None] = []
        self._questions: dict[int, tuple[_PeerConnection, int, Completion[NodeAnswer]]] = {}
        self._on_begun: list[OnConnection] = []
        self._on_ended: list[OnConnection] = []
        self._nursery: trio.Nursery | None = None
        self._log = Log("gossipkv.node")
        self._sparing = Sparing()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for line in self._lines.values():
                nursery.start_soon(self._keep, line)
            for peers in self._beside:
                nursery.start_soon(peers.run)
            task_status.started()
            await trio.sleep_forever()

    def tell(self, peers: Iterable[NodePeer]) -> None:
        """Replace the members by those known now; forget all others."""
        by_name = {peer.name: peer for peer in peers}
        for connections in self._beside:
            connections.tell(by_name.values())  # The same order gives the same columns.
        for name in self._lines.keys() - by_name.keys():
            self._forget(self._lines.pop(name))
        for name, peer in by_name.items():
            line = self._lines.get(name)
            if line is not None and (line.peer.uuid, line.peer.address) != (peer.uuid, peer.address):
                self._forget(self._lines.pop(name))
                line = None
            if line is None:
                line = self._lines[name] = self._begin(peer)
            elif line.peer == peer:
                continue
            else:
                line.peer = peer
                line.move()  # It may have died, or be back.
            self._ways.set_peer(line.column, name, peer.state)

    def watch(self, *, begun: OnConnection | None = None, ended: OnConnection | None = None) -> None:
        """Call these functions at each change of a connection, in order for each member.

        `begun`: the member can be asked. `ended`: its earlier answers may be out of date.
        """
        self._on_begun += [] if begun is None else [begun]
        self._on_ended += [] if ended is None else [ended]

    def column(self, name: str) -> int | None:
        """Return the member's number in the serving loop; None if it is not known."""
        line = self._lines.get(name)
        return None if line is None else line.column

    def name(self, column: int) -> str | None:
        """Return the member of that number; None if there is none."""
        line = self._columns[column] if column < len(self._columns) else None
        return None if line is None else line.peer.name

    def store(self, name: str) -> tuple[int, int] | None:
        """Return id and life of a member's store of tables, from the hello of its connection; zeros if it had none.

        None: there is no connection.
        """
        line = self._lines.get(name)
        return None if line is None or line.epoch is None else line.store

    @property
    def failures(self) -> dict[str, str]:
        """Reasons for which there is no connection to members that seem to live."""
        lines = self._lines.values()
        return {line.peer.name: line.failure for line in lines if line.failure and line.peer.state < LOST}

    def ask(
        self, name: str, method: str, params: list[Value], timeout_ms: int, complete: Completion[NodeAnswer]
    ) -> None:
        """Ask a member; `complete` is called once, at once with `NotReached` if there is no connection."""
        line = self._lines.get(name)
        token = 0
        if line is not None and line.epoch is not None:
            token = self._ways.ask(line.column, method.encode(), msgpack.packb(params), timeout_ms)
        if line is None or line.epoch is None or token == 0:
            complete(NotReached(f"{name} cannot be reached"))
            return
        self._questions[token] = (line, line.epoch, complete)
        self._ways.wake()

    # Events of the serving loop

    def hear(self, events: list[PeerEvent], replies: list[PeerReply]) -> None:
        """Process the events of connections and the replies since the last call."""
        for token, result, error in replies:
            line, epoch, complete = self._questions.pop(token)
            name = line.peer.name
            if line.epoch != epoch or (result is None and error is None):
                complete(NotAnswered(f"{name} did not answer"))
            elif error is not None:
                complete(refusal_of(error, name))
            else:
                assert result is not None, "an answer has a result or an error"
                complete(NodeAnswer(result, epoch))
        for column, event, detail in events:
            if event == "lost":
                self._lost(column, str(detail))
            elif event == "wanted":
                self._wanted(column)
            elif event == "damaged":
                assert isinstance(detail, bytes), detail
                self._events.damaged(detail)
            else:
                self._events.not_served()

    def _lost(self, column: int, why: str) -> None:
        line = self._columns[column]
        if line is not None and line.epoch is not None:
            line.failure = f"the connection ended ({why.removeprefix('closed_')})"
            line.move()
            self._end(line)
            self._events.unreached(line.peer.name)

    def _wanted(self, column: int) -> None:
        """Dial: a read would ask a member without a connection."""
        line = self._columns[column]
        if line is not None:
            line.move()

    # Connections

    def _begin(self, peer: NodePeer) -> _PeerConnection:
        free = next((column for column, line in enumerate(self._columns) if line is None), len(self._columns))
        line = _PeerConnection(peer, free)
        self._columns[free : free + 1] = [line]
        if self._nursery is not None:
            self._nursery.start_soon(self._keep, line)
        return line

    def _forget(self, line: _PeerConnection) -> None:
        line.scope.cancel()
        self._columns[line.column] = None
        self._ways.forget_peer(line.column)
        self._end(line)

    def _end(self, line: _PeerConnection) -> None:
        if line.epoch is not None:
            line.epoch = None
            for tell in self._on_ended:
                tell(line.peer.name, line.peer.uuid)

    async def _keep(self, line: _PeerConnection) -> None:
        with line.scope:
            pauses = self._pauses()
            while True:
                if not line.is_up and await self._dial(line):
                    pauses = self._pauses()
                if line.is_up or line.peer.state >= LOST:
                    with trio.move_on_after(self._test(line)):
                        await line.moved()
                    if line.is_up:
                        continue
                    await trio.sleep(FIRST_PAUSE_S)
                else:
                    await trio.sleep(FIRST_PAUSE_S)
                    with trio.move_on_after(next(pauses)):
                        await line.moved()

    def _test(self, line: _PeerConnection) -> float:
        """Ping a dead member on its connection, which ends without an answer. Return the seconds to the next ping."""
        if line.epoch is None or line.peer.state < LOST:
            return inf

        def hear(answer: NodeAnswer | GossipKVError) -> None:
            if isinstance(answer, NotAnswered) and line.peer.state >= LOST:
                self._ways.end_peer(line.column)

        self.ask(line.peer.name, "ping", [], int(PROOF_S * 1000), hear)
        return 2 * PROOF_S

    def _pauses(self) -> Iterator[float]:
        pause_s = FIRST_PAUSE_S
        while True:
            yield self._random.uniform(0, pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _dial(self, line: _PeerConnection) -> bool:
        """Return True if the serving loop got a new connection; only then the older one is dropped."""
        newest = line.peer.epoch
        try:
            with trio.fail_after(DIAL_TIMEOUT_S):
                stream, theirs = await self._greeter.connect(line.peer.name, line.peer.address, line.peer.uuid)
        except (OSError, trio.TooSlowError, GossipKVError) as error:
            self._say(line, _reason(error))
            self._events.unreached(line.peer.name)
            return False
        self._end(line)
        line.epoch, line.dialled_for, line.failure = theirs.epoch, newest, None
        line.store = theirs.store, theirs.life
        self._ways.adopt(line.column, stream)
        for tell in self._on_begun:
            tell(line.peer.name, line.peer.uuid)
        return True

    def _say(self, line: _PeerConnection, failure: str) -> None:
        """Note why there is no connection; log a new reason, at most once a minute for each."""
        is_new = line.failure != failure and line.peer.state == 0
        if is_new and self._sparing.lets(trio.current_time(), line.peer.name, failure):
            self._log.info("peer_unreached", node=line.peer.name, address=str(line.peer.address), reason=failure)
        line.failure = failure


def _reason(error: OSError | trio.TooSlowError | GossipKVError) -> str:
    match error:
        case trio.TooSlowError():
            return f"no answer in {DIAL_TIMEOUT_S:.0f} s"
        case GossipKVError():
            return error.message
        case _:
            return error.strerror or type(error).__name__
