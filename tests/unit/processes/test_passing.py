"""Descriptors are passed whole with their bytes, taken back by who keeps the other end, and not lost in silence."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource

import pytest

from gossipkv.processes import passing


@pytest.fixture
def ends():
    """Where to send, where to receive."""
    sender, receiver = passing.pair()
    with sender, receiver:
        yield sender, receiver


@contextlib.contextmanager
def no_descriptor_free():
    """The process may have no further one, as long as the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # What others have left open would make room amid it.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pass_pipe(sender, data):
    """Pass on the writing end of a pipe; the reading one."""
    reading, writing = os.pipe()
    passing.send(sender, writing, data)
    os.close(writing)
    return reading


@pytest.mark.parametrize("size", [0, 1, 72 << 10, passing.MAX_BYTES])
def test_a_descriptor_comes_with_its_bytes(ends, size):
    """All of them, in one message, and programs that are started do not inherit it."""
    sender, receiver = ends
    with pytest.raises(BlockingIOError):
        passing.receive(receiver)
    reading = pass_pipe(sender, random.randbytes(1) * size)
    descriptor, data = passing.receive(receiver)
    assert (len(data), len(set(data))) == (size, min(size, 1))
    assert not os.get_inheritable(descriptor)
    os.write(descriptor, b"x")
    assert os.read(reading, 2) == b"x"
    os.close(descriptor)
    os.close(reading)


def test_what_nobody_has_received_is_taken_back(ends):
    """In its order, by whoever has the other end, also when the sender is gone; then there is no more."""
    sender, receiver = ends
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            passing.send(sender, 0, b"%d" % count)
            count += 1
    sender.close()
    assert count > 100
    for number in range(count):
        descriptor, data = passing.receive(receiver)
        os.close(descriptor)
        assert data == b"%d" % number
    assert passing.receive(receiver) is None


def test_without_a_free_descriptor_it_is_closed(ends):
    """Which the receiver sees, with the bytes that came with it; the next one is received."""
    sender, receiver = ends
    lost, kept = pass_pipe(sender, b"lost"), pass_pipe(sender, b"")
    with no_descriptor_free():
        assert passing.receive(receiver) == (None, b"lost")
    assert os.read(lost, 1) == b""
    descriptor, data = passing.receive(receiver)
    assert data == b""
    os.close(descriptor)
    for reading in (lost, kept):
        os.close(reading)
