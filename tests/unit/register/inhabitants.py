"""The parts of a scripted register: acceptors with their disks, proposers, forces, and their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.acceptor import Acceptor, AcceptorAnswer, Keep
from gossipkv.register.ballot import ZERO
from gossipkv.register.configuration import AcceptorId, Value
from gossipkv.register.force import Force
from gossipkv.register.messages import AcceptorRecord, RegisterRequest, decode_record, encode_record
from gossipkv.register.proposal import ProposalOutcome

if TYPE_CHECKING:
    from gossipkv.register.messages import Reply
    from gossipkv.register.proposer import Proposer
    from tests.unit.register.scripted import Scripted

REGISTER = bytes(16)


class Message(NamedTuple):
    """A request on its way to an acceptor, or a reply on its way back."""

    party: Party
    acceptor: AcceptorId
    number: int
    content: RegisterRequest | Reply
    is_reply: bool


class Party:
    """A proposer, restarted now and then, or a force."""

    def __init__(self, world: Scripted, core: Proposer | Force) -> None:
        self.world = world
        self.core = core

    def perform(self) -> None:
        for effect in self.core.take():
            match effect:
                case RegisterRequest():
                    self.world.watch.sent(self.core, effect)
                    self.world.bag.append(Message(self, effect.to, effect.number, effect, is_reply=False))
                case ProposalOutcome():
                    self.world.history.told(effect)

    def receive(self, message: Message) -> None:
        self.world.watch.heard(self.core, message.content.record)
        self.core.receive(message.content, now_ms=self.world.now_ms)
        self.perform()

    def unreachable(self, message: Message) -> None:
        self.core.unreachable(message.acceptor, message.number, "lost", now_ms=self.world.now_ms)
        self.perform()

    def wake(self) -> None:
        """Wake the core if its time has come."""
        if self.core.wakes_at_ms <= self.world.now_ms:
            self.core.wake(self.world.now_ms)
            self.perform()
            is_over = isinstance(self.core, Force) and self.core.is_over
            assert is_over or self.core.wakes_at_ms > self.world.now_ms, "it wants to be woken again and again"


class Node:
    """An acceptor with its disk."""

    def __init__(self, world: Scripted, number: int) -> None:
        self.world = world
        self.is_up, self.holds = True, True
        self.id = AcceptorId(bytes([number]) * 16, 1)
        self.disk: dict[bytes, bytes] = {}
        self.start()

    def start(self) -> None:
        """Begin a life with the contents of the disk."""
        self.unsynced: list[Keep] = []
        self.core = Acceptor(self.id, self.disk.get, lambda register, payload: self.holds)

    @property
    def record(self) -> AcceptorRecord | None:
        data = self.disk.get(REGISTER)
        return decode_record(data) if data is not None else None

    def create(self, value: Value) -> None:
        self.disk[REGISTER] = encode_record(AcceptorRecord(ZERO, ZERO, value))

    def receive(self, message: Message) -> None:
        tokens = self.world.tokens
        tokens.append(message)
        try:
            assert self.is_up
            self.core.receive(len(tokens) - 1, message.content)
        except (AssertionError, ProtocolError) as error:
            if self.is_up and isinstance(error, AssertionError):
                raise
            message.party.unreachable(message)
        else:
            self.perform()

    def sync(self, count: int) -> None:
        """Write the first of the appended records to the disk."""
        for keep in self.unsynced[:count]:
            self.disk[keep.register] = keep.record
            self.world.watch.kept(self.id, decode_record(keep.record))
        serials = [keep.serial for keep in self.unsynced[:count]]
        del self.unsynced[:count]
        self.core.synced(serials[-1])
        self.perform()

    def perform(self) -> None:
        """Carry out the core's effects."""
        for effect in self.core.take():
            match effect:
                case Keep():
                    self.unsynced.append(effect)
                case AcceptorAnswer(token, reply):
                    asked = self.world.tokens[token]
                    self.world.bag.append(asked._replace(content=reply, is_reply=True))

    def crash(self) -> None:
        """Lose the process, and some or all unsynced records."""
        for keep in self.unsynced[: self.world.random.randint(0, len(self.unsynced))]:
            self.disk[keep.register] = keep.record
            self.world.watch.kept(self.id, decode_record(keep.record))
        self.start()

    def become(self, disk: dict[bytes, bytes]) -> None:
        """Become another acceptor with another disk."""
        self.id = self.id._replace(store=self.id.store + 1)
        self.disk = dict(disk)
        self.start()
