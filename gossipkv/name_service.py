"""What a name stands for: asked of the name service in a thread, since the system's function takes no time limit."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from gossipkv.address import Address

    # As `socket.getaddrinfo` tells it.
    _Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
    Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Where]

LISTEN_TIMEOUT_S: Final = 5.0  # A process that is to listen at a name starts or fails within this time.


@final
class _Lookup:
    """A question to the name service, in a thread of its own: whoever asks waits no longer than it may."""

    __slots__ = ("_address", "_is_done", "error", "found")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._is_done = threading.Event()
        self.found: list[Found] = []
        self.error: Exception | None = None

    def ask(self) -> None:
        """Ask in a thread, which a hanging name service keeps, and nobody waits for."""
        threading.Thread(target=self._run, name="gossipkv-names", daemon=True).start()

    def wait(self, deadline: float) -> list[Found]:
        """Return what the name stands for.  Raises OSError, UnicodeError: it is not known, or not in time."""
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


# Those that are not answered yet: a name that hangs has one thread, however often it is asked for.
_lookups: Final[dict[Address, _Lookup]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lookups.clear)  # The child has none of the threads.


def _look_up(address: Address, flags: int = 0) -> list[Found]:
    return [*socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)]


def addresses(address: Address, deadline: float) -> list[Found]:
    """Return what a name stands for, by a deadline of `monotonic`; one that is numeric asks nobody.

    Raises:
        OSError, UnicodeError: it is not known, or not in time.
    """
    with contextlib.suppress(socket.gaierror):
        return _look_up(address, socket.AI_NUMERICHOST)
    new = _Lookup(address)
    lookup = _lookups.setdefault(address, new)
    if lookup is new:
        new.ask()
    return lookup.wait(deadline)
