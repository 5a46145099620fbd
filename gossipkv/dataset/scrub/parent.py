"""The node's side of reading a version back: start the child, follow its verdicts, and report its end."""

from __future__ import annotations

import contextlib
import json
from dataclasses import astuple
from typing import TYPE_CHECKING, Final, Protocol

import trio

from gossipkv.dataset.scrub.read_back import Job, ReadBackOutcome
from gossipkv.errors import Corrupt, LocalError
from gossipkv.processes import child
from gossipkv.processes.niceness import give_way
from gossipkv.processes.program import ProgramLines, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Callable


# The kernel changes the niceness of sessions with pauses between.
ATTEMPTS_TO_GIVE_WAY: Final = 100
GIVE_WAY_PAUSE_S: Final = 0.1


class ReadBackError(LocalError):
    """A version could not be read back to its end, which says nothing about its bytes."""


class ReadBack(Protocol):
    """Reads versions back: `read_back_in_child`, or a simulation's replacement."""

    async def __call__(self, job: Job, on_damage: Callable[[Corrupt], None]) -> ReadBackOutcome: ...


async def read_back_in_child(job: Job, on_damage: Callable[[Corrupt], None]) -> ReadBackOutcome:
    """Read a version back in a child process; `on_damage` gets each damaged file as it is found.

    Raises:
        ReadBackError: the child was killed, or the system refused.
        OSError: no child can be started.
    """
    async with child.running("gossipkv.dataset.scrub.read_back") as (process, worn), trio.open_nursery() as nursery:
        errors: list[bytes] = []
        nursery.start_soon(child.collect_errors, process, errors)
        nursery.start_soon(_give_way, process)
        outcome = await _converse(process, [*astuple(job), worn], on_damage)
        await process.wait()
        nursery.cancel_scope.cancel()
    if isinstance(outcome, ReadBackOutcome):
        return outcome
    how = outcome or f"the process {how_it_ended(process.returncode)}{child.last_line(errors)}"
    raise ReadBackError(f"{job.directory}: the version cannot be read back: {how}", {"file": job.directory})


async def _give_way(process: trio.Process) -> None:
    """Lower the child's priority from the start: for little data, starting up is most of its work."""
    for _ in range(ATTEMPTS_TO_GIVE_WAY):
        if give_way(process.pid):
            break
        await trio.sleep(GIVE_WAY_PAUSE_S)


async def _converse(
    process: trio.Process, order: list[object], on_damage: Callable[[Corrupt], None]
) -> ReadBackOutcome | str | None:
    """Return the child's last message: an outcome or an error; None if it ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(trio.BrokenResourceError):  # The child is gone, as its missing output shows too.
        await process.stdin.send_all(json.dumps(order).encode() + b"\n")
    lines = ProgramLines()
    last: ReadBackOutcome | str | None = None
    async for part in process.stdout:
        for line in lines.feed(bytes(part)):
            match json.loads(line):
                case {"damaged": [str(file), int(offset), str(reason), expected, got]}:
                    on_damage(Corrupt(file, offset, reason, expected=expected, got=got))
                case {"done": [int(files), int(size_bytes), bool(bypassed_cache)]}:
                    last = ReadBackOutcome(files, size_bytes, bypassed_cache)
                case {"error": str(reason)}:
                    last = reason
    return last
