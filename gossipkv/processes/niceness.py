"""Low priority: a child process that works beside a serving node."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

# Reads come first: beside a busy reader, a process of this niceness gets about a thirtieth of a core.
NICENESS: Final = 15


def give_way(process: int) -> None:
    """Let others come before this process from now on; before its whole group, if it leads one.

    A kernel that schedules session against session (sched(7), autogroup) heeds a process's niceness only within its
    session; there the session has a niceness, too.  A node starts a build in a session of its own, and does this at
    once: to start an interpreter is half of the work of a small build.
    """
    which = os.PRIO_PGRP if os.getpgid(process) == process else os.PRIO_PROCESS
    os.setpriority(which, process, max(NICENESS, os.getpriority(os.PRIO_PROCESS, process)))
    if os.getsid(process) == process:
        with contextlib.suppress(OSError):  # Such a kernel is not this one, or it was asked a moment ago.
            Path(f"/proc/{process}/autogroup").write_text(str(NICENESS))
