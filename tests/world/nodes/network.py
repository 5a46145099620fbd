"""The wire between the machines of a simulation: one task that delivers, at the times that the links draw.

Machines have addresses (`10.0.0.1`); the faults between them are set as in the heap simulation
(`tests.world.network.NetworkLink`), for all links or for one direction of one.  Datagrams are lost, late, doubled, out
of order, damaged.

Connections carry bytes in order, each once, until an end is gone.  As with TCP, a segment that meets a loss or a cut is
sent again after a pause that doubles, and all later ones wait.  A sender has room for one window of bytes that its peer
has not taken.

The ends of a connection::

    close         the peer reads the sent bytes, then the end
    abort         the peer's next operation fails: connection reset
    power loss    the peer hears nothing; if it sends and the machine is up again, it is reset
"""

from __future__ import annotations

import errno
import os
from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from tests.world.network import MAX_DELAY_US, REORDER_US, NetworkLink

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable

    from gossipkv.address import Address
    from tests.world.nodes.trace import Trace
    from tests.world.streams import Streams

# Linux's TCP: the first retransmission time, and the longest pause between two.
MIN_RETRY_S: Final = 0.2
MAX_RETRY_S: Final = 120.0

WINDOW_BYTES: Final = 256 * 1024
_END: Final = b""

# The times after which Linux gives up connecting, or retransmitting one segment.
CONNECT_S: Final = 127.0
GIVE_UP_S: Final = 924.0

_US: Final = 1e-6


class Listening(Protocol):
    """A listening socket, as the wire sees it."""

    def knock(self, stream: StreamEnd) -> None: ...


class Receiving(Protocol):
    """A datagram socket, as the wire sees it."""

    def arrive(self, packet: bytes, source: Address) -> None: ...


