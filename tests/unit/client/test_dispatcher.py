"""The dispatcher and its policies without sockets or clocks: routes, back-off and the queue."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.client._client import Request, Session, call_request
from gossipkv.client.backoff import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.route import AddressRoute
from gossipkv.errors import TimedOut, Unavailable, Unknown

A, B, C = (Address("host", port) for port in (1, 2, 3))


class FakeLink:
    """A link that has only a session."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.session = Session(max_in_flight=3)
        self.is_closed = False
        self.ids: dict[int, int] = {}

    def send(self, request: Request) -> None:
        self.ids[id(request)] = len(self.ids)  # Ids are given in order.
        self.session.send(request)

    def answer(self, request: Request) -> None:
        """Deliver a nil answer to a request, which must be the completed one."""
        number = self.ids[id(request)]
        frame = b"\x94\x01" + (bytes([number]) if number < 128 else bytes([0xCC, number])) + b"\xc0\xc0"
        assert self.session.receive(frame) == [request]

    def flush(self) -> None:
        self.session.sent(len(self.session.take_output()))

    def close(self) -> None:
        self.is_closed = True


class World:
    """A dispatcher, and its wakes, alarms and wanted dials."""

    def __init__(self, *addresses: Address, draw: float = 1.0) -> None:
        self.woken: list[object] = []
        self.alarms: list[float] = []
        self.wanted = 0
        self.dispatcher = Dispatcher(AddressRoute(addresses), Backoff(lambda: draw), self)

    def wake(self, owner: object) -> None:
        self.woken.append(owner)

    def want_link(self) -> None:
        self.wanted += 1

    def set_alarm(self, at: float) -> None:
        self.alarms.append(at)

    def link(self, address: Address) -> FakeLink:
        link = FakeLink(address)
        self.dispatcher.on_connected(link)
        return link

    def ask(self, method: str = "get", due: float = 10.0) -> Request:
        """Submit a request that is its own owner."""
        request = call_request(method, ["geo", b"k"])
        request.owner = request
        self.dispatcher.submit(request, due)
        return request


def test_pauses_double_and_end_at_a_second():
    """The pause after each failure in a row lies in the upper half of its bound; an answer resets the pause."""
    for draw in (0.0, 0.5, 1.0):
        backoff = Backoff(lambda draw=draw: draw)
        assert backoff.ready_at(A) == 0
        for count in range(1, 40):
            backoff.failed(A, 100.0)
            longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (count - 1))
            assert backoff.ready_at(A) - 100 == pytest.approx(longest_s * (1 + draw) / 2)
            assert backoff.ready_at(B) == 0
        backoff.worked(A)
        assert backoff.ready_at(A) == 0


def test_each_address_is_dialled_once_for_a_request():
    """Addresses are dialled in order of preference; then the request fails with every reason."""
    world = World(A, B, C)
    request = world.ask()
    assert world.wanted == 1
    for number, address in enumerate((A, B, C)):
        assert world.dispatcher.target(0.0) == address
        assert not request.is_done
        world.dispatcher.on_dial_failed(address, f"reason {number}", 0.0)
    with pytest.raises(Unavailable, match="host:1: reason 0; host:2: reason 1; host:3: reason 2"):
        request.take()
    assert world.woken == [request]
    assert world.dispatcher.target(0.0) is None


