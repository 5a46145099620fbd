"""What a machine keeps: who it is, in one document on a simulated disk.

The document is written by the code that writes a node's own (`storage/document.py`), on a disk that may crash the
machine before, within or after any of its steps, refuse one, or forget what was not synced.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.address import parse_address
from gossipkv.storage.document import read_document, text, whole, write_document
from gossipkv.testing.faulty_files import Action, Fault, FaultyFiles
from gossipkv.testing.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections import Counter
    from random import Random

    from gossipkv.address import Address
    from gossipkv.storage.document import Body

_PLACE = "/data"
_NODE, _PEERS = f"{_PLACE}/NODE", f"{_PLACE}/PEERS"
_STEPS = ("pwrite", "sync", "rename", "sync_directory")


class Kept(NamedTuple):
    """What a start finds."""

    uuid: bytes
    epoch: int
    cluster_id: bytes
    peers: tuple[Address, ...]


@final
class Disk:
    """One machine's disk."""

    def __init__(self, chance: Random, struck: Counter[str]) -> None:
        self._chance = chance
        self.struck = struck
        self._files = _formatted()
        self._next: Fault | None = None
        self._next_name = ""

    # Faults

    def crash_soon(self) -> None:
        """The machine crashes around some step of the next write."""
        action = self._chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
        self._next = Fault(0, action, kinds={self._chance.choice(_STEPS)})
        self._next_name = "crash_at_sync"

    def fail_next(self, *, full: bool) -> None:
        """Some step of the next write fails: EIO, or ENOSPC."""
        if full:
            self._next = Fault(0, Action.FAIL_HALFWAY, kinds={"pwrite"}, error=errno.ENOSPC)
        else:
            self._next = Fault(0, Action.FAIL, kinds={self._chance.choice(_STEPS)})
        self._next_name = "disk_full" if full else "disk_error"

    def calm(self) -> None:
        """No fault is waiting any more."""
        self._next = None

    def lose_power(self) -> None:
        """Forget some of what was not synced."""
        self._files = self._files.power_loss(self._chance.getrandbits(32))

    def wipe(self) -> None:
        """Be a new disk."""
        self._files = _formatted()
        self._next = None

    def copy_from(self, other: Disk) -> None:
        """Hold what another disk holds."""
        kept = other.read()
        if kept is not None:
            self.write(kept)

    # What it is for

    def read(self) -> Kept | None:
        """What is kept; None at the first start."""
        try:
            body = read_document(self._files, _NODE, "NODE")
        except FileNotFoundError:
            return None
        uuid, cluster_id = bytes.fromhex(text(body, "uuid", _NODE)), bytes.fromhex(text(body, "cluster_id", _NODE))
        return Kept(uuid, whole(body, "epoch", _NODE), cluster_id, self._peers())

    def write(self, kept: Kept) -> None:
        """Keep this.

        Raises:
            Crash: the machine crashed meanwhile.
            OSError: the disk refused.
        """
        files = FaultyFiles(self._files) if self._next is None else FaultyFiles(self._files, self._next)
        self._next = None
        try:
            body: Body = {"uuid": kept.uuid.hex(), "epoch": kept.epoch, "cluster_id": kept.cluster_id.hex()}
            write_document(files, _NODE, "NODE", body)
        finally:
            if files.struck:
                self.struck[self._next_name] += 1

    def write_peers(self, peers: tuple[Address, ...]) -> None:
        """Keep these addresses."""
        write_document(self._files, _PEERS, "PEERS", {"peers": [str(peer) for peer in peers]})

    def _peers(self) -> tuple[Address, ...]:
        try:
            peers = read_document(self._files, _PEERS, "PEERS")["peers"]
        except FileNotFoundError:
            return ()
        assert isinstance(peers, list)
        return tuple(parse_address(str(peer)) for peer in peers)


def _formatted() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(_PLACE)
    files.sync_directory("/")
    return files
