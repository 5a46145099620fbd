"""The cores on a machine, life after life: a rig performs their effects with the machine's means.

A machine knows processes, clocks, an address, a disk, and faults; a *rig* knows the cores.  A rig is made once, with
its machine, and forgets with `end` all that a process forgets.  Inputs carry the time of the machine's clock; the rig
performs its cores' effects at once, and reports when to wake it.  A core that waits for its disk is answered later:
`Machine.later` and `when_free` know if the process still runs, and may.

Any sent datagram or message may be the last one, if a fuse is set (`Machine.set_fuse`): after each the process may have
ended, and the remaining effects are not performed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.address import Address

NEVER_MS: Final = 1 << 60  # The wake time of a rig that waits for nothing; any later time means the same.


class Rig(Protocol):
    """The cores of one machine."""

    @property
    def wakes_at_ms(self) -> int: ...
    def boot(self) -> None:
        """Begin a process: read the disk, and call `Machine.began`; or end it, if it cannot run."""

    def end(self) -> None:
        """Forget the process, which is over."""

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> int:
        """Take a datagram; return when to call `wake`, as the next two do."""

    def wake(self, *, now_ms: int) -> int:
        """Do the due work."""

    def act(self, *, now_ms: int) -> int:
        """Perform the effects that the cores have left."""

    # The caller of each of these calls `act` afterwards.
    def poke(self, *, now_ms: int) -> None:
        """Fire a timer, due or not."""

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Take the addresses to which a configured name now points."""

    def leave(self, *, now_ms: int) -> None:
        """Announce that the process ends soon."""


class MachineDisk(Protocol):
    """A disk, as its machine and faults see it; its contents are the rig's affair."""

    number: int  # Raised whenever the machine gets another disk.

    def process_ended(self) -> None:
        """Note the end of the process that wrote to the disk."""

    def crash_soon(self, *, power: bool = False) -> None:
        """Crash the machine around some step of the next write; with `power`, the power fails too."""

    def fail_next(self, *, full: bool) -> None:
        """Fail some step of the next write."""

    def calm(self) -> None:
        """Cancel waiting faults."""

    def lose_power(self) -> None:
        """Forget some of the unsynced data."""

    def wipe(self) -> None:
        """Become a new disk."""
