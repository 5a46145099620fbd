"""Work in a process of its own that has imported already: the copy of one that waits for it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from gossipkv.processes import leash

if TYPE_CHECKING:
    from collections.abc import Callable


def run_apart(work: Callable[[], int]) -> int:
    """Do this in a copy of this process, which has one thread, and wait for its end.

    Returns what `work` did, which is the copy's exit status: 1 if it raised; below zero, the signal that killed it.  It
    leads a session, so that its priority is its own, and dies with this process.
    """
    with leash.held() as (worn, started):
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
        leash.wear(worn)
        status = work()
    except BaseException:  # noqa: BLE001  Whatever it is, it must not run on into what the other does.
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
