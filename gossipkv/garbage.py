"""No garbage collection while a program loads.

The modules of the program make tens of thousands of objects and little garbage. Python would scan them more than a
hundred times, which takes a fifth of a node's start-up time.
"""

from __future__ import annotations

import gc


def leave() -> None:
    """Stop garbage collection until `keep`."""
    gc.disable()
    _left.append(True)


def keep() -> None:
    """Resume garbage collection after `leave`; existing objects live as long as the process, and are never scanned.

    Without a preceding `leave` this is another program's process, and nothing changes.
    """
    if _left:
        _left.clear()
        gc.freeze()
        gc.enable()


_left: list[bool] = []
