"""README's test line with five new seeds, one of them beside busy loops; the night runs this four times."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
LOOP = (sys.executable, "-c", "while True: pass")


def run_line(seed: int, loops: int, *arguments: str) -> tuple[int, list[str], str]:
    """Run the line, or these tests, beside so many busy loops; return the status, the ids of failures, the output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONHASHSEED"))}
    command = (sys.executable, "-m", "pytest", "-q", "-n", "2", f"--randomly-seed={seed}", *arguments)
    with contextlib.ExitStack() as stack:
        for _ in range(loops):
            busy = stack.enter_context(subprocess.Popen(LOOP))
            stack.callback(busy.kill)
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("run", range(5))
def test_the_line_holds_in_every_order(run: int, record_property: Callable[[str, object], None]) -> None:
    """Any seed passes, also on a busy machine; the report lists the seed and each failed test."""
    seed, loops = SystemRandom().getrandbits(32), 4 if run == 0 else 0
    status, failed, output = run_line(seed, loops)
    record_property("measured", f"seed {seed} beside {loops} loops, failed: {', '.join(failed) or 'none'}")
    assert status == 0, output
