"""Registers on a machine: an acceptor over its disk, proposers and forces, with connections to other machines.

The rig is production's shell without its waiting.  A request goes to an acceptor's node, which answers over the same
connection once the disk has synced; when a connection breaks, its open requests count as not reached.  The machine's
own acceptor is asked without a connection.  Positions of stores are told when a connection begins, and with each
request and reply.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.acceptor import Acceptor, AcceptorAnswer, Keep
from gossipkv.register.ballot import ZERO
from gossipkv.register.configuration import AcceptorId, Value
from gossipkv.register.force import Force
from gossipkv.register.messages import (
    RegisterRequest,
    RequestKind,
    decode_record,
    decode_reply,
    decode_request,
    encode_request,
)
from gossipkv.register.proposal import ProposalOutcome
from gossipkv.register.proposer import Proposer
from gossipkv.register.seen import BEHIND, POSITION, SEEN, Opening, Position, SeenPositions, positions_in
from gossipkv.register.space import RECORD
from tests.world.connections import Identity
from tests.world.register.register_cluster import disk_of
from tests.world.rig import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gossipkv.address import Address
    from gossipkv.register.changes import RegisterChange
    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.messages import Reply
    from gossipkv.register.proposal import Effect, Reconfigure
    from tests.world.connections import Peer
    from tests.world.machine import Machine
    from tests.world.register.register_cluster import Cluster
    from tests.world.store_disk import Snapshot as Contents

SPACE: Final = 1  # The space of the store.
HELLO, REQUEST, REPLY, NOT_ME = b"h", b"?", b".", b"!"  # The first byte of a message; the last kind repeats a request.

Core = Proposer | Force

# The checkers decode sent and kept records too; the cache saves the second decoding.
_decode_reply = lru_cache(256)(decode_reply)
_decode_record = lru_cache(256)(decode_record)


class Snapshot(NamedTuple):
    """The contents of a disk at one time, with its store and the highest position then."""

    store: int
    reached: Position
    contents: Contents


class Kept(NamedTuple):
    """An appended batch."""

    serial: int  # The disk's serial number of the batch.
    keep: Keep | None
    heard: list[tuple[AcceptorId, Position]]  # Positions of stores that were heard before.


@final
class RegisterRig:
    """The acceptor and the proposers of one machine."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self.machine = machine
        self.disk = disk_of(machine)
        self.cluster = cluster
        self._connections = cluster.connections
        self._connections.listen(machine, self)
        self.snapshot: Snapshot | None = None
        self.has_gone_back = False
        self._forget()

    def _forget(self) -> None:
        self.me: AcceptorId | None = None
        self._acceptor: Acceptor | None = None
        self._seen: SeenPositions | None = None
        self._appended = 0  # The number of batches.
        self._heard: list[tuple[AcceptorId, Position]] = []  # Positions of stores that were heard since the last batch.
        self._told_itself: dict[
            tuple[AcceptorId, bytes, int], Mapping[Opening, int]
        ] = {}  # By acceptor, register and request number: the positions of that acceptor which the request told.
        self._proposers: dict[bytes, Proposer] = {}
        self._cores: list[Core] = []  # The proposers, and the forces under way.
        self._told: dict[int, Callable[[ProposalOutcome], None]] = {}  # By ticket.
        self._tickets = 0
        self._askers: dict[int, Peer | None] = {}  # By token; None: this machine.
        self._tokens = 0
        self._asked: dict[Address, dict[tuple[Core, AcceptorId], int]] = {}  # The last number, by address.
        self._peers: dict[Address, Peer] = {}
        self._keeping: deque[Kept] = deque()

    def end(self) -> None:
        self._forget()

    # The process

    @property
    def identity(self) -> Identity:
        """The identity of this machine, in this incarnation of its store."""
        return Identity(self.disk.uuid, self.disk.store, self.disk.life)

    def boot(self) -> None:
        """Read the disk, and create the acceptor."""
        machine = self.machine
        if not self.disk.open_or_end(machine, self._synced):
            return
        self.cluster.began(machine, self.identity)
        self.me = AcceptorId(self.disk.uuid, self.disk.store)
        self._acceptor = Acceptor(self.me, lambda register: self.disk.get(SPACE, RECORD + register), _holds)
        kept = [(key, self._kept(key)) for key in self.disk.keys(SPACE) if key[:1] in (POSITION, SEEN, BEHIND)]
        self._seen = SeenPositions(self.me, kept, machine.world.streams[f"seen/{machine.name}"])
        self._found()
        machine.began(self)
        machine.after_input()

    def _found(self) -> None:
        """Report the records on the disk: a crash may have kept unreported ones, which count from now on."""
        assert self.me is not None
        if self.me.store in self.cluster.gone_back:
            return  # The store is older than its synced records, and must not count.
        for key in self.disk.keys(SPACE):
            if key[:1] == RECORD:
                record = _decode_record(self._kept(key))
                self.cluster.checkers.synced(self.machine, self.me, key[len(RECORD) :], record)

    def _kept(self, key: bytes) -> bytes:
        kept = self.disk.get(SPACE, key)
        assert kept is not None
        return kept

    @property
    def is_behind(self) -> bool:
        return self._seen is not None and bool(self._seen.behind)

    def take_snapshot(self) -> None:
        """Take a snapshot of the disk, to which it may go back."""
        assert self._seen is not None
        reached = self._seen.position._replace(batches=self._appended)
        self.snapshot = Snapshot(self.disk.store, reached, self.disk.snapshot())

    @property
    def wakes_at_ms(self) -> int:
        return min([core.wakes_at_ms for core in self._cores], default=NEVER_MS)

    def wake(self, *, now_ms: int) -> int:
        for core in [*self._cores]:
            if core.wakes_at_ms <= now_ms:
                core.wake(now_ms)
        return self.act(now_ms=now_ms)

    def poke(self, *, now_ms: int) -> None:
        for core in self._cores:
            core.wake(now_ms)

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> int:
        raise AssertionError((packet, source, now_ms))

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Do nothing: all addresses are known."""

    def leave(self, *, now_ms: int) -> None:
        """Do nothing: no peer is told."""

    # Requests

    def create(self, register: bytes, members: Acceptors) -> None:
        """Write the first value through the acceptor of this machine."""
        assert self.me is not None
        self._ask(
            None, encode_request(RegisterRequest(RequestKind.CREATE, register, self.me, 0, ZERO, Value(members, b"")))
        )
        self.machine.after_input()

    def _proposer(self, register: bytes) -> Proposer:
        proposer = self._proposers.get(register)
        if proposer is None:
            assert self._acceptor is not None
            chance = self.machine.world.streams[f"proposers/{self.machine.name}"]
            proposer = Proposer(register, chance, None)
            self._proposers[register] = proposer
            self._cores.append(proposer)
            record = self._acceptor.record(register)
            if record is not None:
                proposer.learn(record)
            proposer.acceptors = proposer.acceptors or self.cluster.hint(register)
        return proposer

    def submit(
        self,
        register: bytes,
        want: RegisterChange | Reconfigure,
        timeout_ms: int,
        told: Callable[[ProposalOutcome], None],
    ) -> None:
        """Submit a change; `told` is called with the outcome, unless the process ends before."""
        now_ms = self.machine.now_ms
        self._proposer(register).submit(self._ticket(told), want, now_ms=now_ms, deadline_ms=now_ms + timeout_ms)
        self.machine.after_input()

    def force(self, register: bytes, survivors: Iterable[AcceptorId], told: Callable[[ProposalOutcome], None]) -> None:
        """Force the register to continue with these acceptors alone."""
        known, chance = self._proposer(register).acceptors, self.machine.world.streams[f"forces/{self.machine.name}"]
        force = Force(register, self._ticket(told), survivors, known, chance, now_ms=self.machine.now_ms)
        self._cores.append(force)
        self.machine.after_input()

    def _ticket(self, told: Callable[[ProposalOutcome], None]) -> int:
        self._tickets += 1
        self._told[self._tickets] = told
        return self._tickets

    # Effects

    def act(self, *, now_ms: int) -> int:
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
                    return NEVER_MS  # The process ended there.
            for core, effect in wanted:
                self._wanted(core, effect, now_ms)
                if self._acceptor is not acceptor:
                    return NEVER_MS
        return self.wakes_at_ms

    def _decided(self, effect: Keep | AcceptorAnswer, now_ms: int) -> None:
        assert self.me is not None
        checkers = self.cluster.checkers
        if isinstance(effect, Keep):
            record = _decode_record(effect.record)
            checkers.kept(self.machine, effect.register, record)
            self._append({RECORD + effect.register: effect.record}, effect)
            return
        assert self._seen is not None
        assert self._acceptor is not None
        if self._seen.behind:
            return
        reply = _decode_reply(effect.reply)
        kept = self.disk.get(SPACE, RECORD + reply.register)
        checkers.answered(self.machine, reply, None if kept is None else _decode_record(kept))
        peer = self._askers.pop(effect.token)
        if peer is None:
            self._replied(reply, now_ms)
        else:
            known = self._acceptor.record(reply.register)
            others = () if known is None or known.value is None else sorted(known.value.acceptors.everyone)
            seen = self._seen.tell(others)
            self._connections.answer(self.machine, peer, REPLY + msgpack.packb([effect.reply, seen]))

    def _append(self, records: Mapping[bytes, bytes], keep: Keep | None) -> None:
        assert self._seen is not None
        batch = [(SPACE, key, value) for key, value in {**records, **self._seen.records()}.items()]
        self._appended += 1
        self._keeping.append(Kept(self.disk.append(batch), keep, self._heard))
        self._heard = []

    def _hear(self, seen: bytes, now_ms: int) -> None:
        assert self._seen is not None
        was_behind = self._seen.behind
        self._heard += [row for row in positions_in(seen) if row[1].batches]
        is_news = self._seen.hear(seen)
        if self._seen.behind and not was_behind:
            self.machine.world.struck["found_behind"] += 1
            self._append({BEHIND + self._seen.me.store.to_bytes(8, "big"): self._seen.behind.encode()}, None)
        for proposer in self._proposers.values() if is_news else ():
            self.machine.world.struck["began_anew"] += 1
            proposer.begin_anew("news of a store", now_ms=now_ms)

    def _replied(self, reply: Reply, now_ms: int) -> None:
        for core in self._cores:
            if core.register == reply.register:
                core.receive(reply, now_ms=now_ms)

    def _synced(self, serial: int) -> None:
        assert self._acceptor is not None
        assert self.me is not None
        assert self._seen is not None
        while self._keeping and self._keeping[0].serial <= serial:
            _, keep, heard = self._keeping.popleft()
            self._seen.synced()
            self.cluster.saw(self.me, heard)
            if keep is None:
                continue
            record = _decode_record(keep.record)
            if self.me.store in self.cluster.gone_back:  # Its promises have fallen, but its accepted values count.
                self.cluster.histories[keep.register].note_synced(self.me, record)
            else:
                self.cluster.checkers.synced(self.machine, self.me, keep.register, record)
            self._acceptor.synced(keep.serial)

    def _wanted(self, core: Core, effect: Effect, now_ms: int) -> None:
        if isinstance(effect, ProposalOutcome):
            if isinstance(core, Force):
                self._cores.remove(core)
            self._told.pop(effect.ticket)(effect)
            return
        to = effect.to
        machine = self.cluster.where(to.node)
        assert self._seen is not None
        if to == self.me and not self._seen.behind:
            self._ask(None, effect.request)
        elif machine is None or machine is self.machine:
            core.unreachable(to, effect.number, "nobody knows where it is", now_ms=now_ms)
        else:
            self._asked.setdefault(machine.address, {})[core, to] = effect.number
            self._told_itself[to, core.register, effect.number] = self._seen.seen_of(to)
            others = {to, *(core.acceptors.everyone if core.acceptors is not None else ())}
            message = REQUEST + msgpack.packb([effect.request, self._seen.tell(sorted(others))])
            self._connections.send(self.machine, machine.address, message)

    def _ask(self, peer: Peer | None, request: bytes) -> None:
        assert self._acceptor is not None
        if self.is_behind:
            raise ProtocolError("its store is behind")
        self._tokens += 1
        self._askers[self._tokens] = peer
        self._acceptor.receive(self._tokens, request)

    # Connections

    def on_connected(self, peer: Peer) -> None:
        self._peers[peer.address] = peer
        if self._seen is not None:
            self._connections.answer(self.machine, peer, HELLO + self._seen.tell([AcceptorId(peer.uuid, peer.store)]))

    def break_any(self, drawn: float) -> bool:
        """Break one of the connections; return False if there is none."""
        peers = list(self._peers.values())
        if peers:
            peer = peers[int(drawn * len(peers))]
            self._connections.close(self.machine, peer)
            self.on_broken(peer.address, peer)
            self.machine.after_input()
        return bool(peers)

    def on_message(self, peer: Peer, message: bytes) -> None:
        kind, data, now_ms = message[:1], message[1:], self.machine.now_ms
        assert self._seen is not None
        if kind == HELLO:
            self._hear(data, now_ms)
        elif kind == REQUEST:
            request, seen = msgpack.unpackb(data)
            self._hear(seen, now_ms)
            try:
                self._ask(peer, request)
            except ProtocolError:
                self._connections.answer(self.machine, peer, NOT_ME + request)
        elif kind == REPLY:
            answer, seen = msgpack.unpackb(data)
            reply = _decode_reply(answer)
            self._hear(seen, now_ms)
            told = self._told_itself.pop((reply.by, reply.register, reply.number), {})
            if self._seen.is_counted(reply.by, told, seen):
                self._replied(reply, now_ms)
            else:
                self.machine.world.struck["not_counted"] += 1
                self._not_reached(reply.by, reply.number, now_ms)
        else:
            refused = decode_request(data)
            self._not_reached(refused.to, refused.number, now_ms)

    def _not_reached(self, acceptor: AcceptorId, number: int, now_ms: int) -> None:
        for core in [*self._cores]:
            core.unreachable(acceptor, number, "another store, or behind", now_ms=now_ms)

    def on_broken(self, address: Address, peer: Peer | None) -> None:
        """Tell the waiting cores that there will be no reply."""
        del peer
        self._peers.pop(address, None)
        now_ms = self.machine.now_ms
        for (core, acceptor), number in self._asked.pop(address, {}).items():
            core.unreachable(acceptor, number, "not reached", now_ms=now_ms)


def _holds(register: bytes, payload: bytes) -> bool:
    del register, payload
    return True
