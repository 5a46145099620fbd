"""A leash: a process on it is killed by the kernel when whoever holds the other end is gone, however that ended.

The leash is a pipe that nobody writes to.  Its reading end, which only the process on the leash keeps, is set to send
SIGKILL when the last writer goes, and only the holder has the writing end.  Three other ways were looked at:

* PR_SET_PDEATHSIG follows the *thread* that started the process: a worker thread that ends takes the child with it.
* A handler at exit does not run when the holder is killed.
* SIGIO, the signal that a pipe sends if nothing else is asked for, does not end a process that is stopped (SIGSTOP).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import traceback
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Leash(NamedTuple):
    """The two ends of one leash: descriptors."""

    worn: int  # For the process that is to die.
    held: int  # Closed by the kernel when the holder ends; nobody else may have it.


def braid() -> Leash:
    """A new leash; programs that this process starts get neither end unless it passes one on."""
    leash = Leash(*os.pipe2(os.O_CLOEXEC))
    _held.add(leash.held)
    return leash


def let_go(held: int) -> None:
    """Cut the leash, if this process still holds it."""
    if held in _held:
        _held.discard(held)
        os.close(held)


@contextmanager
def held() -> Iterator[tuple[int, Callable[[], None]]]:
    """Hold a leash as long as the block lasts: the end to pass to a process, and what to call when that has started."""
    leash = braid()
    with ExitStack() as stack:
        stack.callback(let_go, leash.held)
        here = stack.enter_context(ExitStack())
        here.callback(os.close, leash.worn)
        yield leash.worn, here.close


def _forget() -> None:
    """Let go of all in the child of a fork, which may live longer than the holder."""
    for held in tuple(_held):
        let_go(held)


_held: set[int] = set()
os.register_at_fork(after_in_child=_forget)


def wear(worn: int) -> None:
    """Have this process, and the program it may become, killed when the other end is closed."""
    fcntl.fcntl(worn, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(worn, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(worn, fcntl.F_SETFL, fcntl.fcntl(worn, fcntl.F_GETFL) | os.O_ASYNC)
    if is_cut(worn):  # It was cut before the kernel was told.
        signal.raise_signal(signal.SIGKILL)


def is_cut(worn: int) -> bool:
    """Whether the holder is gone."""
    poll = select.poll()
    poll.register(worn, 0)
    return bool(poll.poll(0))


def run_apart(work: Callable[[], int]) -> int:
    """Do this in a copy of this process, which has one thread and has imported already, and wait for its end.

    Returns what `work` did, which is the copy's exit status: 1 if it raised; below zero, the signal that killed it.  It
    leads a session, so that its priority is its own, and dies with this process.
    """
    with held() as (worn, started):
        copy = os.fork()
        if copy == 0:
            _run(work, worn)
        started()
        _, status = os.waitpid(copy, 0)
    return os.waitstatus_to_exitcode(status)


def _run(work: Callable[[], int], worn: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        wear(worn)
        status = work()
    except BaseException:  # noqa: BLE001  Whatever it is, it must not run on into what the other does.
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
