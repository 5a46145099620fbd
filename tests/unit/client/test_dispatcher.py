"""The dispatcher and its policies without sockets or clocks: routes, back-off and the queue."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.client.backoff import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff
from gossipkv.client.dispatcher import DIAL_SHARE, HEDGE_SHARE, HEDGES, ROUNDS
from gossipkv.errors import ProtocolError, TimedOut, Unavailable, Unknown
from tests.unit.client.dispatcher_world import FakeLink, World

if TYPE_CHECKING:
    from gossipkv.client._client import Request

A, B, C = (Address("::1", port) for port in (1, 2, 3))


def test_pauses_double_and_end_at_a_second():
    """The pause after each failure in a row lies in the upper half of its bound; an answer resets the pause."""
    for draw in (0.0, 0.5, 1.0):
        backoff = Backoff(lambda draw=draw: draw)
        assert backoff.ready_at(A) == 0
        for count in range(1, 40):
            now = 2.0 * count
            backoff.failed(A, now)
            longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (count - 1))
            assert backoff.ready_at(A) - now == pytest.approx(longest_s * (1 + draw) / 2)
            ready_at = backoff.ready_at(A)
            backoff.failed(A, now)  # An attempt that began before the pause.
            assert backoff.ready_at(A) == ready_at
            assert backoff.ready_at(B) == 0
        backoff.worked(A)
        assert backoff.ready_at(A) == 0


def test_addresses_are_dialled_in_turn():
    """Addresses are dialled in order of preference, again after a pause, until the deadline, which has every reason."""
    world = World(A, B, C)
    request = world.ask()
    assert world.wanted == 1
    for number, address in enumerate((A, B, C)):
        assert world.dispatcher.target(0.0) == address
        assert not request.is_done
        world.dispatcher.on_dial_failed(address, f"reason {number}", 0.0)
    assert world.dispatcher.target(0.0) == FIRST_PAUSE_S
    assert world.dispatcher.target(FIRST_PAUSE_S) == A
    world.dispatcher.on_time(10.0)
    with pytest.raises(Unavailable, match=r"\[::1\]:1: reason 0; \[::1\]:2: reason 1; \[::1\]:3: reason 2"):
        request.take()
    assert world.woken == [request]
    assert world.dispatcher.target(10.0) is None


def test_a_request_is_given_up_when_nobody_is_there_again_and_again():
    """A long deadline is no reason to wait for nodes that refuse every connection for seconds."""
    world = World(A)
    request = world.ask(due=1000.0)
    for _ in range(ROUNDS + 1):
        assert not request.is_done
        while not isinstance(target := world.dispatcher.target(world.time), Address):
            world.time = target
        world.dispatcher.on_dial_failed(target, "refused", world.time)
    assert 1.0 < world.time < 4.0
    with pytest.raises(Unavailable, match="refused"):
        request.take()


def test_an_opening_request_fails_with_the_last_address():
    """Connecting does not wait for a node that refuses."""
    world = World(A, B)
    request = world.dispatcher.open(10.0)
    request.owner = "owner"
    for address in (A, B):
        assert world.dispatcher.target(0.0) == address
        world.dispatcher.on_dial_failed(address, "refused", 0.0)
    with pytest.raises(Unavailable, match=r":1: refused; .*:2: refused"):
        request.take()
    assert world.woken == ["owner"]


def test_the_deadline_is_shared_among_the_addresses_that_are_left():
    world = World(A, B, C)
    world.ask(due=3.0)
    assert world.dispatcher.target(0.0) == A
    assert world.dispatcher.dial_s(A, 0.0) == pytest.approx(1.0 * DIAL_SHARE)
    world.dispatcher.on_dial_failed(A, "silent", 1.0)
    assert world.dispatcher.target(1.0) == B
    assert world.dispatcher.dial_s(B, 1.0) == pytest.approx(1.0 * DIAL_SHARE)
    world.dispatcher.on_dial_failed(B, "refused", 1.0)
    assert world.dispatcher.target(1.0) == C
    assert world.dispatcher.dial_s(C, 1.0) == pytest.approx(2.0 * DIAL_SHARE)


def test_all_addresses_of_a_name_are_tried():
    """A name is resolved, its addresses are dialled one by one, and a frozen one is left for the next."""
    name = Address("nodes.example", 7)
    world = World(name)
    request = world.ask(due=1.0)
    assert world.dispatcher.target(0.0) == name
    world.dispatcher.on_resolved(name, [A, B, C])
    assert world.dispatcher.target(0.0) == A
    assert world.dispatcher.host_of(A) == "nodes.example"
    frozen = world.link(A)
    frozen.flush()
    world.dispatcher.on_time(1.0)
    assert isinstance(request.error, TimedOut)
    world.ask(due=2.0)
    assert world.dispatcher.target(1.0) == B
    world.dispatcher.on_dial_failed(B, "refused", 1.0)
    assert world.dispatcher.target(1.0) == C
    world.dispatcher.on_dial_failed(C, "refused", 1.0)
    assert world.dispatcher.target(1.0) == A or world.dispatcher.target(1.02) == A
    world.dispatcher.on_dial_failed(A, "refused", 1.1)
    assert world.dispatcher.target(1.2) == name  # It may stand for others now.


def test_another_protocol_is_a_failed_address():
    """A read goes on at the next address; with none left it tells what the address said."""
    world = World(A, B)
    request = world.ask()
    assert world.dispatcher.target(0.0) == A
    link = world.link(A)
    link.session.receive(b"HTTP/1.1 400 Bad Request")
    world.dispatcher.on_broken(link, "no answer", 0.0)
    assert world.dispatcher.target(0.0) == B
    other = world.link(B)
    assert other.session.outstanding() == [request]
    other.session.receive(b"HTTP/1.1 400 Bad Request")
    world.dispatcher.on_broken(other, "no answer", 0.0)
    with pytest.raises(ProtocolError, match=r"\[::1\]:2: "):
        request.take()


def test_a_read_that_is_not_answered_is_asked_elsewhere_as_well():
    """The first answer counts; a write is asked once; a link that was silent meanwhile is left."""
    world = World(A, B, stage_s=0.1)
    link = world.link(A)
    read, write = world.ask(), world.ask("put")
    link.flush()
    for _ in range(4):
        world.time += 0.05
        world.dispatcher.on_time(world.time)
    assert world.dispatcher.hedges == 1
    assert world.dispatcher.target(world.time) == B
    other = world.link(B)
    [twin] = other.session.outstanding()
    assert twin.method == "get"
    world.deliver(other, twin, b"v")
    assert read.take() == b"v"
    assert world.woken == [read]
    assert (world.dispatcher.link, write.is_done) == (other, False)
    world.deliver(link, write, b"t")
    assert write.take() == b"t"


def test_each_answer_of_a_hedge_is_for_its_own_read():
    """Hedges are answered in any order; the first node is told of reads that the other one has answered."""
    world = World(A, B, stage_s=0.1)
    link, reads = world.link(A), [world.ask() for _ in range(3)]
    link.flush()
    for _ in range(4):
        world.time += 0.05
        world.dispatcher.on_time(world.time)
    assert world.dispatcher.target(world.time) == B
    other = world.link(B)
    twins = other.session.outstanding()
    world.deliver(link, reads[0], b"0")
    world.deliver(other, twins[0], b"late")
    world.deliver(other, twins[2], b"2")
    assert [read.is_done for read in reads] == [True, False, True]
    world.deliver(other, twins[1], b"1")
    assert [read.take() for read in reads] == [b"0", b"1", b"2"]
    frames = [*msgpack.Unpacker(BytesIO(link.session.take_output()))]
    assert [(method, params) for _, _, method, params in frames] == [("cancel", [2]), ("cancel", [1])]


def test_hedges_have_a_budget():
    """A node that answers nothing is asked again for some reads only."""
    world = World(A, B, stage_s=0.1)
    world.link(A)
    for _ in range(3):
        world.ask()
    link = world.dispatcher.link
    for number in range(40):
        if number % 3 == 0:
            link.session.receive(b"\x94")  # It speaks, so it is not left.
        world.time += 0.05
        world.dispatcher.on_time(world.time)
        for request in [each for each in link.session.outstanding() if each.history is not None]:
            world.dispatcher._drop_twin(request)
    assert world.dispatcher.hedges <= HEDGES


def test_a_node_that_is_coming_is_asked_again_and_another_first():
    """A refusal goes to another address once; after that the read waits for the data that is being built."""
    world = World(A, B)
    link = world.link(A)
    request = world.ask(due=10.0)
    world.deliver(link, request, error=["NOT_READY", "building", {"coming": True}])
    assert world.dispatcher.target(0.0) == B
    other = world.link(B)
    assert other.session.outstanding() == [request]
    world.deliver(other, request, error=["NOT_READY", "building", {"coming": True}])
    assert (request.is_done, request.session) == (False, None)
    world.time = world.dispatcher.on_time(world.time)
    world.dispatcher.on_time(world.time)
    assert link.session.outstanding() == [request]
    world.deliver(link, request, b"v")
    assert request.take() == b"v"


def test_an_idle_link_is_checked_before_a_write():
    """A write is not sent over a connection that was quiet for long until a ping is answered; a read is."""
    world = World(A)
    link = world.link(A)
    world.time = 100.0
    read, write = world.ask(due=200.0), world.ask("put", due=101.0)
    assert [each.method for each in link.session.outstanding()] == ["get", "ping"]
    world.deliver(link, link.session.outstanding()[1], "pong")
    assert link.session.outstanding() == [read, write]
    world.time = 200.0
    write = world.ask("put", due=201.0)
    assert write.session is None
    world.dispatcher.on_time(200.5)
    assert link.is_closed
    assert not write.is_done
    assert world.dispatcher.target(200.6) == A


def test_members_are_learned():
    """Live members are dialled after the given addresses, dead ones last; given ones stay."""
    world = World(A, B)
    link = world.link(A)
    world.dispatcher.on_time(5.0)
    [request] = link.session.outstanding()
    assert request.method == "members"
    told = [
        {"address": str(C), "state": "alive"},
        {"address": str(B), "state": "dead"},
        {"address": "?", "state": "left"},
    ]
    world.deliver(link, request, told)
    world.dispatcher.on_broken(link, "reset", 5.0)
    world.ask(due=20.0)
    for address in (C, A, B):  # A broke, and B is dead.
        assert world.dispatcher.target(10.0) == address
        world.dispatcher.on_dial_failed(address, "refused", 5.0)


def test_a_client_of_one_node_learns_nothing():
    world = World(A, follows=False)
    link = world.link(A)
    world.dispatcher.on_time(5.0)
    world.dispatcher.on_broken(link, "reset", 5.0)
    link = world.link(A)
    world.dispatcher.on_time(100.0)
    assert link.session.queued_bytes == 0


def test_requests_that_name_an_address_go_there():
    """They share the link of that address, have one of their own, and fail with it."""
    world = World(A)
    link = world.link(A)
    here, there, failing = world.ask(at=A), world.ask(at=B), world.ask(at=C)
    assert link.session.outstanding() == [here]
    assert [world.dispatcher.target(0.0), world.dispatcher.target(0.0)] == [B, C]
    assert world.link(B).session.outstanding() == [there]
    world.dispatcher.on_dial_failed(C, "refused", 0.0)
    assert isinstance(failing.error, Unavailable)
    assert world.dispatcher.link is link


def test_no_address_is_dialled_that_has_a_link():
    """A lane takes the link of another lane: for a read that is asked again, and for a link that was dialled twice."""
    world = World(A, B)
    world.ask()
    link = world.link(A)
    world.ask(at=B)
    other = world.link(B)
    request = world.ask()
    world.deliver(link, request, error=["NOT_READY", "building", {"coming": True}])
    assert other.session.outstanding()[-1] is request
    assert world.dispatcher.target(world.time) is None
    twice = FakeLink(B)
    world.dispatcher.on_connected(twice)
    assert twice.is_closed
    world.deliver(other, request, [b"v", "v1"])
    assert request.take() == [b"v", "v1"]


def test_nothing_is_dialled_for_nobody():
    """There is no target without a request, with a link, or after the end."""
    world = World(A)
    assert world.dispatcher.target(0.0) is None
    world.ask()
    world.link(A)
    assert world.dispatcher.target(0.0) is None
    world.dispatcher.close()
    assert world.dispatcher.target(0.0) is None
    with pytest.raises(Unavailable, match="closed"):
        world.ask()


def test_a_link_that_never_answered_is_held_against_its_address():
    """A link that closes without an answer counts as a failure of its address; a request breaks few links."""
    world = World(A, B)
    request = world.ask()
    for now, address in enumerate((A, B, A)):
        assert world.dispatcher.target(now) == address
        world.dispatcher.on_broken(world.link(address), "closed", now)
    assert world.dispatcher.target(5.0) == B
    world.dispatcher.on_broken(world.link(B), "closed", 5.0)
    with pytest.raises(Unavailable, match=r"::1\]:1: closed; .*::1\]:2: closed"):
        request.take()
    assert world.dispatcher._backoff.ready_at(B) > 5.0


def test_a_link_that_answered_may_be_made_again():
    """A proven address is dialled again without a pause, once for each request."""
    world = World(A)
    first = world.link(A)
    request, other = world.ask(), world.ask()
    first.answer(other)
    world.dispatcher.on_broken(first, "closed", 0.0)
    assert world.dispatcher.target(0.0) == A
    second = world.link(A)
    assert second.session.outstanding() == [request]
    other = world.ask()
    second.answer(other)
    world.dispatcher.on_broken(second, "closed again", 0.0)
    with pytest.raises(Unavailable, match=r"::1\]:1: closed again"):
        request.take()


def test_order_is_kept_when_a_link_breaks():
    """In-flight requests are repeated before queued ones, each in order."""
    world = World(A, B)
    link = world.link(A)
    requests = [world.ask() for _ in range(6)]
    link.flush()
    world.dispatcher.on_broken(link, "reset", 0.0)
    assert link.is_closed
    following = world.link(B)
    assert following.session.outstanding() == requests[:3]
    for request in requests[:3]:
        following.answer(request)
    world.dispatcher.on_received(following)
    assert following.session.outstanding() == requests[3:]


def test_writes_are_unknown_only_if_begun():
    """A write with a sent byte is `Unknown`; one without is sent elsewhere."""
    world = World(A, B)
    link = world.link(A)
    begun = world.ask("put")
    link.flush()
    unsent = world.ask("put")
    world.dispatcher.on_broken(link, "reset", 0.0)
    assert isinstance(begun.error, Unknown)
    assert world.link(B).session.outstanding() == [unsent]


def test_deadlines_in_every_place():
    """Each error states where the request was: in the queue, on the link, or sent as a write."""
    world = World(A, B)
    waiting = world.ask(due=1.0)
    assert world.alarms == [1.0]
    world.ask(due=0.5)
    world.ask(due=2.0)
    assert world.alarms == [1.0, 0.5]
    assert world.dispatcher.on_time(1.0) == 2.0
    with pytest.raises(TimedOut, match="no node could be reached in time"):
        waiting.take()
    link = world.link(A)
    link.session.receive(b"\x94")  # The node speaks, so the link stays.
    read, write, queued, full = world.ask(due=3.0), world.ask("put", due=3.0), world.ask(due=9.0), world.ask(due=3.0)
    link.session.receive(b"\x01")
    world.dispatcher.on_time(3.0)
    with pytest.raises(TimedOut, match=r"::1\]:1 did not answer get in time"):
        read.take()
    with pytest.raises(Unknown, match="no answer in time; put may or may not"):
        write.take()
    with pytest.raises(TimedOut, match="accepted no further request before the deadline"):
        full.take()
    assert not queued.is_done
    assert world.dispatcher.link is link


def test_requests_that_are_due_together_on_a_silent_link():
    """Each error names the silent node, and the link is left."""
    world = World(A, B)
    link = world.link(A)
    requests = [world.ask(due=1.0) for _ in range(3)]
    link.flush()
    world.dispatcher.on_time(1.0)
    for request in requests:
        with pytest.raises(TimedOut, match=r"::1\]:1 did not answer get in time"):
            request.take()
    assert world.dispatcher.link is None


def test_a_link_that_is_full_of_what_nobody_waits_for_is_left():
    """A node that answers none of the cancelled requests is left when a request gets no room before its deadline."""
    world = World(A, B)
    link = world.link(A)
    dropped = [world.ask(due=1.0) for _ in range(3)]
    link.flush()
    for request in dropped:
        world.dispatcher.cancel(request)
    link.session.receive(b"\x94")  # The node is not silent.
    waiting = world.ask(due=2.0)
    world.dispatcher.on_time(2.0)
    with pytest.raises(TimedOut, match="accepted no further request before the deadline"):
        waiting.take()
    assert world.dispatcher.link is None
    assert link.is_closed
    world.ask(due=3.0)
    assert world.dispatcher.target(2.0) == B


def test_what_a_left_link_gives_back_goes_to_the_new_one_at_once():
    """An unsent write of a link that breaks later goes to the new link at once, before later requests."""
    world = World(A, B)
    link = world.link(A)
    silent = world.ask(due=1.0)
    link.flush()
    write = world.ask("put", due=9.0)
    world.dispatcher.on_time(1.0)
    assert silent.is_done
    other = world.link(B)
    world.dispatcher.on_broken(link, "reset", 1.5)
    read = world.ask(due=9.0)
    assert other.session.outstanding() == [write, read]


def test_a_silent_link_is_left_and_keeps_its_writes():
    """Reads move at once; a write waits on the old link for its deadline."""
    world = World(A, B)
    link = world.link(A)
    first, write, read = world.ask(due=1.0), world.ask("put", due=5.0), world.ask(due=5.0)
    link.flush()
    world.dispatcher.on_time(1.0)
    assert isinstance(first.error, TimedOut)
    assert world.dispatcher.target(1.0) == B
    following = world.link(B)
    assert following.session.outstanding() == [read]
    assert (link.is_closed, write.is_done) == (False, False)
    link.answer(write)
    world.dispatcher.on_received(link)
    assert write.take() is None
    assert link.is_closed
    assert not following.is_closed


def test_a_write_to_a_port_of_another_protocol_is_not_done():
    """Any other bytes that are no answer leave the outcome unknown."""
    for answer, kind in ((b"HTTP/1.1 400 Bad Request", ProtocolError), (b"garbage", Unknown)):
        world = World(A)
        link = world.link(A)
        write = world.ask("put")
        link.flush()
        link.session.receive(answer)
        world.dispatcher.on_broken(link, link.session.failure.message, 0.0)
        with pytest.raises(kind, match="speaks HTTP" if kind is ProtocolError else "may or may not have been done"):
            write.take()


@pytest.mark.parametrize("ends", ["cancelled", "late"])
def test_the_node_is_told_that_no_task_waits_for_a_request(ends):
    """The answers come late, and are dropped; a request that was answered costs no second message."""
    world = World(A, follows=False)
    link, asked = world.link(A), [world.ask(method, due=2.0) for method in ("get", "put", "changes")]
    world.deliver(link, asked[0])
    for request in asked[1:] if ends == "cancelled" else ():
        world.dispatcher.cancel(request)
    world.dispatcher.on_time(2.0)
    frames = [*msgpack.Unpacker(BytesIO(link.session.take_output()))]
    assert sorted(params for _, _, method, params in frames if method == "cancel") == [[1], [2]]
    assert link.session.awaited == 0


@pytest.mark.parametrize("says", [b"", b"\x94"])
def test_silence_after_a_cancellation(says):
    """A cancelled request still detects silence at its deadline."""
    world = World(A, B)
    link = world.link(A)
    world.dispatcher.cancel(world.ask(due=1.0))
    if says:
        link.session.receive(says)
    assert world.dispatcher.on_time(0.5) == 1.0
    world.dispatcher.on_time(1.0)
    assert (world.dispatcher.link is None) == (not says)


class Story(World):
    """A world with random events; the step's `choice` selects the affected request or link."""

    def __init__(self) -> None:
        super().__init__(A, B, stage_s=0.04)
        self.choice = 0
        self.links: list[FakeLink] = []
        self.asked: list[Request] = []
        self.names: dict[int, int] = {}  # The number of each request.
        self.cancelled: set[int] = set()
        self.begun: dict[int, FakeLink] = {}  # The link that took bytes of each write.
        self.answers = 0

    def get(self) -> None:
        self._asked("get")

    def put(self) -> None:
        self._asked("put")

    def _asked(self, method: str) -> None:
        at = (None, None, None, A, C)[self.choice % 5]
        self.asked.append(self.ask(method, self.time + 0.2 * (1 + self.choice % 9), at))
        self.names[id(self.asked[-1])] = len(self.asked)

    def cancel(self) -> None:
        if still_open := [request for request in self.asked if not request.is_done]:
            request = still_open[self.choice % len(still_open)]
            request.owner = None
            self.dispatcher.cancel(request)
            self.cancelled.add(id(request))

    def flush(self) -> None:
        for link in self._chosen():
            for request in link.session.outstanding():
                if not request.is_repeatable and not request.is_inner:
                    assert self.begun.setdefault(id(request), link) is link, "a write is sent once"
            link.flush()

    def answer(self) -> None:
        for link in self._chosen():
            self.flush()
            if outstanding := link.session.outstanding():
                request = outstanding[self.choice // 7 % len(outstanding)]
                original = getattr(request.history, "original", None) or request
                result = [{"address": str(C), "state": "alive"}] if request.method == "members" else None
                error = ["NOT_READY", "", {"coming": True}] if self.choice % 11 == 0 else None
                self.answers += 1
                self.deliver(link, request, None if error else result or self.names.get(id(original)), error)

    def break_link(self) -> None:
        for link in self._chosen():
            self.dispatcher.on_broken(link, "reset", self.time)

    def dial(self) -> None:
        while isinstance(target := self.dispatcher.target(self.time), Address):
            assert self.dispatcher._backoff.ready_at(target) <= self.time, "an address that failed rests"
            if (self.choice + target.port) % 7 < 2:
                self.dispatcher.on_dial_failed(target, "refused", self.time)
            else:
                self.links.append(self.link(target))

    def wait(self) -> None:
        self.time = min(max(self.time, self.dispatcher.alarm), self.time + 0.1)
        self.dispatcher.on_time(self.time)

    def _chosen(self) -> list[FakeLink]:
        links = [link for link in self.links if not link.is_closed]
        return links and [links[self.choice % len(links)]]

    def check(self) -> None:
        for lane in self.dispatcher._lanes:
            if lane.link is not None and lane.line:
                assert lane.link.session.is_full  # No request waits while there is room.
        assert self.dispatcher.hedges <= HEDGES + HEDGE_SHARE * self.answers


STEPS = st.sampled_from(
    ["get", "get", "put", "cancel", "flush", "answer", "answer", "break_link", "dial", "wait", "wait"]
)


# All values are drawn first, so that no draw depends on the dispatcher.
@given(st.lists(st.tuples(STEPS, st.integers(0, 99)), min_size=20, max_size=100))
def test_whatever_happens_every_request_ends_once(steps):
    """In any order of events a request is woken once, is never lost, and gets its own answer; a write is sent once."""
    story = Story()
    for step, story.choice in steps:
        getattr(story, step)()
        story.check()
    for link in story.links:
        if not link.is_closed:
            link.flush()
    while story.time < 10:
        story.time += 0.1
        story.dispatcher.on_time(story.time)
    assert all(request.is_done for request in story.asked)
    assert sorted(map(id, story.woken)) == sorted(id(each) for each in story.asked if id(each) not in story.cancelled)
    for number, request in enumerate(story.asked, 1):
        assert request.error is not None or id(request) in story.cancelled or request.result == number
