"""Ordered connections between processes: every message arrives in its order, or the connection breaks.

Two machines share one connection, which either begins.  First the ends tell each other their identity: the node's uuid,
its store and that store's life.  Messages sent before that wait, so no message reaches the wrong process if its rig
closes a connection to an unwanted peer at once.

Links and delays are those of datagrams (`network.py`).  A lost segment is sent again, and all later ones queue behind
it.  A cut, a clog and a starved sender cost time, up to `BREAK_US`.  Messages to a paused process wait for it.  A
connection breaks

* when the process at one end is over.  Messages under way still arrive before the other end is told, so a message sent
  just before a crash is as real as a write; messages that waited to be sent again are lost.  Usually the machine tells
  the other end at once; otherwise, as without power, the other end learns of it when something it sends reaches a
  machine without its peer, and in time without sending;
* when nothing gets through for `BREAK_US`: the sender is told, and the other end when it can be reached again, at the
  latest after another `BREAK_US`;
* when more than `BUFFER_BYTES` wait in one direction, or an end closes it.

No end notices that an idle connection is cut, or only the way back: a process that waits for an answer needs its own
timeout.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.world.machine import Machine
    from tests.world.network import NetworkLink
    from tests.world.world import World

RETRY_US: Final = 200 * MS  # Linux's first retransmission time; each further one doubles it.
MAX_RETRY_US: Final = 800 * MS
BREAK_US: Final = 5 * SECOND
BUFFER_BYTES: Final = 1 << 20
MESSAGE_BYTES: Final = 64  # The cost of each message besides its content.
HANDSHAKE_WAYS: Final = 3
SILENT: Final = 0.25  # The share of ended processes whose machines tell no peer.


class Identity(NamedTuple):
    uuid: bytes  # The node's uuid.
    store: int  # The store's id.
    life: int  # The store's life.


class Peer(NamedTuple):
    address: Address
    uuid: bytes
    store: int
    life: int
    number: int  # The connection's number, which is unique.


class Listener(Protocol):
    """The receiver of a machine's connection events; after each call its machine performs the resulting effects."""

    @property
    def identity(self) -> Identity: ...
    def on_connected(self, peer: Peer) -> None: ...
    def on_message(self, peer: Peer, message: bytes) -> None: ...
    def on_broken(self, address: Address, peer: Peer | None) -> None:
        """Handle the end of a connection; `peer` is None if the connection was never established."""


@final
class _Lane:
    """One direction of a connection, which keeps the order of its messages."""

    __slots__ = ("_arrives_us", "_give_up", "_queue", "_retry_us", "_since_us", "_source", "_to", "_world")

    def __init__(self, world: World, source: Machine, to: Address, give_up: Callable[[], None]) -> None:
        self._world = world
        self._source, self._to = source, to
        self._give_up = give_up  # Called when nothing got through for too long.
        self._queue: deque[tuple[bytes, Callable[[], None], int]] = deque()
        self._arrives_us = 0  # When the latest sent message arrives.
        self._since_us: int | None = None  # Since when nothing has got through.
        self._retry_us = RETRY_US

    def put(self, data: bytes, arrive: Callable[[], None], *, ways: int = 1) -> None:
        """Call `arrive` at the other end, after all earlier messages, with a delay of `ways` trips."""
        self._queue.append((data, arrive, ways))
        if self._since_us is None:
            self._send()

    def drop(self) -> None:
        self._queue.clear()

    def deliver_anyway(self) -> None:
        while self._queue:
            self._world.scheduler.after(0, self._queue.popleft()[1])

    def _send(self) -> None:
        scheduler, network = self._world.scheduler, self._world.network
        while self._queue:
            data, arrive, ways = self._queue[0]
            link = self._passable(ways)
            if link is None:
                if self._since_us is None:
                    self._since_us, self._retry_us = scheduler.now_us, RETRY_US
                scheduler.after(self._retry_us, self._again)
                self._retry_us = min(2 * self._retry_us, MAX_RETRY_US)
                return
            self._queue.popleft()
            self._since_us = None
            delay_us = network.delay_us(link) if ways == 1 else sum(network.delay_us(link) for _ in range(ways))
            self._arrives_us = at_us = max(self._arrives_us, scheduler.now_us + delay_us)
            network.fold(data, at_us)
            scheduler.at(at_us, arrive)
        self._since_us = None

    def _passable(self, ways: int) -> NetworkLink | None:
        """Return the link if the next segment gets through, else None."""
        network, source = self._world.network, self._source
        found = network.way(source, self._to)
        if found is None or source.is_starved:
            return None
        link = found[1]
        is_shut = link.cut or (link.connects_cut and ways > 1) or self._world.now_us < link.clogged_until_us
        return None if is_shut or network.is_lost(link) else link

    def _again(self) -> None:
        now_us = self._world.now_us
        if self._since_us is not None and now_us - self._since_us >= BREAK_US:
            self._since_us = now_us
            self._give_up()
        self._send()


