"""The metadata participant with invalid answers and invitations."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import msgpack
import pytest
import trio

from gossipkv.errors import (
    BadRequest,
    Conflict,
    GossipKVError,
    NotReady,
    ProtocolError,
    Unavailable,
    Unknown,
    UnknownDatabase,
    UnsupportedFormat,
)
from gossipkv.gossip.member import MemberState
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import RegisterRequest, RequestKind, encode_request
from gossipkv.register.seen import AcceptorReply
from gossipkv.register.space import Space
from gossipkv.settings.config import Config
from gossipkv.table.participant.participant import MetadataParticipant
from gossipkv.table.peers.peer_client import CONNECT_S, PeerClient
from gossipkv.table.rpc.admin import AdminMethods
from gossipkv.table.rpc.dispatch import TableMethods
from gossipkv.table.rpc.peer_rpc import PeerMethods
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import NodeAnswer, NotAnswered, NotReached
from tests.unit.table.made_up_participant import participant

UUID = b"u" * 16
CLUSTER_ID = b"cluster!"


class Members:
    """The part of gossip that the participant uses."""

    is_cut_off = False

    def __init__(self) -> None:
        self.pins = 0
        self.published: dict[str, bytes] = {}

    def members_known(self):
        return [SimpleNamespace(uuid=UUID, name="n", state=MemberState.ALIVE)]

    def below(self, _path):
        return []

    def ring(self):
        return ()

    async def pin(self) -> bytes:
        self.pins += 1
        return CLUSTER_ID


class Answering:
    """Other nodes, which give a prepared answer at once."""

    def __init__(self, answer: bytes | GossipKVError = b"") -> None:
        self.answer = answer
        self.connected = 1, 1
        self.asked: list[object] = []

    def ask(self, name, method, params, timeout_ms, complete) -> None:
        self.asked.append(params)
        complete(NodeAnswer(self.answer, 3) if isinstance(self.answer, bytes) else self.answer)

    def watch(self, *, begun=None, ended=None):
        self.begun, self.ended = begun, ended

    def store(self, name):
        return self.connected


def no_deadline(_node, _left_s):
    return 0


GARBAGE = [b"\xc1", b"\x81\x01\x02", b"\xa1\xff", b"", b"\x01\x01"]


@pytest.mark.parametrize("data", GARBAGE)
async def test_answers_that_are_no_messagepack_are_errors(data):
    """Maps with integer keys or invalid text from a foreign peer do not end the node."""
    with pytest.raises(ProtocolError):
        await PeerClient(Members(), Answering(data), None, no_deadline).ask(UUID, "ping", [], 1)
    told = []
    PeerClient(Members(), Answering(data), None, no_deadline).ask_acceptor(AcceptorId(UUID, 1), b"", b"", told.append)
    assert [*map(type, told)] == [Unknown]


async def test_who_has_just_come_is_asked_when_there_is_a_connection(autojump_clock):
    """A new member is asked as soon as a connection to it begins, or after a second without one."""
    answering, answered = Answering(msgpack.packb(1)), []
    answering.connected = None
    asking = PeerClient(Members(), answering, None, no_deadline)

    async def ask():
        await asking.ask(UUID, "ping", [], 3)
        answered.append(trio.current_time())

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.33)
        answering.begun("another", bytes(16))
        await trio.testing.wait_all_tasks_blocked()
        assert not answering.asked
        answering.connected = 1, 1
        answering.begun("n", UUID)
    answering.connected = None
    await ask()
    assert [round(at - began, 3) for at in answered] == [0.33, 0.33 + CONNECT_S]


def test_no_node_is_up_for_a_node_that_is_cut_off(autojump_clock):
    """Gossip may still call them alive; when a connection ends, they are looked at again at once."""
    members, links = Members(), Answering()
    asking = PeerClient(members, links, None, no_deadline)

    async def look():
        assert asking.is_up(UUID)
        members.is_cut_off = True
        assert asking.is_up(UUID)
        links.ended("n", UUID)
        assert not asking.is_up(UUID)

    trio.run(look, clock=autojump_clock)


async def test_what_was_seen_of_stores_is_told():
    """Each request carries the positions of stores, and an answer carries them beside the reply."""
    answering, told = Answering(b""), []
    for answer in ([b"reply", b"theirs"], b"reply", [b"reply"]):
        answering.answer = msgpack.packb(answer)
        asking = PeerClient(Members(), answering, None, no_deadline)
        asking.ask_acceptor(AcceptorId(UUID, 1), b"request", b"seen", told.append)
    assert answering.asked == 3 * [[b"request", b"seen"]]
    assert told[0] == AcceptorReply(b"reply", b"theirs")
    assert [*map(str, told[1:])] == ["does not answer", "does not answer"]


@pytest.mark.parametrize("failed", [NotReached("n cannot be reached"), NotAnswered("n has not answered")])
async def test_an_acceptor_that_gives_no_answer_does_not_answer(failed):
    told = []
    asking = PeerClient(Members(), Answering(failed), None, no_deadline)
    asking.ask_acceptor(AcceptorId(UUID, 1), b"request", b"seen", told.append)
    assert [*map(str, told)] == ["does not answer"]


async def test_a_record_of_a_newer_program_is_told_to_who_asks():
    """The request is readable, but the acceptor's own record is not."""

    def answer_soon(request, seen, complete):
        raise UnsupportedFormat("a record of format 9")

    metadata = SimpleNamespace(lacking=lambda _: None, registers=SimpleNamespace(answer_soon=answer_soon))
    deciding = participant(taking_part=lambda *_: (metadata, None))
    request = encode_request(RegisterRequest(RequestKind.READ, UUID, AcceptorId(UUID, 1), 1))
    waiting = PeerMethods(deciding).methods[b"register"](Arguments(b"register", msgpack.packb([request])))
    with pytest.raises(BadRequest, match="format 9"):
        waiting.begin(lambda _: None)


