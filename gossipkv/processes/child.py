"""A child of a node, under Trio: a program of ours with its orders on standard input.

However the block ends (success, an error, a killed child, cancellation), no process is left: the child is killed and
awaited first, and its leash is cut if the node itself dies.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.processes import leash
from gossipkv.processes.program import command, environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

# Kept end of a child's standard error, enough for a traceback.
STDERR_TAIL_BYTES = 4_000

# Both thresholds of glibc are fixed. Otherwise it raises the first one after each large buffer that is freed, and then
# keeps holes as large as values or the blocks of a SequenceFile: up to two and a half times the memory in use. With the
# first one alone, it would return the free end of its memory after nearly each buffer, and request it again.
MMAP_THRESHOLD_BYTES = 1 << 20
TRIM_THRESHOLD_BYTES = 4 << 20
# pyarrow's mimalloc keeps what was freed otherwise: as much again as two large pages of a Parquet file. Without a delay
# a build from Parquet takes a fifth more processor time, since the memory of each batch is given back and cleared anew.
# pyarrow loads numpy, whose OpenBLAS would start a thread for each core, which runs idle before it sleeps.
VARIABLES: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
    "MIMALLOC_PURGE_DELAY": "10",  # Milliseconds.
    "OPENBLAS_NUM_THREADS": "1",
}


@contextlib.asynccontextmanager
async def running(module: str, *, descriptors: Sequence[int] = ()) -> AsyncIterator[tuple[trio.Process, int]]:
    """Run a module as a program for the duration of the block; yields its process and the leash it must wear.

    The program has these `descriptors`, by their numbers, besides those of its streams.

    Raises:
        OSError: no process can be started.
    """
    with leash.held() as (worn, started):
        process = await trio.lowlevel.open_process(
            command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment(), **VARIABLES},
            pass_fds=(worn, *descriptors),
            start_new_session=True,  # A Ctrl-C in the terminal goes to the node only, which ends its children itself.
        )
        started()
        try:
            yield process, worn
        finally:
            await _end(process)


async def collect_errors(process: trio.Process, errors: list[bytes]) -> None:
    """Keep the end of the child's standard error."""
    assert process.stderr is not None
    async for part in process.stderr:
        errors[:] = [(b"".join(errors) + part)[-STDERR_TAIL_BYTES:]]


def last_line(errors: list[bytes]) -> str:
    """Return a colon and the last collected line, or an empty string."""
    line = b"".join(errors).decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f": {line}" if line else ""


async def _end(process: trio.Process) -> None:
    with trio.CancelScope(shield=True):
        process.kill()  # Does nothing to an ended process.
        await process.wait()
        assert process.stdout is not None
        with contextlib.suppress(trio.ClosedResourceError):
            while await process.stdout.receive_some():  # Wait until its forks are gone as well.
                pass
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()
