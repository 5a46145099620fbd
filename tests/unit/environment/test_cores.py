"""The granted cores follow affinity and the quotas of control groups."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.cores import cores

if TYPE_CHECKING:
    from pathlib import Path

HERE = len(os.sched_getaffinity(0))
MOUNT = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"


def system(root: Path, quotas: dict[str, str], *, mount: str = MOUNT) -> Path:
    """Write a system whose control groups have these quotas, with this process in `a/b`."""
    files = {"proc/self/mountinfo": mount, "proc/self/cgroup": "0::/a/b\n"}
    files |= {f"sys/fs/cgroup/{group}cpu.max": quota for group, quota in quotas.items()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("quotas", "granted"),
    [
        ({}, HERE),
        ({"a/b/": "max 100000\n"}, HERE),
        ({"a/b/": "100000 100000\n"}, 1),
        ({"a/b/": "10000 100000\n"}, 1),
        ({"a/b/": "150000 100000\n"}, min(2, HERE)),
        ({"a/b/": "max 100000\n", "a/": "50000 50000\n"}, 1),
        ({"": "100000 100000\n"}, 1),
        ({"a/b/": "6400000 100000\n"}, min(64, HERE)),
        ({"a/b/": "nonsense\n", "a/": "100000 0\n"}, HERE),
        ({"elsewhere/": "100000 100000\n"}, HERE),
    ],
)
def test_the_narrowest_counts(tmp_path: Path, quotas: dict[str, str], granted: int) -> None:
    """The narrowest group around this process counts; an unreadable quota sets no limit."""
    assert cores(system(tmp_path, quotas)) == granted


def test_nothing_is_known(tmp_path: Path) -> None:
    """Without the system's files, or with another kind of mount, affinity alone counts."""
    assert cores(tmp_path) == HERE
    assert cores(system(tmp_path, {"a/b/": "1 2\n"}, mount=MOUNT.replace("cgroup2", "tmpfs"))) == HERE
    assert cores() >= 1
