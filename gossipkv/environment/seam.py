"""The seam to the world: clock, randomness, files, sockets, threads, signals and memory.

Whatever touches the world is reached through an `Environment` that the caller was given, so that a test can pass a
world that fails, forgets, tears and lies, and replay it from one integer seed (`tests.world`).  Production
passes `gossipkv.environment.trio_world.real()`.

Rules for whoever edits this file: no policy lives here, only operations, each a point at which a test may strike;
an operation is added when storage or a shell needs it, never "for completeness".
"""

from __future__ import annotations

import errno
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    import contextlib
    import random
    import signal
    from collections.abc import AsyncIterator, Callable

    import trio
    from _typeshed import ReadableBuffer as Buffer

    from gossipkv.address import Address
    from gossipkv.environment.memory import Room

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

Path = str | os.PathLike[str]

WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
READ_WRITE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


# Four for each file that a version may have (its `.crc` and two to spare): a directory with more is a mistake, and
# listing all of a million takes seconds and half a gigabyte.
MOST_ENTRIES = 65_536


def too_many_entries(path: Path) -> OSError:
    """What listing a directory with more than `MOST_ENTRIES` raises."""
    return OSError(
        errno.E2BIG,
        f"more than {MOST_ENTRIES:,} entries; write fewer, larger files, or remove old ones",
        os.fspath(path),
    )


class Clock(Protocol):
    """Two clocks: one that only goes forward, one that people read."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory, or one path: what it is and when it last changed."""

    name: str
    kind: str  # "file", "directory", "link" or "other" (a socket, a fifo, a device)
    size_bytes: int
    modified_ns: int
    tag: str = ""  # What else changes with the content, where a store has such a thing: an ETag, a checksum.


class Files(Protocol):
    """The file operations that GossipKV performs.  Every one raises `OSError` when the system refuses.

    Descriptors are plain integers of this `Files`, meaningful to no other.
    """

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        """A new descriptor.  Whoever opens it closes it."""
        ...

    def close(self, descriptor: int) -> None:
        """Gives the descriptor back; promises nothing about what was written."""
        ...

    def size(self, descriptor: int) -> int:
        """The length in bytes of an open file."""
        ...

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        """Up to `size_bytes` from `offset`; short only at the end of the file."""
        ...

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        """All of `data` at `offset`; after an error any part of it may be there."""
        ...

    def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """The range belongs to the file: zeros where nothing was, and at least as long as its end.

        Raises ENOSPC when there is no room for all of it; writes into it have theirs.  Systems that cannot refuse.
        """
        ...

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        """Copies up to `size_bytes` at `offset` of one open file to the same place of another: how many, 0 at the end.

        The bytes do not pass through here, and file systems that can let both files share them.  Others refuse.
        """
        ...

    def sync(self, descriptor: int) -> None:
        """Returns when the file's data and size are on the disk; its name is `sync_directory`'s business."""
        ...

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Ask for early writing of a range, so that the `sync` at the end is short.  Promises nothing."""
        ...

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        """The first `size_bytes` of the file as a read-only buffer; the descriptor may be closed afterwards."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Returns when the names in a directory are on the disk: creations, links, renames and removals."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """One step: a file replaces a file; a directory replaces nothing, or an empty directory."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """One more name for a file; raises `FileExistsError` when it is taken, EXDEV between two file systems."""
        ...

    def unlink(self, path: Path) -> None:
        """Removes a name of a file, and the file with its last one."""
        ...

    def make_directory(self, path: Path) -> None:
        """A new directory; raises `FileExistsError` when the name is taken."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        ...

    def list_directory(self, path: Path) -> list[Entry]:
        """The entries, sorted by name as bytes; links are not followed.

        Raises E2BIG, soon, when there are more than `MOST_ENTRIES`.
        """
        ...

    def stat(self, path: Path) -> Entry:
        """What a path is; a link is not followed."""
        ...

    def resolve(self, path: Path) -> str:
        """The absolute path without links that `path` leads to; raises when it leads nowhere."""
        ...

    def free_bytes(self, path: Path) -> int:
        """What an ordinary user may still write to the file system of `path`."""
        ...

    def lock(self, descriptor: int) -> None:
        """An exclusive lock that ends with the descriptor; raises `BlockingIOError` when another holds it."""
        ...


# A datagram of gossip fits an Ethernet frame; what has more was not sent by one of us.
MOST_DATAGRAM_BYTES = 4096

