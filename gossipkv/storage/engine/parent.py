"""The node's side of a merge: starts the child, hears what it has written, and answers for its end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import Corrupt, LocalError
from gossipkv.processes import child
from gossipkv.processes.niceness import give_way, take_back
from gossipkv.processes.program import how_it_ended
from gossipkv.processes.talk import Lines
from gossipkv.storage.engine.child import MODULE, Done, Order, Progress, Refused, understand
from gossipkv.storage.engine.merge import Output, run_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.storage.engine.merge import MergeOrder
    from gossipkv.storage.engine.policy import Manner

# A child that says nothing for so long is not at work: it tells how far it is with every write.
STALL_S: Final = 120.0

# Between two looks at how hard it may work.
MANNER_PERIOD_S: Final = 0.5


class MergeError(LocalError):
    """A merge did not come to its end, which says nothing of its inputs."""


async def merge_in_child(
    order: MergeOrder, on_output: Callable[[Output], object], manner: Callable[[], Manner]
) -> None:
    """Run a merge in a child process; `on_output` is told what it has written, `manner` says how hard it is to work.

    Raises:
        Corrupt: an input is damaged; names file and offset.
        MergeError: the child was killed, lied or stood still, or the system refused.
        OSError: no child can be started.
    """
    async with child.running(MODULE) as (process, worn), trio.open_nursery() as nursery:
        errors: list[bytes] = []
        nursery.start_soon(child.collect_errors, process, errors)
        with contextlib.suppress(trio.BrokenResourceError):  # It is gone, which its silence says as well.
            assert process.stdin is not None
            await process.stdin.send_all(Order(order, worn).to_line())
        nursery.start_soon(_drive, process, manner)
        told = await _listen(process, order, on_output)
        if told is None:
            with trio.move_on_after(STALL_S) as patience:
                await process.wait()
            if patience.cancelled_caught:
                told = "it has closed its output, and does not end"
        nursery.cancel_scope.cancel()
    if isinstance(told, Corrupt):
        raise told
    if isinstance(told, Done):
        return
    how = told or f"the process {how_it_ended(process.returncode)}{child.last_line(errors)}"
    raise MergeError(f"{order.directory}: cannot be merged: {how}", {"file": order.directory})


async def _drive(process: trio.Process, manner: Callable[[], Manner]) -> None:
    """Have it work as hard as it is said to, from now on and whenever that changes."""
    rate, priority = None, None
    assert process.stdin is not None
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, ProcessLookupError):
        while True:
            now = manner()
            if now.gives_way != priority and (give_way if now.gives_way else take_back)(process.pid):
                priority = now.gives_way
            if now.bytes_per_second != rate:
                rate = now.bytes_per_second
                await process.stdin.send_all(b"%d\n" % rate)
            await trio.sleep(MANNER_PERIOD_S)


async def _listen(
    process: trio.Process, order: MergeOrder, on_output: Callable[[Output], object]
) -> Done | Corrupt | str | None:
    """What it came to: a text says what went wrong, None that it ended without a word."""
    assert process.stdout is not None
    lines = Lines()
    heard = _Heard(order)
    while True:
        with trio.move_on_after(STALL_S) as patience:
            part = bytes(await process.stdout.receive_some())
        if patience.cancelled_caught:
            return f"it said nothing for {STALL_S:.0f} s"
        if not part:
            return None
        for line in lines.feed(part):
            try:
                said = heard.understand(line)
            except ValueError as error:
                return str(error)
            match said:
                case Output():
                    on_output(said)
                case Refused(reason):
                    return reason
                case Done() | Corrupt():
                    return said


@final
class _Heard:
    """What a child has said so far that it wrote: what cannot be is not believed, for its inputs leave for it."""

    def __init__(self, order: MergeOrder) -> None:
        self.is_over = False
        self._order = order
        self._files = 0
        self._left = list(order.oldest)
        self._last = b""  # The greatest key so far.

    def understand(self, line: bytes) -> Progress | Output | Done | Corrupt | Refused:
        """What a line says.  Raises ValueError: nothing that can be."""
        said = understand(line)
        if isinstance(said, Output) and not self._takes(said):
            names = ", ".join(file.name for file in said.files)
            raise ValueError(f"it says that it has written {names or 'nothing'}, which cannot be")
        if isinstance(said, Done) and not self.is_over:
            raise ValueError("it says that it is done, and has not said what it wrote")
        return said

    def _takes(self, output: Output) -> bool:
        """Whether it can be: files of this merge that follow each other, for files of the oldest run that are there."""
        numbers = range(self._files + 1, self._files + 1 + len(output.files))
        if self.is_over or [file.name for file in output.files] != [run_name(self._order.number, at) for at in numbers]:
            return False
        for file in output.files:
            if not self._last < file.first <= file.last:
                return False
            self._last = file.last
        replaced = set(output.replaced)
        left = [file for file in self._left if file.name not in replaced]
        if len(left) + len(output.replaced) != len(self._left):
            return False
        if any(file.first <= old.last and old.first <= file.last for file in output.files for old in left):
            return False
        self._files, self._left, self.is_over = numbers.stop - 1, left, output.is_last
        return True
