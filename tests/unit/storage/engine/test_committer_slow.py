"""Tests over real processes, sockets, threads or time; `test_committer.py` has the others."""

from __future__ import annotations

import errno
import os
import resource
import select
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from gossipkv.storage.engine._engine import Committer


@pytest.fixture
def committer():
    with Committer() as made:
        yield made


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def run(code, *arguments):
    """Run code in another Python; return its exit code and its output's words."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, timeout=60, check=False
    )
    assert not done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode().split()


async def test_trio_waits_for_it(committer, file):
    """The descriptor is readable from the end of the job until the result is taken."""
    for number in range(50):
        committer.submit(file, b"x" * 100, number * 100)
        with trio.fail_after(30):
            await trio.lowlevel.wait_readable(committer.fileno())
        assert committer.is_done()
        committer.result()
        assert select.select([committer.fileno()], [], [], 0)[0] == []
    assert os.fstat(file).st_size == 5000


def test_a_file_that_may_not_grow(tmp_path):
    """Writes up to the limit succeed, then one is refused; SIGXFSZ does not end the process."""
    code = """
import os, resource, signal, sys
from gossipkv.storage.engine._engine import Committer
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
with Committer() as committer:
    committer.submit(descriptor, bytes(30_000), 4_000)
    try:
        committer.result()
    except OSError as error:
        print(error.errno, os.fstat(descriptor).st_size)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10_000
    assert run(code, tmp_path / "file") == (0, [str(errno.EFBIG), "10000"])


def test_a_fork_has_no_thread(file):
    """The fork can only close the committer, with its job in flight; the parent goes on."""
    code = """
import os, sys, warnings
from gossipkv.storage.engine._engine import Committer
descriptor = os.open(sys.argv[1], os.O_RDWR)
committer = Committer()
committer.submit(descriptor, b"x" * 3_000_000, 0)
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of just this: threads and a fork.
child = os.fork()
if child == 0:
    refused = 0
    for use in (committer.result, committer.fileno, lambda: committer.submit(descriptor, b"", 0)):
        try:
            use()
        except ValueError:
            refused += 1
    committer.close()
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
committer.result()
committer.submit(descriptor, b"y", 0)
committer.result()
committer.close()
print(os.fstat(descriptor).st_size, os.pread(descriptor, 1, 0).decode())
"""
    path = Path(f"/proc/self/fd/{file}").resolve()
    assert run(code, path) == (0, ["3", "3000000", "y"])


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "os._exit(0)", "del committer"])
def test_a_process_that_ends_with_a_job(file, ending):
    """The process ends silently, even if nothing waits for the job."""
    code = f"""
import os, sys
from gossipkv.storage.engine._engine import Committer
descriptor = os.open(sys.argv[1], os.O_RDWR)
committer = Committer()
committer.submit(descriptor, bytes(20_000_000), 0)
{ending}
"""
    assert run(code, Path(f"/proc/self/fd/{file}").resolve()) == (0, [])
