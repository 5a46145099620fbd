"""Name lookups with a time limit, in a thread, since the system's function has no limit."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from gossipkv.address import Address

    # The results of `socket.getaddrinfo`.
    _Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
    Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Where]

LISTEN_TIMEOUT_S: Final = 5.0  # A process that listens at a name starts or fails within this time.


@final
class _Lookup:
    """A query of the name service, in a thread of its own, so that the caller's wait is limited."""

    __slots__ = ("_address", "_is_done", "error", "found")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._is_done = threading.Event()
        self.found: list[Found] = []
        self.error: Exception | None = None

    def ask(self) -> None:
        """Start the query in a thread, which a hanging name service keeps busy, and nobody waits for."""
        threading.Thread(target=self._run, name="gossipkv-names", daemon=True).start()

    def wait(self, deadline: float) -> list[Found]:
        """Return the addresses of the name. Raises OSError, UnicodeError: it is unknown, or not resolved in time."""
        if not self._is_done.wait(max(0.0, deadline - monotonic())):
            raise socket.gaierror(socket.EAI_AGAIN, "the name service has not answered in time")
        if self.error is not None:
            raise self.error
        return self.found

    def _run(self) -> None:
        try:
            self.found = _look_up(self._address)
        except (OSError, UnicodeError) as error:
            self.error = error
        finally:
            _lookups.pop(self._address, None)
            self._is_done.set()


# Unanswered queries: a hanging name has one thread, however often it is requested.
_lookups: Final[dict[Address, _Lookup]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lookups.clear)  # A forked child has none of the threads.


def _look_up(address: Address, flags: int = 0) -> list[Found]:
    return [*socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)]


def addresses(address: Address, deadline: float) -> list[Found]:
    """Return the addresses of a name, by a deadline of `monotonic`; a numeric one needs no query.

    Raises:
        OSError, UnicodeError: the name is unknown, or not resolved in time.
    """
    with contextlib.suppress(socket.gaierror):
        return _look_up(address, socket.AI_NUMERICHOST)
    new = _Lookup(address)
    lookup = _lookups.setdefault(address, new)
    if lookup is new:
        new.ask()
    return lookup.wait(deadline)


def local_addresses(address: Address) -> list[Found]:
    """Return the addresses of a name of this machine, within LISTEN_TIMEOUT_S.  Raises as `addresses`."""
    return addresses(address, monotonic() + LISTEN_TIMEOUT_S)
