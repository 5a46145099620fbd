"""Connections to other nodes: hello, dialling, back-off and requests."""

from __future__ import annotations

import random
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.address import Address
from gossipkv.errors import GossipKVError, ProtocolError, Unauthorized
from gossipkv.node.peers import hello
from gossipkv.node.peers.connections import DIAL_TIMEOUT_S, LAST_PAUSE_S, NodePeer, NodePeers, PeerEvents
from gossipkv.node.peers.greeting import Greeter
from gossipkv.node.peers.hello import Hello
from gossipkv.protocol import PROTOCOL_MAX
from gossipkv.wire import rpc
from gossipkv.wire.results import NodeAnswer, NotAnswered, NotReached
from tests.unit.wire.answers import error_response

if TYPE_CHECKING:
    from gossipkv.environment.seam import ByteStream, Datagrams, HasFileno, SocketListener
    from gossipkv.wire.rpc import Value

MINE = Hello(PROTOCOL_MAX, b"c" * 8, b"a" * 16, 3)
THEIRS = Hello(PROTOCOL_MAX, b"c" * 8, b"b" * 16, 9, 2**64 - 1, 4)
B = NodePeer("b", b"b" * 16, Address("10.0.0.2", 7070), 0, THEIRS.epoch)


class OneAnswer:
    """A connection whose other end sends one answer, and nothing more."""

    def __init__(self, answer: bytes) -> None:
        self.sent = b""
        self.closed = False
        self._answer = answer

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += data

    async def receive_some(self, most_bytes: int) -> bytes:
        """Return one byte at a time, then the end."""
        await trio.lowlevel.checkpoint()
        assert most_bytes > 0
        given, self._answer = self._answer[:1], self._answer[1:]
        return given

    def detach(self) -> object:
        raise NotImplementedError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


class Network:
    """A network that answers each dial with the next planned answer; without one it refuses."""

    def __init__(self) -> None:
        self.answers: deque[bytes] = deque()
        self.dialled: list[tuple[float, Address]] = []
        self.streams: list[OneAnswer] = []
        self.hangs = self.proves = False

    async def connect(self, to: Address, uuid: bytes | None = None, name: str = "") -> ByteStream:
        self.dialled.append((trio.current_time(), to))
        await trio.lowlevel.checkpoint()
        if self.hangs:
            await trio.sleep_forever()
        if not self.answers:
            raise ConnectionRefusedError(111, "Connection refused")
        self.streams.append(OneAnswer(self.answers.popleft()))
        return self.streams[-1]

    def listen(self, host: str, port: int, backlog: int) -> SocketListener:
        raise NotImplementedError

    def datagrams(self, host: str, port: int) -> Datagrams:
        raise NotImplementedError

    async def wait_readable(self, source: HasFileno) -> None:
        raise NotImplementedError

    async def resolve(self, name: Address) -> list[Address]:
        raise NotImplementedError

    def source_towards(self, to: Address) -> str:
        raise NotImplementedError


class Table:
    """A serving loop's core that records its calls."""

    def __init__(self) -> None:
        self.peers: dict[int, tuple[str, int]] = {}
        self.asked: list[tuple[int, bytes, Value]] = []
        self.ended: list[int] = []

    def set_peer(self, column: int, name: str, state: int) -> None:
        self.peers[column] = (name, state)

    def end_peer(self, column: int) -> None:
        self.ended.append(column)

    def forget_peer(self, column: int) -> None:
        del self.peers[column]

    def ask(self, column: int, method: bytes, params: bytes, timeout_ms: int) -> int:
        assert timeout_ms > 0
        self.asked.append((column, method, msgpack.unpackb(params)))
        return len(self.asked)


class World:
    """This node's peers, running."""

    def __init__(self) -> None:
        self.network = Network()
        self.table = Table()
        self.adopted: list[tuple[int, ByteStream]] = []
        self.lost: list[str] = []
        self.unreached: list[str] = []
        self.woken: list[None] = []
        self.table.adopt = lambda column, stream: self.adopted.append((column, stream))
        self.table.wake = lambda: self.woken.append(None)
        greeter = Greeter(self.network, random.Random(1), mine=lambda: MINE, prover=None, words=lambda: self)
        events = PeerEvents(
            self.unreached.append,
            lambda: self.lost.append("not served"),
            lambda record: self.lost.append(record.decode()),
        )
        self.peers = NodePeers(greeter, random.Random(1), self.table, events)
        self.turns: list[tuple[str, bytes, bool]] = []  # Connections that began, and ended.
        self.peers.watch(
            begun=lambda name, uuid: self.turns.append((name, uuid, self.peers.store(name) is not None)),
            ended=lambda name, uuid: self.turns.append((name, uuid, self.peers.store(name) is not None)),
        )
        self.peers.watch(ended=lambda name, _uuid: self.lost.append(name))
        self.heard: list[tuple[bytes, bool]] = []

    def made_for(self, node: bytes) -> bytes:
        return b"for " + node

    def hear_seen(self, seen: bytes, *, is_proven: bool) -> None:
        self.heard.append((seen, is_proven))


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """Return a running world; the test controls the time."""
    made = World()
    await nursery.start(made.peers.run)
    return made


