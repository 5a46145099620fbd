"""Nodes dial each other by TLS over real sockets and prove their uuids; a serving loop adopts the connection."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import msgpack
import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment.trio_world import RealSockets
from gossipkv.errors import ProtocolError, Unauthorized
from gossipkv.node.peers.dialling import Dialling, Proofs
from gossipkv.serving.loop import Tls
from gossipkv.wire import rpc
from tests.unit.serving.secured import NOW, Authority, nobody
from tests.unit.serving.test_forwarding_sockets_slow import RECORDS, Cluster
from tests.unit.serving.test_serving_slow import Served
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from gossipkv.environment.seam import ByteStream
    from tests.unit.serving.secured import Pair

MINE, THEIRS, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
LISTEN = 0b001
LONG_AGO = NOW - timedelta(days=31)


class Node(Served):
    """A node that answers each request with the uuid that the caller has proved."""

    def step(self, serve_us: int = 1000) -> None:
        self.loop.round(lambda _method, _params, _caller: msgpack.packb(self.loop.proven), serve_us, 1000)


class Nodes:
    """The dialled node, and the certificate that the other one shows."""

    def __init__(self, directory: Path) -> None:
        self.served = Node(directory)
        self.peers, self.clients, self.strangers = (
            Authority(directory, name) for name in ("peers", "clients", "strangers")
        )
        self.shows(self.peers.pair("theirs", uuid=THEIRS))
        self.dialling = Dialling(RealSockets())
        self.mine(self.peers.pair("mine", uuid=MINE))

    def shows(self, pair: Pair) -> None:
        self.served.loop.use_tls(self.tls(pair), nobody)

    def mine(self, pair: Pair) -> None:
        self.dialling.use_tls(self.tls(pair))

    def tls(self, pair: Pair) -> Tls:
        return Tls(pair.certificate, pair.key, self.clients.path, self.peers.path, listeners=LISTEN)

    async def proves(self, uuid: UUID | None = THEIRS, name: str = "theirs") -> bytes | list[str] | None:
        """Dial the node of this uuid and name, and return what it has proved of the caller."""
        stream = await self.dialling.connect(Address(*self.served.address), uuid and uuid.bytes, name)
        try:
            return await asked(stream)
        finally:
            await stream.aclose()


async def refusal(nodes: Nodes) -> str:
    """Return the error of a dial, or an empty string."""
    try:
        await nodes.proves()
    except Unauthorized as error:
        return error.message
    return ""


async def asked(stream: ByteStream) -> bytes | list[str] | None:
    await stream.send_all(rpc.request(1, "hello", [{}]))
    proven: bytes | list[str] | None = msgpack.unpackb(await stream.receive_some(1000))[3]
    return proven


async def step(served: Served) -> None:
    while True:
        served.step()
        await trio.lowlevel.checkpoint()


@pytest.fixture
async def nodes(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Nodes]:
    """Return two nodes that know each other."""
    nodes = Nodes(tmp_path)
    nursery.start_soon(step, nodes.served)
    yield nodes
    nodes.served.close()


async def test_each_proves_who_it_is(nodes: Nodes) -> None:
    """Both sides prove their uuids by certificate; a gossip request may reach any node."""
    assert await nodes.proves() == MINE.bytes
    assert await nodes.proves(None) == MINE.bytes


async def test_who_is_dialled_is_another(nodes: Nodes) -> None:
    """Another node, a user, an expired and a foreign certificate are each refused with their reason."""
    for pair, reason in [
        (nodes.peers.pair("other", uuid=OTHER), f"belongs to the node {OTHER.hex}, not to {THEIRS.hex}"),
        (nodes.peers.pair("host", "127.0.0.1"), "no certificate of tls_peers with a uuid"),
        (nodes.clients.pair("user", uuid=THEIRS), "no certificate of tls_peers with a uuid"),
        (nodes.peers.pair("ended", began=LONG_AGO, uuid=THEIRS), "certificate was refused: certificate has expired"),
        (nodes.strangers.pair("strange", uuid=THEIRS), "certificate was refused: unable to get local issuer"),
    ]:
        nodes.shows(pair)
        assert reason in await refusal(nodes)


async def test_a_name_proves_a_node_without_a_uuid(nodes: Nodes) -> None:
    """One of the DNS names must be the node's; a uuid, even a wrong one, is never overruled by a name."""
    nodes.mine(nodes.peers.pair("mine", "127.0.0.1", "n1", "n1.nodes"))
    nodes.shows(nodes.peers.pair("theirs", "n2.nodes", "n2"))
    assert await nodes.proves(name="n2") == ["n1", "n1.nodes"]
    assert await nodes.proves(None) == ["n1", "n1.nodes"]
    with pytest.raises(Unauthorized, match=rf"\(n2.nodes, n2\) are not those of the node {THEIRS.hex}, known as n3"):
        await nodes.proves(name="n3")
    nodes.shows(nodes.peers.pair("theirs", "n2", uuid=OTHER))
    with pytest.raises(Unauthorized, match="belongs to the node"):
        await nodes.proves(name="n2")
    nodes.shows(nodes.clients.pair("theirs", "n2"))
    with pytest.raises(Unauthorized, match="no certificate of tls_peers"):
        await nodes.proves(name="n2")