@final
class SimulatedNetwork:
    def __init__(self, streams: Streams, struck: Counter[str], trace: Trace) -> None:
        self._streams = streams
        self.struck = struck
        self.trace = trace
        self.usual = NetworkLink()
        self._links: dict[tuple[str, str], NetworkLink] = {}
        self.running: set[str] = set()  # The machines that have power.
        self.listening: dict[Address, Listening] = {}
        self.receiving: dict[Address, Receiving] = {}
        self.names: dict[str, tuple[str, ...]] = {}  # The name service's records.
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._earlier = trio.Event()

    # Links

    def link(self, source: str, target: str) -> NetworkLink:
        """Return the link of one direction, for changes."""
        return self._links.setdefault((source, target), replace(self.usual))

    def partition(self, *sides: Iterable[str], one_way: bool = False, datagrams_only: bool = False) -> None:
        """Cut all links between different sides; `one_way`: only those from an earlier to a later one."""
        groups = [tuple(side) for side in sides]
        for here, side in enumerate(groups):
            for there, other in enumerate(groups):
                if here == there or (one_way and here > there):
                    continue
                for link in (self.link(source, target) for source in side for target in other):
                    link.cut, link.datagrams_cut = not datagrams_only, True
        self.trace.note("network", "partition", f"{groups} {one_way} {datagrams_only}")

    def heal(self) -> None:
        self.usual = NetworkLink()
        self._links.clear()
        self.trace.note("network", "heal")

    # Delivery

    async def run(self) -> None:
        while True:
            while self._events and self._events[0][0] <= trio.current_time():
                heappop(self._events)[2]()
            self._earlier = trio.Event()
            with trio.move_on_at(self._events[0][0] if self._events else float("inf")):
                await self._earlier.wait()

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        at = trio.current_time() + delay_s
        if not self._events or at < self._events[0][0]:
            self._earlier.set()
        heappush(self._events, (at, next(self._numbers), do))

    def send_datagram(self, source: Address, target: Address, packet: bytes) -> None:
        """Send one datagram, which may be lost, doubled, late or damaged."""
        link = self._link(source.host, target.host)
        self.trace.note(str(source), "datagram", target, packet)
        if link.cut or link.datagrams_cut:
            self.struck["cut"] += 1
        elif len(packet) > link.mtu_bytes:
            self.struck["mtu"] += 1
        elif not self._happens("loss", link.loss):
            for _ in range(2 if self._happens("duplicate", link.duplicate) else 1):
                self._deliver(source, target, link, packet)

    def _deliver(self, source: Address, target: Address, link: NetworkLink, packet: bytes) -> None:
        delay_s = self.delay_s(link)
        if self._happens("reorder", link.reorder):
            delay_s += self._streams["network/reorder"].random() * REORDER_US * _US
        if self._happens("corrupt", link.corrupt):
            bit = self._streams["network/corrupt"].randrange(8 * len(packet))
            damaged = bytearray(packet)
            damaged[bit // 8] ^= 1 << bit % 8
            packet = bytes(damaged)

        def arrive() -> None:
            receiver = self.receiving.get(target)
            if receiver is not None:
                receiver.arrive(packet, source)

        self.after(delay_s, arrive)

    # For connections

    def segment_s(self, source: str, target: str) -> float | None:
        """Return the duration of one segment; None: it does not arrive."""
        link = self._link(source, target)
        if link.cut:
            self.struck["cut"] += 1
            return None
        if self._happens("loss", link.loss):
            return None
        return self.delay_s(link)

    def stalls(self, source: str, target: str) -> bool:
        """Return True if the link stalls connections within their next segment."""
        return self._link(source, target).stalls

    def lets_connect(self, source: str, target: str) -> bool:
        """Return True if the link permits new connections."""
        return not self._link(source, target).connects_cut

    def delay_s(self, link: NetworkLink) -> float:
        """Return the duration of one packet on this link."""
        delay_us = link.least_delay_us + int(self._streams["network/delay"].random() * link.delay_spread_us)
        if self._happens("heavy_delay", link.heavy_delay):
            tail_us = int(1000 / (1 - self._streams["network/heavy_delay"].random()))
            delay_us = min(MAX_DELAY_US, delay_us + tail_us)
        return max(delay_us * _US, link.clogged_until_us * _US - trio.current_time())

    def _link(self, source: str, target: str) -> NetworkLink:
        return self._links.get((source, target), self.usual)

    def _happens(self, name: str, chance: float) -> bool:
        if chance and self._streams[f"network/{name}?"].random() < chance:
            self.struck[name] += 1
            return True
        return False


@final
class StreamEnd:
    """One end of a connection.  Its user sets `on_move`, which is called when `receive` or `send` may go on."""

    def __init__(self, network: SimulatedNetwork, host: str, name: str) -> None:
        self._network = network
        self.host = host
        self.name = name
        self.on_move: Callable[[], None] = _nothing
        self.peer: StreamEnd | None = None
        self._arrived: deque[bytes] = deque()
        self._ended = False  # The peer's end has arrived.
        self.is_broken = False  # The peer is gone.
        self._closed = False  # Closed by this end.
        self.is_lost = False  # The machine is off or the process gone.
        self._sending: deque[bytes] = deque()  # Segments on their way, the first one under way.
        self._is_halved = False  # The first is the rest of a segment within which the link stalled.
        self.unread_bytes = 0  # Sent bytes that the peer has not taken.
        self.give_up_s = GIVE_UP_S  # The time after which retransmission gives up.

    def join(self, peer: StreamEnd) -> None:
        self.peer, peer.peer = peer, self

    # For both kinds of users

    @property
    def room_bytes(self) -> int:
        if self._closed or self.is_broken:
            return 0
        return WINDOW_BYTES - self.unread_bytes

    @property
    def is_readable(self) -> bool:
        """True if `receive` would return bytes or the end, or raise."""
        return bool(self._arrived) or self._ended or self.is_broken

    def receive(self, most_bytes: int) -> bytes | None:
        """Return the arrived bytes; empty at the end; None: nothing yet.

        Raises:
            ConnectionResetError: the peer is gone.
        """
        if self._arrived:
            data = self._arrived.popleft()
            if len(data) > most_bytes:
                self._arrived.appendleft(data[most_bytes:])
                data = data[:most_bytes]
            self._taken(len(data))
            return data
        if self._ended:
            return b""  # Linux does so too, even if a reset follows.
        if self.is_broken:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return None

    def send(self, data: bytes) -> None:
        """Send bytes.  Requires: no more than there is room for."""
        assert 0 < len(data) <= self.room_bytes
        self._network.trace.note(self.host, "stream", self.name, data)
        self.unread_bytes += len(data)
        self._give(data)

    def close(self) -> None:
        """Send the remaining bytes, then the end; take no more."""
        if not self._closed:
            self._closed = True
            self._network.trace.note(self.host, "close", self.name)
            self._give(_END)

    def abort(self) -> None:
        """Drop this end, and reset the peer."""
        if not self.is_lost:
            self.lose()
            if not self.is_broken:
                self._network.trace.note(self.host, "reset", self.name)
                self.reset_peer(MIN_RETRY_S, 0.0)

    def lose(self) -> None:
        self._closed = self.is_lost = True
        self._sending.clear()
        self._arrived.clear()

    # On the wire

    def _give(self, segment: bytes) -> None:
        self._sending.append(segment)
        if len(self._sending) == 1:
            self._transmit(MIN_RETRY_S, 0.0)

    def _transmit(self, again_s: float, tried_s: float) -> None:
        """Send the first segment, and again until it arrives."""
        peer = self.peer
        assert peer is not None
        if self.is_lost or self.is_broken or not self._sending:
            return
        stalls = self._is_halved and self._network.stalls(self.host, peer.host)
        passes = peer.host in self._network.running and not stalls
        delay_s = self._network.segment_s(self.host, peer.host) if passes else None
        if delay_s is not None:
            self._network.after(delay_s, self._arrive)
        elif tried_s >= self.give_up_s:
            self.end_broken()
        else:
            self._network.struck["sent_again"] += 1
            again_s = min(again_s, self.give_up_s - tried_s)
            later_s = min(2 * again_s, MAX_RETRY_S)
            self._network.after(again_s, lambda: self._transmit(later_s, tried_s + again_s))

    def _arrive(self) -> None:
        peer = self.peer
        assert peer is not None
        if self.is_lost or self.is_broken:
            return
        if peer.host not in self._network.running:  # The peer lost power meanwhile.
            self._transmit(MIN_RETRY_S, 0.0)
            return
        if peer.is_lost:
            peer.reset_peer(MIN_RETRY_S, 0.0)
            return
        segment = self._sending.popleft()
        self._is_halved = self._network.stalls(self.host, peer.host) and len(segment) > 1
        if self._is_halved:
            self._network.struck["stalled"] += 1
            self._sending.appendleft(segment[len(segment) // 2 :])
            segment = segment[: len(segment) // 2]
        peer.take_in(segment)
        if self._sending:
            self._transmit(MIN_RETRY_S, 0.0)

    def take_in(self, segment: bytes) -> None:
        if segment == _END:
            self._ended = True
        elif self._closed:
            self._taken(len(segment))  # No user will read it.
        else:
            self._arrived.append(segment)
        self.on_move()

    def _taken(self, size_bytes: int) -> None:
        """Give the peer room for bytes that the user took, at once."""
        assert self.peer is not None
        self.peer.unread_bytes -= size_bytes
        self.peer.on_move()

    def reset_peer(self, again_s: float, tried_s: float) -> None:
        """Tell the peer that this end is gone.

        TCP resets a peer each time the peer sends; one reset stands for all of these.
        """
        peer = self.peer
        assert peer is not None
        if peer.is_lost or peer.is_broken or tried_s >= GIVE_UP_S:
            return
        delay_s = self._network.segment_s(self.host, peer.host) if peer.host in self._network.running else None
        if delay_s is not None:
            self._network.after(delay_s, peer.end_broken)
        else:
            self._network.after(again_s, lambda: self.reset_peer(min(2 * again_s, MAX_RETRY_S), tried_s + again_s))

    def end_broken(self) -> None:
        """Note that the peer is gone, as far as this end can know."""
        if not self.is_lost and not self.is_broken:
            self.is_broken = True
            self._sending.clear()
            self.on_move()


def _nothing() -> None:
    """Do nothing."""


async def connect(network: SimulatedNetwork, host: str, target: Address) -> StreamEnd:
    """Return a connection from the machine `host`.

    Raises:
        OSError: no socket listens at `target`, or the machine did not answer.
    """
    again_s, tried_s = 1.0, 0.0
    while True:
        reached = target.host in network.running and network.lets_connect(host, target.host)
        delay_s = network.segment_s(host, target.host) if reached else None
        if delay_s is not None:
            await trio.sleep(delay_s)
            back_s = network.segment_s(target.host, host) if target.host in network.running else None
            if back_s is not None:
                return await _answered(network, host, target, back_s)
        if tried_s >= CONNECT_S:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        await trio.sleep(again_s)
        tried_s += again_s
        again_s *= 2


async def _answered(network: SimulatedNetwork, host: str, target: Address, back_s: float) -> StreamEnd:
    """Accept or refuse a connection at the target machine."""
    listener = network.listening.get(target)
    network.trace.note(host, "connect" if listener is not None else "refused", target)
    if listener is None:
        await trio.sleep(back_s)
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    here, there = StreamEnd(network, host, f"to {target}"), StreamEnd(network, target.host, f"from {host}")
    here.join(there)
    listener.knock(there)
    try:
        await trio.sleep(back_s)
    except trio.Cancelled:
        here.abort()
        raise
    return here
