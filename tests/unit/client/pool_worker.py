"""A worker of a pool of processes, for `test_processes_slow`: it keeps one client for all that it is asked."""

from __future__ import annotations

import gossipkv

_clients: list[gossipkv.blocking.Client] = []


def begin(address: str) -> None:
    """Connect, unless a client was inherited."""
    if not _clients:
        _clients.append(gossipkv.blocking.connect(address, timeout_ms=60_000))


def read(number: int) -> bytes | None:
    return _clients[0].dataset("geo").get(b"key%03d" % number)
