"""What a supervisor is told: systemd's notification protocol, as `sd_notify(3)` has it.

A message is one datagram of lines `NAME=VALUE`, sent to the socket that NOTIFY_SOCKET names.  That is all, so it stands
here: the packages that speak it are either bindings to libsystemd, which need a compiler, or have had no release for
years, and none takes the variables from what child processes inherit.

    READY=1     it does what it was started for            STOPPING=1  it has begun to end
    WATCHDOG=1  it lives; due each WATCHDOG_USEC            STATUS=...  what it does, in words

A message that cannot be sent at once is not waited for: a supervisor that takes nothing must not hold up those who are
served.  That the process is ready, or ends, is said again with the next one, or it would be killed for not being ready.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final, final

from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAMES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# Between two looks at what the status has to say, where no watchdog wants to hear sooner.
STATUS_PERIOD_S: Final = 10.0

# Of the watchdog's time: `sd_watchdog_enabled(3)` asks for half, so that one message may come late.
_PART: Final = 0.5


@final
class Supervisor:
    """Whoever watches this process; nobody, where no socket is named."""

    def __init__(self, address: str | None = None, watchdog_us: int | None = None) -> None:
        """`address`: an absolute path, or `@` and the name of an abstract socket.

        `watchdog_us`: how long it waits for a word that this process lives; None: for ever.
        """
        self._address = address
        self._status = ""
        self._owed = ""  # What is yet to be told of the state.
        self._failure = ""
        self._log = Log("gossipkv.node")
        self.is_there: Final = address is not None
        self.watches: Final = watchdog_us is not None
        self.period_s: Final = STATUS_PERIOD_S if watchdog_us is None else watchdog_us * _PART / 1e6

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ) -> Supervisor:
        """The one that started this process, taken out of `environ`: children are none of its business.

        What it says wrongly is told in the log, and the process goes on without: it can serve all the same.
        """
        address, watchdog, process = (environ.pop(name, "") for name in _NAMES)
        if not address:
            return cls()
        log = Log("gossipkv.node")
        if address[0] not in "/@" or not address[1:]:
            log.warning("not_notified", reason=f"NOTIFY_SOCKET={address} is neither an absolute path nor @NAME")
            return cls()
        if not watchdog or process not in {"", str(os.getpid())}:
            return cls(address)
        if not watchdog.isascii() or not watchdog.isdecimal() or int(watchdog) == 0:
            log.warning("not_notified", reason=f"WATCHDOG_USEC={watchdog} is no number of microseconds")
            return cls(address)
        return cls(address, int(watchdog))

    def ready(self, status: str) -> None:
        """It does what it was started for."""
        self._owed = "READY=1"
        self._send(status)

    def stopping(self, status: str) -> None:
        """It has begun to end."""
        self._owed = "STOPPING=1"
        self._send(status)

    def lives(self, status: str) -> None:
        """It has gone through a round of its work since the last time."""
        if self.watches or self._owed or status != self._status:
            self._send(status, "WATCHDOG=1" if self.watches else "")

    def doing(self, status: str) -> None:
        """What it does now."""
        self._send(status)

    def _send(self, status: str, sign: str = "") -> None:
        if self._address is None:
            return
        self._status = status
        lines = (self._owed, sign, f"STATUS={' '.join(status.splitlines())}")
        message = "\n".join(line for line in lines if line)
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(0)
                out.sendto(message.encode("utf-8", "replace"), address)
        except OSError as error:
            reason = f"NOTIFY_SOCKET={self._address}: {error.strerror or error}"
            if reason != self._failure:
                self._log.warning("not_notified", reason=reason)
            self._failure = reason
        else:
            self._owed = self._failure = ""


NOBODY: Final = Supervisor()
