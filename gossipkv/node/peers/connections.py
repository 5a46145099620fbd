"""Connections to the other nodes: who is dialled, when again, and what this node asks on them by itself.

A connection is dialled here, and begins with `hello`; then the serving loop has it, and forwards reads on it without
Python.  Each member has a *column*, a small number by which the loop knows it.  Members that live are dialled as soon
as they are known, so that the first read that is forwarded finds a connection; the dead only when a read wants them.

What is asked here (`ask`) goes over the same connections, so that an answer proves that reads get through as well.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, Unauthorized
from gossipkv.log import Log, Sparing
from gossipkv.node.peers import hello
from gossipkv.node.peers.proof import NONCE_BYTES
from gossipkv.wire.frames import FrameReader
from gossipkv.wire.rpc import decode_response, request

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import ByteStream
    from gossipkv.node.peers.dialling import Dialling
    from gossipkv.node.peers.hello import Hello
    from gossipkv.node.peers.proof import Prover
    from gossipkv.serving.pump import PeerEvent, PeerReply
    from gossipkv.serving.pumps import Ways
    from gossipkv.table.participant.words import Words
    from gossipkv.wire.results import OnAnswer
    from gossipkv.wire.rpc import Value

    OnReply = Callable[[Value, int | None], None]  # A question's result, and the epoch of who gave it; None: none came.
    OnConnection = Callable[[str, bytes], object]  # Told that a connection to a member began, or ended; must not raise.

# Who does not answer in so long is not there; a handshake on a busy machine takes a tenth of that.
DIAL_TIMEOUT_S: Final = 2.0

# Between two attempts at one member, doubling; a read that wants it waits no longer than the first.
FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 5.0

LOST: Final = 2  # States of peers from here on: dead, or gone.

# No hello is longer.
MAX_HELLO_BYTES: Final = 4096


class NodePeer(NamedTuple):
    """A member that may be asked."""

    name: str
    uuid: bytes
    address: Address
    state: int  # 0: alive, 1: suspect, 2: dead or gone; whom to ask first.
    epoch: int  # The newest that is known of it; 0: none is.


@final
class _Line:
    """The way to one member."""

    def __init__(self, peer: NodePeer, column: int) -> None:
        self.peer = peer
        self.column = column
        self.epoch: int | None = None  # As the other end has said; None: not connected.
        self.store = 0, 0  # Likewise, of its tables' store: the id and the life.
        self.dialled_for = 0  # The newest epoch that was known of it then.
        self.failure: str | None = None  # Why it is not.
        self.scope = trio.CancelScope()
        self._moved = trio.Event()

    @property
    def is_up(self) -> bool:
        """Whether there is a connection, and not to a life that it had before.

        A machine that loses its power ends no connection; what is asked on it would wait for its timeout.
        """
        return self.epoch is not None and self.peer.epoch <= max(self.epoch, self.dialled_for)

    def move(self) -> None:
        """Let its task look: the connection was lost, somebody wants one, or the other end began anew."""
        self._moved.set()

    async def moved(self) -> None:
        """Return when it is to look."""
        await self._moved.wait()
        self._moved = trio.Event()


@final
class NodePeers:
    """The ways to all members but this one."""

    def __init__(
        self,
        dialling: Dialling,
        random: random.Random,
        table: Ways,
        adopt: Callable[[int, ByteStream], None],
        *,
        mine: Callable[[], Hello],
        prover: Prover | None,
        words: Callable[[], Words],
        on_unreached: Callable[[str], None],
        on_not_served: Callable[[], None],
        on_damaged: Callable[[bytes], None],
        wake: Callable[[], None],
        beside: Sequence[NodePeers] = (),
    ) -> None:
        """Begin without members; `beside`: the ways of further pumps to the same members, which are run and told here.

        `on_unreached`: a member's connection broke, or cannot be had.  `on_not_served`: a member that was asked for a
        partition does not serve it any more.  `on_damaged`: others are asked for what cannot be read here, such as
        `[database, key, version]`, as MessagePack.  `wake` has the serving loop send what it is to ask.
        """
        self._dialling = dialling
        self._random = random
        self._table = table
        self._adopt = adopt
        self._mine = mine
        self._prover = prover
        self._words = words
        self._on_unreached = on_unreached
        self._on_not_served = on_not_served
        self._on_damaged = on_damaged
        self._wake = wake
        self._beside = beside
        self._lines: dict[str, _Line] = {}
        self._columns: list[_Line | None] = []
        self._questions: dict[int, tuple[_Line, int, OnAnswer]] = {}
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
        """Take in the members as they are known now; who is not among them is forgotten."""
        known = {peer.name: peer for peer in peers}
        for others in self._beside:
            others.tell(known.values())  # In the same order, so columns are the same.
        for name in self._lines.keys() - known.keys():
            self._forget(self._lines.pop(name))
        for name, peer in known.items():
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
                line.move()  # Who was dead may live.
            self._table.set_peer(line.column, name, peer.state)

    def watch(self, *, begun: OnConnection | None = None, ended: OnConnection | None = None) -> None:
        """Have somebody told of connections from now on, in turn for each member.

        `begun`: the member can be asked.  `ended`: what it answered may be untrue by now.
        """
        self._on_begun += [] if begun is None else [begun]
        self._on_ended += [] if ended is None else [ended]

    def column(self, name: str) -> int | None:
        """The number of a member for the serving loop; None: it is not known."""
        line = self._lines.get(name)
        return None if line is None else line.column

    def name(self, column: int) -> str | None:
        """Whose number that is."""
        line = self._columns[column] if column < len(self._columns) else None
        return None if line is None else line.peer.name

    def store(self, name: str) -> tuple[int, int] | None:
        """What a member has said of its tables' store when the connection to it began: id and life; 0: there was none.

        None: there is no connection.
        """
        line = self._lines.get(name)
        return None if line is None or line.epoch is None else line.store

    @property
    def failures(self) -> dict[str, str]:
        """Why there is no connection to members that seem to live."""
        lines = self._lines.values()
        return {line.peer.name: line.failure for line in lines if line.failure and line.peer.state < LOST}

    def ask(self, name: str, method: str, params: list[Value], timeout_ms: int, on_reply: OnReply) -> None:
        """Ask a member; `on_reply` is called once, now if there is no connection."""

        def read(result: bytes | None, error: bytes | None, epoch: int | None) -> None:
            del error
            try:
                value: Value = None if result is None else msgpack.unpackb(result)
            except ValueError:
                result = None
            on_reply(*((None, None) if result is None else (value, epoch)))

        self.ask_unread(name, method, params, timeout_ms, read)

    def ask_unread(self, name: str, method: str, params: list[Value], timeout_ms: int, on_answer: OnAnswer) -> None:
        """Ask a member; `on_answer` is called once, as the answer came; now if there is no connection."""
        line = self._lines.get(name)
        token = 0
        if line is not None and line.epoch is not None:
            token = self._table.ask(line.column, method.encode(), msgpack.packb(params), timeout_ms)
        if line is None or line.epoch is None or token == 0:
            on_answer(None, None, None)
            return
        self._questions[token] = (line, line.epoch, on_answer)
        self._wake()

    # What the serving loop tells

    def hear(self, events: list[PeerEvent], replies: list[PeerReply]) -> None:
        """Take in what became of connections and questions since the last time."""
        for token, result, error in replies:
            line, epoch, on_answer = self._questions.pop(token)
            on_answer(*((result, error, epoch) if line.epoch == epoch else (None, None, epoch)))
        for column, event, detail in events:
            if event == "lost":
                self._lost(column, str(detail))
            elif event == "wanted":
                self._wanted(column)
            elif event == "damaged":
                assert isinstance(detail, bytes), detail
                self._on_damaged(detail)
            else:
                self._on_not_served()

    def _lost(self, column: int, why: str) -> None:
        line = self._columns[column]
        if line is not None and line.epoch is not None:
            line.failure = f"the connection ended ({why.removeprefix('closed_')})"
            line.move()
            self._end(line)
            self._on_unreached(line.peer.name)

    def _wanted(self, column: int) -> None:
        """A read would ask a member to which there is no connection."""
        line = self._columns[column]
        if line is not None:
            line.move()

    # Inside

    def _begin(self, peer: NodePeer) -> _Line:
        free = next((column for column, line in enumerate(self._columns) if line is None), len(self._columns))
        line = _Line(peer, free)
        self._columns[free : free + 1] = [line]
        if self._nursery is not None:
            self._nursery.start_soon(self._keep, line)
        return line

    def _forget(self, line: _Line) -> None:
        line.scope.cancel()
        self._columns[line.column] = None
        self._table.forget_peer(line.column)
        self._end(line)

    def _end(self, line: _Line) -> None:
        """Have no connection to a member any more."""
        if line.epoch is not None:
            line.epoch = None
            for tell in self._on_ended:
                tell(line.peer.name, line.peer.uuid)

    async def _keep(self, line: _Line) -> None:
        """Have a connection whenever there can be one."""
        with line.scope:
            pauses = self._pauses()
            while True:
                if not line.is_up and await self._dial(line):
                    pauses = self._pauses()
                if line.is_up or line.peer.state >= LOST:
                    await line.moved()
                    if line.is_up:
                        continue
                    await trio.sleep(FIRST_PAUSE_S)
                else:
                    await trio.sleep(FIRST_PAUSE_S)
                    with trio.move_on_after(next(pauses)):
                        await line.moved()

    def _pauses(self) -> Iterator[float]:
        pause_s = FIRST_PAUSE_S
        while True:
            yield self._random.uniform(0, pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _dial(self, line: _Line) -> bool:
        """Whether the serving loop has a new connection now; an older one goes then, and not before."""
        newest = line.peer.epoch
        try:
            with trio.fail_after(DIAL_TIMEOUT_S):
                stream = await self._dialling.connect(line.peer.address, line.peer.uuid)
                try:
                    theirs = await self._greet(stream, line.peer)
                except BaseException:
                    with trio.CancelScope(shield=True):
                        await stream.aclose()
                    raise
        except (OSError, trio.TooSlowError, GossipKVError) as error:
            self._say(line, _reason(error))
            self._on_unreached(line.peer.name)
            return False
        self._end(line)
        line.epoch, line.dialled_for, line.failure = theirs.epoch, newest, None
        line.store = theirs.store, theirs.life
        self._adopt(line.column, stream)
        for tell in self._on_begun:
            tell(line.peer.name, line.peer.uuid)
        return True

    async def _greet(self, stream: ByteStream, peer: NodePeer) -> Hello:
        """Say hello; what whoever answers says of itself.

        Raises:
            OSError: nobody answers.
            Unauthorized, ProtocolError: whoever does is not that member.
        """
        mine = self._mine()._replace(word=self._words().made_for(peer.uuid))
        is_proven = self._dialling.proves
        if self._prover is not None:
            mine = mine._replace(nonce=self._random.randbytes(NONCE_BYTES))
        theirs = await _exchange(stream, mine)
        mine.check(theirs)
        if theirs.uuid != peer.uuid:
            raise Unauthorized(
                f"{peer.address} is the node {theirs.uuid.hex()} now, not {peer.name}",
                {"uuid": peer.uuid.hex(), "other": theirs.uuid.hex()},
            )
        if self._prover is not None and (again := self._prover.ask(mine, theirs)) is not None:
            theirs, is_proven = await _exchange(stream, again), True
        self._words().hear_seen(theirs.seen, is_proven=is_proven)
        return theirs

    def _say(self, line: _Line, failure: str) -> None:
        """Note why there is no connection; in the log when it is another reason, once a minute at most for each."""
        is_new = line.failure != failure and line.peer.state == 0
        if is_new and self._sparing.lets(trio.current_time(), line.peer.name, failure):
            self._log.info("peer_unreached", node=line.peer.name, address=str(line.peer.address), reason=failure)
        line.failure = failure


async def _exchange(stream: ByteStream, mine: Hello) -> Hello:
    """Say hello; what is answered.

    Raises:
        OSError: nobody answers.
        GossipKVError: whoever does refuses, or does not say hello.
    """
    await stream.send_all(request(0, "hello", [mine.to_map()]))
    reader = FrameReader(MAX_HELLO_BYTES)
    while True:
        received = await stream.receive_some(MAX_HELLO_BYTES)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "closed without a hello")
        reader.feed(received)
        for frame in reader:
            response = decode_response(frame)
            if response.error is not None:
                raise response.error
            return hello.of_answer(response.result)


def _reason(error: OSError | trio.TooSlowError | GossipKVError) -> str:
    match error:
        case trio.TooSlowError():
            return f"no answer in {DIAL_TIMEOUT_S:.0f} s"
        case GossipKVError():
            return error.message
        case _:
            return error.strerror or type(error).__name__
