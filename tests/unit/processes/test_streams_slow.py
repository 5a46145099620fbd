"""Slow tests of streams; the fast ones are in `test_streams.py`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PATIENCE_S = 60
PROGRAM = """
import sys
from gossipkv.log import Log
from gossipkv.processes import logs, streams
streams.MAX_QUEUED_BYTES = %s
logs.configure("info", "json")
for number in range(400):
    Log("gossipkv.node").info("a line", number=number, padding="x" * 100)
    print("out", number)
%s
"""
LITTLE, ENOUGH = 10_000, 1 << 20


def full_pipe() -> tuple[int, int]:
    """Return a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


@pytest.mark.parametrize(("end", "status"), [("", 0), ("raise ValueError", 1), ("sys.exit(3)", 3)])
def test_readers_that_never_read_hold_up_nothing(end, status):
    """Neither writes on both streams nor any kind of end is held up."""
    reader, writer = full_pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM % (LITTLE, end)],
            stdout=writer,
            stderr=writer,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == status
    finally:
        os.close(reader)
        os.close(writer)


def test_the_last_lines_are_written():
    """All lines are written before the end, including the final traceback."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % (ENOUGH, "raise ValueError('the end')")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "ValueError: the end"
    assert done.stdout.splitlines()[-1] == "out 399"
