"""Proposers of this process, which ask nodes as another node would: by the method `register`, after `hello`.

One loop of one thread has all proposers and one connection to each node.  It does nothing between two messages, so a
change costs here what it costs a proposer, and no task, store or gossip beside it.
"""

from __future__ import annotations

import random
import selectors
import socket
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, final

import msgpack

from gossipkv.address import parse_address
from gossipkv.node.peers.hello import PROTOCOL, Hello, of_answer
from gossipkv.register.ballot import ZERO
from gossipkv.register.changes import READ
from gossipkv.register.configuration import AcceptorId, Acceptors, Value
from gossipkv.register.messages import Kind, Request, Verdict, decode_reply, encode_request
from gossipkv.register.proposer import NEVER_MS, End, Proposer, Send
from gossipkv.register.seen import Seen
from gossipkv.wire import rpc
from tests.bench.measurement import WrongAnswerError
from tests.bench.register import tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gossipkv.register.changes import Change
    from gossipkv.register.proposer import Outcome, Reconfigure
    from gossipkv.register.seen import Opening

    OnOutcome = Callable[[Outcome], None]

TIMEOUT_S = 30.0
RECEIVE_BYTES = 1 << 18
REGISTER_BYTES, UUID_BYTES = 16, 16


@final
class Line:
    """A connection to a node on which `hello` was said; `to` is the acceptor at its other end."""

    def __init__(self, address: str, uuid: bytes) -> None:
        self._open(address)
        mine = Hello(PROTOCOL, bytes(8), uuid, 0)
        (_, _, error, _) = self.ask("hello", mine.to_map())
        mine = mine._replace(
            cluster_id=bytes.fromhex(error[2]["cluster_id"])
        )  # Of another cluster: whoever asks is told.
        self.socket.close()
        self._open(address)
        theirs = of_answer(self.ask("hello", mine.to_map())[3])
        self.to = AcceptorId(theirs.uuid, theirs.store)
        self.asked: dict[int, tuple[Proposer, int, Mapping[Opening, int]]] = {}  # With what it was told of itself.
        self.unsent = bytearray()
        self.socket.settimeout(0)

    def _open(self, address: str) -> None:
        self.socket = socket.create_connection(parse_address(address), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)

    def ask(self, method: str, *params: object) -> list[object]:
        """Ask, and wait for the answer: before there is anything else."""
        self.socket.settimeout(TIMEOUT_S)
        self.socket.sendall(rpc.request(0, method, [*params]))
        while True:
            for answer in self.unpacker:
                return answer
            self.unpacker.feed(self.socket.recv(RECEIVE_BYTES))

    def flush(self) -> None:
        """Send what can be sent now."""
        if self.unsent:
            with suppress(BlockingIOError):
                del self.unsent[: self.socket.send(self.unsent)]

    def answers(self) -> list[list[object]] | None:
        """What has come; None: the other end is gone."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self.unpacker.feed(data)
        return [*self.unpacker] if data else None


@final
class Loop:
    """All proposers, and the ways to nodes."""

    def __init__(self, addresses: Iterable[str], seed: int) -> None:
        self._random = random.Random(seed)
        uuid = self._random.randbytes(UUID_BYTES)
        self._selector = selectors.DefaultSelector()
        self._lines: dict[AcceptorId, Line] = {}
        for address in addresses:
            line = Line(address, uuid)
            self._lines[line.to] = line
            self._selector.register(line.socket, selectors.EVENT_READ, line)
        self._waiting: dict[int, OnOutcome] = {}
        self._seen = Seen(AcceptorId(uuid, 1), (), self._random)  # Of a store that writes nothing.
        self._busy: set[Proposer] = set()
        self._numbers = 0

    @property
    def acceptors(self) -> list[AcceptorId]:
        """Those that there are ways to, in the order of their addresses."""
        return [*self._lines]

    def create(self, members: Iterable[AcceptorId]) -> Register:
        """Begin a register at these."""
        acceptors = Acceptors.of(members)
        register = self._random.randbytes(REGISTER_BYTES)
        for member in acceptors.new:
            line = self._lines[member]
            value = Value(acceptors, tally.EMPTY)
            answer = line.ask("register", encode_request(Request(Kind.CREATE, register, member, 0, ZERO, value)))
            line.socket.settimeout(0)
            if answer[2] is not None or decode_reply(answer[3]).verdict is not Verdict.OK:
                raise WrongAnswerError(f"{member} begins no register: {answer}")
        return Register(self, register, acceptors)

    def proposer(self, register: bytes, acceptors: Acceptors) -> Proposer:
        """A new one, which has heard of nothing."""
        return Proposer(register, tally.FUNCTIONS, random.Random(self._random.getrandbits(64)), acceptors)

    def submit(self, proposer: Proposer, want: Change | Reconfigure, on_outcome: OnOutcome) -> None:
        """Have a change made; it has `TIMEOUT_S`."""
        self._numbers += 1
        self._waiting[self._numbers] = on_outcome
        now_ms = _now_ms()
        proposer.submit(self._numbers, want, now_ms=now_ms, deadline_ms=now_ms + int(1000 * TIMEOUT_S))
        self._act(proposer)

    def run(self, until: Callable[[], bool]) -> None:
        """Go on until then."""
        while not until():
            for line in self._lines.values():
                line.flush()
            now_ms = _now_ms()
            for proposer in [*self._busy]:
                if proposer.wakes_at_ms <= now_ms:
                    proposer.wake(now_ms)
                    self._act(proposer)
            next_ms = min((proposer.wakes_at_ms for proposer in self._busy), default=now_ms + 100)
            has_unsent = any(line.unsent for line in self._lines.values())
            timeout_s = 0 if has_unsent else max(0, min(next_ms - now_ms, 100)) / 1000
            for key, _ in self._selector.select(timeout_s):
                self._hear(key.data)

    def _hear(self, line: Line) -> None:
        answers = line.answers()
        if answers is None:
            self._selector.unregister(line.socket)
            line.socket.close()
            del self._lines[line.to]
            for proposer, number, _ in line.asked.values():
                proposer.unreachable(line.to, number, "gone", now_ms=_now_ms())
                self._act(proposer)
            return
        for _, number, error, result in answers:
            proposer, send, told = line.asked.pop(number)
            if error is None:
                reply, seen = result
                self._seen.hear(seen)
                if not self._seen.is_counted(line.to, told, seen):
                    raise WrongAnswerError(f"{line.to} was put back")
                proposer.receive(decode_reply(reply), now_ms=_now_ms())
            else:
                proposer.unreachable(line.to, send, str(error), now_ms=_now_ms())
            self._act(proposer)

    def _act(self, proposer: Proposer) -> None:
        while effects := proposer.take():
            for effect in effects:
                if isinstance(effect, Send):
                    self._send(proposer, effect)
                else:
                    self._waiting.pop(effect.ticket)(effect)
        if proposer.wakes_at_ms < NEVER_MS:
            self._busy.add(proposer)
        else:
            self._busy.discard(proposer)

    def _send(self, proposer: Proposer, send: Send) -> None:
        line = self._lines.get(send.to)
        if line is None:
            proposer.unreachable(send.to, send.number, "gone", now_ms=_now_ms())
            return
        self._numbers += 1
        line.asked[self._numbers] = proposer, send.number, self._seen.seen_of(send.to)
        seen = self._seen.tell([send.to] if proposer.known is None else sorted(proposer.known.everyone))
        line.unsent += rpc.request(self._numbers, "register", [send.request, seen])

    def close(self) -> None:
        """Hang up."""
        for line in self._lines.values():
            line.socket.close()
        self._selector.close()


@final
class Register:
    """A register, its writers, and what they were told."""

    def __init__(self, loop: Loop, register: bytes, acceptors: Acceptors) -> None:
        self.loop = loop
        self.id = register
        self.acceptors = acceptors
        self._ballot = ZERO  # Of the last change that is known here.
        self.told = tally.Told()

    def proposer(self) -> Proposer:
        """A new one."""
        return self.loop.proposer(self.id, self.acceptors)

    def write(self, proposer: Proposer, writer: int, number: int, on_done: Callable[[Outcome], None]) -> None:
        """Have that change of that writer made, asked for until it is known to be done."""

        def on_outcome(outcome: Outcome) -> None:
            if outcome.end is End.UNKNOWN or outcome.code == "UNAVAILABLE":  # Its writer goes on waiting.
                self.write(proposer, writer, number, on_done)
            elif outcome.end is End.REFUSED:
                raise WrongAnswerError(f"change {number} of writer {writer} was refused: {outcome.message}")
            else:
                assert outcome.value is not None
                assert outcome.ballot is not None
                if outcome.ballot >= self._ballot:
                    self._ballot, self.acceptors = outcome.ballot, outcome.value.acceptors
                self.told.done(writer, number, outcome.result)
                on_done(outcome)

        self.loop.submit(proposer, tally.change(writer, number), on_outcome)

    def check(self) -> None:
        """Read it anew, and raise WrongAnswerError if it has anything but what writers were told."""
        found: list[Outcome] = []
        self.loop.submit(self.proposer(), READ, found.append)
        self.loop.run(lambda: bool(found))
        if found[0].end is not End.DONE or found[0].value is None:
            raise WrongAnswerError(f"the register cannot be read: {found[0]}")
        self.told.check(found[0].value.payload)


def _now_ms() -> int:
    return int(1000 * monotonic())
