"""A fake world for one agent: a socket that a test fills, scripted peers, and a core that records its calls."""

import errno
from collections import Counter
from types import SimpleNamespace

import trio

from gossipkv.address import Address
from gossipkv.gossip.member import Member, MemberState
from gossipkv.gossip.shell.agent import Agent

PEER = Address("10.0.0.2", 7070)
OWN = Member(b"o" * 8, "own", b"o" * 16, Address("10.0.0.1", 7070), 1, 0, MemberState.ALIVE)
NEVER_MS = 10**12


class Clock:
    """Trio's clock, which starts at zero with the test."""

    def __init__(self):
        self._began_s = trio.current_time()

    def monotonic_ns(self):
        return round((trio.current_time() - self._began_s) * 1e9)


class Datagrams:
    """Datagrams wait in `waiting` and are sent to `sent`; `refused` holds the errors of the next sends."""

    def __init__(self):
        self.waiting = []
        self.sent = []
        self.refused = []
        self.lost = 0
        self.is_closed = False
        self.arrived = trio.Event()

    def arrive(self, packet, source=PEER):
        """Deliver a datagram, or an error of the system."""
        self.waiting.append((packet, source))
        self.arrived.set()

    def reaches(self, to):
        return ":" not in to.host

    def send(self, packet, to):
        if self.refused:
            raise OSError(self.refused.pop(0), "refused")
        self.sent.append((to, packet))

    def receive(self):
        if not self.waiting:
            raise BlockingIOError
        packet, source = self.waiting.pop(0)
        if isinstance(packet, OSError):
            raise packet
        return packet, source

    def close(self):
        self.is_closed = True


class Stream:
    """A connection to a peer that follows `script`: bytes to send, an exception, or None to hang."""

    def __init__(self, sockets, script):
        self._sockets = sockets
        self._script = list(script)
        self.received = b""

    async def send_all(self, data):
        await trio.lowlevel.checkpoint()
        self.received += data

    async def receive_some(self, _most_bytes):
        await trio.lowlevel.checkpoint()
        if not self._script:
            return b""
        step = self._script.pop(0)
        if step is None:
            await trio.sleep_forever()
        if isinstance(step, OSError):
            raise step
        return step

    async def aclose(self):
        self._sockets.open -= 1


class Sockets:
    """`scripts` holds the script of the peer at each address, `names` the addresses of each name."""

    def __init__(self):
        self.scripts = {}
        self.names = {}
        self.looked_up = Counter()
        self.streams = []
        self.open = self.most_open = 0

    async def wait_readable(self, source):
        await trio.lowlevel.checkpoint()
        while not source.waiting:
            source.arrived = trio.Event()
            await source.arrived.wait()

    async def connect(self, to):
        await trio.lowlevel.checkpoint()
        if to not in self.scripts:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self.streams.append(Stream(self, self.scripts[to]))
        return self.streams[-1]

    async def resolve(self, name):
        """Look the name up in `names`; a number makes the name service hang for so many seconds."""
        self.looked_up[name] += 1
        await trio.lowlevel.checkpoint()
        found = self.names.get(name)
        if found is None:
            raise OSError(errno.ENOENT, "nobody knows")
        if isinstance(found, int):
            await trio.sleep(found)
            return []
        return list(found)


class Threads:
    """Threads whose every call takes `takes_s`."""

    def __init__(self):
        self.takes_s = 0

    async def run(self, function, *arguments, **_options):
        await trio.sleep(self.takes_s)
        return function(*arguments)


class Keeper:
    """A disk, which refuses while `refusals` last."""

    def __init__(self):
        self.kept = []
        self.remembered = []
        self.refusals = []

    def keep(self, **what):
        if self.refusals:
            raise self.refusals.pop(0)
        self.kept.append({name: value for name, value in what.items() if value is not None})

    def remember(self, peers):
        if self.refusals:
            raise self.refusals.pop(0)
        self.remembered.append(tuple(peers))

    def forget(self):
        self.kept.append({})

    def peers(self):
        return [PEER]


class Core:
    """Record each call with its time; leave the effects that the test put into `effects`."""

    def __init__(self):
        self.heard = []
        self.effects = []
        self.counters = Counter()
        self.wakes_at_ms = NEVER_MS
        self.period_ms = None
        self.live = [OWN]
        self.pinned, self.pinned_by = False, None  # The Store of this token pins the core.
        self.members = SimpleNamespace(own=OWN, live=lambda: self.live, reachable=2)
        self.defects = {}  # Each error is raised once by its kind of call.
        self.on = {}  # Effects to leave at the next call of that kind.

    def of(self, *kinds):
        return [entry for entry in self.heard if entry[1] in kinds]

    def _note(self, kind, *what, now_ms):
        self.heard.append((now_ms, kind, *what))
        defect = self.defects.pop(kind, None)
        if defect is not None:
            raise defect
        self.effects += self.on.pop(kind, [])

    def start(self, *, joins, remembered, lone, now_ms):
        self._note("start", tuple(joins), tuple(remembered), lone, now_ms=now_ms)

    def pin(self):
        self.effects += self.on.pop("pin", [])

    def join(self, addresses, *, now_ms):
        self._note("join", tuple(addresses), now_ms=now_ms)

    def receive(self, packet, source, *, now_ms):
        self._note("packet", packet, source, now_ms=now_ms)

    def reply(self, request, *, now_ms):
        self._note("request", request, now_ms=now_ms)
        return b"to " + request

    def answered(self, token, reply, *, now_ms):
        self._note("answered", token, reply, now_ms=now_ms)

    def stored(self, token, *, now_ms):
        self._note("stored", token, now_ms=now_ms)
        self.pinned = token == self.pinned_by

    def wake(self, *, now_ms):
        self._note("wake", now_ms=now_ms)
        self.wakes_at_ms = NEVER_MS if self.period_ms is None else self.wakes_at_ms + self.period_ms

    def leave(self, *, now_ms):
        self._note("leave", now_ms=now_ms)

    def take(self):
        taken, self.effects = self.effects, []
        return taken


class World:
    """All fakes together; `agent` runs in the test's nursery."""

    def __init__(self, joins=(), place=None):
        self.core = Core()
        self.datagrams = Datagrams()
        self.sockets = Sockets()
        self.threads = Threads()
        self.keeper = Keeper()
        environment = SimpleNamespace(sockets=self.sockets, threads=self.threads, clock=Clock())
        self.agent = Agent(self.core, self.datagrams, environment, self.keeper, joins, place=place)

    def counted(self, name):
        return self.agent.counters().get(f"gossip_{name}", 0)