def greeting(of: Hello = THEIRS) -> bytes:
    return rpc.response(0, of.to_map())


async def test_a_member_is_dialled_and_greeted(autojump_clock, world):
    """The hello asks for the identity, and the serving loop adopts the connection if it is the right node."""
    world.network.answers.append(greeting())
    world.peers.tell([B])
    await trio.sleep(0.01)
    [(column, stream)] = world.adopted
    assert world.table.peers == {column: ("b", 0)}
    assert rpc.decode_request(stream.sent).method == b"hello"
    assert (world.peers.name(column), world.peers.column("b"), world.peers.failures) == ("b", column, {})
    await trio.sleep(60)
    assert len(world.network.dialled) == 1


async def test_what_a_member_says_of_its_store(autojump_clock, world):
    """The values are those at the beginning of the connection, 0 where missing, and none without a connection."""
    short = {name: THEIRS._asdict()[name] for name in ("protocol", "cluster_id", "uuid", "epoch")}
    assert world.peers.store("b") is None
    world.network.answers += [rpc.response(0, short), greeting()]
    world.peers.tell([B])
    assert world.peers.store("b") is None
    await trio.sleep(0.01)
    assert world.peers.store("b") == (0, 0)
    world.peers.hear([(world.peers.column("b"), "lost", "reset")], [])
    assert world.peers.store("b") is None
    await trio.sleep(60)
    assert world.peers.store("b") == (2**64 - 1, 4)


@pytest.mark.parametrize("proves", [False, True])
async def test_a_member_that_is_dialled_says_what_it_has_seen(autojump_clock, world, proves):
    """The member gets a word that identifies the node later, and no positions: the other end may be any process."""
    world.network.proves = proves
    world.network.answers.append(greeting(THEIRS._replace(seen=b"theirs")))
    world.peers.tell([B])
    await trio.sleep(0.01)
    [(_, stream)] = world.adopted
    assert world.heard == [(b"theirs", proves)]
    [said] = msgpack.unpackb(stream.sent)[3]
    assert (said["seen"], said["word"]) == (b"", b"for " + B.uuid)


@pytest.mark.parametrize("answer", [
    greeting(THEIRS._replace(protocol=PROTOCOL_MAX + 1)),
    greeting(THEIRS._replace(min=PROTOCOL_MAX + 1, max=PROTOCOL_MAX + 2)),
    greeting(THEIRS._replace(cluster_id=b"d" * 8)),
    greeting(THEIRS._replace(uuid=b"x" * 16)), error_response(0, Unauthorized("no")), rpc.response(0, "pong"), b"",
    b"\xc1", b"HTTP/1.1 400 Bad Request\r\n", greeting()[:-1], rpc.response(0, {"protocol": 1}),
    rpc.response(0, "x" * 5000), greeting(THEIRS._replace(store=-1)), greeting(THEIRS._replace(life=-1)),
    rpc.response(0, {**THEIRS._asdict(), "store": "1"}), rpc.response(0, {**THEIRS._asdict(), "life": None}),
])  # fmt: skip
async def test_whoever_is_not_meant_is_not_asked(autojump_clock, world, answer):
    """For another protocol, cluster or node the connection is closed, and the reason is known."""
    world.network.answers.append(answer)
    world.peers.tell([B])
    await trio.sleep(0.01)
    assert world.network.streams[0].closed
    assert not world.adopted
    assert "b" in world.peers.failures


def test_what_cannot_be_read_here_is_passed_on():
    """Damage of a record concerns this node and no column."""
    world = World()
    world.peers.hear([(-1, "damaged", b"record")], [])
    assert world.lost == ["record"]


async def test_who_cannot_be_reached_is_tried_again_ever_more_seldom(autojump_clock, world):
    """A read that wants the node causes an attempt almost at once."""
    world.peers.tell([B])
    await trio.sleep(600)
    at = [when for when, _ in world.network.dialled]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert gaps[0] < 0.1
    assert max(gaps) <= LAST_PAUSE_S + 0.1
    assert 600 / LAST_PAUSE_S < len(at) < 600 / LAST_PAUSE_S * 3
    tried = len(at)
    for _ in range(10):
        world.peers.hear([(world.peers.column("b"), "wanted", None)], [])
        await trio.sleep(0.025)
    assert 10 <= len(world.network.dialled) - tried <= 12


