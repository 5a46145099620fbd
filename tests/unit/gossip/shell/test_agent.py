"""The shell of gossip, under a virtual clock, orders its inputs and carries out the core's effects."""

import errno
from types import SimpleNamespace

import msgpack
import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES
from gossipkv.errors import LocalError, StorageError
from gossipkv.gossip.effects import AskOverTcp, Complain, MemberChanged, Remember, SendDatagram, Stop, StoreDurably
from gossipkv.gossip.member import Member, MemberState
from gossipkv.gossip.shell import agent as shell
from gossipkv.protocol import OURS
from tests.unit.gossip.shell.agent_world import NEVER_MS, OWN, PEER, World
from tests.world.logs import capture_logs

ALPHA = Member(b"a" * 8, "alpha", b"u" * 16, PEER, 3, 1, MemberState.SUSPECT)


def answer(result=b"yes", error=None):
    return msgpack.packb([1, 0, error, result])


async def test_it_begins_with_what_it_remembers(autojump_clock, nursery):
    """Without seeds the node is alone; initial effects of the core are carried out at once."""
    world = World()
    world.core.on["start"] = [SendDatagram(PEER, b"hello")]
    await nursery.start(world.agent.run)
    assert world.core.heard == [(0, "start", (), (PEER,), True)]
    assert world.datagrams.sent == [(PEER, b"hello")]


async def test_the_core_is_woken_at_its_time(autojump_clock, nursery):
    """The core is woken exactly at its times on an idle machine."""
    world = World()
    world.core.wakes_at_ms, world.core.period_ms = 500, 1000
    await nursery.start(world.agent.run)
    await trio.sleep(4)
    assert [now_ms for now_ms, *_ in world.core.of("wake")] == [500, 1500, 2500, 3500]


async def test_waiting_packets_are_read_before_a_timeout(autojump_clock, nursery):
    """alloy#2916, dskit#960: no queue can overflow; after a stall the socket is drained before the timer runs."""
    world = World()
    world.core.wakes_at_ms = 100
    await nursery.start(world.agent.run)
    count = 3 * shell.BATCH + 7
    for number in range(count):
        world.datagrams.waiting.append((b"%d" % number, PEER))
    await trio.sleep(1)
    kinds = [kind for _, kind, *_ in world.core.of("packet", "wake")]
    assert kinds == ["packet"] * count + ["wake"]
    assert [packet for *_, packet, _ in world.core.of("packet")] == [b"%d" % number for number in range(count)]


async def test_a_flood_does_not_stop_the_clock(autojump_clock, nursery, monkeypatch):
    """The core is woken after as many packets as a socket can hold."""
    monkeypatch.setattr(shell, "MAX_WAITING", 5 * shell.BATCH)
    world = World()
    world.core.wakes_at_ms = 100
    await nursery.start(world.agent.run)
    await trio.sleep(0.05)
    for _ in range(20 * shell.BATCH - 1):
        world.datagrams.waiting.append((b"flood", PEER))
    await trio.sleep(0.1)
    world.datagrams.arrive(b"flood")
    await trio.sleep(0.1)
    kinds = [kind for _, kind, *_ in world.core.of("packet", "wake")]
    assert kinds.index("wake") == 5 * shell.BATCH
    assert len(kinds) == 20 * shell.BATCH + 1


async def test_what_is_asked_of_the_core_in_between_moves_the_alarm(autojump_clock, nursery):
    """A request of another node can make the core want an earlier wake-up."""
    world = World()
    world.core.wakes_at_ms = 10_000
    await nursery.start(world.agent.run)
    await trio.sleep(1)
    world.core.wakes_at_ms = 1500
    world.core.on["request"] = [SendDatagram(PEER, b"rumour")]
    assert world.agent.reply(b"q") == b"to q"
    assert world.datagrams.sent == [(PEER, b"rumour")]
    await trio.sleep(1)
    assert [now_ms for now_ms, *_ in world.core.of("wake")] == [1500]


