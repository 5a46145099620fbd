"""A child that a thread asks, line by line: for work on strangers' data, which may take too much memory or time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
import weakref
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final, final

from gossipkv.processes import leash
from gossipkv.processes.child import VARIABLES
from gossipkv.processes.program import ProgramLines, command, environment, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Mapping

PART_BYTES: Final = 1 << 16
MAX_ANSWER_BYTES: Final = 64 << 20


class AskedProcessError(Exception):
    """The process gave no answer; the words say how it ended."""


@final
class AskedProcess:
    """A program of ours that answers each line of its input with a line of JSON; it ends with this object, or earlier.

    Its first line is the number of the leash that it must wear, and its second one the order.
    """

    def __init__(self, module: str, order: bytes, variables: Mapping[str, str]) -> None:
        """Start it; raises OSError if no process can be started."""
        with ExitStack() as stack:
            worn, started = stack.enter_context(leash.held())
            self._errors: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(  # noqa: S603  # Our own program.
                command(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**environment(), **VARIABLES, **variables},
                pass_fds=(worn,),
                start_new_session=True,
            )
            started()
            stack.callback(_end, self._process)
            self.end = weakref.finalize(self, stack.pop_all().close)
        self._lines = ProgramLines()
        self._order = b"%d\n%b\n" % (worn, order)

    def ask(self, request: bytes, within_s: float) -> dict[str, object]:
        """Return the answer to a line.

        Raises:
            AskedProcessError: there is none in that time, and the process has ended.
        """
        with contextlib.suppress(OSError, ValueError):  # It has ended, or says something else.
            self._tell(self._order + request + b"\n")
            self._order = b""
            answer = json.loads(self._line(time.monotonic() + within_s))
            if isinstance(answer, dict):
                return answer
        how = self._how_it_ended()
        self.end()
        raise AskedProcessError(how)

    def _tell(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _line(self, give_up_s: float) -> bytes:
        """Return the next line; nothing if there is none in time, or if it is too long."""
        stdout, size_bytes, waiting = self._process.stdout, 0, select.poll()
        assert stdout is not None
        waiting.register(stdout, select.POLLIN)
        while size_bytes <= MAX_ANSWER_BYTES and waiting.poll(max(0.0, give_up_s - time.monotonic()) * 1000):
            part = os.read(stdout.fileno(), PART_BYTES)
            if not part:
                return b""
            size_bytes += len(part)
            for line in self._lines.feed(part):
                return line
        self._process.kill()
        return b""

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        last = self._errors.read(PART_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"the process {how_it_ended(self._process.returncode)}{': ' if last else ''}{last}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
