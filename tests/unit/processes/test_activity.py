"""What a process does is seen from outside, whatever else the machine is doing."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

from gossipkv.processes.activity import Activity, activity_of, family

BUSY = "print('busy', flush=True)\nwhile True: pass"
IDLE = "input()"
STARTS_ONE = "import subprocess, sys; subprocess.run([sys.executable, '-c', {!r}], stdin=0)"


@contextmanager
def program(text):
    """A process that runs it, until the block ends."""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            for member in reversed(family(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)


def until(condition):
    """Wait until it holds; a test that hangs here has failed."""
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_waits_is_not_held_up_however_long():
    """Once it has come to where it waits; one that would go on always is, with a processor or without."""
    with program(IDLE) as process:
        until(lambda: not any(activity_of(process.pid).is_held_up for _ in range(50)))
    with program(BUSY) as process:
        assert process.stdout.readline() == b"busy\n"
        assert all(activity_of(process.pid).is_held_up for _ in range(50))
        had = activity_of(process.pid).processor_s
        until(lambda: activity_of(process.pid).processor_s > had)


def test_one_that_is_stopped_is_held_up():
    """It waits for whoever stopped it, and not for what it reads."""
    with program(IDLE) as process:
        until(lambda: not any(activity_of(process.pid).is_held_up for _ in range(50)))
        process.send_signal(signal.SIGSTOP)
        until(lambda: activity_of(process.pid).is_held_up)
        process.send_signal(signal.SIGCONT)
        until(lambda: not activity_of(process.pid).is_held_up)


def test_what_it_has_started_counts():
    """A build that directs its lanes does nothing but wait for them."""
    with program(STARTS_ONE.format(BUSY)) as process:
        assert process.stdout.readline() == b"busy\n"
        director, worker = family(process.pid)
        assert director == process.pid
        assert all(activity_of(director).is_held_up for _ in range(50))
        until(lambda: activity_of(worker).processor_s > 1)
        assert activity_of(director).processor_s > 1


def test_one_that_has_ended_does_nothing():
    """Nobody need ask first."""
    with program("pass") as process:
        process.wait()
        assert activity_of(process.pid) == Activity(0, is_held_up=False)