async def test_an_oversized_datagram_is_dropped(autojump_clock, nursery):
    """The datagram is counted, and the next one is heard."""
    world = World()
    await nursery.start(world.agent.run)
    world.datagrams.arrive(b"x" * MAX_DATAGRAM_BYTES)
    world.datagrams.arrive(b"y" * (MAX_DATAGRAM_BYTES - 1))
    await trio.sleep(1)
    assert [len(packet) for *_, packet, _ in world.core.of("packet")] == [MAX_DATAGRAM_BYTES - 1]
    assert world.counted("dropped_oversized") == 1


async def test_an_error_of_the_socket_is_counted(autojump_clock, nursery):
    """Later packets are heard; packets that the system lost are counted too."""
    world = World()
    await nursery.start(world.agent.run)
    world.datagrams.arrive(OSError(errno.ECONNREFUSED, "of one before"))
    world.datagrams.arrive(b"next")
    world.datagrams.lost = 5
    await trio.sleep(1)
    assert [packet for *_, packet, _ in world.core.of("packet")] == [b"next"]
    assert world.counted("receive_failed_econnrefused") == 1
    assert world.counted("lost_by_system") == 5


async def test_a_defect_that_a_peer_meets_does_not_end_the_node(autojump_clock, nursery, monkeypatch):
    """One packet could end every node of a cluster: the defect is counted and logged, and the next packet is heard."""
    monkeypatch.setattr(shell, "MAX_DEFECTS_TOLD", 1)
    world = World()
    world.core.on["start"] = [AskOverTcp(PEER, b"question", 7, 1000)]
    world.core.defects = {"packet": ZeroDivisionError(), "answered": ZeroDivisionError()}
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        world.datagrams.arrive(b"bad")
        world.datagrams.arrive(b"good")
        await trio.sleep(1)
    assert [packet for *_, packet, _ in world.core.of("packet")] == [b"bad", b"good"]
    assert world.counted("defects") == 2
    assert [type(line["exc_info"]) for line in lines if line["event"] == "defect"] == [ZeroDivisionError]


@pytest.mark.parametrize("kind", ["packet", "wake", "answered", "stored"])
async def test_a_failed_assertion_ends_what_met_it_and_not_the_node(autojump_clock, nursery, kind):
    """A failure for a datagram, timer, reply or store is counted and logged, and later events are heard."""
    world = World()
    world.core.wakes_at_ms = 500
    world.core.on["start"] = [AskOverTcp(PEER, b"question", 7, 100), StoreDurably(4, b"\xab" * 8, 8)]
    world.core.defects = {kind: AssertionError("planted")}
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        world.datagrams.arrive(b"first")
        await trio.sleep(5)
        world.datagrams.arrive(b"second")
        await trio.sleep(1)
    assert world.counted("defects") == 1
    assert [str(line["exc_info"]) for line in lines if line["event"] == "defect"] == ["planted"]
    assert [packet for *_, packet, _ in world.core.of("packet")] == [b"first", b"second"]
    assert {entry[1] for entry in world.core.of("wake", "answered", "stored")} == {"wake", "answered", "stored"}
    # A failed timer is due again, but only after a rest, so that it does not take a whole processor.
    woken = [500, 500 + shell.DEFECT_REST_MS] if kind == "wake" else [500]
    assert [now_ms for now_ms, *_ in world.core.of("wake")] == woken


async def test_a_failed_assertion_of_a_request_ends_that_request(autojump_clock, nursery):
    """The caller reports the failure under an id; the next request is answered."""
    world = World()
    world.core.defects = {"request": AssertionError("planted")}
    await nursery.start(world.agent.run)
    with pytest.raises(AssertionError, match="planted"):
        world.agent.reply(b"q")
    assert world.agent.reply(b"q") == b"to q"


