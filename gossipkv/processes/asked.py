"""A child that a thread asks, line by line: for work on strangers' data, which may take too much memory or time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

from gossipkv.processes.child import VARIABLES
from gossipkv.processes.program import how_it_ended, order_line
from gossipkv.processes.worker import start

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_BYTES: Final = 1 << 16
MAX_ANSWER_BYTES: Final = 64 << 20


class AskedProcessError(Exception):
    """The process gave no answer; the words say how it ended."""


@final
class AskedProcess:
    """A program of ours that answers each line of its input with a line of JSON; it ends with this object, or earlier.

    Its first line is the number of the leash that it must wear, and its second one the order.
    """

    def __init__(self, module: str, order: object, variables: Mapping[str, str]) -> None:
        """Start it; raises OSError if no process can be started."""
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile())
            self._worker = start(module, stack, {**VARIABLES, **variables}, errors)
            self.end = weakref.finalize(self, stack.pop_all().close)
        self._order = b"%d\n%b" % (self._worker.worn, order_line(order))

    def ask(self, request: bytes, within_s: float) -> dict[str, object]:
        """Return the answer to a line.

        Raises:
            AskedProcessError: there is none in that time, and the process has ended.
        """
        worker = self._worker
        end_of_time = threading.Timer(within_s, worker.process.kill)
        end_of_time.daemon = True
        end_of_time.start()
        try:
            worker.stdin.write(self._order + request + b"\n")
            worker.stdin.flush()
            self._order = b""
            answer = json.loads(worker.stdout.readline(MAX_ANSWER_BYTES))
        except (OSError, ValueError):  # It has ended, or says something else, or too much.
            answer = None
        finally:
            end_of_time.cancel()
        if isinstance(answer, dict):
            return answer
        how = self._how_it_ended()
        self.end()
        raise AskedProcessError(how)

    def _how_it_ended(self) -> str:
        process, errors = self._worker.process, self._worker.stderr
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        process.kill()
        process.wait()
        errors.seek(0)
        last = errors.read(ERROR_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"the process {how_it_ended(process.returncode)}{': ' if last else ''}{last}"
