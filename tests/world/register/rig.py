"""Registers on a machine: an acceptor over its disk, a proposer for each register, and forces, over connections.

It is the shell that production has, without its waiting: a request goes to an acceptor's node, is answered when the
disk has synced, over the connection on which it came; what was asked over one that broke is not reached.  The machine's
own acceptor is asked without a connection.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import ProtocolError
from gossipkv.register.acceptor import Acceptor, Answer, Keep
from gossipkv.register.ballot import ZERO
from gossipkv.register.configuration import AcceptorId, Value
from gossipkv.register.force import Force
from gossipkv.register.messages import Kind, Request, decode_record, decode_reply, decode_request, encode_request
from gossipkv.register.proposer import Outcome, Proposer
from tests.world.connections import Identity
from tests.world.register.register_cluster import disk_of
from tests.world.rig import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.address import Address
    from gossipkv.register.changes import Change
    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.messages import Record, Reply
    from gossipkv.register.proposer import Effect, Reconfigure
    from tests.world.connections import Peer
    from tests.world.machine import Machine
    from tests.world.register.register_cluster import Cluster
    from tests.world.store_disk import Snapshot as Contents

SPACE: Final = 1  # Of the store.
REQUEST, REPLY, NOT_ME = b"?", b".", b"!"  # How a message begins; the last one repeats a request.

Core = Proposer | Force

# The checkers read what is sent and what is kept; whoever gets it need not do that again.
_decode_reply = lru_cache(256)(decode_reply)
_decode_record = lru_cache(256)(decode_record)


class Snapshot(NamedTuple):
    """The contents of a disk at one time, in which incarnation of which store."""

    store: int
    incarnation: int
    contents: Contents


@final
class RegisterRig:
    """The acceptor and the proposers of one machine."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self.machine = machine
        self.disk = disk_of(machine)
        self._cluster = cluster
        self._connections = cluster.connections
        self._connections.listen(machine, self)
        self.snapshot: Snapshot | None = None
        self.has_gone_back = False
        self._forget()

    def _forget(self) -> None:
        self.me: AcceptorId | None = None
        self._acceptor: Acceptor | None = None
        self._proposers: dict[bytes, Proposer] = {}
        self._cores: list[Core] = []  # Those, and forces that are under way.
        self._told: dict[int, Callable[[Outcome], None]] = {}  # By ticket.
        self._tickets = 0
        self._askers: dict[int, Peer | None] = {}  # By token; None: this machine.
        self._tokens = 0
        self._asked: dict[Address, dict[tuple[Core, AcceptorId], int]] = {}  # The last number, by where it was sent.
        self._peers: dict[Address, Peer] = {}
        self._keeping: deque[tuple[int, Keep, Record]] = deque()  # By the disk's serial.

    def end(self) -> None:
        """Forget the process."""
        self._forget()

    # The process

    @property
    def identity(self) -> Identity:
        """The identity of this machine, in this incarnation of its store."""
        return Identity(self.disk.uuid, self.disk.store, self.disk.life)

    def boot(self) -> None:
        """Read the disk, and have an acceptor and proposers."""
        machine = self.machine
        if not self.disk.open_or_end(machine, self._synced):
            return
        self._cluster.began(machine, self.identity)
        self.me = AcceptorId(self.disk.uuid, self.disk.store)
        self._acceptor = Acceptor(self.me, lambda register: self.disk.get(SPACE, register), _holds)
        self._found()
        machine.began(self)
        machine.after_input()

    def _found(self) -> None:
        """Tell what is on the disk: a crash may have kept what nobody was told is synced, and all may go by it now."""
        assert self.me is not None
        if self._cluster.is_refused(self.me.store):
            return  # It is older than what was synced, and nobody goes by it.
        for register in self.disk.keys(SPACE):
            kept = self.disk.get(SPACE, register)
            assert kept is not None
            self._cluster.checkers.synced(self.machine, self.me, register, _decode_record(kept))

    @property
    def wakes_at_ms(self) -> int:
        """When anything is due."""
        return min([core.wakes_at_ms for core in self._cores], default=NEVER_MS)

    def wake(self, *, now_ms: int) -> int:
        """Do what is due."""
        for core in [*self._cores]:
            if core.wakes_at_ms <= now_ms:
                core.wake(now_ms)
        return self.act(now_ms=now_ms)

    def poke(self, *, now_ms: int) -> None:
        """Wake all, due or not."""
        for core in self._cores:
            core.wake(now_ms)

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> int:
        """Nobody sends datagrams here."""
        raise AssertionError((packet, source, now_ms))

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Where nodes are is known."""

    def leave(self, *, now_ms: int) -> None:
        """Nobody is told."""

    # What is wanted

    def create(self, register: bytes, members: Acceptors) -> None:
        """Have the acceptor here write the first value."""
        assert self.me is not None
        self._ask(None, encode_request(Request(Kind.CREATE, register, self.me, 0, ZERO, Value(members, b""))))
        self.machine.after_input()

    def _proposer(self, register: bytes) -> Proposer:
        proposer = self._proposers.get(register)
        if proposer is None:
            assert self._acceptor is not None
            chance = self.machine.world.streams[f"proposers/{self.machine.name}"]
            proposer = Proposer(register, self._cluster.logs.functions, chance, None)
            self._proposers[register] = proposer
            self._cores.append(proposer)
            record = self._acceptor.record(register)
            if record is not None:
                proposer.learn(record)
            proposer.known = proposer.known or self._cluster.hint(register)
        return proposer

    def submit(
        self, register: bytes, want: Change | Reconfigure, timeout_ms: int, told: Callable[[Outcome], None]
    ) -> None:
        """Have a change made; `told` is called with what became of it, unless the process ends before."""
        now_ms = self.machine.now_ms
        self._proposer(register).submit(self._ticket(told), want, now_ms=now_ms, deadline_ms=now_ms + timeout_ms)
        self.machine.after_input()

    def force(self, register: bytes, survivors: Iterable[AcceptorId], told: Callable[[Outcome], None]) -> None:
        """Have the register go on with these alone."""
        known, chance = self._proposer(register).known, self.machine.world.streams[f"forces/{self.machine.name}"]
        force = Force(register, self._ticket(told), survivors, known, chance, now_ms=self.machine.now_ms)
        self._cores.append(force)
        self.machine.after_input()

    def _ticket(self, told: Callable[[Outcome], None]) -> int:
        self._tickets += 1
        self._told[self._tickets] = told
        return self._tickets

    # Effects

    def act(self, *, now_ms: int) -> int:
        """Perform what the cores have left behind."""
        acceptor = self._acceptor
        if acceptor is None:
            return NEVER_MS
        while True:
            decided, wanted = acceptor.take(), [(core, effect) for core in self._cores for effect in core.take()]
            if not decided and not wanted:
                break
            for done in decided:
                self._decided(done, now_ms)
                if self._acceptor is not acceptor:
                    return NEVER_MS  # That was the end of the process.
            for core, effect in wanted:
                self._wanted(core, effect, now_ms)
                if self._acceptor is not acceptor:
                    return NEVER_MS
        return self.wakes_at_ms

    def _decided(self, effect: Keep | Answer, now_ms: int) -> None:
        assert self.me is not None
        checkers = self._cluster.checkers
        if isinstance(effect, Keep):
            record = _decode_record(effect.record)
            checkers.kept(self.machine, effect.register, record)
            serial = self.disk.append([(SPACE, effect.register, effect.record)])
            self._keeping.append((serial, effect, record))
            return
        reply = _decode_reply(effect.reply)
        kept = self.disk.get(SPACE, reply.register)
        checkers.answered(self.machine, reply, None if kept is None else _decode_record(kept))
        peer = self._askers.pop(effect.token)
        if peer is None:
            self._replied(reply, now_ms)
        else:
            self._connections.answer(self.machine, peer, REPLY + effect.reply)

    def _replied(self, reply: Reply, now_ms: int) -> None:
        for core in self._cores:
            if core.register == reply.register:
                core.receive(reply, now_ms=now_ms)

    def _synced(self, serial: int) -> None:
        assert self._acceptor is not None
        assert self.me is not None
        while self._keeping and self._keeping[0][0] <= serial:
            _, keep, record = self._keeping.popleft()
            self._cluster.checkers.synced(self.machine, self.me, keep.register, record)
            self._acceptor.synced(keep.serial)

    def _wanted(self, core: Core, effect: Effect, now_ms: int) -> None:
        if isinstance(effect, Outcome):
            if isinstance(core, Force):
                self._cores.remove(core)
            self._told.pop(effect.ticket)(effect)
            return
        to = effect.to
        machine = self._cluster.where(to.node)
        if to == self.me and not self._cluster.is_refused(to.store):
            self._ask(None, effect.request)
        elif machine is None or machine is self.machine:
            core.unreachable(to, effect.number, "nobody knows where it is", now_ms=now_ms)
        else:
            self._asked.setdefault(machine.address, {})[core, to] = effect.number
            self._connections.send(self.machine, machine.address, REQUEST + effect.request)

    def _ask(self, peer: Peer | None, request: bytes) -> None:
        assert self._acceptor is not None
        self._tokens += 1
        self._askers[self._tokens] = peer
        self._acceptor.receive(self._tokens, request)

    # Connections

    def on_connected(self, peer: Peer) -> None:
        """Refuse whose store has gone back."""
        self._peers[peer.address] = peer
        if self._cluster.is_refused(peer.store):
            self.machine.world.struck["refused_life"] += 1
            self._connections.close(self.machine, peer)
            self.on_broken(peer.address, peer)

    def break_any(self, drawn: float) -> bool:
        """Have one of the connections break, if there is any."""
        peers = list(self._peers.values())
        if peers:
            peer = peers[int(drawn * len(peers))]
            self._connections.close(self.machine, peer)
            self.on_broken(peer.address, peer)
            self.machine.after_input()
        return bool(peers)

    def on_message(self, peer: Peer, message: bytes) -> None:
        """Take in a request or a reply."""
        if self._cluster.is_refused(peer.store):
            return
        kind, data = message[:1], message[1:]
        if kind == REQUEST:
            try:
                self._ask(peer, data)
            except ProtocolError:
                self._connections.answer(self.machine, peer, NOT_ME + data)
            return
        now_ms = self.machine.now_ms
        if kind == REPLY:
            self._replied(_decode_reply(data), now_ms)
            return
        request = decode_request(data)
        for core in [*self._cores]:
            core.unreachable(request.to, request.number, "another store", now_ms=now_ms)

    def on_broken(self, address: Address, peer: Peer | None) -> None:
        """Tell who waits that there will be no reply."""
        del peer
        self._peers.pop(address, None)
        now_ms = self.machine.now_ms
        for (core, acceptor), number in self._asked.pop(address, {}).items():
            core.unreachable(acceptor, number, "not reached", now_ms=now_ms)


def _holds(register: bytes, payload: bytes) -> bool:
    """Nothing belongs to a payload but itself."""
    del register, payload
    return True
