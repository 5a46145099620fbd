"""Writing and syncing of groups beside the event loop: in a C thread, or in Trio's threads over other files.

A hop through Trio's threads costs several times the sync of a fast disk. So real files have a C thread that sleeps on
an eventfd and answers by another (`committer.pyx`); other files use the environment's threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import trio

from gossipkv.environment.real_files import RealFiles
from gossipkv.storage.engine._engine import Committer as CThread

if TYPE_CHECKING:
    from gossipkv.environment.seam import Environment, Files
    from gossipkv.storage.engine._engine import WriteGroup


class Committing(Protocol):
    """Writes one group at a time."""

    def submit(self, group: WriteGroup) -> None:
        """Begin to write a group. Requires: none is under way."""
        ...

    async def wait(self) -> None:
        """Return when the next submitted group is written and synced. Raises OSError."""
        ...

    def close(self) -> None:
        """Release the thread once the write under way has ended."""
        ...


@final
class CommitThread:
    """Writes in a thread in C, over real files."""

    def __init__(self) -> None:
        self._thread = CThread()

    def submit(self, group: WriteGroup) -> None:
        self._thread.submit(group.descriptor, group.data, group.offset)

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._thread.fileno())
        self._thread.result()

    def close(self) -> None:
        self._thread.close()


@final
class ThreadCommitter:
    """Writes in the worker threads of the environment, over its files."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._group: WriteGroup | None = None
        self._submitted = trio.Event()

    def submit(self, group: WriteGroup) -> None:
        assert self._group is None, "one group at a time"
        self._group = group
        self._submitted.set()

    async def wait(self) -> None:
        await self._submitted.wait()
        self._submitted = trio.Event()
        group, self._group = self._group, None
        assert group is not None
        await self._environment.threads.run(write_group, self._environment.files, group)

    def close(self) -> None:
        pass


def write_group(files: Files, group: WriteGroup) -> None:
    """Write and sync a group. Raises OSError."""
    files.pwrite(group.descriptor, group.data, group.offset)
    files.sync(group.descriptor)


def committing(environment: Environment) -> Committing:
    """Return the writer that suits the environment's files."""
    return CommitThread() if type(environment.files) is RealFiles else ThreadCommitter(environment)
