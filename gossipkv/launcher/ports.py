"""Ports for nodes: free for TCP and UDP both, and kept for their node while the cluster runs.

A node that was killed must get its port back.  So the supervisor holds a *reservation* for each: a TCP socket that is
bound and does not listen.  While it is there, the kernel gives the port to no outgoing connection, and no other
launcher takes it; a socket with SO_REUSEADDR, as a node's is, may listen on it all the same.  UDP has nothing like
it (two sockets that share a port steal each other's packets), so there the port is only seen to be free.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING, Final

from gossipkv.address import Address
from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_BASE_PORT: Final = 7070  # Where the client commands look when nothing else is said.
DEFAULT_HTTP_BASE_PORT: Final = 8080  # Where people look for HTTP that is not the system's own.
PORTS: Final = range(1024, 65_536)  # Those below are the administrator's.


def reserve(host: str, port: int, *, again: bool = False) -> socket.socket | None:
    """A reservation of a port that nobody uses, else None.

    `again`: connections that ended there a moment ago (TIME_WAIT) do not count.  They cannot be told from another's
    reservation, so this is for a port that somebody asked for, not for one out of many.
    """
    try:
        return _reserve(host, port, again=again)
    except OSError:
        return None


def _reserve(host: str, port: int, *, again: bool) -> socket.socket:
    with contextlib.ExitStack() as undo:
        with socket.socket(_family(host), socket.SOCK_DGRAM) as datagrams:
            datagrams.bind((host, port))
        reservation = undo.enter_context(socket.socket(_family(host)))
        if again:
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with socket.socket(_family(host)) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, port))
                listener.listen()
        reservation.bind((host, port))
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        undo.pop_all()
    return reservation


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def choose(
    host: str,
    count: int,
    *,
    base_port: int | None,
    taken: set[int],
    flag: str = "--base-port",
    usual: int = DEFAULT_BASE_PORT,
) -> dict[int, socket.socket]:
    """`count` ports in order with their reservations: from `base_port` on exactly, else the first free from `usual` on.

    `flag` is what says `base_port`, for the error.

    Raises:
        LocalError: one of the ports from `base_port` on cannot be had, or there are not so many.
    """
    if base_port is not None and base_port + count > PORTS.stop:
        words = f"there are no {count} ports from {base_port} on: the last is {PORTS.stop - 1}; choose another {flag}"
        raise LocalError(words, {"port": base_port})
    chosen: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as undo:
        for port in _candidates(base_port, taken, usual):
            if len(chosen) == count:
                break
            try:
                chosen[port] = undo.enter_context(_reserve(host, port, again=base_port is not None))
            except OSError as error:
                if base_port is not None:
                    raise LocalError(f"{_why(host, port, error)}; choose another {flag}", {"port": port}) from None
        if len(chosen) < count:
            raise LocalError(f"{host} has only {len(chosen)} ports to give, {count} are needed", {"count": count})
        undo.pop_all()
    return chosen


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{Address(host, port)} is in use (TCP or UDP)"
    return f"{Address(host, port)} cannot be listened at: {error.strerror}"


def _candidates(base_port: int | None, taken: set[int], usual: int) -> Iterator[int]:
    first = usual if base_port is None else base_port
    for port in (*range(first, PORTS.stop), *(range(PORTS.start, first) if base_port is None else ())):
        if port not in taken:
            yield port
