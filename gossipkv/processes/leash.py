"""A leash: the kernel kills the process on it when the holder of the other end is gone, however that ended.

The leash is a pipe that nobody writes to. Only the process on the leash keeps the reading end, which sends SIGKILL when
the last writer goes; only the holder has the writing end.
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
    """The two ends of a leash, as descriptors."""

    worn: int  # The end of the process that is to die.
    held: int  # Closed by the kernel when the holder ends; no other process may have it.


def braid() -> Leash:
    """Return a new leash; programs that this process starts inherit neither end unless it is passed on."""
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
    """Hold a leash for the duration of the block; yields the end for a process, and a callback for its start."""
    leash = braid()
    with ExitStack() as stack:
        stack.callback(let_go, leash.held)
        here = stack.enter_context(ExitStack())
        here.callback(os.close, leash.worn)
        yield leash.worn, here.close


def _forget() -> None:
    """Release all leashes in a forked child, which may live longer than the holder."""
    for held in tuple(_held):
        let_go(held)


_held: set[int] = set()
os.register_at_fork(after_in_child=_forget)


def wear(worn: int) -> None:
    """Make the kernel kill this process, and the program it may become, when the other end is closed."""
    fcntl.fcntl(worn, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(worn, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(worn, fcntl.F_SETFL, fcntl.fcntl(worn, fcntl.F_GETFL) | os.O_ASYNC)
    if is_cut(worn):  # The leash was cut before the kernel was told.
        signal.raise_signal(signal.SIGKILL)


def is_cut(worn: int) -> bool:
    """Return True if the holder is gone."""
    poll = select.poll()
    poll.register(worn, 0)
    return bool(poll.poll(0))


def run_apart(work: Callable[[], int]) -> int:
    """Run `work` in a fork of this process, which has one thread and its modules loaded; wait for its end.

    Returns the result of `work` as the fork's exit status: 1 if it raised; below zero, the signal that killed it. The
    fork leads a session, so its priority is its own, and dies with this process.
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
    except BaseException:  # noqa: BLE001  # Any error must not let the fork run on into the caller's code.
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
