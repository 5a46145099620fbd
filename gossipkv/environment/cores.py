"""How many processor cores there are for this process, as Linux grants them (sched(7), cgroups(7))."""

from __future__ import annotations

import os
import re
from math import ceil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from gossipkv.environment.memory import PROC, groups_of, mounts_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.environment.memory import Read

# Microseconds of a processor in a period of so many: `cpu.max`.
_QUOTA: Final = re.compile(r"(\d{1,18}) ([1-9]\d{0,17})\s*", re.ASCII)


def cores(root: Path = Path("/")) -> int:
    """How many this process may use at once: by its affinity, and by the quota of each control group around it.

    A quota of one and a half is two: what is over is for short bursts.  `root`: where the system's files are.
    """

    def read(path: PurePosixPath) -> str:
        return (root / path.relative_to("/")).read_text(encoding="utf-8", errors="replace")

    return min([len(os.sched_getaffinity(0)), *(max(1, ceil(quota)) for quota in quotas(read))])


def quotas(read: Read) -> Iterator[float]:
    """The quotas that are set, in cores; of control groups of version 2."""
    mounts = [mount for mount in mounts_of("cpu", text_of(read, PROC / "self/mountinfo")) if mount.is_unified]
    for path, is_unified in groups_of("cpu", text_of(read, PROC / "self/cgroup")):
        for group in (group for mount in mounts if is_unified for group in mount.along(path)):
            if found := _QUOTA.fullmatch(text_of(read, group / "cpu.max")):
                yield int(found[1]) / int(found[2])
