"""A pump whose every request is answered by Python, with the least that Python can do: put a result together.

`python -m tests.bench.network.inline_pump`; it runs until it is ended.  Every key of every database has the same value.
"""

from __future__ import annotations

import socket
import sys

import msgpack
import trio

from gossipkv.environment.trio_world import RealSockets
from gossipkv.serving._serving import Loop
from gossipkv.serving._sockets import Sockets
from gossipkv.serving.pump import Pump
from tests.unit.serving.driven import make_core

VALUE = b"v" * 100
KEYS = 1000
DATABASE = "nowhere"  # The core knows none, and so hands everything off.
RECORDS = [(b"%016x" % number, VALUE) for number in range(KEYS)]
MOST = 1 << 20  # No limit of the core is to be met.

_BEFORE = b"\x92\xc4" + bytes([len(VALUE)])
_BEHIND = msgpack.packb("1")


class Inline:
    """The answerer."""

    def answer(self, method: bytes, params: bytes, _caller: object) -> bytes:
        """A get's result."""
        return _BEFORE + VALUE + _BEHIND

    async def complete(self, method: bytes, waiting: object) -> bytes:
        """Nothing waits here."""
        raise NotImplementedError


async def main() -> None:
    """Serve."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.settimeout(0)
    sys.stdout.write(f"ready 127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    core = make_core(max_in_flight=MOST, max_connections=MOST, frame_timeout_ms=MOST, output_timeout_ms=MOST)
    await Pump(core, Loop(core, Sockets(listener, polls=False)), RealSockets(), Inline()).run()


if __name__ == "__main__":
    trio.run(main)