async def test_who_dials_is_nobody(nodes: Nodes) -> None:
    """A certificate that proves no uuid proves nothing; a bad one is refused with its reason."""
    for pair in nodes.clients.pair("user", uuid=MINE), nodes.peers.pair("host", "127.0.0.1"):
        nodes.mine(pair)
        assert await nodes.proves() is None
    for pair, reason in [
        (nodes.peers.pair("ended", began=LONG_AGO, uuid=MINE), "certificate expired"),
        (nodes.strangers.pair("strange", uuid=MINE), "unknown ca"),
    ]:
        nodes.mine(pair)
        refused = await refusal(nodes)
        assert refused.startswith("it refused this node's certificate: ")
        assert reason in refused


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"\x94\x01\x00\xc0\xc0", ProtocolError), (b"HTTP/1.1", ProtocolError), (b"", ConnectionResetError)],
)
async def test_where_no_tls_is_spoken(nodes: Nodes, nursery: trio.Nursery, answer: bytes, error: type) -> None:
    """The error is clear for any answer, or none."""

    async def speak(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    (listener,) = await nursery.start(partial(trio.serve_tcp, speak, 0, host="127.0.0.1"))
    with pytest.raises(error):
        await nodes.dialling.connect(Address(*listener.socket.getsockname()), THEIRS.bytes)


async def test_a_node_without_tls(nodes: Nodes) -> None:
    """The alert reveals a node without TLS."""
    pair = nodes.peers.pair("theirs", uuid=THEIRS)
    nodes.served.loop.use_tls(Tls(pair.certificate, pair.key, listeners=0b010), nobody)
    with pytest.raises(ProtocolError, match="it does not speak TLS"):
        await nodes.proves()


async def test_an_authority_that_is_another_meanwhile(nodes: Nodes) -> None:
    """New authorities apply to later first requests; a proved connection keeps its uuid."""
    before, silent = [await nodes.dialling.connect(Address(*nodes.served.address), THEIRS.bytes) for _ in range(2)]
    assert await asked(before) == MINE.bytes
    pair = nodes.strangers.pair("theirs", uuid=THEIRS)
    nodes.served.loop.use_tls(Tls(pair.certificate, pair.key, peers=nodes.strangers.path, listeners=LISTEN), nobody)
    assert await asked(before) == MINE.bytes
    assert await asked(silent) is None
    for stream in before, silent:
        await stream.aclose()


async def test_a_loop_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """Reads, large ones too, are forwarded on the dialled connection, which ends with its loop."""
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    cluster.owner.loop.use_tls(nodes.tls(nodes.peers.pair("theirs", uuid=THEIRS)), nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(step, cluster.owner)
        stream = await nodes.dialling.connect(Address(*cluster.owner.address), THEIRS.bytes)
        nursery.cancel_scope.cancel()
    cluster.asker.loop.adopt(0, stream.detach())
    requests = b"".join(rpc.request(number, "get", ["db", key]) for number, key in enumerate(RECORDS))
    client = cluster.asker.connect()
    for _ in range(3):
        answers = cluster.exchange(client, requests, len(RECORDS))
        assert {msgid: result for _, msgid, _, result in answers} == {
            number: [value, "v1"] for number, value in enumerate(RECORDS.values())
        }
    assert cluster.owner.counters("tls_handshakes") == 1
    cluster.asker.close()
    cluster.owner.until(lambda: cluster.owner.counters("connections") == 0)
    cluster.owner.close()


async def test_a_caller_is_known_by_the_name_of_its_uuid() -> None:
    """A certificate without a uuid proves a caller once gossip knows the name of the uuid that the caller states."""
    names = {MINE.bytes: ["n1"]}
    proofs = Proofs(lambda: ("n1", "n1.nodes"), lambda uuid: names.get(uuid, []))
    assert proofs.check(MINE.bytes)
    assert proofs.check(None)
    names[OTHER.bytes] = ["n2"]
    for uuid, reason in (OTHER, "known as n2"), (THEIRS, "not known to this node yet"):
        with pytest.raises(Unauthorized, match=reason):
            proofs.check(uuid.bytes)


async def test_what_is_refused_is_told(autojump_clock: MockClock) -> None:
    """A refusal is logged once a minute per node and reason; where nodes prove nothing, any node may come."""
    proven: list[bytes | None] = [None]
    proofs = Proofs(lambda: proven[0])
    with capture_logs() as lines:
        for proven[0], uuid in [(None, MINE.bytes), (OTHER.bytes, MINE.bytes), (None, None)] * 3:
            with pytest.raises(Unauthorized):
                proofs.check(uuid)
        assert [line["uuid"] for line in lines] == [MINE.hex, MINE.hex, "none"]
        await trio.sleep(60)
        with pytest.raises(Unauthorized):
            proofs.check(None)
        assert len(lines) == 4
        proven[0] = MINE.bytes
        proofs.check(MINE.bytes)
        proofs.check(None)
        Proofs(None).check(OTHER.bytes)
    assert len(lines) == 4
    assert lines[0]["event"] == "peer_refused"
