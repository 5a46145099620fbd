"""What a process says that it takes, against what it was made to take."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.processes import usage
from gossipkv.processes.peak_memory import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = {"cpu_s", "resident_bytes", "peak_bytes", "descriptors", "descriptor_limit", "threads", "started_ms"}


def told_by(program: str) -> dict[str, float]:
    """What a process says that runs this first."""
    text = f"import json\nfrom gossipkv.processes.usage import usage\n{program}\nprint(json.dumps(usage()))"
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, timeout=100, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def test_all_is_told_here() -> None:
    """Each by its name, in its unit; the peak is the kernel's own, and no less than what is resident."""
    before, told, after = peak_bytes(), usage.usage(), peak_bytes()
    assert told.keys() == NAMES
    assert before <= told["peak_bytes"] <= after
    assert 1 << 20 < told["resident_bytes"] <= told["peak_bytes"]
    assert told["descriptor_limit"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_what_it_takes_is_seen() -> None:
    """Memory, descriptors, threads and processor time grow by what was taken."""
    plain = told_by("")
    more = told_by(
        "import os, threading, time\n"
        "kept = b'x' * (64 << 20), [os.open('/dev/null', os.O_RDONLY) for _ in range(20)]\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "began = time.process_time()\n"
        "while time.process_time() < began + 0.3: pass"
    )
    assert more["resident_bytes"] > plain["resident_bytes"] + (60 << 20)
    assert more["descriptors"] == plain["descriptors"] + 20
    assert (plain["threads"], more["threads"]) == (1, 4)
    assert more["cpu_s"] >= 0.3


def test_when_it_began_stays_the_same() -> None:
    """It lies between the moments around the start of the process, and is told alike each time."""
    before_ms = time.time() * 1000
    told = told_by("first = usage()['started_ms']\nassert first == usage()['started_ms']")
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    assert before_ms - 2 * tick_ms <= told["started_ms"] <= time.time() * 1000 + 2 * tick_ms


@pytest.mark.parametrize(("size", "expected"), [(7, 7), (0, 2)])
def test_descriptors_on_any_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, expected: int) -> None:
    """The directory's size, where it has one; else they are listed, but for the one of the listing."""

    class Directory:
        """Three descriptors."""

        def stat(self) -> os.stat_result:
            """One that has this size."""
            return os.stat_result((0, 0, 0, 0, 0, 0, size, 0, 0, 0))

        def iterdir(self) -> Iterator[Path]:
            """Three."""
            return iter([tmp_path] * 3)

    monkeypatch.setattr(usage, "OPEN_FILES", Directory())
    assert usage.usage()["descriptors"] == expected


def test_what_a_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the rest is told."""

    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(usage.Path, "read_text", refuse)
    monkeypatch.setattr(usage, "_started_ms", [])
    monkeypatch.setattr(usage.Path, "stat", refuse)
    assert usage.usage().keys() == {"cpu_s", "descriptor_limit"}
