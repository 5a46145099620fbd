"""The seam to the world: clock, randomness, files, sockets, threads, signals and memory.

Code reaches the world only through an `Environment` that its caller passes. So a test can pass a world that fails,
forgets, tears and lies, and replay it from one integer seed (`tests.world`). Production passes
`gossipkv.environment.trio_world.real()`.

Rules for editors of this file: it holds operations and no policy, and each operation is a point where a test may inject
a failure. Add an operation when storage or a shell needs it, never "for completeness".
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


# Four for each file that a version may have (its `.crc` and two to spare). A larger directory is a mistake, and listing
# a million entries takes seconds and half a gigabyte.
MAX_ENTRIES = 65_536


def too_many_entries(path: Path) -> OSError:
    """Return the error of listing a directory with more than `MAX_ENTRIES`."""
    return OSError(
        errno.E2BIG,
        f"it has more than {MAX_ENTRIES:,} entries; write fewer, larger files, or remove old ones",
        os.fspath(path),
    )


class EnvironmentClock(Protocol):
    """Two clocks: a monotonic one, and one for people."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never goes back."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; may jump."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One name in a directory, or one path: its kind, size and last change."""

    name: str
    kind: str  # "file", "directory", "link" or "other" (a socket, a fifo, a device)
    size_bytes: int
    modified_ns: int
    tag: str = ""  # Another value that changes with the content, if a store has one: an ETag, a checksum.