# How long a connection that was begun here waits for the peer's kernel to confirm what was sent, until it breaks: Linux
# alone would try for a quarter of an hour, with pauses of up to two minutes, in which a machine that is back, or to be
# reached again, is not asked.
UNCONFIRMED_S = 5


def is_link_local(host: str) -> bool:
    """Whether it is an IPv6 address that leads nowhere without its interface, which an `Address` does not have."""
    try:
        return ":" in host and ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False


class Listener(Protocol):
    """A bound, listening, non-blocking TCP socket."""

    def fileno(self) -> int:
        """Its descriptor, of the `Sockets` that it came from."""
        ...

    def getsockname(self) -> tuple[str, int]:
        """Where it listens; an IPv6 address has more behind that."""
        ...

    def close(self) -> None:
        """Stop listening; again does nothing."""
        ...


class HasFileno(Protocol):
    """A descriptor's owner."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Datagrams(Protocol):
    """A bound, non-blocking UDP socket.  Addresses are numeric; an IPv4 one stays one on an IPv6 socket."""

    def fileno(self) -> int:
        """Its descriptor, of the `Sockets` that it came from."""
        ...

    @property
    def lost(self) -> int:
        """Datagrams that the system threw away because nobody had room for them, so far."""
        ...

    def reaches(self, to: Address) -> bool:
        """Whether it can send to addresses of that family."""
        ...

    def send(self, packet: bytes, to: Address) -> None:
        """Send it.  Raises `OSError` when the system refuses it, `BlockingIOError` when it has no room now."""
        ...

    def receive(self) -> tuple[bytes, Address]:
        """The next datagram, up to `MOST_DATAGRAM_BYTES` of it; raises `BlockingIOError` when none waits."""
        ...

    def close(self) -> None:
        """Stop receiving; again does nothing."""
        ...


class Stream(Protocol):
    """A connection."""

    async def send_all(self, data: bytes) -> None:
        """All of it.  Raises `OSError` when it breaks."""
        ...

    async def receive_some(self, most_bytes: int) -> bytes:
        """What has come, at least one byte; nothing at its end.  Raises `OSError` when it breaks."""
        ...

    def detach(self) -> object:
        """What a serving loop goes on with, of the same `Sockets`; this is of no use any more."""
        ...

    async def aclose(self) -> None:
        """Ends it."""
        ...


class EventLoop(Protocol):
    """The loop that wakes tasks, for a serving loop that sleeps in its place; it does so until `close`."""

    def fileno(self) -> int:
        """A descriptor that is readable when something has come that a task waits for."""
        ...

    def sleep_by(self, rest: Callable[[float], None]) -> None:
        """Call `rest(seconds)` instead of sleeping so long; it returns earlier when `fileno` is readable."""
        ...

    def close(self) -> None:
        """Have it sleep itself again."""
        ...


class Sockets(Protocol):
    """Where sockets come from, and how one waits for them."""

    def listen(self, host: str, port: int, backlog: int) -> Listener:
        """A listener; port 0 lets the system choose."""
        ...

    def datagrams(self, host: str, port: int) -> Datagrams:
        """A UDP socket at a numeric address."""
        ...

    async def wait_readable(self, source: HasFileno) -> None:
        """Returns when there is something to accept or to receive."""
        ...

    async def event_loop(self) -> EventLoop | None:
        """The loop that `wait_readable` sleeps in, if a serving loop may sleep in its place."""
        ...

    async def connect(self, to: Address) -> Stream:
        """A connection to a numeric address.  Raises `OSError`."""
        ...

    async def resolve(self, name: Address) -> list[Address]:
        """What a name stands for: numeric addresses.  Raises `OSError` when nobody knows."""
        ...

    def source_towards(self, to: Address) -> str:
        """This machine's own address on the way to a numeric one; nothing is sent.  Raises `OSError`: no way there."""
        ...


class Threads(Protocol):
    """Where work goes that blocks."""

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        """What `function` returns in a worker thread.

        A cancelled caller waits for its end, unless `abandon_on_cancel`: then the thread goes on without it.
        """
        ...


class Memory(Protocol):
    """What the machine has."""

    def room(self) -> Room | None:
        """The room that the narrowest limit leaves to the files that this process maps; None: nothing is known."""
        ...


class Signals(Protocol):
    """What people and their tools tell a process."""

    def receive(self, *numbers: signal.Signals) -> contextlib.AbstractContextManager[AsyncIterator[int]]:
        """The signals that arrive from now on until the block ends; they do not do what they did."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """What a node is given of the world."""

    clock: Clock
    random: random.Random
    files: Files
    sockets: Sockets
    threads: Threads
    signals: Signals
    memory: Memory
