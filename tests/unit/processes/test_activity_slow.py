"""The activity of a process is seen from outside, on a busy machine too."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from gossipkv.processes.usage import Activity, activity_of

BUSY = "print('busy', flush=True)\nwhile True: pass"
IDLE = "input()"


@contextmanager
def program(text):
    """Run this program for the block."""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition):
    """Wait until the condition holds; a test that hangs here has failed."""
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_waits_is_not_held_up_however_long():
    """A waiting process is not held up once it waits; a busy one always is, on a processor or not."""
    with program(IDLE) as process:
        until(lambda: not any(activity_of(process.pid).is_held_up for _ in range(50)))
    with program(BUSY) as process:
        assert process.stdout.readline() == b"busy\n"
        assert all(activity_of(process.pid).is_held_up for _ in range(50))
        had = activity_of(process.pid).processor_s
        until(lambda: activity_of(process.pid).processor_s > had)


def test_one_that_is_stopped_is_held_up():
    """A stopped process waits for SIGCONT, not for its input."""
    with program(IDLE) as process:
        until(lambda: not any(activity_of(process.pid).is_held_up for _ in range(50)))
        process.send_signal(signal.SIGSTOP)
        until(lambda: activity_of(process.pid).is_held_up)
        process.send_signal(signal.SIGCONT)
        until(lambda: not activity_of(process.pid).is_held_up)


def test_one_that_has_ended_does_nothing():
    """A caller need not check for the end first."""
    with program("pass") as process:
        process.wait()
        assert activity_of(process.pid) == Activity(0, is_held_up=False)
