"""The load processes as their parent sees them: started, instructed, heard, ended.

The processes die with their parent, however it ends.  An earlier death is reported, and the others continue.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import GossipKVError, SourceChanged, SourceError, StorageError, Unavailable
from gossipkv.loadtest.plan import PlanError
from gossipkv.loadtest.plan_text import Task
from gossipkv.processes.program import ProgramLines, how_it_ended, order_line
from gossipkv.processes.worker import Worker, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from gossipkv.loadtest.plan import LoadPlan
    from gossipkv.loadtest.result import Json

MODULE: Final = "gossipkv.loadtest.load_child"
RECEIVE_BYTES: Final = 1 << 16
ERROR_BYTES: Final = 4000
ERRORS: Final[dict[str, type[GossipKVError]]] = {
    kind.__name__: kind for kind in (PlanError, SourceChanged, SourceError, StorageError, Unavailable)
}


@dataclass(frozen=True)
class ProcessLine:
    """A line of one process: `ready`, `news`, `done` with its data, or `died` with the cause."""

    process: int
    kind: str
    value: Json


@dataclass
class _ProcessInput:
    """One process, and the received part of its next line."""

    worker: Worker
    lines: ProgramLines = field(default_factory=ProgramLines)
    is_alive: bool = True


@final
class LoadFleet:
    """All processes of a plan; `stack` ends them."""

    def __init__(self, plan: LoadPlan, token: str | None, stack: ExitStack) -> None:
        self._workers: list[_ProcessInput] = []
        self._selector = stack.enter_context(selectors.DefaultSelector())
        for turn in range(plan.processes):
            worker = start(MODULE, stack)
            self._workers.append(_ProcessInput(worker))
            os.set_blocking(worker.stdout.fileno(), False)
            self._selector.register(worker.stdout, selectors.EVENT_READ, turn)
            worker.write(order_line(Task(plan, turn, worker.worn, token)))

    @property
    def alive(self) -> set[int]:
        return {turn for turn, source in enumerate(self._workers) if source.is_alive}

    def begin(self, stages: list[tuple[float, int]], begun_ns: int, walk: str = "") -> None:
        order = json.dumps({"stages": stages, "begun_ns": begun_ns, "walk": walk}).encode() + b"\n"
        for turn in self.alive:
            self._workers[turn].worker.write(order)

    def take_version(self, version: str, file: Path) -> None:
        """Send the records of another version to all processes, for comparison."""
        order = json.dumps({"version": version, "file": str(file)}).encode() + b"\n"
        for turn in self.alive:
            self._workers[turn].worker.write(order)

    def interrupt(self) -> None:
        for turn in self.alive:
            with suppress(ProcessLookupError):
                self._workers[turn].worker.process.send_signal(signal.SIGINT)

    def hear(self, timeout_s: float) -> Iterator[ProcessLine]:
        """Yield messages that have arrived, or arrive within `timeout_s`."""
        for key, _ in self._selector.select(timeout_s):
            turn: int = key.data
            source = self._workers[turn]
            data = os.read(source.worker.stdout.fileno(), RECEIVE_BYTES)
            if not data:
                self._selector.unregister(source.worker.stdout)
                source.is_alive = False
                yield ProcessLine(turn, "died", _end_of(source.worker))
                continue
            for line in source.lines.feed(data):
                kind, value = json.loads(line)
                yield ProcessLine(turn, kind, value)


def error_of(value: Json) -> GossipKVError:
    """Return the error that a process met before it was ready."""
    assert isinstance(value, list)
    kind, message = value
    return ERRORS.get(str(kind), PlanError)(str(message))


def _end_of(worker: Worker) -> str:
    """Return how a process ended, with its last line of errors."""
    status = worker.process.wait()
    last_line = worker.stderr.read(ERROR_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
    return how_it_ended(status) + (f": {last_line}" if last_line else "")
