"""Run a command and say what it cost in units, so that figures of different machines can be compared.

A unit is the CPU time of a fixed loop of pure Python, 20 million additions at the top level of a script, run here
before and after the command.  A figure that is over its ceiling by more than a quarter fails the run.  A ceiling is the
goal, or the value that is agreed on while the goal is missed; a higher one needs a line in the CHANGELOG that says why.

    units.py NAME COMMAND...       one of the commands that `CEILINGS` names
    units.py --whole SECONDS       all of `.ci/run`, which took that long
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

LOOP = compile("total = 0\nfor number in range(20_000_000):\n    total += number", "<unit>", "exec")
SLACK = 1.25
COMPILED = Path("build/release/compiled_s")  # Written by setup.py: CPU seconds of Cython and the C compiler.
DEMO = re.compile(rb"done in ([\d.]+) s")


class Ceiling(NamedTuple):
    """The goal of a figure in units, and the value that is agreed on while the goal is missed."""

    goal: float
    agreed: float


CEILINGS = {
    "first line, CPU of all processes": Ceiling(30, 55),
    "first line, Cython and the C compiler": Ceiling(20, 40),  # GCC takes its time for the serving loop at -O3.
    "first line, the demo, wall time": Ceiling(5, 12),  # Seven starts of nodes, four deaths and three moves.
    "test line, CPU of all processes": Ceiling(150, 165),
    "test line, wall time": Ceiling(95, 120),
    ".ci/run, wall time": Ceiling(375, 1_100),
}


def unit_s() -> float:
    """Return the CPU seconds of the loop."""
    begin_s = time.process_time()
    exec(LOOP, {})  # noqa: S102  # Our own words.
    return time.process_time() - begin_s


def cpu_of_children_s() -> float:
    """Return the CPU seconds of all descendants that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, command: list[str]) -> tuple[int, dict[str, float]]:
    """Run a command, pass on its output, and return its exit status and its figures in seconds."""
    begin_s, told_s, compiled_before = time.monotonic(), None, COMPILED.exists()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            if (found := DEMO.search(line)) is not None:
                told_s = float(found[1])
    figures = {"CPU of all processes": cpu_of_children_s(), "wall time": time.monotonic() - begin_s}
    if COMPILED.exists() and not compiled_before:
        figures["Cython and the C compiler"] = float(COMPILED.read_text(encoding="ascii"))
    if told_s is not None:
        figures["the demo, wall time"] = told_s
    return process.returncode, {f"{name}, {figure}": seconds for figure, seconds in figures.items()}


def judge(figures: dict[str, float], unit: float) -> int:
    """Print each figure, with its ceiling if there is one; 1 if one is over its ceiling by more than a quarter."""
    status = 0
    for figure, seconds in figures.items():
        units = seconds / unit
        line = f"{figure}: {seconds:.1f} s, {units:.1f} units of {unit:.2f} s"
        if (ceiling := CEILINGS.get(figure)) is not None:
            is_over = units > SLACK * ceiling.agreed
            line += f"; goal {ceiling.goal:g}, agreed {ceiling.agreed:g}: {'TOO MUCH' if is_over else 'ok'}"
            status |= is_over
        print(line)
    return status


def main() -> int:
    """Return the command's exit status, else 1 if a figure is too large."""
    os.environ["PYTHONUNBUFFERED"] = "1"
    before_s = unit_s()
    name, *command = sys.argv[1:]
    status, figures = (0, {".ci/run, wall time": float(command[0])}) if name == "--whole" else run(name, command)
    return judge(figures, (before_s + unit_s()) / 2) or status


if __name__ == "__main__":
    sys.exit(main())
