"""The world as it is: what production has behind the seam (`gossipkv.environment`), Trio's part of it included."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

from gossipkv.environment import Environment, RealClock, RealFiles

if TYPE_CHECKING:
    import contextlib
    import signal
    from collections.abc import AsyncIterator, Callable

    from gossipkv.environment import HasFileno

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


class RealSockets:
    """The operating system's sockets."""

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(backlog)
            listener.settimeout(0)
        except BaseException:
            listener.close()
            raise
        return listener

    async def wait_readable(self, source: HasFileno) -> None:
        await trio.lowlevel.wait_readable(source.fileno())


class RealThreads:
    """Trio's worker threads."""

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        return await trio.to_thread.run_sync(function, *arguments, limiter=limiter, abandon_on_cancel=abandon_on_cancel)


class RealSignals:
    """The signals of this process."""

    def receive(self, *numbers: signal.Signals) -> contextlib.AbstractContextManager[AsyncIterator[int]]:
        return trio.open_signal_receiver(*numbers)


def real() -> Environment:
    """The world as it is."""
    return Environment(RealClock(), random.SystemRandom(), RealFiles(), RealSockets(), RealThreads(), RealSignals())
