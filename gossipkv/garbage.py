"""No garbage collection while a program loads.

Its modules make tens of thousands of objects and next to no garbage, and Python would look through them more than a
hundred times: a fifth of the time that a node takes to start.
"""

from __future__ import annotations

import gc


def leave() -> None:
    """Collect none until `keep`."""
    gc.disable()
    _left.append(True)


def keep() -> None:
    """End what `leave` began: what is here lives as long as the process, and is left out of all collections to come.

    Where it was not begun the process is somebody else's, and nothing changes.
    """
    if _left:
        _left.clear()
        gc.freeze()
        gc.enable()


_left: list[bool] = []
