"""Orphans: processes whose parents have ended, which belong to process 1 of a container.

Their entries stay in the kernel's table until process 1 waits for them.  A node may be process 1 and has children of
its own, for which it waits at once.  So a process that has ended and still has an entry a minute later is an orphan.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Final

from gossipkv.processes.usage import ended_children

REAP_S: Final = 60.0


def reap_as_first() -> None:
    """Reap orphans in a thread, from now on, if this is process 1."""
    if os.getpid() == 1:
        threading.Thread(target=_reap, name="orphans", daemon=True).start()


def _reap() -> None:
    ended: set[int] = set()
    while True:
        time.sleep(REAP_S)
        before, ended = ended, ended_children(os.getpid())
        for process in before & ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
