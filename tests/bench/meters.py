"""Meters of a process' use for a piece of work: processor time, or its instructions in user space.

On a busy machine the time differs by a tenth from run to run; instructions differ by less than a hundredth. But
instructions ignore the kernel, caches and waiting, so both are reported.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from time import sleep
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tests.bench.processes import children_cpu_s, cpu_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECOND_NS = 1e9
ATTACH_S = 0.5  # perf does not report that it has begun.


class Used(NamedTuple):
    """A command's use from its start to its end, and its output."""

    amount: float
    output: str


class Meter(ABC):
    name: ClassVar[str]
    unit: ClassVar[str]

    @property
    def wrapper(self) -> tuple[str, ...]:
        """The prefix of the command of a process whose turns are measured."""
        return ()

    @abstractmethod
    def turn(self, process: int, work: Callable[[], object]) -> float:
        """Do `work`, and return the process' use meanwhile; the process is idle before and after."""

    @abstractmethod
    def command(self, place: tuple[str, ...], command: tuple[str, ...]) -> Used:
        """Run a command with all its children; `place` is the outermost prefix."""


def _output(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


class ProcessorTime(Meter):
    """Nanoseconds of user and kernel time."""

    name, unit = "processor time", "ns"

    def turn(self, process: int, work: Callable[[], object]) -> float:
        before_ns = cpu_ns(process)
        work()
        return cpu_ns(process) - before_ns

    def command(self, place: tuple[str, ...], command: tuple[str, ...]) -> Used:
        before_s = children_cpu_s()
        output = _output((*place, *command))
        return Used((children_cpu_s() - before_s) * SECOND_NS, output)


class Callgrind(Meter):
    """Instructions counted by valgrind: works everywhere, some fifty times as slow."""

    name, unit = "valgrind --tool=callgrind", "instructions"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def _valgrind(self) -> tuple[str, ...]:
        return ("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={self._directory}/%p")

    @property
    def wrapper(self) -> tuple[str, ...]:
        return (*self._valgrind, "--instr-atstart=no")

    def turn(self, process: int, work: Callable[[], object]) -> float:
        self._tell(process, "instrumentation", "on")
        work()
        self._tell(process, "instrumentation", "off")
        self._tell(process, "dump")
        return self.take(f"{process}.*")

    def command(self, place: tuple[str, ...], command: tuple[str, ...]) -> Used:
        output = _output((*place, *self._valgrind, "--trace-children=yes", *command))
        return Used(self.take("*"), output)

    @staticmethod
    def _tell(process: int, *command: str) -> None:
        _output(("vgdb", f"--pid={process}", *command))

    def take(self, pattern: str) -> float:
        """Return the sum of the matching files' counts, and remove the files."""
        total = 0
        for path in self._directory.glob(pattern):
            with path.open() as lines:
                total += sum(int(line.split()[1]) for line in lines if line.startswith("totals:"))
            path.unlink()
        if total == 0:
            raise RuntimeError(f"valgrind counted nothing in {self._directory}/{pattern}")
        return total


class Perf(Meter):
    """Instructions counted by the processor."""

    name, unit = "perf stat", "instructions"
    event = "instructions:u"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "perf"

    @property
    def _stat(self) -> tuple[str, ...]:
        return ("perf", "stat", "-x,", "-e", self.event, "-o", str(self._path))

    def turn(self, process: int, work: Callable[[], object]) -> float:
        with subprocess.Popen([*self._stat, "-p", str(process)]) as perf:
            sleep(ATTACH_S)
            work()
            perf.send_signal(signal.SIGINT)
        return self.take()

    def command(self, place: tuple[str, ...], command: tuple[str, ...]) -> Used:
        output = _output((*self._stat, "--", *place, *command))
        return Used(self.take(), output)

    def take(self) -> float:
        """Return the count; raise RuntimeError if there is none, as in most virtual machines."""
        lines = self._path.read_text().splitlines()
        count = next((line.partition(",")[0] for line in lines if self.event in line and "," in line), "")
        if not count.isdecimal():
            raise RuntimeError(f"perf does not count {self.event} here: {lines}")
        return int(count)


def instructions(directory: Path) -> Meter | None:
    """Return the best available counter of instructions, with a separate directory; None if there is none."""
    if shutil.which("perf") is not None:
        perf = Perf(directory)
        try:
            perf.command((), ("true",))
        except (OSError, RuntimeError):
            pass
        else:
            return perf
    return Callgrind(directory) if shutil.which("valgrind") and shutil.which("vgdb") else None
