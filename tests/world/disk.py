"""What a machine keeps: who it is, and where others were last seen, in the documents of a node on a simulated disk.

They are read and written by the code that does it for a node (`node/identity.py`), on a disk that may crash the
machine before, within or after any step of a write, with or without the power, or refuse one.  When the power goes, the
disk forgets any of what was not synced, and holds any part of it, in pieces of `PIECE_BYTES`.
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

PIECE_BYTES: Final = 8  # Never torn, as on persistent memory; in sectors, what a small cluster keeps never would be.

_PLACE = PurePosixPath("/data")
_CLUSTER = "simulated"
# A write has four of them: content, sync, rename, sync of the directory; or, in place, content and sync of each slot.
_STEPS = frozenset({"pwrite", "sync", "rename", "sync_directory"})
_NUMBERS = (0, 1, 2, 3)
# Around these steps there is something that the disk may forget, or that it must not forget any more.
_UNSURE = (
    (Action.CRASH_HALFWAY, 0),
    (Action.CRASH_BEFORE, 1),
    (Action.CRASH_AFTER, 1),
    (Action.CRASH_BEFORE, 3),
    (Action.CRASH_AFTER, 3),
)


@final
class Disk:
    """One machine's disk."""

    def __init__(self, name: str, streams: Streams, struck: Counter[str]) -> None:
        self._chance = streams[f"disk/{name}"]
        self._power = streams[f"power/{name}"]
        self._struck = struck
        self._files = _formatted()
        self._next: Fault | None = None
        self._next_name = ""
        self._takes_power = False
        self.is_read_only = False
        self.number = 0  # Another when the machine was given another disk.

    def process_ended(self) -> None:
        """The process that wrote to it is gone; each of its writes was over at once."""

    # Faults

    def crash_soon(self, *, power: bool = False) -> None:
        """The machine crashes around some step of the next write; with `power`, it loses that as well."""
        action = self._chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
        step = self._chance.choice(_NUMBERS)
        if power:
            action, step = self._power.choice(_UNSURE)
        self._next = Fault(step, action, kinds=_STEPS)
        self._next_name = "crash_at_sync"
        self._takes_power = power

    def fail_next(self, *, full: bool) -> None:
        """Some step of the next write fails: EIO, or ENOSPC."""
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
        """Be a new disk that holds what another disk holds."""
        self._replace(other._files.copied())

    def _replace(self, files: SimulatedFiles) -> None:
        self._files = files
        self._next = None
        self.number += 1

    # What it is for

    def next_life(self, name: str, random: Random, *, least_epoch: int) -> tuple[NodeRecord, bool]:
        """Who lives here, in the epoch of this start, which is not kept yet; whether it is new.

        Raises:
            GossipKVError: what is kept is damaged.
        """
        return next_life(self._files, _PLACE, cluster=_CLUSTER, node=name, random=random, least_epoch=least_epoch)

    def keep(self, record: NodeRecord) -> None:
        """Keep who lives here.

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
        """Let the fault that waits strike one write."""
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