async def test_the_dead_are_dialled_when_they_are_wanted(autojump_clock, world):
    """A dead member is dialled only on demand, or when it lives again."""
    world.peers.tell([B._replace(state=2)])
    await trio.sleep(0.05)
    tried = len(world.network.dialled)
    await trio.sleep(600)
    assert len(world.network.dialled) == tried
    world.network.answers.append(greeting())
    world.peers.hear([(world.peers.column("b"), "wanted", None)], [])
    await trio.sleep(0.1)
    assert len(world.adopted) == 1


async def test_a_host_that_says_nothing_does_not_hold_the_task(autojump_clock, world):
    """A dial has a time limit."""
    world.network.hangs = True
    world.peers.tell([B])
    await trio.sleep(DIAL_TIMEOUT_S + 1)
    assert (world.lost, world.unreached) == ([], ["b"])
    world.network.hangs = False
    world.network.answers.append(greeting())
    await trio.sleep(2 * DIAL_TIMEOUT_S)
    assert len(world.adopted) == 1


async def test_what_was_lost_is_dialled_anew_and_said(autojump_clock, world):
    """The owners of outstanding requests are told."""
    world.network.answers += [greeting(), greeting(THEIRS._replace(epoch=10))]
    world.peers.tell([B])
    await trio.sleep(0.01)
    column = world.peers.column("b")
    world.peers.hear([(column, "lost", "reset")], [])
    assert world.lost == world.unreached == ["b"]
    assert world.peers.failures == {"b": "the connection ended (reset)"}
    await trio.sleep(0.1)
    assert len(world.adopted) == 2
    assert world.peers.failures == {}


async def test_connections_that_begin_and_end_are_told_in_turn(autojump_clock, world):
    """The calls cover lost, restarted and forgotten members, which can be asked as soon as a connection begins."""
    world.network.answers += [greeting(), greeting(), greeting(THEIRS._replace(epoch=10))]
    world.peers.tell([B])
    await trio.sleep(0.1)
    begun, ended = ("b", B.uuid, True), ("b", B.uuid, False)
    assert world.turns == [begun]
    world.peers.hear([(world.peers.column("b"), "lost", "reset")], [])
    assert world.turns == [begun, ended]
    await trio.sleep(0.1)
    world.peers.tell([B._replace(epoch=10)])
    await trio.sleep(0.1)
    assert world.turns == [begun, ended, begun, ended, begun]
    world.peers.tell([])
    await trio.sleep(60)
    assert world.turns == 3 * [begun, ended]


async def test_who_began_anew_is_dialled_anew(autojump_clock, world):
    """A power loss ends no connection: news of the next life does, once that life has been greeted."""
    world.network.answers += [greeting(), greeting(THEIRS._replace(epoch=10))]
    world.peers.tell([B])
    await trio.sleep(0.01)
    world.peers.tell([B._replace(epoch=10)])
    assert not world.lost
    await trio.sleep(0.1)
    assert [column for column, _ in world.adopted] == 2 * [world.peers.column("b")]
    assert world.lost == ["b"]
    await trio.sleep(600)
    assert len(world.network.dialled) == 2


async def test_an_epoch_that_nobody_lives_costs_a_dial(autojump_clock, world):
    """The epoch was invented or is not known to its owner yet: the connection stays in use."""
    world.network.answers += [greeting(), greeting()]
    world.peers.tell([B])
    await trio.sleep(0.01)
    world.peers.tell([B._replace(epoch=50)])
    await trio.sleep(600)
    assert len(world.network.dialled) == len(world.adopted) == 2
    world.peers.tell([B._replace(epoch=51)])
    await trio.sleep(600)
    assert len(world.adopted) == 2
    assert world.peers.failures == {"b": "Connection refused"}
    assert len(world.network.dialled) > 600 / LAST_PAUSE_S  # The existing connection stays.
    assert world.lost == ["b"]


async def test_members_come_and_go(autojump_clock, world):
    """Each known member has its own column; a new address makes a new connection."""
    world.network.answers += [greeting()] * 3
    c = NodePeer("c", b"b" * 16, Address("10.0.0.3", 7070), 0, THEIRS.epoch)
    world.peers.tell([B, c])
    await trio.sleep(0.01)
    columns = {world.peers.column(name) for name in ("b", "c")}
    assert len(columns) == 2
    world.peers.tell([c._replace(state=1)])
    assert world.lost == ["b"]
    assert world.table.peers == {world.peers.column("c"): ("c", 1)}
    world.peers.tell([c._replace(state=1, address=Address("10.0.0.4", 7070))])
    await trio.sleep(0.01)
    assert world.lost == ["b", "c"]
    assert world.network.dialled[-1][1] == Address("10.0.0.4", 7070)


