"""What runs on a machine, life after life: it performs what its cores ask for, with the machine's means.

A machine knows processes, clocks, an address, a disk, and what may befall them; a *rig* knows the cores.  It is made
once, with its machine, and forgets with `end` all that a process forgets.  What it is told comes with the time of the
machine's clock; it performs at once what its cores leave behind, and says when it is to be woken.  A core that waits
for its disk is answered later: `Machine.later` and `when_free` know whether the process still runs, and may.

Any datagram or message that leaves may be the last one, if a fuse is set (`Machine.set_fuse`): after each the process
may have ended, and what is left of the effects is not performed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.address import Address

NEVER_MS: Final = 1 << 60  # Who waits for nothing says so, or a later time.


class Rig(Protocol):
    """What runs on one machine."""

    @property
    def wakes_at_ms(self) -> int: ...
    def boot(self) -> None:
        """Begin a process: read the disk, and call `Machine.began`; or end it, if it cannot run."""

    def end(self) -> None:
        """Forget the process, which is over."""

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> int:
        """Take a datagram; returns when to call `wake`, as the next two do."""

    def wake(self, *, now_ms: int) -> int:
        """Do what is due."""

    def act(self, *, now_ms: int) -> int:
        """Perform what the cores have left behind."""

    # After each of these `act` is called.
    def poke(self, *, now_ms: int) -> None:
        """Have a timer run out, due or not."""

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Take addresses where a name leads now that it was told."""

    def leave(self, *, now_ms: int) -> None:
        """Say goodbye: the process ends soon."""


class MachineDisk(Protocol):
    """What a machine and its faults know of a disk; what is on it is between it and the rig."""

    number: int  # Another when the machine was given another disk.

    def process_ended(self) -> None:
        """The process that wrote to it is gone."""

    def crash_soon(self, *, power: bool = False) -> None:
        """The machine crashes around some step of the next write; with `power`, it loses that as well."""

    def fail_next(self, *, full: bool) -> None:
        """Some step of the next write fails."""

    def calm(self) -> None:
        """No fault is waiting any more."""

    def lose_power(self) -> None:
        """Forget some of what was not synced."""

    def wipe(self) -> None:
        """Be a new disk."""
