"""Lines with fields, and what becomes of them where nobody takes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_that_cannot_be_written_ends_nothing(form):
    """The log's disk is full, or its reader has gone: the program goes on."""
    program = (
        "import structlog\nfrom gossipkv.processes import logs\n"
        f"logs.configure('info', {form!r})\n"
        "structlog.get_logger('gossipkv.node').info('a line', field=1)\nprint('went on')"
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
