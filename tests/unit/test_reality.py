"""What stands behind the seam in production and waits: sockets, threads, signals."""

import os
import signal
import socket
import threading

import pytest
import trio

from gossipkv import reality
from gossipkv.environment import RealFiles
from gossipkv.reality import RealSignals, RealSockets, RealThreads


def test_a_listener_does_not_block_and_refuses_a_port_in_use():
    """Port 0 is chosen by the system."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener:
        assert listener.getblocking() is False
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(OSError, match="in use"):
            sockets.listen("127.0.0.1", listener.getsockname()[1], 5)


def test_the_real_environment_has_every_part():
    """What a node is given."""
    real = reality.real()
    assert isinstance(real.files, RealFiles)
    assert real.random.random() < 1


async def test_a_listener_is_readable_when_somebody_has_come():
    """And not before."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener:
        with trio.move_on_after(0.01) as waiting:
            await sockets.wait_readable(listener)
        assert waiting.cancelled_caught
        with socket.create_connection(listener.getsockname()), trio.fail_after(10):
            await sockets.wait_readable(listener)


async def test_what_blocks_runs_in_a_thread_of_its_own():
    """Its result comes back, and so does its error."""
    assert await RealThreads().run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await RealThreads().run(divmod, 1, 0)


async def test_a_signal_that_is_received_does_nothing_else():
    """It is told to whoever asked for it."""
    with RealSignals().receive(signal.SIGUSR1) as numbers, trio.fail_after(10):
        os.kill(os.getpid(), signal.SIGUSR1)
        async for number in numbers:
            assert number == signal.SIGUSR1
            break
