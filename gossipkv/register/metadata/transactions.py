"""Transactions: from operations to edits that a majority has accepted.

A server of a map, one of its acceptors, gathers the operations that it is asked for into one change of the register.
The round that carries it judges them on the value that it has found, and writes the edits. After any failure they are
judged again, on the value that is found then: an operation that was done is found by its id.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady, UnknownDatabase
from gossipkv.register.changes import Applied, CannotJudge, ChangeRefused
from gossipkv.register.edits import decode_value
from gossipkv.register.metadata.known import MapView, config_id
from gossipkv.register.metadata.operations import MAX_OPERATIONS, OperationAnswer, OperationOutcome, judge
from gossipkv.register.proposal import ChangeEnd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gossipkv.register.configuration import Value
    from gossipkv.register.maps import Maps
    from gossipkv.register.metadata.operations import Functions, Operation
    from gossipkv.register.shell import Registers

ROUND_S: Final = 3.0
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
    tried: bool = False  # A round may have done the operation.


@final
class Transactions:
    """The operations on one map that this node was asked for."""

    def __init__(self, register: bytes, functions: Functions, registers: Registers, maps: Maps, random: Random) -> None:
        self._register = register
        self._functions = functions
        self._registers = registers
        self._maps = maps
        self._random = random
        self._queue: deque[_Waiting] = deque()
        self._batch: list[_Waiting] = []
        self._more = trio.Event()
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
            failures = 0
            while True:
                if not self._queue:
                    self._more = trio.Event()
                    await self._more.wait()
                self._batch = self._next()
                if not self._batch:
                    continue
                if await self._transact():
                    failures = 0
                else:
                    failures += 1
                    pause_s = min(MIN_PAUSE_S * 2 ** min(failures, 16), MAX_PAUSE_S)
                    await trio.sleep(self._random.random() * pause_s)

    def end(self) -> None:
        """Stop: the table is gone."""
        self._scope.cancel()

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        seen: set[bytes] = set()
        while self._queue and len(batch) < MAX_OPERATIONS and self._queue[0].operation.id not in seen:
            waiter = self._queue.popleft()
            if not waiter.gone:
                batch.append(waiter)
                seen.add(waiter.operation.id)
        return batch

    async def _transact(self) -> bool:
        """Run one round; operations without an answer wait for the next one. Return False if it has decided nothing."""
        # A change may still run when it is not awaited any more: it must know no later batch.
        operations, answers = [waiter.operation for waiter in self._batch], list[OperationAnswer]()
        change = partial(self._change, operations, answers)
        try:
            outcome = await self._registers.change(self._register, change, timeout_s=ROUND_S)
        except GossipKVError as error:  # The store is closed.
            self._finish(error=error)
            return True
        if outcome.end is ChangeEnd.DONE and outcome.value is not None and outcome.ballot is not None:
            self._maps.decided(self._register, outcome.value, outcome.ballot)
            self._finish(answers)
            return True
        if outcome.end is ChangeEnd.REFUSED and outcome.code in {NoServer.code, UnknownDatabase.code}:
            kind = NoServer if outcome.code == NoServer.code else UnknownDatabase
            self._finish(error=kind(outcome.message))
            return True
        for waiter in self._batch:
            waiter.tried |= outcome.end is not ChangeEnd.REFUSED
        self._finish()
        return False

    def _finish(self, answers: Sequence[OperationAnswer] = (), error: GossipKVError | None = None) -> None:
        """Give the first operations of the batch their answers, or all the error; the rest waits again."""
        for waiter, answer in zip(self._batch, answers, strict=False):
            waiter.answer = answer
            waiter.done.set()
        rest = self._batch[len(answers) :]
        if error is None:
            self._queue.extendleft(reversed(rest))
            return
        for waiter in rest:
            # An earlier round, or another server, may have done it.
            waiter.error = None if waiter.tried else error
            waiter.done.set()

    def _change(
        self, operations: Sequence[Operation], answers: list[OperationAnswer], value: Value, generation: int
    ) -> Applied | ChangeRefused | CannotJudge:
        """Judge operations on a found value; `answers` gets the answers to the first ones."""
        answers.clear()
        found = decode_value(value.payload)
        if found.ended:
            return ChangeRefused(UnknownDatabase.code, "the table was dropped")
        if self._registers.me not in value.acceptors.everyone:
            return ChangeRefused(NoServer.code, "this node is not a metadata server of the table")
        map_ = self._maps.map(self._register)
        if generation < self._maps.position(self._register).generation:
            return CannotJudge("this node knows a force of the map that these servers have not heard of")
        state = map_.state_of(found)
        if state is None:
            self._maps.fetch_soon(self._register, value)
            return CannotJudge("this node is reading the map from another server")
        if map_.is_full(found):
            return Applied(value.payload)
        view = MapView(state.entries, config_id(generation, found.sequence))
        config = config_id(generation, found.sequence + 1)
        judged = judge(view, state.size_bytes, operations, config, self._functions)
        answers += judged.answers
        edits = judged.edits
        return Applied(map_.next_value(found, state, edits).encode() if edits else value.payload)


def ended_by(operation: bytes, value: Value, generation: int) -> Applied:
    """End a map for good; the result names the operation that has ended it."""
    del generation
    ended = decode_value(value.payload).ended_by(operation)
    return Applied(ended.encode(), ended.ended)
