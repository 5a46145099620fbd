"""Name lookups with a time limit, in a thread, since the system's function has no limit."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from gossipkv.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    # The results of `socket.getaddrinfo`.
    _Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
    Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Where]

LISTEN_TIMEOUT_S: Final = 5.0  # A process that listens at a name starts or fails within this time.


# Unanswered queries: a hanging name has one thread, however often it is requested.
_queries: Final[dict[Address, Future[list[Found]]]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_queries.clear)  # A forked child has none of the threads.


def _look_up(address: Address, flags: int = 0) -> list[Found]:
    return [*socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)]


def numeric(address: Address) -> list[Found] | None:
    """Return the addresses of a numeric host, which needs no query; None for a name."""
    with contextlib.suppress(socket.gaierror):
        return _look_up(address, socket.AI_NUMERICHOST)
    return None


def query(address: Address) -> Future[list[Found]]:
    """Ask for the addresses of a name, in a thread, which a hanging name service keeps busy, and nobody waits for."""
    from concurrent.futures import Future  # noqa: PLC0415  # Numeric addresses do not pay for the import.

    new: Future[list[Found]] = Future()
    new.set_running_or_notify_cancel()  # So one who waits cannot cancel it for others.
    shared = _queries.setdefault(address, new)
    if shared is new:
        threading.Thread(target=_answer, args=(address, new), name="gossipkv-names", daemon=True).start()
    return shared


def _answer(address: Address, asked: Future[list[Found]]) -> None:
    try:
        found = _look_up(address)
    except (OSError, UnicodeError) as error:
        _queries.pop(address, None)
        asked.set_exception(error)
    else:
        _queries.pop(address, None)
        asked.set_result(found)


def addresses(address: Address, deadline: float) -> list[Found]:
    """Return the addresses of a name, by a deadline of `monotonic`; a numeric one needs no query.

    Raises:
        OSError, UnicodeError: the name is unknown, or not resolved in time.
    """
    found = numeric(address)
    if found is not None:
        return found
    return result(query(address), max(0.0, deadline - monotonic()))


def result(asked: Future[list[Found]], timeout_s: float) -> list[Found]:
    """Return the answer to a query.  Raises as `addresses`."""
    try:
        return asked.result(timeout_s)
    except TimeoutError:
        raise socket.gaierror(socket.EAI_AGAIN, "the name service has not answered in time") from None


def addresses_in(found: Iterable[Found]) -> list[Address]:
    """Return the addresses of a name without what sockets need beside them."""
    hosts = []
    for *_, (host, port, *rest) in found:
        if isinstance(host, str) and isinstance(port, int):
            hosts.append(Address(f"{host}%{rest[1]}" if rest and rest[1] else host, port))
    return hosts


def local_addresses(address: Address) -> list[Found]:
    """Return the addresses of a name of this machine, within LISTEN_TIMEOUT_S.  Raises as `addresses`."""
    return addresses(address, monotonic() + LISTEN_TIMEOUT_S)