@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.ENETUNREACH, errno.EMSGSIZE, errno.EPERM, errno.ENOBUFS])
async def test_a_datagram_that_the_system_refuses_was_lost(autojump_clock, nursery, refusal):
    """The datagram is counted by the refusal's reason, and other datagrams go out."""
    world = World()
    world.datagrams.refused = [refusal]
    world.core.on["packet"] = [SendDatagram(PEER, b"1"), SendDatagram(PEER, b"2")]
    await nursery.start(world.agent.run)
    world.datagrams.arrive(b"x")
    await trio.sleep(1)
    assert world.datagrams.sent == [(PEER, b"2")]
    assert world.counted(f"send_failed_{errno.errorcode[refusal].lower()}") == 1


async def test_a_request_and_its_reply(autojump_clock, nursery):
    """A call of `gossip` is answered; the core gets the reply by token, and its new effects are carried out."""
    world = World()
    world.sockets.scripts[PEER] = [answer()[:3], answer()[3:]]
    world.core.on["start"] = [AskOverTcp(PEER, b"question", 7, 1000)]
    world.core.on["answered"] = [SendDatagram(PEER, b"thanks")]
    await nursery.start(world.agent.run)
    await trio.sleep(0.1)
    assert world.core.of("answered") == [(0, "answered", 7, b"yes")]
    assert msgpack.unpackb(world.sockets.streams[0].received) == [0, 0, "gossip", [b"question"]]
    assert world.datagrams.sent == [(PEER, b"thanks")]
    assert world.sockets.open == 0


@pytest.mark.parametrize(("script", "after_ms", "counter"), [
    (None, 0, "asks_failed_econnrefused"), ([], 0, "asks_failed_econnreset"), ([None], 1000, "asks_timed_out"),
    ([OSError(errno.EPIPE, "broken")], 0, "asks_failed_epipe"), ([answer("text")], 0, "asks_refused"),
    ([answer(None, ["BAD_REQUEST", "of another cluster", {}])], 0, "asks_refused"), ([b"\xc1"], 0, "asks_refused"),
    ([b"\xc6\xff\xff\xff\xff"], 0, "asks_refused"), ([answer()[:-1], None], 1000, "asks_timed_out"),
])  # fmt: skip
async def test_a_request_without_a_reply(autojump_clock, nursery, script, after_ms, counter):
    """For any kind of failure the core gets None, once and in time."""
    world = World()
    if script is not None:
        world.sockets.scripts[PEER] = script
    world.core.on["start"] = [AskOverTcp(PEER, b"question", 7, 1000)]
    await nursery.start(world.agent.run)
    await trio.sleep(5)
    assert world.core.of("answered") == [(after_ms, "answered", 7, None)]
    assert world.counted(counter) == 1
    assert world.sockets.open == 0


async def test_a_refusal_is_told_once(autojump_clock, nursery):
    """Every attempt is refused again, and an operator should read the reason once."""
    world = World()
    refusal = answer(None, ["BAD_REQUEST", "this is cluster 'east', not 'west'", {}])
    world.sockets.scripts[PEER] = [refusal]
    world.core.on["start"] = [AskOverTcp(PEER, b"question", token, 1000) for token in range(3)]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        await trio.sleep(1)
    assert [line["by"] for line in lines if line["event"] == "refused"] == [
        "10.0.0.2:7070: this is cluster 'east', not 'west'"
    ]
    assert world.counted("asks_refused") == 3


async def test_a_node_of_other_protocol_versions_is_kept_until_it_is_back(autojump_clock, nursery):
    """The log names the node and both ranges once, at level warning; versions in common are no reason."""
    world = World()
    newer, fits = Address("10.0.0.3", 7070), Address("10.0.0.4", 7070)
    world.core.members = SimpleNamespace(list=lambda: [OWN, ALPHA], own=OWN)
    for address, versions in ((PEER, [8, 9]), (newer, [7, 7]), (fits, [1, 9]), (Address("10.0.0.5", 7070), "text")):
        world.sockets.scripts[address] = [answer(None, ["UNAVAILABLE", "no", {"protocol": versions}])]
    asks = [AskOverTcp(to, b"question", number, 1000) for number, to in enumerate(world.sockets.scripts)]
    world.core.on["start"] = asks + asks[:1]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        await trio.sleep(1)
    why = {PEER: f"protocol versions 8 to 9, not {OURS}", newer: f"protocol version 7, not {OURS}"}
    assert world.agent.misfits == why
    told = [(line["node"], line["address"], line["reason"]) for line in lines if line["event"] == "misfit"]
    assert sorted(told, key=str) == [("alpha", str(PEER), why[PEER]), (None, str(newer), why[newer])]
    world.agent.perform(MemberChanged(ALPHA._replace(state=MemberState.ALIVE), MemberState.DEAD))
    assert [*world.agent.misfits] == [newer]


