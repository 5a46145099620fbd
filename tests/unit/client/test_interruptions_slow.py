"""Exceptions of signal handlers at any instruction of the blocking client never leave an answer for another request.

Sockets, the node and the clock are objects of the test; an exception is raised before a drawn instruction.
"""

from __future__ import annotations

import dis
import gc
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossipkv
from gossipkv.client import blocking, blocking_shell, channel, channels, sockets
from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = str(Path(gossipkv.client.__file__).parent)
PLACES = 3
INSTRUCTIONS = 2500  # More than a request has.
EDGES = dis.opmap["PUSH_EXC_INFO"], dis.opmap["POP_EXCEPT"]
MAX_LOOKS = 100_000  # At the clock.


class World:
    """A clock, and a node at each end of its sockets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self.sockets: weakref.WeakSet[FakeSocket] = weakref.WeakSet()  # A socket that nobody holds is closed.
        self.is_silent = False  # The next answers come after the deadlines of their requests.

    def connecting(self, address, due):
        yield from ()
        connection = FakeSocket(self)
        self.sockets.add(connection)
        return connection

    def monotonic(self) -> float:
        self.looks += 1
        assert self.looks < MAX_LOOKS, "the client goes round in circles"
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeSocket:
    def __init__(self, world: World) -> None:
        self.world = world
        self.unpacker = msgpack.Unpacker()
        self.ready, self.late = b"", b""
        self.timeout_s = 0.0
        self.is_closed = False

    def take(self, data: bytes) -> int:
        self.world.monotonic()  # It counts.
        if self.is_closed:
            raise OSError("closed")
        self.unpacker.feed(data)
        for _, message_id, method, params in self.unpacker:
            result = [params[1], "v1"] if method == "get" else []
            answer = msgpack.packb([1, message_id, None, result])
            if self.world.is_silent:
                self.late += answer
            else:
                self.ready += answer
        return len(data)

    def recv(self, size: int) -> bytes:
        if self.is_closed:
            raise OSError("closed")
        if not self.ready:
            self.world.now += self.timeout_s
            self.ready, self.late = self.late, b""
            raise TimeoutError if self.timeout_s else BlockingIOError
        size = max(1, len(self.ready) // 2)  # In pieces, which end amid answers.
        data, self.ready = self.ready[:size], self.ready[size:]
        return data

    def settimeout(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def fileno(self) -> int:
        return -1 if self.is_closed else 1000

    def shutdown(self, how: int) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True


class Interruption:
    """Raises KeyboardInterrupt before one of the client's instructions, except in a finalizer, which would hide it.

    The edges of `except` clauses are passed over: Python handles no signal there, and an exception would make it keep
    the one that was handled, with all that its frames hold.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __enter__(self) -> None:
        self.before = sys.gettrace(), sys.unraisablehook
        sys.unraisablehook = lambda _: None  # The end of a generator that nobody holds; pytest would keep its frame.
        sys.settrace(self.trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before[0])
        sys.unraisablehook = self.before[1]

    def trace(self, frame: FrameType, event: str, argument: object):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return ignore  # An extension that is built for debugging would call None, too.
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= frame.f_code.co_code[frame.f_lasti] not in EDGES
            if self.left == 0 and not is_final(frame):
                raise KeyboardInterrupt
        return self.trace


def ignore(*_: object) -> None:
    """Trace nothing."""


def is_final(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@pytest.fixture(scope="module", autouse=True)
def few_places():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "MAX_CHANNELS", PLACES)
        yield patch


def begun(patch) -> tuple[World, blocking.Client]:
    world = World()
    patch.setattr(sockets, "connecting", world.connecting)
    patch.setattr(sockets, "send_now", lambda connection, data: connection.take(bytes(data)))
    patch.setattr(channel, "sleep", world.sleep)
    for module in (channel, channels, blocking_shell):
        patch.setattr(module, "monotonic", world.monotonic)
    return world, blocking.connect("10.0.0.1:1", timeout_ms=1000)


def ask(data: blocking.Dataset, number: int, kind: str) -> None:
    """Make one request, or some of a loop that is left; the node answers each key with itself."""
    keys = [b"%d-%d" % (number, each) for each in range(9)]
    if kind == "get":
        assert data.get(keys[0]) == keys[0]
    else:
        loop = data.iter_get(keys, in_flight=4)
        for key, _ in zip(keys[:4], range(4), strict=False):
            assert next(loop)[:2] == (key, key)
        loop.close()


STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "loop"]), st.none() | st.integers(1, INSTRUCTIONS), st.booleans()), max_size=10
)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_no_answer_goes_to_another_request(few_places, steps):
    world, client = begun(few_places)
    data = client.dataset("geo")
    for number, (kind, at, is_silent) in enumerate(steps):
        world.is_silent = is_silent
        try:
            with Interruption(at or -1):
                ask(data, number, kind)
        except KeyboardInterrupt:
            assert at is not None
        except TimedOut:
            assert is_silent
    world.is_silent = False
    gc.collect()
    assert len(client._channels._free) == PLACES, "no place is lost"
    assert sum(not each.is_closed for each in world.sockets) <= PLACES
    ask(data, len(steps), "loop")
    client.close()
    gc.collect()
    assert all(each.is_closed for each in world.sockets)


@pytest.mark.parametrize("kind", ["get", "loop"])
def test_every_instruction(few_places, kind):
    """An interruption before each 11th instruction, one after the other, with one client."""
    _, client = begun(few_places)
    data = client.dataset("geo")
    for at in range(1, INSTRUCTIONS, 11):
        with suppress(KeyboardInterrupt), Interruption(at):
            ask(data, at, kind)
        ask(data, -at, "get")
    gc.collect()
    assert len(client._channels._free) == PLACES