class Files(Protocol):
    """The file operations that GossipKV performs. All raise `OSError` when the system refuses.

    Descriptors are plain integers, valid for this `Files` only.
    """

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        """Return a new descriptor, which the caller closes."""

    def close(self, descriptor: int) -> None:
        """Close the descriptor; promises nothing about durability."""

    def size(self, descriptor: int) -> int:
        """Return the size in bytes of an open file."""

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        """Read up to `size_bytes` from `offset`; less only at the end of the file."""

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`; after an error any part of it may be there."""

    def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Reserve a range of the file: unwritten parts are zeros, and the file reaches at least to the range's end.

        Raises ENOSPC if there is no room for all of it; later writes into it need no room. Where the file system cannot
        reserve, zeros are written behind the present end.
        """

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        """Copy up to `size_bytes` at `offset` to the same place of another file; returns how many, 0 at the end.

        The bytes do not pass through this process, and some file systems let both files share them. Others refuse.
        """

    def sync(self, descriptor: int) -> None:
        """Return when the file's data and size are on the disk; for its name, call `sync_directory`."""

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Request early writing of a range, so that the final `sync` is short. Promises nothing."""

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        """Map the first `size_bytes` of the file read-only; the descriptor may be closed afterwards."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk: creations, links, renames and removals."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename in one step: a file replaces a file; a directory replaces nothing, or an empty directory."""

    def link(self, source: Path, target: Path) -> None:
        """Add a name to a file; raises `FileExistsError` if it is taken, EXDEV between two file systems."""

    def unlink(self, path: Path) -> None:
        """Remove a name of a file, and the file with its last name."""

    def make_directory(self, path: Path) -> None:
        """Make a directory; raises `FileExistsError` if the name is taken."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def list_directory(self, path: Path) -> list[FileEntry]:
        """Return the entries, sorted by name as bytes; links are not followed.

        Raises E2BIG, soon, if there are more than `MAX_ENTRIES`.
        """

    def stat(self, path: Path) -> FileEntry:
        """Return the entry at a path; a link is not followed."""

    def resolve(self, path: Path) -> str:
        """Return the absolute path without links; raises if `path` leads nowhere."""

    def free_bytes(self, path: Path) -> int:
        """Return how many bytes an ordinary user may still write to the file system of `path`."""

    def size_bytes(self, path: Path) -> int:
        """Return the size of the file system of `path`."""

    def lock(self, descriptor: int) -> None:
        """Take an exclusive lock that ends with the descriptor; raises `BlockingIOError` if another holds it."""


# Gossip's datagrams fit an Ethernet frame, so a larger one comes from another program.
MAX_DATAGRAM_BYTES = 4096

# An outgoing connection breaks if the peer's kernel has not acknowledged sent data for this long. By default Linux
# retries for a quarter of an hour, with pauses of up to two minutes, and a machine that is back would wait as long.
UNCONFIRMED_S = 5


def is_link_local(host: str) -> bool:
    """Return True for an IPv6 address that is unusable without its interface, which an `Address` lacks."""
    try:
        return ":" in host and ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False


class SocketListener(Protocol):
    """A bound, listening, non-blocking TCP socket."""

    def fileno(self) -> int:
        """Return the descriptor, valid for the `SocketFactory` of its origin."""

    def getsockname(self) -> tuple[str, int]:
        """Return the listening address; for IPv6, more fields follow."""

    def close(self) -> None:
        """Stop listening; closing twice is harmless."""


class HasFileno(Protocol):
    """The owner of a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Datagrams(Protocol):
    """A bound, non-blocking UDP socket. Addresses are numeric; an IPv4 address stays so on an IPv6 socket."""

    def fileno(self) -> int:
        """Return the descriptor, valid for the `SocketFactory` of its origin."""

    @property
    def lost(self) -> int:
        """The number of datagrams that the system dropped for lack of room, so far."""

    def reaches(self, to: Address) -> bool:
        """Return True if the socket can send to that address family."""

    def send(self, packet: bytes, to: Address) -> None:
        """Send a datagram. Raises `OSError` if the system refuses it, `BlockingIOError` if it has no room now."""

    def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, cut at `MAX_DATAGRAM_BYTES`; raises `BlockingIOError` if none waits."""

    def close(self) -> None:
        """Stop receiving; closing twice is harmless."""


class ByteStream(Protocol):
    """A connection."""

    async def send_all(self, data: bytes) -> None:
        """Send all of `data`. Raises `OSError` if the connection breaks."""

    async def receive_some(self, most_bytes: int) -> bytes:
        """Return received bytes, at least one; empty at the end. Raises `OSError` if the connection breaks."""

    def detach(self) -> object:
        """Return the socket for a serving loop of the same `SocketFactory`; this stream is unusable afterwards."""

    async def aclose(self) -> None:
        """Close the connection."""


class EventLoop(Protocol):
    """The loop that wakes tasks, for a serving loop that sleeps in its place until `close`."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when an event for a task has arrived."""

    def sleep_by(self, rest: Callable[[float], None]) -> None:
        """Call `rest(seconds)` instead of sleeping; it returns earlier if `fileno` becomes readable."""

    def close(self) -> None:
        """Let the loop sleep by itself again."""


class SocketFactory(Protocol):
    """The maker of sockets, and the means to wait for them."""

    def listen(self, host: str, port: int, backlog: int) -> SocketListener:
        """Return a listener; port 0 lets the system choose."""

    def datagrams(self, host: str, port: int) -> Datagrams:
        """Return a UDP socket at a numeric address."""

    async def wait_readable(self, source: HasFileno) -> None:
        """Return when there is something to accept or to receive."""

    async def event_loop(self) -> EventLoop | None:
        """Return the loop in which `wait_readable` sleeps, or None if a serving loop may not sleep in its place."""

    async def connect(self, to: Address) -> ByteStream:
        """Connect to a numeric address. Raises `OSError`."""

    async def resolve(self, name: Address) -> list[Address]:
        """Return the numeric addresses of a name. Raises `OSError` if they are unknown."""

    def source_towards(self, to: Address) -> str:
        """Return this machine's address on the way to a numeric one; sends nothing. Raises `OSError`: no route."""


class Threads(Protocol):
    """Worker threads, for blocking calls."""

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        """Return the result of `function` in a worker thread.

        A cancelled caller waits for its end, unless `abandon_on_cancel`: then the thread goes on alone.
        """


class MemoryProbe(Protocol):
    """The memory of the machine."""

    def room(self) -> Room | None:
        """Return the room that the narrowest limit leaves for files mapped by this process; None: unknown."""


class Signals(Protocol):
    """Signals from people and their tools."""

    def receive(self, *numbers: signal.Signals) -> contextlib.AbstractContextManager[AsyncIterator[int]]:
        """Receive the signals that arrive until the block ends, instead of their usual effect."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The world of a node: its access to clocks, files, sockets and the rest."""

    clock: EnvironmentClock
    random: random.Random
    files: Files
    sockets: SocketFactory
    threads: Threads
    signals: Signals
    memory: MemoryProbe
