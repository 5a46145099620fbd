"""The node's side of a merge: starts the child, reads its reports, and handles its end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.errors import Corrupt, LocalError
from gossipkv.processes import child
from gossipkv.processes.niceness import give_way, take_back
from gossipkv.processes.program import ProgramLines, how_it_ended, order_line
from gossipkv.storage.engine.child import MODULE, MergeRefused, understand
from gossipkv.storage.engine.merge import MergeOutput, run_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.storage.engine.merge import MergeOrder
    from gossipkv.storage.engine.policy import Manner

# A child that is silent this long is stuck, since it reports progress with each read and write.
STALL_S: Final = 120.0

# Period of adjusting the child's effort.
MANNER_PERIOD_S: Final = 0.5


class MergeError(LocalError):
    """A merge did not finish, for reasons other than damaged inputs."""


async def merge_in_child(order: MergeOrder, manner: Callable[[], Manner]) -> MergeOutput:
    """Run a merge in a child process, and return its output; `manner` says how hard it should work.

    Raises:
        Corrupt: an input is damaged; names file and offset.
        MergeError: the child was killed, misreported or stalled, or the system refused.
        OSError: no child can be started.
    """
    async with child.running(MODULE) as (process, worn), trio.open_nursery() as nursery:
        errors: list[bytes] = []
        nursery.start_soon(child.collect_errors, process, errors)
        with contextlib.suppress(trio.BrokenResourceError):  # The child is gone, as its silence will show.
            assert process.stdin is not None
            await process.stdin.send_all(order_line((order, worn)))
        nursery.start_soon(_drive, process, manner)
        outcome = await _listen(process)
        if outcome is None:
            with trio.move_on_after(STALL_S) as patience:
                await process.wait()
            if patience.cancelled_caught:
                outcome = "the process closed its output and does not end"
        nursery.cancel_scope.cancel()
    if isinstance(outcome, Corrupt):
        raise outcome
    if isinstance(outcome, MergeOutput):
        if can_be(order, outcome):
            return outcome
        outcome = f"the process reported impossible files: {', '.join(file.name for file in outcome.files)}"
    how = outcome or f"the process {how_it_ended(process.returncode)}{child.last_line(errors)}"
    raise MergeError(f"{order.directory}: the merge failed: {how}", {"file": order.directory})


async def _drive(process: trio.Process, manner: Callable[[], Manner]) -> None:
    """Adjust the child's priority and write rate to `manner`, now and on changes."""
    rate, priority = None, None
    assert process.stdin is not None
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, ProcessLookupError):
        while True:
            effort = manner()
            if effort.gives_way != priority and (give_way if effort.gives_way else take_back)(process.pid):
                priority = effort.gives_way
            if effort.bytes_per_second != rate:
                rate = effort.bytes_per_second
                await process.stdin.send_all(b"%d\n" % rate)
            await trio.sleep(MANNER_PERIOD_S)


async def _listen(process: trio.Process) -> MergeOutput | Corrupt | str | None:
    """Return the child's result: a text describes an error, None means it ended without a result."""
    assert process.stdout is not None
    lines = ProgramLines()
    while True:
        with trio.move_on_after(STALL_S) as patience:
            part = bytes(await process.stdout.receive_some())
        if patience.cancelled_caught:
            return f"the process reported nothing for {STALL_S:.0f} s"
        if not part:
            return None
        for line in lines.feed(part):
            try:
                result = understand(line)
            except ValueError as error:
                return str(error)
            match result:
                case MergeRefused(reason):
                    return reason
                case MergeOutput() | Corrupt():
                    return result


def can_be(order: MergeOrder, output: MergeOutput) -> bool:
    """Return True if a merge can have written this output. Otherwise it is rejected, since the inputs leave for it."""
    names = [run_name(order.number, at + 1) for at in range(len(output.files))]
    target = {file.name: file for run in order.runs[-1:] for file in run}
    left = [file for name, file in target.items() if name not in output.replaced]
    return (
        [file.name for file in output.files] == names
        and len(left) + len(output.replaced) == len(target)
        and all(order.start <= file.first for file in output.files)
        and (output.end is None or (bool(order.runs) and order.start < output.end))
        and all(output.end is None or file.last < output.end for file in output.files)
        and not any(file.first <= old.last and old.first <= file.last for file in output.files for old in left)
    )
