"""Processor time of the servers: from a node's report, or from the local processes that listen on the port.

A port may have several processes: a node and its child for HTTP hold the same socket, and both work for it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.loadtest.watch import info_of
from gossipkv.processes.usage import activity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.loadtest.plan import LoadTarget

LISTENS: Final = "0A"


class Spent(NamedTuple):
    """Processor time in seconds, and its processes: other processes have started anew."""

    cpu_s: float
    by: tuple[int, ...]


def cpu_of_targets(targets: Sequence[LoadTarget]) -> dict[str, Spent]:
    """Return the time of each target, by its URL; unknown ones are omitted."""
    found = {}
    for target in targets:
        spent = _of_node(target.address) if target.scheme == "gossipkv" else None
        if spent is None:
            spent = _of_listeners(target.address)
        if spent is not None:
            found[str(target)] = spent
    return found


def between(before: Mapping[str, Spent], after: Mapping[str, Spent]) -> dict[str, float]:
    """Return the seconds between two looks, of targets with unchanged processes."""
    return {
        name: after[name].cpu_s - spent.cpu_s
        for name, spent in before.items()
        if name in after and after[name].by == spent.by and after[name].cpu_s >= spent.cpu_s
    }


def _of_node(address: Address) -> Spent | None:
    """Return the time in a node's report about its own process."""
    process = info_of(address).get("process")
    if not isinstance(process, dict):
        return None
    seconds, started_ms = process.get("cpu_s"), process.get("started_ms")
    if not isinstance(seconds, int | float):
        return None
    return Spent(float(seconds), (started_ms,) if isinstance(started_ms, int) else ())


def _of_listeners(address: Address) -> Spent | None:
    if not _is_here(address):
        return None
    inodes = set(_listening(address.port))
    processes = sorted(_holders(inodes))
    return (
        Spent(sum(activity_of(process).processor_s for process in processes), tuple(processes)) if processes else None
    )


def _is_here(address: Address) -> bool:
    try:
        found = name_service.local_addresses(Address(address.host, 0))
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(where)
            return True
    return False


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port (proc(5), net/tcp)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _holders(inodes: set[str]) -> list[int]:
    """Return the processes that have one of these sockets open."""
    names = {f"socket:[{inode}]" for inode in inodes}
    found = []
    for entry in Path("/proc").iterdir() if names else ():
        if entry.name.isdecimal():
            with suppress(OSError):  # The process has ended, or belongs to another user.
                if any(_link(descriptor) in names for descriptor in (entry / "fd").iterdir()):
                    found.append(int(entry.name))
    return found


def _link(descriptor: Path) -> str:
    with suppress(OSError):
        return str(descriptor.readlink())
    return ""