@final
class _End:
    __slots__ = (
        "_all",
        "_early",
        "_is_closed",
        "_is_heard_of",
        "is_over",
        "lane",
        "life",
        "machine",
        "number",
        "other",
        "peer",
        "waiting_bytes",
    )

    def __init__(self, connections: Connections, machine: Machine, to: Address, number: int) -> None:
        self._all = connections
        self.machine, self.life = machine, machine.life
        self.number = number
        self.other: _End
        self.peer: Peer | None = None  # Set once the peer has identified itself.
        self.lane = _Lane(connections.world, machine, to, self._give_up)
        self.waiting_bytes = 0  # On their way to the other end's rig.
        self.is_over = False  # An ended connection sends nothing and refuses arriving messages.
        self._early: list[bytes] = []  # Messages sent before the other end was known.
        self._is_closed = False  # Its own rig closed it and hears nothing more.
        self._is_heard_of = False  # True once its rig has begun it or heard of it.

    @property
    def is_there(self) -> bool:
        return self.machine.life == self.life and self.machine.core is not None

    # Establishment

    def dial(self) -> None:
        self._is_heard_of = True
        self._all.hold(self)
        identity = self._all.listener(self.machine).identity
        self.lane.put(b"dial", partial(self.other.knock, identity), ways=HANDSHAKE_WAYS)

    def knock(self, identity: Identity) -> None:
        if self.machine.core is None or self.is_over:
            self.is_over = True
            self._all.forget(self)
            self._refuse()
            return
        if not self.is_there:  # Messages of an earlier life are lost with it.
            self.life = self.machine.life
            self._early.clear()
        self._all.hold(self)
        self.machine.when_free(partial(self._accept, identity))

    def _accept(self, identity: Identity) -> None:
        if not self.is_there or self.is_over:
            self._refuse()
            return
        mine = self._all.listener(self.machine).identity
        self.lane.put(b"accept", partial(self.other.accepted, mine))
        self._meet(identity)

    def accepted(self, identity: Identity) -> None:
        if self.is_over:
            self._refuse()
        else:
            assert self.is_there, "an end is over when its process is"
            self.machine.when_free(partial(self._meet, identity))

    def _meet(self, identity: Identity) -> None:
        if self._is_closed or not self.is_there:
            return
        if not self.is_over and not self._all.put_in_use(self):
            return  # The process ended when it heard that an earlier connection was over.
        self._is_heard_of = True
        self.peer = Peer(self.other.machine.address, *identity, self.number)
        self._all.listener(self.machine).on_connected(self.peer)
        early, self._early = self._early, []
        for message in early:
            if not self.is_over:
                self._put(message)
        self.machine.after_input()

    # Messages

    def send(self, message: bytes) -> None:
        self._is_heard_of = True
        self._all.hold(self)
        self.waiting_bytes += len(message) + MESSAGE_BYTES
        if self.waiting_bytes > BUFFER_BYTES:
            self._all.world.struck["connection_full"] += 1
            self.machine.later(0, self._break_off)  # Its rig is still in the middle of a step.
        elif self.peer is None:
            self._early.append(message)
        else:
            self._put(message)

    def _put(self, message: bytes) -> None:
        self.lane.put(message, partial(self.other.arrive, message))
        self.machine.burn_fuse()

    def arrive(self, message: bytes) -> None:
        if self.is_over:
            self._refuse()
        else:
            assert self.is_there, "an end is over when its process is"
            self.machine.when_free(partial(self._read, message))

    def _read(self, message: bytes) -> None:
        self.other.waiting_bytes -= len(message) + MESSAGE_BYTES
        if not self._is_closed and self.is_there:
            assert self.peer is not None, "who is there comes first"
            self.machine.heard_ms = self.machine.now_ms
            self._all.listener(self.machine).on_message(self.peer, message)
            self.machine.after_input()

    # The end

    def close(self) -> None:
        self._is_closed = self.is_over = True
        self.finish()

    def finish(self, *, silently: bool = False) -> None:
        """Stop sending; tell the other end, or leave it to find out."""
        self.is_over = True
        self._all.forget(self)
        self.lane.drop()
        if not silently:
            self.lane.put(b"", self.other.hear_end)
        else:
            world = self._all.world
            after_us = int(world.streams["connections/silence"].random() * BREAK_US)
            world.scheduler.after(after_us, self.other.hear_end)

    def _give_up(self) -> None:
        if self.is_over:
            self.lane.deliver_anyway()  # Only the news of the end was waiting.
        else:
            self._break_off()

    def _break_off(self) -> None:
        if self.is_there and not self.is_over:
            self._all.world.struck["connection_broken"] += 1
            self.finish()
            self._tell_broken()

    def _refuse(self) -> None:
        if not self.other.is_over:
            self.lane.put(b"", self.other.hear_end)

    def hear_end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._all.forget(self)
            self.lane.drop()
            self._tell_broken()

    def _tell_broken(self) -> None:
        if self._is_heard_of and self.is_there:
            self.machine.when_free(self._broken)

    def _broken(self) -> None:
        if self.is_there and not self._is_closed:
            self._all.listener(self.machine).on_broken(self.other.machine.address, self.peer)
            self.machine.after_input()

    def replaced(self) -> None:
        if not self.is_over:
            self.finish()
            if self._is_heard_of:
                self._broken()


