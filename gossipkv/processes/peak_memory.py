"""The most memory that a process has had, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

from gossipkv.errors import ConfigError


def peak_bytes() -> int:
    """Return the most memory that this process has had (VmHWM).

    Raises:
        ConfigError: the system does not say.
    """
    with Path("/proc/self/status").open("rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    raise ConfigError("/proc/self/status has no VmHWM: builds need Linux with /proc mounted")
