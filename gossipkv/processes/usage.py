"""Resources used by processes, as the kernel counts them (proc(5)): this one, and another seen from outside."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Index in `/proc/self/stat` of the start in ticks since the boot, counted from the state: the command's name before may
# contain anything.
STARTED_TICKS: Final = 19
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
KIB: Final = 1024
OPEN_FILES: Final = Path("/proc/self/fd")


def usage() -> dict[str, float]:
    """Return the resources of this process, by name; those that the kernel does not tell are left out.

    `cpu_s`: its processor time, without its children; `resident_bytes`, `peak_bytes`: its memory now and at most;
    `descriptors`, with their maximum `descriptor_limit` (left out: unlimited); `threads`; `started_ms`: its start,
    since 1970.
    """
    found: dict[str, float] = {}
    for read in (_processor, _memory, _descriptors, _limit, _start):
        with contextlib.suppress(OSError, ValueError, LookupError):  # This system does not tell, or in another form.
            found |= read()
    return found


def _processor() -> dict[str, float]:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": spent.ru_utime + spent.ru_stime}


def _memory() -> dict[str, float]:
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "resident_bytes": int(fields["VmRSS"].split()[0]) * KIB,
        "peak_bytes": int(fields["VmHWM"].split()[0]) * KIB,
        "threads": int(fields["Threads"]),
    }


def _descriptors() -> dict[str, float]:
    """Count descriptors by the directory's size since Linux 6.2; earlier by a listing, which itself uses one."""
    return {"descriptors": OPEN_FILES.stat().st_size or sum(1 for _ in OPEN_FILES.iterdir()) - 1}


def _limit() -> dict[str, float]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {} if soft == resource.RLIM_INFINITY else {"descriptor_limit": soft}


def _start() -> dict[str, float]:
    """Determine the start once, since it would change with a clock that is set later."""
    if not _started_ms:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[STARTED_TICKS]) / TICKS_PER_S
        _started_ms.append(int((time.time() - age_s) * 1000))
    return {"started_ms": _started_ms[0]}


_started_ms: list[int] = []


def peak_bytes() -> int:
    """Return the peak memory of this process (VmHWM).

    Raises:
        ConfigError: the system does not tell.
    """
    with contextlib.suppress(OSError, ValueError, LookupError):
        return int(_memory()["peak_bytes"])
    raise ConfigError("/proc/self/status has no VmHWM: builds need Linux with /proc mounted")


# Runnable, with or without a processor; stopped by a signal or a debugger.
HELD_UP: Final = frozenset("RTt")
ENDED: Final = "Z"  # The parent has not waited for it.
# Indices in `stat`, counted from the state: the command's name before may contain anything.
STATE, USER_TICKS, SYSTEM_TICKS = 0, 11, 12


class Activity(NamedTuple):
    """A process at one moment."""

    processor_s: float  # Processor time so far; 0 if it has ended.
    is_held_up: bool  # One of its threads would run if it had a processor, or were not stopped.


def activity_of(process: int) -> Activity:
    """Return the activity of another process; zero if it has ended.

    A process without processor time that is not held up waits for something outside (a source that hangs). A process
    that is held up is stopped, or others have the processors. Only the state of its threads distinguishes these.
    """
    ticks = sum(int(stat[USER_TICKS]) + int(stat[SYSTEM_TICKS]) for stat in _stats(Path(f"/proc/{process}")))
    held_up = any(stat[STATE] in HELD_UP for task in _tasks(process) for stat in _stats(task))
    return Activity(ticks / TICKS_PER_S, held_up)


def ended_children(process: int) -> set[int]:
    """Return the children of a process that have ended, and for which it has not waited."""
    children: set[int] = set()
    for task in _tasks(process):
        with contextlib.suppress(OSError):  # The thread has ended, or the kernel does not list children.
            children.update(map(int, (task / "children").read_text().split()))
    return {child for child in children for stat in _stats(Path(f"/proc/{child}")) if stat[STATE] == ENDED}


def _tasks(process: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{process}/task").iterdir())
    return []


def _stats(place: Path) -> Iterator[list[str]]:
    """Yield the fields of `stat`, unless the process has ended."""
    with contextlib.suppress(OSError):
        yield (place / "stat").read_text().rpartition(")")[2].split()
