"""Descriptors are passed with all their bytes, can be taken back, and are never lost in silence."""

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
    """Yield the sending and the receiving end."""
    sender, receiver = passing.pair()
    with sender, receiver:
        yield sender, receiver


@contextlib.contextmanager
def no_descriptor_free():
    """Leave the process no free descriptor for the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # Descriptors left open by other tests could otherwise be freed in the block.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pass_pipe(sender, data):
    """Pass on the writing end of a pipe, and return the reading end."""
    reading, writing = os.pipe()
    passing.send(sender, writing, data)
    os.close(writing)
    return reading


@pytest.mark.parametrize("size", [0, 1, 72 << 10, passing.MAX_BYTES])
def test_a_descriptor_comes_with_its_bytes(ends, size):
    """All bytes come in one message, and started programs do not inherit the descriptor."""
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
    """The holder of the other end gets unreceived descriptors in order, also after the sender is gone."""
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
    """The receiver gets the bytes without a descriptor; the next descriptor is received."""
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
