"""Low priority for a child process beside a serving node, and how far it can be raised again.

Without privileges a process cannot lower its niceness or leave SCHED_IDLE (RLIMIT_NICE is 0 by default). Anybody can
reset the niceness of a session, if the kernel schedules sessions against each other (sched(7), autogroup). This holds
on most desktops and laptops, but not in a control group of its own, as services and containers have. Such a kernel
applies a process's niceness only within its session.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

# Beside a busy process, a process of this niceness gets about a thirtieth of a core.
NICENESS: Final = 15


def give_way(process: int) -> bool:
    """Give this process low priority from now on.

    The niceness of its session follows if it leads one: each build runs in a session of its own. Returns True if done;
    if not, ask again a moment later: the kernel changes sessions one by one, with pauses between.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(_whole(process), process, max(NICENESS, os.getpriority(os.PRIO_PROCESS, process)))
    return _set_session(process, NICENESS)


def take_back(process: int) -> bool:
    """Undo `give_way` as far as the system allows; returns True as that does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(_whole(process), process, os.getpriority(os.PRIO_PROCESS, 0))
    return _set_session(process, 0)


def _whole(process: int) -> int:
    """Return the selector of all threads: the process's group if it leads one; otherwise only the first thread."""
    return os.PRIO_PGRP if os.getpgid(process) == process else os.PRIO_PROCESS


def _set_session(process: int, niceness: int) -> bool:
    """Set a session's niceness; returns False if it must be tried again."""
    try:
        if os.getsid(process) == process:
            Path(f"/proc/{process}/autogroup").write_text(str(niceness))
    except BlockingIOError:
        return False
    except OSError:  # The kernel has no autogroup, or the process has ended.
        pass
    return True
