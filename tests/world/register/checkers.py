"""Checkers of the acceptors' actions and of the outcomes reported to clients of registers.

During a run every appended, synced and reported record is checked: a ballot has one value, whose log is linked; a
promise is never below the accepted ballot and never falls, and so neither does a generation; every reported record is
on the disk.  At the end each branch of a register (begun by one creation or force) is compared with its reported
outcomes: it must be one chain (`chain.py`) with an order (`linearizable.py`).

A force may lose values that were committed before it, or that are committed without it.  So a branch is compared with
outcomes that were reported of it, and with those that were reported before the force was asked for and survive. All
other requests count as unknown, and refused ones as not done.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

from tests.world.register import linearizable
from tests.world.register.chain import Asked as OnChain
from tests.world.register.chain import Written, check_chain
from tests.world.register.linearizable import Kind, Operation, Read, Refused
from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Value
    from gossipkv.register.messages import AcceptorRecord, Reply
    from tests.world.machine import Machine
    from tests.world.promises import Promises
    from tests.world.register.history import Asked, Branch, History
    from tests.world.register.log import Log, Logs


@final
class Checkers:
    def __init__(self, promises: Promises, logs: Logs, histories: Mapping[bytes, History]) -> None:
        self._promises = promises
        self._logs = logs
        self._histories = histories
        self._synced: dict[tuple[AcceptorId, bytes], AcceptorRecord] = {}  # The latest record of each.
        self.counts: Counter[str] = Counter()

    # During the run

    def kept(self, machine: Machine, register: bytes, record: AcceptorRecord) -> None:
        if record.accepted is None or record.value is None:
            return
        if record.promise < record.accepted:
            self._promises.found("promise_not_below_accepted", machine, f"{record.promise} < {record.accepted}")
        values = self._histories[register].values
        before = values.setdefault(record.accepted, record.value)
        if before is not record.value and before != record.value:
            what = f"{record.accepted}: {before} and {record.value}"
            self._promises.found("one_value_a_ballot", machine, what)
        log = self._logs[record.value.payload]
        if not log.is_linked:
            self._promises.found("log_is_linked", machine, f"after {log.parent!r} in {record.accepted}")

    def synced(self, machine: Machine, acceptor: AcceptorId, register: bytes, record: AcceptorRecord) -> None:
        before = self._synced.get((acceptor, register))
        if before is not None and record.promise < before.promise:
            self._promises.found("promise_never_falls", machine, f"from {before.promise} to {record.promise}")
        if before is not None and record.conflict < before.conflict:
            self._promises.found("conflict_never_falls", machine, f"from {before.conflict} to {record.conflict}")
        self._synced[acceptor, register] = record
        self._histories[register].note_synced(acceptor, record)

    def answered(self, machine: Machine, reply: Reply, synced: AcceptorRecord | None) -> None:
        """Compare a record that an acceptor reports with the one on its disk."""
        told = reply.record
        if told is None:
            return
        if synced is None or synced.promise < told.promise or _accepted(synced) < _accepted(told):
            self._promises.found("answered_is_synced", machine, f"{told} told, {synced} on the disk")

    def told(self, register: bytes, ballot: Ballot, value: Value) -> None:
        if self._histories[register].committed.get(ballot) != value:
            self._promises.found("told_is_committed", None, f"{value} in {ballot}, which no quorum has on its disks")

    # At the end

    def finish(self) -> None:
        """Compare all reported outcomes with the committed values."""
        logs = {log.name: log for log in self._logs.all()}
        written = [
            Written(log.name, log.parent, (log.operation,) if log.parent is not None else ()) for log in logs.values()
        ]
        for register, history in self._histories.items():
            committed: dict[Branch, set[bytes]] = {}
            for ballot, value in history.committed.items():
                committed.setdefault(ballot[:2], set()).add(self._logs[value.payload].name)
            for branch, names in committed.items():
                asked = list(_as_seen(history, branch, _path(names, logs)))
                for wrong in check_chain(written, names, [_on_chain(one) for one in asked]):
                    self._promises.found("one_chain", None, f"{register.hex()} {branch}: {wrong}")
                self._order(f"{register.hex()} {branch}", asked)

    def _order(self, where: str, asked: Iterable[Asked]) -> None:
        verdict = linearizable.check(
            Operation(one.call, one.invoked_us, one.completed_us, one.outcome) for one in asked
        )
        self.counts[verdict.kind.value] += 1
        self.counts["steps"] += verdict.steps
        if verdict.kind is Kind.VIOLATION:
            self._promises.found("linearizable", None, f"{where}: {verdict}")


def _accepted(record: AcceptorRecord) -> tuple[int, ...]:
    return record.accepted or ()


def _path(names: Iterable[bytes], logs: Mapping[bytes, Log]) -> set[bytes]:
    path: set[bytes] = set()
    for name in names:
        at: bytes | None = name
        while at is not None and at not in path:
            path.add(at)
            at = logs[at].parent if at in logs else None
    return path


def _as_seen(history: History, branch: Branch, path: set[bytes]) -> Iterable[Asked]:
    forced_us = history.forces.get(branch, 0)
    for one in history.asked.values():
        is_before = one.completed_us < forced_us and one.branch is not None and one.branch < branch
        if one.branch in {None, branch} or (is_before and one.value in path):
            yield one
        elif isinstance(one.outcome, Refused):
            yield one._replace(outcome=Refused(None), value=None)
        else:
            yield one._replace(completed_us=NEVER, outcome=None, value=None)


def _on_chain(one: Asked) -> OnChain:
    number = None if isinstance(one.call, Read) else one.operation
    return OnChain(number, one.invoked_us, one.completed_us, one.value, isinstance(one.outcome, Refused))
