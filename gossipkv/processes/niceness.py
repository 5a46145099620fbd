"""Low priority: a child process that works beside a serving node, and how far it can be taken back.

Without privileges a process that has become nice stays so, and one of SCHED_IDLE stays idle (RLIMIT_NICE is 0 where
nobody has set it).  What can be taken back by anybody is the niceness of a session, on a kernel that schedules session
against session (sched(7), autogroup): most desktops and laptops, and no process in a control group of its own, as
services and containers are.  A kernel of that kind heeds a process's niceness only within its session.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

# Others come first: beside a busy one, a process of this niceness gets about a thirtieth of a core.
NICENESS: Final = 15


def give_way(process: int) -> bool:
    """Let others come before this process from now on.

    The niceness of its session follows if it leads one: each build runs in a session of its own.  Returns
    whether all is done; if not, ask again a moment later: the kernel changes sessions one by one, with pauses between.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(_whole(process), process, max(NICENESS, os.getpriority(os.PRIO_PROCESS, process)))
    return _set_session(process, NICENESS)


def take_back(process: int) -> bool:
    """Undo `give_way` as far as the system lets us; returns as that does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(_whole(process), process, os.getpriority(os.PRIO_PROCESS, 0))
    return _set_session(process, 0)


def _whole(process: int) -> int:
    """What names all of its threads: its group, if it leads one; else there is only the one that began."""
    return os.PRIO_PGRP if os.getpgid(process) == process else os.PRIO_PROCESS


def _set_session(process: int, niceness: int) -> bool:
    """Whether it is so, or never can be."""
    try:
        if os.getsid(process) == process:
            Path(f"/proc/{process}/autogroup").write_text(str(niceness))
    except BlockingIOError:
        return False
    except OSError:  # Such a kernel is not this one, or the process has ended.
        pass
    return True
