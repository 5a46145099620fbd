"""Slow tests of usage; the fast ones are in `test_usage.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def told_by(program: str) -> dict[str, float]:
    """Return the usage of a process that runs this program first."""
    text = f"import json\nfrom gossipkv.processes.usage import usage\n{program}\nprint(json.dumps(usage()))"
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, timeout=100, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def test_what_it_takes_is_seen() -> None:
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
    """The start time lies around the real start, and does not change."""
    before_ms = time.time() * 1000
    told = told_by("first = usage()['started_ms']\nassert first == usage()['started_ms']")
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    assert before_ms - 2 * tick_ms <= told["started_ms"] <= time.time() * 1000 + 2 * tick_ms