async def test_a_refusal_is_told_in_few_words(autojump_clock, nursery):
    """A peer may send long, varying reasons: log and memory keep the beginning, once."""
    world = World()
    asks = [AskOverTcp(Address(f"10.0.1.{number}", 7070), b"question", number, 1000) for number in range(3)]
    for number, effect in enumerate(asks):
        said = "x" * 100_000 + str(number)
        world.sockets.scripts[effect.to] = [answer(None, ["BAD_REQUEST", said, {}])]
    again = Address("10.0.1.1", 7070)
    world.core.on["start"] = asks
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        await trio.sleep(1)
        world.sockets.scripts[again] = [answer(None, ["BAD_REQUEST", "x" * 200_000, {}])]
        world.core.on["packet"] = [AskOverTcp(again, b"question", 9, 1000)]
        world.datagrams.arrive(b"next")
        await trio.sleep(1)
    told = sorted(line["by"] for line in lines if line["event"] == "refused")
    assert told == [f"10.0.1.{number}:7070: {'x' * 200}..." for number in range(3)]
    assert world.counted("asks_refused") == 4


async def test_few_requests_at_once(autojump_clock, nursery):
    """Further requests wait for their turn, within their own time."""
    world = World()
    world.sockets.scripts[PEER] = [None]
    world.core.on["start"] = [AskOverTcp(PEER, b"question", token, 1000) for token in range(3 * shell.MAX_ASKS)]
    await nursery.start(world.agent.run)
    await trio.sleep(5)
    assert world.sockets.most_open == shell.MAX_ASKS
    assert [now_ms for now_ms, *_ in world.core.of("answered")] == [1000] * (3 * shell.MAX_ASKS)


async def test_no_more_requests_wait_than_memory_is_for(autojump_clock, nursery):
    """Requests beyond the limit fail at once, each reported once."""
    world = World()
    world.sockets.scripts[PEER] = [None]
    most = shell.MAX_ASKS + shell.MAX_ASKS_WAITING
    world.core.on["start"] = [AskOverTcp(PEER, b"question", token, 1000) for token in range(most + 5)]
    await nursery.start(world.agent.run)
    await trio.sleep(5)
    answered = world.core.of("answered")
    assert [now_ms for now_ms, *_ in answered] == [0] * 5 + [1000] * most
    assert {token for _, _, token, _ in answered} == set(range(most + 5))
    assert world.counted("asks_dropped") == 5


async def test_what_must_be_durable(autojump_clock, nursery):
    """The core learns of each write after it is durable, in order."""
    world = World()
    world.threads.takes_s = 2
    world.core.on["start"] = [StoreDurably(4, b"\xab" * 8, 1), StoreDurably(5, b"\xab" * 8, 2)]
    await nursery.start(world.agent.run)
    await trio.sleep(10)
    assert world.core.of("stored") == [(4000, "stored", 1), (6000, "stored", 2)]
    assert world.keeper.kept == [{"epoch": 4, "cluster_id": "ab" * 8}, {"epoch": 5, "cluster_id": "ab" * 8}]


async def test_that_an_id_was_drawn_is_kept_with_it(autojump_clock, nursery):
    """One write stores the id and its origin, and later writes do not mention the origin."""
    world = World()
    world.core.on["start"] = [StoreDurably(4, b"\xab" * 8, 1, drew=True), StoreDurably(5, b"\xab" * 8, 2)]
    await nursery.start(world.agent.run)
    await trio.sleep(10)
    kept = {"epoch": 4, "cluster_id": "ab" * 8}
    assert world.keeper.kept == [kept | {"drew": True}, kept | {"epoch": 5}]


