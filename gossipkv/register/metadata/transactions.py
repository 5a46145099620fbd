"""Transactions of one map, at one of its servers, after EventQL's METADATA transactions.

Operations that arrive during a transaction go together into the next. A transaction reads the head by a quorum, judges
the operations on its map, and swaps the head in the register. The changed pages go along with the accept request; an
acceptor accepts a head only after its pages, so a majority holds them once it is chosen. (EventQL ships pages first,
and waits.) If the swap came too late, or its outcome is unknown, the operations are judged again, on the newer head: an
operation that was done is found by its id.

Transactions clean up nothing: a proposer that finishes an unknown swap names its pages, so they stay pinned.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Unavailable, UnknownDatabase
from gossipkv.register.metadata.head import TRANSACTION_BYTES, decode_head, swap
from gossipkv.register.metadata.known import KnownMap
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.operations import OperationAnswer, judge
from gossipkv.register.metadata.pages import MAX_JUDGED, OperationOutcome, config_id, sequence_of
from gossipkv.register.metadata.tree import MapTree
from gossipkv.register.proposal import ChangeEnd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.metadata.known import Heads
    from gossipkv.register.metadata.ledger import RegisterLedger
    from gossipkv.register.metadata.operations import Functions, Operation, OperationJudgement
    from gossipkv.register.proposal import ProposalOutcome
    from gossipkv.register.shell import Registers

ROUND_S: Final = 3.0  # Time of one quorum read, or one swap.
MIN_PAUSE_S: Final = 0.01
MAX_PAUSE_S: Final = 0.5


class NoServer(NotReady):
    """This node was asked for transactions of a map that it does not serve."""


@final
@dataclass(eq=False, slots=True)
class _Waiting:
    operation: Operation
    done: trio.Event
    answer: OperationAnswer | None = None
    error: GossipKVError | None = None  # Why the operation was not tried.
    gone: bool = False  # The requester does not wait any more.


@final
class Transactions:
    """The operations on one map that this node was asked for."""

    def __init__(
        self, ledger: RegisterLedger, functions: Functions, registers: Registers, heads: Heads, random: Random
    ) -> None:
        self._ledger = ledger
        self._functions = functions
        self._registers = registers
        self._heads = heads
        self._random = random
        self._queue: deque[_Waiting] = deque()
        self._more = trio.Event()
        self._failures = 0
        self._may_be_done = False  # A swap of the running batch may have been done.
        self._scope = trio.CancelScope()

    async def submit(self, operations: Sequence[Operation], timeout_s: float) -> list[OperationAnswer]:
        """Run operations; return the answers, with UNKNOWN for those without an outcome in time.

        Raises:
            NotReady: this node is no server of the map; it has done nothing.
            UnknownDatabase: the table was dropped, perhaps after these operations were done by another server.
        """
        waiting = [_Waiting(operation, trio.Event()) for operation in operations]
        self._queue.extend(waiting)
        self._more.set()
        with trio.move_on_after(timeout_s):
            for waiter in waiting:
                await waiter.done.wait()
        for waiter in waiting:
            waiter.gone = True
        errors = [waiter.error for waiter in waiting if waiter.error is not None]
        if errors and len(errors) == len(waiting):
            raise errors[0]
        return [waiter.answer or OperationAnswer(waiter.operation.id, OperationOutcome.UNKNOWN) for waiter in waiting]

    async def run(self) -> None:
        """Run transactions of waiting operations, until cancelled or until `end`."""
        with self._scope:
            while True:
                if not self._queue:
                    self._more = trio.Event()
                    await self._more.wait()
                if batch := self._next():
                    await self._run_batch(batch)

    def end(self) -> None:
        """Stop: the table is gone."""
        self._scope.cancel()

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        seen: set[bytes] = set()
        while self._queue and len(batch) < MAX_JUDGED and self._queue[0].operation.id not in seen:
            waiter = self._queue.popleft()
            if not waiter.gone:
                batch.append(waiter)
                seen.add(waiter.operation.id)
        return batch

    async def _run_batch(self, batch: list[_Waiting]) -> None:
        """Repeat a transaction until it is committed or refused, or no requester waits for it."""
        self._failures, self._may_be_done = 0, False
        while any(not waiter.gone for waiter in batch):
            answers = None
            try:
                answers = await self._transact([waiter.operation for waiter in batch])
            except (NoServer, UnknownDatabase) as error:
                # Another server, or an own swap before the table was dropped, may have done it.
                answers = [OperationAnswer(waiter.operation.id, OperationOutcome.UNKNOWN) for waiter in batch]
                for waiter in batch:
                    waiter.error = None if self._may_be_done else error
            except GossipKVError:
                pass  # The loop tries again.
            if answers is not None:
                for waiter, answer in zip(batch, answers, strict=True):
                    waiter.answer = answer
                    waiter.done.set()
                return
            self._heads.doubt(self._ledger.register)
            self._failures += 1
            pause_s = min(MIN_PAUSE_S * 2 ** min(self._failures, 16), MAX_PAUSE_S)
            await trio.sleep(self._random.random() * pause_s)

    async def _transact(self, operations: list[Operation]) -> list[OperationAnswer] | None:
        """Run one attempt; return None if its outcome is unknown, and it must be judged again."""
        register, written = self._ledger.register, self._heads.written(self._ledger.register)
        is_sure = written is None  # True if a round of this attempt has shown the head.
        chosen = written or await self.read()
        if chosen.head.ended:
            raise UnknownDatabase("the table was dropped")
        judgement = await self._judge(chosen, operations)
        if not is_sure and any(answer.outcome is OperationOutcome.UNKNOWN for answer in judgement.answers):
            return None  # Their base is above this head, so a newer head exists.
        if judgement.changed is None:
            # No operation was new: the answers are true of a head that was not replaced yet.
            return judgement.answers if is_sure else None
        head, changed = chosen.head, judgement.changed
        config = _next_config(chosen)
        self._ledger.append(changed, config)
        transaction = self._random.randbytes(TRANSACTION_BYTES)
        change = swap(head.transaction, config, transaction, changed.root)
        offer = Offer(self._registers.me.node, head.root, changed, config)
        outcome = await self._registers.change(register, change, timeout_s=ROUND_S, offer=offer)
        committed = _committed(outcome)
        if committed is None:
            self._may_be_done |= outcome.end is not ChangeEnd.REFUSED
            return None
        if not committed.head.ended:
            self._heads.show(register, committed, written=committed.head.transaction == transaction)
        return judgement.answers

    async def read(self, hint: Acceptors | None = None) -> KnownMap:
        """Read the head by a quorum, ended or not.

        Raises:
            Unavailable: no quorum answers, or none knows of this register.
        """
        outcome = await self._registers.read(self._ledger.register, timeout_s=ROUND_S, hint=hint)
        chosen = _committed(outcome)
        if chosen is None:
            raise Unavailable(f"the state of this table cannot be read: {outcome.message}")
        return chosen

    async def hold(self, chosen: KnownMap) -> MapTree:
        """Open the map of a head, which is fetched if needed. Raises MissingPage, ProtocolError, Unavailable."""
        head = chosen.head
        if not self._ledger.has(head.root):
            nodes = sorted({acceptor.node for acceptor in chosen.acceptors.everyone} - {self._registers.me.node})
            self._random.shuffle(nodes)
            await self._ledger.fetch(head.root, head.config, nodes)
        return MapTree.opened(self._ledger.read, head.root, self._ledger.kind.name)

    async def _judge(self, chosen: KnownMap, operations: list[Operation]) -> OperationJudgement:
        if self._registers.me not in chosen.acceptors.everyone:
            raise NoServer("this node is not a metadata server of the table")
        tree = await self.hold(chosen)
        return judge(tree, operations, _next_config(chosen), self._functions)


def _committed(outcome: ProposalOutcome) -> KnownMap | None:
    if outcome.end is not ChangeEnd.DONE or outcome.value is None or outcome.ballot is None:
        return None
    return KnownMap(decode_head(outcome.value.payload), outcome.value.acceptors, outcome.ballot.generation)


def _next_config(chosen: KnownMap) -> int:
    return config_id(chosen.generation, sequence_of(chosen.head.config) + 1)
