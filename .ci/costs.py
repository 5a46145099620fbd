"""Run a command, and print what it cost in seconds: of all its processes, of the compilers, and of the demo.

    costs.py NAME COMMAND...                  prints the figures; the exit status is the command's
    costs.py --record FILE NAME COMMAND...    also compares them with the run before on the same machine

`.ci/run` judges no figure: the same commit costs half as much again on another processor. `make nightly` keeps a
record. There, a processor time that is more than a quarter above the run before fails the run. Wall times are only
shown, since other processes lengthen them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

MAX_GROWTH = 1.25
COMPILED = Path("build/release/compiled_s")  # Written by setup.py: CPU seconds of Cython and the C compiler.
DEMO = re.compile(rb"done in ([\d.]+) s")
WALL = "wall time"


def run(command: list[str]) -> tuple[int, dict[str, float]]:
    """Run a command, pass on its output, and return its exit status and its figures in seconds."""
    begin_s, demo_s, was_compiled = time.monotonic(), None, COMPILED.exists()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            if (found := DEMO.search(line)) is not None:
                demo_s = float(found[1])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"CPU": usage.ru_utime + usage.ru_stime, WALL: time.monotonic() - begin_s}
    if COMPILED.exists() and not was_compiled:
        figures["CPU of Cython and the C compiler"] = float(COMPILED.read_text(encoding="ascii"))
    if demo_s is not None:
        figures[f"demo, {WALL}"] = demo_s
    return process.returncode, figures


def machine() -> str:
    """Return a line that differs between machines whose seconds differ."""
    names = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    return f"{os.cpu_count()} x {names[0].partition(':')[2].strip() if names else platform.machine()}"


def earlier(record: Path, name: str) -> dict[str, float]:
    """Return the figures of the last run of that name on this machine; empty if there is none."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    runs = [run for run in map(json.loads, lines) if (run["machine"], run["name"]) == (machine(), name)]
    return runs[-1]["figures"] if runs else {}


def main() -> int:
    """Return the command's exit status, else 1 if a processor time has grown too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path)
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    os.environ["PYTHONUNBUFFERED"] = "1"
    status, figures = run(given.command)
    before = {} if given.record is None else earlier(given.record, given.name)
    for figure, seconds in figures.items():
        line = f"{given.name}, {figure}: {seconds:.1f} s"
        if figure in before:
            has_grown = WALL not in figure and seconds > MAX_GROWTH * before[figure]
            line += f"; {before[figure]:.1f} s in the run before{': TOO MUCH' if has_grown else ''}"
            status = status or int(has_grown)
        print(line)
    if given.record is not None:
        given.record.parent.mkdir(parents=True, exist_ok=True)
        with given.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": given.name, "machine": machine(), "figures": figures}) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