async def test_a_pin_returns_when_it_is_durable(autojump_clock, nursery):
    """The call waits for earlier writes and survives refusals of the disk."""
    world = World()
    world.threads.takes_s = 2
    world.keeper.refusals = [StorageError("full")]
    world.core.on["start"] = [StoreDurably(4, b"\xab" * 8, 1)]
    world.core.on["pin"] = [StoreDurably(4, b"\xab" * 8, 2, pinned=True)]
    world.core.pinned_by = 2
    await nursery.start(world.agent.run)
    assert trio.current_time() == 2, "to read where members were"
    for _ in range(2):
        await world.agent.pin()
        assert trio.current_time() == 2 + 2.5 + 2 + 2
    kept = {"epoch": 4, "cluster_id": "ab" * 8}
    assert world.keeper.kept == [kept, kept | {"pinned": True}]


async def test_a_disk_that_refuses_is_tried_again(autojump_clock, nursery):
    """The core waits for the write, so it is retried until it succeeds; each new cause is logged once."""
    world = World()
    world.keeper.refusals = [StorageError(why) for why in ("full", "full", "broken", "full")]
    world.core.on["start"] = [StoreDurably(4, b"\xab" * 8, 1)]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        await trio.sleep(10)
        assert world.core.of("stored") == [(500 + 1000 + 2000 + 4000, "stored", 1)]
        world.keeper.refusals = [StorageError("full")] * 2
        world.agent._keeping.put(StoreDurably(5, b"\xab" * 8, 2))
        await trio.sleep(10)
    told = [line["error"] for line in lines if line["event"] == "cannot_store"]
    assert told == ["full", "broken", "full", "full"], "said once, and again after it had gone well"


async def test_peers_are_remembered_if_the_disk_lets_us(autojump_clock, nursery):
    """A failure is logged; another for the same cause is not."""
    world = World()
    world.keeper.refusals = [StorageError("full")] * 2
    world.core.on["start"] = [Remember((PEER,))]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
        for _ in range(2):
            await trio.sleep(1)
            world.agent._keeping.put(Remember((PEER,)))
        await trio.sleep(1)
    assert world.keeper.remembered == [(PEER,)]
    assert [line["event"] for line in lines] == ["cannot_remember"]


async def test_peers_do_not_pile_up_before_a_disk_that_refuses(autojump_clock, nursery):
    """While a durable write is retried, only the last list of peers is kept."""
    world = World()
    world.keeper.refusals = [StorageError("full")] * 8
    world.core.on["start"] = [
        StoreDurably(4, b"\xab" * 8, 1),
        *(Remember((Address("10.0.0.1", port),)) for port in range(1, 999)),
    ]
    await nursery.start(world.agent.run)
    await trio.sleep(300)
    assert world.keeper.remembered == [(Address("10.0.0.1", 998),)]
    world.agent._keeping.put(Remember((PEER,)))
    await trio.sleep(1)
    assert world.keeper.remembered[1:] == [(PEER,)]


async def test_a_change_of_a_member_is_a_line_of_the_log(autojump_clock, nursery):
    """The line has name, address, state and previous state."""
    world = World()
    world.core.on["start"] = [
        MemberChanged(ALPHA, MemberState.ALIVE),
        MemberChanged(ALPHA._replace(state=MemberState.ALIVE), None),
    ]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
    assert [(line["node"], line["address"], line["state"], line["before"]) for line in lines] == [
        ("alpha", "10.0.0.2:7070", "suspect", "alive"), ("alpha", "10.0.0.2:7070", "alive", None),
    ]  # fmt: skip


async def test_a_node_that_must_stop_ends_with_the_reason(autojump_clock):
    """The first reason wins, also when it comes while another node's request is answered."""
    world = World()
    world.core.on["request"] = [Stop(LocalError("the name is taken")), Stop(LocalError("again"))]

    async def ask():
        await trio.sleep(1)
        assert world.agent.reply(b"q") == b"to q"

    async def live():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await world.agent.run()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    stopped, other = caught.value.split(LocalError)
    assert other is None
    assert "the name is taken" in str(stopped.exceptions[0].exceptions)


