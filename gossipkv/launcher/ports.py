"""Ports of nodes: free for TCP and UDP, and kept for their node while the cluster runs.

A killed node must get its port back. So the supervisor holds a *reservation* for each: a TCP socket that is bound and
does not listen. The kernel then gives the port to no outgoing connection, but a socket with SO_REUSEADDR, as a node's
is, may still listen on it. So may another launcher's, and recently closed connections (TIME_WAIT) look the same from
outside. Therefore a reservation also holds a name that launchers check first: an abstract Unix socket, which like a
port belongs to one network and ends with its process. UDP has no reservations (two sockets that share a port steal each
other's packets), so the port is only checked to be free.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeAlias

from gossipkv.address import Address
from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator

Reservation: TypeAlias = "ExitStack[bool | None]"  # Released by `close`.

DEFAULT_BASE_PORT: Final = 7070  # The default of client commands.
DEFAULT_HTTP_BASE_PORT: Final = 8080  # The usual port for HTTP without privileges.
PORTS: Final = range(1024, 65_536)  # Lower ports need privileges.


def reserve(host: str, port: int) -> Reservation | None:
    """Return a reservation of a free port, else None; closed connections in TIME_WAIT do not count."""
    try:
        return _reserve(host, port)
    except OSError:
        return None


def _reserve(host: str, port: int) -> Reservation:
    with ExitStack() as held:
        held.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0gossipkv-port-{Address(host, port)}")
        with socket.socket(_family(host), socket.SOCK_DGRAM) as datagrams:
            datagrams.bind((host, port))
        with _reusing(host, port) as listener:
            listener.listen()
        held.enter_context(_reusing(host, port))
        return held.pop_all()


def _reusing(host: str, port: int) -> socket.socket:
    """Return a bound socket, like a node's before it listens."""
    with ExitStack() as undo:
        made = undo.enter_context(socket.socket(_family(host)))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        undo.pop_all()
    return made


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
) -> dict[int, Reservation]:
    """Choose `count` ports, with reservations: exactly from `base_port` on, else the first free ones from `usual` on.

    `flag` is the option for `base_port`, for the error.

    Raises:
        LocalError: a port from `base_port` on is not available, or there are too few.
    """
    if base_port is not None and base_port + count > PORTS.stop:
        words = f"{count} ports from {base_port} on would exceed the last port, {PORTS.stop - 1}; choose another {flag}"
        raise LocalError(words, {"port": base_port})
    chosen: dict[int, Reservation] = {}
    with ExitStack() as undo:
        for port in _candidates(base_port, taken, usual):
            if len(chosen) == count:
                break
            try:
                chosen[port] = undo.enter_context(_reserve(host, port))
            except OSError as error:
                if base_port is not None:
                    raise LocalError(f"{_why(host, port, error)}; choose another {flag}", {"port": port}) from None
        if len(chosen) < count:
            raise LocalError(f"{host} has only {len(chosen)} free ports, and {count} are needed", {"count": count})
        undo.pop_all()
    return chosen


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{Address(host, port)} is in use (TCP or UDP)"
    return f"cannot listen on {Address(host, port)}: {error.strerror}"


def _candidates(base_port: int | None, taken: set[int], usual: int) -> Iterator[int]:
    first = usual if base_port is None else base_port
    for port in (*range(first, PORTS.stop), *(range(PORTS.start, first) if base_port is None else ())):
        if port not in taken:
            yield port
