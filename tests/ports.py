"""Ports that stay free until a test takes them: the system gives them to no program that asks for any port."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from pathlib import Path

HOST = "127.0.0.1"
FIRST = 20_000  # The ports are above well-known ones and above those that clusters try first.


def quiet_ports(count: int) -> list[int]:
    """Return ports that are free for datagrams and connections, and differ from those of simultaneous callers."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    quiet = [port for port in range(FIRST, 1 << 16) if not low <= port <= high] or range(FIRST, 1 << 16)
    found = [port for port in random.sample(quiet, 20 * count) if _is_free(port)][:count]
    assert len(found) == count
    return found


def neighbouring_ports(count: int) -> range:
    """Return consecutive ports that are as free as those of `quiet_ports`."""
    for first in quiet_ports(20):
        ports = range(first, first + count)
        if ports.stop <= 1 << 16 and all(_is_free(port) for port in ports):
            return ports
    message = f"no {count} ports in a row are free"
    raise AssertionError(message)


def _is_free(port: int) -> bool:
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        with closing(socket.socket(socket.AF_INET, kind)) as trial:
            try:
                trial.bind((HOST, port))
            except OSError:
                return False
    return True
