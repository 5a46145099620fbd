"""The number of processor cores for this process, according to Linux (sched(7), cgroups(7))."""

from __future__ import annotations

import os
import re
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gossipkv.environment.memory import PROC, groups_of, mounts_of, reader_below, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.environment.memory import Read

# `cpu.max`: microseconds of processor time, in a period of so many microseconds.
_QUOTA: Final = re.compile(r"(\d{1,18}) ([1-9]\d{0,17})\s*", re.ASCII)


def cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use at once: by its affinity, and by the quotas of its control groups.

    A quota of one and a half counts as two, since the rest helps in short bursts. `root`: parent of the system's files.
    """
    return min([len(os.sched_getaffinity(0)), *(max(1, ceil(quota)) for quota in quotas(reader_below(root)))])


def quotas(read: Read) -> Iterator[float]:
    """Yield the quotas of version 2 control groups that are set, in cores."""
    mounts = [mount for mount in mounts_of("cpu", text_of(read, PROC / "self/mountinfo")) if mount.is_unified]
    for path, is_unified in groups_of("cpu", text_of(read, PROC / "self/cgroup")):
        for group in (group for mount in mounts if is_unified for group in mount.along(path)):
            if found := _QUOTA.fullmatch(text_of(read, group / "cpu.max")):
                yield int(found[1]) / int(found[2])
