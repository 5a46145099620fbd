"""A child with pipes and a leash, for threads: it ends with a stack."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.processes import leash
from gossipkv.processes.program import command, environment
from gossipkv.settings.node_variables import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from typing import IO

NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Worker(NamedTuple):
    """A process, its pipes, and the descriptor of its leash."""

    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    worn: int

    def write(self, line: bytes) -> None:
        """Send a line, unless the process has ended, which its output shows."""
        with suppress(BrokenPipeError):
            self.stdin.write(line)
            self.stdin.flush()


def start(
    module: str, stack: ExitStack, variables: Mapping[str, str] = NONE, errors: IO[bytes] | None = None
) -> Worker:
    """Start a process that runs a module until the stack is closed.

    It has these variables, and no token for clients: that comes by the pipe.  `errors`: the file for its standard
    error; None: a pipe.
    """
    worn, started = stack.enter_context(leash.held())
    environ = {name: value for name, value in environment().items() if name != TOKEN_VARIABLE}
    process = subprocess.Popen(  # noqa: S603  # This interpreter runs our own program.
        command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors is None else errors,
        env={**environ, **variables},
        pass_fds=(worn,),
        start_new_session=True,  # Ctrl-C in the terminal is for the parent, which tells its workers.
    )
    assert process.stdin is not None
    assert process.stdout is not None
    errors = process.stderr if errors is None else errors
    assert errors is not None
    worker = Worker(process, process.stdin, process.stdout, errors, worn)
    stack.callback(_end, worker)
    started()
    return worker


def _end(worker: Worker) -> None:
    worker.process.kill()
    worker.process.wait()
    for stream in (worker.stdin, worker.stdout, worker.stderr):
        with suppress(BrokenPipeError):
            stream.close()