@final
class Connections:
    def __init__(self, world: World) -> None:
        self.world = world
        self.on_send: list[Callable[[Machine, Address, bytes], None]] = []  # Called as a message leaves a rig.
        self._listeners: dict[int, Listener] = {}  # By machine number.
        self._ends: dict[tuple[int, int], _End] = {}  # The ends in use, by the numbers of this machine and the other.
        self._held: dict[_End, None] = {}  # The ends that end with a process.
        self._begun = 0
        self._silence = world.streams["connections/silent"]
        world.on_ended.append(self._process_ended)

    def listen(self, machine: Machine, listener: Listener) -> None:
        """Register the receiver of a machine's connection events."""
        self._listeners[machine.number] = listener

    def listener(self, machine: Machine) -> Listener:
        return self._listeners[machine.number]

    # For rigs

    def connect(self, machine: Machine, address: Address) -> None:
        self._end(machine, address)

    def send(self, machine: Machine, address: Address, message: bytes) -> None:
        """Send a message over the connection to `address`; begin one if there is none."""
        for tap in self.on_send:
            tap(machine, address, message)
        end = self._end(machine, address)
        if end is not None:
            end.send(message)

    def answer(self, machine: Machine, peer: Peer, message: bytes) -> bool:
        """Send a message over this very connection; return False if the connection is gone."""
        end = self._of(machine, peer)
        if end is None:
            return False
        for tap in self.on_send:
            tap(machine, peer.address, message)
        end.send(message)
        return True

    def close(self, machine: Machine, peer: Peer) -> None:
        """Close a connection, if it exists; its own rig is not told."""
        end = self._of(machine, peer)
        if end is not None:
            end.close()

    # Ends

    def _of(self, machine: Machine, peer: Peer) -> _End | None:
        at = self.world.network.machines.get(peer.address)
        end = None if at is None else self._ends.get((machine.number, at.number))
        return end if end is not None and end.number == peer.number and end.is_there else None

    def _end(self, machine: Machine, address: Address) -> _End | None:
        """Return this machine's end of the connection to `address`.

        None: no machine ever has that address; the rig is told after a while.
        """
        assert machine.core is not None, "only a process has connections"
        found = self.world.network.machines.get(address)
        if found is None:
            listener = self.listener(machine)
            machine.later(BREAK_US, lambda: machine.when_free(lambda: listener.on_broken(address, None)))
            return None
        assert found is not machine, "a process has no connection to itself"
        other = self.world.machines[found.number]
        end = self._ends.get((machine.number, other.number))
        return end if end is not None and end.is_there else self._begin(machine, other)

    def _begin(self, machine: Machine, other: Machine) -> _End:
        self._begun += 1
        end = _End(self, machine, other.address, self._begun)
        end.other = _End(self, other, machine.address, self._begun)
        end.other.other = end
        self._ends[machine.number, other.number] = end
        # If both begin at once, they share one connection; but a machine with an earlier one uses that until it hears
        # of this.
        self._ends.setdefault((other.number, machine.number), end.other)
        end.dial()
        return end

    def put_in_use(self, end: _End) -> bool:
        """Route messages to the other machine through this end; return True if its process is still there."""
        key = end.machine.number, end.other.machine.number
        before = self._ends.get(key)
        self._ends[key] = end
        if before is not None and before is not end:
            before.replaced()
        return end.is_there

    def hold(self, end: _End) -> None:
        """Close this end when its process ends."""
        self._held[end] = None

    def forget(self, end: _End) -> None:
        """Let the next message to the other machine begin a new connection."""
        self._held.pop(end, None)
        key = end.machine.number, end.other.machine.number
        if self._ends.get(key) is end:
            del self._ends[key]

    def _process_ended(self, machine: Machine) -> None:
        silently = self._silence.random() < SILENT
        for end in [end for end in self._held if end.machine is machine]:
            end.finish(silently=silently)