@pytest.mark.parametrize("forget", [False, True])
async def test_a_node_that_is_another_one_is_kept_no_more(autojump_clock, forget):
    """The node's data are forgotten before it ends; a node that is stopped for its name alone keeps them."""
    world = World()
    world.core.on["request"] = [Stop(LocalError("its uuid is taken"), forget)]

    async def live():
        async with trio.open_nursery() as nursery:
            await nursery.start(world.agent.run)
            world.agent.reply(b"q")

    with pytest.raises(ExceptionGroup):
        await live()
    assert ({} in world.keeper.kept) == forget


async def test_leaving_takes_as_long_as_the_news_needs(autojump_clock, nursery):
    """The node goes on gossiping for the given time; a node that is alone leaves at once."""
    for others, took_s in ((1, 0.6), (0, 0.0)):
        world = World()
        world.core.members.reachable = 1 + others
        world.core.wakes_at_ms = 200
        world.core.on = {"leave": [SendDatagram(PEER, b"I leave")], "wake": [SendDatagram(PEER, b"I left")]}
        await nursery.start(world.agent.run)
        began_s = trio.current_time()
        await world.agent.leave(0.6)
        assert trio.current_time() - began_s == pytest.approx(took_s)
        assert [packet for _, packet in world.datagrams.sent] == [b"I leave", b"I left"][: 1 + others]


class Place:
    """A claim that is due at `wakes_at_ms` and returns these ids in turn."""

    def __init__(self, wakes_at_ms, *given):
        self.wakes_at_ms = wakes_at_ms
        self.given = list(given)
        self.stepped = []

    def start(self, *, now_ms):
        self.stepped.append(now_ms)

    def step(self, *, now_ms):
        self.stepped.append(now_ms)
        self.wakes_at_ms = now_ms + 1000 if len(self.given) > 1 else NEVER_MS
        given = self.given.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


async def test_a_place_is_claimed_in_its_own_time_and_kept(autojump_clock, nursery):
    """The claim's timer is independent of the core's; effects that it leaves in the core are sent at once."""
    place = Place(700, None, 3)
    world = World(place=place)
    await nursery.start(world.agent.run)
    world.core.effects = [SendDatagram(PEER, b"claimed")]
    await trio.sleep(5)
    assert place.stepped == [0, 700, 1700]
    assert world.keeper.kept == [{"shard_id": 3}]
    assert world.datagrams.sent == [(PEER, b"claimed")]


async def test_a_claim_that_meets_a_defect_does_not_end_the_node(autojump_clock, nursery):
    """The defect is counted and logged, and the step is repeated."""
    place = Place(1000, ZeroDivisionError(), 3, None)
    world = World(place=place)
    await nursery.start(world.agent.run)
    await trio.sleep(5)
    assert place.stepped == [0, 1000, 2000, 3000]
    assert world.agent.counters()["gossip_defects"] == 1
    assert world.keeper.kept == [{"shard_id": 3}]


async def test_what_others_claim_is_looked_at_at_once(autojump_clock, nursery):
    """A packet that makes the claim due is followed by a step."""
    place = Place(NEVER_MS, None)
    world = World(place=place)
    await nursery.start(world.agent.run)
    await trio.sleep(1)
    place.wakes_at_ms = 0
    world.datagrams.arrive(b"their claim")
    await trio.sleep(1)
    assert place.stepped == [0, 1000]


async def test_a_complaint_is_a_line_of_the_log(autojump_clock, nursery):
    world = World()
    world.core.on["start"] = [Complain(LocalError("two clusters of one name"))]
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
    assert [line["error"] for line in lines] == ["two clusters of one name"]


