"""Messages to a supervisor: systemd's notification protocol, as in `sd_notify(3)`.

A message is one datagram of lines `NAME=VALUE`, sent to the socket named by NOTIFY_SOCKET. Existing packages are either
bindings to libsystemd, which need a compiler, or had no release for years; and none removes the variables from the
environment of child processes.

    READY=1     it does what it was started for            STOPPING=1  it has begun to end
    WATCHDOG=1  it lives; due each WATCHDOG_USEC            STATUS=...  what it does, in words

Sending never blocks, since a supervisor that reads nothing must not delay clients. An unsent READY or STOPPING is
repeated with the next message; otherwise the supervisor would kill the process as not ready.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final, final

from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAMES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# Period of status messages, unless a watchdog needs them sooner.
STATUS_PERIOD_S: Final = 10.0

# Fraction of the watchdog's time: `sd_watchdog_enabled(3)` asks for half, so that one message may be late.
_PART: Final = 0.5


@final
class ProcessSupervisor:
    """The process that watches this one; without an address there is none."""

    def __init__(self, address: str | None = None, watchdog_us: int | None = None) -> None:
        """Set the address: an absolute path, or `@` and the name of an abstract socket.

        `watchdog_us`: the supervisor's maximum wait for a sign of life; None: unlimited.
        """
        self._address = address
        self._status = ""
        self._owed = ""  # Change of state that is not sent yet.
        self._failure = ""
        self._log = Log("gossipkv.node")
        self.is_there: Final = address is not None
        self.watches: Final = watchdog_us is not None
        self.period_s: Final = STATUS_PERIOD_S if watchdog_us is None else watchdog_us * _PART / 1e6

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ) -> ProcessSupervisor:
        """Return this process's supervisor, and remove it from `environ`, since it does not watch children.

        Invalid values are logged, and the process goes on without a supervisor, since it can serve anyway.
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
            log.warning("not_notified", reason=f"WATCHDOG_USEC={watchdog} is not a number of microseconds")
            return cls(address)
        return cls(address, int(watchdog))

    def ready(self, status: str) -> None:
        """Report that the process is ready."""
        self._owed = "READY=1"
        self._send(status)

    def stopping(self, status: str) -> None:
        """Report that the process has begun to end."""
        self._owed = "STOPPING=1"
        self._send(status)

    def lives(self, status: str) -> None:
        """Report that the process has completed a round of its work since the last call."""
        if self.watches or self._owed or status != self._status:
            self._send(status, "WATCHDOG=1" if self.watches else "")

    def doing(self, status: str) -> None:
        """Report the current status."""
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


NOBODY: Final = ProcessSupervisor()
