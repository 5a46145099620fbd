"""A dispatcher with fake links, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from gossipkv.client._client import Request, Session, call_request
from gossipkv.client.backoff import Backoff
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.route import AddressRoute

if TYPE_CHECKING:
    from gossipkv.address import Address


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
        assert self.session.receive(msgpack.packb([1, self.ids[id(request)], None, None])) == [request]

    def flush(self) -> None:
        self.session.sent(len(self.session.take_output()))

    def close(self) -> None:
        self.is_closed = True


class World:
    """A dispatcher, and its wakes, alarms and wanted dials."""

    def __init__(self, *addresses: Address, draw: float = 1.0, stage_s: float | None = None, **options) -> None:
        self.time = 0.0
        self.woken: list[object] = []
        self.alarms: list[float] = []
        self.wanted = 0
        self.dispatcher = Dispatcher(AddressRoute(addresses), Backoff(lambda: draw), self, stage_s=stage_s, **options)

    def now(self) -> float:
        return self.time

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

    def deliver(self, link: FakeLink, request: Request, result: object = None, error: object = None) -> None:
        """Deliver an answer as a shell does."""
        frame = msgpack.packb([1, link.ids[id(request)], error, result])
        [done] = link.session.receive(frame)
        assert done is request
        if request.error is None and not request.is_inner:
            self.wake(request.owner)
            request.owner = None
        else:
            self.dispatcher.on_answered(link, [request], self.time)
        self.dispatcher.on_received(link)

    def ask(self, method: str = "get", due: float = 10.0, at: Address | None = None) -> Request:
        """Submit a request that is its own owner."""
        request = call_request(method, ["geo", b"k"])
        request.owner, request.at = request, at
        self.dispatcher.submit(request, due)
        return request
