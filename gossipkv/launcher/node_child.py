"""One start of one node: its process, as seen by its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv.processes import leash

if TYPE_CHECKING:
    from collections.abc import Sequence

STARTING: Final = "starting"
READY: Final = "ready"
STOPPED: Final = "stopped"  # SIGSTOP stopped it.
ENDED: Final = "ended"

READY_WORD: Final = b"ready "


@final
class NodeProcess:
    """A node's process, from its start to its end.

    The command prints `ready HOST:PORT` on standard output; its standard error goes to the log.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        worn, self._held = leash.braid()
        try:
            with log.open("ab") as file:
                self.log_from = file.tell()  # Output of earlier starts comes before.
                self._process = subprocess.Popen(  # noqa: S603  # The command comes from the plan.
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    pass_fds=[worn],
                    preexec_fn=partial(leash.wear, worn),  # noqa: PLW1509  # No other thread runs here.
                )
        except BaseException:
            leash.let_go(self._held)
            raise
        finally:
            os.close(worn)
        assert self._process.stdout is not None
        self.output = self._process.stdout
        os.set_blocking(self.output.fileno(), False)
        self._said = b""
        self._ready = False
        self._began_s = time.monotonic()
        self.ended: int | None = None  # The exit status; below zero, the signal that ended it.
        self.is_asked = False  # True if this process requested its end.

    @property
    def process(self) -> int:
        """The process id; it is not reused before `reap`."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """True until its end was seen."""
        return self.ended is None

    @property
    def state(self) -> str:
        """The state as a word for people."""
        if not self.runs:
            return ENDED
        if self._is_stopped():
            return STOPPED
        return READY if self._ready else STARTING

    @property
    def is_ready(self) -> bool:
        """True if it has reported to be ready."""
        return self._ready

    @property
    def uptime_s(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._began_s

    def _is_stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self.process}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b") ")[2][:1] in {b"T", b"t"}

    def hear(self) -> bool:
        """Read its standard output; returns False at the end."""
        try:
            part = os.read(self.output.fileno(), 1 << 12)
        except BlockingIOError:
            return True
        if not self._ready:
            self._said = (self._said + part)[-(1 << 12) :]
            self._ready = self._said.startswith(READY_WORD) and b"\n" in self._said
        return bool(part)

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended. A signal that ends it also continues a stopped process."""
        if not self.runs:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)
            if number in {signal.SIGTERM, signal.SIGINT}:
                os.kill(self.process, signal.SIGCONT)
        if number in {signal.SIGTERM, signal.SIGINT, signal.SIGKILL}:
            self.is_asked = True

    def reap(self) -> bool:
        """Return True if it has ended by now."""
        if self.runs and (status := self._process.poll()) is not None:
            self.ended = status
            leash.let_go(self._held)
        return not self.runs
