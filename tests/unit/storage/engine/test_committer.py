"""The thread that writes the log writes its jobs in order, or reports the error."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine._engine import MARK, Committer, FrameBuffer
from tests.oracle import log as oracle


@pytest.fixture
def committer():
    with Committer() as made:
        yield made


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@given(st.lists(st.tuples(st.binary(max_size=2000), st.integers(0, 5000)), max_size=20))
def test_what_is_written_is_what_a_plain_file_holds(tmp_path_factory, jobs):
    """The jobs have random offsets and overlap."""
    expected = bytearray()
    path = tmp_path_factory.mktemp("committer") / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    with Committer() as committer:
        for data, offset in jobs:
            committer.submit(descriptor, data, offset)
            assert committer.busy
            assert committer.result() is None
            assert not committer.busy
            if data:
                expected.extend(bytes(max(0, offset + len(data) - len(expected))))
                expected[offset : offset + len(data)] = data
    os.close(descriptor)
    assert path.read_bytes() == expected


def test_a_thousand_jobs_in_order(committer, file):
    frames = FrameBuffer(7)
    end = 0
    for position in range(1, 1001):
        frames.append(MARK, position, position - 1, b"")
        committer.submit(file, frames.view(), end)
        committer.result()
        end += frames.size_bytes
        assert os.fstat(file).st_size == end
        frames.clear(7)
    data = os.pread(file, end, 0)
    assert [frame.position for frame in oracle.frames(data, 7, offset=0)] == [*range(1, 1001)]


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOSPC, errno.EINVAL])
def test_what_the_system_refuses_is_told(committer, file, number, tmp_path):
    """The result raises the error number, and the committer takes the next job."""
    opened = {
        errno.EBADF: lambda: os.open(tmp_path, os.O_RDONLY),
        errno.ENOSPC: lambda: os.open("/dev/full", os.O_WRONLY),
        errno.EINVAL: lambda: os.open("/dev/null", os.O_WRONLY),  # Accepts every write, and cannot be synced.
    }[number]()
    committer.submit(opened, b"data", 0)
    with pytest.raises(OSError, match=os.strerror(number).split()[0]) as error:
        committer.result()
    assert error.value.errno == number
    os.close(opened)
    committer.submit(file, b"data", 0)
    committer.result()
    assert os.pread(file, 10, 0) == b"data"


def test_a_failed_write_is_not_synced():
    """A sync after the failed write would succeed and hide the error."""
    with Committer() as committer:
        committer.submit(-1, b"data", 0)
        with pytest.raises(OSError, match="descriptor") as error:
            committer.result()
        assert error.value.errno == errno.EBADF


def test_signals_go_to_python(committer, file):
    """The thread blocks signals: a handler runs while a job is awaited, and the job is not interrupted."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        for number in range(200):
            committer.submit(file, bytes(10_000), number * 10_000)
            os.kill(os.getpid(), signal.SIGUSR1)
            committer.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(heard) == 200
    assert os.fstat(file).st_size == 2_000_000
    masks = []
    for task in Path("/proc/self/task").iterdir():
        lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        masks.append(int(lines["SigBlk"], 16))
    assert any(mask >> (signal.SIGUSR1 - 1) & 1 for mask in masks)


def test_one_job_at_a_time(committer, file):
    """A second job and a result without a job are refused; the first job is undisturbed."""
    with pytest.raises(ValueError, match="no job"):
        committer.result()
    assert not committer.is_done()
    committer.submit(file, b"one", 0)
    with pytest.raises(ValueError, match="has a job"):
        committer.submit(file, b"two", 0)
    committer.result()
    with pytest.raises(ValueError, match="no job"):
        committer.result()
    for offset in (-1, 2**63):
        with pytest.raises((ValueError, OverflowError)):
            committer.submit(file, b"three", offset)
    with pytest.raises(TypeError):
        committer.submit(file, "text", 0)
    assert not committer.busy
    assert os.pread(file, 10, 0) == b"one"


class Data(bytearray):
    """A bytearray that supports weak references."""


def test_what_it_writes_is_held(committer, file):
    """The committer holds the buffer until the result is taken."""
    data = Data(b"held")
    gone = weakref.ref(data)
    committer.submit(file, data, 0)
    with pytest.raises(BufferError):
        data.append(1)
    del data
    assert gone() is not None
    committer.result()
    assert gone() is None
    assert os.pread(file, 10, 0) == b"held"


def held():
    """Return the ids of this process's threads and descriptors; their counts would depend on other tests."""
    return {*os.listdir("/proc/self/task")}, {*os.listdir("/proc/self/fd")}


def test_closing_waits_for_the_job(file):
    """After closing, the job is written, and thread and descriptors are gone; a second close does nothing."""
    for way in ("close", "forget"):
        before = held()
        committer = Committer()
        threads, descriptors = map(set.difference, held(), before)
        assert (len(threads), bool(descriptors)) == (1, True)
        data = Data(b"x" * 1_000_000)
        gone = weakref.ref(data)
        committer.submit(file, data, 0)
        del data
        if way == "close":
            committer.close()
            committer.close()
            for refused in (committer.fileno, committer.result, committer.is_done):
                with pytest.raises(ValueError, match="closed"):
                    refused()
            with pytest.raises(ValueError, match="closed"):
                committer.submit(file, b"", 0)
        del committer
        gc.collect()
        assert gone() is None
        assert (threads & held()[0], held()[1] - before[1]) == (set(), set())
        assert os.fstat(file).st_size == 1_000_000
        os.ftruncate(file, 0)


def test_many_committers_at_once(tmp_path):
    """Each has its own thread and its own file, for any of Python's threads."""
    found = {}

    def write(number):
        path = tmp_path / str(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        with Committer() as committer:
            for turn in range(100):
                committer.submit(descriptor, bytes([number]) * 10, turn * 10)
                committer.result()
        os.close(descriptor)
        found[number] = path.read_bytes()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert found == {number: bytes([number]) * 1000 for number in range(4)}
