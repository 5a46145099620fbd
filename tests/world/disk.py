"""A machine's identity and known peers, kept as a node's documents on a simulated disk.

The node's own code (`node/identity.py`) reads and writes them, on a disk that may crash the machine before, within or
after any step of a write, with or without the power, or refuse a step.  When the power fails, the disk forgets any part
of the unsynced data, and keeps any part of it, in pieces of `PIECE_BYTES`.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, final

from gossipkv.node.identity import NODE, PEERS, next_life, read_peers, write_node, write_peers
from tests.world.faulty_files import Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence
    from random import Random

    from gossipkv.address import Address
    from gossipkv.node.identity import NodeRecord
    from tests.world.streams import Streams

# Pieces are never torn, as on persistent memory; with sectors, small documents would never be torn.
PIECE_BYTES: Final = 8

_PLACE = PurePosixPath("/data")
_CLUSTER = "simulated"
# A write has four steps: content, sync, rename, sync of the directory; or, in place, content and sync of each slot.
_STEPS = frozenset({"pwrite", "sync", "rename", "sync_directory"})
_NUMBERS = (0, 1, 2, 3)
# Around these steps the disk may forget something, or must no longer forget it.
_UNSURE = (
    (Action.CRASH_HALFWAY, 0),
    (Action.CRASH_BEFORE, 1),
    (Action.CRASH_AFTER, 1),
    (Action.CRASH_BEFORE, 3),
    (Action.CRASH_AFTER, 3),
)


@final
class Disk:
    def __init__(self, name: str, streams: Streams, struck: Counter[str]) -> None:
        self._chance = streams[f"disk/{name}"]
        self._power = streams[f"power/{name}"]
        self._struck = struck
        self._files = _formatted()
        self._next: Fault | None = None
        self._next_name = ""
        self._takes_power = False
        self.is_read_only = False
        self.number = 0  # Raised whenever the machine gets another disk.

    def process_ended(self) -> None:
        """Note the end of the process; each of its writes was complete at once."""

    # Faults

    def crash_soon(self, *, power: bool = False) -> None:
        """Crash the machine around some step of the next write; with `power`, the power fails too."""
        action = self._chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
        step = self._chance.choice(_NUMBERS)
        if power:
            action, step = self._power.choice(_UNSURE)
        self._next = Fault(step, action, kinds=_STEPS)
        self._next_name = "crash_at_sync"
        self._takes_power = power

    def fail_next(self, *, full: bool) -> None:
        """Fail some step of the next write with EIO, or with ENOSPC if `full`."""
        if full:
            self._next = Fault(0, Action.FAIL_HALFWAY, kinds={"pwrite"}, error=errno.ENOSPC)
        else:
            self._next = Fault(self._chance.choice(_NUMBERS), Action.FAIL, kinds=_STEPS)
        self._next_name = "disk_full" if full else "disk_error"

    def calm(self) -> None:
        self._next = None
        self.is_read_only = False

    def lose_power(self) -> None:
        written = self._documents()
        self._files = self._files.power_loss(self._power.getrandbits(32))
        if self._documents() != written:
            self._struck["disk_forgot"] += 1
        if self._files.torn:
            self._struck["write_torn"] += self._files.torn

    def wipe(self) -> None:
        self._replace(_formatted())

    def copy_from(self, other: Disk) -> None:
        """Become a new disk with the contents of another disk."""
        self._replace(other._files.copied())

    def _replace(self, files: SimulatedFiles) -> None:
        self._files = files
        self._next = None
        self.number += 1

    # The documents

    def next_life(self, name: str, random: Random, *, least_epoch: int) -> tuple[NodeRecord, bool]:
        """Return the node's record in the epoch of this start, which is not kept yet, and True if the node is new.

        Raises:
            GossipKVError: the kept record is damaged.
        """
        return next_life(self._files, _PLACE, cluster=_CLUSTER, node=name, random=random, least_epoch=least_epoch)

    def keep(self, record: NodeRecord) -> None:
        """Keep the node's record.

        Raises:
            Crash: the machine crashed meanwhile.
            OSError: the disk refused.
        """
        with self._struck_once() as files:
            write_node(files, _PLACE, record)

    def peers(self) -> list[Address]:
        return read_peers(self._files, _PLACE)

    def remember(self, peers: Sequence[Address]) -> None:
        with self._struck_once() as files:
            write_peers(files, _PLACE, peers)

    @contextmanager
    def _struck_once(self) -> Iterator[FaultyFiles]:
        """Let the waiting fault strike one write."""
        if self.is_read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        files = FaultyFiles(self._files) if self._next is None else FaultyFiles(self._files, self._next)
        self._next = None
        try:
            yield files
        except Crash:
            if self._takes_power:
                self._struck["power_at_sync"] += 1
                self.lose_power()
            raise
        finally:
            if files.struck:
                self._struck[self._next_name] += 1

    def _documents(self) -> list[bytes | None]:
        return [self._content(name) for name in (NODE, PEERS)]

    def _content(self, name: str) -> bytes | None:
        try:
            descriptor = self._files.open(_PLACE / name)
        except FileNotFoundError:
            return None
        try:
            return self._files.pread(descriptor, self._files.size(descriptor), 0)
        finally:
            self._files.close(descriptor)


def _formatted() -> SimulatedFiles:
    files = SimulatedFiles(sector_bytes=PIECE_BYTES)
    files.make_directory(_PLACE)
    files.sync_directory("/")
    return files
