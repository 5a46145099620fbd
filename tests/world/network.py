"""Datagrams between machines: lost, late, doubled, out of order, damaged, cut off, held up, too large.

Faults are set for each directed link, or for all links without a setting of their own.  While no fault is set (the
links are *quiet*: a delay and nothing else), a datagram costs one draw and one event, so thousands of node-hours can be
simulated.  Every fault that strikes is counted under its name in `struck`.

Connections (`gossip/rig.py`) use the same links: they survive loss by sending again, and wait while a
link is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappush
from typing import TYPE_CHECKING, Protocol, final
from zlib import crc32

from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection

    from gossipkv.address import Address
    from tests.world.rig import Rig
    from tests.world.scheduler import Scheduler
    from tests.world.streams import Streams

MIN_DELAY_US = 200  # The delay of a rack's network and two kernels.
DELAY_SPREAD_US = 800
MAX_DELAY_US = 10 * SECOND
REORDER_US = 50 * MS
UDP_HEADER_BYTES = 28  # IPv4 and UDP headers; they count as sent.
MTU_BYTES = 1472  # The room for a datagram in an Ethernet frame.


@final
@dataclass(slots=True)
class NetworkLink:
    """The faults of one direction between two machines; chances are per datagram."""

    loss: float = 0.0
    heavy_delay: float = 0.0  # The chance of a delay with a heavy tail: 1 ms over a uniform draw.
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    cut: bool = False  # Nothing passes.
    datagrams_cut: bool = False  # Only connections pass.
    connects_cut: bool = False  # Existing connections pass, but no new one begins.
    stalls: bool = False  # Half of a connection's next segment passes, and nothing behind it.
    clogged_until_us: int = 0  # Earlier packets wait until then.
    mtu_bytes: int = MTU_BYTES
    least_delay_us: int = MIN_DELAY_US
    delay_spread_us: int = DELAY_SPREAD_US

    @property
    def is_quiet(self) -> bool:
        """Return True if there is a delay and nothing else."""
        quiet = NetworkLink(least_delay_us=self.least_delay_us, delay_spread_us=self.delay_spread_us)
        return self == quiet


class Host(Protocol):
    """A machine, as the network and its connections see it."""

    number: int
    name: str
    address: Address
    source: int  # The number of its address.
    rig: Rig
    core: object | None  # The core of its process; None: no process runs.
    life: int  # The number of the present process, or of the time without one.
    heard_ms: int
    is_starved: bool

    @property
    def now_ms(self) -> int: ...
    def arrive(self, packet: bytes, source: int) -> None: ...
    def when_free(self, do: Callable[[], None]) -> None: ...
    def after_input(self) -> None: ...


@final
class Network:
    def __init__(self, scheduler: Scheduler, streams: Streams, struck: Counter[str]) -> None:
        self._scheduler = scheduler
        self._events = scheduler.events
        self._number = scheduler.next_number
        self._delay = streams["network/delay"].random
        self._streams = streams
        self.struck = struck
        self.machines: dict[Address, Host] = {}
        self.addresses: list[Address] = []  # By the number that names a datagram's sender.
        self.usual = NetworkLink()
        self._links: dict[tuple[int, int], NetworkLink] = {}
        self._quiet = True
        self.trace = 0  # A checksum of every datagram and its arrival time: equal runs have equal traces.
        self.sent = 0
        self.sent_bytes = 0  # Includes headers.
        self.largest_bytes = 0
        # Selects packets and requests that get nowhere: see `refuse`.
        self.refuses: Callable[[bytes], bool] | None = None
        self._taps: list[Callable[[Host, Address, bytes], None]] = []
        self._set()

    # Addresses

    def bind(self, address: Address, machine: Host) -> int:
        """Deliver datagrams to `address` to `machine`; return the number of the address."""
        assert address not in self.machines or self.machines[address] is machine, f"{address} is taken"
        self.machines[address] = machine
        self.addresses.append(address)
        return len(self.addresses) - 1

    def unbind(self, address: Address) -> None:
        self.machines.pop(address, None)

    # Links

    def link(self, source: Host, target: Host) -> NetworkLink:
        """Return the link of one direction, for changes; call `changed` afterwards."""
        key = source.number, target.number
        if key not in self._links:
            usual = self.usual
            self._links[key] = NetworkLink(*(getattr(usual, name) for name in usual.__slots__))
        return self._links[key]

    def changed(self) -> None:
        """Find out whether any fault is possible after links were changed."""
        self._set()

    def partition(self, *sides: Collection[Host], one_way: bool = False) -> None:
        """Cut all links between different sides; `one_way`: only those from an earlier to a later one."""
        for here, side in enumerate(sides):
            for there, other in enumerate(sides):
                if here != there and not (one_way and here > there):
                    for source in side:
                        for target in other:
                            self.link(source, target).cut = True
        self._set()

    def join(self, machines: Collection[Host]) -> None:
        """Remove the cuts between these machines."""
        numbers = {machine.number for machine in machines}
        for (source, target), link in self._links.items():
            if source in numbers and target in numbers:
                link.cut = False

    def heal(self) -> None:
        self.usual = NetworkLink(least_delay_us=self.usual.least_delay_us, delay_spread_us=self.usual.delay_spread_us)
        self._links.clear()
        self._set()

    def tap(self, heard: Callable[[Host, Address, bytes], None]) -> None:
        """Call `heard` with each datagram as it is sent."""
        self._taps.append(heard)
        self._set()

    def refuse(self, which: Callable[[bytes], bool]) -> None:
        """Block all datagrams and requests for which `which` is true."""
        self.refuses = which
        self._set()

    def _set(self) -> None:
        self._quiet = self.usual.is_quiet and not self._links and not self._taps and self.refuses is None
        self._least_us, self._spread_us = self.usual.least_delay_us, self.usual.delay_spread_us

    # Sending

    def send(self, source: Host, to: Address, packet: bytes) -> None:
        size = len(packet)
        self.sent += 1
        self.sent_bytes += size + UDP_HEADER_BYTES
        if size > self.largest_bytes:
            self._grow(size)
        if not self._quiet:
            self._send_through(source, to, packet)
            return
        target = self.machines.get(to)
        if target is None:
            return
        at_us = self._scheduler.now_us + self._least_us + int(self._delay() * self._spread_us)
        self.trace = crc32(packet, (self.trace + at_us) & 0xFFFFFFFF)
        heappush(self._events, (at_us, self._number(), target.arrive, packet, source.source))

    def _grow(self, size_bytes: int) -> None:
        self.largest_bytes = size_bytes

    def _send_through(self, source: Host, to: Address, packet: bytes) -> None:
        """Send one datagram over a link that may have faults."""
        for heard in self._taps:
            heard(source, to, packet)
        target = self.machines.get(to)
        if target is None or (self.refuses is not None and self.refuses(packet)):
            return
        link = self._links.get((source.number, target.number), self.usual)
        if link.cut or link.datagrams_cut:
            self.struck["cut"] += 1
        elif len(packet) > link.mtu_bytes:
            self.struck["mtu"] += 1
        elif not self._happens("loss", link.loss):
            copies = 2 if self._happens("duplicate", link.duplicate) else 1
            for _ in range(copies):
                self._deliver(source, target, link, packet)

    def _deliver(self, source: Host, target: Host, link: NetworkLink, packet: bytes) -> None:
        at_us = self._scheduler.now_us + self.delay_us(link)
        if self._happens("reorder", link.reorder):
            at_us += int(self._streams["network/reorder"].random() * REORDER_US)
        if self._happens("corrupt", link.corrupt):
            bit = int(self._streams["network/corrupt"].random() * 8 * len(packet))
            damaged = bytearray(packet)
            damaged[bit // 8] ^= 1 << bit % 8
            packet = bytes(damaged)
        if at_us < link.clogged_until_us:
            self.struck["clog"] += 1
            at_us = link.clogged_until_us  # All waiting datagrams come at once, in order.
        self.trace = crc32(packet, (self.trace + at_us) & 0xFFFFFFFF)
        heappush(self._events, (at_us, self._number(), target.arrive, packet, source.source))

    def delay_us(self, link: NetworkLink) -> int:
        usual = link.least_delay_us + int(self._delay() * link.delay_spread_us)
        if self._happens("heavy_delay", link.heavy_delay):
            return min(MAX_DELAY_US, usual + int(MS / (1 - self._streams["network/heavy_delay"].random())))
        return usual

    def fold(self, data: bytes, at_us: int) -> None:
        """Fold a connection's segment, and its arrival time, into the trace."""
        self.trace = crc32(data, (self.trace + at_us) & 0xFFFFFFFF)

    def way(self, source: Host, to: Address) -> tuple[Host, NetworkLink] | None:
        """Return the machine at an address, and the link to it."""
        target = self.machines.get(to)
        if target is None:
            return None
        return target, self._links.get((source.number, target.number), self.usual)

    def is_lost(self, link: NetworkLink) -> bool:
        """Return True if one segment of a connection is lost."""
        return self._happens("loss", link.loss)

    def _happens(self, name: str, chance: float) -> bool:
        if chance and self._streams[f"network/{name}?"].random() < chance:
            self.struck[name] += 1
            return True
        return False
