"""The processes that make the load, as their parent sees them: started, told, heard, ended.

They die with their parent, however that ends.  One that dies before is told of, and the others go on.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.errors import GossipKVError, SourceChanged, SourceError, StorageError, Unavailable
from gossipkv.loadtest.plan import PlanError
from gossipkv.loadtest.task import Task
from gossipkv.processes import leash
from gossipkv.processes.program import command, environment, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from gossipkv.loadtest.plan import Plan
    from gossipkv.loadtest.result import Json

MODULE: Final = "gossipkv.loadtest.child"
RECEIVE_BYTES: Final = 1 << 16
ERROR_BYTES: Final = 4000
ERRORS: Final[dict[str, type[GossipKVError]]] = {
    kind.__name__: kind for kind in (PlanError, SourceChanged, SourceError, StorageError, Unavailable)
}


@dataclass(frozen=True)
class Said:
    """A line of one process: `ready`, `news`, `done` with what it has, or `died` with how."""

    process: int
    what: str
    value: Json


@dataclass
class _Worker:
    """One process."""

    process: subprocess.Popen[bytes]
    received: bytearray = field(default_factory=bytearray)
    is_alive: bool = True


@final
class Fleet:
    """All processes of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._selector.close)
            for turn in range(self._plan.processes):
                worn, started = stack.enter_context(leash.held())
                process = subprocess.Popen(  # noqa: S603  # Our own program, by this interpreter.
                    command(MODULE),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment(),
                    pass_fds=(worn,),
                    start_new_session=True,  # A Ctrl-C in the terminal is for the parent, which tells them.
                )
                stack.callback(_end, process)
                started()
                self._workers.append(_Worker(process))
                assert process.stdout is not None
                os.set_blocking(process.stdout.fileno(), False)
                self._selector.register(process.stdout, selectors.EVENT_READ, turn)
                self._write(turn, Task(self._plan, turn, worn).line())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def alive(self) -> set[int]:
        """Numbers of the processes that have not ended."""
        return {turn for turn, worker in enumerate(self._workers) if worker.is_alive}

    @property
    def pids(self) -> list[int]:
        """The system's numbers of the processes, in turn."""
        return [worker.process.pid for worker in self._workers]

    def begin(self, stages: list[tuple[float, int]], begun_ns: int) -> None:
        """Have all begin a run."""
        order = json.dumps({"stages": stages, "begun_ns": begun_ns}).encode() + b"\n"
        for turn in self.alive:
            self._write(turn, order)

    def take_version(self, version: str, file: Path) -> None:
        """Have all compare with the records of a version, too."""
        order = json.dumps({"version": version, "file": str(file)}).encode() + b"\n"
        for turn in self.alive:
            self._write(turn, order)

    def interrupt(self) -> None:
        """Have all end their run."""
        for turn in self.alive:
            with suppress(ProcessLookupError):
                self._workers[turn].process.send_signal(signal.SIGINT)

    def hear(self, timeout_s: float) -> Iterator[Said]:
        """What was said, or will be in so many seconds."""
        for key, _ in self._selector.select(timeout_s):
            turn: int = key.data
            worker = self._workers[turn]
            assert worker.process.stdout is not None
            data = os.read(worker.process.stdout.fileno(), RECEIVE_BYTES)
            if not data:
                self._selector.unregister(worker.process.stdout)
                worker.is_alive = False
                yield Said(turn, "died", self._end_of(worker))
                continue
            worker.received += data
            *lines, rest = bytes(worker.received).split(b"\n")
            worker.received = bytearray(rest)
            for line in lines:
                what, value = json.loads(line)
                yield Said(turn, what, value)

    def _write(self, turn: int, line: bytes) -> None:
        stdin = self._workers[turn].process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # It has ended, which is heard at its other end.
            stdin.write(line)
            stdin.flush()

    @staticmethod
    def _end_of(worker: _Worker) -> str:
        """How a process ended, with the last line that it said about it."""
        status = worker.process.wait()
        assert worker.process.stderr is not None
        said = worker.process.stderr.read(ERROR_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return how_it_ended(status) + (f": {said}" if said else "")


def error_of(value: Json) -> GossipKVError:
    """The error that a process met before it was ready."""
    assert isinstance(value, list)
    kind, message = value
    return ERRORS.get(str(kind), PlanError)(str(message))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
