"""Tests over real processes, sockets, threads or time; `test_streams.py` has the others."""

from __future__ import annotations

import json
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
    """A pipe that takes nothing more."""
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
    """Neither what is written, on both streams, nor the end, however that comes."""
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


def test_what_was_lost_is_told_once_there_is_room():
    """A reader that was away finds the first lines and how many it has missed, and misses none of those to come."""
    reader, writer = full_pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM % (LITTLE, "sys.stdin.read(1)\nLog('gossipkv.node').info('the last')")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer,
    )  # fmt: skip
    os.close(writer)
    with process:
        assert process.stdout.read(4) == b"out "
        said = b""
        while b'"log_lost"' not in said:
            said += os.read(reader, 1 << 16)
        process.stdin.write(b".")
        process.stdin.close()
        while part := os.read(reader, 1 << 16):
            said += part
    os.close(reader)
    lines = [line for line in said.decode().lstrip("x").splitlines() if line]
    assert process.returncode == 0
    kept = sum('"a line"' in line for line in lines)
    lost = [json.loads(line)["lines"] for line in lines if '"log_lost"' in line]
    assert kept + sum(lost) == 400
    assert kept
    assert sum('"the last"' in line for line in lines) == 1


def test_the_last_lines_are_written():
    """A process that ends has said all, the traceback that ends it included."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % (ENOUGH, "raise ValueError('the end')")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "ValueError: the end"
    assert done.stdout.splitlines()[-1] == "out 399"