async def test_names_are_looked_up_at_the_start(autojump_clock, nursery):
    """The seeds are all addresses of a usable family; an unknown name is logged."""
    names = [
        Address("a", 1),
        Address("b", 2),
        Address("10.0.0.9", 3),
        Address("slow", 4),
        Address("six", 5),
        Address("fe", 6),
    ]
    world = World(names)
    found = [Address("10.0.0.7", 1), Address("10.0.0.8", 1)]
    world.sockets.names = {
        names[0]: [Address("::1", 1), *found],
        names[2]: [names[2]],
        names[3]: 60,
        names[4]: [Address("fd00::1", 5)],
        names[5]: [],
    }
    with capture_logs() as lines:
        await nursery.start(world.agent.run)
    assert world.core.heard == [(1000, "start", (*found, names[2]), (PEER,), False)]
    assert {(line["join"], line["reason"]) for line in lines} == {
        ("b:2", "nobody knows"), ("slow:4", "the name service has not answered in time"),
        ("six:5", "only addresses of the other family: fd00::1"), ("fe:6", "only link-local addresses"),
    }  # fmt: skip


async def test_names_that_are_not_answered_have_their_time_and_no_more(autojump_clock, nursery):
    """Without a known seed the node waits for names; a late answer is joined then."""
    name = Address("slow", 4)
    world = World([name])
    world.sockets.names = {name: 60}
    await nursery.start(world.agent.run)
    assert world.core.heard == [(5000, "start", (), (PEER,), False)]
    world.sockets.names = {name: [PEER]}
    await trio.sleep(60)
    assert [joined for _, _, joined in world.core.of("join")] == [(PEER,)]


async def test_names_are_looked_up_again_while_nobody_answers_there(autojump_clock, nursery):
    """New addresses are joined; once a member is found, no more look-ups happen."""
    name = Address("seed", 7070)
    world = World([name])
    await nursery.start(world.agent.run)
    assert world.core.of("start")[0][2:] == ((), (PEER,), False)
    world.sockets.names[name] = [OWN.address]  # Resolves to nodes that are up.
    await trio.sleep(60)
    world.sockets.names[name] = [OWN.address, PEER]
    await trio.sleep(60)
    assert [joined for _, _, joined in world.core.of("join")] == [(OWN.address,), (OWN.address, PEER)]
    assert world.sockets.looked_up[name] < 10
    world.core.live.append(ALPHA)
    before = world.sockets.looked_up[name]
    world.sockets.names[name] = [Address("10.0.0.3", 7070)]
    await trio.sleep(300)
    assert world.sockets.looked_up[name] == before
    world.core.live.remove(ALPHA)
    await trio.sleep(60)
    assert world.core.of("join")[2:][0][2] == (Address("10.0.0.3", 7070),)


async def test_a_name_that_is_unknown_for_a_while_stands_for_what_it_did(autojump_clock, nursery):
    """The last known addresses stay, also while another name is known."""
    first, second = Address("a", 1), Address("b", 2)
    world = World([first, second])
    world.sockets.names = {first: [Address("10.0.0.7", 1)], second: [Address("10.0.0.8", 2)]}
    await nursery.start(world.agent.run)
    world.sockets.names = {second: [Address("10.0.0.9", 2)]}
    await trio.sleep(60)
    assert world.core.of("join") == [(1000, "join", (Address("10.0.0.7", 1), Address("10.0.0.9", 2)))]


async def test_numeric_addresses_are_not_looked_up_again(autojump_clock, nursery):
    world = World([PEER])
    world.sockets.names[PEER] = [PEER]
    await nursery.start(world.agent.run)
    await trio.sleep(600)
    assert world.sockets.looked_up[PEER] == 1


async def test_at_rest_it_sleeps(autojump_clock, nursery, monkeypatch):
    """Each timer and each packet causes one look at the socket."""
    world = World()
    world.core.wakes_at_ms, world.core.period_ms = 1000, 1000
    await nursery.start(world.agent.run)
    takes = []
    take = world.core.take
    monkeypatch.setattr(world.core, "take", lambda: takes.append(trio.current_time()) or take())
    await trio.sleep(100.5)
    assert len(takes) <= 2 * 100