async def test_a_question_and_its_answer(autojump_clock, world):
    """The callback gets the answer and the epoch of the other end."""
    heard: list[NodeAnswer | GossipKVError] = []
    world.peers.ask("b", "serves", ["geo", b"i" * 16], 100, heard.append)
    assert [*map(type, heard)] == [NotReached], "nobody is known"
    world.network.answers.append(greeting())
    world.peers.tell([B])
    world.peers.ask("b", "serves", [], 100, heard.append)
    assert [*map(type, heard)] == [NotReached] * 2, "nobody is connected"
    await trio.sleep(0.01)
    for _ in range(3):
        world.peers.ask("b", "serves", ["geo", b"i" * 16], 100, heard.append)
    column = world.peers.column("b")
    assert len(world.woken) == 3
    assert world.table.asked[0] == (column, b"serves", ["geo", b"i" * 16])
    world.peers.hear([], [(1, msgpack.packb({"ready": b"\x01"}), None)])
    assert heard[2:] == [NodeAnswer(msgpack.packb({"ready": b"\x01"}), 9)]
    world.peers.hear([], [(2, None, b"\xc1")])
    assert str(heard[3]) == "the error in the answer of b is malformed"
    world.peers.hear([(column, "lost", "reset")], [])
    world.peers.hear([], [(3, msgpack.packb({"ready": b"\x01"}), None)])
    assert [*map(type, heard[4:])] == [NotAnswered], "the answer of a connection that is gone proves nothing"


async def test_a_dead_member_loses_its_connection_unless_it_answers(autojump_clock, world):
    """Gossip may be wrong of it; a frozen one would keep its connection, and all that wait for it would wait on."""
    heard: list[NodeAnswer | GossipKVError] = []
    world.network.answers.append(greeting())
    world.peers.tell([B])
    await trio.sleep(0.1)
    world.peers.ask("b", "table_write", [], 20_000, heard.append)
    world.peers.tell([B._replace(state=1)])
    await trio.sleep(10)
    assert len(world.table.asked) == 1, "a suspect may answer"
    world.peers.tell([B._replace(state=2)])
    await trio.sleep(0.1)
    assert world.table.asked[1:] == [(0, b"ping", [])]
    world.peers.hear([], [(2, b"\xa4pong", None)])
    await trio.sleep(2)
    assert (heard, world.table.ended) == ([], []), "it has answered"
    assert world.table.asked[2:] == [(0, b"ping", [])]
    world.peers.hear([], [(3, None, None)])
    assert world.table.ended == [0]
    world.peers.hear([(0, "lost", "closed_cut")], [(1, None, None)])
    assert [*map(str, heard)] == ["b did not answer"]
    await trio.sleep(10)
    assert len(world.table.asked) == 3, "nobody is connected"
    world.network.answers.append(greeting())
    world.peers.tell([B])
    await trio.sleep(0.1)
    world.peers.ask("b", "table_write", [], 20_000, heard.append)
    world.peers.hear([], [(4, b"\x04", None)])
    assert heard[1:] == [NodeAnswer(b"\x04", 9)]


async def test_a_member_that_is_back_keeps_its_connection(autojump_clock, world):
    """The ping may have been lost before gossip heard of the member again."""
    world.network.answers.append(greeting())
    world.peers.tell([B])
    await trio.sleep(0.1)
    for state in (2, 0):
        world.peers.tell([B._replace(state=state)])
        await trio.sleep(0.1)
    world.peers.hear([], [(1, None, None)])
    assert (len(world.table.asked), world.table.ended) == (1, [])


def test_a_hello_is_checked_by_both():
    """Both sides refuse another protocol or cluster, and missing or wrong fields."""
    MINE.check(THEIRS)
    for other in (THEIRS._replace(protocol=0), THEIRS._replace(cluster_id=b"")):
        with pytest.raises(Unauthorized, match="this node"):
            MINE.check(other)
    assert hello.of_answer({"more": 1, **THEIRS._asdict()}) == THEIRS
    changed = ({"uuid": b"u"}, {"epoch": -1}, {"seen": None})
    for wrong in (None, [], {}, *(THEIRS._asdict() | each for each in changed)):
        with pytest.raises(ProtocolError):
            hello.of_answer(wrong)