def test_a_request_that_joins_late_has_its_own_attempts():
    """A request after a failure has its own attempt at that address, once the pause is over."""
    world = World(A, B)
    first = world.ask()
    world.dispatcher.on_dial_failed(A, "down", 0.0)
    second = world.ask()
    assert world.dispatcher.target(0.0) == B
    world.dispatcher.on_dial_failed(B, "down", 0.0)
    assert (first.is_done, second.is_done) == (True, False)
    assert world.dispatcher.target(0.0) == FIRST_PAUSE_S
    assert world.dispatcher.target(FIRST_PAUSE_S) == A
    world.dispatcher.on_dial_failed(A, "still down", FIRST_PAUSE_S)
    assert isinstance(second.error, Unavailable)


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
    """A link that closes without an answer counts as a failure of its address."""
    world = World(A, B)
    link = world.link(A)
    request = world.ask()
    world.dispatcher.on_broken(link, "closed", 0.0)
    assert world.dispatcher.target(0.0) == B
    world.dispatcher.on_dial_failed(B, "refused", 0.0)
    with pytest.raises(Unavailable, match="host:1: closed; host:2: refused"):
        request.take()
    world.ask()
    assert world.dispatcher.target(0.0) == FIRST_PAUSE_S


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
    with pytest.raises(Unavailable, match="host:1: closed again"):
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
    with pytest.raises(TimedOut, match="host:1 did not answer get in time"):
        read.take()
    with pytest.raises(Unknown, match="no answer in time; put may or may not"):
        write.take()
    with pytest.raises(TimedOut, match="took no more requests in time"):
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
        with pytest.raises(TimedOut, match="host:1 did not answer get in time"):
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
    with pytest.raises(TimedOut, match="took no more requests in time"):
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


@pytest.mark.parametrize("says", [b"", b"\x94"])
def test_silence_after_a_cancellation(says):
    """A cancelled request still detects silence at its deadline."""
    world = World(A, B)
    link = world.link(A)
    world.dispatcher.cancel(world.ask(due=1.0))
    if says:
        link.session.receive(says)
    assert world.dispatcher.on_time(0.5) == 1.0
    assert world.dispatcher.on_time(1.0) == inf
    assert (world.dispatcher.link is None) == (not says)


class Story(World):
    """A world with random events; the step's `choice` selects the affected request or link."""

    def __init__(self) -> None:
        super().__init__(A, B)
        self.choice = 0
        self.now = 0.0
        self.asked: list[Request] = []
        self.cancelled: set[int] = set()

    def get(self) -> None:
        self.asked.append(self.ask("get", due=self.now + 1 + self.choice % 5))

    def put(self) -> None:
        self.asked.append(self.ask("put", due=self.now + 1 + self.choice % 5))

    def cancel(self) -> None:
        if still_open := [request for request in self.asked if not request.is_done]:
            request = still_open[self.choice % len(still_open)]
            request.owner = None
            self.dispatcher.cancel(request)
            self.cancelled.add(id(request))

    def flush(self) -> None:
        if self.dispatcher.link is not None:
            self.dispatcher.link.flush()

    def answer(self) -> None:
        link = self.dispatcher.link
        if link is not None and (outstanding := link.session.outstanding()):
            request = outstanding[self.choice % len(outstanding)]
            link.answer(request)
            self.wake(request.owner)
            request.owner = None
            self.dispatcher.on_received(link)

    def break_link(self) -> None:
        if self.dispatcher.link is not None:
            self.dispatcher.on_broken(self.dispatcher.link, "reset", self.now)

    def dial(self) -> None:
        target = self.dispatcher.target(self.now)
        if isinstance(target, Address):
            if self.choice % 10 < 3:
                self.dispatcher.on_dial_failed(target, "refused", self.now)
            else:
                self.link(target)

    def time(self) -> None:
        self.now += 1.0
        self.dispatcher.on_time(self.now)


STEPS = st.sampled_from(["get", "get", "put", "cancel", "flush", "answer", "break_link", "dial", "time"])


# All values are drawn first, so that no draw depends on the dispatcher.
@given(st.lists(st.tuples(STEPS, st.integers(0, 99)), max_size=80))
def test_whatever_happens_every_request_ends_once(steps):
    """In any order of events a request is woken once, is never lost, and gets its own answer."""
    story = Story()
    for step, story.choice in steps:
        getattr(story, step)()
        if story.dispatcher.link is not None and story.dispatcher._line:
            assert story.dispatcher.link.session.is_full  # No request waits while there is room.
    story.dispatcher.on_time(story.now + 100)
    assert all(request.is_done for request in story.asked)
    assert sorted(map(id, story.woken)) == sorted(id(each) for each in story.asked if id(each) not in story.cancelled)
