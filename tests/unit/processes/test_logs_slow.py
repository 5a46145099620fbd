"""Slow tests of logs; the fast ones are in `test_logs.py`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_that_cannot_be_written_ends_nothing(form):
    """The program goes on if the log's disk is full or its reader has gone."""
    program = (
        "from gossipkv.log import Log\nfrom gossipkv.processes import logs\n"
        f"logs.configure('info', {form!r})\n"
        "Log('gossipkv.node').info('a line', field=1)\nprint('went on')"
    )
    reader, gone = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY) if os.path.exists("/dev/full") else None
    for stderr in filter(None, (gone, full)):
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, timeout=60, check=False
        )
        assert done.stdout == b"went on\n"
        os.close(stderr)


@pytest.mark.parametrize(("form", "start"), [("text", b"20"), ("json", b'{"timestamp"')])
def test_a_process_says_what_it_was_told_to(form, start):
    """Lines of the level and above are on standard error in the form, once; standard output is empty."""
    program = (
        f"from gossipkv.log import Log\nfrom gossipkv.processes import logs\nlogs.configure('warning', {form!r})\n"
        "Log('gossipkv.node').info('quiet')\nLog('gossipkv.dataset').warning('loud', field=1)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert (done.stdout, done.stderr.count(b"\n"), b"loud" in done.stderr) == (b"", 1, True)
    assert done.stderr.startswith(start)