async def test_who_was_asked_and_has_not_answered_may_have_done_it():
    """Only if no request was sent is it certain that nothing was done."""
    with pytest.raises(Unknown):
        await PeerClient(Members(), Answering(NotAnswered("n")), None, no_deadline).ask(UUID, "create_table", [], 1)
    with pytest.raises(Unavailable):
        await PeerClient(Members(), Answering(NotReached("n")), None, no_deadline).ask(UUID, "create_table", [], 1)
    assert (
        await PeerClient(Members(), Answering(msgpack.packb(3)), None, no_deadline).ask(UUID, "create_table", [], 1)
        == 3
    )


def deciding(members: Members, *, store: int = 0, pinned: bool = False) -> MetadataParticipant:
    record = SimpleNamespace(
        cluster_id=CLUSTER_ID.hex(), uuid=UUID.hex(), node="n", drew="", store=store, pinned=pinned
    )
    directory = SimpleNamespace(record=record, silence=None)
    settings = SimpleNamespace(metadata_copies=5, max_branch=1 << 16, max_clock_skew=60_000)
    world = SimpleNamespace(random=Random(1), threads=None, clock=SimpleNamespace(wall_ms=lambda: 1))
    return MetadataParticipant(settings, directory, members, None, peers=Answering(), environment=world)


async def test_an_invitation_of_another_cluster_pins_nobody():
    """Two lone nodes may still become one cluster, whatever a stranger sends."""
    members = Members()
    with pytest.raises(NotReady):
        await deciding(members).invited(b"stranger")
    assert members.pins == 0


async def test_who_is_not_pinned_decides_nothing_with_a_store_that_was_put_back():
    """The store may belong to another cluster, and the node may still take any cluster id."""
    for pinned in (False, True):
        part = deciding(Members(), store=7, pinned=pinned)
        part._cluster.watch = lambda path, wake: SimpleNamespace(look=lambda: 0, changed=False)
        part._cluster.below = lambda path: []
        part._tables = SimpleNamespace(state="open", opened=lambda: SimpleNamespace(manifest=SimpleNamespace(store=7)))
        begun = []

        async def begin(begun=begun) -> None:
            begun.append(True)

        part._begin = begin
        async with trio.open_nursery() as nursery:
            await nursery.start(part.run)
            await part.end()
        assert bool(begun) is pinned


async def test_a_node_whose_store_is_closed_takes_no_part():
    """Otherwise the node would become a server of new tables, and none of them could be made."""
    part = deciding(Members())
    space = Space(SimpleNamespace(first_space=None))
    space._close("the disk is gone")
    part.service.metadata, part.service.catalogue = SimpleNamespace(space=space), object()
    with pytest.raises(Unavailable):
        await part.take_part()


async def test_a_node_that_is_long_gone_is_named_by_its_digits():
    """A node that gossip has forgotten must still be removable."""
    directory = deciding(Members()).directory
    assert directory.uuid_of("n") == UUID
    gone = b"g" * 16
    assert directory.uuid_of(directory.name_of(gone)) == gone
    with pytest.raises(Unavailable):
        directory.uuid_of("nobody")


async def test_nothing_is_founded_anew_beside_a_catalogue():
    """A node that has just started may not have heard of the catalogue yet."""

    async def others_know() -> bool:
        return True

    knowing = participant(register=b"r" * 16, knows_catalogue=False, uuid_of=lambda name: UUID, others_know=others_know)
    waiting = AdminMethods(knowing, None).methods[b"metadata_force"](
        Arguments(b"metadata_force", msgpack.packb([None, ["n"]]))
    )
    with pytest.raises(Conflict):
        await waiting.result()


def test_a_node_without_a_participant_has_methods_and_no_tables():
    """It has no table and no map, and checks the arguments of methods."""
    part = deciding(Members())
    part.service.store = SimpleNamespace(closed=None)
    methods = TableMethods(part, None, Config())
    assert methods.tables() == []
    with pytest.raises(UnknownDatabase):
        methods.partition_map(Arguments(b"partition_map", msgpack.packb(["table"])))
    with pytest.raises(BadRequest, match="map_page"):
        methods.methods[b"map_page"](Arguments(b"map_page", msgpack.packb([b"r", b""])))


async def test_what_is_done_now_and_then_ends_nothing(autojump_clock):
    """After any failure of reading or asking, all periodic work is tried again."""
    part = deciding(Members(), pinned=True)
    tried = []

    def fails(*what: object) -> None:
        tried.append(what)
        raise NotReady("a map is not here")

    async def fails_later() -> None:
        fails()

    part.service.catalogue = SimpleNamespace(grow=fails_later, tend=fails_later, tables=fails)
    part.service.metadata = SimpleNamespace(known={part.service.register: None})
    with trio.move_on_after(10):
        await part.poll.run()
    assert len(tried) > 20
