"""Questions and answers between nodes: each takes time, and may be lost.

Of a lost message the asker hears nothing, or an error.  A question that was answered may look lost to its asker. No
question arrives twice, as on a connection; but a later question may overtake an earlier one, as on two connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, Unknown, from_wire
from tests.world.metadata.chance import happens

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.wire.rpc import Value

    OnAnswer = Callable[[Value, GossipKVError | None], None]

LATE: Final = 0.02  # The share of messages that take a hundred times as long.


class Question(NamedTuple):
    method: str
    params: list[Value]
    timeout_s: float


class Life(Protocol):
    """One life of a node, as the network sees it."""

    @property
    def node(self) -> bytes: ...

    @property
    def is_over(self) -> bool: ...

    def answer(self, method: str, params: list[Value], told: OnAnswer) -> None:
        """Answer a question at some time, unless this life ends first."""
        ...


@final
class Network:
    def __init__(self, random: Random, nursery: trio.Nursery) -> None:
        self.lives: dict[bytes, Life] = {}  # The lives of nodes that are up.
        self.cuts: set[tuple[bytes, bytes]] = set()  # Pairs of source and target.
        self.frozen: set[bytes] = set()  # Nodes to and from which nothing comes, not even an error.
        self._healed = trio.Event()
        self.loss = 0.0
        self.delay_s = 0.001
        self.messages = 0
        self._random = random
        self._nursery = nursery

    def heal(self) -> None:
        """Lose no more messages.  Of those that were lost silently the askers hear now: the connections break."""
        self.cuts.clear()
        self.frozen.clear()
        self.loss, self.delay_s = 0.0, 0.001
        self._healed.set()
        self._healed = trio.Event()

    def tell(self, source: Life, to: bytes, question: Question, told: OnAnswer) -> None:
        """Ask a node; `told` is called once, unless the asker's life ends first."""
        self._nursery.start_soon(self._carry, source, to, question, told)

    async def ask(self, source: Life, to: bytes, question: Question) -> Value:
        """Ask a node, and return its answer.

        Raises:
            GossipKVError: the node's error; `Unknown` if it does not answer.
        """
        done = trio.Event()
        answers: list[tuple[Value, GossipKVError | None]] = []

        def told(value: Value, error: GossipKVError | None) -> None:
            answers.append((value, error))
            done.set()

        self.tell(source, to, question, told)
        await done.wait()
        value, error = answers[0]
        if error is not None:
            raise error
        return value

    async def _carry(self, source: Life, to: bytes, question: Question, told: OnAnswer) -> None:
        sent = _copied([*question.params])
        assert isinstance(sent, list)
        answered = trio.Event()
        answers: list[tuple[Value, GossipKVError | None]] = []

        def answer(value: Value, error: GossipKVError | None) -> None:
            answers.append((value, error))
            answered.set()

        value: Value = None
        error: GossipKVError | None = Unknown("no answer in time")
        with trio.move_on_after(question.timeout_s):
            life = self.lives.get(to) if await self._passes(source.node, to) else None
            if life is not None:
                life.answer(question.method, sent, answer)
                await answered.wait()
            if life is not None and await self._passes(to, source.node):
                value, error = answers[0]
            else:
                if happens(self._random, 0.5):
                    await self._healed.wait()  # The message is lost silently.
                error = Unknown("the connection broke")
        if not source.is_over:
            told(_copied(value), None if error is None else from_wire(error.code, error.message, {}))

    async def _passes(self, source: bytes, to: bytes) -> bool:
        self.messages += 1
        delay_s = self._random.expovariate(1 / self.delay_s)
        if happens(self._random, LATE):
            delay_s *= 100
        await trio.sleep(delay_s)
        if not self.frozen.isdisjoint((source, to)):
            await self._healed.wait()
        return (source, to) not in self.cuts and not happens(self._random, self.loss)


def _copied(value: Value) -> Value:
    copied: Value = msgpack.unpackb(msgpack.packb(value))
    return copied
